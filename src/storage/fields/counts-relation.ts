/** The relations of the counts of values, with what they lack. */
import { type Level, startIn } from '../counts/levels.ts';
import type { Fragment, Transaction } from '../database/connect.ts';

/** Events of a series that its counts lack, or have too many of. */
export interface Correction {
  /** Internal id of the series. */
  readonly id: number;
  /** The minute, or the time of rows; milliseconds since 1970. */
  readonly at: number;
  readonly count: number;
}

/** What reads of counts by series need beside the relations. */
export interface FieldCounts {
  readonly appId: number;
  /** Corrections of whole minutes. */
  readonly corrections: readonly Correction[];
  /** What the rows say of parts of minutes, by the time of each row. */
  readonly rows: readonly Correction[];
}

/** A relation of counts of events, or the same of fields with corrections. @param view such as `events_per_hour` */
export function countsRelation(
  tx: Transaction,
  view: string,
  field: Pick<FieldCounts, 'appId' | 'corrections'> | undefined,
): Fragment {
  if (field === undefined) return tx`${tx(view)}`;
  // The cast: views have names of levels, or of months.
  const level = view.slice('events_per_'.length) as Level['name'] | 'month';
  const counts = tx`${tx(`fields_per_${level}`)}`;
  if (field.corrections.length === 0) return counts;
  return tx`
    (SELECT app_id, type_id, bucket, count FROM ${counts}
      UNION ALL
     SELECT ${field.appId}::integer, id, ${startIn(tx, level, tx`at`)}, count FROM ${unnested(tx, field.corrections)}) AS corrected`;
}

/** Counts of single rows, as a relation (app_id, type_id, bucket, count). */
export function rowCounts(tx: Transaction, { appId, rows }: FieldCounts): Fragment {
  return tx`
    (SELECT ${appId}::integer AS app_id, id AS type_id, at AS bucket, count FROM ${unnested(tx, rows)}) AS counted_rows`;
}

function unnested(tx: Transaction, corrections: readonly Correction[]): Fragment {
  return tx`
    unnest(${corrections.map(({ id }) => id)}::integer[],
           ${corrections.map(({ at }) => new Date(at).toISOString())}::timestamptz[],
           ${corrections.map(({ count }) => count)}::bigint[]) AS correction (id, at, count)`;
}
