/** The INSERTs into the events table, each with what its rows change in the counts. What is copied goes by copy-group.ts. */
import type postgres from 'postgres';
import type { Sql, Transaction } from '../connect.ts';
import type { Engine } from '../engine.ts';
import { ENGINES } from '../engines.ts';
import { type EventRow, timestamp } from './accepted-event.ts';
import type { EngineWrites } from './engine-writes.ts';

export const EVENT_COLUMNS = 'id, app_id, type_id, created_at, payload';

/** What comes before and after a SELECT of {@link EVENT_COLUMNS} to store its rows. */
export interface InsertStatement {
  /** After `WITH`, or after a comma behind other CTEs that the SELECT refers to. */
  readonly before: string;
  readonly after: string;
}

interface InsertMissing extends InsertStatement {
  /** Ends the CTEs; a SELECT that may read `inserted` follows. {@link after} is this with a SELECT of what was `stored`. */
  readonly counted: string;
}

/**
 * An expression that writes something small, and nothing that anybody reads: a transaction that writes waits for the
 * synchronous standby when it commits. One that finds its rows stored already would not, though the transaction that has
 * stored them may have been broken off in that very wait.
 */
export const AWAITS_STANDBY = "pg_logical_emit_message(true, 'tidemark', '')";

/**
 * A statement that stores rows that are not there yet, and counts exactly those: what another transaction is just
 * storing is waited for. Its result is one row, the number that it has `stored`. Its commit waits for the synchronous
 * standby, also where nothing was missing.
 */
export function insertMissing({ changes, changesOfInserted }: EngineWrites): InsertMissing {
  const counted = `
         ON CONFLICT DO NOTHING RETURNING id, app_id, type_id, created_at),
       counted AS (INSERT INTO ${changes} ${changesOfInserted})`;
  return {
    before: `inserted AS (INSERT INTO events (${EVENT_COLUMNS})`,
    counted,
    after: `${counted}
  SELECT count(*)::integer AS stored, ${AWAITS_STANDBY} AS written FROM inserted`,
  };
}

/**
 * The same for rows of which none can be there yet: all of them are stored, or none. It is cheaper, as they need not be
 * looked for. Its row count is the number that it has stored.
 */
export function insertNew({ changes, changesOfInserted }: EngineWrites): InsertStatement {
  return {
    before: 'inserted AS (',
    after: `),
       counted AS (INSERT INTO ${changes} ${changesOfInserted})
  INSERT INTO events (${EVENT_COLUMNS}) SELECT ${EVENT_COLUMNS} FROM inserted`,
  };
}

/** {@link insertMissing} of the values that {@link columns} gives. */
export function insertMissingValues(engine: EngineWrites): string {
  const { before, after } = insertMissing(engine);
  return `
  WITH ${before}
       SELECT id, app_id, type_id, created_at, payload::json
         FROM unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::text[])
           AS batch (id, app_id, type_id, created_at, payload)${after}`;
}

/** What came of {@link insertKeyedValues}. */
export interface KeyedInsert {
  readonly stored: number;
  /** Ids that were there before. */
  readonly repeated: readonly string[];
}

/**
 * {@link insertMissing} of events with keys, in the order of the index: two transactions with the same keys wait for one
 * another in that order, and do not deadlock. Of several events with the same key the first one is stored.
 */
export function insertKeyedValues(engine: EngineWrites): string {
  const { before, counted } = insertMissing(engine);
  return `
  WITH ${before}
       SELECT id, app_id, type_id, created_at, payload::json
         FROM unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::text[]) WITH ORDINALITY
           AS batch (id, app_id, type_id, created_at, payload, place)
        ORDER BY app_id, created_at, id, place${counted}
  SELECT ${whatWasInserted('$1')} FROM inserted`;
}

/**
 * The columns of a {@link KeyedInsert} of what a statement has `inserted`. What was there before it has not.
 * @param ids the parameter that has the ids of all events
 */
export function whatWasInserted(ids: string): string {
  return `count(*)::integer AS stored, ${AWAITS_STANDBY} AS written,
         CASE WHEN count(*) = cardinality(${ids}::uuid[]) THEN '{}'
              ELSE ARRAY(SELECT id::text FROM unnest(${ids}::uuid[]) AS sent (id) EXCEPT SELECT id::text FROM inserted)
         END AS repeated`;
}

/**
 * What became of events with keys, in order: null where one was stored, and `repeated` where an event with its key was
 * there before.
 * @param uncertain whether an earlier try may have stored them: what was there before is then their own doing
 */
export function keyedOutcomes(
  events: readonly EventRow[],
  result: KeyedInsert | undefined,
  uncertain: boolean,
): readonly ('repeated' | null)[] {
  if (result?.stored === events.length) return events.map(() => null);
  const known = new Set(uncertain ? [] : result?.repeated);
  return events.map(({ id }) => {
    if (known.has(id)) return 'repeated';
    known.add(id);
    return null;
  });
}

/** Events as arrays, one for each of {@link EVENT_COLUMNS}. */
export function columns(events: readonly EventRow[]): readonly (readonly unknown[])[] {
  return [
    events.map(({ id }) => id),
    events.map(({ appId }) => appId),
    events.map(({ typeId }) => typeId),
    events.map(({ createdAt }) => timestamp(createdAt)),
    events.map(({ payload }) => payload),
  ];
}

/**
 * Stores the missing rows of a query, for whoever makes events inside of the database.
 * @param rows SELECT of {@link EVENT_COLUMNS}
 * @returns how many were stored
 */
export async function insertSelected(
  sql: Sql | Transaction,
  engine: Engine,
  rows: postgres.PendingQuery<postgres.Row[]>,
): Promise<number> {
  const { before, after } = insertMissing(ENGINES[engine].writes);
  const [result] = await sql<{ stored: number }[]>`
    WITH ${sql.unsafe(before)} ${rows} ${sql.unsafe(after)}`;
  return result?.stored ?? 0;
}
