/**
 * What has been committed since a position: rows that are visible now and were not in its snapshot.
 *
 * A row says by its xmin which transaction wrote it. Counts say how many rows each minute has gained, exactly, so the
 * scan of a minute, newest first, ends with the last one that is new: it costs what is new, not what is there. A
 * snapshot does not list subtransactions. Nothing here writes events in one; where somebody else does, the counts tell.
 */
import type postgres from 'postgres';
import { errorCode, type Transaction } from './connect.ts';
import { countBefore, countBuckets } from './counts/bucket-counts.ts';
import { LADDER, type Width } from './counts/buckets.ts';
import { ALL_TYPES, MINUTE_MS } from './counts/count-segments.ts';
import { EVER } from './counts/exact-counts.ts';
import { readStaleBuckets } from './counts/stale-buckets.ts';
import type { Position } from './feed-cursor.ts';

export interface NewEvent {
  readonly id: string;
  readonly typeId: string;
  readonly createdAt: Date;
  /** JSON text as it was sent; null where it is too long for the feed. */
  readonly payload: string | null;
  readonly payloadBytes: number;
}

export interface NewCount {
  readonly typeId: string;
  /** The minute's beginning. */
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

/** Longest look for what somebody has missed. */
const MISSED_MS = 1_000;
const QUERY_CANCELED = '57014';

/** An event that is committed later than this after its `createdAt` shows in the counts alone. */
export const LATEST_MS = 300_000;
/** A process whose clock is ahead dates its events into our future. */
const AHEAD_MS = 300_000;

/** Most events of one message, and most that one comes back for without starting anew. */
const MOST_EVENTS = 200;
export const MOST_MISSED = 1_000;
/** Most that is counted by type; beyond it watchers start anew. */
const MOST_COUNTED = 250_000;
/** Longest payload of the feed, and all payloads of a message together. */
const PAYLOAD_BYTES = 16_384;
const PAYLOADS_BYTES = 131_072;

const [MINUTES] = LADDER;

/** The counts of every minute that events committed after `since` may be dated in. */
export async function countMinutes(
  tx: Transaction,
  appId: number,
  { since, now }: { since: number; now: number },
): Promise<MinuteCounts> {
  const first = floorMinute(since - LATEST_MS);
  const end = floorMinute(now + AHEAD_MS) + MINUTE_MS;
  const starts = Array.from({ length: (end - first) / MINUTE_MS }, (_, place) => first + place * MINUTE_MS);
  const stale = await readStaleBuckets(tx, { from: first, until: end });
  const minutes = { width: MINUTES as Width, starts, end };
  const counts = await countBuckets(tx, appId, [ALL_TYPES], minutes, stale);
  const column = counts.get(ALL_TYPES) ?? [];
  return new Map(starts.map((start, place) => [start, column[place] ?? 0]));
}

/** A stretch of time, in milliseconds since 1970, and the most rows that can be new there. */
interface Stretch {
  readonly from: number;
  readonly until: number;
  readonly most: number;
}

/**
 * What an app has now that it had not at a position.
 * @param before the counts at that position
 * @param now    those of the transaction's snapshot
 * @returns null where there is nothing, `too many` where it can not be told
 */
export async function readArrivals(
  tx: Transaction,
  appId: number,
  since: Position,
  { before, now }: { before: MinuteCounts; now: MinuteCounts },
): Promise<Arrivals | 'too many' | null> {
  const stretches = [...now].flatMap(([minute, count]): Stretch[] => {
    const added = count - (before.get(minute) ?? 0);
    return added > 0 ? [{ from: minute, until: minute + MINUTE_MS, most: added }] : [];
  });
  if (stretches.length === 0) return null;
  const added = stretches.reduce((total, { most }) => total + most, 0);
  if (added > MOST_COUNTED) return 'too many';
  const events = await newestEvents(tx, appId, since, stretches, MOST_EVENTS);
  const arrivals =
    events.length < MOST_EVENTS
      ? complete(events)
      : { events, counts: await countByType(tx, appId, since, stretches), skipped: added - events.length };
  // Rows that the counts have and the snapshot does not tell apart: of a subtransaction.
  return sum(arrivals.counts) === added ? arrivals : 'too many';
}

/**
 * What somebody who was away has missed.
 * @returns `too many` where that is more than can be told
 */
export async function readMissed(
  tx: Transaction,
  appId: number,
  since: Position,
  now: number,
): Promise<Arrivals | 'too many'> {
  const all = { from: floorMinute(since.at - LATEST_MS), until: now + AHEAD_MS, most: MOST_MISSED + 1 };
  try {
    // Where little is new among many rows the scan finds no end: who comes back then begins anew.
    const events = await tx.savepoint(async (part) => {
      await part.unsafe(`SET LOCAL statement_timeout = ${MISSED_MS}`);
      const found = await newestEvents(part, appId, since, [all], MOST_MISSED + 1);
      await part`SET LOCAL statement_timeout = 0`;
      return found;
    });
    return events.length > MOST_MISSED ? 'too many' : complete(events);
  } catch (error) {
    if (errorCode(error) === QUERY_CANCELED) return 'too many';
    throw error;
  }
}

/** Counts of events that are all there. */
function complete(events: readonly NewEvent[]): Arrivals {
  const counts = new Map<string, NewCount>();
  for (const { typeId, createdAt } of events) {
    const minute = floorMinute(createdAt.getTime());
    const key = `${minute} ${typeId}`;
    counts.set(key, { typeId, minute: new Date(minute), count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return { events, counts: [...counts.values()], skipped: 0 };
}

async function newestEvents(
  tx: Transaction,
  appId: number,
  since: Position,
  stretches: readonly Stretch[],
  most: number,
): Promise<NewEvent[]> {
  return [
    ...(await tx<NewEvent[]>`
      SELECT newest.id, event_types.public_id AS "typeId", newest.created_at AS "createdAt", bytes AS "payloadBytes",
             CASE WHEN bytes <= ${PAYLOAD_BYTES}
                   AND sum(least(bytes, ${PAYLOAD_BYTES})) OVER (ORDER BY newest.created_at DESC, newest.id DESC) <= ${PAYLOADS_BYTES}
                  THEN payload::text END AS payload
        FROM (SELECT *, octet_length(payload::text) AS bytes
                FROM (${newRows(tx, appId, since, stretches, tx`id, type_id, created_at, payload`)}) new_rows
               ORDER BY created_at DESC, id DESC
               LIMIT ${most}) newest
        JOIN event_types ON event_types.id = type_id
       ORDER BY newest.created_at DESC, newest.id DESC`),
  ];
}

async function countByType(
  tx: Transaction,
  appId: number,
  since: Position,
  stretches: readonly Stretch[],
): Promise<NewCount[]> {
  return [
    ...(await tx<NewCount[]>`
      SELECT event_types.public_id AS "typeId", minute, count
        FROM (SELECT type_id, date_bin('1 minute', created_at, 'epoch') AS minute, count(*)::integer AS count
                FROM (${newRows(tx, appId, since, stretches, tx`type_id, created_at`)}) new_rows
               GROUP BY 1, 2) counted
        JOIN event_types ON event_types.id = type_id
       ORDER BY minute DESC, count DESC`),
  ];
}

/** The new rows of each stretch, newest first, at most so many as it can have. */
function newRows(
  tx: Transaction,
  appId: number,
  since: Position,
  stretches: readonly Stretch[],
  columns: postgres.PendingQuery<postgres.Row[]>,
): postgres.PendingQuery<postgres.Row[]> {
  // The bounds of all, as constants: what lies outside is left out when the statement is planned. A chunk in
  // TimescaleDB's columnstore has no xmin.
  const first = Math.min(...stretches.map(({ from }) => from));
  const end = Math.max(...stretches.map(({ until }) => until));
  return tx`
    SELECT found.*
      FROM unnest(${stretches.map(({ from }) => from / 1_000)}::float8[],
                  ${stretches.map(({ until }) => until / 1_000)}::float8[],
                  ${stretches.map(({ most }) => most)}::integer[]) AS stretch (first, past, most)
     CROSS JOIN LATERAL (
           SELECT ${columns} FROM events
            WHERE app_id = ${appId} AND created_at >= ${first} AND created_at < ${end}
              AND created_at >= to_timestamp(first) AND created_at < to_timestamp(past)
              AND (age(xmin) <= age(${xid(since.xmax)}::xid)
                   OR xmin = ANY(${since.running.map(xid)}::text[]::xid[]))
            ORDER BY created_at DESC, id DESC
            LIMIT most) found`;
}

/** Rows know the lower 32 bits of their transaction. Within minutes that is enough; rows long frozen are infinitely old. */
function xid(transaction: bigint): string {
  return BigInt.asUintN(32, transaction).toString();
}

/** All events ever counted: what has grown by more than has arrived has grown further back. */
export async function countAll(tx: Transaction, appId: number): Promise<number> {
  const counts = await countBefore(tx, appId, [ALL_TYPES], EVER.until, await readStaleBuckets(tx, EVER));
  return counts.get(ALL_TYPES) ?? 0;
}

export function sum(counts: readonly NewCount[]): number {
  return counts.reduce((total, { count }) => total + count, 0);
}

function floorMinute(ms: number): number {
  return Math.floor(ms / MINUTE_MS) * MINUTE_MS;
}
