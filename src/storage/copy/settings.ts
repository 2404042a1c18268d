/** Copies everything that is not events or counts: apps, types, tokens, people. It replaces what the target had of it. */

import { OperatorError } from '../../errors.ts';
import {
  COUNT_COLUMNS,
  isOfFieldCounts,
  isOfFields,
  readSequences,
  readTables,
  selectKept,
  selectOutlived,
} from '../backup/catalog.ts';
import { continueSequences, countFieldsAgain, emptyTables, startGeneration } from '../backup/restore.ts';
import { COARSE_LEVELS } from '../counts/levels.ts';
import { anchorConsumers, continueConsumers, isOfConsumers } from '../feed/restored.ts';
import { KEEP_ROWS } from '../maintenance/expired-rows.ts';
import type { CopyEndpoint, CopySides } from './endpoint.ts';
import { copyTable } from './rows.ts';

/**
 * Replaces all of it in one transaction of the target, from one snapshot of the source.
 * @param isLast the source is closed: the target becomes a database to work with
 */
export async function copySettings(sides: CopySides, isLast: boolean): Promise<void> {
  const { from, to } = sides;
  await from.client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  await to.client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  if (to.engine.restoreSettings !== undefined) await to.client.query(to.engine.restoreSettings);
  const boundary = await boundaryOf(from);
  const tables = await readTables(from.client);
  await emptyTables(to.client, tables);
  // The counts of values are those of all events: they are copied when no more come.
  const hasCounts = isLast && from.engine.keepsFieldCounts && to.engine.keepsFieldCounts;
  for (const table of tables)
    if (isOfConsumers(table) && !isLast) continue;
    else if (hasCounts || !(isLast ? isOfFieldCounts(table) : isOfFields(table)))
      await copyTable(
        sides,
        table.name,
        table.columns,
        selectKept(table, from.engine, `'${boundary}'::timestamptz`),
      );
  // Events of apps that were deleted meanwhile.
  await to.client.query(`
    INSERT INTO deleted_apps (app_id)
    SELECT DISTINCT app_id FROM ${to.engine.materializedCounts(COARSE_LEVELS[2])} AS days
     WHERE app_id NOT IN (SELECT id FROM apps) ON CONFLICT DO NOTHING`);
  await continueSequences(to.client, await readSequences(from.client));
  if (isLast) {
    await startGeneration(to.client);
    if (!hasCounts) await countFieldsAgain(to.client);
    await continueConsumers(to.client);
  }
  await to.client.query('COMMIT');
  if (isLast) await anchorConsumers(to.engine, to.sql);
  await from.client.query('COMMIT');
}

/** Copies the retention boundary, and the counts before it, whose rows are gone: in a transaction of the target. */
export async function copyOutlivedCounts(sides: CopySides): Promise<void> {
  const { from, to } = sides;
  const boundary = await boundaryOf(from);
  await expectRemoved(from);
  await to.client.query('UPDATE retention SET readable_from = $1', [boundary]);
  // What is to be settled is of readable days.
  await from.engine.settleCounts(from.sql, Date.now());
  for (const level of COARSE_LEVELS)
    await to.engine.addCounts(to.client, level.name, (table) =>
      copyTable(
        sides,
        table,
        COUNT_COLUMNS,
        selectOutlived(from.engine.materializedCounts(level), `'${boundary}'::timestamptz`),
      ),
    );
}

/** Keeps the source from removing rows of apps until the connection ends: what the retention of an app hides meanwhile is copied as all else. */
export async function keepRows({ client }: CopyEndpoint): Promise<void> {
  await client.query(`SELECT pg_advisory_lock_shared(hashtext('${KEEP_ROWS}'))`);
  const { rows } = await client.query<{ day: string }>(
    'SELECT day::text AS day FROM archived_parts ORDER BY day LIMIT 1',
  );
  const [away] = rows;
  if (away !== undefined)
    throw new OperatorError(
      `the rows of archived days, such as ${away.day}, have left the source: bring them back first, by "tidemark archive restore" for the days ` +
        'that "tidemark archive list" shows in the archive (--from and --to), with ARCHIVE_KEEP_ROWS=true until the copy has ended',
    );
}

/** Counts are copied where their rows are gone, and made of the rows elsewhere: there is nothing in between. */
async function expectRemoved({ client }: CopyEndpoint): Promise<void> {
  const { rows } = await client.query<{ app: number }>(
    'SELECT app_id AS app FROM app_boundaries WHERE removed_until < readable_from LIMIT 1',
  );
  if (rows.length > 0)
    throw new OperatorError(
      'rows that the retention of apps has made unreadable are being removed from the source: copy again when ' +
        '"tidemark retention list" shows that all are removed',
    );
}

/** The retention boundary as PostgreSQL's text. */
async function boundaryOf({ client }: CopyEndpoint): Promise<string> {
  const { rows } = await client.query<{ boundary: string }>(
    'SELECT readable_from::text AS boundary FROM retention',
  );
  return rows[0]?.boundary ?? '-infinity';
}
