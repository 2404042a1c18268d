/**
 * Elects the process that does the database's maintenance: one at a time. Another one takes over when its connection ends, or when it
 * has stood still for a lease (a container that is paused, SIGSTOP): its session is ended then, so that it cannot go on by the lock.
 */
import type { Sql } from '../database/connect.ts';

/** The name of the maintenance connection in pg_stat_activity: each process that serves has one. */
export const MAINTENANCE_NAME = 'tidemark maintenance';

/** Session locks, which are released when the session ends. Keys: 'tide' and a number; 1 belongs to the embedded PostgreSQL. */
const TIDE = 1_953_064_037;
const MAINTENANCE = 2;
const PREPARATION = 3;

/** A leader that is not heard of for so long has stopped. */
const LEASE_MS = 15_000;
/** It is heard of so often in a lease, by a statement of its own where none runs. */
const BEATS = 5;

export interface MaintenanceLeaderOptions {
  /** A pool of one connection, so that the lock is held by the session that works. */
  readonly sql: Sql;
  /** Called when another process has begun to serve from this database, or does so at the start. */
  readonly onOtherProcess: () => void;
  /** Called when this process has ended the session of one that stood still. */
  readonly onTakenOver?: () => void;
  readonly leaseMs?: number;
  /** Milliseconds of a monotonic clock: that of the process, which tells whether it has stood still. */
  readonly monotonic?: () => number;
}

export class MaintenanceLeader {
  readonly #options: Required<MaintenanceLeaderOptions>;
  #otherProcesses = 0;
  #isOurs = false;
  /** When this process was seen to run. */
  #seenAt: number;
  #timer: NodeJS.Timeout | null = null;
  #isBeating = false;

  constructor(options: MaintenanceLeaderOptions) {
    this.#options = {
      leaseMs: LEASE_MS,
      monotonic: () => performance.now(),
      onTakenOver: () => undefined,
      ...options,
    };
    this.#seenAt = this.#options.monotonic();
  }

  /** Whether this process is the leader, as far as it can know: not once it has stood still for a lease, until {@link take} says so. */
  get isOurs(): boolean {
    return this.#isOurs && !this.#hasStoodStill();
  }

  /** Keeps being heard of, also during work that leaves the connection idle. */
  start(): void {
    this.#timer = setInterval(() => this.#beat(), this.#options.leaseMs / BEATS);
    this.#timer.unref();
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
  }

  /** @returns whether this process is the leader; it stays so until its connection ends, or it stands still */
  async take(): Promise<boolean> {
    const { sql, onOtherProcess, onTakenOver, leaseMs } = this.#options;
    this.#look();
    // A session that waits for its client is that of a process that does nothing. Only those of the same role are seen and ended.
    const [state] = await sql<{ ours: boolean; ended: number; otherProcesses: number }[]>`
      WITH holder AS MATERIALIZED (
        SELECT pid FROM pg_locks
         WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid = ${TIDE} AND objid = ${MAINTENANCE} AND objsubid = 2 AND granted),
      ended AS MATERIALIZED (
        SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
         WHERE pid IN (SELECT pid FROM holder) AND pid <> pg_backend_pid() AND wait_event_type = 'Client'
           AND state_change < clock_timestamp() - make_interval(secs => ${leaseMs / 1_000}))
      SELECT CASE WHEN EXISTS (SELECT FROM holder WHERE pid = pg_backend_pid()) THEN true
                  WHEN (SELECT count(*) FROM ended) >= 0 THEN pg_try_advisory_lock(${TIDE}, ${MAINTENANCE})
             END AS ours,
             (SELECT count(*)::int FROM ended) AS ended,
             (SELECT count(*)::int FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = ${MAINTENANCE_NAME}
                 AND pid <> pg_backend_pid()) AS "otherProcesses"`.catch((error: unknown) => {
      this.#isOurs = false;
      throw error;
    });
    const before = this.#otherProcesses;
    this.#otherProcesses = state?.otherProcesses ?? 0;
    if (this.#otherProcesses > before) onOtherProcess();
    if ((state?.ended ?? 0) > 0) onTakenOver();
    this.#isOurs = state?.ours === true;
    return this.isOurs;
  }

  #beat(): void {
    this.#look();
    if (this.#isBeating || !this.#isOurs) return;
    this.#isBeating = true;
    this.#options.sql`SELECT`
      .catch(() => {
        // The lock has gone with its connection.
        this.#isOurs = false;
      })
      .finally(() => {
        this.#isBeating = false;
      });
  }

  /** Notes that this process runs. One that has stood still is no leader any more. */
  #look(): void {
    if (this.#hasStoodStill()) this.#isOurs = false;
    this.#seenAt = this.#options.monotonic();
  }

  #hasStoodStill(): boolean {
    const { monotonic, leaseMs } = this.#options;
    return monotonic() - this.#seenAt >= leaseMs;
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
