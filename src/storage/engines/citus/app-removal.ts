/** Removes the events and counts of a deleted app, on its node. */
import { countsOf, LEVELS } from '../../counts/levels.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { type AppRemoval, FROM_DAYS } from '../../maintenance/deleted-apps.ts';
import { removal as onOneServer } from '../postgres/app-removal.ts';
import { poolOfApp } from './reads.ts';

/** What is on the node of an app, beside its events. */
const ON_NODE = [
  'count_deltas',
  ...LEVELS.map(({ name }) => countsOf(name)),
  ...FROM_DAYS.filter((table) => table !== 'usage_days'),
  'type_names',
  ...TABLES_OF_APP,
  'field_series',
  'field_states',
];

export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) =>
    await onOneServer.removeEvents(await poolOfApp(sql, appId), appId, isOver),
  removeCounts: async (sql, appId) => {
    const pool = await poolOfApp(sql, appId);
    await pool.begin('isolation level read committed', async (tx) => {
      // Not while a fold adds to the same counts.
      await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
      for (const table of ON_NODE) await tx`DELETE FROM ${tx(table)} WHERE app_id = ${appId}`;
    });
    await sql`DELETE FROM usage_days WHERE app_id = ${appId}`;
  },
};
