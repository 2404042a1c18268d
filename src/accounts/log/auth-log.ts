/**
 * The authentication log: sign-ins, their sources, and changes of accounts, members and tokens (ASVS 16.3).
 * Each is a line of the service's log with a field `event`, one name per kind of event. The fields of a line are
 * a closed list that has no field for a password, a token, a cookie or a link.
 */
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { MOST_CLIENTS, Window } from '../../base/window.ts';
import { atMost } from '../../cache/lookup-cache.ts';

/** Every event with its level and message. A name that the audit log also uses has the same meaning there. */
export const AUTH_EVENTS = {
  'sign-in.success': ['info', 'signed in'],
  'sign-in.failure': ['warn', 'sign-in failed'],
  'sign-in.first-step': ['info', 'password correct, code needed'],
  'sign-in.new-device': ['info', 'signed in from a device that the account has not used before'],
  'oidc.refusal': ['warn', 'sign-in at the issuer refused'],
  'oidc.logout': ['info', 'sessions ended by the issuer'],
  'oidc.logout-unknown': ['warn', 'the issuer ended a session that is not known'],
  'identity.join': ['info', 'identity of the issuer joined to the account'],
  'identity.leave': ['info', 'identity of the issuer removed from the account'],
  'sign-out': ['info', 'signed out'],
  'sign-out.one': ['info', 'another session of the account ended'],
  'sign-out.others': ['info', 'all other sessions of the account ended'],
  'sign-out.everywhere': ['info', 'all sessions of the account ended'],
  'second-factor.enable': ['info', 'second factor turned on'],
  'second-factor.disable': ['info', 'second factor turned off'],
  'second-factor.failure': ['warn', 'code of a second factor refused'],
  'second-factor.guessing': ['warn', 'many wrong codes in a row'],
  'second-factor.lock': ['warn', 'codes of the authenticator refused after too many wrong codes'],
  'recovery-codes.create': ['info', 'recovery codes replaced'],
  'recovery-code.use': ['info', 'recovery code used'],
  'account.create': ['info', 'account created'],
  'email.verify': ['info', 'address verified'],
  'password-change.success': ['info', 'password changed'],
  'password-change.failure': ['warn', 'password change failed'],
  'password-reset.request': ['info', 'password reset requested'],
  'password-reset.success': ['info', 'password set by a link'],
  'link.create': ['info', 'one-time link created'],
  'link.failure': ['warn', 'one-time link refused'],
  'share.create': ['info', 'view or board shared by a link'],
  'share.revoke': ['info', 'share revoked'],
  'share.failure': ['warn', 'password of a share refused'],
  'app.create': ['info', 'app created with its logging token'],
  'app.delete': ['info', 'app deleted with its members and tokens'],
  'app.restore': ['info', 'app restored with its members and tokens'],
  'app.erase': ['info', 'app removed from the bin'],
  'logging-token.rotate': ['info', 'logging token rotated'],
  'resource-token.create': ['info', 'resource token created'],
  'resource-token.revoke': ['info', 'resource token revoked'],
  'resource-token.restore': ['info', 'revocation of a resource token undone'],
  'resource-token.keep': ['info', 'resource token of a former member kept'],
  'producer.create': ['info', 'producer created'],
  'producer.rotate': ['info', 'logging token of a producer rotated'],
  'producer.revoke': ['info', 'producer revoked'],
  'producer.restore': ['info', 'revocation of a producer undone'],
  'browser-key.create': ['info', 'browser key created'],
  'browser-key.revoke': ['info', 'browser key revoked'],
  'browser-key.restore': ['info', 'revocation of a browser key undone'],
  'member.role': ['info', 'role of a member changed'],
  'member.remove': ['info', 'member removed'],
  'member.leave': ['info', 'member left'],
  'invitation.create': ['info', 'invitation created'],
  'invitation.withdraw': ['info', 'invitation withdrawn'],
  'invitation.accept': ['info', 'invitation accepted'],
  'slow-down.refusal': ['warn', 'refused after too many attempts'],
  'access.refusal': ['warn', 'access refused'],
} as const satisfies Record<string, readonly ['info' | 'warn', string]>;

export type AuthEvent = keyof typeof AUTH_EVENTS;

/** The source of an event; the account is the signed-in one. */
export interface AuthSource {
  /** The client's address; empty if unknown. */
  readonly ip: string;
  /** X-Request-Id of the response. */
  readonly requestId: string;
  readonly userId?: string | undefined;
  readonly email?: string | undefined;
}

/** Further fields of a line. No value is a secret: only identifiers, email addresses and constants. */
export interface AuthFields {
  /** The account that the event is about, if no session exists. */
  readonly userId?: string;
  /** Its email address; for failures, as entered. */
  readonly email?: string;
  readonly appId?: string;
  readonly tokenId?: string;
  readonly shareId?: string;
  readonly invitationId?: string;
  /** The user who is added, invited or removed. */
  readonly targetUserId?: string;
  readonly targetEmail?: string;
  /** From a closed list: "Firefox on Linux". */
  readonly device?: string;
  /** The purpose of a link, or how an account was created. */
  readonly purpose?: string;
  /** Why the issuer's answer was refused, in the words of the library, or which issuer it was; never a token or a code. */
  readonly cause?: string;
  /** What an account had before its address was verified, and what a reset has ended of it: numbers, and names of issuers. */
  readonly access?: string;
  /** The `code` of the refusal. */
  readonly reason?: string;
  readonly method?: string;
  /** The route's pattern, never the requested path. */
  readonly route?: string;
  readonly retryAfterSeconds?: number;
}

/** Writes a line with the source of one request or task. */
export type Note = (event: AuthEvent, fields?: AuthFields) => void;

export interface AuthLogOptions {
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Refusals cost an attacker almost nothing, so each kind logs at most one line per client and interval. */
const REFUSAL_EVERY_MS = 10_000;
const MAX_SOURCES = 10_000;
/** Limit for all clients together. */
const MAX_REFUSALS_PER_SECOND = 20;

export class AuthLog {
  readonly #options: AuthLogOptions;
  /** Lines about refusals, by event and client, and of all together. */
  readonly #ofClient: Window;
  readonly #ofAll: Window;
  /** Refusals that were not logged since the last line, by event and client. */
  readonly #suppressed = new LRUCache<string, number>(atMost(MAX_SOURCES));

  constructor(options: AuthLogOptions) {
    this.#options = options;
    const { now } = options;
    this.#ofClient = new Window({ limit: 1, ms: REFUSAL_EVERY_MS, maxKeys: MOST_CLIENTS, now });
    this.#ofAll = new Window({ limit: MAX_REFUSALS_PER_SECOND, ms: 1_000, now });
  }

  /** @param source null for actions of the service itself */
  write(
    event: AuthEvent,
    source: AuthSource | null,
    fields: AuthFields & { suppressed?: number } = {},
  ): void {
    const [level, message] = AUTH_EVENTS[event];
    // The event and the address come first: fail2ban filters are anchored to the beginning of the line.
    this.#options.log[level]({ event, ...source, ...fields }, `auth: ${message}`);
  }

  /**
   * Writes an event that any client can trigger, rate-limited. The next line carries the number of suppressed events.
   * @param client key of the client
   */
  writeRefusal(event: AuthEvent, client: string, source: AuthSource, fields: AuthFields): void {
    const key = `${event} ${client}`;
    const suppressed = this.#suppressed.get(key) ?? 0;
    if (!this.#mayWrite(key)) {
      this.#suppressed.set(key, suppressed + 1);
      return;
    }
    this.#suppressed.delete(key);
    this.write(event, source, suppressed > 0 ? { ...fields, suppressed } : fields);
  }

  #mayWrite(key: string): boolean {
    if (this.#ofClient.wait(key) > 0) return false;
    if (this.#ofAll.wait('all') === 0) return true;
    this.#ofClient.giveBack(key);
    return false;
  }
}
