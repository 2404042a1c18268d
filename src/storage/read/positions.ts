/** The order of events: by time of creation, then id. */

/** Between two events: after the one of this time and id. */
export interface Position {
  readonly at: number;
  readonly id: string;
}

/** Whether one comes before another one. Ids are of lower case, as the database writes them. */
export function comesBefore(one: Position, other: Position, order: 'asc' | 'desc'): boolean {
  const isEarlier = one.at === other.at ? one.id < other.id : one.at < other.at;
  const isSame = one.at === other.at && one.id === other.id;
  return order === 'asc' ? isEarlier : !isEarlier && !isSame;
}

/** What is in order of time, in an order. */
export function inOrderOf<T>(rows: readonly T[], order: 'asc' | 'desc'): readonly T[] {
  return order === 'asc' ? rows : rows.toReversed();
}

/** Rows of both in one order. Each of them is in that order. */
export function* merged<A extends Position, B extends Position>(
  one: readonly A[],
  other: readonly B[],
  order: 'asc' | 'desc',
): Generator<A | B> {
  let next = 0;
  for (const row of one) {
    for (
      let before = other[next];
      before !== undefined && comesBefore(before, row, order);
      before = other[next]
    ) {
      yield before;
      next += 1;
    }
    yield row;
  }
  yield* other.slice(next);
}
