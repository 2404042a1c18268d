/**
 * Finds events that were committed since a feed cursor: rows that are visible now and were not in its snapshot.
 *
 * A row's xmin is the transaction that wrote it. The counts say exactly how many rows each minute has gained, so the scan of
 * a minute, newest first, ends with the last new row: its cost depends on new rows only. A snapshot does not list
 * subtransactions. The service never writes events in one; if another program does, the counts show it.
 */

import { countBefore, countBuckets } from '../counts/bucket-counts.ts';
import { ALL_TIME, type Interval } from '../counts/intervals.ts';
import { ALL_TYPES, floorTo, MINUTE_MS } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import { errorCode, type Fragment, SQLSTATE, type Sql, type Transaction } from '../database/connect.ts';
import { readAppSnapshot } from './snapshot.ts';

export interface NewEvent {
  readonly id: string;
  readonly typeId: string;
  readonly createdAt: Date;
  /** The payload's text; null if it is too long for the feed. */
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
  /** The newest new events, newest first. */
  readonly events: readonly NewEvent[];
  /** Counts of all new events, by type and minute. */
  readonly counts: readonly NewCount[];
  /** Number of new events that are not in `events`. */
  readonly skipped: number;
}

/** Minute (milliseconds since 1970) → number of an app's events in it. */
export type MinuteCounts = ReadonlyMap<number, number>;

/** Timeout of the search for events that a client has missed. */
const MISSED_TIMEOUT_MS = 1_000;

/**
 * Age limit of a cursor that a client can resume from. An event that is committed later than this after its `createdAt` only
 * appears in counts.
 */
export const MAX_CURSOR_AGE_MS = 300_000;
/** Tolerance for other processes whose clocks are ahead. */
const AHEAD_MS = 300_000;

/** Limits of events in one message, and of missed events with which a client can resume. */
const MOST_EVENTS = 200;
const MOST_MISSED = 1_000;
/** Limit of new events that are counted by type; beyond it clients are reset. */
const MOST_COUNTED = 250_000;
/** Limits in bytes of one payload, and of all payloads of a message. */
const PAYLOAD_BYTES = 16_384;
const PAYLOADS_BYTES = 131_072;

/** The reads of the feed in one snapshot of the database. */
export interface FeedSnapshot {
  /** Differs from that of an earlier snapshot if any transaction was committed in between. */
  readonly text: string;
  /** @param at a time before the snapshot was taken, in milliseconds since 1970 */
  cursor(at: number): FeedCursor;
  /** The counts of every minute in which events committed after `since` may be dated. */
  minuteCounts(interval: { since: number; now: number }): Promise<MinuteCounts>;
  /**
   * Events that are in this snapshot and not in that of a cursor.
   * @param counts the counts in both snapshots
   * @returns null if there are none, `too many` if they are unknown or more than the limit
   */
  arrivals(
    since: FeedCursor,
    counts: { before: MinuteCounts; now: MinuteCounts },
  ): Promise<Arrivals | 'too many' | null>;
  /** Finds them by a search without counts. @returns `too many` if it finds more than the limit, or takes too long */
  missed(since: FeedCursor, now: number): Promise<Arrivals | 'too many'>;
  /** Count of all events: if it has grown by more than the new events, older events were stored. */
  total(): Promise<number>;
}

/** The text of a snapshot as of now. */
export async function readSnapshotText(sql: Sql | Transaction): Promise<string> {
  const [row] = await sql<{ snapshot: string }[]>`SELECT pg_current_snapshot()::text AS snapshot`;
  if (row === undefined) throw new Error('PostgreSQL has no snapshot.');
  return row.snapshot;
}

/**
 * Runs reads of one app in one snapshot.
 * @param placeOf where the app is, in that snapshot; a cursor of another place says nothing there
 */
export async function readFeed<T>(
  sql: Sql,
  appId: number,
  read: (snapshot: FeedSnapshot) => Promise<T>,
  placeOf?: (tx: Transaction) => Promise<number>,
): Promise<T> {
  return await readAppSnapshot(sql, appId, async (tx) => {
    const [text, place = 0] = await Promise.all([readSnapshotText(tx), placeOf?.(tx)]);
    return await read({
      text,
      cursor: (at) => feedCursorOf(text, at, place),
      minuteCounts: (interval) => countsByMinute(tx, appId, interval),
      arrivals: async (since, counts) =>
        since.place === place ? await readArrivals(tx, appId, since, counts) : 'too many',
      missed: async (since, now) =>
        since.place === place ? await readMissed(tx, appId, since, now) : 'too many',
      total: async () =>
        (await countBefore(tx, { appId, ids: [ALL_TYPES] }, ALL_TIME.until)).get(ALL_TYPES) ?? 0,
    });
  });
}

async function countsByMinute(
  tx: Snapshot,
  appId: number,
  { since, now }: { since: number; now: number },
): Promise<MinuteCounts> {
  const first = floorTo(since - MAX_CURSOR_AGE_MS, MINUTE_MS);
  const end = floorTo(now + AHEAD_MS, MINUTE_MS) + MINUTE_MS;
  const starts = Array.from({ length: (end - first) / MINUTE_MS }, (_, index) => first + index * MINUTE_MS);
  const minutes = { width: { name: '1m', ms: MINUTE_MS }, starts, end } as const;
  const counts = await countBuckets(tx, { appId, ids: [ALL_TYPES] }, minutes);
  const column = counts.get(ALL_TYPES) ?? [];
  return new Map(starts.map((start, index) => [start, column[index] ?? 0]));
}

/** An interval in milliseconds since 1970, and the limit of new rows in it. */
interface SearchedInterval extends Interval {
  readonly most: number;
}

async function readArrivals(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  { before, now }: { before: MinuteCounts; now: MinuteCounts },
): Promise<Arrivals | 'too many' | null> {
  // Events were erased: what has come beside them cannot be told by counts, and what a client shows of the minute is to be read again.
  if ([...now].some(([minute, count]) => count < (before.get(minute) ?? 0))) return 'too many';
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
  // The counts have grown by more rows than the snapshot shows: they were written in a subtransaction.
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
    // With few new rows among many the scan does not end early; after the timeout the client is reset.
    const events = await tx.savepoint(async (part) => {
      await part.unsafe(`SET LOCAL statement_timeout = ${MISSED_TIMEOUT_MS}`);
      const found = await newestEvents(part, appId, since, [interval], MOST_MISSED + 1);
      await part`SET LOCAL statement_timeout TO DEFAULT`;
      return found;
    });
    return events.length > MOST_MISSED ? 'too many' : complete(events);
  } catch (error) {
    if (errorCode(error) === SQLSTATE.queryCanceled) return 'too many';
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
      SELECT newest.id, type_names.public_id AS "typeId", newest.created_at AS "createdAt", bytes AS "payloadBytes",
             CASE WHEN bytes <= ${PAYLOAD_BYTES}
                   AND sum(least(bytes, ${PAYLOAD_BYTES})) OVER (ORDER BY newest.created_at DESC, newest.id DESC) <= ${PAYLOADS_BYTES}
                  THEN payload::text END AS payload
        FROM (SELECT *, octet_length(payload::text) AS bytes
                FROM (${newRows(tx, appId, since, intervals, tx`id, type_id, created_at, payload`)}) new_rows
               ORDER BY created_at DESC, id DESC
               LIMIT ${most}) newest
        JOIN type_names ON type_names.app_id = ${appId} AND type_names.id = type_id
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
      SELECT type_names.public_id AS "typeId", minute, count
        FROM (SELECT type_id, date_bin('1 minute', created_at, 'epoch') AS minute, count(*)::integer AS count
                FROM (${newRows(tx, appId, since, intervals, tx`type_id, created_at`)}) new_rows
               GROUP BY 1, 2) counted
        JOIN type_names ON type_names.app_id = ${appId} AND type_names.id = type_id
       ORDER BY minute DESC, count DESC`),
  ];
}

/** The new rows of each interval, newest first, up to its limit. */
function newRows(
  tx: Transaction,
  appId: number,
  since: FeedCursor,
  intervals: readonly SearchedInterval[],
  columns: Fragment,
): Fragment {
  // The outer bounds are parameters of the plan, so that other partitions are pruned when it is made: chunks in
  // TimescaleDB's columnstore have no xmin.
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
              AND (age(xmin) <= age(${xidOf(since.xmax)}::xid)
                   OR xmin = ANY(${since.running.map(xidOf)}::text[]::xid[]))
            ORDER BY created_at DESC, id DESC
            LIMIT most) found`;
}

/** xmin has the lower 32 bits of a transaction id, which are unique within minutes; frozen rows are infinitely old. */
export function xidOf(transaction: bigint): string {
  return BigInt.asUintN(32, transaction).toString();
}

/** The sum of counts. */
export function sumCounts(counts: readonly NewCount[]): number {
  return counts.reduce((total, { count }) => total + count, 0);
}

export interface FeedCursor {
  /** When it was taken, or shortly before: milliseconds since 1970. */
  readonly at: number;
  /** The first transaction that had not begun, as a 64-bit id, which is never reused. */
  readonly xmax: bigint;
  /** The transactions before it that had not ended. */
  readonly running: readonly bigint[];
  /** Where the app was: transactions are numbered on each node of a cluster. 0 on one server. */
  readonly place: number;
}

/** Where a client stands: what is committed later is in no snapshot before it, whatever time it is dated. */
export interface LiveCursor extends FeedCursor {
  /** Count of all events of the app in the snapshot. */
  readonly total: number;
}

/** Limit of the text: it is sent back in a header, and uWebSockets.js accepts 4 KiB of headers. */
const MAX_LENGTH = 1_500;

/** Replaces a cursor that is too long. It does not decode: a client that resumes with it is reset. */
const TOO_LONG = 'reset';

/** @param snapshot the text of pg_current_snapshot() */
export function feedCursorOf(snapshot: string, at: number, place = 0): FeedCursor {
  const [, xmax = '0', running = ''] = snapshot.split(':');
  return { at, xmax: BigInt(xmax), running: running === '' ? [] : running.split(',').map(BigInt), place };
}

/** The cursor as the id of a message, from which any process can resume. */
export function encodeFeedCursor({ at, xmax, running, place, total }: LiveCursor): string {
  const distances = running.map((transaction) => (xmax - transaction).toString(36));
  const where = place === 0 ? '' : `.${place.toString(36)}`;
  const text = `${at.toString(36)}.${xmax.toString(36)}.${distances.join('-')}.${total.toString(36)}${where}`;
  return text.length > MAX_LENGTH ? TOO_LONG : text;
}

const CURSOR =
  /^([0-9a-z]{1,9})\.([0-9a-z]{1,12})\.((?:[0-9a-z]{1,12}(?:-[0-9a-z]{1,12})*)?)\.([0-9a-z]{1,10})(?:\.([0-9a-z]{1,10}))?$/;

/** @returns null if the text is not a cursor */
export function decodeFeedCursor(text: string): LiveCursor | null {
  if (text.length > MAX_LENGTH) return null;
  const [, at, xmaxText, distances, total, place = '0'] = CURSOR.exec(text) ?? [];
  if (at === undefined || xmaxText === undefined || distances === undefined || total === undefined)
    return null;
  const xmax = fromBase36(xmaxText);
  const running = distances === '' ? [] : distances.split('-').map((distance) => xmax - fromBase36(distance));
  if (running.some((transaction) => transaction < 0n)) return null;
  const [time, count, where] = [at, total, place].map((text) => Number.parseInt(text, 36));
  return { at: time ?? 0, xmax, running, place: where ?? 0, total: count ?? 0 };
}

/** Joins the cursors of several answers: what is told since then is all that one of them may lack. No cursor has it. */
const AND = ',';

/**
 * The cursor of several, which is before each of them.
 * @param texts cursors, joined by commas
 * @returns null if one of them is not a cursor, or if they are of different places
 */
export function decodeFeedCursors(texts: string): LiveCursor | null {
  const cursors = texts.split(AND).map(decodeFeedCursor);
  return cursors.reduce((a, b) => {
    if (a === null || b === null || a.place !== b.place) return null;
    const xmax = a.xmax < b.xmax ? a.xmax : b.xmax;
    const running = [...new Set([...a.running, ...b.running])].filter((transaction) => transaction < xmax);
    // The later of two snapshots of one server has all that the earlier one has.
    const { total } = a.xmax < b.xmax || (a.xmax === b.xmax && a.running.length >= b.running.length) ? a : b;
    return { at: Math.min(a.at, b.at), xmax, running, place: a.place, total };
  });
}

function fromBase36(text: string): bigint {
  let value = 0n;
  for (const digit of text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  return value;
}
