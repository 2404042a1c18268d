/** When pending deltas are folded into the counts, and when they are only added up among themselves. */

/** Deltas of some counts. Null in place of a number: another process works on them, it is to be tried again. */
export interface Foldable {
  /** Moves all pending deltas into the counts. @returns how many are gone */
  readonly fold: () => Promise<number | null>;
  /** Replaces pending deltas by their sums. @returns how many are gone */
  readonly addUp: () => Promise<number | null>;
  readonly pending: () => Promise<number>;
}

/** A snapshot in use for so long keeps the versions of counts: each fold leaves another one of those of now. */
const LONG_SNAPSHOT_SECONDS = 10;
/** How often deltas are folded then. */
const LONG_FOLD_MS = 60_000;
/** Deltas that are added up only once they are so many more than those that are left of them. */
const WORTH_ADDING_UP = 20;

/**
 * Folds pending deltas. While a snapshot stays in use, all versions of a count stay with it, and readers of a count go through
 * them. So deltas are folded once a minute then, and meanwhile added up among themselves: their dead rows readers skip.
 */
export class Folding {
  readonly #deltas: Foldable;
  readonly #now: () => number;
  #foldedAt = Number.NEGATIVE_INFINITY;
  /** Pending when they were last added up. */
  #left = 0;

  /** @param now milliseconds since 1970 */
  constructor(deltas: Foldable, now: () => number) {
    this.#deltas = deltas;
    this.#now = now;
  }

  /**
   * @param oldestSnapshotSeconds age of the oldest snapshot in use
   * @returns the number of deltas that are gone; null as of {@link Foldable}
   */
  async fold(oldestSnapshotSeconds: number): Promise<number | null> {
    const { fold, addUp, pending } = this.#deltas;
    const isLong = oldestSnapshotSeconds >= LONG_SNAPSHOT_SECONDS;
    if (!isLong || Math.abs(this.#now() - this.#foldedAt) >= LONG_FOLD_MS) {
      const folded = await fold();
      if (folded === null) return null;
      this.#foldedAt = this.#now();
      this.#left = 0;
      return folded;
    }
    if ((await pending()) < 2 * this.#left + WORTH_ADDING_UP) return 0;
    const gone = await addUp();
    if (gone !== null) this.#left = await pending();
    return gone;
  }
}
