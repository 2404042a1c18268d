/**
 * Takes the rows of archived days away, and brings them back: a day of an app in one transaction, so that every snapshot has all of its
 * archived events either among its rows or among the objects of `archived_parts` (sql/0004). Counts stay what they are. What comes later
 * for a day that is away is stored as its only rows, until the day is brought back.
 *
 * Whoever calls this is the only one to work on the archive. The objects hold what the caller has read back from them; that they hold
 * what goes is made sure of here, by the number and the ids of the rows: there may have been others since the day was written.
 */

import { DAY_MS } from '../counts/levels.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import { decodePosition } from '../feed/position.ts';
import { type Retention, readRetention } from '../retention.ts';
import type { EventRow } from '../write/accepted-event.ts';
import { type DayOfApp, LEAVES_AFTER_HOURS } from '../write/days-away.ts';
import { type ExpiredPart, isOfSlice } from './expired-rows.ts';

/** An object with events of a day. */
export interface PartAway {
  readonly key: string;
  readonly events: number;
  readonly bytes: number;
  /** The sum of the last 48 bits of the ids of its events, in decimal. */
  readonly ids: string;
  /** Its row groups, as readers take them. */
  readonly groups: readonly object[];
  readonly footer: string;
}

export interface DayToTake extends DayOfApp {
  /** In order of time. */
  readonly parts: readonly PartAway[];
  /** How long the day waits for a consumer that has not had its events. */
  readonly reachMs: number;
  /** A SELECT of the minutes (app_id, bucket) with events that no tick tells consumers of yet. */
  readonly unticked: string;
}

export interface DayToBring extends DayOfApp {
  /** The objects that the rows are from. */
  readonly keys: readonly string[];
  readonly rows: AsyncIterable<readonly EventRow[]>;
}

/** What came of a day that was to be brought back. */
export interface BroughtBack {
  /** Rows that are there again. */
  readonly brought: number;
  /** Events that had a row already: they are counted twice until the day is recounted. */
  readonly repeated: number;
}

/** Why the rows of a day have not left. */
export interface Stayed {
  /** A clause. */
  readonly reason: string;
  /** Whether they are not those of the objects. */
  readonly isChanged: boolean;
}

/** How an engine moves days. */
export interface DayMoves {
  /** @returns null: its rows have left */
  takeAway(sql: Sql, day: DayToTake): Promise<Stayed | null>;
  /** @returns null where the objects are not those of the day, or it is not away */
  bringBack(sql: Sql, day: DayToBring): Promise<BroughtBack | null>;
}

/** Rows of one statement. */
const ROWS_AT_ONCE = 1_000;

/** What can be read of a day: in the form of rows to be removed, as boundaries are at the start of days. */
export function readableOf(retention: Retention, { appId, day }: DayOfApp): ExpiredPart | null {
  const from = Date.parse(`${day}T00:00:00Z`);
  const interval = { from, until: from + DAY_MS };
  const [part, more] = retention.parts({ typeIds: null }, interval);
  if (part === undefined || more !== undefined || part.from !== from) return null;
  const { typeIds, exceptTypes } = part;
  return {
    ...{ appId, typeIds, exceptTypes },
    from: new Date(interval.from).toISOString(),
    until: new Date(interval.until).toISOString(),
  };
}

/** Columns that tell which rows there are. */
export const WHICH_ROWS = `count(*)::float8 AS events, coalesce(sum(('x' || right(id::text, 12))::bit(48)::bigint), 0)::text AS ids`;

export interface WhichRows {
  readonly events: number;
  readonly ids: string;
}

/** Rows stay where they are. */
export class RowsStay extends Error {
  readonly isChanged: boolean;

  constructor(reason: string, isChanged = false) {
    super(reason);
    this.isChanged = isChanged;
  }
}

/** @throws RowsStay where the rows are not those of the objects */
export function requireSame(rows: WhichRows | undefined, parts: readonly PartAway[]): void {
  const events = parts.reduce((sum, part) => sum + part.events, 0);
  const ids = parts.reduce((sum, part) => sum + BigInt(part.ids), 0n);
  if (rows?.events !== events || BigInt(rows.ids) !== ids)
    throw new RowsStay('its events have changed since they were read: it is archived again later', true);
}

/**
 * What is to leave of a day. Consumers that have not had it for longer than their reach are lost, in the transaction in which it leaves.
 * @throws RowsStay
 */
export async function leavingRows(tx: Transaction, day: DayToTake): Promise<ExpiredPart> {
  const slice = readableOf(await readRetention(tx, day.appId), day);
  if (slice === null) throw new RowsStay('a retention ends within it');
  const [ended] = await tx<{ isOver: boolean }[]>`
    SELECT ${slice.until}::text::timestamptz <= now() - ${LEAVES_AFTER_HOURS} * interval '1 hour' AS "isOver"`;
  if (ended?.isOver !== true)
    throw new RowsStay(`it has not ended ${LEAVES_AFTER_HOURS} hours ago by the clock of the database`);
  const [uncounted] = await tx`
    SELECT FROM uncounted_minutes
     WHERE app_id = ${day.appId} AND bucket >= ${slice.from}::text::timestamptz AND bucket < ${slice.until}::text::timestamptz LIMIT 1`;
  if (uncounted !== undefined) throw new RowsStay(FIELDS_COME_FIRST);
  await letConsumersPass(tx, day, slice);
  return slice;
}

/** @throws RowsStay where a consumer may still have events of the interval to come */
async function letConsumersPass(
  tx: Transaction,
  { appId, reachMs, unticked }: DayToTake,
  { from, until }: ExpiredPart,
): Promise<void> {
  const isWithin = (column: string) =>
    tx`${tx(column)} >= ${from}::text::timestamptz AND ${tx(column)} < ${until}::text::timestamptz`;
  // First: what has a tick by then is seen by the next statement.
  const [untold] = await tx`
    SELECT FROM (${tx.unsafe(unticked)}) AS unticked
     WHERE app_id = ${appId} AND ${isWithin('bucket')}
       AND EXISTS (SELECT FROM consumers WHERE app_id = ${appId} AND lost_at IS NULL) LIMIT 1`;
  if (untold !== undefined) throw new RowsStay(CONSUMERS_COME_FIRST);
  const consumers = await tx<
    { name: string; position: string; waits: boolean | null; isNew: boolean | null }[]
  >`
    SELECT name, position,
           (SELECT min(at) FROM feed_ticks AS next
             WHERE next.app_id = ${appId} AND next.tick > consumers.tick
               AND EXISTS (SELECT FROM unnest(minutes) AS minute WHERE ${isWithin('minute')}))
             > now() - ${reachMs} * interval '1 millisecond' AS waits,
           (SELECT at FROM feed_ticks AS own WHERE own.app_id = ${appId} AND own.tick = consumers.tick)
             > now() - ${reachMs} * interval '1 millisecond' AS "isNew"
      FROM consumers WHERE app_id = ${appId} AND lost_at IS NULL`;
  const behind = consumers.flatMap(({ name, position, waits, isNew }) => {
    const after = decodePosition(position)?.after;
    const isInHistory = after?.by === 'history' && Date.parse(after.createdAt) < Date.parse(until);
    return waits === null && !isInHistory ? [] : [{ name, mayPass: waits ?? isNew ?? false }];
  });
  if (behind.some(({ mayPass }) => mayPass)) throw new RowsStay(CONSUMERS_COME_FIRST);
  if (behind.length > 0)
    await tx`
      UPDATE consumers SET lost_at = now(), leased_to = NULL, leased_until = NULL
       WHERE app_id = ${appId} AND name = ANY(${behind.map(({ name }) => name)})`;
}

const CONSUMERS_COME_FIRST = 'consumers have not had its events yet: they leave later';
const FIELDS_COME_FIRST = 'declared fields are yet to be counted from its rows: they leave later';

/** Fields that are declared after a day has left have no past in it. @param sql where the apps are @returns null: all are counted */
export async function waitsForFields(sql: Sql, { appId, day }: DayOfApp): Promise<Stayed | null> {
  const [field] = await sql`
    SELECT FROM declared_fields
     WHERE app_id = ${appId} AND removed_at IS NULL AND backfill
       AND (complete_from IS NULL OR complete_from > ${`${day}T00:00:00Z`}::text::timestamptz) LIMIT 1`;
  return field === undefined ? null : { reason: FIELDS_COME_FIRST, isChanged: false };
}

/** Names the objects in which the events of a day are from now on. */
export async function insertParts(tx: Transaction, { appId, day, parts }: DayToTake): Promise<void> {
  for (const [index, { key, events, bytes, groups, footer }] of parts.entries())
    await tx`
      INSERT INTO archived_parts (app_id, day, part, key, events, bytes, groups, footer)
      VALUES (${appId}, ${day}::text::date, ${index}, ${key}, ${events}, ${bytes}, ${JSON.stringify(groups)}::text::jsonb, ${footer})`;
}

/** Runs a transaction that may find that the rows have to stay. @returns why they do; null: they have left */
export async function unlessRowsStay(work: () => Promise<unknown>): Promise<Stayed | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (error instanceof RowsStay) return { reason: error.message, isChanged: error.isChanged };
    throw error;
  }
}

/** Whether a day is away in these objects. They stay those until the transaction ends. */
export async function areParts(tx: Transaction, { appId, day, keys }: DayToBring): Promise<boolean> {
  const parts = await tx<{ key: string }[]>`
    SELECT key FROM archived_parts WHERE app_id = ${appId} AND day = ${day}::text::date FOR UPDATE`;
  return parts.length > 0 && parts.length === keys.length && parts.every(({ key }) => keys.includes(key));
}

export async function deleteParts(tx: Transaction, { appId, day }: DayOfApp): Promise<void> {
  await tx`DELETE FROM archived_parts WHERE app_id = ${appId} AND day = ${day}::text::date`;
}

/**
 * Stores the rows of a day again, without changes of the counts.
 * @param onRows called with those that were missing
 */
export async function insertRows(
  tx: Transaction,
  { appId, rows }: DayToBring,
  onRows: (rows: readonly EventRow[]) => Promise<void> = async () => undefined,
): Promise<BroughtBack> {
  const retention = await readRetention(tx, appId);
  const sum = { brought: 0, repeated: 0 };
  for await (const some of rows) {
    // What retention hides has no rows any more, or soon none.
    const readable = some.filter(({ typeId, createdAt }) => createdAt >= retention.boundaryOf(typeId));
    for (let from = 0; from < readable.length; from += ROWS_AT_ONCE) {
      const batch = readable.slice(from, from + ROWS_AT_ONCE);
      const stored = await tx<{ id: string }[]>`
        INSERT INTO events (id, app_id, type_id, created_at, payload)
        SELECT id, ${appId}::integer, type_id, created_at, payload::json
          FROM unnest(${batch.map(({ id }) => id)}::uuid[], ${batch.map(({ typeId }) => typeId)}::integer[],
                      ${batch.map(({ createdAt }) => new Date(createdAt).toISOString())}::text[]::timestamptz[],
                      ${batch.map(({ payload }) => payload)}::text[]) AS batch (id, type_id, created_at, payload)
            ON CONFLICT DO NOTHING RETURNING id::text`;
      const ids = new Set(stored.map(({ id }) => id));
      await onRows(stored.length === batch.length ? batch : batch.filter(({ id }) => ids.has(id)));
      sum.brought += stored.length;
      sum.repeated += batch.length - stored.length;
    }
  }
  return sum;
}

/** On one server whose counts know nothing of rows, or on the node of an app. */
export const movesBesideCounts: DayMoves = {
  takeAway: (pool, day) =>
    unlessRowsStay(() =>
      pool.begin('isolation level read committed', async (tx) => {
        const slice = await leavingRows(tx, day);
        const [gone] = await tx<WhichRows[]>`
          WITH gone AS (DELETE FROM events WHERE ${isOfSlice(tx, slice)} RETURNING id)
          SELECT ${tx.unsafe(WHICH_ROWS)} FROM gone`;
        requireSame(gone, day.parts);
        await insertParts(tx, day);
      }),
    ),
  bringBack: (pool, day) =>
    pool.begin('isolation level read committed', async (tx) => {
      if (!(await areParts(tx, day))) return null;
      const outcome = await insertRows(tx, day);
      await deleteParts(tx, day);
      return outcome;
    }),
};

export interface DayAway extends DayOfApp {
  readonly keys: readonly string[];
  readonly events: number;
  /** Whether somebody needs its rows. */
  readonly isWanted: boolean;
}

/** The days of an app that are away, in order. @param sql where the apps are */
export async function readDaysAway(sql: Sql | Transaction, appId: number): Promise<DayAway[]> {
  return await sql<DayAway[]>`
    SELECT app_id AS "appId", day::text AS day, array_agg(key ORDER BY part) AS keys, sum(events)::float8 AS events,
           bool_or(wanted_at IS NOT NULL) AS "isWanted"
      FROM archived_parts WHERE app_id = ${appId} GROUP BY app_id, archived_parts.day ORDER BY archived_parts.day`;
}

/** How many days of apps are away. */
export async function countDaysAway(sql: Sql): Promise<number> {
  const [row] = await sql<{ away: number }[]>`
    SELECT count(*)::float8 AS away FROM (SELECT DISTINCT app_id, day FROM archived_parts) AS days`;
  return row?.away ?? 0;
}

/** Days that are away whose rows somebody needs: those that were asked for first come first. */
export async function readWantedDays(sql: Sql): Promise<(DayOfApp & { readonly events: number })[]> {
  return await sql<(DayOfApp & { readonly events: number })[]>`
    SELECT app_id AS "appId", day::text AS day, sum(events)::float8 AS events FROM archived_parts WHERE wanted_at IS NOT NULL
     GROUP BY app_id, archived_parts.day ORDER BY min(wanted_at), app_id, archived_parts.day`;
}
