/**
 * Polls the table for new events of one app while clients watch it, on behalf of all watchers of this process. The table is
 * the only source, so it does not matter which process stored an event.
 */
import type { Logger } from 'pino';
import { deadline } from '../../base/timeout.ts';
import { errorCode } from '../../storage/database/connect.ts';
import {
  type Arrivals,
  encodeFeedCursor,
  type FeedCursor,
  type FeedSnapshot,
  type LiveCursor,
  MAX_CURSOR_AGE_MS,
  type MinuteCounts,
  sumCounts,
} from '../../storage/read/arrivals.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import * as messages from './messages.ts';

/** A client that watches the app. */
export interface Watcher {
  /** Where to resume; `now`: from now on; `reset`: from now on, after a `reset` message. */
  readonly from: LiveCursor | 'now' | 'reset';
  readonly send: (message: Buffer) => void;
}

export interface FollowerOptions {
  readonly events: EventReader;
  readonly appId: number;
  readonly now: () => number;
  readonly monotonic: () => number;
  readonly log: Logger;
}

/** Pause between two polls. */
const POLL_EVERY_MS = 400;
/** After a slow poll the pause is this many times its duration, up to a limit. */
const PAUSE_FACTOR = 4;
const MAX_PAUSE_MS = 2_000;
/** How often the total is compared. */
const RECOUNT_EVERY_MS = 3_000;
/** Timeout of a poll after which watchers receive `stalled`. */
const STALLED_AFTER_MS = 3_000;
/** If counting minutes takes longer, the next poll does without these counts. */
const MAX_COUNTING_MS = 300;
const SEND_CURSOR_EVERY_MS = 60_000;

/** Watchers that resume from up to this many different cursors are served in one poll; others wait for the next one. */
const MAX_RESUMED = 8;

/** The state with which the next poll compares. */
interface Seen {
  readonly cursor: FeedCursor;
  readonly snapshot: string;
  /** Null if counting took too long: on TimescaleDB the last minutes are counted from rows. */
  readonly minutes: MinuteCounts | null;
  /** The count of all events, when it was taken, and events that were told since then. */
  readonly total: { readonly at: number; readonly count: number; readonly since: number };
}

/** The first message for a watcher. */
interface First {
  readonly what: Arrivals | 'too many' | 'now';
  /** Whether counts have changed since its cursor by more than the events that it is told. */
  readonly hasOlder: boolean;
}

interface Poll {
  readonly seen: Seen;
  /** New events; `too many` also if unknown; null if there are none. */
  readonly arrivals: Arrivals | 'too many' | null;
  /** Whether counts have changed by more than the new events. */
  readonly hasOlder: boolean;
  /** The joining watchers that are served by this poll. */
  readonly joined: ReadonlyMap<Watcher, First>;
}

export class Follower {
  readonly #options: FollowerOptions;
  readonly #watchers = new Set<Watcher>();
  /** Watchers that wait for their first message. */
  #joining: Watcher[] = [];
  #seen: Seen | null = null;
  #timer: NodeJS.Timeout | null = null;
  #polling: Promise<void> | null = null;
  /** Started by a poll, stopped by the next successful one. */
  #endStallWait: (() => void) | null = null;
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
    if (this.#polling === null) this.#schedule(0);
  }

  leave(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    this.#joining = this.#joining.filter((other) => other !== watcher);
    if (!this.isWatched) this.#pause();
  }

  /** Resolves when the current poll has ended. */
  async stop(): Promise<void> {
    this.#watchers.clear();
    this.#joining = [];
    this.#pause();
    await this.#polling;
  }

  /** Stops polling and drops the state: the next watcher starts from now. */
  #pause(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#seen = null;
    this.#isStalled = false;
    this.#stopStallTimer();
  }

  #schedule(delay: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      const { monotonic } = this.#options;
      const startedAt = monotonic();
      this.#polling = this.#poll().finally(() => {
        this.#polling = null;
        const took = monotonic() - startedAt;
        if (this.isWatched)
          this.#schedule(Math.max(POLL_EVERY_MS, Math.min(PAUSE_FACTOR * took, MAX_PAUSE_MS)));
      });
    }, delay);
  }

  async #poll(): Promise<void> {
    const { events, now, log, appId } = this.#options;
    // Taken before the snapshot: everything that the snapshot lacks is committed later than this.
    const at = now();
    const joining = [...this.#joining];
    this.#endStallWait ??= deadline(STALLED_AFTER_MS, () => this.#stall());
    try {
      // Starts over if the cursor is too old: the search for newer rows is limited to MAX_CURSOR_AGE_MS.
      const seen = this.#seen !== null && at - this.#seen.cursor.at > MAX_CURSOR_AGE_MS ? null : this.#seen;
      if (seen !== null && joining.length === 0 && (await events.snapshotText(appId)) === seen.snapshot) {
        // No transaction was committed: only the time of the cursor moves.
        if (this.#seen === seen) this.#seen = { ...seen, cursor: { ...seen.cursor, at } };
      } else {
        this.#publish(await events.feed(appId, (snapshot) => this.#read(snapshot, { at, seen, joining })));
      }
      this.#stopStallTimer();
      if (at - this.#cursorSentAt >= SEND_CURSOR_EVERY_MS) this.#sendCursor(at);
      if (this.#isStalled) this.#continue();
    } catch (error) {
      log.debug({ err: error, code: errorCode(error), app: appId }, 'live: poll failed');
    }
  }

  /** Sends the current cursor, so that a watcher without events for long can resume. */
  #sendCursor(at: number): void {
    this.#cursorSentAt = at;
    if (this.#seen === null) return;
    const cursor = messages.cursor(idOf(this.#seen));
    for (const watcher of this.#watchers) watcher.send(cursor);
  }

  #stopStallTimer(): void {
    this.#endStallWait?.();
    this.#endStallWait = null;
  }

  #stall(): void {
    this.#isStalled = true;
    this.#options.log.warn({ app: this.#options.appId }, 'live: feed stalled, the database does not respond');
    for (const watcher of this.#watchers) watcher.send(messages.stalled());
  }

  #continue(): void {
    this.#isStalled = false;
    if (this.#seen === null) return;
    for (const watcher of this.#watchers) watcher.send(messages.ready(idOf(this.#seen)));
  }

  async #read(
    snapshot: FeedSnapshot,
    { at, seen, joining }: { at: number; seen: Seen | null; joining: readonly Watcher[] },
  ): Promise<Poll> {
    const { monotonic } = this.#options;
    const cursor = snapshot.cursor(at);
    const before = seen?.minutes ?? null;
    // Without minute counts the new rows are searched for, up to a limit.
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
    // Who goes on from a cursor is told by the total what was committed since then and dated further back.
    const isResumed = joining.some(({ from }) => typeof from !== 'string');
    const { total, hasOlder } = await this.#recount(snapshot, { at, seen, arrivals, isResumed });
    const joined = await this.#readMissed(snapshot, { ...cursor, total: total.count }, joining);
    const kept = countingMs > MAX_COUNTING_MS ? null : minutes;
    return {
      seen: { cursor, snapshot: snapshot.text, minutes: kept, total },
      arrivals,
      hasOlder,
      joined,
    };
  }

  /** Whether counts have changed for times of which no events are reported. Not checked in every poll. */
  async #recount(
    snapshot: FeedSnapshot,
    {
      at,
      seen,
      arrivals,
      isResumed,
    }: Pick<Poll, 'arrivals'> & { at: number; seen: Seen | null; isResumed: boolean },
  ): Promise<Pick<Poll, 'hasOlder'> & Pick<Seen, 'total'>> {
    const added = arrivals === null || arrivals === 'too many' ? 0 : sumCounts(arrivals.counts);
    // If the number of new events is unknown, totals cannot be compared.
    const before = arrivals === 'too many' ? null : (seen?.total ?? null);
    const since = (before?.since ?? 0) + added;
    if (before !== null && !isResumed && Math.abs(at - before.at) < RECOUNT_EVERY_MS)
      return { total: { ...before, since }, hasOlder: false };
    const count = await snapshot.total();
    return { total: { at, count, since: 0 }, hasOlder: before !== null && count !== before.count + since };
  }

  async #readMissed(
    snapshot: FeedSnapshot,
    now: LiveCursor,
    joining: readonly Watcher[],
  ): Promise<Poll['joined']> {
    const joined = new Map<Watcher, First>();
    // Watchers that were connected to the same process reconnect with the same cursor.
    const known = new Map<string, First>();
    for (const watcher of joining) {
      const { from } = watcher;
      if (from === 'now') joined.set(watcher, { what: 'now', hasOlder: false });
      else if (from === 'reset') joined.set(watcher, { what: 'too many', hasOlder: false });
      else {
        const id = encodeFeedCursor(from);
        if (!known.has(id) && known.size === MAX_RESUMED) continue;
        const first = known.get(id) ?? (await firstSince(snapshot, from, now));
        known.set(id, first);
        joined.set(watcher, first);
      }
    }
    return joined;
  }

  #publish({ seen, arrivals, hasOlder, joined }: Poll): void {
    const id = idOf(seen);
    this.#seen = this.isWatched ? seen : null;
    // An id says that everything before it was told: it comes last.
    const updates = hasOlder ? [messages.recount()] : [];
    if (arrivals !== null) updates.push(messageOf(arrivals, id));
    for (const message of updates) for (const watcher of this.#watchers) watcher.send(message);
    for (const [watcher, first] of joined) {
      // It may have left during the poll.
      if (!this.#joining.includes(watcher)) continue;
      this.#joining = this.#joining.filter((other) => other !== watcher);
      this.#watchers.add(watcher);
      if (first.hasOlder) watcher.send(messages.recount());
      watcher.send(first.what === 'now' ? messages.ready(id) : messageOf(first.what, id));
    }
  }
}

async function firstSince(snapshot: FeedSnapshot, from: LiveCursor, now: LiveCursor): Promise<First> {
  const what = await missedSince(snapshot, from, now);
  return { what, hasOlder: what !== 'too many' && from.total + sumCounts(what.counts) !== now.total };
}

/** The id of the messages that tell all that was seen. */
function idOf({ cursor, total }: Seen): string {
  return encodeFeedCursor({ ...cursor, total: total.count + total.since });
}

async function missedSince(
  snapshot: FeedSnapshot,
  from: FeedCursor,
  now: FeedCursor,
): Promise<Arrivals | 'too many'> {
  // A cursor ahead of the database is from another database, or from before a restore.
  if (from.xmax > now.xmax || Math.abs(now.at - from.at) > MAX_CURSOR_AGE_MS) return 'too many';
  return await snapshot.missed(from, now.at);
}

function messageOf(arrivals: Arrivals | 'too many', id: string): Buffer {
  if (arrivals === 'too many') return messages.reset(id);
  return arrivals.events.length === 0 ? messages.ready(id) : messages.arrived(arrivals, id);
}
