/**
 * Follows the events of one app while somebody watches, for everybody of this process who does. The table itself is
 * asked, some times a second, what has been committed since the last time: there is no second source that could differ
 * from it, and it does not matter which process took an event.
 */
import type { Logger } from 'pino';
import {
  type Arrivals,
  countAll,
  countMinutes,
  LATEST_MS,
  type MinuteCounts,
  readArrivals,
  readMissed,
  sum,
} from '../../storage/arrivals.ts';
import { errorCode, type Sql, type Transaction } from '../../storage/connect.ts';
import { encodePosition, type Position, parseSnapshot } from '../../storage/feed-cursor.ts';
import * as messages from './messages.ts';

/** Somebody who watches. */
export interface Watcher {
  /** Where to go on from; `fresh` from now, `anew` from now and saying so. */
  readonly from: Position | 'fresh' | 'anew';
  readonly send: (message: Buffer) => void;
}

export interface FollowerOptions {
  readonly sql: Sql;
  /** Internal id. */
  readonly appId: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
  readonly log: Logger;
}

/** Between two looks; what a look itself takes comes on top. */
const LOOK_EVERY_MS = 400;
/** A look that takes long is followed by a pause of so many times its length, up to a limit. */
const PAUSE_FACTOR = 4;
const MOST_PAUSE_MS = 2_000;
/** How often counts further back are looked at, and how long the database is silent before watchers are told. */
const RECOUNT_EVERY_MS = 3_000;
const STALLED_AFTER_MS = 3_000;
/** Counting minutes that takes longer is left out until there is less to count. */
const MOST_COUNTING_MS = 300;
const TELL_POSITION_EVERY_MS = 60_000;

/** Resuming watchers of so many different positions are told in one look; others wait for the next one. */
const MOST_RESUMED = 8;

/** The state that the next look compares with. */
interface Seen {
  readonly position: Position;
  readonly snapshot: string;
  /** Null where they cost too much: on TimescaleDB those of the last minutes are counted from rows. */
  readonly minutes: MinuteCounts | null;
  /** All events, when they were last counted, and what has arrived since; null where that is not known. */
  readonly total: { readonly at: number; readonly count: number; readonly since: number } | null;
}

interface Look {
  readonly seen: Seen;
  /** What has come since; `too many` also where that is not known. */
  readonly arrivals: Arrivals | 'too many' | null;
  /** Counts have changed by other than what has arrived. */
  readonly hasOlder: boolean;
  /** What each of the joining watchers is told at first. */
  readonly joined: ReadonlyMap<Watcher, Arrivals | 'too many' | 'fresh'>;
}

export class Follower {
  readonly #options: FollowerOptions;
  readonly #watchers = new Set<Watcher>();
  /** Those who have not been told yet where they stand. */
  #joining: Watcher[] = [];
  #seen: Seen | null = null;
  #timer: NodeJS.Timeout | null = null;
  #looking: Promise<void> | null = null;
  /** Runs from the first look that has not succeeded. */
  #silence: NodeJS.Timeout | null = null;
  #isStalled = false;
  #positionToldAt = 0;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  get isWatched(): boolean {
    return this.#watchers.size + this.#joining.length > 0;
  }

  join(watcher: Watcher): void {
    this.#joining.push(watcher);
    if (this.#looking === null) this.#schedule(0);
  }

  leave(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    this.#joining = this.#joining.filter((other) => other !== watcher);
    if (!this.isWatched) this.#rest();
  }

  /** Ends, once a look that is under way has ended. */
  async stop(): Promise<void> {
    this.#watchers.clear();
    this.#joining = [];
    this.#rest();
    await this.#looking;
  }

  /** Nobody watches: the next one begins with the present. */
  #rest(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#seen = null;
    this.#isStalled = false;
    this.#endSilence();
  }

  #schedule(delay: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      const { monotonic } = this.#options;
      const startedAt = monotonic();
      this.#looking = this.#look().finally(() => {
        this.#looking = null;
        const took = monotonic() - startedAt;
        if (this.isWatched)
          this.#schedule(Math.max(LOOK_EVERY_MS, Math.min(PAUSE_FACTOR * took, MOST_PAUSE_MS)));
      });
    }, delay);
  }

  async #look(): Promise<void> {
    const { sql, now, log, appId } = this.#options;
    // Before the snapshot: whatever is not in it was committed later than this.
    const at = now();
    const joining = [...this.#joining];
    this.#silence ??= setTimeout(() => this.#stall(), STALLED_AFTER_MS);
    try {
      // What was committed so long ago may be dated anywhere: too long to go on from.
      const seen = this.#seen !== null && at - this.#seen.position.at > LATEST_MS ? null : this.#seen;
      if (seen !== null && joining.length === 0 && (await readSnapshot(sql)) === seen.snapshot) {
        // Nothing at all was committed: the same position, later.
        if (this.#seen === seen) this.#seen = { ...seen, position: { ...seen.position, at } };
      } else {
        const look = await sql.begin('isolation level repeatable read read only', (tx) =>
          this.#read(tx, { at, seen, joining }),
        );
        this.#tell(look);
      }
      this.#endSilence();
      if (at - this.#positionToldAt >= TELL_POSITION_EVERY_MS) this.#tellPosition(at);
      if (this.#isStalled) this.#goOn();
    } catch (error) {
      log.debug({ err: error, code: errorCode(error), app: appId }, 'A look for live events failed');
    }
  }

  /** Who has heard nothing for long could else not go on from where he is. */
  #tellPosition(at: number): void {
    this.#positionToldAt = at;
    if (this.#seen === null) return;
    const position = messages.position(encodePosition(this.#seen.position));
    for (const watcher of this.#watchers) watcher.send(position);
  }

  #endSilence(): void {
    if (this.#silence !== null) clearTimeout(this.#silence);
    this.#silence = null;
  }

  #stall(): void {
    this.#isStalled = true;
    this.#options.log.warn({ app: this.#options.appId }, 'A live feed waits for the database');
    for (const watcher of this.#watchers) watcher.send(messages.stalled());
  }

  #goOn(): void {
    this.#isStalled = false;
    if (this.#seen === null) return;
    for (const watcher of this.#watchers) watcher.send(messages.ready(encodePosition(this.#seen.position)));
  }

  async #read(
    tx: Transaction,
    { at, seen, joining }: { at: number; seen: Seen | null; joining: readonly Watcher[] },
  ): Promise<Look> {
    const { appId, monotonic } = this.#options;
    const snapshot = await readSnapshot(tx);
    const position = parseSnapshot(snapshot, at);
    const before = seen?.minutes ?? null;
    // Without counts the rows are sought one by one, and more of them than can be missed are as many as can be told.
    const sought =
      seen !== null && before === null ? await this.#missedSince(tx, seen.position, position) : null;
    const found = sought !== 'too many' && sought?.events.length === 0 ? null : sought;
    const startedAt = monotonic();
    const minutes =
      sought === 'too many'
        ? null
        : await countMinutes(tx, appId, { since: seen?.position.at ?? at, now: at });
    const countingMs = monotonic() - startedAt;
    const arrivals =
      seen === null
        ? 'too many'
        : before === null || minutes === null
          ? found
          : await readArrivals(tx, appId, seen.position, { before, now: minutes });
    const { total, hasOlder } = await this.#recount(tx, at, seen, arrivals);
    const joined = await this.#readMissed(tx, position, joining);
    const kept = countingMs > MOST_COUNTING_MS ? null : minutes;
    return { seen: { position, snapshot, minutes: kept, total }, arrivals, hasOlder, joined };
  }

  /** Whether counts have changed further back than events are told of; not in every look. */
  async #recount(
    tx: Transaction,
    at: number,
    seen: Seen | null,
    arrivals: Look['arrivals'],
  ): Promise<{ total: Seen['total']; hasOlder: boolean }> {
    // Where nobody knows how many have arrived, the next total has nothing to be compared with.
    if (seen !== null && arrivals === 'too many') return { total: null, hasOlder: false };
    const added = arrivals === null || arrivals === 'too many' ? 0 : sum(arrivals.counts);
    const before = seen?.total ?? null;
    const since = (before?.since ?? 0) + added;
    if (before !== null && Math.abs(at - before.at) < RECOUNT_EVERY_MS)
      return { total: { ...before, since }, hasOlder: false };
    const count = await countAll(tx, this.#options.appId);
    return {
      total: { at, count, since: 0 },
      hasOlder: before !== null && count !== before.count + since,
    };
  }

  async #readMissed(tx: Transaction, now: Position, joining: readonly Watcher[]): Promise<Look['joined']> {
    const joined = new Map<Watcher, Arrivals | 'too many' | 'fresh'>();
    // Who watched the same process comes back with the same position.
    const known = new Map<string, Arrivals | 'too many'>();
    for (const watcher of joining) {
      const { from } = watcher;
      if (from === 'fresh') joined.set(watcher, 'fresh');
      else if (from === 'anew') joined.set(watcher, 'too many');
      else {
        const id = encodePosition(from);
        if (!known.has(id) && known.size === MOST_RESUMED) continue;
        const missed = known.get(id) ?? (await this.#missedSince(tx, from, now));
        known.set(id, missed);
        joined.set(watcher, missed);
      }
    }
    return joined;
  }

  async #missedSince(tx: Transaction, from: Position, now: Position): Promise<Arrivals | 'too many'> {
    // A position ahead of the database is one of another database, or of this one before it was restored.
    if (from.xmax > now.xmax || Math.abs(now.at - from.at) > LATEST_MS) return 'too many';
    return await readMissed(tx, this.#options.appId, from, now.at);
  }

  #tell({ seen, arrivals, hasOlder, joined }: Look): void {
    const id = encodePosition(seen.position);
    this.#seen = this.isWatched ? seen : null;
    const news = arrivals === null ? [] : [told(arrivals, id)];
    if (hasOlder) news.push(messages.recount());
    for (const message of news) for (const watcher of this.#watchers) watcher.send(message);
    for (const [watcher, first] of joined) {
      // Those who have left meanwhile are not here any more.
      if (!this.#joining.includes(watcher)) continue;
      this.#joining = this.#joining.filter((other) => other !== watcher);
      this.#watchers.add(watcher);
      watcher.send(first === 'fresh' ? messages.ready(id) : told(first, id));
    }
  }
}

function told(arrivals: Arrivals | 'too many', id: string): Buffer {
  if (arrivals === 'too many') return messages.reset(id);
  return arrivals.events.length === 0 ? messages.ready(id) : messages.arrived(arrivals, id);
}

async function readSnapshot(sql: Sql | Transaction): Promise<string> {
  const [row] = await sql<{ snapshot: string }[]>`SELECT pg_current_snapshot()::text AS snapshot`;
  if (row === undefined) throw new Error('PostgreSQL has no snapshot.');
  return row.snapshot;
}
