/** When pending deltas are folded into the counts, and when they are only added up among themselves. */

const NEVER = async (): Promise<boolean> => false;

/** What a fold has done. */
export interface Folded {
  /** Deltas that are gone. */
  readonly deltas: number;
  /** Counts of minutes that they were added to. */
  readonly minutes: number;
}

/** Deltas of some counts. Null in place of a result: another process works on them, it is to be tried again. */
export interface DeltaSource {
  /** Moves all pending deltas into the counts. */
  readonly fold: () => Promise<Folded | null>;
  /** Replaces pending deltas by their sums. @returns how many are gone */
  readonly compact: () => Promise<number | null>;
  readonly pending: () => Promise<number>;
}

/** A snapshot in use for so long keeps the versions of counts: each fold leaves another one of those of now. */
const LONG_SNAPSHOT_SECONDS = 10;
/** How often deltas are folded then. */
const LONG_FOLD_MS = 60_000;
/** Deltas that are added up only once they are so many more than those that are left of them. */
const WORTH_ADDING_UP = 20;

/** A fold of fewer deltas costs little, whatever they are added to. */
const FEW_DELTAS = 2_000;
/** Deltas to a minute's count that are worth a fold. */
const WORTH_FOLDING = 16;
/** What a fold waits for at most: readers go through the deltas of their app. */
const LONGEST_WAIT_MS = 10_000;

/**
 * When the next fold is worth it. A fold changes ten counts of each app and type that sends (five levels, with those of all types),
 * whether one delta or a hundred are added to them. Where thousands of apps send, so few deltas of each gather in a second
 * that folding them costs more than storing the events: the fold then waits until as many may have gathered as are worth it.
 */
export class FoldPace {
  readonly #now: () => number;
  #foldedAt: number;
  #waitMs = 0;

  /** @param now milliseconds since 1970 */
  constructor(now: () => number) {
    this.#now = now;
    this.#foldedAt = now();
  }

  /** A clock that was put back delays no fold. */
  get isDue(): boolean {
    return Math.abs(this.#now() - this.#foldedAt) >= this.#waitMs;
  }

  /** Notes a fold of all that was pending. */
  folded({ deltas, minutes }: Folded): void {
    const gatheredMs = Math.abs(this.#now() - this.#foldedAt);
    this.#foldedAt = this.#now();
    this.#waitMs =
      deltas < FEW_DELTAS
        ? 0
        : Math.min(LONGEST_WAIT_MS, (gatheredMs * WORTH_FOLDING * Math.max(1, minutes)) / deltas);
  }
}

/**
 * Folds pending deltas. While a snapshot stays in use, all versions of a count stay with it, and readers of a count go through
 * them. So deltas are folded once a minute then, and meanwhile added up among themselves: their dead rows readers skip.
 */
export class Folding {
  readonly #deltas: DeltaSource;
  readonly #now: () => number;
  readonly #isFollowed: () => Promise<boolean>;
  readonly #pace: FoldPace;
  #foldedAt = Number.NEGATIVE_INFINITY;
  /** Pending when they were last added up. */
  #left = 0;

  /**
   * @param now        milliseconds since 1970
   * @param isFollowed whether consumers wait for the deltas: then each round takes them up
   */
  constructor(deltas: DeltaSource, now: () => number, isFollowed: () => Promise<boolean> = NEVER) {
    this.#deltas = deltas;
    this.#now = now;
    this.#isFollowed = isFollowed;
    this.#pace = new FoldPace(now);
  }

  /**
   * @param oldestSnapshotSeconds age of the oldest snapshot in use
   * @returns the number of deltas that are gone; null as of {@link DeltaSource}
   */
  async fold(oldestSnapshotSeconds: number): Promise<number | null> {
    const { fold, compact, pending } = this.#deltas;
    const isFollowed = await this.#isFollowed();
    const isLong = oldestSnapshotSeconds >= LONG_SNAPSHOT_SECONDS;
    if (!isLong || Math.abs(this.#now() - this.#foldedAt) >= LONG_FOLD_MS) {
      if (!this.#pace.isDue && !isFollowed) return 0;
      const folded = await fold();
      if (folded === null) return null;
      this.#pace.folded(folded);
      this.#foldedAt = this.#now();
      this.#left = 0;
      return folded.deltas;
    }
    const worth = isFollowed ? this.#left + 1 : 2 * this.#left + WORTH_ADDING_UP;
    if ((await pending()) < worth) return 0;
    const gone = await compact();
    if (gone !== null) this.#left = await pending();
    return gone;
  }
}
