/** Continues erasures in the background of the service: those that owners ask for, and what commands that were killed have left. */
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import { continueErasures, type ErasureParts } from './erase.ts';

export interface ErasureWorkerOptions extends Omit<ErasureParts, 'sql' | 'log'> {
  /** Of upkeep, to look for work. */
  readonly sql: Sql;
  /** Opens a pool of one connection for the work itself. */
  readonly open: () => Sql;
  readonly close: (sql: Sql) => Promise<void>;
  /** Whether this process does it. */
  readonly isLeader: () => boolean;
  readonly log: Logger;
}

const ROUND_MS = 1_000;
/** After a failure it is tried again this much later. */
const RETRY_MS = 60_000;

export class ErasureWorker {
  readonly #options: ErasureWorkerOptions;
  readonly #rounds: Rounds;
  #pauseMs = ROUND_MS;

  constructor(options: ErasureWorkerOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: async () => {
        this.#pauseMs = ROUND_MS;
        await this.#look();
      },
      pauseMs: () => this.#pauseMs,
      onFailure: (error) => {
        this.#pauseMs = RETRY_MS;
        options.log.warn({ code: errorCode(error), err: error }, 'erasure: failed, retrying in a minute');
      },
    });
  }

  start(): void {
    this.#rounds.start();
  }

  /** Leaves the rest to the next start after the current slice. */
  async stop(): Promise<void> {
    await this.#rounds.stop();
  }

  async #look(): Promise<void> {
    const { sql, isLeader, open, close, log, ...parts } = this.#options;
    if (!isLeader()) return;
    const [left] = await sql`SELECT FROM erasures WHERE finished_at IS NULL LIMIT 1`;
    if (left === undefined) return;
    const own = open();
    try {
      await continueErasures(
        { ...parts, sql: own, log: { warn: (message) => log.warn(message) } },
        () => this.#rounds.isStopped,
      );
    } finally {
      await close(own);
    }
  }
}
