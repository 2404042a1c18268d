/** Moves the pending deltas of declared fields into their counts, and gives new values their ids. */

import { finerThan, LEVELS, type Level } from '../counts/levels.ts';
import { errorCode, SQLSTATE, type Transaction, type Transactions } from '../database/connect.ts';
import type { DeltaSource, Folded } from '../maintenance/folding.ts';
import { utcDay } from '../retention.ts';
import { foldNumbers, readPendingNumbers, writePendingNumbers } from './numbers/fold-numbers.ts';
import { MANY, NUMBERS, OTHER } from './value-text.ts';

/** Values of a field that are counted separately. All others are counted together. */
export const MAX_VALUES = 10_000;
/** How many of these may be new within a UTC day, but for a backfill. */
export const MAX_NEW_VALUES = 1_000;

/** As for the deltas of events: see postgres/maintenance.ts. */
const NOTED = { deltas: 20, transactions: 200 } as const;

/** Somebody else works on fields, or has just changed one. */
const LATER: ReadonlySet<string> = new Set([SQLSTATE.lockNotAvailable, SQLSTATE.serializationFailure]);

const PENDING = `written >= (SELECT pending_from FROM last_field_fold)`;
const SPECIAL = `('${OTHER}', '${MANY}', '${NUMBERS}')`;

/** How many of a field's new values may get ids. `$1` is the day. */
const ROOM = `
  greatest(0, least(${MAX_VALUES} - known_values,
                    CASE WHEN backfill THEN ${MAX_VALUES}
                         WHEN new_values_on < $1::date THEN ${MAX_NEW_VALUES}
                         ELSE ${MAX_NEW_VALUES} - new_values END))`;

/** Gives new values ids, those of the oldest events first, as far as there is room for them. */
const MAKE_VALUES = `
  WITH unknown AS (
    SELECT field_id, value, row_number() OVER (PARTITION BY field_id ORDER BY min(bucket), value) AS place
      FROM field_deltas
     WHERE ${PENDING} AND value NOT IN ${SPECIAL}
       AND NOT EXISTS (SELECT FROM field_series AS known
                        WHERE known.field_id = field_deltas.field_id AND known.value = field_deltas.value AND known.type_id = 0)
     GROUP BY field_id, value
    HAVING sum(count) > 0
  ), made AS (
    INSERT INTO field_series (field_id, type_id, value, is_complete)
    SELECT field_id, 0, value, full_since IS NULL
      FROM unknown JOIN declared_fields ON declared_fields.id = field_id
     WHERE removed_at IS NULL AND place <= ${ROOM}
     ORDER BY field_id, place
    RETURNING field_id
  )
  UPDATE declared_fields
     SET known_values = known_values + counted.made,
         new_values = CASE WHEN new_values_on < $1::date THEN 0 ELSE new_values END + counted.made,
         new_values_on = greatest(new_values_on, $1::date),
         full_since = coalesce(full_since, CASE WHEN counted.unknown > counted.made THEN $2::timestamptz END)
    FROM (SELECT field_id, count(*)::integer AS unknown,
                 (SELECT count(*)::integer FROM made WHERE made.field_id = unknown.field_id) AS made
            FROM unknown GROUP BY field_id) AS counted
   WHERE declared_fields.id = counted.field_id AND (counted.made > 0 OR full_since IS NULL)`;

/** CTE: deltas of fields that are there, with what their values are counted as. */
const RESOLVED = (deltas: string): string => `
    resolved AS MATERIALIZED (
      SELECT delta.app_id, delta.field_id, delta.type_id, delta.bucket, delta.count, field.type_id IS NULL AS by_type,
             CASE WHEN known.id IS NULL AND delta.value NOT IN ${SPECIAL} THEN '${OTHER}' ELSE delta.value END AS value,
             coalesce(known.is_complete, true) AS is_complete
        FROM ${deltas} AS delta
        JOIN declared_fields AS field ON field.id = delta.field_id AND removed_at IS NULL
        LEFT JOIN field_series AS known
          ON known.field_id = delta.field_id AND known.value = delta.value AND known.type_id = 0
       WHERE delta.value <> '${NUMBERS}'
    )`;

/**
 * CTEs: what these deltas add to which series, each value with all types (type_id 0) and, unless the field has but one, with
 * its own. Materialized, so that series are looked up by all of their key.
 */
const ADDED = (deltas: string): string => `${RESOLVED(deltas)},
    added AS MATERIALIZED (
      SELECT app_id, field_id, 0 AS type_id, value, bucket, sum(count)::bigint AS count, bool_and(is_complete) AS is_complete
        FROM resolved GROUP BY 1, 2, 3, 4, 5
      UNION ALL
      SELECT app_id, field_id, type_id, value, bucket, sum(count)::bigint, bool_and(is_complete)
        FROM resolved WHERE by_type GROUP BY 1, 2, 3, 4, 5
    )`;

/** Makes the series that deltas add to and that are not there yet. */
const MAKE_SERIES = `
  WITH ${ADDED(`(SELECT * FROM field_deltas WHERE ${PENDING})`)}
  INSERT INTO field_series (field_id, type_id, value, is_complete)
  SELECT field_id, type_id, value, bool_and(is_complete)
    FROM added
   WHERE NOT EXISTS (SELECT FROM field_series AS known
                      WHERE known.field_id = added.field_id AND known.value = added.value AND known.type_id = added.type_id)
   GROUP BY field_id, type_id, value`;

const newCounts = (level: Level): string => {
  const finer = finerThan(level);
  return finer === null
    ? `SELECT app_id, series.id AS series_id, bucket, count
         FROM added JOIN field_series AS series USING (field_id, type_id, value) WHERE count <> 0`
    : `SELECT app_id, series_id, date_bin('${level.ms} ms', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
         FROM new_${finer.name} GROUP BY 1, 2, 3`;
};

const addTo = (name: string, counts: string): string => `
    into_${name} AS (
      INSERT INTO field_${name}_counts AS known (app_id, series_id, bucket, count)
      ${counts}
      ON CONFLICT (app_id, series_id, bucket) DO UPDATE SET count = known.count + excluded.count)`;

/** CTEs: takes all pending deltas away, and notes that. */
const GONE = `
    gone AS (
      DELETE FROM field_deltas WHERE ${PENDING} RETURNING app_id, field_id, type_id, bucket, count, value
    ),
    noted AS (
      UPDATE field_folds SET (pending_from, running) = (SELECT pending_from, running FROM next_fold)
       WHERE (SELECT count(*) >= ${NOTED.deltas}
                     OR count(*) > 0 AND pg_snapshot_xmax(pg_current_snapshot())::text::numeric
                                         - (SELECT pending_from FROM last_field_fold)::text::numeric >= ${NOTED.transactions}
                FROM gone)
    )`;

const FOLD = `
    WITH ${GONE},
    ${ADDED('gone')},
    ${LEVELS.map((level) => `new_${level.name} AS (${newCounts(level)})`).join(',\n    ')},
    ${LEVELS.map(({ name }) => addTo(name, `SELECT * FROM new_${name}`)).join(',')},
    ${addTo(
      'month',
      `SELECT app_id, series_id, date_trunc('month', bucket, 'UTC'), sum(count)::bigint FROM new_day GROUP BY 1, 2, 3`,
    )}
    SELECT count(*)::float8 AS deltas,
           (SELECT coalesce(sum(count), 0)::float8 FROM added WHERE value = '${OTHER}' AND type_id = 0) AS others
      FROM gone`;

const ADD_UP = `
    WITH ${GONE},
    ${RESOLVED('gone')},
    added_up AS (
      INSERT INTO field_deltas (app_id, field_id, type_id, bucket, count, value)
      SELECT app_id, field_id, type_id, bucket, sum(count)::bigint, value FROM resolved GROUP BY 1, 2, 3, 4, 6
      HAVING sum(count) <> 0
    )
    SELECT count(*)::float8 AS deltas, 0::float8 AS others FROM gone`;

export interface FoldedFields {
  /** How many deltas were folded. */
  readonly deltas: number;
  /** Events that were counted as "other", or are in no statistic of numbers. */
  readonly others: number;
}

/** Locks out other folds and comparisons. Comes before the snapshot of its transaction. */
export async function lockFields(tx: Transaction): Promise<void> {
  await tx`LOCK TABLE field_folds IN EXCLUSIVE MODE NOWAIT`;
}

/**
 * Runs work on fields in one snapshot, beside no other such work.
 * @returns null where another process does such work: it is to be tried again
 */
export async function withFieldsLocked<T extends object | number>(
  sql: Transactions,
  work: (tx: Transaction) => Promise<T>,
): Promise<T | null> {
  try {
    const outcome = await sql.begin('isolation level repeatable read', async (tx) => {
      await lockFields(tx);
      return { value: await work(tx) };
    });
    return outcome.value;
  } catch (error) {
    if (LATER.has(errorCode(error) ?? '')) return null;
    throw error;
  }
}

/**
 * Moves all pending deltas into the counts of every level. In every snapshot a delta is either pending or folded.
 * @param now milliseconds since 1970
 * @returns null where another process works on fields: it is to be tried again
 */
export async function foldFields(sql: Transactions, now: number): Promise<FoldedFields | null> {
  return await take(sql, now, FOLD);
}

/**
 * The pending deltas of fields. Adding them up makes the series of their values too, so that readers need not look at rows for
 * a value that is new.
 * @param onOthers called with how many events were counted as "other"
 */
export function fieldDeltas(
  sql: Transactions,
  now: () => number,
  onOthers: (events: number) => void,
): DeltaSource {
  const taken = async (statement: string): Promise<number | null> => {
    const outcome = await take(sql, now(), statement);
    onOthers(outcome?.others ?? 0);
    return outcome?.deltas ?? null;
  };
  const fold = async (): Promise<Folded | null> => {
    const deltas = await taken(FOLD);
    // Folded in each round, as readers of values go through the deltas of all apps.
    return deltas === null ? null : { deltas, minutes: 0 };
  };
  return { fold, compact: () => taken(ADD_UP), pending: () => countPending(sql) };
}

async function take(sql: Transactions, now: number, statement: string): Promise<FoldedFields | null> {
  if ((await countPending(sql)) === 0) return NOTHING;
  return await withFieldsLocked(sql, async (tx) => {
    await onlyByIndex(tx);
    await tx.unsafe(MAKE_VALUES, [utcDay(now), new Date(now)]);
    await tx.unsafe(MAKE_SERIES);
    const numbers = await readPendingNumbers(tx, PENDING);
    const [result = NOTHING] = await tx.unsafe<FoldedFields[]>(statement);
    if (statement === ADD_UP) {
      await writePendingNumbers(tx, numbers);
      return result;
    }
    return { ...result, others: result.others + (await foldNumbers(tx, numbers)) };
  });
}

async function countPending(sql: Transactions): Promise<number> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const [, [pending]] = await Promise.all([
      onlyByIndex(tx),
      tx.unsafe<{ deltas: number }[]>(`SELECT count(*)::float8 AS deltas FROM field_deltas WHERE ${PENDING}`),
    ]);
    return pending?.deltas ?? 0;
  });
}

/** Dead rows, which the planner does not know of, make nothing but the index of pending deltas bearable. */
async function onlyByIndex(tx: Transaction): Promise<void> {
  await tx`SET LOCAL enable_seqscan = off`;
}

const NOTHING: FoldedFields = { deltas: 0, others: 0 };
