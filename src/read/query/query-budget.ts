/** How long queries may read: a budget of seconds in any 60, which a token, an account's sessions and a whole account have. */
import type { Path } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import type { LimitDecision, Limiter } from '../../limits/limiter.ts';
import type { FeedHolder } from '../live/live-feeds.ts';

/** What one unit of the limiters stands for. */
export const UNIT_MS = 100;

export interface QueryBudgetOptions {
  /** Units, by the token's internal id; of an account's sessions by its own id, negative. */
  readonly ofHolder: Limiter;
  /** Units, by the internal id of the account. */
  readonly ofAccount: Limiter;
}

/** For metrics. */
export interface QueryBudgetStats {
  /** Refused before their beginning. */
  refused: number;
  /** Ended before their end. */
  cut: number;
  /** Milliseconds of reading. */
  spentMs: number;
}

export class QueryBudget {
  readonly #options: QueryBudgetOptions;
  readonly stats: QueryBudgetStats = { refused: 0, cut: 0, spentMs: 0 };

  constructor(options: QueryBudgetOptions) {
    this.#options = options;
  }

  /** What a query may spend, if it may begin; or the 429. */
  async begin(holder: FeedHolder, turns: Path): Promise<Spending | Rejection> {
    const spending = new Spending(this.#options, this.stats, holder, turns);
    const refused = await spending.take();
    if (refused === null) return spending;
    this.stats.refused += 1;
    return spent(refused, turns);
  }
}

export class Spending {
  readonly #options: QueryBudgetOptions;
  readonly #stats: QueryBudgetStats;
  readonly #holder: number;
  readonly #account: number | null;
  /** What was taken and not used yet. */
  #leftMs = UNIT_MS;
  #isSpent = false;
  spentMs = 0;

  constructor(options: QueryBudgetOptions, stats: QueryBudgetStats, holder: FeedHolder, [account]: Path) {
    this.#options = options;
    this.#stats = stats;
    this.#holder = holder.kind === 'token' ? holder.tokenId : -holder.userId;
    // A token that is no account's is limited as a token alone.
    this.#account = typeof account === 'number' ? account : null;
  }

  /** Takes one unit. @returns null if there was one; otherwise what was decided */
  async take(): Promise<LimitDecision | null> {
    const { ofHolder, ofAccount } = this.#options;
    const decisions = [
      await ofHolder.take(this.#holder),
      this.#account === null ? null : await ofAccount.take(this.#account),
    ];
    return decisions.find((decision) => decision?.accepted === false) ?? null;
  }

  /**
   * Notes that the query has read for so long.
   * @returns null while it may go on; otherwise after how many seconds it may again
   */
  async spend(ms: number): Promise<number | null> {
    this.#stats.spentMs += ms;
    this.spentMs += ms;
    this.#leftMs -= ms;
    while (this.#leftMs <= 0) {
      const refused = await this.take();
      if (refused !== null) {
        if (!this.#isSpent) this.#stats.cut += 1;
        this.#isSpent = true;
        return refused.resetSeconds;
      }
      this.#leftMs += UNIT_MS;
    }
    return null;
  }
}

function spent({ limit, resetSeconds }: LimitDecision, [account]: Path): Rejection {
  const who = typeof account === 'number' ? 'A resource token, or an account' : 'A resource token';
  return new Rejection(
    'rateLimitExceeded',
    `${who} may have queries read for ${(limit * UNIT_MS) / 1_000} seconds in any 60. Declared fields are answered at no such cost.`,
    { retryAfterSeconds: resetSeconds },
  );
}
