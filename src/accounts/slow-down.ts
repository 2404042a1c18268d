/**
 * Slows down repeated attempts, by key (an account, an address): some attempts are free, then each has to wait longer than
 * the one before, up to a bound. Never a lockout: the wait is bounded, and forgotten after a while.
 *
 * In memory and per process: with several processes on one port a guesser has that many times the attempts.
 */
import { LRUCache } from 'lru-cache';

export interface SlowDownOptions {
  /** Attempts before the first wait, in each lane. */
  readonly free: number;
  /** The first wait between two attempts; 1 s by default. */
  readonly firstMs?: number;
  /** Longest wait between two attempts. */
  readonly longestMs: number;
  /** The wait doubles every so many attempts; with each attempt by default. */
  readonly doublesEvery?: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Lane {
  count: number;
  /** When its last attempt began. */
  last: number;
}

/** The attempts of one key, by lane. */
type Attempts = Lane[];

/**
 * Lanes of a key that many share: those who have tried less often than others wait only for each other. Lane 0 is for who
 * has not tried yet, the last one for all who have tried this often or more.
 */
export const LANES = 5;

const FIRST_WAIT_MS = 1_000;
/** A lane that was quiet for this long starts over. */
const FORGET_AFTER_MS = 3_600_000;
const MAX_KEYS = 10_000;

export class SlowDown {
  readonly #options: SlowDownOptions;
  readonly #attempts = new LRUCache<string, Attempts>({ max: MAX_KEYS });

  constructor(options: SlowDownOptions) {
    this.#options = options;
  }

  /** Milliseconds until the next attempt of this key may begin; 0 where it may begin now. */
  wait(key: string, lane = 0): number {
    const attempts = this.#recent(key, lane);
    const { free, firstMs = FIRST_WAIT_MS, longestMs, doublesEvery = 1, now } = this.#options;
    if (attempts === undefined || attempts.count < free) return 0;
    const wait = Math.min(firstMs * 2 ** Math.floor((attempts.count - free) / doublesEvery), longestMs);
    return Math.max(0, attempts.last + wait - now());
  }

  /** Counts an attempt when it begins: of many at once only the first ones are free. */
  begin(key: string, lane = 0): void {
    const count = (this.#recent(key, lane)?.count ?? 0) + 1;
    const lanes = this.#attempts.get(key) ?? [];
    while (lanes.length < lane) lanes.push({ count: 0, last: Number.NEGATIVE_INFINITY });
    lanes[lane] = { count, last: this.#options.now() };
    this.#attempts.set(key, lanes);
  }

  /** Attempts of a key in the last hour, in all lanes. */
  count(key: string): number {
    let sum = 0;
    for (let lane = 0; lane < LANES; lane++) sum += this.#recent(key, lane)?.count ?? 0;
    return sum;
  }

  /** The attempt succeeded: no earlier one of this key counts any more. */
  forget(key: string): void {
    this.#attempts.delete(key);
  }

  /** The attempt succeeded, or did not take place: it does not count, earlier ones still do. */
  takeBack(key: string, lane = 0): void {
    const attempts = this.#attempts.get(key)?.[lane];
    if (attempts !== undefined) attempts.count = Math.max(0, attempts.count - 1);
  }

  #recent(key: string, lane: number): Lane | undefined {
    const attempts = this.#attempts.get(key)?.[lane];
    return attempts !== undefined && this.#options.now() - attempts.last < FORGET_AFTER_MS
      ? attempts
      : undefined;
  }
}

/** How a {@link NetworkSlowDown} treats one size of network. */
export type NetworkLevel = Pick<SlowDownOptions, 'free' | 'longestMs'>;

/** An attempt that was counted. */
export interface CountedAttempt {
  /** It succeeded, or did not take place: it does not count. */
  takeBack(): void;
}

/**
 * Slows down a client by each of its networks (networks.ts). In a wide network a part that has tried less often than others
 * has a lane of its own, so that a guesser does not hold up the neighbors.
 */
export class NetworkSlowDown {
  readonly #levels: readonly SlowDown[];

  /** @param levels for the narrowest network first */
  constructor(levels: readonly NetworkLevel[], now: () => number) {
    this.#levels = levels.map((level) => new SlowDown({ ...level, now }));
  }

  /**
   * Milliseconds until the next attempt may begin.
   * @param scope what is counted apart, for example an account; empty where nothing is
   */
  wait(networks: readonly string[], scope = ''): number {
    return Math.max(...this.#steps(networks, scope).map(({ level, key, lane }) => level.wait(key, lane)));
  }

  /** Counts an attempt when it begins. */
  begin(networks: readonly string[], scope = ''): CountedAttempt {
    const steps = this.#steps(networks, scope);
    for (const { level, key, lane } of steps) level.begin(key, lane);
    return {
      takeBack: () => {
        for (const { level, key, lane } of steps) level.takeBack(key, lane);
      },
    };
  }

  /** The attempt succeeded: no earlier one of the narrowest network counts any more. */
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
   * The lane of a client in what it shares with others: by how often it has tried in the last hour. A wide network has a
   * few attempts for each lane, so that a whole site's first attempts are not one client's fifth.
   */
  lane(networks: readonly string[], scope = ''): number {
    const steps = this.#steps(networks, scope);
    const shares = steps.map(({ level, key }, i) => Math.floor(level.count(key) / ATTEMPTS_A_LANE ** i));
    return Math.min(LANES - 1, Math.max(...shares));
  }

  #steps(
    networks: readonly string[],
    scope: string,
  ): readonly { readonly level: SlowDown; readonly key: string; readonly lane: number }[] {
    let narrower = 0;
    return this.#levels.slice(0, networks.length).map((level, i) => {
      const key = `${networks[i]} ${scope}`;
      const step = { level, key, lane: Math.min(LANES - 1, narrower) };
      narrower = level.count(key);
      return step;
    });
  }
}

const ATTEMPTS_A_LANE = 2;
