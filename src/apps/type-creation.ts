/** Event types that producers create by naming them: apps take turns, and each has a bound on new types per minute. */
import { Rejection } from '../errors.ts';
import { SlidingLog } from '../limits/sliding-log.ts';
import type { StoredType } from './event-types.ts';

export interface TypeCreationOptions {
  /** Creates a type, or finds the one that another process has just created. */
  readonly create: (appId: number, name: string) => Promise<StoredType | 'too-many'>;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly limitPerMinute: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Names that may wait, of all apps together: some 10 MB. */
const MAX_WAITING = 20_000;

const FULL = new Rejection(
  'unavailable',
  'Too many new event types wait for their creation; try again shortly.',
);

interface Waiting {
  readonly name: string;
  readonly resolve: (outcome: StoredType | 'too-many' | Rejection) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Round robin over apps, one transaction at a time: an app with ten thousand new names delays another app's new type by
 * one creation, not by ten thousand, and a connection stays free for other lookups.
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

  /** Names that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** @returns the type, or why it is not created; rejects as `create` does */
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
      const { appId, waiting } = turn;
      try {
        waiting.resolve(await this.#options.create(appId, waiting.name));
      } catch (error) {
        waiting.reject(error);
      }
    }
    this.#isRunning = false;
  }

  /** Takes one name of the app whose turn it is, and puts the app behind the others. */
  #next(): { readonly appId: number; readonly waiting: Waiting } | null {
    for (const [appId, queue] of this.#queues) {
      this.#queues.delete(appId);
      const waiting = queue.shift();
      if (waiting === undefined) continue;
      if (queue.length > 0) this.#queues.set(appId, queue);
      this.#waiting -= 1;
      return { appId, waiting };
    }
    return null;
  }
}

function tooManyNew(limit: number, retryAfterSeconds: number): Rejection {
  return new Rejection(
    'rateLimitExceeded',
    `An app may create ${limit} event types per minute (NEW_TYPES_PER_MINUTE); the event was not stored.`,
    { retryAfterSeconds },
  );
}
