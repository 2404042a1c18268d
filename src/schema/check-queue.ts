/**
 * Who is checked next, and in which thread. Checks wait by account, then by app. Accounts that have used less of the threads' time
 * lately go first. An account whose checks have taken too long has its turns in a thread of its own kind, behind others like it, so
 * that accounts within their budget wait for at most one check that is ended early. What nobody waits for comes last.
 */
import { LRUCache } from 'lru-cache';
import { Debts } from '../base/debts.ts';
import { type Amount, Room } from '../base/room.ts';
import { type Path, Turns } from '../base/turns.ts';
import type { Checked, SchemaThread, ThreadRequest } from './schema-thread.ts';

/** A payload that is to be checked. */
export interface Check {
  /** Its account and app. */
  readonly holder: Path;
  /** What is dropped together: the type and the text of its schema. */
  readonly group: string;
  readonly digest: string;
  readonly schema: string;
  readonly payload: string;
  /** Whether a producer waits for the result. */
  readonly isAwaited: boolean;
  /** Called once, before the next check is chosen. */
  readonly settle: (result: CheckResult) => void;
}

/** `full`: there was no room to wait. */
export type CheckResult = Checked | 'full';

/** What runs the checks: {@link SchemaThread}. */
export type CheckThread = Pick<SchemaThread, 'run' | 'close'>;

export interface CheckQueueOptions {
  /** For accounts within their budget: it ends a check early, and has a spare. */
  readonly quick: CheckThread;
  /** For the others: each check has all the time that one may take. */
  readonly slow: CheckThread;
  /** Milliseconds of a monotonic clock: set back, a wall clock would forgive nothing until it is there again. */
  readonly now: () => number;
  /** Limits of what waits, and of the memory that it takes. An account has half of each. */
  readonly maxEvents: number;
  readonly maxBytes: number;
  /** A thread does not start. */
  readonly onFault: (problem: string) => void;
}

interface Waiting extends Check {
  readonly bytes: number;
  /** Time in milliseconds that an attempt in the quick thread has taken. */
  spentMs: number;
  /** Why it must not be begun any more: its group was dropped while its request was in a thread. */
  dropped: string | null;
}

/** A thread and what waits for it. */
interface Lane {
  readonly thread: CheckThread;
  readonly awaited: Turns<Waiting>;
  readonly others: Turns<Waiting>;
  /** The request that is in the thread. */
  items: readonly Waiting[];
  isRunning: boolean;
}

/** Payloads of one request to a thread, and their characters together. */
const MAX_ITEMS = 64;
const MAX_CHARACTERS = 262_144;

/** What the check of a payload may take: twenty times what usual ones do. What is beyond it is overtime. */
const FREE_MS = 1;
const FREE_MS_PER_CHARACTER = 0.0001;
/** Overtime is forgiven at this rate. */
const FORGIVEN_MS_PER_SECOND = 2;
/** Overtime of an account, beyond which its turns are in the slow thread; and the most that is remembered, for ten minutes. */
const QUICK_BUDGET_MS = 100;
const MAX_OVERTIME_MS = 1_200;
/** After this time, half of the thread time of an account is forgotten. */
const HALF_LIFE_MS = 10_000;
const MAX_ACCOUNTS = 10_000;

const STOPPING: Checked = { violation: null, problem: 'stopping', ms: 0 };

/** How long a check took beyond what it may take, in milliseconds; negative if it took less. */
export function overtimeOf(payload: string, ms: number): number {
  return ms - FREE_MS - FREE_MS_PER_CHARACTER * payload.length;
}

export class CheckQueue {
  /** Threads that a check has ended. */
  readonly ended = { quick: 0, slow: 0 };
  readonly #options: CheckQueueOptions;
  readonly #quick: Lane;
  readonly #slow: Lane;
  readonly #used = new LRUCache<string, { ms: number; at: number }>({ max: MAX_ACCOUNTS });
  readonly #overtime: Debts;
  /** What waits or is being checked, by account. */
  readonly #room: Room;
  #isClosed = false;

  constructor(options: CheckQueueOptions) {
    this.#options = options;
    this.#quick = laneOf(options.quick);
    this.#slow = laneOf(options.slow);
    this.#overtime = overtimes(MAX_ACCOUNTS, options.now);
    this.#room = new Room(options);
  }

  /** Payloads that wait for their check, or are being checked. */
  get waiting(): number {
    return this.#room.events;
  }

  /** Has a payload checked. */
  add(check: Check): void {
    const item: Waiting = { ...check, bytes: 2 * check.payload.length, spentMs: 0, dropped: null };
    if (this.#isClosed) check.settle(STOPPING);
    else if (!this.#makeRoom(item)) check.settle('full');
    else {
      this.#room.take(amountOf(item), item.holder.slice(0, 1));
      this.#enter(item);
    }
  }

  /** Settles all of a group that has not begun, unchecked. The check that is under way goes on. */
  drop(group: string, problem: string): void {
    for (const { awaited, others, items } of [this.#quick, this.#slow]) {
      for (const item of items) if (item.group === group) item.dropped = problem;
      for (const turns of [awaited, others])
        for (const item of turns.extract([], (one) => one.group === group))
          this.#settle(item, { violation: null, problem, ms: item.spentMs });
    }
  }

  /** What waits is settled unchecked. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([this.#quick.thread.close(), this.#slow.thread.close()]);
    for (const { awaited, others } of [this.#quick, this.#slow])
      for (const item of [...awaited.drain(), ...others.drain()]) this.#settle(item, STOPPING);
  }

  #enter(item: Waiting): void {
    if (item.dropped !== null) {
      this.#settle(item, { violation: null, problem: item.dropped, ms: item.spentMs });
      return;
    }
    const lane = this.#isOverBudget(item.holder) ? this.#slow : this.#quick;
    (item.isAwaited ? lane.awaited : lane.others).push(item.holder, item);
    if (!lane.isRunning) void this.#run(lane);
  }

  async #run(lane: Lane): Promise<void> {
    lane.isRunning = true;
    // What arrives in one turn of the event loop shares a request.
    await new Promise((resolve) => setImmediate(resolve));
    for (let items = this.#take(lane); items.length > 0; items = this.#take(lane)) {
      lane.items = items;
      const outcome = await lane.thread.run(requestOf(items));
      if ('checked' in outcome) {
        for (const [index, checked] of outcome.checked.entries()) this.#finish(items[index], checked);
        this.#putBack(lane, items.slice(outcome.checked.length));
        continue;
      }
      const { failedAt, problem, ms } = outcome;
      if (this.#isClosed) for (const item of items) this.#settle(item, STOPPING);
      else if (failedAt === null) {
        this.#options.onFault(problem);
        for (const item of items) this.#settle(item, { violation: null, problem, ms: 0 });
      } else {
        this.ended[lane === this.#quick ? 'quick' : 'slow'] += 1;
        this.#fail(lane, items[failedAt], { violation: null, problem, ms });
        this.#putBack(
          lane,
          items.filter((_, index) => index !== failedAt),
        );
      }
    }
    lane.items = [];
    lane.isRunning = false;
  }

  /** Takes items of one app: what is slow among them delays no answer to another app. */
  #take({ awaited, others }: Lane): readonly Waiting[] {
    const items: Waiting[] = [];
    if (this.#isClosed) return items;
    const turns = awaited.size > 0 ? awaited : others;
    let characters = 0;
    const usedBy = (account: string | number): number => this.#usedBy(String(account));
    for (let item = turns.take(usedBy); item !== null; item = turns.takeOf(item.holder)) {
      items.push(item);
      characters += item.payload.length;
      if (items.length === MAX_ITEMS || characters >= MAX_CHARACTERS) break;
    }
    return items;
  }

  /** Some of a request was checked: the rest, of one holder, waits for its next turn in the lane that the account has now. */
  #putBack(lane: Lane, items: readonly Waiting[]): void {
    const [first] = items;
    if (first === undefined) return;
    if (lane === this.#quick && this.#isOverBudget(first.holder)) {
      for (const item of items) this.#enter(item);
      return;
    }
    for (const item of items.toReversed()) {
      if (item.dropped !== null) this.#enter(item);
      else (item.isAwaited ? lane.awaited : lane.others).putBack(item.holder, item, false);
    }
  }

  /** An item has ended the thread. After the quick thread it has all the time that a check may take, in the slow one. */
  #fail(lane: Lane, item: Waiting | undefined, failed: Checked): void {
    if (item === undefined || lane === this.#slow) this.#finish(item, failed);
    else {
      item.spentMs += failed.ms;
      this.#charge(item, failed.ms, QUICK_BUDGET_MS);
      this.#enter(item);
    }
  }

  #finish(item: Waiting | undefined, checked: Checked): void {
    if (item === undefined) throw new Error('The thread has checked more than it was given.');
    this.#charge(item, checked.ms, 0);
    this.#settle(item, { ...checked, ms: checked.ms + item.spentMs });
  }

  #settle(item: Waiting, result: CheckResult): void {
    this.#room.giveBack(amountOf(item), item.holder.slice(0, 1));
    item.settle(result);
  }

  /** Counts the thread time of a check. @param least what its overtime is at least */
  #charge(item: Waiting, ms: number, least: number): void {
    const key = accountOf(item);
    this.#used.set(key, { ms: this.#usedBy(key) + ms, at: this.#options.now() });
    const overtime = Math.max(least, overtimeOf(item.payload, ms));
    if (overtime <= 0) return;
    const before = this.#overtime.of(key);
    const after = this.#overtime.add(key, overtime, MAX_OVERTIME_MS);
    if (before < QUICK_BUDGET_MS && after >= QUICK_BUDGET_MS) this.#leaveQuick(item);
  }

  /** What waits of the item's account waits for the slow thread from now on. */
  #leaveQuick(item: Waiting): void {
    const account = item.holder.slice(0, 1);
    const { awaited, others } = this.#quick;
    for (const turns of [awaited, others])
      for (const waiting of turns.extract(account, () => true)) this.#enter(waiting);
  }

  #isOverBudget(holder: Path): boolean {
    return this.#overtime.of(String(holder[0])) >= QUICK_BUDGET_MS;
  }

  /** Thread time of an account in the recent past, in milliseconds. */
  #usedBy(account: string): number {
    const known = this.#used.get(account);
    if (known === undefined) return 0;
    return known.ms * 0.5 ** (Math.max(0, this.#options.now() - known.at) / HALF_LIFE_MS);
  }

  /**
   * Makes room for a check: the account that holds most loses its latest, first one that nobody waits for.
   * @returns false if that is the account of the check itself
   */
  #makeRoom({ holder, bytes, isAwaited }: Waiting): boolean {
    const { maxEvents, maxBytes } = this.#options;
    const account = holder[0] ?? '';
    const own = this.#room.of([account]);
    // One with nothing in it has room for a check of any size.
    if (own.events > 0 && (2 * (own.events + 1) > maxEvents || 2 * (own.bytes + bytes) > maxBytes))
      return false;
    while (!this.#room.fits({ events: 1, bytes })) {
      const measure = this.#room.bytes + bytes > maxBytes ? 'bytes' : 'events';
      const heaviest = this.#room.heaviest([], measure, account, own[measure]);
      if (heaviest.name === account || !this.#evict(heaviest.name, isAwaited)) return false;
    }
    return true;
  }

  /** @returns false if all of the account are being checked */
  #evict(account: string | number, isAwaited: boolean): boolean {
    const { others, awaited } = this.#quick;
    for (const turns of [others, this.#slow.others, ...(isAwaited ? [awaited, this.#slow.awaited] : [])]) {
      const evicted = turns.evict(undefined, [account]);
      if (evicted === null) continue;
      this.#settle(evicted, 'full');
      return true;
    }
    return false;
  }
}

/** Overtime in milliseconds, by key. */
export function overtimes(maxKeys: number, now: () => number): Debts {
  return new Debts({ maxKeys, forgivenPerSecond: FORGIVEN_MS_PER_SECOND, now });
}

function amountOf({ bytes }: Waiting): Amount {
  return { events: 1, bytes };
}

function laneOf(thread: CheckThread): Lane {
  return { thread, awaited: new Turns(), others: new Turns(), items: [], isRunning: false };
}

function accountOf({ holder }: Check): string {
  return String(holder[0]);
}

function requestOf(items: readonly Waiting[]): ThreadRequest {
  return {
    schemas: Object.fromEntries(items.map(({ digest, schema }) => [digest, schema])),
    items: items.map(({ digest, payload }) => ({ digest, payload })),
  };
}
