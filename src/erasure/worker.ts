/** Continues erasures in the background of the service: those that owners ask for, and what commands that were killed have left. */
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import type { OwnCommand } from '../process/own-command.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import { continueErasures, type ErasureParts } from './erase.ts';
import { unfinishedErasures } from './erasures.ts';

export interface ErasureWorkerOptions extends Omit<ErasureParts, 'sql' | 'log'> {
  /** Of upkeep, to look for work. */
  readonly sql: Sql;
  /**
   * Does the work in a process of its own: it looks through all events of an app, and writes its archive again. Null: it is done here,
   * where there is no command line.
   */
  readonly command: OwnCommand | null;
  /** Opens a pool of one connection for the work itself, where it is done here. */
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

  /** Leaves the rest to the next start. */
  async stop(): Promise<void> {
    const stopped = this.#rounds.stop();
    this.#options.command?.stop();
    await stopped;
  }

  async #look(): Promise<void> {
    const { sql, isLeader, command, open, close, log, ...parts } = this.#options;
    if (!isLeader()) return;
    const left = await unfinishedErasures(sql);
    if (left.length === 0) return;
    if (command !== null) {
      for (const { erasureId } of left) await this.#run(command, erasureId);
      return;
    }
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

  async #run(command: OwnCommand, erasureId: string): Promise<void> {
    if (this.#rounds.isStopped) return;
    const { code, err } = await command.run(['erasure', 'resume', erasureId, '--json']);
    if (this.#rounds.isStopped) return;
    if (code !== 0) throw new Error(err.trim());
    // What else it prints is how far it is.
    for (const [, warning] of err.matchAll(/^tidemark: (erasure: .*)$/gm)) this.#options.log.warn(warning);
  }
}
