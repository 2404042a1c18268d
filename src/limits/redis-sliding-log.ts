/**
 * Limits that all processes share: the exact sliding window in Redis, and each process's own window while Redis is away.
 *
 * What waits in one turn of the event loop goes to Redis in one call. While Redis answers, the limit is exact over all
 * processes. While it does not, each process accepts at most the limit of what passes through it, counting what Redis
 * has accepted for it before; a window in Redis lacks what was accepted meanwhile, so for one window after its return
 * both must accept.
 */
import type { Logger } from 'pino';
import type { LimitDecision, Limiter } from './limiter.ts';
import { describeRedisError, RedisConnection } from './redis-connection.ts';
import { SlidingLog } from './sliding-log.ts';

export interface SharedLimitsOptions {
  readonly url: string;
  /** What the keys of this installation begin with, hash tag included. */
  readonly prefix: string;
  /** Milliseconds that a request may wait for Redis. */
  readonly timeoutMs: number;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock, for the process's own windows. */
  readonly now: () => number;
  /** Microseconds in place of Redis's own clock, for tests. */
  readonly redisTime?: () => number;
}

/** Figures for monitoring. */
export interface SharedLimitsStats {
  /** Whether limits are common to all processes now. */
  readonly shared: boolean;
  /** How often Redis went away. */
  readonly fallbacks: number;
  /** Requests decided by the process's own windows. */
  readonly ownDecisions: number;
}

const WINDOW_MS = 60_000;
/** Most keys of one call, so that a script never keeps Redis busy for long. */
const MAX_KEYS = 500;
/** How long a start waits for the first connection. */
const START_MS = 1_000;
/**
 * How long after Redis went away it is asked whether it is back, twice as long each time. Only a Redis that then stays for
 * STEADY_MS is asked early again: one that is now and then too slow must not fill the log, nor keep requests waiting.
 */
const ASK_MS = { first: 250, most: 1_000, mostUnsteady: 5_000 };
const STEADY_MS = 60_000;
/** Unanswered questions after which the connection is given up. */
const MAX_SILENCE = 3;

type Resolve = (decision: LimitDecision) => void;

/** What one turn asks of one key. */
interface Question {
  readonly limiter: RedisSlidingLog;
  readonly key: number;
  readonly waiting: readonly Resolve[];
}

/** Redis as the limiters of one process see it: there, or away. */
export class SharedLimits {
  readonly #options: SharedLimitsOptions;
  readonly #connection: RedisConnection;
  readonly #limiters: RedisSlidingLog[] = [];
  /** Ends a call early, when another one has found that Redis is away. */
  readonly #calls = new Set<(reason: Error) => void>();
  #shared = false;
  #fallbacks = 0;
  /** Why it is away. */
  #reason = 'it does not answer';
  #isScheduled = false;
  #isStopped = false;
  #timer: NodeJS.Timeout | null = null;
  #isAsking = false;
  #silence = 0;
  #askMs: number = ASK_MS.first;
  #sharedSince = Number.NEGATIVE_INFINITY;
  #onStarted: (() => void) | null = null;

  private constructor(options: SharedLimitsOptions) {
    this.#options = options;
    this.#connection = new RedisConnection({
      url: options.url,
      onReady: () => this.#ask(),
      onLost: (reason) => {
        if (!this.#shared) this.#reason = reason;
        this.#leave(new Error(reason));
      },
    });
  }

  /** Connects; where Redis cannot be reached, the limits are the process's own until it can. */
  static async start(options: SharedLimitsOptions): Promise<SharedLimits> {
    const shared = new SharedLimits(options);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, START_MS);
      shared.#onStarted = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    shared.#onStarted = null;
    if (!shared.#shared) shared.#sayAway();
    return shared;
  }

  get stats(): SharedLimitsStats {
    const ownDecisions = this.#limiters.reduce((sum, limiter) => sum + limiter.ownDecisions, 0);
    return { shared: this.#shared, fallbacks: this.#fallbacks, ownDecisions };
  }

  get isShared(): boolean {
    return this.#shared;
  }

  /** Whether Redis's windows hold all that was accepted: not within a window after it was away. */
  get isComplete(): boolean {
    return this.#options.now() - this.#sharedSince >= WINDOW_MS;
  }

  /**
   * A limiter on this connection.
   * @param options.name  what its keys are of; no two limiters share one
   * @param options.limit accepted requests per key in any 60 seconds; 0 lifts the limit
   */
  limiter(options: { readonly name: string; readonly limit: number }): Limiter {
    const limiter = new RedisSlidingLog(this, { ...options, now: this.#options.now });
    this.#limiters.push(limiter);
    return limiter;
  }

  /** The limiter has something to ask: at the end of this turn, after all that has arrived with it. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#send());
  }

  /** Leaves Redis. Who still waits is decided by the process's own windows. */
  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#shared = false;
    this.#endCalls(new Error('stopped'));
    this.#connection.close();
  }

  #send(): void {
    this.#isScheduled = false;
    const questions = this.#limiters.flatMap((limiter) => limiter.takeQuestions());
    for (let from = 0; from < questions.length; from += MAX_KEYS)
      void this.#put(questions.slice(from, from + MAX_KEYS));
  }

  async #put(questions: readonly Question[]): Promise<void> {
    let answer: readonly number[];
    try {
      if (!this.#shared) throw new Error('away');
      answer = await this.#call(
        questions.map(({ limiter, key }) => `${this.#options.prefix}:${limiter.name}:${key}`),
        questions.flatMap(({ limiter, waiting }) => [waiting.length, limiter.limit]),
      );
    } catch (error) {
      this.#leave(error);
      for (const { limiter, key, waiting } of questions) limiter.decideAlone(key, waiting);
      return;
    }
    for (const [index, { limiter, key, waiting }] of questions.entries()) {
      limiter.settle(key, waiting, {
        accepted: answer[3 * index] ?? 0,
        count: answer[3 * index + 1] ?? 0,
        resetMicros: answer[3 * index + 2] ?? 0,
      });
    }
  }

  /** @throws where Redis does not answer in time, or not as it should */
  #call(keys: readonly string[], wanted: readonly number[]): Promise<readonly number[]> {
    const { timeoutMs, redisTime } = this.#options;
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#calls.delete(fail);
      };
      const fail = (reason: unknown): void => {
        end();
        reject(reason);
      };
      // An answer that has come while this process was busy is read first.
      const late = (): unknown =>
        setImmediate(() => this.#calls.has(fail) && fail(new Error(tooSlow(timeoutMs))));
      const timer = setTimeout(late, timeoutMs);
      this.#calls.add(fail);
      this.#connection
        .run(keys, redisTime === undefined ? '' : String(redisTime()), wanted)
        .then((answer) => {
          end();
          resolve(answer);
        }, fail);
    });
  }

  #endCalls(reason: Error): void {
    for (const fail of [...this.#calls]) fail(reason);
  }

  /** Redis is away: what waits for it is decided here, and it is asked from time to time whether it is back. */
  #leave(error: unknown): void {
    if (this.#shared) {
      this.#shared = false;
      this.#fallbacks += 1;
      const wasSteady = this.#options.now() - this.#sharedSince >= STEADY_MS;
      this.#askMs = wasSteady ? ASK_MS.first : Math.min(this.#askMs * 2, ASK_MS.mostUnsteady);
      this.#reason = describeRedisError(error);
      this.#sayAway();
      this.#endCalls(new Error('away'));
    }
    this.#askLater();
  }

  #sayAway(): void {
    this.#options.log.warn(
      { reason: this.#reason },
      'Redis is away: until it is back, limits are per process',
    );
  }

  #askLater(): void {
    if (this.#isStopped || this.#timer !== null || this.#isAsking) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#ask();
    }, this.#askMs);
    this.#timer.unref();
  }

  /** One call of the script on a key of its own, which says that Redis is there, quick enough, and can be written to. */
  #ask(): void {
    if (this.#shared || this.#isStopped || this.#isAsking || this.#timer !== null) return;
    if (!this.#connection.isReady) {
      this.#stayAway();
      return;
    }
    this.#isAsking = true;
    this.#call([`${this.#options.prefix}:asked`], [1, 1_000_000]).then(
      () => this.#enter(),
      (error: unknown) => {
        this.#reason = describeRedisError(error);
        this.#stayAway();
      },
    );
  }

  #enter(): void {
    this.#isAsking = false;
    if (this.#isStopped) return;
    this.#silence = 0;
    this.#shared = true;
    this.#sharedSince = this.#options.now();
    this.#onStarted?.();
    this.#options.log.info('Limits are shared through Redis');
  }

  #stayAway(): void {
    this.#isAsking = false;
    this.#silence += 1;
    // Where packets are lost without a word, the old connection would stay silent for minutes after the others work.
    if (this.#silence % MAX_SILENCE === 0) this.#connection.renew();
    this.#askMs = Math.max(this.#askMs, Math.min(this.#askMs * 2, ASK_MS.most));
    this.#askLater();
  }
}

function tooSlow(timeoutMs: number): string {
  return `no answer within ${timeoutMs} ms (REDIS_TIMEOUT_MS)`;
}

/** What Redis says of one key. */
interface Answer {
  readonly accepted: number;
  /** Requests in the window, those that were accepted now included. */
  readonly count: number;
  readonly resetMicros: number;
}

/** The window of one operation, in Redis, and in this process for when Redis is away. */
class RedisSlidingLog implements Limiter {
  readonly name: string;
  readonly limit: number;
  readonly #shared: SharedLimits;
  readonly #own: SlidingLog;
  #waiting = new Map<number, Resolve[]>();
  ownDecisions = 0;

  constructor(shared: SharedLimits, options: { name: string; limit: number; now: () => number }) {
    this.name = options.name;
    this.limit = options.limit;
    this.#shared = shared;
    this.#own = new SlidingLog(options);
  }

  take(key: number): LimitDecision | null | Promise<LimitDecision> {
    if (this.limit === 0) return null;
    if (!this.#shared.isShared) {
      this.ownDecisions += 1;
      return this.#own.take(key);
    }
    // What the own window refuses must take no place in Redis's.
    const refused = this.#shared.isComplete ? null : this.#own.refusal(key);
    if (refused !== null) return refused;
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) this.#waiting.set(key, [resolve]);
      else waiting.push(resolve);
      this.#shared.schedule();
    });
  }

  /** What this turn has gathered. */
  takeQuestions(): Question[] {
    if (this.#waiting.size === 0) return [];
    const questions = [...this.#waiting].map(([key, waiting]) => ({ limiter: this, key, waiting }));
    this.#waiting = new Map();
    return questions;
  }

  /** The first ones were accepted, the others not. */
  settle(key: number, waiting: readonly Resolve[], { accepted, count, resetMicros }: Answer): void {
    const { limit } = this;
    const resetSeconds = Math.max(1, Math.ceil(resetMicros / 1_000_000));
    const isComplete = this.#shared.isComplete;
    for (const [index, resolve] of waiting.entries()) {
      if (index >= accepted) {
        resolve({ accepted: false, limit, remaining: Math.max(0, limit - count), resetSeconds });
        continue;
      }
      const own = isComplete ? null : this.#own.take(key);
      if (own === null) this.#own.note(key);
      if (own?.accepted === false) resolve(own);
      else
        resolve({ accepted: true, limit, remaining: limit - (count - accepted) - index - 1, resetSeconds });
    }
  }

  /** Redis did not answer. It may have counted them: that is on the safe side. */
  decideAlone(key: number, waiting: readonly Resolve[]): void {
    this.ownDecisions += waiting.length;
    for (const resolve of waiting) {
      const decision = this.#own.take(key);
      // A limit of 0 never waits.
      if (decision !== null) resolve(decision);
    }
  }
}
