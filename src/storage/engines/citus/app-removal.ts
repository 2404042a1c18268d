/** Removes the events and counts of a deleted app, on its node. */
import { TABLES_OF_APP } from '../../fields/removal.ts';
import type { AppRemoval } from '../../maintenance/deleted-apps.ts';
import { removeRowsOfApp } from '../../maintenance/slices.ts';
import { FOLDED_TABLES, removal as onOneServer, withCountsLock } from '../postgres/app-removal.ts';
import { poolOfApp } from './reads.ts';

/** What is on the coordinator. */
const ON_COORDINATOR = ['usage_days'];
/** What is on the node of an app, beside its events. */
const ON_NODE = [
  ...FOLDED_TABLES.filter((table) => !ON_COORDINATOR.includes(table)),
  'type_names',
  ...TABLES_OF_APP,
  'field_series',
  'field_states',
];

export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) =>
    await onOneServer.removeEvents(await poolOfApp(sql, appId), appId, isOver),
  removeCounts: async (sql, appId, isOver) =>
    (await removeRowsOfApp(withCountsLock(await poolOfApp(sql, appId)), ON_NODE, appId, isOver)) &&
    (await removeRowsOfApp((work) => sql.begin(work), ON_COORDINATOR, appId, isOver)),
};
