/** Compares counts with rows in a cluster: app by app, each in a snapshot of its node. */
import { addressOfPool, connect, type Sql } from '../connect.ts';
import { type ComparedDay, type CountCheck, sampleOf } from '../counts/count-check.ts';
import { compareDay, type DayComparison, EXAMPLES } from '../counts/differences.ts';
import { DAY_MS } from '../counts/levels.ts';
import { compareFieldDay } from '../fields/compare-day.ts';
import { readBoundary } from '../retention.ts';
import { readSnapshot } from '../snapshot.ts';
import { poolOfApp, readFieldsOfApp } from './reads.ts';

/** Most apps of one day that a check compares, by chance. */
const MOST_APPS = 50;

/** Compares all apps that have events or counts of a UTC day. @param day its midnight, milliseconds since 1970 */
export async function compareDayOfCluster(sql: Sql, day: number): Promise<DayComparison> {
  return await compareApps(sql, day, await appsOf(sql, day));
}

/** Compares a sample of days, of each the apps with counts, or some of them. */
export async function checkCountsOfCluster(
  sql: Sql,
  now: number,
  random: () => number = Math.random,
): Promise<CountCheck> {
  const boundary = await readBoundary(sql);
  const rows = await sql<{ day: number }[]>`
    SELECT DISTINCT (extract(epoch FROM bucket) * 1000)::float8 AS day FROM day_counts
     WHERE type_id = 0 AND bucket <= ${new Date(now)} AND bucket >= ${new Date(boundary)} ORDER BY day`;
  const days: ComparedDay[] = [];
  for (const day of sampleOf(
    rows.map((row) => row.day),
    random,
  )) {
    const apps = (await appsOf(sql, day)).toSorted(() => random() - 0.5).slice(0, MOST_APPS);
    days.push({ day, ...(await compareApps(sql, day, apps)) });
  }
  return { days, unfinished: [] };
}

/** Apps that have something of a day and are not being removed. */
async function appsOf(sql: Sql, day: number): Promise<number[]> {
  const [from, until] = [new Date(day), new Date(day + DAY_MS)];
  const [found, deleted] = await Promise.all([
    sql<{ id: number }[]>`
      SELECT app_id AS id FROM day_counts WHERE bucket = ${from} GROUP BY app_id
      UNION SELECT app_id FROM count_deltas WHERE bucket >= ${from} AND bucket < ${until} GROUP BY app_id
      UNION SELECT app_id FROM events WHERE created_at >= ${from} AND created_at < ${until} GROUP BY app_id`,
    sql<{ id: number }[]>`SELECT app_id AS id FROM deleted_apps`,
  ]);
  const gone = new Set(deleted.map(({ id }) => id));
  return found.map(({ id }) => id).filter((id) => !gone.has(id));
}

async function compareApps(sql: Sql, day: number, appIds: readonly number[]): Promise<DayComparison> {
  let differing = 0;
  const examples: DayComparison['examples'][number][] = [];
  // Names are asked for within a snapshot, which may have the only connection of the pool.
  const names = connect(addressOfPool(sql), { connections: 1, name: 'tidemark names' });
  try {
    for (const appId of appIds) {
      const pool = await poolOfApp(sql, appId);
      const found = await readSnapshot(pool, (tx) => compareDay(tx, day, appId, names));
      const ofFields = await readFieldsOfApp(sql, appId, (shards) =>
        readSnapshot(shards, (tx) => compareFieldDay(tx, day, appId, () => false, names)),
      );
      for (const compared of [found, ofFields ?? { differing: 0, examples: [] }]) {
        differing += compared.differing;
        examples.push(...compared.examples);
      }
    }
  } finally {
    await names.end({ timeout: 5 });
  }
  return { differing, examples: examples.slice(0, EXAMPLES) };
}
