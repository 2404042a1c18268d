/**
 * Which types of an app have the most events in a range: those that a chart shows by themselves.
 *
 * An app with a thousand types has 365,000 counts by the day in a year, too many to rank by. So long ranges are ranked
 * in two steps: the months that the range touches tell {@link CANDIDATES}, and of these the whole months and the days
 * that it touches. Short ranges are ranked by the buckets that they touch. The ranking is approximate where a
 * range begins or ends within a month (which types become candidates) or a bucket; the counts of the chosen types are exact.
 */
import type { Transaction } from '../connect.ts';
import { LEVELS, type Range, refine, type StaleBucket } from './count-segments.ts';
import {
  coarseStretchesOf,
  countsIn,
  type Fragment,
  monthOf,
  type Stretch,
  stretchesOf,
} from './exact-counts.ts';

const CANDIDATES = 16;
/** Most buckets of a type to rank by: 16,000 rows of a thousand types, 8 ms. */
const MOST_BUCKETS = 16;
const DAY_MS = 86_400_000;

/**
 * @param stale every stale bucket of this snapshot
 * @returns internal ids, at most `most`, those with the most events first
 */
export async function topTypes(
  tx: Transaction,
  appId: number,
  range: Range,
  most: number,
  stale: readonly StaleBucket[],
): Promise<number[]> {
  // A list of them, so that the index finds each type's few rows; PostgreSQL before 18 would read all of the app's.
  const every = tx`ARRAY(SELECT id FROM event_types WHERE app_id = ${appId})`;
  const ranked = (types: Fragment, stretches: readonly Stretch[], limit: number): Promise<number[]> =>
    rank(tx, countsIn(tx, { apps: tx`${[appId]}::integer[]`, types }, stretches), limit);

  const finest = LEVELS.findLast(({ ms }) => range.until - range.from <= MOST_BUCKETS * ms);
  if (finest !== undefined) {
    return await ranked(
      every,
      stretchesOf(refine({ level: finest, ...touched(range, finest.ms) }, stale)),
      most,
    );
  }
  const outer = { from: monthOf(range.from, 0), until: monthOf(range.until - 1, 1) };
  const candidates = await ranked(every, coarseStretchesOf(outer, stale), CANDIDATES);
  if (candidates.length <= most && candidates.length < 2) return candidates;
  return await ranked(tx`${candidates}::integer[]`, coarseStretchesOf(touched(range, DAY_MS), stale), most);
}

async function rank(tx: Transaction, counts: Fragment, most: number): Promise<number[]> {
  const rows = await tx<{ id: number }[]>`
    SELECT type_id AS id FROM (${counts}) counts
     GROUP BY type_id ORDER BY sum(count) DESC, type_id LIMIT ${most}`;
  return rows.map(({ id }) => id);
}

function touched({ from, until }: Range, ms: number): Range {
  return { from: Math.floor(from / ms) * ms, until: Math.ceil(until / ms) * ms };
}
