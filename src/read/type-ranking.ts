/**
 * Which types of an app have the most events in a range: those that a chart shows by themselves.
 *
 * An app with a thousand types has 365,000 counts by the day in a year, too many to rank by. So long ranges are ranked
 * in two steps: the months that the range touches tell {@link CANDIDATES}, and of these the whole months and the days
 * that it touches. Short ranges are ranked by the buckets that they touch. The ranking is exact but for events at the
 * very ends of the range; the counts of the chosen types always are.
 */
import type postgres from 'postgres';
import type { Transaction } from '../database/connect.ts';
import { LEVELS, type Range } from './count-segments.ts';

const CANDIDATES = 16;
/** Most buckets of a type to rank by: 16,000 rows of a thousand types, 8 ms. */
const MOST_BUCKETS = 16;
const DAY_MS = 86_400_000;

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** @returns internal ids, at most `most`, those with the most events first */
export async function topTypes(
  tx: Transaction,
  appId: number,
  range: Range,
  most: number,
): Promise<number[]> {
  // A list of them, so that the index finds each type's few rows; PostgreSQL before 18 would read all of the app's.
  const every = tx`ARRAY(SELECT id FROM event_types WHERE app_id = ${appId})`;
  const finest = LEVELS.findLast(({ ms }) => range.until - range.from <= MOST_BUCKETS * ms);
  if (finest !== undefined) {
    const { from, until } = touched(range, finest.ms);
    return await rank(tx, countsOf(tx, appId, every, finest.view, from, until), most);
  }
  const outer = { from: monthOf(range.from, 0), until: monthOf(range.until - 1, 1) };
  const candidates = await rank(
    tx,
    countsOf(tx, appId, every, 'events_per_month', outer.from, outer.until),
    CANDIDATES,
  );
  if (candidates.length <= most && candidates.length < 2) return candidates;
  const inner = { from: monthOf(range.from - 1, 1), until: monthOf(range.until, 0) };
  const days = touched(range, DAY_MS);
  const few = tx`${candidates}::integer[]`;
  const parts =
    inner.from >= inner.until
      ? [countsOf(tx, appId, few, 'events_per_day', days.from, days.until)]
      : [
          countsOf(tx, appId, few, 'events_per_day', days.from, inner.from),
          tx` UNION ALL `,
          countsOf(tx, appId, few, 'events_per_month', inner.from, inner.until),
          tx` UNION ALL `,
          countsOf(tx, appId, few, 'events_per_day', inner.until, days.until),
        ];
  return await rank(tx, tx`${parts}`, most);
}

async function rank(tx: Transaction, counts: Fragment, most: number): Promise<number[]> {
  const rows = await tx<{ id: number }[]>`
    SELECT type_id AS id FROM (${counts}) counts
     GROUP BY type_id ORDER BY sum(count) DESC, type_id LIMIT ${most}`;
  return rows.map(({ id }) => id);
}

function countsOf(
  tx: Transaction,
  appId: number,
  ids: Fragment,
  view: string,
  from: number,
  until: number,
): Fragment {
  return tx`
    SELECT type_id, count FROM ${tx(view)}
     WHERE app_id = ${appId} AND type_id = ANY(${ids}) AND bucket >= ${from} AND bucket < ${until}`;
}

function touched({ from, until }: Range, ms: number): Range {
  return { from: Math.floor(from / ms) * ms, until: Math.ceil(until / ms) * ms };
}

/** The start of the month (UTC) that holds an instant, or of a later one. */
function monthOf(instant: number, later: number): number {
  const date = new Date(instant);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
}
