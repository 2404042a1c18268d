/**
 * A database connection kept for writing batches. It is `pg` and not the pool's client, because that one never reports
 * a COPY that fails.
 */
import pg from 'pg';
import { type DatabaseAddress, SESSION_PARAMETERS } from '../connect.ts';
import { identityOf, openSocket, type Purpose, pgClient } from '../connections/dial.ts';
import { DEADLINES, type PoolKind } from '../connections/pools.ts';
import { cancelStatement } from './cancel-statement.ts';

/** The connection broke, or could not be made. */
export class ConnectionLost extends Error {
  /** True where the statement had been sent, so that nobody knows whether it was committed. */
  readonly sent: boolean;
  /** True where the server was only silent: it may be there and busy. */
  readonly timedOut: boolean;

  constructor(cause: unknown, sent: boolean, timedOut = false) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.sent = sent;
    this.timedOut = timedOut;
  }
}

const SILENT = 'PostgreSQL did not answer in time';

/** A query of `pg` that is nothing but COPY commands. Its methods are the ones that `pg` calls on a query. */
class CopyQuery implements pg.Submittable {
  readonly #messages: Buffer;
  readonly #done: (error: Error | null) => void;
  /** Commands that are not complete yet. */
  #left: number;
  /** `pg` sets one where the client has a query timeout. */
  callback: ((error: Error | null) => void) | undefined;

  constructor(messages: Buffer, commands: number, done: (error: Error | null) => void) {
    this.#messages = messages;
    this.#left = commands;
    this.#done = done;
  }

  submit(connection: pg.Connection): void {
    connection.stream.write(this.#messages);
  }

  handleCopyInResponse(): void {
    // The rows are on their way already.
  }

  handleCommandComplete(): void {
    this.#left -= 1;
  }

  handleReadyForQuery(): void {
    this.#done(this.#left === 0 ? null : new Error('PostgreSQL left commands of a COPY undone'));
  }

  handleError(error: Error): void {
    // The server ends an implicit transaction before it tells of its last command: once it has, all of it is committed.
    this.#done(this.#left === 0 ? null : error);
  }
}

/** How long PostgreSQL is waited for, in milliseconds. */
export interface ConnectionTimeouts {
  /** For metrics: what the connection is for. */
  readonly pool?: PoolKind;
  /** For a connection that is being made. It goes on being made behind whoever has waited in vain. */
  readonly connectMs: number;
  /** For the answer to a statement, before its connection counts as lost; large ones have longer. */
  readonly answerMs: number;
  /**
   * For a lock. Sessions that have it are sessions that write: the server ends their statements a little before they are
   * given up here, and what is given up nonetheless is canceled, so that no backend stays behind in a queue for a lock.
   */
  readonly lockMs?: number;
}

const PATIENT: ConnectionTimeouts = { connectMs: 5_000, answerMs: 10_000 };
/** What is sent may take this much longer: a slow network is no outage. */
const BYTES_PER_MS = 10_000;
/** An attempt to connect that takes longer than this is begun again. */
const CONNECT_TIMEOUT_MS = 5_000;
/** The server's own timeout of a statement, as a part of the client's, where no pool says it. */
const SERVER_SHARE = 0.9;
/** How long the end of a canceled statement is waited for. */
const CANCEL_TIMEOUT_MS = 300;
/** How long a server may take for each step of being asked to cancel; some are far away. */
const ASK_TIMEOUT_MS = 1_000;
/** How long a connection may take to say goodbye. */
const CLOSE_TIMEOUT_MS = 1_000;

/** One connection, made when first needed and made again after it was lost. Not for concurrent use. */
export class CopyConnection {
  readonly #address: DatabaseAddress;
  readonly #purpose: Purpose;
  readonly #settings: pg.ClientConfig;
  readonly #timeouts: ConnectionTimeouts;
  #client: pg.Client | null = null;
  #connecting: Promise<pg.Client> | null = null;
  #closed = false;

  /** @param session settings beside those of every connection */
  constructor(
    address: DatabaseAddress,
    name: string,
    timeouts: ConnectionTimeouts = PATIENT,
    session: Readonly<Record<string, string>> = {},
  ) {
    this.#address = address;
    this.#purpose = { name, kind: timeouts.pool ?? null, keepsDeadline: true };
    this.#timeouts = timeouts;
    const identity = identityOf(address);
    this.#settings = {
      ...('url' in identity ? { connectionString: identity.url } : identity),
      application_name: name,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      options: Object.entries({ ...SESSION_PARAMETERS, ...timeoutsOf(timeouts), ...session })
        .map(([parameter, value]) => `-c ${parameter}=${value}`)
        .join(' '),
    };
  }

  /**
   * Copies rows, in a transaction of its own unless one was begun.
   * @param messages a query of COPY commands with all of their rows
   * @param commands how many these are
   * @param epoch    of the ids in the rows: where the database is another one by now, nothing is sent
   * @throws pg.DatabaseError where the server refused, ConnectionLost where it is not there
   */
  async copy(messages: Buffer, commands: number, epoch?: number): Promise<void> {
    const client = await this.#connected();
    this.#requireEpoch(epoch);
    await this.#answered(
      client,
      messages.length,
      new Promise<void>((resolve, reject) => {
        const done = (error: Error | null): void => (error === null ? resolve() : reject(error));
        client.query(new CopyQuery(messages, commands, done));
      }),
    );
  }

  /**
   * Runs one statement, in a transaction of its own unless one was begun; throws as {@link copy} does.
   * @param bytes of the values, about: the answer is waited for accordingly
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

  /** True once the service has left the database, and no connection can be made any more. */
  get hasLeft(): boolean {
    return this.#address.watch?.isLeaving === true;
  }

  /** Ends the connection; one that does not answer is broken off. */
  async close(): Promise<void> {
    this.#closed = true;
    const client = this.#client;
    this.#client = null;
    if (client === null) return;
    const timeout = setTimeout(() => client.connection.stream.destroy(), CLOSE_TIMEOUT_MS);
    await client.end().catch(() => undefined); // A connection that is already broken is closed enough.
    clearTimeout(timeout);
  }

  async #connected(): Promise<pg.Client> {
    if (this.#client !== null) return this.#client;
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = null;
    });
    const connecting = this.#connecting;
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(reject, this.#timeouts.connectMs, new ConnectionLost(SILENT, false, true));
    });
    try {
      return await Promise.race([connecting, timeout]);
    } finally {
      clearTimeout(timer);
      connecting.catch(() => undefined); // The next batch connects again.
    }
  }

  async #connect(): Promise<pg.Client> {
    const client = await this.#open().catch((error: unknown) => {
      throw new ConnectionLost(error, false);
    });
    if (this.#closed) {
      await client.end().catch(() => undefined);
      throw new ConnectionLost('The connection was closed', false);
    }
    this.#client = client;
    return client;
  }

  /** Asked when the connection is there: it may be the first one to meet another server. */
  #requireEpoch(epoch: number | undefined): void {
    const { watch } = this.#address;
    if (epoch === undefined || watch === undefined || watch.epoch === epoch) return;
    throw new ConnectionLost('The database is another one than the events were accepted for', false);
  }

  async #open(): Promise<pg.Client> {
    const socket = await openSocket(this.#address, this.#purpose);
    const client = pgClient(socket, this.#settings);
    // pg reports a connection lost while idle as an event; the next batch connects again.
    client.on('error', () => this.#forget(client));
    client.on('end', () => this.#forget(client));
    await client.connect();
    return client;
  }

  /** Waits for the server's answer and tells a refusal, which leaves the connection usable, from a lost connection. */
  async #answered<T>(client: pg.Client, bytes: number, answer: Promise<T>): Promise<T> {
    let timedOut = false;
    let isOver = false;
    // Where this process itself was busy, an answer may be there that was not looked at yet: that comes first.
    const breakOff = (): void => {
      this.#address.watch?.expired(client.connection.stream);
      client.connection.stream.destroy(new Error(SILENT));
    };
    const giveUp = (): void => {
      if (isOver) return;
      timedOut = true;
      const cancels = this.#timeouts.lockMs !== undefined;
      if (cancels) cancelStatement(client, ASK_TIMEOUT_MS);
      timeout = setTimeout(breakOff, cancels ? CANCEL_TIMEOUT_MS : 0);
    };
    let timeout = setTimeout(() => setImmediate(giveUp), this.#timeouts.answerMs + bytes / BYTES_PER_MS);
    try {
      const result = await answer;
      // A commit that waits for its standby and is canceled is told as a success, and the standby may not have it.
      if (timedOut) throw new Error('PostgreSQL answered after the statement was canceled');
      return result;
    } catch (error) {
      const isRefusal = error instanceof pg.DatabaseError && error.severity !== 'FATAL';
      if (isRefusal && !timedOut) throw error;
      // Not used again after a cancel either: that might meet the next statement.
      this.#forget(client);
      client.connection.stream.destroy();
      if (isRefusal) throw error;
      throw new ConnectionLost(error, true, timedOut);
    } finally {
      isOver = true;
      clearTimeout(timeout);
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
