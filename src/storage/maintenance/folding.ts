/** When pending deltas are folded into the counts, and when they are only added up among themselves. */

/** What a fold, or adding deltas up, has done. */
export interface Folded {
  /** Deltas that are gone. */
  readonly deltas: number;
  /** Counts of minutes that they were added to, or are to be. */
  readonly minutes: number;
}

export interface AddedUp extends Folded {
  /** Deltas that their sums are. */
  readonly sums: number;
}

/** Deltas of some counts. Null in place of a result: another process works on them, it is to be tried again. */
export interface DeltaSource {
  /** Moves all pending deltas into the counts. */
  readonly fold: () => Promise<Folded | null>;
  /** Replaces pending deltas by their sums. */
  readonly compact: () => Promise<AddedUp | null>;
  readonly pending: () => Promise<number>;
}

/** A snapshot in use for so long keeps the versions of counts: each fold leaves another one of those of now. */
const LONG_SNAPSHOT_SECONDS = 10;
/** How often deltas are folded where they are added up among themselves meanwhile. */
const RARE_FOLD_MS = 60_000;
/** Deltas that are added up only once they are so many more than those that are left of them. */
const WORTH_ADDING_UP = 20;

/** A fold of fewer deltas costs little, whatever they are added to. */
const FEW_DELTAS = 2_000;
/** Deltas to a minute's count that are worth a fold. */
const WORTH_FOLDING = 16;
/** What a fold waits for at most: readers go through the deltas of their app. */
const LONGEST_WAIT_MS = 10_000;
/** What adding up waits for at most: readers go through the deltas that share rows with those of their app. */
const LONGEST_WAIT_TO_ADD_UP_MS = 2_000;
/** How often a round comes, in which deltas of few apps are folded. */
const ROUND_MS = 1_000;

/**
 * When the next fold is worth it. A fold changes ten counts of each app and type that sends (five levels, with those of all types),
 * whether one delta or a hundred are added to them. Where thousands of apps send, so few deltas of each gather in a second
 * that folding them costs more than storing the events: the fold then waits until as many may have gathered as are worth it.
 */
export class FoldPace {
  readonly #now: () => number;
  readonly #longestWaitMs: number;
  #foldedAt: number;
  #waitMs = 0;

  constructor(now: () => number, longestWaitMs = LONGEST_WAIT_MS) {
    this.#now = now;
    this.#longestWaitMs = longestWaitMs;
    this.#foldedAt = now();
  }

  /** Whether folds have to wait, because few deltas of each count gather in a round. */
  get isSparse(): boolean {
    return this.#waitMs > ROUND_MS;
  }

  /** A clock that was put back delays no fold. */
  get isDue(): boolean {
    return Math.abs(this.#now() - this.#foldedAt) >= this.#waitMs;
  }

  /** Notes a fold of all that was pending, with the deltas that were new. Once these are few, the next round folds. */
  folded({ deltas, minutes }: Folded): void {
    const gatheredMs = Math.abs(this.#now() - this.#foldedAt);
    this.#foldedAt = this.#now();
    this.#waitMs =
      deltas < FEW_DELTAS
        ? 0
        : Math.min(this.#longestWaitMs, (gatheredMs * WORTH_FOLDING * Math.max(1, minutes)) / deltas);
  }
}

/**
 * Folds pending deltas once a round, but once a minute in two cases, and meanwhile adds them up among themselves:
 *
 * - A snapshot stays in use. All versions of a count stay with it, and readers of a count go through them; the dead rows of deltas
 *   they skip.
 * - Thousands of apps send. A fold changes ten counts of an app and type, adding up writes one row, which a later fold takes.
 */
export class Folding {
  readonly #deltas: DeltaSource;
  readonly #now: () => number;
  readonly #isFollowed: () => Promise<boolean>;
  readonly #pace: FoldPace;
  #foldedAt = Number.NEGATIVE_INFINITY;
  /** Deltas that were left when they were last added up. */
  #left = 0;

  /** @param isFollowed whether consumers wait for the deltas: then each round takes them up */
  constructor(deltas: DeltaSource, now: () => number, isFollowed: () => Promise<boolean>) {
    this.#deltas = deltas;
    this.#now = now;
    this.#isFollowed = isFollowed;
    this.#pace = new FoldPace(now, LONGEST_WAIT_TO_ADD_UP_MS);
  }

  /**
   * @param oldestSnapshotSeconds age of the oldest snapshot in use
   * @returns the number of deltas that are gone; null as of {@link DeltaSource}
   */
  async fold(oldestSnapshotSeconds: number): Promise<number | null> {
    const { fold, compact, pending } = this.#deltas;
    const isFollowed = await this.#isFollowed();
    const isLong = oldestSnapshotSeconds >= LONG_SNAPSHOT_SECONDS;
    const isRare = isLong || (this.#pace.isSparse && !isFollowed);
    if (!isRare || Math.abs(this.#now() - this.#foldedAt) >= RARE_FOLD_MS) {
      if (!this.#pace.isDue && !isFollowed) return 0;
      const folded = await fold();
      if (folded === null) return null;
      this.#pace.folded({ ...folded, deltas: folded.deltas - this.#left });
      this.#foldedAt = this.#now();
      this.#left = 0;
      return folded.deltas;
    }
    if (!isLong) {
      if (!this.#pace.isDue) return 0;
      const addedUp = await compact();
      if (addedUp === null) return null;
      this.#pace.folded({ ...addedUp, deltas: addedUp.deltas - this.#left });
      this.#left = addedUp.sums;
      return addedUp.deltas;
    }
    const worth = isFollowed ? this.#left + 1 : 2 * this.#left + WORTH_ADDING_UP;
    if ((await pending()) < worth) return 0;
    const addedUp = await compact();
    if (addedUp !== null) this.#left = await pending();
    return addedUp?.deltas ?? null;
  }
}
