/**
 * Limits that all processes share: the exact sliding window in Redis, with a window per process while Redis is unavailable.
 *
 * All requests of a turn of the event loop go to Redis in one call. While Redis answers, the limit is exact over all
 * processes. While it does not, each process enforces the limit on its own requests, counting those that Redis accepted
 * for it before. A window in Redis lacks what was accepted meanwhile, so for one window after Redis returns both must
 * accept.
 */
import type { Logger } from 'pino';
import { deadline } from '../base/timeout.ts';
import { Window } from '../base/window.ts';
import { DayCounts, type DayCountsOptions, type DayDecision, type DayLimiter } from './day-counts.ts';
import type { LimitDecision, Limiter } from './limiter.ts';
import { describeRedisError, RedisConnection, type RedisScript, redisScript } from './redis-connection.ts';
import { SLIDING_LOG_SCRIPT } from './redis-script.ts';
import { SharedRecords } from './shared-records.ts';

export interface SharedLimitsOptions {
  readonly url: string;
  /** Key prefix of this installation, hash tag included. */
  readonly prefix: string;
  /** Milliseconds that a request may wait for Redis. */
  readonly timeoutMs: number;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock, for the process's own windows. */
  readonly now: () => number;
  /** Microseconds in place of Redis's own clock, for tests. */
  readonly redisTime?: (() => number) | undefined;
}

export interface SharedLimitsStats {
  /** Whether limits are shared by all processes now. */
  readonly shared: boolean;
  /** How often Redis became unavailable. */
  readonly fallbacks: number;
  /** Requests decided by the process's own windows. */
  readonly ownDecisions: number;
}

const WINDOW_MS = 60_000;
/** A limit that no window reaches. */
const MOST = 2_000_000_000;
/** Largest number of keys per call, so that a script does not block Redis for long. */
const MAX_KEYS = 500;
/** Timeout of the first connection at start. */
const START_MS = 1_000;
/**
 * Delay before Redis is probed after a failure, doubled each time. It is reset only if Redis stays available for STEADY_MS:
 * a Redis that is slow now and then must not flood the log nor delay requests.
 */
const PROBE_MS = { first: 250, most: 1_000, mostUnsteady: 5_000 };
const STEADY_MS = 60_000;
/** Unanswered probes after which the connection is replaced. */
const MAX_SILENCE = 3;

const DECIDE = redisScript(SLIDING_LOG_SCRIPT);

type Resolve = (decision: LimitDecision) => void;

/** What one key is asked in one turn. */
interface Question {
  /** Without the prefix. */
  readonly key: string;
  /** As the script takes them. */
  readonly numbers: readonly [wanted: number, limit: number, known: number];
  readonly settle: (answer: Answer) => void;
  /** Redis did not answer. */
  readonly decideAlone: () => void;
}

/** What asks Redis once a turn. */
interface Asking {
  takeQuestions(): Question[];
  /** Requests that were decided without Redis. */
  readonly ownDecisions: number;
}

/** Shared state of the limiters of one process: whether Redis is available. */
export class SharedLimits {
  readonly #options: SharedLimitsOptions;
  readonly #connection: RedisConnection;
  readonly #limiters: Asking[] = [];
  /** Ends pending calls early when another one finds Redis unavailable. */
  readonly #calls = new Set<(reason: Error) => void>();
  #shared = false;
  #fallbacks = 0;
  /** Why Redis is unavailable. */
  #reason = 'no answer';
  #isScheduled = false;
  #isStopped = false;
  #timer: NodeJS.Timeout | null = null;
  #isProbing = false;
  #silence = 0;
  #probeMs: number = PROBE_MS.first;
  #sharedSince = Number.NEGATIVE_INFINITY;
  #onStarted: (() => void) | null = null;

  private constructor(options: SharedLimitsOptions) {
    this.#options = options;
    this.#connection = new RedisConnection({
      url: options.url,
      onReady: () => this.#probe(),
      onLost: (reason) => {
        if (!this.#shared) this.#reason = reason;
        this.#leave(new Error(reason));
      },
    });
  }

  /** Connects. If Redis cannot be reached, limits are per process until it can. */
  static async start(options: SharedLimitsOptions): Promise<SharedLimits> {
    const shared = new SharedLimits(options);
    await new Promise<void>((resolve) => {
      const end = deadline(START_MS, resolve);
      shared.#onStarted = () => {
        end();
        resolve();
      };
    });
    shared.#onStarted = null;
    if (!shared.#shared) shared.#logUnavailable();
    return shared;
  }

  get stats(): SharedLimitsStats {
    const ownDecisions = this.#limiters.reduce((sum, limiter) => sum + limiter.ownDecisions, 0);
    return { shared: this.#shared, fallbacks: this.#fallbacks, ownDecisions };
  }

  get isShared(): boolean {
    return this.#shared;
  }

  /** Records on this connection. */
  records(): SharedRecords {
    return new SharedRecords(this, this.#options);
  }

  /** Whether Redis's windows are complete: not within one window after an outage. */
  get isComplete(): boolean {
    return this.#options.now() - this.#sharedSince >= WINDOW_MS;
  }

  /**
   * A limiter on this connection.
   * @param options.name  key prefix of its keys; unique per limiter
   * @param options.limit accepted requests per key in any 60 seconds; 0 lifts the limit
   * @param options.limitOf the limit of a key that has one of its own
   */
  limiter(options: Pick<RedisSlidingLogOptions, 'name' | 'limit' | 'limitOf'>): Limiter {
    const limiter = new RedisSlidingLog(this, { ...options, now: this.#options.now });
    this.#limiters.push(limiter);
    return limiter;
  }

  /** A limiter of amounts of a day on this connection. @param name key prefix of its keys; unique per limiter */
  dayLimiter(name: string, options: DayCountsOptions): DayLimiter {
    const limiter = new RedisDayCounts(this, name, new DayCounts(options));
    this.#limiters.push(limiter);
    return limiter;
  }

  /** A limiter has requests: flush at the end of this turn, to combine all that arrive in it. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#send());
  }

  /** Stops using Redis. The process's own windows decide pending requests. */
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
      if (!this.#shared) throw new Error('Redis is unavailable');
      answer = await this.#decide(
        questions.map(({ key }) => key),
        questions.flatMap(({ numbers }) => numbers),
      );
    } catch (error) {
      this.#leave(error);
      for (const question of questions) question.decideAlone();
      return;
    }
    for (const [index, question] of questions.entries()) {
      question.settle({
        accepted: answer[3 * index] ?? 0,
        count: answer[3 * index + 1] ?? 0,
        resetMicros: answer[3 * index + 2] ?? 0,
      });
    }
  }

  /**
   * Runs a script, unless Redis is unavailable.
   * @param keys without the prefix
   * @returns undefined where Redis did not answer: the script may have run
   */
  async run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    if (!this.#shared) return undefined;
    try {
      return await this.#call(script, keys, args);
    } catch (error) {
      this.#leave(error);
      return undefined;
    }
  }

  /** @param wanted three numbers for each key @returns three for each. @throws as {@link #call} */
  async #decide(keys: readonly string[], wanted: readonly number[]): Promise<readonly number[]> {
    const { redisTime } = this.#options;
    const time = redisTime === undefined ? '' : String(redisTime());
    return numbers(await this.#call(DECIDE, keys, [time, wanted.join(' ')]), keys.length);
  }

  /** @throws if Redis does not answer in time, or with an error */
  #call(script: RedisScript, names: readonly string[], args: readonly string[]): Promise<unknown> {
    const { timeoutMs, prefix } = this.#options;
    const keys = names.map((name) => `${prefix}:${name}`);
    return new Promise((resolve, reject) => {
      const end = (): void => {
        endWait();
        this.#calls.delete(fail);
      };
      const fail = (reason: unknown): void => {
        end();
        reject(reason);
      };
      const endWait = deadline(timeoutMs, () => fail(new Error(tooSlow(timeoutMs))));
      this.#calls.add(fail);
      this.#connection.run(script, keys, args).then((answer) => {
        end();
        resolve(answer);
      }, fail);
    });
  }

  #endCalls(reason: Error): void {
    for (const fail of [...this.#calls]) fail(reason);
  }

  /** Redis is unavailable: pending requests are decided here, and Redis is probed periodically. */
  #leave(error: unknown): void {
    if (this.#shared) {
      this.#shared = false;
      this.#fallbacks += 1;
      const wasSteady = this.#options.now() - this.#sharedSince >= STEADY_MS;
      this.#probeMs = wasSteady ? PROBE_MS.first : Math.min(this.#probeMs * 2, PROBE_MS.mostUnsteady);
      this.#reason = describeRedisError(error);
      this.#logUnavailable();
      this.#endCalls(new Error('Redis is unavailable'));
    }
    this.#probeLater();
  }

  #logUnavailable(): void {
    this.#options.log.warn({ reason: this.#reason }, 'limits: Redis unavailable, limiting per process');
  }

  #probeLater(): void {
    if (this.#isStopped || this.#timer !== null || this.#isProbing) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#probe();
    }, this.#probeMs);
    this.#timer.unref();
  }

  /** Probes Redis with one call of the script on a separate key: reachable, fast enough and writable. */
  #probe(): void {
    if (this.#shared || this.#isStopped || this.#isProbing || this.#timer !== null) return;
    if (!this.#connection.isReady) {
      this.#stayUnavailable();
      return;
    }
    this.#isProbing = true;
    this.#decide(['asked'], [1, 1_000_000, 0]).then(
      () => this.#enter(),
      (error: unknown) => {
        this.#reason = describeRedisError(error);
        this.#stayUnavailable();
      },
    );
  }

  #enter(): void {
    this.#isProbing = false;
    if (this.#isStopped) return;
    this.#silence = 0;
    this.#shared = true;
    this.#sharedSince = this.#options.now();
    this.#onStarted?.();
    this.#options.log.info('limits: shared through Redis');
  }

  #stayUnavailable(): void {
    this.#isProbing = false;
    this.#silence += 1;
    // If packets are dropped silently, the old connection stays stuck for minutes after the network recovers.
    if (this.#silence % MAX_SILENCE === 0) this.#connection.renew();
    this.#probeMs = Math.max(this.#probeMs, Math.min(this.#probeMs * 2, PROBE_MS.most));
    this.#probeLater();
  }
}

function numbers(answer: unknown, keys: number): readonly number[] {
  const found = String(answer).split(' ').map(Number);
  if (found.length !== 3 * keys || !found.every(Number.isSafeInteger))
    throw new Error('Redis sent an unexpected reply to the limiter script');
  return found;
}

function tooSlow(timeoutMs: number): string {
  return `no answer within ${timeoutMs} ms (REDIS_TIMEOUT_MS)`;
}

/** Redis's decision for one key. */
interface Answer {
  readonly accepted: number;
  /** Requests in the window, including those accepted now. */
  readonly count: number;
  readonly resetMicros: number;
}

interface RedisSlidingLogOptions {
  readonly name: string;
  readonly limit: number;
  readonly limitOf?: ((key: number) => number | null) | undefined;
  readonly now: () => number;
}

/** The window of one operation, in Redis and, for outages, in this process. */
class RedisSlidingLog implements Limiter, Asking {
  readonly #name: string;
  readonly #shared: SharedLimits;
  readonly #own: Window<number>;
  #waiting = new Map<number, Resolve[]>();
  ownDecisions = 0;

  constructor(shared: SharedLimits, options: RedisSlidingLogOptions) {
    this.#name = options.name;
    this.#shared = shared;
    this.#own = new Window<number>(options);
  }

  take(key: number): LimitDecision | null | Promise<LimitDecision> {
    if (this.#own.limitOf(key) === 0) return null;
    if (!this.#shared.isShared) {
      this.ownDecisions += 1;
      return this.#own.take(key);
    }
    // A request that the own window refuses must not use capacity in Redis.
    const refused = this.#shared.isComplete ? null : this.#own.refusal(key);
    if (refused !== null) return refused;
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) this.#waiting.set(key, [resolve]);
      else waiting.push(resolve);
      this.#shared.schedule();
    });
  }

  /** Takes the requests gathered in this turn. */
  takeQuestions(): Question[] {
    if (this.#waiting.size === 0) return [];
    const questions = [...this.#waiting].map(([key, waiting]): Question => {
      // A limit that has just been lifted is one that nothing reaches.
      const limit = this.#own.limitOf(key) || MOST;
      return {
        key: `${this.#name}:${key}`,
        numbers: [waiting.length, limit, 0],
        settle: (answer) => this.#settle(key, limit, waiting, answer),
        decideAlone: () => this.#decideAlone(key, waiting),
      };
    });
    this.#waiting = new Map();
    return questions;
  }

  /** The first `accepted` requests are accepted, the others refused. */
  #settle(
    key: number,
    limit: number,
    waiting: readonly Resolve[],
    { accepted, count, resetMicros }: Answer,
  ): void {
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

  /** Redis did not answer. It may have counted the requests, which errs on the strict side. */
  #decideAlone(key: number, waiting: readonly Resolve[]): void {
    this.ownDecisions += waiting.length;
    for (const resolve of waiting) {
      resolve(this.#own.take(key) ?? { accepted: true, limit: MOST, remaining: MOST, resetSeconds: 1 });
    }
  }
}

/** Amounts of a day, in Redis and, for outages, in this process. */
class RedisDayCounts implements DayLimiter, Asking {
  readonly #shared: SharedLimits;
  readonly #name: string;
  readonly #own: DayCounts;
  #questions: Question[] = [];
  ownDecisions = 0;

  constructor(shared: SharedLimits, name: string, own: DayCounts) {
    this.#shared = shared;
    this.#name = name;
    this.#own = own;
  }

  take(key: number, amount: number): DayDecision | null | Promise<DayDecision | null> {
    const limit = this.#own.limitOf(key);
    if (limit === null) return null;
    if (!this.#shared.isShared) {
      this.ownDecisions += 1;
      return this.#own.take(key, amount);
    }
    const { day, resetSeconds } = this.#own;
    return new Promise((resolve) => {
      this.#questions.push({
        key: `${this.#name}:${key}:${day}`,
        numbers: [amount, limit, this.#own.used(key) + 1],
        settle: ({ accepted }) => {
          if (accepted > 0) this.#own.note(key, amount);
          resolve({ accepted: accepted > 0, limit, resetSeconds });
        },
        decideAlone: () => {
          this.ownDecisions += 1;
          resolve(this.#own.take(key, amount));
        },
      });
      this.#shared.schedule();
    });
  }

  takeQuestions(): Question[] {
    const questions = this.#questions;
    this.#questions = [];
    return questions;
  }
}
