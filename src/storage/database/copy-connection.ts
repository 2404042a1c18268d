/**
 * A database connection that is kept for writing. It uses `pg` instead of the client of the pools, because that one never
 * reports a failed COPY.
 */
import pg from 'pg';
import { deadline, withTimeout } from '../../base/timeout.ts';
import { cancelStatement } from './cancel-statement.ts';
import { type Database, databaseAt } from './database.ts';
import { CONNECT_TIMEOUT_MS, endClient, type OpenedSocket, pgClient } from './dial.ts';
import { DEADLINES, type PoolKind, type Purpose, SESSION_PARAMETERS } from './pools.ts';
import type { DatabaseAddress } from './server-address.ts';

/** Rows as one query of COPY commands, for {@link CopyConnection.copy}. */
export interface CopyGroup {
  readonly messages: Buffer;
  /** Number of the commands. If they are an implicit transaction, it is committed when the last of them completes. */
  readonly commands: number;
  /** To be called once when the server has answered that it has all of it. */
  readonly release: () => void;
}

/** The connection broke, or could not be made. */
export class ConnectionLost extends Error {
  /** True if the statement had been sent, so that it is unknown whether it was committed. */
  readonly sent: boolean;
  /** True if the server did not respond in time: it may be available and busy. */
  readonly timedOut: boolean;

  constructor(cause: unknown, sent: boolean, timedOut = false) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.sent = sent;
    this.timedOut = timedOut;
  }
}

const SILENT = 'PostgreSQL did not answer in time';

/** A query of `pg` that consists of COPY commands. Its methods are the ones that `pg` calls on a query. */
class CopyQuery implements pg.Submittable {
  readonly #messages: Buffer;
  readonly #done: (error: Error | null) => void;
  readonly #onLast: () => void;
  /** Commands that are not complete yet. */
  #left: number;
  /** Commands that have not begun yet. */
  #toBegin: number;
  /** `pg` sets it if the client has a query timeout. */
  callback: ((error: Error | null) => void) | undefined;

  /** @param onLast called when the last command begins: the ones before it are done */
  constructor(
    messages: Buffer,
    commands: number,
    { done, onLast }: { readonly done: (error: Error | null) => void; readonly onLast: () => void },
  ) {
    this.#messages = messages;
    this.#left = commands;
    this.#toBegin = commands;
    this.#done = done;
    this.#onLast = onLast;
  }

  submit(connection: pg.Connection): void {
    connection.stream.write(this.#messages);
  }

  handleCopyInResponse(): void {
    // The rows were sent with the command.
    this.#toBegin -= 1;
    if (this.#toBegin === 0) this.#onLast();
  }

  handleCommandComplete(): void {
    this.#left -= 1;
  }

  handleReadyForQuery(): void {
    this.#done(this.#left === 0 ? null : new Error('PostgreSQL left commands of a COPY undone'));
  }

  handleError(error: Error): void {
    // The server commits an implicit transaction before it completes the last command: then all of it is committed.
    this.#done(this.#left === 0 ? null : error);
  }
}

/** Timeouts in milliseconds. */
export interface ConnectionTimeouts {
  /** For metrics: the use of the connection. */
  readonly pool?: PoolKind;
  /** For opening a connection. After it the opening continues for the next caller. */
  readonly connectMs: number;
  /** For the response to a statement, after which its connection counts as lost; large statements have longer. */
  readonly answerMs: number;
  /**
   * For a lock; set for sessions that write. The server ends their statements before the client gives them up, which waits longer for
   * large ones. A statement that is given up nevertheless is canceled, so that no backend stays in a queue for a lock.
   */
  readonly lockMs?: number;
}

const DEFAULT_TIMEOUTS: ConnectionTimeouts = { connectMs: 5_000, answerMs: 10_000 };
/** For commands that write in bulk: a statement waits for a lock for as long as the compression of a chunk takes. */
export const BULK_TIMEOUTS = { connectMs: 5_000, answerMs: 300_000, lockMs: 0 } as const;
export const BULK_SESSION = { statement_timeout: '0', idle_in_transaction_session_timeout: '0' } as const;
/** Additional time for large statements: a slow network is no outage. */
const BYTES_PER_MS = 10_000;
/** The server's statement_timeout as a share of the client's, if the pool does not define it. */
const SERVER_SHARE = 0.9;
/** Timeout for the end of a canceled statement. */
const CANCEL_TIMEOUT_MS = 300;
/** Timeout for each step of the request to cancel; some servers are far away. */
const ASK_TIMEOUT_MS = 1_000;
/**
 * Large texts in rows: lz4 takes a third of the CPU of pglz and an eighth more space (docs/performance.md). Not every server
 * has it, and what its operator has chosen stays.
 */
const PREFER_LZ4 = `
  SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings
   WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)`;

/** What writers use of a connection. */
export type WriteConnection = Pick<CopyConnection, 'copy' | 'query' | 'hasLeft' | 'close'>;

/** Makes a connection to the database that a process writes to. @param session additional settings of the session */
export type Connect = (
  name: string,
  timeouts: ConnectionTimeouts,
  session?: Readonly<Record<string, string>>,
) => WriteConnection;

export function connectionsTo(target: DatabaseAddress | Database): Connect {
  const database = databaseAt(target);
  return (name, timeouts, session) => new CopyConnection(database, name, timeouts, session);
}

/** One connection, opened when first needed and opened again after it was lost. Not for concurrent use. */
export class CopyConnection {
  readonly #database: Database;
  readonly #purpose: Purpose;
  readonly #settings: pg.ClientConfig;
  readonly #timeouts: ConnectionTimeouts;
  #client: pg.Client | null = null;
  #connecting: Promise<pg.Client> | null = null;
  /** Opens another connection to the server of the client. */
  #again: OpenedSocket['again'] | null = null;
  #closed = false;

  /** @param session additional settings of the session */
  constructor(
    target: DatabaseAddress | Database,
    name: string,
    timeouts: ConnectionTimeouts = DEFAULT_TIMEOUTS,
    session: Readonly<Record<string, string>> = {},
  ) {
    this.#database = databaseAt(target);
    this.#purpose = { name, kind: timeouts.pool ?? null, keepsDeadline: true };
    this.#timeouts = timeouts;
    this.#settings = {
      ...this.#database.clientSettings({ ...SESSION_PARAMETERS, ...timeoutsOf(timeouts), ...session }),
      application_name: name,
    };
  }

  /**
   * Copies rows, in a transaction of its own unless one is open.
   * @param group a query of COPY commands with all of their rows
   * @param epoch of the ids in the rows: if the database has changed since, nothing is sent
   * @param onPhase called at the end of each phase: rows are those of all commands but the last
   * @throws pg.DatabaseError if the server refused, ConnectionLost if it is unavailable
   */
  async copy(
    { messages, commands, release }: CopyGroup,
    epoch?: number,
    onPhase?: (ended: 'connection' | 'rows' | 'commit') => void,
  ): Promise<void> {
    const client = await this.#connected();
    onPhase?.('connection');
    this.#requireEpoch(epoch);
    await this.#answered(
      client,
      messages.length,
      new Promise<void>((resolve, reject) => {
        const done = (error: Error | null): void => (error === null ? resolve() : reject(error));
        client.query(new CopyQuery(messages, commands, { done, onLast: () => onPhase?.('rows') }));
      }),
    );
    onPhase?.('commit');
    // Not after a failure: the socket may still be sending it.
    release();
  }

  /**
   * Runs one statement, in a transaction of its own unless one is open; throws as {@link copy} does.
   * @param bytes approximate size of the values: it extends the timeout
   */
  async query<Row extends pg.QueryResultRow>(
    statement: string,
    values: readonly unknown[],
    bytes = 0,
    epoch?: number,
  ): Promise<pg.QueryResult<Row>> {
    const client = await this.#connected();
    this.#requireEpoch(epoch);
    return await this.#answered(client, bytes, client.query<Row>(statement, [...values]));
  }

  /** True once the service has left the database: no connection can be opened any more. */
  get hasLeft(): boolean {
    return this.#database.hasLeft;
  }

  /** Closes the connection; destroys it if the server does not respond. */
  async close(): Promise<void> {
    this.#closed = true;
    const client = this.#client;
    this.#client = null;
    if (client !== null) await endClient(client);
  }

  async #connected(): Promise<pg.Client> {
    if (this.#client !== null) return this.#client;
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = null;
    });
    const connecting = this.#connecting;
    const client = await withTimeout(connecting, this.#timeouts.connectMs, null);
    if (client !== null) return client;
    connecting.catch(() => undefined); // The next caller connects again.
    throw new ConnectionLost(SILENT, false, true);
  }

  async #connect(): Promise<pg.Client> {
    const client = await this.#open().catch((error: unknown) => {
      throw new ConnectionLost(error, false);
    });
    if (this.#closed) {
      await endClient(client);
      throw new ConnectionLost('The connection was closed', false);
    }
    this.#client = client;
    return client;
  }

  /** Checked after connecting: this connection may be the first one to another server. */
  #requireEpoch(epoch: number | undefined): void {
    const { watch } = this.#database;
    if (epoch === undefined || watch === null || watch.epoch === epoch) return;
    throw new ConnectionLost('The database has changed since the events were accepted', false);
  }

  async #open(): Promise<pg.Client> {
    const { socket, again } = await this.#database.openSocket(this.#purpose);
    this.#again = again;
    const client = await pgClient(socket, this.#settings, CONNECT_TIMEOUT_MS);
    // pg reports a connection that is lost while idle as an event; the next caller connects again.
    client.on('error', () => this.#forget(client));
    client.on('end', () => this.#forget(client));
    try {
      await this.#answered(client, 0, client.query(PREFER_LZ4));
    } catch (error) {
      client.connection.stream.destroy();
      throw error;
    }
    return client;
  }

  /** Waits for the response. A refusal leaves the connection usable; everything else is a lost connection. */
  async #answered<T>(client: pg.Client, bytes: number, answer: Promise<T>): Promise<T> {
    let timedOut = false;
    const breakOff = (): void => {
      this.#database.watch?.reportDeadline(client.connection.stream);
      client.connection.stream.destroy(new Error(SILENT));
    };
    const giveUp = (): void => {
      timedOut = true;
      const cancels = this.#timeouts.lockMs !== undefined;
      if (this.#again !== null && cancels) cancelStatement(client, this.#again, ASK_TIMEOUT_MS);
      endWait = deadline(cancels ? CANCEL_TIMEOUT_MS : 0, breakOff);
    };
    let endWait = deadline(this.#timeouts.answerMs + bytes / BYTES_PER_MS, giveUp);
    try {
      const result = await answer;
      // A canceled commit that was waiting for its standby is reported as a success, but the standby may lack it.
      if (timedOut) throw new Error('PostgreSQL answered after the statement was canceled');
      return result;
    } catch (error) {
      const isRefusal = error instanceof pg.DatabaseError && error.severity !== 'FATAL';
      if (isRefusal && !timedOut) throw error;
      // Not reused after a cancel request either: it might hit the next statement.
      this.#forget(client);
      client.connection.stream.destroy();
      if (isRefusal) throw error;
      throw new ConnectionLost(error, true, timedOut);
    } finally {
      endWait();
    }
  }

  #forget(client: pg.Client): void {
    if (this.#client === client) this.#client = null;
  }
}

function timeoutsOf({ pool, answerMs, lockMs }: ConnectionTimeouts): Readonly<Record<string, string>> {
  if (lockMs === undefined) return {};
  const statementMs = pool === undefined ? answerMs * SERVER_SHARE : DEADLINES[pool].statementMs;
  return { lock_timeout: String(lockMs), statement_timeout: String(Math.round(statementMs)) };
}
