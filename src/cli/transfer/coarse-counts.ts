/** Counts that have outlived their rows, into whatever holds the counts of the engine. */
import type pg from 'pg';
import type { Engine } from '../../storage/engine.ts';
import { COUNT_COLUMNS, type CoarseLevel } from './backup-format.ts';

const STAGED = 'staged_counts';

/**
 * Adds the counts of one level.
 *
 * TimescaleDB keeps a continuous aggregate in a hypertable of its own and never looks for rows behind what it has
 * materialised: counts put there are as good as its own, and readers find them there.
 * @param copy copies rows into a table and says how many
 */
export async function addCoarseCounts(
  client: pg.Client,
  engine: Engine,
  level: CoarseLevel,
  copy: (table: string) => Promise<number>,
): Promise<number> {
  if (engine === 'postgres') {
    const rows = await copy(`${level}_counts`);
    if (level === 'day' && rows > 0) await addMonths(client, 'day_counts');
    return rows;
  }
  await client.query(
    `CREATE TEMPORARY TABLE ${STAGED} (app_id integer, type_id integer, bucket timestamptz, count bigint) ON COMMIT DROP`,
  );
  const rows = await copy(STAGED);
  // All types together are an aggregate of their own.
  const allTypes = COUNT_COLUMNS.filter((column) => column !== 'type_id');
  await insertStaged(client, `${level}_counts`, COUNT_COLUMNS, 'type_id <> 0');
  await insertStaged(client, `app_${level}_counts`, allTypes, 'type_id = 0');
  if (level === 'day' && rows > 0) await addMonths(client, STAGED);
  await client.query(`DROP TABLE ${STAGED}`);
  return rows;
}

/**
 * Counts by the month have no section: they are sums of days. Those of later days are added when they are folded or
 * refreshed.
 */
async function addMonths(client: pg.Client, days: string): Promise<void> {
  const { rows } = await client.query("SELECT WHERE to_regclass('month_counts') IS NOT NULL");
  if (rows.length === 0) return; // A backup from before there were any: the migration that makes them adds them up.
  await client.query(`
    INSERT INTO month_counts (app_id, type_id, bucket, count)
    SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count) FROM ${days} GROUP BY 1, 2, 3`);
}

async function insertStaged(
  client: pg.Client,
  aggregate: string,
  columns: readonly string[],
  condition: string,
): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) AS name
       FROM timescaledb_information.continuous_aggregates
      WHERE view_schema = current_schema() AND view_name = $1`,
    [aggregate],
  );
  const [table] = rows;
  if (table === undefined) throw new Error(`The continuous aggregate ${aggregate} is gone.`);
  const list = columns.join(', ');
  await client.query(`INSERT INTO ${table.name} (${list}) SELECT ${list} FROM ${STAGED} WHERE ${condition}`);
}
