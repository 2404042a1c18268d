/** Vacuums a table that lives on deleting, unless a snapshot in use would keep its dead rows anyway. */
import type { Sql } from '../connect.ts';
import { snapshotsBefore } from './oldest-snapshot.ts';

export class DeadRows {
  readonly #sql: Sql;
  readonly #table: string;
  readonly #threshold: number;
  /** Deleted since the last VACUUM, or since one became due. */
  #rows = 0;
  /** Where a VACUUM is due: the transaction before which the rows were deleted. */
  #deletedBefore: string | null = null;

  /** @param threshold dead rows that are worth a VACUUM */
  constructor(sql: Sql, table: string, threshold: number) {
    this.#sql = sql;
    this.#table = table;
    this.#threshold = threshold;
  }

  /**
   * Counts rows that were deleted, and vacuums them as soon as no snapshot sees them: until then VACUUM would read all of
   * them every second, without success.
   */
  async vacuumAfter(deleted: number): Promise<void> {
    const sql = this.#sql;
    this.#rows += deleted;
    if (this.#deletedBefore === null && this.#rows >= this.#threshold) {
      const [row] = await sql<
        { next: string }[]
      >`SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next`;
      this.#deletedBefore = row?.next ?? null;
      this.#rows = 0;
    }
    if (this.#deletedBefore === null || (await snapshotsBefore(sql, this.#deletedBefore))) return;
    this.#deletedBefore = null;
    await sql`VACUUM ${sql(this.#table)}`;
  }
}
