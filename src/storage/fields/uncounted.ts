/** Notes minutes whose rows were written by a process that did not know all declared fields (sql/0030). */

/** The stamp of rows whose values need not be noted as uncounted: as if their writer had known all fields there ever are. */
export const EVERY_FIELD = 2_147_483_647;

const NEWEST = `
  (SELECT app_id, max(generation) AS generation FROM declared_fields WHERE removed_at IS NULL GROUP BY app_id) AS newest`;

/**
 * A CTE that notes what stamps tell when they are removed; in the same statement, so that no snapshot misses both.
 * @param stamps a CTE of removed stamps (bucket, fields), whose buckets are minutes
 * @param apps   whether it has an app_id; else a stamp holds for all apps
 */
export function noteUncounted(stamps: string, { apps }: { readonly apps: boolean }): string {
  const ofApp = apps ? `AND ${stamps}.app_id = newest.app_id` : '';
  return `uncounted AS (
      INSERT INTO uncounted_minutes (app_id, bucket)
      SELECT DISTINCT newest.app_id, ${stamps}.bucket
        FROM ${stamps} JOIN ${NEWEST} ON ${stamps}.fields < newest.generation ${ofApp})`;
}
