/** Elects the process that does the database's maintenance: one at a time, and another when its connection ends. */
import type { Sql } from '../database/connect.ts';

/** The name of the maintenance connection in pg_stat_activity: each process that serves has one. */
export const MAINTENANCE_NAME = 'tidemark maintenance';

/** Session locks, which are released when the session ends. Keys: 'tide' and a number; 1 belongs to the embedded PostgreSQL. */
const TIDE = 1_953_064_037;
const MAINTENANCE = 2;
const PREPARATION = 3;

export interface MaintenanceLeaderOptions {
  /** A pool of one connection, so that the lock is held by the session that works. */
  readonly sql: Sql;
  /** Called when another process has begun to serve from this database, or does so at the start. */
  readonly onOtherProcess: () => void;
}

export class MaintenanceLeader {
  readonly #options: MaintenanceLeaderOptions;
  #otherProcesses = 0;

  constructor(options: MaintenanceLeaderOptions) {
    this.#options = options;
  }

  /** @returns whether this process is the leader; it stays so until its connection ends */
  async take(): Promise<boolean> {
    const { sql, onOtherProcess } = this.#options;
    const [state] = await sql<{ ours: boolean; otherProcesses: number }[]>`
      SELECT CASE WHEN EXISTS (SELECT FROM pg_locks
                                WHERE locktype = 'advisory' AND classid = ${TIDE} AND objid = ${MAINTENANCE}
                                  AND objsubid = 2 AND pid = pg_backend_pid() AND granted)
                  THEN true
                  ELSE pg_try_advisory_lock(${TIDE}, ${MAINTENANCE})
             END AS ours,
             (SELECT count(*)::int FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = ${MAINTENANCE_NAME}
                 AND pid <> pg_backend_pid()) AS "otherProcesses"`;
    const before = this.#otherProcesses;
    this.#otherProcesses = state?.otherProcesses ?? 0;
    if (this.#otherProcesses > before) onOtherProcess();
    return state?.ours === true;
  }
}

/** Prepares the database for a start, one process at a time. */
export async function prepareAlone(sql: Sql, prepare: () => Promise<void>): Promise<void> {
  await sql`SELECT pg_advisory_lock(${TIDE}, ${PREPARATION})`;
  try {
    await prepare();
  } finally {
    await sql`SELECT pg_advisory_unlock(${TIDE}, ${PREPARATION})`;
  }
}
