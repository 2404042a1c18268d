/** A connection for COPY in both directions. It uses `pg`: the pool's client never reports a COPY that fails. */
import type pg from 'pg';
import { type Database, databaseAt } from './database.ts';
import { CONNECT_TIMEOUT_MS, pgClient } from './dial.ts';
import { SESSION_PARAMETERS } from './pools.ts';
import type { DatabaseAddress } from './server-address.ts';

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
export async function openCopyClient(target: DatabaseAddress | Database, name: string): Promise<pg.Client> {
  const database = databaseAt(target);
  const { socket } = await database.openSocket({ name, kind: null });
  return await pgClient(
    socket,
    { ...database.clientSettings(PARAMETERS), application_name: name },
    CONNECT_TIMEOUT_MS,
  );
}
