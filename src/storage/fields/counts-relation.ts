/** The relations of the counts of values, with what they lack. */
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
  /** Internal id of the app. */
  readonly appId: number;
  /** Corrections of whole minutes. */
  readonly corrections: readonly Correction[];
  /** What the rows say of parts of minutes, by the time of each row. */
  readonly rows: readonly Correction[];
}

/** Widths of the buckets, for date_bin; a month has none. */
const WIDTHS: Readonly<Record<string, string>> = {
  minute: '1 minute',
  quarter_hour: '15 minutes',
  hour: '1 hour',
  day: '1 day',
};

/** A relation of counts of events, or the same of fields with corrections. @param view such as `events_per_hour` */
export function countsRelation(
  tx: Transaction,
  view: string,
  field: Pick<FieldCounts, 'appId' | 'corrections'> | undefined,
): Fragment {
  if (field === undefined) return tx`${tx(view)}`;
  const level = view.slice('events_per_'.length);
  const counts = tx`${tx(`fields_per_${level}`)}`;
  if (field.corrections.length === 0) return counts;
  const width = WIDTHS[level];
  const bucket =
    width === undefined ? tx`date_trunc('month', at, 'UTC')` : tx`date_bin(${width}::interval, at, 'epoch')`;
  return tx`
    (SELECT app_id, type_id, bucket, count FROM ${counts}
      UNION ALL
     SELECT ${field.appId}::integer, id, ${bucket}, count FROM ${unnested(tx, field.corrections)}) AS corrected`;
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
