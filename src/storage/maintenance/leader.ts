/** Whose turn the database's upkeep is, where several processes serve from it: one at a time, and another when it dies. */
import type { Sql } from '../connect.ts';

/** What the upkeep's connection is called in pg_stat_activity: each process that serves has one. */
export const UPKEEP_NAME = 'tidemark upkeep';

/** Locks of a session, hence free when it ends however it does. 'tide'; 1 belongs to the embedded PostgreSQL. */
const TIDE = 1_953_064_037;
const UPKEEP = 2;
const PREPARATION = 3;

export interface MaintenanceLeaderOptions {
  /** A pool of one connection, so that the lock is held by what works. */
  readonly sql: Sql;
  /** Called when another process has begun to serve from this database, or was found at the start. */
  readonly onNeighbour: () => void;
}

export class MaintenanceLeader {
  readonly #options: MaintenanceLeaderOptions;
  #neighbours = 0;

  constructor(options: MaintenanceLeaderOptions) {
    this.#options = options;
  }

  /** @returns whether the upkeep is this process's now, as it stays until its connection ends */
  async take(): Promise<boolean> {
    const { sql, onNeighbour } = this.#options;
    const [turn] = await sql<{ ours: boolean; neighbours: number }[]>`
      SELECT CASE WHEN EXISTS (SELECT FROM pg_locks
                                WHERE locktype = 'advisory' AND classid = ${TIDE} AND objid = ${UPKEEP}
                                  AND objsubid = 2 AND pid = pg_backend_pid() AND granted)
                  THEN true
                  ELSE pg_try_advisory_lock(${TIDE}, ${UPKEEP})
             END AS ours,
             (SELECT count(*)::int FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = ${UPKEEP_NAME}
                 AND pid <> pg_backend_pid()) AS neighbours`;
    const before = this.#neighbours;
    this.#neighbours = turn?.neighbours ?? 0;
    if (this.#neighbours > before) onNeighbour();
    return turn?.ours === true;
  }
}

/** Does what a start has to do in the database while no other start does. */
export async function prepareAlone(sql: Sql, prepare: () => Promise<void>): Promise<void> {
  await sql`SELECT pg_advisory_lock(${TIDE}, ${PREPARATION})`;
  try {
    await prepare();
  } finally {
    await sql`SELECT pg_advisory_unlock(${TIDE}, ${PREPARATION})`;
  }
}
