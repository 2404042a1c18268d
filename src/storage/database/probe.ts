/** Asks a server whether it answers, on a connection of its own. */
import { type Connect, ConnectionLost, type WriteConnection } from './copy-connection.ts';
import type { ConnectionWatch } from './database.ts';
import { DEADLINES } from './pools.ts';
import type { WalPositions } from './server-address.ts';
import { ASK_WAL } from './server-watch.ts';

const TIMEOUTS = { pool: 'probe', connectMs: 700, answerMs: DEADLINES.probe.answerMs } as const;
/** Unanswered questions in a row after which a server counts as gone that was there until then. */
const MISSES = 2;

/** What a probe tells the watch of the server's connections. */
export type ProbeWatch = Pick<ConnectionWatch, 'followsWal' | 'noteWal'>;

/** The answer to a question, or why there is none. */
export type ProbeAnswer<Row> =
  | { readonly row: Row }
  /** A server that was silent once may only be busy; one that refuses connections is gone at once. */
  | { readonly error: unknown; readonly isGone: boolean };

export class Probe {
  readonly #connection: WriteConnection;
  readonly #watch: ProbeWatch | null;
  #misses = 0;

  /** @param name of the connection, shown in pg_stat_activity */
  constructor(connect: Connect, name: string, watch: ProbeWatch | null = null) {
    this.#connection = connect(name, TIMEOUTS);
    this.#watch = watch;
  }

  /** Questions in a row that had no answer. */
  get misses(): number {
    return this.#misses;
  }

  /** Asks a question whose answer is one row. One call at a time. Never rejects. */
  async ask<Row extends object>(
    question: string,
    values: readonly unknown[] = [],
  ): Promise<ProbeAnswer<Row>> {
    const query = async (): Promise<Row> => {
      const [row] = (await this.#connection.query<Row>(question, values)).rows;
      if (row === undefined) throw new Error('The server gave no answer');
      return row;
    };
    try {
      // An idle connection may have been closed: the second try opens a new one.
      const row = await query().catch((error: unknown) => {
        if (error instanceof ConnectionLost && error.sent && !error.timedOut) return query();
        throw error;
      });
      await this.#noteWal();
      this.#misses = 0;
      return { row };
    } catch (error) {
      this.#misses += 1;
      const isSilent = error instanceof ConnectionLost && error.timedOut;
      return { error, isGone: !isSilent || this.#misses >= MISSES };
    }
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  async #noteWal(): Promise<void> {
    if (this.#watch?.followsWal !== true) return;
    const { rows } = await this.#connection.query<WalPositions>(ASK_WAL, []);
    if (rows[0] !== undefined) this.#watch.noteWal(rows[0]);
  }
}
