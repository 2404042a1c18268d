/** A doubly linked list whose links are fields of its members. */

/** The links of a member. Only the list writes them. */
export interface ListMember<T> {
  before: T | null;
  after: T | null;
}

/**
 * Keeps the order of insertion. Members are added and removed at any position without allocation, hashing or copying, which
 * in a Set is a measurable part of the cost of a refused request.
 */
export class IntrusiveList<T extends ListMember<T>> {
  #first: T | null = null;
  #last: T | null = null;

  get isEmpty(): boolean {
    return this.#first === null;
  }

  /** Appends a member that is not in the list. */
  add(member: T): void {
    member.before = this.#last;
    if (this.#last === null) this.#first = member;
    else this.#last.after = member;
    this.#last = member;
  }

  /** Removes a member that is in the list. */
  delete(member: T): void {
    const { before, after } = member;
    if (before === null) this.#first = after;
    else before.after = after;
    if (after === null) this.#last = before;
    else after.before = before;
    member.before = null;
    member.after = null;
  }

  /** In order of insertion. The current member may be removed during the iteration. */
  *[Symbol.iterator](): Iterator<T> {
    for (let member = this.#first; member !== null; ) {
      const { after } = member;
      yield member;
      member = after;
    }
  }
}
