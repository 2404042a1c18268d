/**
 * How often a password may be tried: by account and client, by client, and by account from everywhere.
 *
 * The last count alone would let a stranger keep the owner out by guessing. So a client that has signed in to the account
 * from its network before is held up by nothing but its own failures; and of those who have not, the ones that have tried
 * less often wait only for each other: thirty guessers are past their first attempts soon, and a new address is in a lane
 * where they no longer are. All of it is in memory, bounded, and per process.
 */
import { LRUCache } from 'lru-cache';
import type { Email } from './email.ts';
import { LANES, NetworkSlowDown, SlowDown } from './slow-down.ts';

/** Attempts of a client at anything that costs a hash. The wide levels have lanes, and so many free attempts in each. */
export const CLIENT_LEVELS = [
  { free: 20, longestMs: 60_000 },
  { free: 12, longestMs: 10_000 },
  { free: 40, longestMs: 10_000 },
] as const;

/** Attempts of a client at one account. */
const PAIR_LEVELS = [
  { free: 5, longestMs: 60_000 },
  { free: 3, longestMs: 60_000 },
  { free: 5, longestMs: 60_000 },
] as const;

/** Attempts at one account from everywhere, in each lane: the wait doubles slowly, so that a lane moves on while it is full. */
const ACCOUNT_LEVEL = { free: 50 / LANES, longestMs: 10_000, doublesEvery: 60 } as const;

/** Accounts whose networks are remembered, and networks of one: no account can push out those of many others. */
const MAX_KNOWN_ACCOUNTS = 10_000;
const MAX_KNOWN_NETWORKS = 20;

/** Which count refuses, for metrics. */
const SLOW_DOWNS = ['account_and_client', 'client', 'account'] as const;
export type SlowedBy = (typeof SLOW_DOWNS)[number];

/** A password check that was admitted, and is counted until it says otherwise. */
export interface AdmittedAttempt {
  /** Whether the client has signed in to this account before. */
  readonly isKnown: boolean;
  /** Attempts of the client in the last hour that have not succeeded. */
  readonly failures: number;
  /** The password was right. */
  succeeded(): void;
  /** The password was not checked. */
  notChecked(): void;
}

export class SignInLimits {
  readonly #ofPair: NetworkSlowDown;
  readonly #ofClient: NetworkSlowDown;
  readonly #ofAccount: SlowDown;
  /** By account: the networks from which it has signed in, the latest last. */
  readonly #known = new LRUCache<string, Set<string>>({ max: MAX_KNOWN_ACCOUNTS });
  /** Attempts that had to wait, by the count with the longest wait. */
  readonly slowedDown: Record<SlowedBy, number> = { account_and_client: 0, client: 0, account: 0 };

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#ofPair = new NetworkSlowDown(PAIR_LEVELS, now);
    this.#ofClient = new NetworkSlowDown(CLIENT_LEVELS, now);
    this.#ofAccount = new SlowDown({ ...ACCOUNT_LEVEL, now });
  }

  /** Counts an attempt, or says for how many milliseconds to wait. */
  admit(email: Email, networks: readonly string[]): AdmittedAttempt | number {
    const isKnown = this.#isKnown(email, networks);
    const lane = this.#ofPair.lane(networks, email.key);
    const waits: Record<SlowedBy, number> = {
      account_and_client: this.#ofPair.wait(networks, email.key),
      client: isKnown ? 0 : this.#ofClient.wait(networks),
      account: isKnown ? 0 : this.#ofAccount.wait(email.key, lane),
    };
    const wait = Math.max(...Object.values(waits));
    if (wait > 0) {
      const by = SLOW_DOWNS.find((count) => waits[count] === wait);
      if (by !== undefined) this.slowedDown[by] += 1;
      return wait;
    }
    const failures = this.#ofClient.count(networks);
    const pair = this.#ofPair.begin(networks, email.key);
    const client = this.#ofClient.begin(networks);
    this.#ofAccount.begin(email.key, lane);
    const takeBack = (): void => {
      pair.takeBack();
      this.#ofAccount.takeBack(email.key, lane);
    };
    return {
      isKnown,
      failures,
      succeeded: () => {
        takeBack();
        client.takeBack();
        this.remember(email, networks);
      },
      // The client's own count stays: asking for more than there is room for is an attempt as well.
      notChecked: takeBack,
    };
  }

  /** From here the account was signed in to, or its password was set by a link: earlier failures count no more. */
  remember(email: Email, networks: readonly string[]): void {
    this.#ofPair.forget(networks, email.key);
    const known = this.#known.get(email.key) ?? new Set();
    const [narrowest = ''] = networks;
    known.delete(narrowest);
    known.add(narrowest);
    for (const oldest of known) {
      if (known.size <= MAX_KNOWN_NETWORKS) break;
      known.delete(oldest);
    }
    this.#known.set(email.key, known);
  }

  #isKnown(email: Email, [narrowest = '']: readonly string[]): boolean {
    return this.#known.get(email.key)?.has(narrowest) ?? false;
  }
}
