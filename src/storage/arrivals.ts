/**
 * What has been committed since a feed cursor: rows that are visible now and were not in its snapshot.
 *
 * A row's xmin tells which transaction wrote it. The counts tell exactly how many rows each minute has gained, so the scan
 * of a minute, newest first, ends with the last new row: it costs what is new, not what is there. A snapshot does not list
 * subtransactions. Nothing here writes events in one; if another program does, the counts reveal it.
 */
import { errorCode, type Sql, type Transaction } from './connect.ts';
import { countBefore, countBuckets } from './counts/bucket-counts.ts';
import { type Fragment, readStaleBuckets } from './counts/exact-counts.ts';
import { ALL_TIME, type Interval } from './counts/intervals.ts';
import { ALL_TYPES, floorTo, MINUTE_MS } from './counts/levels.ts';
import { type FeedCursor, feedCursorOf } from './feed-cursor.ts';
import { readSnapshot } from './snapshot.ts';

export interface NewEvent {
  readonly id: string;
  readonly typeId: string;
  readonly createdAt: Date;
  /** The JSON text that was sent; null where it is too long for the feed. */
  readonly payload: string | null;
  readonly payloadBytes: number;
}

export interface NewCount {
  readonly typeId: string;
  /** The minute's start. */
  readonly minute: Date;
  readonly count: number;
}

export interface Arrivals {
  /** The newest of them, newest first. */
  readonly events: readonly NewEvent[];
  /** All of them, by type and minute. */
  readonly counts: readonly NewCount[];
  /** How many there are beyond `events`. */
  readonly skipped: number;
}

/** Minute (milliseconds since 1970) → how many events an app has in it. */
export type MinuteCounts = ReadonlyMap<number, number>;

/** Time limit of a search for what a client has missed. */
const MISSED_TIMEOUT_MS = 1_000;
const QUERY_CANCELED = '57014';

/**
 * Oldest cursor that a client can resume from. An event that is committed later than this after its `createdAt` appears in
 * the counts alone.
 */
export const MAX_CURSOR_AGE_MS = 300_000;
/** A process whose clock is ahead dates its events into the future of this one. */
const AHEAD_MS = 300_000;

/** Most events of one message, and most that a client can have missed and still resume. */
const MOST_EVENTS = 200;
const MOST_MISSED = 1_000;
/** Most that is counted by type; beyond it clients start again. */
const MOST_COUNTED = 250_000;
/** Longest payload of the feed, and all payloads of a message together. */
const PAYLOAD_BYTES = 16_384;
const PAYLOADS_BYTES = 131_072;

/** What the feed reads in one snapshot of the database. */
export interface FeedSnapshot {
  /** Differs from that of an earlier snapshot if anything was committed between the two. */
  readonly text: string;
  /** @param at a moment before the snapshot was taken, in milliseconds since 1970 */
  cursor(at: number): FeedCursor;
  /** The counts of every minute in which events committed after `since` may be dated. */
  minuteCounts(interval: { since: number; now: number }): Promise<MinuteCounts>;
  /**
   * What is in this snapshot and not in that of a cursor.
   * @param counts the counts in both snapshots
   * @returns null where there is nothing, `too many` where it cannot be told
   */
  arrivals(
    since: FeedCursor,
    counts: { before: MinuteCounts; now: MinuteCounts },
  ): Promise<Arrivals | 'too many' | null>;
  /** The same by a search without counts. @returns `too many` where it finds more than can be told, or takes too long */
  missed(since: FeedCursor, now: number): Promise<Arrivals | 'too many'>;
  /** All events ever counted: if it has grown by more than has arrived, older events have come in. */
  total(): Promise<number>;
}

/** The text of a snapshot as of now. */
export async function readSnapshotText(sql: Sql | Transaction): Promise<string> {
  const [row] = await sql<{ snapshot: string }[]>`SELECT pg_current_snapshot()::text AS snapshot`;
  if (row === undefined) throw new Error('PostgreSQL has no snapshot.');
  return row.snapshot;
}

/** Runs reads of one app in one snapshot. */
export async function readFeed<T>(
  sql: Sql,
  appId: number,
  read: (snapshot: FeedSnapshot) => Promise<T>,
): Promise<T> {
  return await readSnapshot(sql, async (tx) => {
    const text = await readSnapshotText(tx);
    return await read({
      text,
      cursor: (at) => feedCursorOf(text, at),
      minuteCounts: (interval) => countMinutes(tx, appId, interval),
      arrivals: (since, counts) => readArrivals(tx, appId, since, counts),
      missed: (since, now) => readMissed(tx, appId, since, now),
      total: () => countAll(tx, appId),
    });
  });
}

async function countMinutes(
  tx: Transaction,
  appId: number,
  { since, now }: { since: number; now: number },
): Promise<MinuteCounts> {
  const first = floorTo(since - MAX_CURSOR_AGE_MS, MINUTE_MS);
  const end = floorTo(now + AHEAD_MS, MINUTE_MS) + MINUTE_MS;
  const starts = Array.from({ length: (end - first) / MINUTE_MS }, (_, index) => first + index * MINUTE_MS);
  const stale = await readStaleBuckets(tx, { from: first, until: end });
  const minutes = { width: { name: '1m', ms: MINUTE_MS }, starts, end } as const;
  const counts = await countBuckets(tx, appId, [ALL_TYPES], minutes, stale);
  const column = counts.get(ALL_TYPES) ?? [];
  return new Map(starts.map((start, index) => [start, column[index] ?? 0]));
}

/** An interval, in milliseconds since 1970, and the most rows that can be new in it. */
interface SearchedInterval extends Interval {
  readonly most: number;
}

async function readArrivals(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  { before, now }: { before: MinuteCounts; now: MinuteCounts },
): Promise<Arrivals | 'too many' | null> {
  const minutes = [...now].flatMap(([minute, count]): SearchedInterval[] => {
    const added = count - (before.get(minute) ?? 0);
    return added > 0 ? [{ from: minute, until: minute + MINUTE_MS, most: added }] : [];
  });
  if (minutes.length === 0) return null;
  const added = minutes.reduce((total, { most }) => total + most, 0);
  if (added > MOST_COUNTED) return 'too many';
  const events = await newestEvents(tx, appId, since, minutes, MOST_EVENTS);
  const arrivals =
    events.length < MOST_EVENTS
      ? complete(events)
      : { events, counts: await countByType(tx, appId, since, minutes), skipped: added - events.length };
  // More rows in the counts than the snapshot can tell apart: they are of a subtransaction.
  return sumCounts(arrivals.counts) === added ? arrivals : 'too many';
}

async function readMissed(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  now: number,
): Promise<Arrivals | 'too many'> {
  const from = floorTo(since.at - MAX_CURSOR_AGE_MS, MINUTE_MS);
  const interval = { from, until: now + AHEAD_MS, most: MOST_MISSED + 1 };
  try {
    // Where little is new among many rows the scan does not end early: then the client starts again.
    const events = await tx.savepoint(async (part) => {
      await part.unsafe(`SET LOCAL statement_timeout = ${MISSED_TIMEOUT_MS}`);
      const found = await newestEvents(part, appId, since, [interval], MOST_MISSED + 1);
      await part`SET LOCAL statement_timeout TO DEFAULT`;
      return found;
    });
    return events.length > MOST_MISSED ? 'too many' : complete(events);
  } catch (error) {
    if (errorCode(error) === QUERY_CANCELED) return 'too many';
    throw error;
  }
}

/** Arrivals all of whose events are known. */
function complete(events: readonly NewEvent[]): Arrivals {
  const counts = new Map<string, NewCount>();
  for (const { typeId, createdAt } of events) {
    const minute = floorTo(createdAt.getTime(), MINUTE_MS);
    const key = `${minute} ${typeId}`;
    counts.set(key, { typeId, minute: new Date(minute), count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return { events, counts: [...counts.values()], skipped: 0 };
}

async function newestEvents(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  intervals: readonly SearchedInterval[],
  most: number,
): Promise<NewEvent[]> {
  return [
    ...(await tx<NewEvent[]>`
      SELECT newest.id, event_types.public_id AS "typeId", newest.created_at AS "createdAt", bytes AS "payloadBytes",
             CASE WHEN bytes <= ${PAYLOAD_BYTES}
                   AND sum(least(bytes, ${PAYLOAD_BYTES})) OVER (ORDER BY newest.created_at DESC, newest.id DESC) <= ${PAYLOADS_BYTES}
                  THEN payload::text END AS payload
        FROM (SELECT *, octet_length(payload::text) AS bytes
                FROM (${newRows(tx, appId, since, intervals, tx`id, type_id, created_at, payload`)}) new_rows
               ORDER BY created_at DESC, id DESC
               LIMIT ${most}) newest
        JOIN event_types ON event_types.id = type_id
       ORDER BY newest.created_at DESC, newest.id DESC`),
  ];
}

async function countByType(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  intervals: readonly SearchedInterval[],
): Promise<NewCount[]> {
  return [
    ...(await tx<NewCount[]>`
      SELECT event_types.public_id AS "typeId", minute, count
        FROM (SELECT type_id, date_bin('1 minute', created_at, 'epoch') AS minute, count(*)::integer AS count
                FROM (${newRows(tx, appId, since, intervals, tx`type_id, created_at`)}) new_rows
               GROUP BY 1, 2) counted
        JOIN event_types ON event_types.id = type_id
       ORDER BY minute DESC, count DESC`),
  ];
}

/** The new rows of each interval, newest first, at most as many as it can have. */
function newRows(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  intervals: readonly SearchedInterval[],
  columns: Fragment,
): Fragment {
  // The outer bounds, as literals: what lies outside is pruned when the statement is planned. A chunk in TimescaleDB's
  // columnstore has no xmin.
  const first = Math.min(...intervals.map(({ from }) => from));
  const end = Math.max(...intervals.map(({ until }) => until));
  return tx`
    SELECT found.*
      FROM unnest(${intervals.map(({ from }) => from / 1_000)}::float8[],
                  ${intervals.map(({ until }) => until / 1_000)}::float8[],
                  ${intervals.map(({ most }) => most)}::integer[]) AS part (start, finish, most)
     CROSS JOIN LATERAL (
           SELECT ${columns} FROM events
            WHERE app_id = ${appId} AND created_at >= ${first} AND created_at < ${end}
              AND created_at >= to_timestamp(start) AND created_at < to_timestamp(finish)
              AND (age(xmin) <= age(${xid(since.xmax)}::xid)
                   OR xmin = ANY(${since.running.map(xid)}::text[]::xid[]))
            ORDER BY created_at DESC, id DESC
            LIMIT most) found`;
}

/** Rows hold the lower 32 bits of their transaction's id. Within minutes that is enough; frozen rows are infinitely old. */
function xid(transaction: bigint): string {
  return BigInt.asUintN(32, transaction).toString();
}

async function countAll(tx: Transaction, appId: number): Promise<number> {
  const stale = await readStaleBuckets(tx, ALL_TIME);
  const counts = await countBefore(tx, appId, [ALL_TYPES], ALL_TIME.until, stale);
  return counts.get(ALL_TYPES) ?? 0;
}

/** How many events counts have together. */
export function sumCounts(counts: readonly NewCount[]): number {
  return counts.reduce((total, { count }) => total + count, 0);
}
