/** Connections to PostgreSQL: a pool for reads and look-ups, and what they have in common. */
import { Socket } from 'node:net';
import postgres from 'postgres';

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

/**
 * Opens a pool. Connections are made when first used and remade when lost.
 * @param options.connections  most connections at once
 * @param options.name         shown in pg_stat_activity
 */
export function connect(address: DatabaseAddress, options: { connections: number; name: string }): Sql {
  const sockets: PoolSockets = { open: new Set(), closed: false };
  // max_pipeline is missing from the package's types.
  const settings: postgres.Options<Record<string, never>> & { readonly max_pipeline: number } = {
    ...trackedSockets(sockets),
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
  return sql;
}

/** The sockets of a pool. */
interface PoolSockets {
  readonly open: Set<Socket>;
  /** True where no more may be made. */
  closed: boolean;
}

const SOCKETS = new WeakMap<Sql, PoolSockets>();

/**
 * Breaks all connections of a pool: what waits for an answer fails now, in place of when the system gives up on it, which
 * takes a quarter of an hour where the other end is silent. The pool makes new ones when they are next needed.
 */
export function breakConnections(sql: Sql): void {
  for (const socket of SOCKETS.get(sql)?.open ?? []) socket.destroy();
}

/**
 * Ends a pool, also where the database does not answer, and where a lost connection was just being made again: that would
 * otherwise go on behind the end, and keep the process.
 */
export async function endPool(sql: Sql): Promise<void> {
  await sql.end({ timeout: 2 });
  const sockets = SOCKETS.get(sql);
  if (sockets === undefined) return;
  sockets.closed = true;
  for (const socket of sockets.open) socket.destroy();
}

/** What the client tells whoever makes its sockets: hosts and ports by turns, or the path of a Unix socket. */
interface SocketTarget {
  readonly host: readonly string[];
  readonly port: readonly number[];
  readonly path: string | false | undefined;
}

/** The client's own way of connecting, with the sockets kept in sight. */
function trackedSockets(sockets: PoolSockets): object {
  let turn = 0;
  const socket = ({ host, port, path }: SocketTarget): Socket => {
    if (sockets.closed) throw new Error('The pool has ended.');
    for (const old of sockets.open) if (old.destroyed) sockets.open.delete(old);
    const made = new Socket();
    sockets.open.add(made);
    if (path) return made.connect(path);
    const index = turn++ % host.length;
    // The name is what TLS checks the certificate against.
    return Object.assign(made.connect(port[index] ?? 0, host[index] ?? ''), { host: host[index] });
  };
  // An option that the client has and its types have not.
  return { socket };
}

/** SQLSTATE of a database error, or the system's or the client's code of a broken connection; empty where there is none. */
export function errorCode(error: unknown): string {
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return String(error.code);
}

const CONNECTION_TROUBLE = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
]);

/** True where the database can not be reached or is starting, stopping or out of resources: the request is not at fault. */
export function isUnavailable(error: unknown): boolean {
  const code = errorCode(error);
  return CONNECTION_TROUBLE.has(code) || /^(08|53|57P)/.test(code);
}

/**
 * The client asks for PostgreSQL's array types behind each new connection, and where that connection breaks meanwhile the
 * rejection is nobody's: without this it would end the process, in the middle of an outage. Any other one still does.
 */
export function surviveLostConnections(log: { debug(context: object, message: string): void }): void {
  process.on('unhandledRejection', (error) => {
    if (!isUnavailable(error)) throw error;
    log.debug({ code: errorCode(error) }, 'A connection broke while it was being made');
  });
}
