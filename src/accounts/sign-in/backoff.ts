/**
 * Throttles repeated attempts per key (an account, an address): some are free, then each has to wait longer than
 * the previous one, up to a maximum. It is never a lockout: the wait is bounded and expires.
 *
 * In memory and per process, unless the work on it is run around {@link Backoff.record} by `ShareRecords`.
 */
import { LRUCache } from 'lru-cache';
import { atMost } from '../../cache/lookup-cache.ts';
import { Rejection } from '../../errors.ts';
import type { SharedRecord } from '../../limits/shared-records.ts';

export interface BackoffOptions {
  /** Attempts before the first wait, in each tier. */
  readonly free: number;
  /** The first wait between two attempts; 1 s by default. */
  readonly firstMs?: number;
  /** Longest wait between two attempts. */
  readonly longestMs: number;
  /** Attempts after which the wait doubles; 1 by default. */
  readonly doublesEvery?: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Tier {
  count: number;
  /** Start of its last attempt. */
  last: number;
}

type Attempts = Tier[];

/**
 * Tiers of a key that several clients share, by their number of attempts. A client waits only for its tier. Tier 0 is for
 * clients without attempts, the last one for clients with this many attempts or more.
 */
export const TIERS = 5;

const FIRST_WAIT_MS = 1_000;
/** A tier without attempts for this long starts over. */
const FORGET_AFTER_MS = 3_600_000;
const MAX_KEYS = 10_000;

export class Backoff {
  readonly #options: BackoffOptions;
  readonly #attempts = new LRUCache<string, Attempts>(atMost(MAX_KEYS));

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** Milliseconds until the next attempt of this key may begin; 0 if it may begin now. */
  wait(key: string, tier = 0): number {
    const attempts = this.#recent(key, tier);
    const { free, firstMs = FIRST_WAIT_MS, longestMs, doublesEvery = 1, now } = this.#options;
    if (attempts === undefined || attempts.count < free) return 0;
    const wait = Math.min(firstMs * 2 ** Math.floor((attempts.count - free) / doublesEvery), longestMs);
    return Math.max(0, attempts.last + wait - now());
  }

  /** Counts an attempt when it begins: of concurrent attempts only the first ones are free. */
  begin(key: string, tier = 0): void {
    const count = (this.#recent(key, tier)?.count ?? 0) + 1;
    const tiers = this.#attempts.get(key) ?? [];
    while (tiers.length < tier) tiers.push({ ...NO_ATTEMPTS });
    tiers[tier] = { count, last: this.#options.now() };
    this.#attempts.set(key, tiers);
  }

  /** Attempts of a key in the last hour, in all tiers. */
  count(key: string): number {
    let sum = 0;
    for (let tier = 0; tier < TIERS; tier++) sum += this.#recent(key, tier)?.count ?? 0;
    return sum;
  }

  /** The attempt succeeded: earlier ones of this key no longer count. */
  forget(key: string): void {
    this.#attempts.delete(key);
  }

  /** The attempt succeeded, or did not take place: it does not count; earlier ones still do. */
  undo(key: string, tier = 0): void {
    const attempts = this.#attempts.get(key)?.[tier];
    if (attempts !== undefined) attempts.count = Math.max(0, attempts.count - 1);
  }

  /** The attempts of a key as a record of all processes: of each tier its number and the time of the last one. @param name of the record */
  record(name: string, key: string): SharedRecord {
    return {
      name,
      lifeMs: FORGET_AFTER_MS,
      read: (aheadMs) => {
        const tiers = this.#attempts.get(key) ?? [];
        if (!tiers.some((tier) => this.#isRecent(tier))) return '';
        return tiers
          .map((tier) => (this.#isRecent(tier) ? `${tier.count} ${Math.round(tier.last + aheadMs)}` : '0 0'))
          .join();
      },
      write: (text, aheadMs, keepsOwn) => {
        const own = keepsOwn ? (this.#attempts.get(key) ?? []) : [];
        const now = this.#options.now();
        const tiers = text === '' ? [] : text.split(',').map((tier) => readTier(tier, aheadMs, now));
        const joined = Array.from({ length: Math.max(own.length, tiers.length) }, (_, tier) =>
          later(own[tier] ?? NO_ATTEMPTS, tiers[tier] ?? NO_ATTEMPTS),
        );
        if (joined.length === 0) this.#attempts.delete(key);
        else this.#attempts.set(key, joined);
      },
    };
  }

  #recent(key: string, tier: number): Tier | undefined {
    const attempts = this.#attempts.get(key)?.[tier];
    return attempts !== undefined && this.#isRecent(attempts) ? attempts : undefined;
  }

  #isRecent({ last }: Tier): boolean {
    return this.#options.now() - last < FORGET_AFTER_MS;
  }
}

const NO_ATTEMPTS: Tier = { count: 0, last: Number.NEGATIVE_INFINITY };

/** A common clock that was set back must not make anybody wait for longer: no attempt is later than now. */
function readTier(text: string, aheadMs: number, now: number): Tier {
  const [count = 0, last = 0] = text.split(' ').map(Number);
  return count === 0 ? NO_ATTEMPTS : { count, last: Math.min(last - aheadMs, now) };
}

function later(one: Tier, other: Tier): Tier {
  return { count: Math.max(one.count, other.count), last: Math.max(one.last, other.last) };
}

/** Limits of a {@link NetworkBackoff} for one size of network. */
export type NetworkLevel = Pick<BackoffOptions, 'free' | 'longestMs'>;

export interface CountedAttempt {
  /** It succeeded, or did not take place: it does not count. */
  undo(): void;
}

/**
 * Throttles a client by each of its networks. In a wide network, the parts with fewer attempts have a
 * tier of their own, so that a guesser does not block its neighbors.
 */
export class NetworkBackoff {
  readonly #levels: readonly Backoff[];

  /** @param levels for the narrowest network first. @param now milliseconds of a monotonic clock */
  constructor(levels: readonly NetworkLevel[], now: () => number) {
    this.#levels = levels.map((level) => new Backoff({ ...level, now }));
  }

  /**
   * Milliseconds until the next attempt may begin.
   * @param scope counted separately, for example an account; empty for one count
   */
  wait(networks: readonly string[], scope = ''): number {
    return Math.max(...this.#steps(networks, scope).map(({ level, key, tier }) => level.wait(key, tier)));
  }

  /** Counts an attempt when it begins. */
  begin(networks: readonly string[], scope = ''): CountedAttempt {
    const steps = this.#steps(networks, scope);
    for (const { level, key, tier } of steps) level.begin(key, tier);
    return {
      undo: () => {
        for (const { level, key, tier } of steps) level.undo(key, tier);
      },
    };
  }

  /** The attempt succeeded: earlier ones of the narrowest network no longer count. */
  forget(networks: readonly string[], scope = ''): void {
    const [narrowest] = this.#steps(networks, scope);
    narrowest?.level.forget(narrowest.key);
  }

  /** Attempts of the narrowest network in the last hour. */
  count(networks: readonly string[], scope = ''): number {
    const [narrowest] = this.#steps(networks, scope);
    return narrowest === undefined ? 0 : narrowest.level.count(narrowest.key);
  }

  /**
   * The tier of a client in a shared key, by its attempts in the last hour. A wide network has
   * several attempts per tier, so that the first attempts of a whole site do not count as repeated ones of a client.
   */
  tier(networks: readonly string[], scope = ''): number {
    const steps = this.#steps(networks, scope);
    const shares = steps.map(({ level, key }, i) => Math.floor(level.count(key) / ATTEMPTS_PER_TIER ** i));
    return Math.min(TIERS - 1, Math.max(...shares));
  }

  /** What {@link Backoff.record} is, of each network. */
  records(name: string, networks: readonly string[], scope = ''): SharedRecord[] {
    return this.#steps(networks, scope).map(({ level, key }, size) =>
      level.record(`${name} ${size} ${key}`, key),
    );
  }

  #steps(
    networks: readonly string[],
    scope: string,
  ): readonly { readonly level: Backoff; readonly key: string; readonly tier: number }[] {
    let narrower = 0;
    return this.#levels.slice(0, networks.length).map((level, i) => {
      const key = `${networks[i]} ${scope}`;
      const step = { level, key, tier: Math.min(TIERS - 1, narrower) };
      narrower = level.count(key);
      return step;
    });
  }
}

const ATTEMPTS_PER_TIER = 2;

/** The 429 response of all throttled operations. */
export function throttled(waitMs: number): Rejection {
  const retryAfterSeconds = Math.ceil(waitMs / 1_000);
  return new Rejection('tooManyAttempts', `Wait ${retryAfterSeconds} s before the next attempt.`, {
    retryAfterSeconds,
  });
}
