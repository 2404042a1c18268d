/** A connection for COPY in both directions. It uses `pg`: the pool's client never reports a COPY that fails. */
import pg from 'pg';
import { type DatabaseAddress, SESSION_PARAMETERS } from './connect.ts';

const PARAMETERS = {
  ...SESSION_PARAMETERS,
  // A whole table is copied in one statement, however long that takes.
  statement_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  // What COPY writes is read by another server.
  datestyle: 'ISO',
  bytea_output: 'hex',
  client_encoding: 'UTF8',
};

/** Connects. A connection that breaks rejects the query that waits for an answer, and nothing else. */
export async function openCopyClient(address: DatabaseAddress, name: string): Promise<pg.Client> {
  const client = new pg.Client({
    ...('url' in address ? { connectionString: address.url } : address),
    application_name: name,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
    options: Object.entries(PARAMETERS)
      .map(([parameter, value]) => `-c ${parameter}=${value}`)
      .join(' '),
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}
