/** The requests without an answer, in their order of arrival. */

/** What a member needs of the list: its neighbors in it. Nobody else touches them. */
export interface Pending<T> {
  before: T | null;
  after: T | null;
}

/**
 * A list through its members: one may leave from anywhere, and nothing is allocated, hashed or moved. To hash, grow and
 * shrink a Set took 2 to 3 % of the server's time for a refused request.
 */
export class PendingList<T extends Pending<T>> {
  #first: T | null = null;
  #last: T | null = null;

  get isEmpty(): boolean {
    return this.#first === null;
  }

  /** Adds one that is not in the list. */
  add(member: T): void {
    member.before = this.#last;
    if (this.#last === null) this.#first = member;
    else this.#last.after = member;
    this.#last = member;
  }

  /** Takes out one that is in the list. */
  delete(member: T): void {
    const { before, after } = member;
    if (before === null) this.#first = after;
    else before.after = after;
    if (after === null) this.#last = before;
    else after.before = before;
    member.before = null;
    member.after = null;
  }

  /** From the first that came. The one at hand may leave meanwhile. */
  *[Symbol.iterator](): Iterator<T> {
    for (let member = this.#first; member !== null; ) {
      const { after } = member;
      yield member;
      member = after;
    }
  }
}
