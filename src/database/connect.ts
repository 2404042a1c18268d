/** Connections to PostgreSQL: a pool for reads and look-ups, and what they have in common. */
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
  const settings: postgres.Options<Record<string, never>> = {
    max: options.connections,
    connection: { application_name: options.name, ...SESSION_PARAMETERS },
    connect_timeout: 5,
    backoff: (attempt) => Math.min(0.05 * 2 ** attempt, 1),
    onnotice: () => undefined,
    max_lifetime: null,
  };
  return 'url' in address
    ? postgres(address.url, settings)
    : postgres({
        ...settings,
        host: address.host,
        port: address.port,
        user: address.user,
        database: address.database,
      });
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
