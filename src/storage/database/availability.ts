/** Probes continuously whether the database responds and takes writes, so that requests need not find out by waiting. */
import type { Logger } from 'pino';
import { Rounds } from '../../base/rounds.ts';
import { deadline } from '../../base/timeout.ts';
import { Rejection } from '../../errors.ts';
import type { Connect } from './copy-connection.ts';
import { Probe } from './probe.ts';
import { type DatabaseProblem, PROBLEM_TEXTS, type ServerWatch } from './server-watch.ts';

export interface AvailabilityOptions {
  readonly connect: Connect;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Tries to write what waits, where something does. @returns false where the database does not take it */
  readonly canWrite: () => Promise<boolean>;
  /** Whether the last try to write failed for want of disk. */
  readonly isDiskFull: () => boolean;
  /** The tables into which writing inserts. */
  readonly tables: readonly string[];
  /** Looks after the connections: those to a database that does not answer, or takes no writes, are of no further use. */
  readonly watch: Pick<ServerWatch, 'problem' | 'breakAll' | 'breakSilent' | 'followsWal' | 'noteWal'>;
  /** The database takes writes again. */
  readonly onWritable: () => void;
}

/** Between two questions while all is well; the second one that stays without an answer counts. */
const HEARTBEAT_MS = 500;
/** Between two questions while something is wrong. */
const PROBE_MS = 250;
/** An answer that takes longer than this is late. */
const LATE_MS = 250;

const UNREACHABLE = new Rejection('unavailable', 'The database cannot be reached; try again shortly.');
/** Built once each: many requests are refused for the same reason. */
const REFUSALS = new Map<DatabaseProblem, Rejection>();

interface State {
  readonly isReadOnly: boolean;
  /** Tables without the privilege that writing needs. */
  readonly forbidden: readonly string[];
}

const QUESTION = `
  SELECT current_setting('transaction_read_only') = 'on' AS "isReadOnly",
         ARRAY(SELECT name FROM unnest($1::text[]) AS name
                WHERE NOT has_table_privilege(to_regclass(name), 'INSERT')) AS forbidden`;

export class Availability {
  readonly #options: AvailabilityOptions;
  readonly #probe: Probe;
  #reachable = true;
  #writable = true;
  /** Whether the answer to the question is late. */
  #isLate = false;
  /** Since when something is wrong. */
  #since = 0;
  readonly #rounds: Rounds;
  /** Tables without the privilege that writing needs. */
  #forbidden: readonly string[] = [];

  constructor(options: AvailabilityOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#ask(),
      pauseMs: () => (this.#writable ? HEARTBEAT_MS : PROBE_MS),
      onFailure: (error) => options.log.error({ err: error }, 'database: unexpected error of the probe'),
    });
    this.#probe = new Probe(options.connect, 'tidemark probe', options.watch);
  }

  /** False while the database does not answer. */
  get reachable(): boolean {
    return this.#reachable;
  }

  /** False while it does not take commit groups: then each would only lose time on finding that out. */
  get writable(): boolean {
    return this.#writable;
  }

  /** Why the server that answers is not used, or takes no events; null where it does, or none answers. */
  get problem(): DatabaseProblem | null {
    if (this.#forbidden.length > 0) return 'forbidden';
    const { watch, isDiskFull } = this.#options;
    return watch.problem ?? (this.#reachable && !this.#writable && isDiskFull() ? 'full' : null);
  }

  /** What requests are refused with that need the database now: the sentence of `/readyz`, where it has one. */
  get refusal(): Rejection {
    const { problem } = this;
    if (problem === null) return UNREACHABLE;
    const known = REFUSALS.get(problem) ?? new Rejection('unavailable', PROBLEM_TEXTS[problem]);
    REFUSALS.set(problem, known);
    return known;
  }

  /** True where it may be gone: a question is late or was not answered, or a write has failed. */
  get suspect(): boolean {
    return this.#isLate || this.#probe.misses > 0 || !this.#writable;
  }

  start(): void {
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.#probe.close();
  }

  /** A commit group could not be stored for want of a database that takes it. */
  writeFailed(): void {
    if (!this.#writable) return;
    this.#forbid();
    this.#options.log.warn('database: not writable');
    this.#rounds.runSoon();
  }

  async #ask(): Promise<void> {
    const end = deadline(LATE_MS, () => {
      this.#isLate = true;
    });
    const answer = await this.#probe.ask<State>(QUESTION, [this.#options.tables]);
    end();
    this.#isLate = false;
    if (this.#rounds.isStopped) return;
    if ('error' in answer) {
      if (answer.isGone || !this.#writable) this.#lose();
      return;
    }
    const { isReadOnly, forbidden } = answer.row;
    this.#noteForbidden(forbidden);
    if (isReadOnly) {
      // A server that takes no writes is none: it may have been the primary until a moment ago.
      this.#options.watch.breakAll();
      this.#lose();
      return;
    }
    if (!this.#reachable) this.#options.log.info(this.#outage(), 'database: available again');
    this.#reachable = true;
    if (forbidden.length > 0) {
      this.#forbid();
      return;
    }
    if (this.#writable) return;
    if (!(await this.#options.canWrite())) return;
    this.#writable = true;
    this.#options.log.info(this.#outage(), 'database: writable again');
    this.#options.onWritable();
  }

  /** The server is there and can be read. */
  #forbid(): void {
    if (!this.#writable) return;
    this.#writable = false;
    this.#since = this.#options.now();
  }

  #lose(): void {
    if (!this.#reachable) return;
    if (this.#writable) this.#since = this.#options.now();
    this.#reachable = false;
    this.#writable = false;
    this.#options.log.warn('database: unavailable');
    this.#options.watch.breakSilent();
  }

  #outage(): { ms: number } {
    return { ms: Math.round(this.#options.now() - this.#since) };
  }

  /** Logs each change once. */
  #noteForbidden(tables: readonly string[]): void {
    const { log } = this.#options;
    const before = this.#forbidden;
    this.#forbidden = tables;
    if (tables.join() === before.join()) return;
    if (tables.length > 0) log.error({ privilege: 'INSERT', tables }, 'database: privilege missing');
    else log.info({ privilege: 'INSERT', tables: before }, 'database: privilege granted');
  }
}
