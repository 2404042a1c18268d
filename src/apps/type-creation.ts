/** Creates event types that producers name: round robin over apps, rate-limited per app. */
import { Rejection } from '../errors.ts';
import { SlidingLog } from '../limits/sliding-log.ts';
import type { StoredType } from './event-types.ts';

export interface TypeCreationOptions {
  /**
   * Creates types of an app in one transaction, or finds those that another process has just created.
   * @returns by name; names beyond the app's limit are missing
   */
  readonly create: (appId: number, names: readonly string[]) => Promise<ReadonlyMap<string, StoredType>>;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly limitPerMinute: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Waiting names of all apps together: about 10 MB. */
const MAX_WAITING = 20_000;
/** Names per transaction: a few milliseconds. */
const MAX_AT_ONCE = 100;

const FULL = new Rejection(
  'unavailable',
  'Too many new event types are waiting to be created; retry shortly.',
);

interface Waiting {
  readonly name: string;
  readonly resolve: (outcome: StoredType | 'too-many' | Rejection) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Round robin over apps, one transaction at a time: an app with ten thousand new names delays another app's new type by
 * one transaction, not by all of them, and a connection stays free for other lookups.
 */
export class TypeCreation {
  readonly #options: TypeCreationOptions;
  readonly #limit: SlidingLog;
  /** Apps in the order of their turns. */
  readonly #queues = new Map<number, Waiting[]>();
  #waiting = 0;
  #isRunning = false;

  constructor(options: TypeCreationOptions) {
    this.#options = options;
    this.#limit = new SlidingLog({ limit: options.limitPerMinute, now: options.now });
  }

  /** Number of waiting names. */
  get waiting(): number {
    return this.#waiting;
  }

  /** @returns the type, or the refusal; rejects if `create` does */
  add(appId: number, name: string): Promise<StoredType | 'too-many' | Rejection> {
    if (this.#waiting >= MAX_WAITING) return Promise.resolve(FULL);
    const decision = this.#limit.take(appId);
    if (decision?.accepted === false)
      return Promise.resolve(tooManyNew(decision.limit, decision.resetSeconds));
    return new Promise((resolve, reject) => {
      const queue = this.#queues.get(appId) ?? [];
      queue.push({ name, resolve, reject });
      this.#queues.set(appId, queue);
      this.#waiting += 1;
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (let turn = this.#next(); turn !== null; turn = this.#next()) {
      const { appId, group } = turn;
      try {
        const types = await this.#options.create(appId, [...new Set(group.map(({ name }) => name))]);
        for (const { name, resolve } of group) resolve(types.get(name) ?? 'too-many');
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    this.#isRunning = false;
  }

  /** Takes names of the next app, and moves the app to the end. */
  #next(): { readonly appId: number; readonly group: readonly Waiting[] } | null {
    const [first] = this.#queues;
    if (first === undefined) return null;
    const [appId, queue] = first;
    const group = queue.splice(0, MAX_AT_ONCE);
    this.#queues.delete(appId);
    if (queue.length > 0) this.#queues.set(appId, queue);
    this.#waiting -= group.length;
    return { appId, group };
  }
}

function tooManyNew(limit: number, retryAfterSeconds: number): Rejection {
  return new Rejection(
    'rateLimitExceeded',
    `An app may create ${limit} event types per minute (NEW_TYPES_PER_MINUTE); the event was not stored.`,
    { retryAfterSeconds },
  );
}
