/** What the server knows of its backends, asked over a fresh connection. */
import { identityOf, openSocket, pgClient } from './dial.ts';
import { DEADLINES } from './pools.ts';
import type { DatabaseAddress } from './server-address.ts';

const PURPOSE = { name: 'tidemark watch', kind: 'probe', keepsDeadline: true } as const;
/** It may be busy: then it is no sign of anything. */
const TIMEOUT_MS = 4 * DEADLINES.probe.answerMs;

/**
 * Connects, which alone tells whether the address still leads to the same server, and asks which backends are at work.
 * One that waits for its client to send or to read is not. What the server does not show counts as work.
 * @throws where there is no server to be used
 */
export async function askBackends(
  address: DatabaseAddress,
  pids: readonly number[],
): Promise<ReadonlySet<number>> {
  const socket = await openSocket(address, PURPOSE);
  try {
    const identity = identityOf(address);
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
