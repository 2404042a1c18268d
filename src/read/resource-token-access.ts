/** What every read with a resource token begins with: the token, its rate limit, and the apps that it may read. */
import type { PublicIds } from '../apps/public-ids.ts';
import type { ResourceToken, ResourceTokens } from '../apps/resource-token-lookup.ts';
import { Rejection } from '../errors.ts';
import type { Exchange } from '../http/exchange.ts';
import type { LimitDecision, Limiter } from '../limits/limiter.ts';

export interface ResourceTokenAccessOptions {
  readonly resourceTokens: ResourceTokens;
  /** By the token's internal id. */
  readonly limiter: Limiter;
  /** By the internal id of the account that the token is of. */
  readonly limiterOfAccounts: Limiter;
  readonly apps: PublicIds;
}

const SUSPENDED = new Rejection(
  'accessDenied',
  'The operator of this service has suspended the app: nothing is written to it or read from it.',
);

export class ResourceTokenAccess {
  readonly #options: ResourceTokenAccessOptions;

  constructor(options: ResourceTokenAccessOptions) {
    this.#options = options;
  }

  /**
   * The request's valid token, with the request counted; or the 401 or 429.
   * @param authorization the header, or what stands for it
   */
  async admit(
    exchange: Exchange,
    authorization = exchange.header('authorization'),
  ): Promise<ResourceToken | Rejection> {
    const { resourceTokens, limiter, limiterOfAccounts } = this.#options;
    const token = await resourceTokens.authenticate(authorization);
    if (token instanceof Rejection) return token;
    exchange.readerTokenId = token.tokenId;
    const decision = await limiter.take(token.tokenId);
    exchange.rateLimit = decision;
    if (decision !== null && !decision.accepted) return tooMany(decision, 'A resource token');
    const [account] = token.holder;
    // A token that is no account's is limited as a token alone.
    const ofAccount = typeof account === 'number' ? await limiterOfAccounts.take(account) : null;
    if (ofAccount === null || ofAccount.accepted) return token;
    exchange.rateLimit = ofAccount;
    return tooMany(ofAccount, 'The resource tokens of an account');
  }

  /**
   * The internal id of an app that the token may read.
   * @returns 404 where there is no such app, 403 where the token may not read it or the app is suspended
   */
  async app(token: ResourceToken, appId: string): Promise<number | Rejection> {
    const permitted = token.apps.get(appId);
    if (permitted !== undefined) return permitted;
    if (token.suspendedApps.has(appId)) return SUSPENDED;
    const known = await this.#options.apps.appId(appId);
    if (known === null) return new Rejection('appNotFound', 'No app has this appId.');
    return new Rejection('accessDenied', 'The resource token has no permission on this app.');
  }

  /** Whether the token of a request that was admitted before may still read an app. Is no use of it, and not counted. */
  async mayStillRead(exchange: Pick<Exchange, 'header'>, appId: string): Promise<boolean> {
    const token = await this.#options.resourceTokens.authenticate(exchange.header('authorization'));
    return !(token instanceof Rejection) && token.apps.has(appId);
  }
}

function tooMany({ limit, resetSeconds }: LimitDecision, who: string): Rejection {
  return new Rejection('rateLimitExceeded', `${who} may read ${limit} times in 60 seconds.`, {
    retryAfterSeconds: resetSeconds,
  });
}
