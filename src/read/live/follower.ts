/**
 * Follows the events of one app while clients watch it, for all watchers of this process. The table itself is asked, some
 * times a second, what has been committed since the last time: there is no second source that could differ from it, and it
 * does not matter which process took an event.
 */
import type { Logger } from 'pino';
import { errorCode } from '../../storage/connect.ts';
import {
  type Arrivals,
  type EventReader,
  encodeFeedCursor,
  type FeedCursor,
  type FeedSnapshot,
  MAX_CURSOR_AGE_MS,
  type MinuteCounts,
  sumCounts,
} from '../../storage/storage.ts';
import * as messages from './messages.ts';

/** A client that watches. */
export interface Watcher {
  /** Where to resume; `fresh`: from now on; `again`: from now on, after a reset. */
  readonly from: FeedCursor | 'fresh' | 'anew';
  readonly send: (message: Buffer) => void;
}

export interface FollowerOptions {
  readonly events: EventReader;
  /** Internal id. */
  readonly appId: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
  readonly log: Logger;
}

/** Between two looks, in addition to what a look itself takes. */
const LOOK_EVERY_MS = 400;
/** A look that takes long is followed by a pause of so many times its length, up to a limit. */
const PAUSE_FACTOR = 4;
const MAX_PAUSE_MS = 2_000;
/** How often older counts are compared, and after how long a silence of the database watchers are told. */
const RECOUNT_EVERY_MS = 3_000;
const STALLED_AFTER_MS = 3_000;
/** If counting minutes takes longer, it is left out until there is less to count. */
const MAX_COUNTING_MS = 300;
const SEND_CURSOR_EVERY_MS = 60_000;

/** Watchers that resume from so many different cursors are served in one look; others wait for the next one. */
const MAX_RESUMED = 8;

/** The state that the next look compares with. */
interface Seen {
  readonly cursor: FeedCursor;
  readonly snapshot: string;
  /** Null where they cost too much: on TimescaleDB those of the last minutes are counted from rows. */
  readonly minutes: MinuteCounts | null;
  /** All events, when they were last counted, and what has arrived since; null where that is not known. */
  readonly total: { readonly at: number; readonly count: number; readonly since: number } | null;
}

interface Look {
  readonly seen: Seen;
  /** What has arrived since; `too many` also where that is not known. */
  readonly arrivals: Arrivals | 'too many' | null;
  /** Whether counts have changed by other than what has arrived. */
  readonly hasOlder: boolean;
  /** What each of the joining watchers is sent first. */
  readonly joined: ReadonlyMap<Watcher, Arrivals | 'too many' | 'fresh'>;
}

export class Follower {
  readonly #options: FollowerOptions;
  readonly #watchers = new Set<Watcher>();
  /** Watchers that have not been sent their first message. */
  #joining: Watcher[] = [];
  #seen: Seen | null = null;
  #timer: NodeJS.Timeout | null = null;
  #looking: Promise<void> | null = null;
  /** Runs from the first look that has not succeeded. */
  #silence: NodeJS.Timeout | null = null;
  #isStalled = false;
  #cursorSentAt = 0;

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

  /** Ends, once the current look has ended. */
  async stop(): Promise<void> {
    this.#watchers.clear();
    this.#joining = [];
    this.#rest();
    await this.#looking;
  }

  /** Without watchers nothing is remembered: the next one starts with the present. */
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
          this.#schedule(Math.max(LOOK_EVERY_MS, Math.min(PAUSE_FACTOR * took, MAX_PAUSE_MS)));
      });
    }, delay);
  }

  async #look(): Promise<void> {
    const { events, now, log, appId } = this.#options;
    // Before the snapshot: whatever is not in it was committed later than this.
    const at = now();
    const joining = [...this.#joining];
    this.#silence ??= setTimeout(() => this.#stall(), STALLED_AFTER_MS);
    try {
      // Too old to continue from: what was committed since may be dated anywhere.
      const seen = this.#seen !== null && at - this.#seen.cursor.at > MAX_CURSOR_AGE_MS ? null : this.#seen;
      if (seen !== null && joining.length === 0 && (await events.snapshotText()) === seen.snapshot) {
        // Nothing at all was committed: the same cursor, later.
        if (this.#seen === seen) this.#seen = { ...seen, cursor: { ...seen.cursor, at } };
      } else {
        this.#tell(await events.feed(appId, (snapshot) => this.#read(snapshot, { at, seen, joining })));
      }
      this.#endSilence();
      if (at - this.#cursorSentAt >= SEND_CURSOR_EVERY_MS) this.#sendCursor(at);
      if (this.#isStalled) this.#continue();
    } catch (error) {
      log.debug({ err: error, code: errorCode(error), app: appId }, 'A look for live events failed');
    }
  }

  /** A watcher that has received nothing for long could otherwise not resume. */
  #sendCursor(at: number): void {
    this.#cursorSentAt = at;
    if (this.#seen === null) return;
    const cursor = messages.cursor(encodeFeedCursor(this.#seen.cursor));
    for (const watcher of this.#watchers) watcher.send(cursor);
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

  #continue(): void {
    this.#isStalled = false;
    if (this.#seen === null) return;
    for (const watcher of this.#watchers) watcher.send(messages.ready(encodeFeedCursor(this.#seen.cursor)));
  }

  async #read(
    snapshot: FeedSnapshot,
    { at, seen, joining }: { at: number; seen: Seen | null; joining: readonly Watcher[] },
  ): Promise<Look> {
    const { monotonic } = this.#options;
    const cursor = snapshot.cursor(at);
    const before = seen?.minutes ?? null;
    // Without counts the new rows are searched for; finding more than can be missed is `too many`.
    const searched =
      seen !== null && before === null ? await missedSince(snapshot, seen.cursor, cursor) : null;
    const found = searched !== 'too many' && searched?.events.length === 0 ? null : searched;
    const startedAt = monotonic();
    const minutes =
      searched === 'too many' ? null : await snapshot.minuteCounts({ since: seen?.cursor.at ?? at, now: at });
    const countingMs = monotonic() - startedAt;
    const arrivals =
      seen === null
        ? 'too many'
        : before === null || minutes === null
          ? found
          : await snapshot.arrivals(seen.cursor, { before, now: minutes });
    const { total, hasOlder } = await this.#recount(snapshot, at, seen, arrivals);
    const joined = await this.#readMissed(snapshot, cursor, joining);
    const kept = countingMs > MAX_COUNTING_MS ? null : minutes;
    return {
      seen: { cursor, snapshot: snapshot.text, minutes: kept, total },
      arrivals,
      hasOlder,
      joined,
    };
  }

  /** Whether counts have changed for older times than events are reported of; not in every look. */
  async #recount(
    snapshot: FeedSnapshot,
    at: number,
    seen: Seen | null,
    arrivals: Look['arrivals'],
  ): Promise<{ total: Seen['total']; hasOlder: boolean }> {
    // Without knowing how many have arrived, the next total has nothing to be compared with.
    if (seen !== null && arrivals === 'too many') return { total: null, hasOlder: false };
    const added = arrivals === null || arrivals === 'too many' ? 0 : sumCounts(arrivals.counts);
    const before = seen?.total ?? null;
    const since = (before?.since ?? 0) + added;
    if (before !== null && Math.abs(at - before.at) < RECOUNT_EVERY_MS)
      return { total: { ...before, since }, hasOlder: false };
    const count = await snapshot.total();
    return {
      total: { at, count, since: 0 },
      hasOlder: before !== null && count !== before.count + since,
    };
  }

  async #readMissed(
    snapshot: FeedSnapshot,
    now: FeedCursor,
    joining: readonly Watcher[],
  ): Promise<Look['joined']> {
    const joined = new Map<Watcher, Arrivals | 'too many' | 'fresh'>();
    // Watchers that were connected to the same process come back with the same cursor.
    const known = new Map<string, Arrivals | 'too many'>();
    for (const watcher of joining) {
      const { from } = watcher;
      if (from === 'fresh') joined.set(watcher, 'fresh');
      else if (from === 'anew') joined.set(watcher, 'too many');
      else {
        const id = encodeFeedCursor(from);
        if (!known.has(id) && known.size === MAX_RESUMED) continue;
        const missed = known.get(id) ?? (await missedSince(snapshot, from, now));
        known.set(id, missed);
        joined.set(watcher, missed);
      }
    }
    return joined;
  }

  #tell({ seen, arrivals, hasOlder, joined }: Look): void {
    const id = encodeFeedCursor(seen.cursor);
    this.#seen = this.isWatched ? seen : null;
    const news = arrivals === null ? [] : [messageOf(arrivals, id)];
    if (hasOlder) news.push(messages.recount());
    for (const message of news) for (const watcher of this.#watchers) watcher.send(message);
    for (const [watcher, first] of joined) {
      // It may have left meanwhile.
      if (!this.#joining.includes(watcher)) continue;
      this.#joining = this.#joining.filter((other) => other !== watcher);
      this.#watchers.add(watcher);
      watcher.send(first === 'fresh' ? messages.ready(id) : messageOf(first, id));
    }
  }
}

async function missedSince(
  snapshot: FeedSnapshot,
  from: FeedCursor,
  now: FeedCursor,
): Promise<Arrivals | 'too many'> {
  // A cursor ahead of the database is one of another database, or of this one before it was restored.
  if (from.xmax > now.xmax || Math.abs(now.at - from.at) > MAX_CURSOR_AGE_MS) return 'too many';
  return await snapshot.missed(from, now.at);
}

function messageOf(arrivals: Arrivals | 'too many', id: string): Buffer {
  if (arrivals === 'too many') return messages.reset(id);
  return arrivals.events.length === 0 ? messages.ready(id) : messages.arrived(arrivals, id);
}
