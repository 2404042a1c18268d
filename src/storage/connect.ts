/** Connections to PostgreSQL: a pool for reads and lookups, and what they have in common. */
import postgres from 'postgres';
import { ARRAYS } from './array-types.ts';
import { PoolSockets } from './pool-sockets.ts';

export type Sql = postgres.Sql;
export type Transaction = postgres.TransactionSql;

/** Where PostgreSQL is: a URL, or the Unix socket of the embedded one. */
export type DatabaseAddress =
  | { readonly url: string }
  | { readonly host: string; readonly port: number; readonly user: string; readonly database: string };

/** Session settings of every connection. */
export const SESSION_PARAMETERS = {
  timezone: 'UTC',
  // Partitions by day: a generic plan considers all of them (36 ms at 1,500), a custom one prunes first (0.2 ms).
  plan_cache_mode: 'force_custom_plan',
  synchronous_commit: 'on',
  jit: 'off',
  // Starting workers costs more (8 ms) than the small statements here could gain.
  max_parallel_workers_per_gather: '0',
} as const;

/** Of the client's options, the package's types leave two out. */
type Settings = postgres.Options<Record<string, never>> & {
  readonly max_pipeline: number;
  readonly socket: PoolSockets['connect'];
};

/**
 * Opens a pool. Connections are made when first used and remade when lost.
 * @param options.connections  most connections at once
 * @param options.name         shown in pg_stat_activity
 */
export function connect(address: DatabaseAddress, options: { connections: number; name: string }): Sql {
  const sockets = new PoolSockets();
  const settings: Settings = {
    socket: sockets.connect,
    // Not named in the pool's type: the methods that the client makes of them are nobody's.
    types: ARRAYS as Record<string, never>,
    fetch_types: false,
    max: options.connections,
    connection: { application_name: options.name, ...SESSION_PARAMETERS },
    connect_timeout: 5,
    backoff: (attempt) => Math.min(0.05 * 2 ** attempt, 1),
    onnotice: () => undefined,
    max_lifetime: null,
    // At this many queries in a row on one connection a BEGIN that is the last of them does not reserve it: others' queries
    // then run inside of the transaction, which nobody ends (https://github.com/porsager/postgres/issues/1189).
    max_pipeline: Number.MAX_SAFE_INTEGER,
  };
  const sql =
    'url' in address
      ? postgres(address.url, settings)
      : postgres({
          ...settings,
          host: address.host,
          port: address.port,
          user: address.user,
          database: address.database,
        });
  SOCKETS.set(sql, sockets);
  return Object.assign(sql, { reserve: reserving(sql) });
}

/**
 * Without the query for types the client never hands out a connection that it opens for `reserve` itself, so it gets one
 * that is open: it was just used, and nothing has come between.
 */
function reserving(sql: Sql): Sql['reserve'] {
  const reserve = sql.reserve.bind(sql);
  return async () => {
    await sql`SELECT 1`;
    return await reserve();
  };
}

const SOCKETS = new WeakMap<Sql, PoolSockets>();

/**
 * Breaks all connections of a pool: what waits for an answer fails now, in place of when the system gives up on it, which
 * takes a quarter of an hour where the other end is silent. The pool makes new ones when they are next needed.
 */
export function breakConnections(sql: Sql): void {
  SOCKETS.get(sql)?.break();
}

/**
 * Ends a pool, also where the database does not answer, and where a lost connection was just being made again: that would
 * otherwise go on behind the end, and keep the process.
 */
export async function endPool(sql: Sql): Promise<void> {
  await sql.end({ timeout: 2 });
  SOCKETS.get(sql)?.close();
}

/** SQLSTATE of a database error, or the system's or the client's code of a broken connection; empty where there is none. */
export function errorCode(error: unknown): string {
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return String(error.code);
}

/** Codes of the system, of name lookups and of the clients for a connection that cannot be made or is lost. */
const CONNECTION_TROUBLE = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  // What `connect` fails with at once: no route, no network, no address or port of our own, no room for a socket.
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'EADDRNOTAVAIL',
  'EAGAIN',
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
]);

/** A firewall's or a route's refusal. Files have these codes too, so the system call has to be one of sockets. */
const PROHIBITED = new Set(['EACCES', 'EPERM']);

/** True where the database cannot be reached or is starting, stopping or out of resources: the request is not at fault. */
export function isUnavailable(error: unknown): boolean {
  const code = errorCode(error);
  if (CONNECTION_TROUBLE.has(code) || /^(08|53|57P)/.test(code)) return true;
  return PROHIBITED.has(code) && error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}
