/** Connections to PostgreSQL: a pool for reads and lookups, and what they have in common. */
import postgres from 'postgres';
import type { Waiter } from '../../base/slots.ts';
import { ARRAYS } from './array-types.ts';
import { type BackendKey, requestCancel } from './cancel-statement.ts';
import { identityOf, openBeside, sessionOptions } from './dial.ts';
import { addressOfNode } from './node-address.ts';
import { FILLER, PoolSockets } from './pool-sockets.ts';
import type { PoolKind } from './pools.ts';
import type { DatabaseAddress } from './server-address.ts';

export type { DatabaseAddress } from './server-address.ts';

export type Sql = postgres.Sql;
export type Transaction = postgres.TransactionSql;
/** What runs transactions: a pool, or a part of a cluster (citus/shard-schema.ts). */
export type Transactions = Pick<Sql, 'begin'>;

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

/** The client's options. The package's types leave two of them out. */
type Settings = postgres.Options<Record<string, never>> & {
  readonly max_pipeline: number;
  readonly socket: PoolSockets['connect'];
  readonly prepare?: boolean;
};

export interface PoolOptions {
  /** Most connections at once. */
  readonly connections: number;
  /** Shown in pg_stat_activity. */
  readonly name: string;
  /** What waits for it, and how long; null: a command, which waits as long as it takes. */
  readonly kind?: PoolKind | null;
  /** Further options of the start of its sessions. */
  readonly session?: string;
}

/** Opens a pool. Connections are made when first used and remade when lost. */
export function connect(
  address: DatabaseAddress,
  { connections, name, kind = null, session = '' }: PoolOptions,
): Sql {
  const purpose = { name, kind };
  const options = `${sessionOptions(address, purpose)} ${session}`.trim();
  const pool = openPool(address, {
    max: connections,
    connection: { application_name: name, ...SESSION_PARAMETERS, ...(options !== '' && { options }) },
    sockets: new PoolSockets(address, purpose),
  });
  ORIGINS.set(pool, { address, options: { connections, name, kind } });
  return pool;
}

interface Origin {
  readonly address: DatabaseAddress;
  readonly options: PoolOptions;
  /** Pools of the same kind on nodes of a cluster, by the names of the nodes. */
  readonly nodes?: Map<string, Sql>;
}

const ORIGINS = new WeakMap<Sql, Origin>();

/** The address that a pool of {@link connect} leads to. */
export function addressOfPool(sql: Sql): DatabaseAddress {
  const origin = ORIGINS.get(poolOf(sql));
  if (origin === undefined) throw new Error('The pool was not opened by connect().');
  return origin.address;
}

/** A pool like another one, on a node of the same cluster. It is opened once, and ends with the other one. */
export function poolOnNode(given: Sql, node: { readonly host: string; readonly port: number }): Sql {
  const waiting = WAITING.get(given);
  if (waiting !== undefined) return poolFor(waiting.waiter, poolOnNode(waiting.pool, node));
  const sql = given;
  const origin = ORIGINS.get(sql);
  if (origin === undefined) throw new Error('The pool was not opened by connect().');
  const nodes = origin.nodes ?? new Map<string, Sql>();
  if (origin.nodes === undefined) {
    ORIGINS.set(sql, { ...origin, nodes });
    const end = sql.end.bind(sql);
    sql.end = async (options) => {
      await Promise.all([...nodes.values()].map((pool) => endPool(pool)));
      await end(options);
    };
  }
  const name = `${node.host}:${node.port}`;
  const known = nodes.get(name);
  if (known !== undefined) return known;
  const pool = connect(addressOfNode(origin.address, node), origin.options);
  nodes.set(name, pool);
  return pool;
}

interface Waiting {
  readonly pool: Sql;
  readonly waiter: Waiter;
}

const WAITING = new WeakMap<Sql, Waiting>();

/** The pool behind {@link poolFor}, or the pool itself. */
export function poolOf(sql: Sql): Sql {
  return WAITING.get(sql)?.pool ?? sql;
}

/** A transaction was ended, or not begun, because nobody waits for it any more. */
export class Abandoned extends Error {
  constructor() {
    super('Nobody waits for the outcome any more');
  }
}

/**
 * A pool for work that somebody waits for: as soon as nobody does any more, its transactions are canceled and fail with
 * {@link Abandoned}, and no further one begins. So the deadline of a request is that of its snapshots, too.
 * @param pool its connections are used; single statements outside of transactions go to it as they are
 */
export function poolFor(waiter: Waiter, pool: Sql): Sql {
  type Work = (tx: Transaction) => Promise<unknown>;
  const begin = async (mode: string, work: Work): Promise<unknown> => {
    try {
      if (waiter.settled) throw new Abandoned();
      return await pool.begin(mode, async (tx) => {
        if (waiter.settled) throw new Abandoned();
        const stop = cancelOnceSettled(waiter, tx, addressOfPool(pool));
        try {
          return await work(tx);
        } finally {
          await stop();
        }
      });
    } catch (error) {
      throw waiter.settled ? new Abandoned() : error;
    }
  };
  const sql = new Proxy(pool, {
    get: (target, name, receiver) => (name === 'begin' ? begin : Reflect.get(target, name, receiver)),
  });
  WAITING.set(sql, { pool, waiter });
  return sql;
}

/** Timeout of each step of a request to cancel. */
const CANCEL_TIMEOUT_MS = 1_000;
/** A request that arrives between two statements cancels nothing, so it is repeated until the transaction has ended. */
const CANCEL_AGAIN_MS = 200;

/** @returns resolves when no request to cancel is under way: a later one would meet the connection's next statement */
function cancelOnceSettled(waiter: Waiter, tx: Transaction, address: DatabaseAddress): () => Promise<void> {
  // An empty query takes no snapshot. The client notes on a query whose connection it is on, which its types lack.
  const empty: { readonly state?: BackendKey } & PromiseLike<unknown> = tx.unsafe('').execute();
  empty.then(undefined, () => undefined);
  let timer: NodeJS.Timeout | undefined;
  let canceling: Promise<void> | null = null;
  const cancel = (): void => {
    if (empty.state === undefined) return;
    canceling ??= requestCancel(
      openBeside(address, CANCEL_TIMEOUT_MS),
      empty.state,
      CANCEL_TIMEOUT_MS,
    ).finally(() => {
      canceling = null;
    });
  };
  const forget = waiter.whenSettled(() => {
    cancel();
    timer = setInterval(cancel, CANCEL_AGAIN_MS);
  });
  return async () => {
    forget();
    clearInterval(timer);
    await canceling;
  };
}

/** A pool without session parameters at its start: a pooler may refuse what it does not know. */
export function connectBare(address: DatabaseAddress): Sql {
  const sockets = new PoolSockets(address, { name: '', kind: null });
  return openPool(address, { max: 1, connection: {}, sockets, prepare: false });
}

function openPool(
  address: DatabaseAddress,
  { sockets, ...own }: Pick<Settings, 'max' | 'connection'> & { sockets: PoolSockets; prepare?: boolean },
): Sql {
  const settings: Settings = {
    ...own,
    connection: { ...own.connection, ...FILLER },
    socket: sockets.connect,
    // It is encrypted already, where it is to be.
    ssl: false,
    // Not in the pool's type: the methods that the client makes of them are not used.
    types: ARRAYS as Record<string, never>,
    fetch_types: false,
    connect_timeout: 5,
    backoff: (attempt) => Math.min(0.05 * 2 ** attempt, 1),
    onnotice: () => undefined,
    max_lifetime: null,
    // At this many queries in a row on one connection a BEGIN that is the last of them does not reserve it: others' queries
    // then run inside of the transaction, which never ends (https://github.com/porsager/postgres/issues/1189).
    max_pipeline: Number.MAX_SAFE_INTEGER,
  };
  const identity = identityOf(address);
  const sql =
    'url' in identity
      ? postgres(withoutOptions(identity.url), settings)
      : postgres({ ...settings, ...identity });
  SOCKETS.set(sql, sockets);
  return Object.assign(sql, { reserve: reserving(sql), begin: beginning(sql) });
}

/** The client would replace these session parameters by those of the URL, which they include already. */
function withoutOptions(url: string): string {
  const rest = new URL(url);
  rest.searchParams.delete('options');
  return rest.href;
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

/**
 * A transaction whose connection is lost fails with the connection's end, and sends nothing more. The client would send it a
 * ROLLBACK, which has no connection to go to: that ends the process, or is never answered and keeps its connection forever.
 */
function beginning(sql: Sql): Sql['begin'] {
  type Work = (transaction: Transaction) => unknown;
  const begin = sql.begin.bind(sql) as (options: string, work: Work) => Promise<unknown>;
  const guarded = async (options: string, work: Work): Promise<unknown> => {
    let isOver = false;
    const run: Work = async (transaction) => {
      try {
        const result = work(transaction);
        return await (Array.isArray(result) ? Promise.all(result) : result);
      } catch (error) {
        if (!hasLostConnection(error)) throw error;
        // The end comes in the same turn as the error, and the client has then given the transaction up. Where it has not, the
        // connection that was lost is another one.
        await new Promise((resolve) => setImmediate(resolve));
        if (isOver) return await new Promise<never>(() => undefined);
        throw error;
      }
    };
    try {
      return await begin(options, run);
    } finally {
      isOver = true;
    }
  };
  return ((first: string | Work, second?: Work) =>
    typeof first === 'string' ? guarded(first, second as Work) : guarded('', first)) as Sql['begin'];
}

/** Whether a query has failed with its connection, and not by an answer, nor because its pool was ended. */
function hasLostConnection(error: unknown): boolean {
  if (error instanceof postgres.PostgresError || !(error instanceof Error) || !('query' in error))
    return false;
  return isUnavailable(error) && !['CONNECTION_DESTROYED', 'CONNECTION_ENDED'].includes(errorCode(error));
}

const SOCKETS = new WeakMap<Sql, PoolSockets>();

/**
 * Ends a pool, also where the database does not answer, and where a lost connection was just being made again: that would
 * otherwise continue after the end, and keep the process running.
 */
export async function endPool(sql: Sql): Promise<void> {
  const sockets = SOCKETS.get(sql);
  await sql.end({ timeout: sockets?.haveLeft === true ? 0 : 2 });
  sockets?.close();
}

/** Codes of what may pass when it is tried again (PostgreSQL documentation, appendix A). */
export const SQLSTATE = {
  serializationFailure: '40001',
  deadlock: '40P01',
  /** A wait that lock_timeout or NOWAIT ended. */
  lockNotAvailable: '55P03',
  /** By statement_timeout, by the service or by an operator. */
  queryCanceled: '57014',
  undefinedTable: '42P01',
  invalidSchemaName: '3F000',
} as const;

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
  // A server that is not to be used (connections/server-watch.ts).
  'SERVER_READ_ONLY',
  'SERVER_IN_RECOVERY',
  'SERVER_IS_OLDER',
  'SERVER_IS_FOREIGN',
  'SERVER_FORBIDS',
  'SERVER_HAS_MOVED',
  'SERVER_IS_BEHIND',
  'SERVER_IS_UNFIT',
  // A node of a cluster that does not answer (nodes.ts).
  'NODE_AWAY',
  // read_only_sql_transaction: it was the primary when the connection was made. insufficient_privilege: no session can write.
  '25006',
  '42501',
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
