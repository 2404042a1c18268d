/** INSERTs of events on one server, each with its changes of the counts in the same statement (in a cluster: insert-steps.ts). */
import { EVENT_COLUMN_NAMES, type EventRow, timestamp } from './accepted-event.ts';
import type { EngineWrites } from './engine-writes.ts';

export const EVENT_COLUMNS = EVENT_COLUMN_NAMES.join(', ');

/** What comes before and after a SELECT of {@link EVENT_COLUMNS} to store its rows. */
export interface InsertStatement {
  /** After `WITH`, or after other CTEs and a comma. */
  readonly before: string;
  readonly after: string;
}

interface InsertMissing extends InsertStatement {
  /** Ends the CTEs; a SELECT that may read `inserted` follows. {@link after} is this with a SELECT of the number `stored`. */
  readonly counted: string;
}

/**
 * An expression that writes a small WAL record, which nothing reads: only a transaction that writes waits for the synchronous
 * standby when it commits. The transaction that has stored the rows before may have been canceled during that wait.
 */
export const AWAITS_STANDBY = "pg_logical_emit_message(true, 'tidemark', '')";

/** What rows of `inserted` (app_id, type_id, created_at) change in the counts. */
function countInserted({ changes, deltasOfInserted }: EngineWrites): string {
  return `counted AS (INSERT INTO ${changes} ${deltasOfInserted})`;
}

/**
 * A statement that stores missing rows and counts exactly those; it waits for a transaction that is storing the same rows.
 * Its result is one row, the number `stored`. Its commit waits for the synchronous standby, even if nothing was missing.
 */
export function insertMissing(engine: EngineWrites): InsertMissing {
  const counted = `
         ON CONFLICT DO NOTHING RETURNING id, app_id, type_id, created_at),
       ${countInserted(engine)}`;
  return {
    before: `inserted AS (INSERT INTO events (${EVENT_COLUMNS})`,
    counted,
    after: `${counted}
  SELECT count(*)::integer AS stored, ${AWAITS_STANDBY} AS written FROM inserted`,
  };
}

/**
 * The same for rows of which none can be stored yet: all of them are stored, or none. It is cheaper, because it does not look
 * for them. Its row count is the number of stored rows.
 */
export function insertNew(engine: EngineWrites): InsertStatement {
  return {
    before: 'inserted AS (',
    after: `),
       ${countInserted(engine)}
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
           AS event (id, app_id, type_id, created_at, payload)${after}`;
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
