/** Continues erasures in the background of the service: those that owners ask for, and what commands that were killed have left. */
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import type { OwnCommand } from '../process/own-command.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import { continueErasures, type ErasureParts } from './erase.ts';
import { unfinishedErasures } from './erasures.ts';

export interface ErasureWorkerOptions extends Omit<ErasureParts, 'sql' | 'log'> {
  /** Finds work; the work itself has a connection of its own. */
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
/** After a failure of the work as a whole it is tried again this much later. */
const RETRY_MS = 60_000;
/** Rounds until an erasure that has failed is a reason to work again; those of others go on. */
const ROUNDS_ASIDE = 60;

export class ErasureWorker extends Rounds {
  readonly #options: ErasureWorkerOptions;
  /** Erasures that have failed, by their ids, with the rounds that are left. */
  readonly #aside = new Map<string, number>();
  #pauseMs = ROUND_MS;

  constructor(options: ErasureWorkerOptions) {
    super({
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
    this.#options = options;
  }

  /** Leaves the rest to the next start. */
  override async stop(): Promise<void> {
    const stopped = super.stop();
    this.#options.command?.stop();
    await stopped;
  }

  async #look(): Promise<void> {
    const { sql, isLeader, command, open, close, log, ...parts } = this.#options;
    if (!isLeader()) return;
    const asked = await unfinishedErasures(sql);
    for (const [id, rounds] of this.#aside) {
      if (rounds > 1) this.#aside.set(id, rounds - 1);
      else this.#aside.delete(id);
    }
    if (asked.every(({ erasureId }) => this.#aside.has(erasureId))) return;
    if (command !== null) return this.#putAside(await this.#run(command));
    const own = open();
    try {
      const inHere = { ...parts, sql: own, log: { warn: (message: string) => log.warn(message) } };
      this.#putAside(await continueErasures(inHere, () => this.isStopped));
    } finally {
      await close(own);
    }
  }

  #putAside(left: readonly string[]): void {
    for (const erasureId of left) this.#aside.set(erasureId, ROUNDS_ASIDE);
  }

  /** @returns the ids of those that are left */
  async #run(command: OwnCommand): Promise<readonly string[]> {
    const { code, out, err } = await command.run(['erasure', 'resume', '--json']);
    if (this.isStopped) return [];
    if (code !== 0) throw new Error(err.trim());
    for (const [, warning] of err.matchAll(/^tidemark: (erasure: .*)$/gm)) this.#options.log.warn(warning);
    // The command line of this program prints it.
    return (JSON.parse(out) as { readonly left: readonly string[] }).left;
  }
}
