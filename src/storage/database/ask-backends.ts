/** Asks the server for the state of its backends, over a new connection. */
import type { Database } from './database.ts';
import { pgClient } from './dial.ts';
import { DEADLINES } from './pools.ts';

const PURPOSE = { name: 'tidemark watch', kind: 'probe', keepsDeadline: true } as const;
/** The server may be busy: a timeout proves nothing. */
const TIMEOUT_MS = 4 * DEADLINES.probe.answerMs;

/**
 * Connects, which also detects that the address leads to another server, and asks which backends are busy. One that waits
 * for its client to send or to read is not busy. A backend whose state is hidden counts as busy.
 * @throws if there is no usable server
 */
export async function askBackends(database: Database, pids: readonly number[]): Promise<ReadonlySet<number>> {
  const { socket } = await database.openSocket(PURPOSE);
  try {
    const { identity } = database;
    const client = pgClient(socket, {
      ...('url' in identity ? { connectionString: identity.url } : identity),
      application_name: PURPOSE.name,
      connectionTimeoutMillis: TIMEOUT_MS,
      query_timeout: TIMEOUT_MS,
    });
    await client.connect();
    if (pids.length === 0) return new Set();
    const { rows } = await client.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity
        WHERE pid = ANY ($1::int[])
          AND coalesce(state, 'disabled') NOT LIKE 'idle%'
          AND coalesce(wait_event, '') NOT IN ('ClientRead', 'ClientWrite')`,
      [pids],
    );
    return new Set(rows.map(({ pid }) => pid));
  } finally {
    socket.destroy();
  }
}
