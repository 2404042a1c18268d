/** Rebuilds the counts of declared fields of a UTC day from its rows. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Interval } from '../counts/intervals.ts';
import { DAY_MS } from '../counts/levels.ts';
import type { Transaction, Transactions } from '../database/connect.ts';
import { readBoundary } from '../retention.ts';
import { forgetUncounted, readFieldStates, stepsOf } from './compare.ts';
import { countMinutes, rebuildSeries } from './count-minutes.ts';
import { withFieldsLocked } from './fields-lock.ts';

/** Counting and comparisons of other processes take less than a second. */
const RETRY_MS = 50;
const READ = 'isolation level read committed';

/**
 * Makes minutes what their rows say, a few rows at a time, then coarser counts what the finer ones say. Writers and readers go on,
 * and counts that were exact stay so.
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 * @param now milliseconds since 1970
 */
export async function recountFieldDay(sql: Transactions, day: number, now = Date.now()): Promise<void> {
  const apps = await sql.begin(
    READ,
    (tx) => tx<{ id: number }[]>`
      SELECT DISTINCT app_id AS id FROM declared_fields
       WHERE removed_at IS NULL AND complete_from < ${new Date(day + DAY_MS)} ORDER BY 1`,
  );
  for (const { id } of apps) {
    const steps = await sql.begin(READ, (tx) => stepsOf(tx, id, [{ from: day, until: day + DAY_MS }]));
    for (const step of steps) await whenFree(sql, (tx) => countStep(tx, id, step, now));
    await whenFree(sql, (tx) => rebuildDay(tx, id, day));
  }
}

/** Waits for other work on fields. */
async function whenFree(sql: Transactions, work: (tx: Transaction) => Promise<number>): Promise<void> {
  while ((await withFieldsLocked(sql, work)) === null) await sleep(RETRY_MS);
}

async function countStep(tx: Transaction, appId: number, interval: Interval, now: number): Promise<number> {
  if (interval.from < (await readBoundary(tx))) return 0;
  const fields = (await readFieldStates(tx, appId)).filter(
    ({ completeFrom }) => completeFrom !== null && completeFrom < interval.until,
  );
  const { rows } = await countMinutes(tx, appId, fields, interval, now);
  await forgetUncounted(tx, appId, interval);
  return rows;
}

async function rebuildDay(tx: Transaction, appId: number, day: number): Promise<number> {
  // Before the boundary minutes are gone, and coarser counts are all that is left.
  if (day < (await readBoundary(tx))) return 0;
  const series = await tx<{ id: number; kind: string }[]>`
    SELECT series.id, kind FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id
     WHERE field.app_id = ${appId} AND removed_at IS NULL`;
  const idsOf = (isPlain: boolean): number[] =>
    series.filter(({ kind }) => (kind === 'value') === isPlain).map(({ id }) => id);
  const rebuilt = { plain: idsOf(true), withSummary: idsOf(false), haveGone: true };
  await rebuildSeries(tx, appId, { from: day, until: day + DAY_MS }, rebuilt);
  return series.length;
}
