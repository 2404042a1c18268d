/** Connections to PostgreSQL: a pool for reads and lookups, and what they have in common. */
import postgres from 'postgres';
import type { Waiter } from '../../base/slots.ts';
import type { Path } from '../../base/turns.ts';
import { ARRAYS } from './array-types.ts';
import { type BackendKey, requestCancel } from './cancel-statement.ts';
import { type Database, databaseAt } from './database.ts';
import { errorCode, isUnavailable } from './error-codes.ts';
import { FILLER, PoolSockets } from './pool-sockets.ts';
import { type PoolKind, SESSION_PARAMETERS } from './pools.ts';
import type { DatabaseAddress } from './server-address.ts';

export {
  DISK_IS_FULL,
  errorCode,
  hasNul,
  isDiskFull,
  isUnavailable,
  SQLSTATE,
  unlessLocked,
} from './error-codes.ts';
export type { DatabaseAddress } from './server-address.ts';

/** A pool of connections to a database. */
export interface Sql extends postgres.Sql {
  readonly pool: Pool;
  /** @returns what the work does: an array as it is, too, of which the client would await each element */
  begin<T>(options: string, work: (tx: Transaction) => T | Promise<T>): Promise<T>;
  begin<T>(work: (tx: Transaction) => T | Promise<T>): Promise<T>;
}

/** What a pool knows of itself. */
export interface Pool {
  readonly database: Database;
  readonly options: PoolOptions;
  readonly sockets: PoolSockets;
  /** Pools of the same kind on nodes of a cluster, by the names of the nodes. They end with this one. */
  readonly nodes: Map<string, Sql>;
  /** Who waits for its transactions: {@link poolFor}. */
  readonly waiter: Waiter | null;
  /** How reads wait for the archive. Absent: as long as it takes, in nobody's turn; null: they see the rows of the database alone. */
  readonly archive?: ArchiveWait | null;
}

/** How a read waits for events of the archive, while its connections are others'. */
export interface ArchiveWait {
  /** Whose turns it takes: an account first. */
  readonly turns: Path;
  /** Whether the read has waited for the archive already, and has a place among those that do. Only then it uses what is in memory. */
  isAdmitted(): boolean;
  /** Runs what is waited for, without the place that the read has. */
  outside<T>(work: () => Promise<T>): Promise<T>;
}

/** A pool whose reads do not look into the archive: they see the rows of the database alone. Counts are of all events. */
export function rowsHereOf(sql: Sql): Sql {
  return withPool(sql, { ...sql.pool, archive: null });
}

function withPool(sql: Sql, pool: Pool, own: Readonly<Record<string, unknown>> = {}): Sql {
  const replaced = new Map<string | symbol, unknown>([['pool', pool], ...Object.entries(own)]);
  return new Proxy(sql, {
    get: (target, name, receiver) =>
      replaced.has(name) ? replaced.get(name) : Reflect.get(target, name, receiver),
  });
}

export type Transaction = postgres.TransactionSql;

/** A part of a statement. */
export type Fragment = postgres.PendingQuery<postgres.Row[]>;
/** What runs transactions: a pool, or a part of a cluster (citus/shard-schema.ts). */
export type Transactions = Pick<Sql, 'begin' | 'pool'>;

/** How many rows there are. @param from what follows FROM, such as `boards WHERE app_id = ${appId}` */
export async function countRows(sql: Sql | Transaction, from: Fragment): Promise<number> {
  const [row] = await sql<{ count: number }[]>`SELECT count(*)::integer AS count FROM ${from}`;
  return row?.count ?? 0;
}

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
export function connect(target: DatabaseAddress | Database, options: PoolOptions): Sql {
  const database = databaseAt(target);
  const { connections, name, kind = null, session = '' } = options;
  const purpose = { name, kind };
  const ofSession = `${database.sessionOptions(purpose)} ${session}`.trim();
  const connection = {
    application_name: name,
    ...SESSION_PARAMETERS,
    ...(ofSession !== '' && { options: ofSession }),
  };
  const sockets = new PoolSockets(database, purpose);
  return openPool(
    { database, options, sockets, nodes: new Map(), waiter: null },
    { max: connections, connection },
  );
}

/** A pool like another one, on a node of the same cluster. It is opened once, and ends with the other one. */
export function poolOnNode(sql: Sql, node: { readonly host: string; readonly port: number }): Sql {
  const { database, options, nodes, waiter, archive } = sql.pool;
  const name = `${node.host}:${node.port}`;
  const pool = nodes.get(name) ?? connect(database.node(node), options);
  nodes.set(name, pool);
  if (waiter !== null) return poolFor(waiter, pool, archive);
  return archive === null ? rowsHereOf(pool) : pool;
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
 * @param sql its connections are used; single statements outside of transactions go to it as they are
 */
export function poolFor(waiter: Waiter, sql: Sql, archive = sql.pool.archive): Sql {
  type Work = (tx: Transaction) => Promise<unknown>;
  const begin = async (mode: string, work: Work): Promise<unknown> => {
    try {
      if (waiter.settled) throw new Abandoned();
      return await sql.begin(mode, async (tx) => {
        if (waiter.settled) throw new Abandoned();
        const stop = cancelOnceSettled(waiter, tx, sql.pool.database);
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
  return withPool(sql, { ...sql.pool, waiter, ...(archive !== undefined && { archive }) }, { begin });
}

/** Timeout of each step of a request to cancel. */
const CANCEL_TIMEOUT_MS = 1_000;
/** A request that arrives between two statements cancels nothing, so it is repeated until the transaction has ended. */
const CANCEL_AGAIN_MS = 200;

/** @returns resolves when no request to cancel is under way: a later one would meet the connection's next statement */
function cancelOnceSettled(waiter: Waiter, tx: Transaction, database: Database): () => Promise<void> {
  // An empty query takes no snapshot. The client notes on a query whose connection it is on, which its types lack.
  const empty: { readonly state?: BackendKey } & PromiseLike<unknown> = tx.unsafe('').execute();
  // What it notes is that of the next session once this one is lost.
  let key: BackendKey | null = null;
  empty.then(
    () => {
      key = empty.state === undefined ? null : { ...empty.state };
    },
    () => undefined,
  );
  let timer: NodeJS.Timeout | undefined;
  let canceling: Promise<void> | null = null;
  const cancel = (): void => {
    if (key === null) return;
    canceling ??= requestCancel(database.openBeside(CANCEL_TIMEOUT_MS), key, CANCEL_TIMEOUT_MS).finally(
      () => {
        canceling = null;
      },
    );
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
export function connectBare(target: DatabaseAddress | Database): Sql {
  const database = databaseAt(target);
  const options = { connections: 1, name: '' };
  const sockets = new PoolSockets(database, { name: '', kind: null });
  const pool = { database, options, sockets, nodes: new Map(), waiter: null };
  return openPool(pool, { max: 1, connection: {}, prepare: false });
}

function openPool(
  pool: Pool,
  own: Pick<Settings, 'max' | 'connection'> & { readonly prepare?: boolean },
): Sql {
  const settings: Settings = {
    ...own,
    connection: { ...own.connection, ...FILLER },
    socket: pool.sockets.connect,
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
  const { identity } = pool.database;
  const sql =
    'url' in identity
      ? postgres(withoutOptions(identity.url), settings)
      : postgres({ ...settings, ...identity });
  const end = sql.end.bind(sql);
  return Object.assign(sql, {
    pool,
    begin: beginning(sql),
    end: async (options?: { timeout?: number }) => {
      await Promise.all([...pool.nodes.values()].map(endPool));
      await end(options);
    },
  });
}

/** The client would replace these session parameters by those of the URL, which they include already. */
function withoutOptions(url: string): string {
  const rest = new URL(url);
  rest.searchParams.delete('options');
  return rest.href;
}

/**
 * A transaction whose connection is lost fails with the connection's end, and sends nothing more. The client would send it a
 * ROLLBACK, which has no connection to go to: that ends the process, or is never answered and keeps its connection forever.
 */
function beginning(sql: postgres.Sql): Sql['begin'] {
  type Work = (transaction: Transaction) => unknown;
  const begin = sql.begin.bind(sql) as (options: string, work: Work) => Promise<{ value: unknown }>;
  const guarded = async (options: string, work: Work): Promise<unknown> => {
    let isOver = false;
    const run: Work = async (transaction) => {
      try {
        const result = work(untilOver(transaction, () => isOver));
        const value = await (Array.isArray(result) ? Promise.all(result) : result);
        if (!isOver) return { value };
      } catch (error) {
        // The end comes in the same turn as the error, and the client has then given the transaction up. Where it has not, the
        // connection that was lost is another one.
        if (hasLostConnection(error)) await new Promise((resolve) => setImmediate(resolve));
        if (!isOver) throw error;
      }
      return await new Promise<never>(() => undefined);
    };
    try {
      return (await begin(options, run)).value;
    } finally {
      isOver = true;
    }
  };
  return ((first: string | Work, second?: Work) =>
    typeof first === 'string' ? guarded(first, second as Work) : guarded('', first)) as Sql['begin'];
}

/** A transaction that refuses statements once it is over: work that was waiting for something else may not have heard of it. */
function untilOver(transaction: Transaction, isOver: () => boolean): Transaction {
  const open = (target: Transaction): Transaction => {
    if (isOver()) throw new Error('A transaction is over: its connection was lost');
    return target;
  };
  return new Proxy(transaction, {
    apply: (target, self, given) => Reflect.apply(open(target), self, given),
    get: (target, name) => Reflect.get(open(target), name),
  });
}

/** Whether a query has failed with its connection, and not by an answer, nor because its pool was ended. */
function hasLostConnection(error: unknown): boolean {
  if (error instanceof postgres.PostgresError || !(error instanceof Error) || !('query' in error))
    return false;
  return isUnavailable(error) && !['CONNECTION_DESTROYED', 'CONNECTION_ENDED'].includes(errorCode(error));
}

/**
 * Ends a pool, also where the database does not answer, and where a lost connection was just being made again: that would
 * otherwise continue after the end, and keep the process running.
 */
export async function endPool(sql: Sql): Promise<void> {
  const { database, sockets } = sql.pool;
  await sql.end({ timeout: database.hasLeft ? 0 : 2 });
  sockets.close();
}
