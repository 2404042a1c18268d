/** A connection for COPY in both directions. It uses `pg`: the pool's client never reports a COPY that fails. */
import type pg from 'pg';
import { type DatabaseAddress, SESSION_PARAMETERS } from './connect.ts';
import { clientSettings, openSocket, pgClient } from './dial.ts';

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
  const socket = await openSocket(address, { name, kind: null });
  const client = pgClient(socket, {
    ...clientSettings(address, PARAMETERS),
    application_name: name,
    connectionTimeoutMillis: 5_000,
  });
  await client.connect();
  return client;
}
