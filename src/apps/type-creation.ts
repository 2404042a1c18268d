/** Creates event types that producers name: those of many apps in one transaction, in turns of accounts and apps. */

import type { Path } from '../base/turns.ts';
import { Window } from '../base/window.ts';
import { type LookupQueue, LookupTurns, type Queued } from '../cache/batched-lookup.ts';
import { answerInTime, LookupBusy, type LookupOutage, LookupUnavailable } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import type { CreatedTypes, StoredType } from './event-types.ts';

export interface TypeCreationOptions {
  /**
   * Creates types of apps, or finds those that another process has just created.
   * @param names by app, without duplicates
   * @returns by app: the types, 'locked', or what the creation has failed with. If it rejects, it has failed for all of them
   */
  readonly create: (
    names: ReadonlyMap<number, readonly string[]>,
  ) => Promise<ReadonlyMap<number, CreatedTypes | Error>>;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly limitPerMinute: number;
  /** The holder of an app's work: its account, then the app. */
  readonly holderOf: (appId: number) => Path;
  readonly outage?: LookupOutage | undefined;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Names per transaction, of all apps together: some ten milliseconds. */
const MAX_AT_ONCE = 500;
/** How often, and after how many milliseconds each time, the names of an app are tried whose row another session has locked. */
const LOCKED_TRIES = 100;
const LOCKED_PAUSE_MS = 50;

interface Waiting extends Queued {
  readonly appId: number;
  readonly name: string;
  triesLeft: number;
  readonly resolve: (outcome: StoredType | 'too-many' | Rejection) => void;
}

/**
 * One transaction at a time, so that a connection stays free for other lookups: an account with ten thousand new names delays
 * another account's new type by one transaction, not by all of them.
 */
export class TypeCreation {
  readonly #options: TypeCreationOptions;
  readonly #limit: Window<number>;
  readonly #queue = new LookupTurns<Waiting>();
  #isRunning = false;

  constructor(options: TypeCreationOptions) {
    this.#options = options;
    this.#limit = new Window<number>({ limit: options.limitPerMinute, now: options.now });
  }

  get queue(): LookupQueue {
    return this.#queue;
  }

  /** @returns the type, or the refusal; rejects if `create` does, or with LookupBusy or LookupUnavailable */
  add(appId: number, name: string): Promise<StoredType | 'too-many' | Rejection> {
    const decision = this.#limit.take(appId);
    if (decision?.accepted === false)
      return Promise.resolve(tooManyNew(decision.limit, decision.resetSeconds));
    return new Promise((resolve, reject) => {
      const path = this.#options.holderOf(appId);
      this.#wait({ appId, name, path, triesLeft: LOCKED_TRIES, resolve, reject });
    });
  }

  #wait(waiting: Waiting): void {
    this.#queue.push(waiting);
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (let group = this.#queue.take(MAX_AT_ONCE); group.length > 0; group = this.#queue.take(MAX_AT_ONCE))
      await this.#create(group);
    this.#isRunning = false;
  }

  /** Resolves when the transaction has ended, even if nothing waits for it any longer: it has its connection until then. */
  async #create(group: readonly Waiting[]): Promise<void> {
    const names = new Map<number, Set<string>>();
    for (const { appId, name } of group) names.set(appId, (names.get(appId) ?? new Set()).add(name));
    const creating = this.#options.create(new Map([...names].map(([appId, some]) => [appId, [...some]])));
    try {
      const created = await answerInTime(creating, this.#options.outage);
      const locked: Waiting[] = [];
      for (const waiting of group) {
        const types = created.get(waiting.appId);
        if (types === 'locked') locked.push(waiting);
        else if (types instanceof Map) waiting.resolve(types.get(waiting.name) ?? 'too-many');
        else waiting.reject(types);
      }
      if (locked.length > 0) this.#retryLocked(locked);
    } catch (error) {
      for (const { reject } of group) reject(error);
      if (error instanceof LookupUnavailable) this.#queue.refuseAll(error);
      await creating.catch(() => undefined);
    }
  }

  #retryLocked(locked: readonly Waiting[]): void {
    for (const waiting of locked) waiting.triesLeft -= 1;
    setTimeout(() => {
      for (const waiting of locked)
        if (waiting.triesLeft > 0) this.#wait(waiting);
        else waiting.reject(new LookupBusy('The app is locked in the database'));
    }, LOCKED_PAUSE_MS);
  }
}

function tooManyNew(limit: number, retryAfterSeconds: number): Rejection {
  return new Rejection(
    'rateLimitExceeded',
    `An app may create ${limit} event types per minute (NEW_TYPES_PER_MINUTE); the event was not stored.`,
    { retryAfterSeconds },
  );
}
