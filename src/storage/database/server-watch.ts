/**
 * Watches all connections of a process to its database: which server they lead to, and whether it still responds. An address
 * can move to another server while connections to the old one stay open, and a connection can go silent. Neither causes an
 * error by itself.
 */

import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { hostsOf } from '../../base/url-hosts.ts';
import { type ConnectionWatch, Database } from './database.ts';
import { pgClient, withCode } from './dial.ts';
import type { Engine } from './engine.ts';
import { DISK_IS_FULL } from './error-codes.ts';
import { durableSettings, FITNESS, STAY_FIT, unfitness } from './fitness.ts';
import { MOVED_TO, movedMessage } from './installation-id.ts';
import { DEADLINES, type PoolKind, type Purpose } from './pools.ts';
import type { DatabaseAddress, WalPositions } from './server-address.ts';
import { type OwnAnswer, Wire } from './wire.ts';

/** Why a connection was replaced. */
export type ReplaceReason =
  /** The server has ended its statement long ago, or never received it, and no response arrived. */
  | 'silent'
  /** A statement had no response within the deadline of its pool. */
  | 'deadline'
  /** The address leads to another server now. */
  | 'moved';

/** Why an available server must not be used. */
export type ServerProblem =
  | 'read-only'
  | 'recovery'
  | 'older'
  | 'behind'
  | 'foreign'
  | 'forbidden'
  | 'moved'
  | 'unfit';

/** Why the database is not used, or takes no events. */
export type DatabaseProblem = ServerProblem | 'full';

const REFUSALS: Readonly<Record<ServerProblem, readonly [code: string, message: string]>> = {
  'read-only': ['SERVER_READ_ONLY', 'The server is read-only'],
  recovery: ['SERVER_IN_RECOVERY', 'The server is a standby'],
  older: ['SERVER_IS_OLDER', 'The server has been replaced by another one'],
  behind: ['SERVER_IS_BEHIND', 'The server has older data than before'],
  foreign: ['SERVER_IS_FOREIGN', 'The database belongs to another installation'],
  forbidden: ['SERVER_FORBIDS', 'The database user lacks a right'],
  moved: ['SERVER_HAS_MOVED', 'The data of this database has been moved to another one'],
  unfit: ['SERVER_IS_UNFIT', 'The server would lose what is written to it'],
};

/** What clients are told of it, by `/readyz` and by every request that needs the database. */
export const PROBLEM_TEXTS: Readonly<Record<DatabaseProblem, string>> = {
  full: DISK_IS_FULL,
  'read-only': 'The database is read-only.',
  recovery: 'The server of the database is a standby; waiting for the primary.',
  older: 'The server of the database has been replaced by a promoted standby; waiting for that one.',
  behind: 'The server of the database has come back with older data; the log says what to do.',
  foreign:
    'The database belongs to another installation: point DATABASE_URL to the one that the journal belongs to.',
  forbidden: 'The user of the database lacks a privilege; the log names it.',
  unfit: 'The server of the database would lose what is written to it; the log says why and what to do.',
  moved:
    'The data of the database has been moved to another one, which the log names: point DATABASE_URL to that one.',
};

/** Why a connection was refused, by the code of its error; null for any other error. */
export function problemOfCode(code: string): ServerProblem | null {
  const found = Object.entries(REFUSALS).find(([, [refused]]) => refused === code);
  // Its keys are those of the type.
  return (found?.[0] as ServerProblem | undefined) ?? null;
}

/** An outage passes by itself. These need the operator. */
const FOR_OPERATORS: ReadonlySet<ServerProblem> = new Set([
  'behind',
  'foreign',
  'forbidden',
  'moved',
  'unfit',
]);
/** These are said of the database as it is, and of the connections that are open, too. */
const FOR_ALL_CONNECTIONS: ReadonlySet<ServerProblem> = new Set(['behind', 'unfit']);

/** The server that a connection leads to. Null if unknown. */
interface Server {
  /** Identifier of the cluster; a standby has that of its primary. */
  readonly systemId: string | null;
  /** Incremented by each promotion. */
  readonly timeline: number | null;
  readonly identity: string | null;
  readonly generation: string | null;
}

/** Columns: the end of the write-ahead log, and how much of it is on disk, in bytes. Null on a standby. */
const WAL_POSITIONS = `CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') END AS written,
          CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0') END AS flushed`;

/** The question of a probe, for {@link ServerWatch.noteWal}. */
export const ASK_WAL = `SELECT ${WAL_POSITIONS}`;

/** The queries of each new connection before its first statement, in one round trip. */
const HANDSHAKE_QUERIES = [
  "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')",
  // A managed server may refuse these; its timeline is unknown then.
  `SELECT (SELECT system_identifier FROM pg_control_system()),
          CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
          ${WAL_POSITIONS}`,
  `SELECT (SELECT value FROM installation WHERE name = 'database_identity'),
          (SELECT value FROM installation WHERE name = 'generation'),
          (SELECT value FROM installation WHERE name = '${MOVED_TO}')`,
  `${FITNESS}; ${STAY_FIT}`,
] as const;
const NO_SUCH_TABLE = '42P01';
const NO_RIGHT = '42501';

/** Time is counted in turns of a timer: a process that was suspended itself has had none. */
const TURN_MS = 500;
/** Turns without a response after which the server is asked for the state of the connection's backend. */
const SUSPECT_TURNS = 6;
/** {@link SUSPECT_TURNS} during a shutdown. */
const HURRIED_TURNS = 2;
/** Idle turns after which a connection is pinged. */
const PING_TURNS = 4;
/** Turns between two probes with a new connection, which detect that the address has moved. */
const FRESH_TURNS = 6;
/** A response may arrive while the server is asked; by the second time it would have arrived. */
const SILENT_VOTES = 2;

interface Session extends Purpose {
  readonly socket: Socket;
  readonly wire: Wire;
  pid: number;
  server: Server | null;
  /** Number of messages received up to the last turn. */
  chunksReceived: number;
  /** Turns since then. */
  turns: number;
  /** How often in a row the server has reported its backend as not busy. */
  silentVotes: number;
  /** What was known of the write-ahead log when the connection was opened. What was noted later may be more than its handshake saw. */
  readonly before: { readonly wal: DurableWal; readonly durable: number };
}

export interface ServerWatchOptions {
  /** Whose needs a server has to meet. */
  readonly engine: Engine;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** The address has moved to another server: cached values of the old one may be wrong. */
  readonly onMoved: () => void;
  /** Whether the database at the address belongs to another installation has changed. */
  readonly onForeign: (isForeign: boolean) => void;
}

export class ServerWatch implements ConnectionWatch {
  readonly #options: ServerWatchOptions;
  /** The database, whose connections are watched. */
  readonly database: Database;
  readonly #sessions = new Set<Session>();
  readonly #replaced: Map<string, { pool: PoolKind; reason: ReplaceReason; count: number }>;
  /** The watches of the other nodes of a cluster, if this is the one of its coordinator. */
  readonly #nodes: ServerWatch[] = [];
  readonly #coordinator: ServerWatch | null;
  #server: Server | null = null;
  #wal = new DurableWal();
  /** Settings that keep commits through a crash and were on. */
  #durable: readonly string[] = [];
  #problem: ServerProblem | null = null;
  /** What the log has been told of it. */
  #told = '';
  #epoch = 1;
  #timer: NodeJS.Timeout | null = null;
  #asking: Promise<void> | null = null;
  #turnsSinceAsking = 0;
  #suspectTurns = SUSPECT_TURNS;
  #isDisconnecting = false;

  /** @param coordinator the watch of the coordinator, if this is the one of another node of its cluster */
  constructor(address: DatabaseAddress, options: ServerWatchOptions, coordinator: ServerWatch | null = null) {
    this.#options = options;
    this.#coordinator = coordinator;
    this.#replaced = coordinator === null ? new Map() : coordinator.#replaced;
    this.database = new Database(address, { watch: this, coordinator: coordinator?.database ?? null });
  }

  /** Changes whenever the database changes: earlier lookups are invalid then. All lookups are of the coordinator. */
  get epoch(): number {
    return this.#coordinator?.epoch ?? this.#epoch;
  }

  /** Watches the connections to another node of the cluster, for as long as those to this one. */
  watchNode(address: DatabaseAddress): ServerWatch {
    // What is known of ids does not depend on which server holds the events.
    const options = { ...this.#options, onMoved: () => undefined, onForeign: () => undefined };
    const node = new ServerWatch(address, options, this);
    this.#nodes.push(node);
    if (this.#hasShortTimeouts) node.shortenTimeouts();
    if (this.#isDisconnecting) node.disconnect();
    else if (this.#timer !== null) node.start();
    return node;
  }

  /** Why an available server cannot be used; null if it can, or if none is available. */
  get problem(): ServerProblem | null {
    return this.#problem;
  }

  /** Servers that are not used, with the reason, for metrics; of a cluster its nodes, too. */
  get problems(): readonly { readonly server: string; readonly problem: ServerProblem }[] {
    const own = this.#problem === null ? [] : [{ server: this.#name, problem: this.#problem }];
    return [...own, ...this.#nodes.flatMap((node) => node.problems)];
  }

  /** Hosts and ports, without a user or a password. */
  get #name(): string {
    const { address } = this.database;
    return 'url' in address ? hostsOf(address.url) : `${address.host}:${address.port}`;
  }

  /** Whether the server says where its write-ahead log ends: a managed one may not. */
  get followsWal(): boolean {
    return this.#server?.systemId != null && this.#server.timeline !== null;
  }

  /** Remembers how far the server was: it must never be used again with less. @param positions of {@link ASK_WAL} */
  noteWal({ written, flushed }: WalPositions): void {
    if (written !== null && flushed !== null) this.#wal.note(Number(written), Number(flushed));
  }

  /** Replaced connections by pool and reason, for metrics. */
  get replaced(): readonly {
    readonly pool: PoolKind;
    readonly reason: ReplaceReason;
    readonly count: number;
  }[] {
    return [...this.#replaced.values()];
  }

  /** True once {@link disconnect} was called. */
  get isDisconnecting(): boolean {
    return this.#isDisconnecting;
  }

  start(): void {
    this.#timer = setInterval(() => void this.turn(), TURN_MS);
    this.#timer.unref();
    for (const node of this.#nodes) node.start();
  }

  /** Gives silent connections up early from now on, because the service stops. */
  shortenTimeouts(): void {
    this.#suspectTurns = HURRIED_TURNS;
    for (const node of this.#nodes) node.shortenTimeouts();
  }

  get #hasShortTimeouts(): boolean {
    return this.#suspectTurns === HURRIED_TURNS;
  }

  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    await this.#asking;
    await Promise.all(this.#nodes.map((node) => node.stop()));
  }

  /** Closes all connections and allows no new ones: whatever waits for the database fails now. */
  disconnect(): void {
    this.#isDisconnecting = true;
    for (const session of this.#sessions) session.socket.destroy();
    for (const node of this.#nodes) node.disconnect();
  }

  /**
   * Closes the connections to a server that does not respond: whatever waits for it fails now. Commits keep their own
   * deadline, because the outcome of an interrupted commit is unknown.
   */
  breakSilent(): void {
    this.database.chooseAgain();
    for (const { socket, wire, keepsDeadline } of this.#sessions)
      if (keepsDeadline !== true || !wire.isWaiting) socket.destroy();
  }

  /** Closes all connections: their server must not be used any more. */
  breakAll(): void {
    this.database.chooseAgain();
    for (const session of this.#sessions) session.socket.destroy();
  }

  /** Watches a connection from before its first statement until it is closed. */
  follow(socket: Socket, purpose: Purpose): void {
    const wire = new Wire(socket, {
      handshakeQueries: HANDSHAKE_QUERIES,
      onHandshake: (answers) => this.#checkHandshake(session, answers),
      onClosed: () => this.#sessions.delete(session),
    });
    const session: Session = {
      ...purpose,
      ...{ socket, wire, pid: 0, server: null, chunksReceived: 0, turns: 0, silentVotes: 0 },
      before: { wal: this.#wal, durable: this.#wal.durable },
    };
    this.#sessions.add(session);
  }

  /** Called when a client has given up a connection itself, after a statement without a response. */
  reportDeadline(socket: Duplex): void {
    for (const session of this.#sessions) if (session.socket === socket) this.#report(session, 'deadline');
  }

  /** One turn of the timer. Public so that tests need not wait for it. @returns when its probes have ended */
  async turn(): Promise<void> {
    const suspects: Session[] = [];
    for (const session of this.#sessions) {
      const { wire } = session;
      const isNew = wire.chunksReceived !== session.chunksReceived;
      session.turns = isNew ? 0 : session.turns + 1;
      if (isNew) session.silentVotes = 0;
      session.chunksReceived = wire.chunksReceived;
      if (!wire.isWaiting) {
        if (session.turns >= PING_TURNS) wire.ping();
        if (wire.isWaiting) session.turns = 0;
      } else if (session.turns * TURN_MS >= answerMs(session)) {
        this.#replace(session, 'deadline');
      } else if (session.turns >= this.#suspectTurns && session.pid !== 0) {
        suspects.push(session);
      }
    }
    this.#turnsSinceAsking += 1;
    if (suspects.length > 0 || this.#turnsSinceAsking >= FRESH_TURNS) this.#ask(suspects);
    await this.#asking;
  }

  #ask(suspects: readonly Session[]): void {
    if (this.#asking !== null || this.#isDisconnecting) return;
    this.#turnsSinceAsking = 0;
    const chunksReceived = suspects.map(({ wire }) => wire.chunksReceived);
    this.#asking = askBackends(
      this.database,
      suspects.map(({ pid }) => pid),
    )
      .then(
        (atWork) => {
          for (const [index, session] of suspects.entries()) {
            const isSilent = session.wire.isWaiting && session.wire.chunksReceived === chunksReceived[index];
            session.silentVotes = isSilent && !atWork.has(session.pid) ? session.silentVotes + 1 : 0;
            if (session.silentVotes >= SILENT_VOTES) this.#replace(session, 'silent');
          }
        },
        // The availability probe detects a missing server.
        () => undefined,
      )
      .finally(() => {
        this.#asking = null;
      });
  }

  #replace(session: Session, reason: ReplaceReason): void {
    this.#report(session, reason);
    session.socket.destroy(withCode('PostgreSQL did not answer in time', 'ETIMEDOUT'));
  }

  #report(session: Session, reason: ReplaceReason): void {
    this.#count(session, reason);
    const { name, kind: pool, pid, turns } = session;
    this.#options.log.warn(
      { pool, connection: name, pid, reason, silentMs: turns * TURN_MS },
      'database: connection replaced',
    );
  }

  #count({ kind }: Session, reason: ReplaceReason): void {
    if (kind === null) return;
    const key = `${kind} ${reason}`;
    const entry = this.#replaced.get(key) ?? { pool: kind, reason, count: 0 };
    entry.count += 1;
    this.#replaced.set(key, entry);
  }

  /** Judges the server of a new connection. */
  #checkHandshake(session: Session, answers: readonly OwnAnswer[]): Error | null {
    const [state, system, installation, fitness] = answers;
    const [pid, inRecovery, readOnly] = state?.rows[0] ?? [];
    session.pid = Number(pid ?? 0);
    const [systemId = null, timeline = null, written = null, flushed = null] = system?.rows[0] ?? [];
    const [identity = null, generation = null, movedTo = null] = installation?.rows[0] ?? [];
    const server: Server = {
      systemId,
      timeline: timeline === null ? null : Number.parseInt(timeline, 16),
      identity,
      generation,
    };
    const problem = this.#problemOf(server, installation?.error?.code ?? null, {
      inRecovery: inRecovery === 't',
      isReadOnly: readOnly === 'on',
      written: written === null ? null : Number(written),
      durableBefore: session.before.wal === this.#wal ? session.before.durable : 0,
    });
    // Nothing may be written there any more, whatever else it is.
    if (movedTo !== null) return this.#refuse(session, 'moved', movedMessage(movedTo));
    if (problem === 'behind') return this.#refuse(session, problem, this.#wal.loss);
    if (problem !== null) return this.#refuse(session, problem, installation?.error?.message);
    const [row] = fitness?.rows ?? [];
    const unfit = row === undefined ? null : unfitness(row, this.#options.engine, this.#durable);
    if (unfit !== null) return this.#refuse(session, 'unfit', `${unfit.why}; ${unfit.advice}`);
    if (this.#problem !== null)
      this.#options.log.info({ server: this.#name }, 'database: the server can be used again');
    this.#noteProblem(null);
    session.server = server;
    this.#adoptServer(server);
    this.noteWal({ written, flushed });
    if (row !== undefined) this.#durable = durableSettings(row);
    return null;
  }

  #problemOf(
    server: Server,
    error: string | null,
    state: { inRecovery: boolean; isReadOnly: boolean; written: number | null; durableBefore: number },
  ): ServerProblem | null {
    const known = this.#server;
    if (state.inRecovery) return 'recovery';
    if (state.isReadOnly) return 'read-only';
    if (error === NO_RIGHT) return 'forbidden';
    if (known === null) return null;
    const isForeign = error === NO_SUCH_TABLE || (error === null && server.identity !== known.identity);
    if (known.identity !== null && isForeign) return 'foreign';
    const isSame = server.systemId !== null && server.systemId === known.systemId;
    if (!isSame) return null;
    if ((server.timeline ?? 0) < (known.timeline ?? 0)) return 'older';
    const { written, durableBefore } = state;
    return server.timeline === known.timeline && this.#wal.isAhead(written, durableBefore) ? 'behind' : null;
  }

  #refuse(session: Session, problem: ServerProblem, message: string | undefined): Error {
    const [code, text] = REFUSALS[problem];
    const level = FOR_OPERATORS.has(problem) ? 'error' : 'warn';
    const told = `${problem} ${message ?? ''}`;
    if (this.#problem !== problem || (problem === 'unfit' && this.#told !== told))
      this.#options.log[level](
        { problem, server: this.#name, connection: session.name },
        `database: ${message ?? text}`,
      );
    this.#told = told;
    const isNew = this.#problem !== problem;
    this.#noteProblem(problem);
    this.database.chooseAgain();
    if (isNew && FOR_ALL_CONNECTIONS.has(problem))
      for (const other of this.#sessions)
        if (other !== session && other.server !== null) other.socket.destroy(withCode(text, code));
    return withCode(message === undefined ? text : `${text}: ${message}`, code);
  }

  #noteProblem(problem: ServerProblem | null): void {
    const wasForeign = this.#problem === 'foreign';
    this.#problem = problem;
    if (wasForeign !== (problem === 'foreign')) this.#options.onForeign(!wasForeign);
  }

  /** If the server has changed, all connections leave the old one before their next statement. */
  #adoptServer(server: Server): void {
    const before = this.#server;
    this.#server = before === null ? server : merged(before, server);
    if (before === null || !differs(before, server)) return;
    this.#wal = new DurableWal();
    this.#durable = [];
    this.#epoch += 1;
    let left = 0;
    for (const other of this.#sessions) {
      // A connection that is being opened is judged separately.
      if (other.server === null || !differs(other.server, server)) continue;
      left += 1;
      this.#count(other, 'moved');
      other.socket.destroy(withCode('The address leads to another server now', 'SERVER_IS_OLDER'));
    }
    this.#options.log.warn(
      { before, now: server, connections: left },
      'database: the address leads to another server; leaving the old one',
    );
    this.#options.onMoved();
  }
}

/**
 * How far the write-ahead log of a server is known to be on disk: a server with the same data has at least as much. Only the end of a
 * record is compared, as the incomplete last one is dropped after a crash: an end that was noted counts once it is on disk.
 */
class DurableWal {
  #durable = 0;
  #noted = 0;
  /** Bytes that it came back without. */
  #missing = 0;

  note(written: number, flushed: number): void {
    if (flushed < this.#noted) return;
    this.#durable = this.#noted;
    this.#noted = written;
  }

  /** The end that the server has on disk for certain. */
  get durable(): number {
    return this.#durable;
  }

  /**
   * Whether the server has less than it had, or once came back with less: others may write there, so that its log grows past the end
   * that is known here.
   * @param durable what was known before the server was asked: answers of several connections arrive in any order
   */
  isAhead(written: number | null, durable: number): boolean {
    if (written !== null && written < durable) this.#missing = durable - written;
    return this.#missing > 0;
  }

  get loss(): string {
    return (
      `the server has come back without the last ${this.#missing} bytes of its write-ahead log, and with them acknowledged commits: ` +
      'it is an older copy; bring the later one back or go on without these commits, then restart Tidemark'
    );
  }
}

function answerMs({ kind, keepsDeadline }: Session): number {
  return kind === null || keepsDeadline === true ? Number.POSITIVE_INFINITY : DEADLINES[kind].answerMs;
}

const FACTS = ['systemId', 'timeline', 'identity', 'generation'] as const;

/** Whether two connections lead to different servers, or to a database that was restored between them. */
function differs(one: Server, other: Server): boolean {
  return FACTS.some((fact) => one[fact] !== null && other[fact] !== null && one[fact] !== other[fact]);
}

/** The known facts of a server: a fact that is unknown this time keeps its last value. */
function merged(before: Server, now: Server): Server {
  return {
    systemId: now.systemId ?? before.systemId,
    timeline: now.timeline ?? before.timeline,
    identity: now.identity ?? before.identity,
    generation: now.generation ?? before.generation,
  };
}

const PURPOSE = { name: 'tidemark watch', kind: 'probe', keepsDeadline: true } as const;
/** The server may be busy: a timeout proves nothing. */
const TIMEOUT_MS = 4 * DEADLINES.probe.answerMs;

/**
 * Connects, which also detects that the address leads to another server, and asks which backends are busy. One that waits
 * for its client to send or to read is not busy. A backend whose state is hidden counts as busy.
 * @throws if there is no usable server
 */
export async function askBackends(database: Database, pids: readonly number[]): Promise<ReadonlySet<number>> {
  const { socket } = await database.openSocket(PURPOSE);
  try {
    const { identity } = database;
    const settings = {
      ...('url' in identity ? { connectionString: identity.url } : identity),
      application_name: PURPOSE.name,
      query_timeout: TIMEOUT_MS,
    };
    const client = await pgClient(socket, settings, TIMEOUT_MS);
    if (pids.length === 0) return new Set();
    const { rows } = await client.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity
        WHERE pid = ANY ($1::int[])
          AND coalesce(state, 'disabled') NOT LIKE 'idle%'
          AND coalesce(wait_event, '') NOT IN ('ClientRead', 'ClientWrite')`,
      [pids],
    );
    return new Set(rows.map(({ pid }) => pid));
  } finally {
    socket.destroy();
  }
}
