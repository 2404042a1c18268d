/**
 * Erases events: a slice at a time, each in one transaction with its counts and with the ids of what it has erased. What is counted of
 * declared fields follows; until then readers count the minutes from their rows.
 */
import { createHash } from 'node:crypto';
import { ALL_TYPES, DAY_MS, floorTo, HOUR_MS, LEVELS, MINUTE_MS, startIn } from '../counts/levels.ts';
import type { Fragment, Sql, Transaction, Transactions } from '../database/connect.ts';
import { type ErasedValues, forgetValues, forgottenValues, recountMinutes } from '../fields/recount.ts';
import { EVERY_FIELD } from '../fields/uncounted-minutes.ts';
import type { EngineWrites } from '../write/engine-writes.ts';

/** Events of one transaction: some 50 ms. */
export const ERASED_AT_ONCE = 5_000;
/**
 * Events that are further from the one before have a statement of their own: in a columnstore each statement opens what lies between its
 * first event and its last.
 */
const APART_MS = HOUR_MS;
/** Statements of one transaction. */
const MOST_STATEMENTS = 50;

export interface ErasedEvent {
  readonly id: string;
  readonly at: number;
}

export interface ErasureSlice {
  readonly appId: number;
  readonly erasureId: number;
  /** In order of time; at most {@link ERASED_AT_ONCE}. */
  readonly events: readonly ErasedEvent[];
  /** Their new payloads, which they keep; null: the events go. */
  readonly payloads: readonly string[] | null;
  /** Counts of events without rows, which go in place of events. */
  readonly excess?: readonly ErasedMinute[];
}

/** How many events of a type and minute were erased. */
export interface ErasedMinute {
  readonly typeId: number;
  readonly minute: number;
  readonly count: number;
}

/** Cuts events, in order of time, into those that so many statements erase, in one transaction. */
export function erasedTogether<E extends Pick<ErasedEvent, 'at'>>(
  events: readonly E[],
  mostStatements = MOST_STATEMENTS,
): E[][] {
  const slices: E[][] = [];
  let [statements, before] = [0, Number.NEGATIVE_INFINITY];
  for (const event of events) {
    if (event.at - before > APART_MS) statements += 1;
    before = event.at;
    const slice = slices.at(-1);
    if (slice !== undefined && slice.length < ERASED_AT_ONCE && statements <= mostStatements) {
      slice.push(event);
    } else {
      slices.push([event]);
      statements = 1;
    }
  }
  return slices;
}

/** The name of a table, where it has another one. */
export type NameOf = (table: string) => string;

/**
 * Erases the rows of a slice, with the changes of counts that are due for them.
 * @param tx read committed
 * @returns what was there
 */
async function eraseRows(
  tx: Transaction,
  { changes, changesOfErased }: Pick<EngineWrites, 'changes' | 'changesOfErased'>,
  { appId, erasureId, events, payloads, excess }: ErasureSlice,
  nameOf: NameOf,
): Promise<readonly ErasedMinute[]> {
  if (excess !== undefined) {
    await tx`
      INSERT INTO ${tx(nameOf('count_deltas'))} (app_id, type_id, bucket, count, fields)
      SELECT ${appId}::integer, type_id, minute, -count, ${EVERY_FIELD}::integer
        FROM unnest(${excess.map(({ typeId }) => typeId)}::integer[], ${excess.map(({ minute }) => new Date(minute).toISOString())}::text[]::timestamptz[],
                    ${excess.map(({ count }) => count)}::bigint[]) AS taken (type_id, minute, count)`;
    return excess;
  }
  const ids = events.map(({ id }) => id);
  const times = events.map(({ at }) => new Date(at).toISOString());
  const [first, last] = [times[0], times.at(-1)];
  if (first === undefined || last === undefined) return [];
  // By constants, too: so that what is compressed is opened where the rows are, and nowhere else.
  const within = tx`
    event.app_id = ${appId} AND event.created_at >= ${first}::text::timestamptz AND event.created_at <= ${last}::text::timestamptz
    AND event.id = ANY(${ids}::uuid[])`;
  const table = tx(nameOf('events'));
  const returned = tx`RETURNING event.app_id, event.type_id, event.created_at, event.id`;
  const change: Fragment =
    payloads === null
      ? tx`
        DELETE FROM ${table} AS event
         WHERE ${within}
           AND (event.created_at, event.id) IN (SELECT at, id FROM unnest(${ids}::uuid[], ${times}::text[]::timestamptz[]) AS wanted (id, at))
        ${returned}`
      : tx`
        UPDATE ${table} AS event SET payload = wanted.payload::json
          FROM unnest(${ids}::uuid[], ${times}::text[]::timestamptz[], ${[...payloads]}::text[]) AS wanted (id, at, payload)
         WHERE ${within} AND event.created_at = wanted.at AND event.id = wanted.id
        ${returned}`;
  const rows = await tx<ErasedMinute[]>`
    WITH erased AS (${change}),
         noted AS (
           INSERT INTO ${tx(nameOf('erased_events'))} (app_id, erasure_id, id, created_at)
           SELECT app_id, ${erasureId}::integer, id, created_at FROM erased ON CONFLICT DO NOTHING),
         changed AS (
           INSERT INTO ${tx.unsafe(changesIn(changes, nameOf))} ${tx.unsafe(changesOfErased(payloads === null ? -1 : 0))})
    SELECT type_id AS "typeId", (extract(epoch FROM date_bin('1 minute', created_at, 'epoch')) * 1000)::float8 AS minute,
           count(*)::float8 AS count
      FROM erased GROUP BY 1, 2`;
  return [...rows];
}

/** @param changes a table with its columns */
function changesIn(changes: string, nameOf: NameOf): string {
  const [table = '', columns = ''] = changes.split(' (');
  return `${nameOf(table)} (${columns}`;
}

export function eventsIn(minutes: readonly ErasedMinute[]): number {
  return minutes.reduce((sum, { count }) => sum + count, 0);
}

/** Discards the profiles of days that have lost events: maintenance makes them again. @param tx with the lock of counts */
export async function discardProfiles(
  tx: Transaction,
  appId: number,
  minutes: readonly ErasedMinute[],
  nameOf: NameOf = (table) => table,
): Promise<void> {
  const days = [...new Set(minutes.map(({ minute }) => floorTo(minute, DAY_MS)))].map((day) =>
    new Date(day).toISOString(),
  );
  for (const table of ['profiled_days', 'daily_prefix_sums'])
    await tx`DELETE FROM ${tx(nameOf(table))} WHERE app_id = ${appId} AND day = ANY(${days}::text[]::timestamptz[])`;
}

/** Removes counts of nothing that a slice has left. @param tx with the lock of counts, after a fold */
async function dropEmptyCounts(
  tx: Transaction,
  appId: number,
  minutes: readonly ErasedMinute[],
  nameOf: NameOf,
): Promise<void> {
  const types = minutes.flatMap(({ typeId }) => [typeId, ALL_TYPES]);
  const times = minutes
    .flatMap(({ minute }) => [minute, minute])
    .map((minute) => new Date(minute).toISOString());
  for (const level of [...LEVELS.map(({ name }) => name), 'month'] as const)
    await tx`
      DELETE FROM ${tx(nameOf(`${level}_counts`))} AS known
       USING (SELECT DISTINCT type_id, ${startIn(tx, level, tx`minute`)} AS bucket
                FROM unnest(${types}::integer[], ${times}::text[]::timestamptz[]) AS erased (type_id, minute)) AS erased
       WHERE known.app_id = ${appId} AND known.type_id = erased.type_id AND known.bucket = erased.bucket AND known.count = 0`;
}

/**
 * Erases a slice, with what is computed from the counts of its days.
 * @param tx     with the lock of counts
 * @param settle brings the changes into the counts, so that none is below zero; null: they are counted from the rows until later
 * @returns how many events there were
 */
export async function eraseIn(
  tx: Transaction,
  writes: Pick<EngineWrites, 'changes' | 'changesOfErased'>,
  slice: ErasureSlice,
  settle: (() => Promise<unknown>) | null,
  nameOf: NameOf = (table) => table,
): Promise<number> {
  const minutes: ErasedMinute[] = [];
  let from = 0;
  for (const events of slice.excess === undefined ? erasedTogether(slice.events, 1) : [slice.events]) {
    const payloads = slice.payloads?.slice(from, from + events.length) ?? null;
    minutes.push(...(await eraseRows(tx, writes, { ...slice, events, payloads }, nameOf)));
    from += events.length;
  }
  if (slice.payloads === null && minutes.length > 0) {
    await discardProfiles(tx, slice.appId, minutes, nameOf);
    if (settle !== null) {
      await settle();
      await dropEmptyCounts(tx, slice.appId, minutes, nameOf);
    }
  }
  return eventsIn(minutes);
}

/** What an erasure has done so far. */
export interface ErasedSummary {
  readonly events: number;
  /** Events by UTC day, as YYYY-MM-DD, in order. */
  readonly days: readonly { readonly day: string; readonly events: number }[];
}

/** @param sql where the events of the app are */
export async function readErasedSummary(sql: Sql, appId: number, erasureId: number): Promise<ErasedSummary> {
  const days = await sql<{ day: string; events: number }[]>`
    SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, count(*)::float8 AS events
      FROM erased_events WHERE app_id = ${appId} AND erasure_id = ${erasureId} GROUP BY 1 ORDER BY 1`;
  return { events: days.reduce((sum, { events }) => sum + events, 0), days: [...days] };
}

/** How many events some erasures have taken so far, by their ids. @param sql where the events of the app are */
export async function countErased(
  sql: Sql,
  appId: number,
  erasureIds: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const rows = await sql<{ id: number; events: number }[]>`
    SELECT erasure_id AS id, count(*)::float8 AS events FROM erased_events
     WHERE app_id = ${appId} AND erasure_id = ANY(${[...erasureIds]}::integer[]) GROUP BY 1`;
  return new Map(rows.map(({ id, events }) => [id, events]));
}

const EVENTS_AT_ONCE = 10_000;
/** Ids that one statement sorts. */
const IDS_AT_ONCE = 200_000;
const FIRST_ID = '00000000-0000-0000-0000-000000000000';

/** The events of an erasure in order of time, some thousand at a time. @param sql where the events of the app are */
export async function* readErased(
  sql: Sql,
  appId: number,
  erasureId: number,
): AsyncGenerator<readonly ErasedEvent[]> {
  let after: ErasedEvent = { id: FIRST_ID, at: 0 };
  for (;;) {
    const rows = await sql<{ id: string; at: number }[]>`
      SELECT id, (extract(epoch FROM created_at) * 1000)::float8 AS at FROM erased_events
       WHERE app_id = ${appId} AND erasure_id = ${erasureId}
         AND (created_at, id) > (${new Date(after.at).toISOString()}::text::timestamptz, ${after.id}::text::uuid)
       ORDER BY created_at, id LIMIT ${EVENTS_AT_ONCE}`;
    const events = rows.map(({ id, at }) => ({ id, at: Math.round(at) }));
    const last = events.at(-1);
    if (last === undefined) return;
    yield events;
    after = last;
  }
}

/**
 * SHA-256 over the ids of an erasure in their order, each with a line feed after it, in hexadecimal: that of their sorted list as a
 * file.
 * @param sql where the events of the app are
 */
export async function digestOfErased(sql: Sql, appId: number, erasureId: number): Promise<string> {
  const digest = createHash('sha256');
  let after: string | null = null;
  for (;;) {
    const rows: { id: string }[] = await sql`
      SELECT DISTINCT id FROM erased_events
       WHERE app_id = ${appId} AND erasure_id = ${erasureId} AND (${after}::text IS NULL OR id > ${after}::text::uuid)
       ORDER BY id LIMIT ${IDS_AT_ONCE}`;
    digest.update(rows.map(({ id }) => `${id}\n`).join(''));
    if (rows.length < IDS_AT_ONCE) return digest.digest('hex');
    after = rows.at(-1)?.id ?? null;
  }
}

/** The payloads of events that are there. @param sql where the events of the app are @param events in order of time */
export async function readPayloads(
  sql: Sql,
  appId: number,
  events: readonly ErasedEvent[],
): Promise<(ErasedEvent & { readonly payload: string })[]> {
  const times = events.map(({ at }) => at);
  const rows = await sql<{ id: string; at: number; payload: string }[]>`
    SELECT id, (extract(epoch FROM created_at) * 1000)::float8 AS at, payload::text AS payload FROM events
     WHERE app_id = ${appId} AND created_at >= ${new Date(Math.min(...times))} AND created_at <= ${new Date(Math.max(...times))}
       AND id = ANY(${events.map(({ id }) => id)}::uuid[])
     ORDER BY created_at, id`;
  return rows.map(({ id, at, payload }) => ({ id, at: Math.round(at), payload }));
}

/**
 * Takes the answers of requests away that stored erased events. Their keys stay for their time, so that a repetition is refused and
 * does not store the events again.
 * @param sql  where the events of the app are
 * @param pass between two parts: others may work meanwhile
 * @returns how many
 */
export async function forgetAnswers(
  sql: Sql,
  appId: number,
  erasureId: number,
  pass: () => Promise<unknown>,
): Promise<number> {
  let forgotten = 0;
  for (let after: Uint8Array = new Uint8Array(); ; ) {
    const [part]: { last: Uint8Array | null; forgotten: number }[] = await sql`
      WITH known AS (
        SELECT key_digest, answer FROM idempotency_keys
         WHERE app_id = ${appId} AND key_digest > ${after} ORDER BY key_digest LIMIT ${ANSWERS_AT_ONCE}),
      forgotten AS (
        UPDATE idempotency_keys SET answer = '', body_digest = decode(repeat('00', 32), 'hex')
         WHERE app_id = ${appId} AND answer <> '' AND key_digest IN (
           SELECT known.key_digest FROM known
            CROSS JOIN LATERAL regexp_matches(known.answer, '"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"', 'g') AS found
            WHERE found[1]::uuid IN (SELECT id FROM erased_events WHERE app_id = ${appId} AND erasure_id = ${erasureId}))
        RETURNING 1)
      SELECT (SELECT key_digest FROM known ORDER BY key_digest DESC LIMIT 1) AS last,
             (SELECT count(*)::float8 FROM forgotten) AS forgotten`;
    forgotten += part?.forgotten ?? 0;
    if (part === undefined || part.last === null) return forgotten;
    after = part.last;
    await pass();
  }
}

/** Each has the ids of up to 10,000 events. */
const ANSWERS_AT_ONCE = 100;
const MINUTES_AT_ONCE = 1_000;

export interface RecountOfErased {
  readonly appId: number;
  readonly erasureId: number;
  /** The text in place of values of which counts alone are left. */
  readonly name: string;
  /** Between two parts: others may work meanwhile. */
  readonly pass?: () => Promise<unknown>;
}

/**
 * Computes what is counted of declared fields in the touched minutes again, and forgets values that no event has any more.
 * @param sql    where the events of the app are
 * @param counts where the fields are counted
 * @param values those that were asked for: where only counts are left of them, they lose their names
 * @param named  values that are named elsewhere
 * @returns those of `named` that are forgotten
 */
export async function recountErased(
  sql: Sql,
  counts: Transactions,
  of: RecountOfErased,
  { values, named }: { readonly values: readonly ErasedValues[]; readonly named: readonly ErasedValues[] },
  now: number,
): Promise<readonly ErasedValues[]> {
  const { appId, erasureId, name, pass } = of;
  const rows = await sql<{ at: number }[]>`
    SELECT DISTINCT (extract(epoch FROM date_bin('1 minute', created_at, 'epoch')) * 1000)::float8 AS at FROM erased_events
     WHERE app_id = ${appId} AND erasure_id = ${erasureId} ORDER BY at`;
  const minutes = rows.map(({ at }) => floorTo(at, MINUTE_MS));
  for (let from = 0; from < minutes.length; from += MINUTES_AT_ONCE) {
    if (from > 0) await pass?.();
    await recountMinutes(counts, appId, minutes.slice(from, from + MINUTES_AT_ONCE), now);
  }
  await forgetValues(counts, appId, values, name);
  return await forgottenValues(counts, appId, named);
}
