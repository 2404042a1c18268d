/** Vacuums tables that live on deleting, unless a snapshot in use would keep its dead rows anyway. */
import type { Sql } from '../database/connect.ts';
import { snapshotsBefore } from './oldest-snapshot.ts';

export class DeadRows {
  readonly #sql: Sql;
  readonly #vacuums: Sql;
  readonly #tables: readonly string[];
  readonly #threshold: number;
  /** Deleted since the last VACUUM, or since one became due. */
  #rows = 0;
  /** Where a VACUUM is due: the transaction before which the rows were deleted. */
  #deletedBefore: string | null = null;
  #running: Promise<void> | null = null;
  readonly #failures: unknown[] = [];

  /**
   * @param vacuums   a pool on which a VACUUM keeps nothing waiting that is due each second
   * @param threshold dead rows that are worth a VACUUM
   */
  constructor(sql: Sql, vacuums: Sql, tables: readonly string[], threshold: number) {
    this.#sql = sql;
    this.#vacuums = vacuums;
    this.#tables = tables;
    this.#threshold = threshold;
  }

  /** Counts rows that were deleted. */
  deleted(rows: number): void {
    this.#rows += rows;
  }

  /**
   * Begins to vacuum deleted rows as soon as no snapshot sees them: until then VACUUM would read all of them every second, without
   * success. It does not wait for the VACUUM, which may take longer than a round.
   * @throws what the last VACUUM failed with
   */
  async vacuumIfDue(): Promise<void> {
    const sql = this.#sql;
    const [failure] = this.#failures.splice(0);
    if (failure !== undefined) throw failure;
    if (this.#running !== null) return;
    if (this.#deletedBefore === null && this.#rows >= this.#threshold) {
      const [row] = await sql<
        { next: string }[]
      >`SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next`;
      this.#deletedBefore = row?.next ?? null;
      this.#rows = 0;
    }
    if (this.#deletedBefore === null || (await snapshotsBefore(sql, this.#deletedBefore))) return;
    this.#deletedBefore = null;
    this.#running = this.#vacuum()
      .catch((error: unknown) => void this.#failures.push(error))
      .finally(() => {
        this.#running = null;
      });
  }

  async #vacuum(): Promise<void> {
    for (const table of this.#tables) await this.#vacuums`VACUUM ${this.#vacuums(table)}`;
  }

  /** Resolves when no VACUUM is under way. */
  async idle(): Promise<void> {
    await this.#running;
  }
}
