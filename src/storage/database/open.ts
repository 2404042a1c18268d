/** The database of this installation: the server that DATABASE_URL names, or the embedded PostgreSQL of DATA_DIR. */

import { hostsOf, withFirstHost } from '../../base/url-hosts.ts';
import type { Config } from '../../config.ts';
import { OperatorError } from '../../errors.ts';
import { isContainerImage } from '../../process/container.ts';
import { connect, connectBare, type DatabaseAddress, errorCode, type Sql } from './connect.ts';
import { missingLibraryAdvice } from './engine.ts';

export interface OpenDatabase {
  readonly address: DatabaseAddress;
  /** Close your own connections before: the embedded PostgreSQL stops with its last user. */
  close(): Promise<void>;
}

/**
 * Makes sure that the database is there and lets us in.
 * @param options.supervise start the embedded PostgreSQL again whenever it dies
 * @param options.mayMake   make the embedded database where there is none: for what brings data into it
 * @param options.inImage    whether this is the container image, for tests
 * @throws OperatorError, without the password of the URL, where it is not or does not
 */
export async function openDatabase(
  config: Pick<Config, 'DATABASE_URL' | 'DATA_DIR'>,
  log: { info(message: string): void; warn(message: string): void },
  options: { supervise: boolean; mayMake?: boolean; inImage?: boolean },
): Promise<OpenDatabase> {
  if (config.DATABASE_URL !== '') {
    await checkServer(config.DATABASE_URL);
    return { address: { url: config.DATABASE_URL }, close: async () => undefined };
  }
  if (options.inImage ?? isContainerImage()) {
    throw new OperatorError(
      'DATABASE_URL is not set: set it to a PostgreSQL server; this image has no embedded PostgreSQL',
    );
  }
  // Who uses a server need not load what runs one.
  const { openEmbedded } = await import('../../embedded/embedded.ts');
  const { supervise, mayMake = false } = options;
  const embedded = await openEmbedded({ dataDir: config.DATA_DIR, log, supervise, mayMake });
  return { address: embedded.connection, close: () => embedded.close() };
}

async function checkServer(url: string): Promise<void> {
  const location = parseLocation(url);
  const sql = connect({ url }, { connections: 1, name: 'tidemark start' });
  try {
    await sql`SELECT 1`;
  } catch (error) {
    throw new OperatorError(`the database ${location.text} of DATABASE_URL ${whatToDo(error, location)}`, {
      cause: error,
      isRetryable: !isRefused(errorCode(error)) && missingLibraryAdvice(error) === null,
    });
  } finally {
    await sql.end({ timeout: 0 });
  }
  if (await sharesSessions({ url }))
    throw new OperatorError(
      `the database ${location.text} of DATABASE_URL is behind a connection pooler that changes the session between transactions: ${POOLER_ADVICE}`,
    );
}

interface Location {
  /** Host, port and database: what may be printed. */
  readonly text: string;
  readonly user: string;
  readonly database: string;
}

function parseLocation(url: string): Location {
  const { pathname, username } = new URL(withFirstHost(url));
  const database = decodeURIComponent(pathname.slice(1));
  return { text: `${hostsOf(url)}${pathname}`, user: decodeURIComponent(username), database };
}

/** True where the server answered and does not let us in: a wrong password, or a database that does not exist. */
function isRefused(code: string): boolean {
  return code === '3D000' || code.startsWith('28');
}

/** The rest of a sentence that begins with the database. */
function whatToDo(error: unknown, { user, database }: Location): string {
  const code = errorCode(error);
  const message = error instanceof Error && error.message !== '' ? error.message : code;
  const upgraded = missingLibraryAdvice(error);
  if (upgraded !== null) return upgraded;
  if (isRefusedByPooler(error))
    return `is behind a connection pooler that refuses a session's parameters (${message}): ${POOLER_ADVICE}, and let the pooler pass them on or ignore them (PgBouncer: ignore_startup_parameters)`;
  if (code === '3D000') return `does not exist: CREATE DATABASE "${database}" there, or correct DATABASE_URL`;
  if (code.startsWith('28')) return `does not let the user "${user}" in (${message}): correct DATABASE_URL`;
  if (code === '53300') return `has no connection left (${message}): raise max_connections, or use fewer`;
  if (code.startsWith('57P')) return `is starting or stopping (${message}): try again in a moment`;
  return `cannot be reached (${message}): start PostgreSQL there, correct DATABASE_URL, or unset it to use the embedded one`;
}

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
