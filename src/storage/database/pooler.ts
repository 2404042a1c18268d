/** Whether a connection pooler stands between the service and PostgreSQL, and hands each transaction another session. */
import { connectBare, type DatabaseAddress, errorCode, type Sql } from './connect.ts';

/** A setting of our own: any name with a dot may be set by any role. */
const MARK = 'tidemark.session';
/** Connections that compete for the sessions behind a pooler. */
const CONNECTIONS = 3;

export const POOLER_ADVICE =
  'the service needs a session of its own on each connection (advisory locks, notifications, session settings): ' +
  'set pool_mode=session for this database, or connect to PostgreSQL itself';

/**
 * Looks for a pooler in transaction or statement mode. Each connection marks its session with a setting; then each reads
 * its mark and the backend's process id again, once in the same order and once in the opposite one. In a session of
 * one's own neither ever changes. A pooler hands out the session that was returned last, or the sessions by turns: in
 * either case at least one of the orders meets another connection's mark.
 * @returns true where a connection was given another one's session
 */
export async function sharesSessions(address: DatabaseAddress): Promise<boolean> {
  const pools = Array.from({ length: CONNECTIONS }, () => connectBare(address));
  try {
    const marks = await Promise.all(pools.map(markSession));
    const order = [...pools.keys()];
    for (const index of [...order, ...order.toReversed()]) {
      const pool = pools[index];
      const mark = pool === undefined ? '' : await readMark(pool);
      if (mark !== marks[index] || !mark.endsWith(markOf(index))) return true;
    }
    return false;
  } finally {
    await Promise.all(pools.map((pool) => pool.end({ timeout: 0 })));
  }
}

function markOf(index: number): string {
  return `connection ${index}`;
}

async function markSession(sql: Sql, index: number): Promise<string> {
  await sql`SELECT set_config(${MARK}, ${markOf(index)}, false)`;
  return await readMark(sql);
}

async function readMark(sql: Sql): Promise<string> {
  const [row] = await sql<{ mark: string }[]>`
    SELECT pg_backend_pid() || ' ' || coalesce(current_setting(${MARK}, true), '') AS mark`;
  return row?.mark ?? '';
}

/** True where a pooler refused the session parameters of a connection (PgBouncer without ignore_startup_parameters). */
export function isRefusedByPooler(error: unknown): boolean {
  return (
    errorCode(error) === '08P01' &&
    error instanceof Error &&
    /unsupported startup parameter/.test(error.message)
  );
}
