/** The server around the database, and the network to it: sessions, answers that come late or never, and connections to it. */
import type pg from 'pg';
import type { CopyGroup } from '../../src/storage/database/copy-connection.ts';
import {
  ConnectionLost,
  type ConnectionTimeouts,
  type WriteConnection,
} from '../../src/storage/database/copy-connection.ts';
import { type Database, Locked, type Result, sqlError, type Transaction } from './database.ts';
import type { Owner, World } from './world.ts';

/** `gone`: connections are refused. `silent`: nothing is answered, and what was sent happens when it is over. */
export type ServerState = 'up' | 'gone' | 'silent';

/** Of statements, while the network is bad. */
export interface Chances {
  /** The connection breaks before the statement arrives. */
  readonly cutRequest: number;
  /** It breaks after the statement; the client learns nothing of its end. */
  readonly cutAnswer: number;
  /** The same, and the statement happens only seconds later. */
  readonly late: number;
  /** The server refuses it: a deadlock, or somebody has canceled it. */
  readonly refused: number;
}

/** Milliseconds of a statement, at least and at most. */
export const PACE: readonly [number, number] = [0.3, 3];

export const NO_CHANCES: Chances = { cutRequest: 0, cutAnswer: 0, late: 0, refused: 0 };
const REFUSALS = ['40P01', '40001', '57014', '53200', '55P03'] as const;
/** Between two looks at a lock. */
const LOCK_LOOK_MS = 10;
/** The server's statement_timeout as a share of the client's. */
const SERVER_SHARE = 0.9;
const CANCEL_MS = 300;

class Session {
  isOpen = true;
  transaction: Transaction | null = null;
  /** Told that the connection is broken; null while no statement is under way. */
  waiting: ((error: ConnectionLost) => void) | null = null;

  /** Breaks the connection, whatever the server is doing. */
  break(why: string): void {
    this.isOpen = false;
    const { waiting } = this;
    this.waiting = null;
    waiting?.(new ConnectionLost(new Error(why), true));
  }
}

interface Statement {
  readonly session: Session;
  readonly execute: () => Result;
  readonly lockMs: number;
  readonly isProbe: boolean;
  isCanceled: boolean;
  /** Told what came of it, where the connection still stands. */
  readonly answer: (outcome: Result | Error) => void;
}

export class Server {
  readonly database: Database;
  state: ServerState = 'up';
  chances = NO_CHANCES;
  /** Milliseconds that a statement takes, and that a question of the probe takes. */
  pace = PACE;
  probePace = PACE;
  readonly world: World;
  readonly #sessions = new Set<Session>();
  /** Changes when it is killed: what it was doing then never happens. */
  #life = 0;
  #whenHeard: (() => void)[] = [];
  /** Statements that have been sent and have not happened. */
  readonly #underWay = new Set<Statement>();

  constructor(world: World, database: Database) {
    this.world = world;
    this.database = database;
  }

  /** Ends all sessions. What they were doing was just committed, or never will be. */
  kill(): void {
    for (const statement of this.#underWay) {
      if (statement.isCanceled || this.state === 'silent' || this.world.random.chance(0.5)) continue;
      this.#execute(statement);
    }
    this.#underWay.clear();
    this.#life += 1;
    this.#whenHeard = [];
    this.breakAll();
  }

  /** Breaks all connections; what was sent may still happen. */
  breakAll(): void {
    for (const session of this.#sessions) session.break('the connection was cut');
    this.#sessions.clear();
  }

  goOn(): void {
    this.state = 'up';
    for (const resume of this.#whenHeard.splice(0)) resume();
  }

  open(): Session {
    const session = new Session();
    this.#sessions.add(session);
    return session;
  }

  /** Does what a client has sent, when it arrives. */
  receive(statement: Statement): void {
    const { random } = this.world;
    const { cutRequest, cutAnswer, late, refused } = this.chances;
    const pace = statement.isProbe ? this.probePace : this.pace;
    let fate = random.next();
    const isMet = (chance: number): boolean => {
      fate -= chance;
      return fate < 0;
    };
    const breakSoon = (): void => {
      this.world.after(random.between(0.1, 5), () => statement.session.break('the network broke'), null);
    };
    if (isMet(cutRequest)) {
      breakSoon();
      return;
    }
    if (isMet(cutAnswer)) {
      this.#arrive(statement, random.between(...pace), 'unheard');
      this.world.after(random.between(3, 40), () => statement.session.break('the network broke'), null);
      return;
    }
    if (isMet(late)) {
      this.#arrive(statement, random.between(20, 4_000), 'unheard');
      breakSoon();
      return;
    }
    const error = isMet(refused) ? sqlError(random.pick(REFUSALS)) : null;
    this.#arrive(statement, random.between(...pace), error);
  }

  #arrive(statement: Statement, ms: number, fate: Error | 'unheard' | null): void {
    const life = this.#life;
    let waitedMs = 0;
    this.#underWay.add(statement);
    const happen = (): void => {
      if (life !== this.#life || statement.isCanceled) return;
      if (this.state === 'silent') {
        this.#whenHeard.push(happen);
        return;
      }
      this.#underWay.delete(statement);
      const outcome = fate instanceof Error ? fate : this.#execute(statement);
      if (outcome instanceof Locked) {
        waitedMs += LOCK_LOOK_MS;
        if (waitedMs < statement.lockMs) this.world.after(LOCK_LOOK_MS, happen, null);
        else if (fate !== 'unheard') statement.answer(sqlError('55P03'));
        return;
      }
      if (fate !== 'unheard') statement.answer(outcome);
    };
    this.world.after(ms, happen, null);
  }

  #execute({ execute }: Statement): Result | Error {
    try {
      return execute();
    } catch (error) {
      if (error instanceof Error) return error;
      throw error;
    }
  }
}

/** A connection of a process. It fails as the real one does, with its timeouts. */
export class SimulatedConnection implements WriteConnection {
  readonly hasLeft = false;
  readonly #server: Server;
  readonly #owner: Owner;
  readonly #name: string;
  readonly #timeouts: ConnectionTimeouts;
  #session: Session | null = null;

  constructor(server: Server, owner: Owner, name: string, timeouts: ConnectionTimeouts) {
    this.#server = server;
    this.#owner = owner;
    this.#name = name;
    this.#timeouts = timeouts;
  }

  async copy({ messages, commands }: CopyGroup): Promise<void> {
    const { database } = this.#server;
    await this.#send(messages.length, 'copy', () => {
      database.copy(messages);
      return { rows: [], rowCount: commands };
    });
  }

  async query<Row extends pg.QueryResultRow>(
    statement: string,
    values: readonly unknown[],
    bytes = 0,
  ): Promise<pg.QueryResult<Row>> {
    const result = await this.#send(bytes, statement, (session) => this.#query(session, statement, values));
    return { ...result, rows: result.rows as Row[], command: '', oid: 0, fields: [] };
  }

  async close(): Promise<void> {
    this.#session = null;
  }

  /** Breaks the connection, unless it waits and that is to be left alone. */
  break(evenIfWaiting: boolean): void {
    if (this.#session === null || (!evenIfWaiting && this.#session.waiting !== null)) return;
    this.#session.break('the service has broken it');
  }

  #query(session: Session, statement: string, values: readonly unknown[]): Result {
    if (statement.startsWith('BEGIN')) session.transaction = { isAborted: false, rows: [] };
    else if (statement === 'ROLLBACK') session.transaction = null;
    else if (statement === 'COMMIT') {
      const { transaction } = session;
      session.transaction = null;
      if (transaction !== null) this.#server.database.commit(transaction);
    } else
      return this.#server.database.query(
        statement,
        values as readonly (readonly never[])[],
        session.transaction,
      );
    return { rows: [], rowCount: 0 };
  }

  async #connected(): Promise<Session> {
    if (this.#session?.isOpen === true) return this.#session;
    const { world } = this.#server;
    await world.delay(world.random.between(0.1, 1));
    if (this.#server.state === 'gone') throw new ConnectionLost(new Error('connection refused'), false);
    if (this.#server.state === 'silent') {
      await world.delay(this.#timeouts.connectMs);
      throw new ConnectionLost(new Error('no answer in time'), false, true);
    }
    this.#session = this.#server.open();
    return this.#session;
  }

  async #send(bytes: number, what: string, work: (session: Session) => Result): Promise<Result> {
    const session = await this.#connected();
    const { world } = this.#server;
    const { answerMs, lockMs = Number.POSITIVE_INFINITY } = this.#timeouts;
    const label = (): string => `${this.#name}: ${what.replaceAll(/\s+/g, ' ').trim().slice(0, 40)}`;
    return await new Promise<Result>((resolve, reject) => {
      let isOver = false;
      const settle = (say: () => void): void => {
        if (isOver) return;
        isOver = true;
        session.waiting = null;
        world.cancel(timeout);
        world.after(world.random.between(0.02, 0.3), say, this.#owner);
      };
      const fail = (error: Error): void => {
        world.note(() => `${label()} failed: ${error.message}`);
        settle(() => reject(error));
      };
      const statement = {
        session,
        execute: () => work(session),
        // The server ends a statement that waits for a lock a little before its client gives it up.
        lockMs: Math.min(lockMs, answerMs * SERVER_SHARE),
        isProbe: this.#timeouts.pool === 'probe',
        isCanceled: false,
        answer: (outcome: Result | Error) => {
          world.note(() => `${label()} ${outcome instanceof Error ? outcome.message : 'done'}`);
          settle(() => (outcome instanceof Error ? reject(outcome) : resolve(outcome)));
        },
      };
      const giveUp = (): void => {
        if (isOver) return;
        session.isOpen = false;
        // A request to cancel that arrives in time; otherwise the statement may happen after all.
        const isCanceled = this.#timeouts.lockMs !== undefined && world.random.chance(0.5);
        statement.isCanceled = isCanceled;
        const error = isCanceled
          ? sqlError('57014')
          : new ConnectionLost(new Error('no answer in time'), true, true);
        world.after(isCanceled ? 1 : CANCEL_MS, () => fail(error), null);
      };
      const timeout = world.after(answerMs + bytes / 10_000, giveUp, this.#owner);
      session.waiting = fail;
      this.#server.receive(statement);
    });
  }
}
