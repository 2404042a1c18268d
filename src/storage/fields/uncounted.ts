/** Notes minutes whose rows were written by a process that did not know all declared fields (sql/0003). */

/** The stamp of rows whose values need not be noted as uncounted: as if their writer had known all fields there ever are. */
export const EVERY_FIELD = 2_147_483_647;

/** What tells of which minutes fields are not counted. */
export type FieldTable = 'declared_fields' | 'uncounted_minutes';

/**
 * A CTE that notes what stamps tell when they are removed; in the same statement, so that no snapshot misses both.
 * @param stamps a CTE of removed stamps (bucket, fields), whose buckets are minutes
 * @param apps   whether it has an app_id; else a stamp holds for all apps
 * @param nameOf the name of a table, where it has another one
 */
export function noteUncounted(
  stamps: string,
  {
    apps,
    nameOf = (table) => table,
  }: { readonly apps: boolean; readonly nameOf?: (table: FieldTable) => string },
): string {
  const newest = `
  (SELECT app_id, max(generation) AS generation FROM ${nameOf('declared_fields')} WHERE removed_at IS NULL GROUP BY app_id) AS newest`;
  const ofApp = apps ? `AND ${stamps}.app_id = newest.app_id` : '';
  return `uncounted AS (
      INSERT INTO ${nameOf('uncounted_minutes')} (app_id, bucket)
      SELECT DISTINCT newest.app_id, ${stamps}.bucket
        FROM ${stamps} JOIN ${newest} ON ${stamps}.fields < newest.generation ${ofApp})`;
}
