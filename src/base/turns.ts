/**
 * Whose turn it is: a queue of queues for whatever many holders wait for.
 *
 * An item waits under a path that names its holder, the outermost first: an account and its app, or the networks of an address,
 * the widest first. Turns are round robin at each level and in order of arrival for the innermost holder. So an account with twenty
 * apps has the turns of one account, and a /48 with a hundred addresses those of one network.
 */

/** Names of a holder, the outermost first. No path is the beginning of another one. */
export type Path = readonly (string | number)[];

/** A holder with waiting items, and the holders inside it. */
interface Holder<Item> {
  /** Items that wait here and below; never 0 but at the root. */
  count: number;
  /** In order of turns. Empty in the innermost holders. */
  readonly inside: Map<string | number, Holder<Item>>;
  /** In order of arrival. Empty in all but the innermost holders. */
  readonly items: Item[];
}

export class Turns<Item> {
  readonly #root: Holder<Item> = holder();
  #holders = 0;

  /** Number of waiting items. */
  get size(): number {
    return this.#root.count;
  }

  /** Number of innermost holders that have an item waiting. */
  get holders(): number {
    return this.#holders;
  }

  /** Number of items that wait for a holder and for those inside it. */
  countOf(path: Path): number {
    return this.#find(path)?.count ?? 0;
  }

  /** Adds an item behind the others of its holder. */
  push(path: Path, item: Item): void {
    this.#enter(path).items.push(item);
  }

  /**
   * Puts back an item that was taken and is not finished: it is the first of its holder at the holder's next turn.
   * @param keepsTurn true if nothing of it was finished: the next turn is the same holder's again
   */
  putBack(path: Path, item: Item, keepsTurn: boolean): void {
    this.#enter(path).items.unshift(item);
    if (!keepsTurn) return;
    let at: Holder<Item> | undefined = this.#root;
    for (const name of path) {
      if (at === undefined) return;
      moveToFront(at.inside, name);
      at = at.inside.get(name);
    }
  }

  /**
   * Takes the item whose turn it is, and moves its holders to the end of their rounds; null if nothing waits.
   * @param rankOf ranks the outermost holders: those of the lowest rank have turns, the others wait; null: it is passed over and
   *   keeps its turn. By default all are equal
   */
  take(rankOf?: (outermost: string | number) => number | null): Item | null {
    const path: (string | number)[] = [];
    let at = this.#root;
    while (at.inside.size > 0) {
      const first =
        at === this.#root && rankOf !== undefined ? lowest(at.inside, rankOf) : firstOf(at.inside);
      if (first === undefined) break;
      const [name, next] = first;
      at.inside.delete(name);
      at.inside.set(name, next);
      path.push(name);
      at = next;
    }
    const item = at.items.shift();
    if (item === undefined) return null;
    this.#leave(path);
    return item;
  }

  /** Moves an outermost holder to the end of the round, as if it had just had a turn. */
  moveToEnd(outermost: string | number): void {
    const { inside } = this.#root;
    const moved = inside.get(outermost);
    if (moved === undefined) return;
    inside.delete(outermost);
    inside.set(outermost, moved);
  }

  /** Takes the next item of an innermost holder without moving any turn; null if it has none. */
  takeOf(path: Path): Item | null {
    const item = this.#find(path)?.items.shift();
    if (item === undefined) return null;
    this.#leave(path);
    return item;
  }

  /** Takes the last item of an innermost holder if it passes; null otherwise. */
  popLast(path: Path, passes: (item: Item) => boolean): Item | null {
    const items = this.#find(path)?.items;
    const last = items?.at(-1);
    if (items === undefined || last === undefined || !passes(last)) return null;
    items.pop();
    this.#leave(path);
    return last;
  }

  /** Removes an item that no longer waits. @returns false if it was not waiting */
  remove(path: Path, item: Item): boolean {
    const items = this.#find(path)?.items ?? [];
    const index = items.indexOf(item);
    if (index < 0) return false;
    items.splice(index, 1);
    this.#leave(path);
    return true;
  }

  /**
   * Removes the latest item of the holder with most items, level by level: what has to go where there is no room. The share of a
   * holder shrinks as others arrive, and one that is alone at the outermost level always finds room.
   * @param isWorse whether the first of two latest items goes, if their holders have equally many; the later holder's by default
   * @param within  a holder that is to lose an item; anyone by default
   */
  evict(isWorse: (one: Item, other: Item) => boolean = () => true, within: Path = []): Item | null {
    const at = this.#find(within);
    const found = at === undefined ? null : latestOfHeaviest(at, isWorse);
    if (found === null) return null;
    const path = [...within, ...found.path];
    this.#find(path)?.items.pop();
    this.#leave(path);
    return found.item;
  }

  /** Removes all items of a holder, and of those inside it, that pass. @returns them, those of each holder in order of arrival */
  extract(path: Path, passes: (item: Item) => boolean): Item[] {
    const at = this.#find(path);
    if (at === undefined) return [];
    if (at.inside.size > 0)
      return [...at.inside.keys()].flatMap((name) => this.extract([...path, name], passes));
    const removed = at.items.filter(passes);
    if (removed.length === 0) return [];
    const kept = at.items.filter((item) => !passes(item));
    at.items.splice(0, at.items.length, ...kept);
    for (const _ of removed) this.#leave(path);
    return removed;
  }

  /** Takes all items, those of each holder in order of arrival. */
  drain(): Item[] {
    const all: Item[] = [];
    collect(this.#root, all);
    this.#root.inside.clear();
    this.#root.items.length = 0;
    this.#root.count = 0;
    this.#holders = 0;
    return all;
  }

  #find(path: Path): Holder<Item> | undefined {
    let at: Holder<Item> | undefined = this.#root;
    for (const name of path) at = at?.inside.get(name);
    return at;
  }

  /** Counts an item in. @returns its innermost holder */
  #enter(path: Path): Holder<Item> {
    let at = this.#root;
    at.count += 1;
    for (const name of path) {
      let next = at.inside.get(name);
      if (next === undefined) {
        next = holder();
        at.inside.set(name, next);
      }
      next.count += 1;
      at = next;
    }
    if (at.count === 1) this.#holders += 1;
    return at;
  }

  /** Counts out an item that was removed, and the holders that have nothing left. */
  #leave(path: Path): void {
    let at = this.#root;
    at.count -= 1;
    for (const name of path) {
      const next = at.inside.get(name);
      if (next === undefined) return;
      next.count -= 1;
      if (next.count === 0) {
        // What is inside it has nothing left either.
        at.inside.delete(name);
        this.#holders -= 1;
        return;
      }
      at = next;
    }
  }
}

function holder<Item>(): Holder<Item> {
  return { count: 0, inside: new Map(), items: [] };
}

function firstOf<Key, Value>(map: ReadonlyMap<Key, Value>): readonly [Key, Value] | undefined {
  const [first] = map;
  return first;
}

/** The first entry of the lowest rank; undefined if all are passed over. */
function lowest<Key, Value>(
  map: ReadonlyMap<Key, Value>,
  rankOf: (key: Key) => number | null,
): readonly [Key, Value] | undefined {
  let found: readonly [Key, Value] | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const entry of map) {
    const rank = rankOf(entry[0]);
    if (rank === null || rank >= least) continue;
    found = entry;
    least = rank;
  }
  return found;
}

function moveToFront<Key, Value>(map: Map<Key, Value>, first: Key): void {
  for (const [key, value] of [...map]) {
    if (key === first) continue;
    map.delete(key);
    map.set(key, value);
  }
}

function latestOfHeaviest<Item>(
  at: Holder<Item>,
  isWorse: (one: Item, other: Item) => boolean,
): { readonly path: Path; readonly item: Item } | null {
  const latest = at.items.at(-1);
  if (latest !== undefined) return { path: [], item: latest };
  let most = 0;
  for (const { count } of at.inside.values()) most = Math.max(most, count);
  let worst: { readonly path: Path; readonly item: Item } | null = null;
  for (const [name, next] of at.inside) {
    if (next.count < most) continue;
    const found = latestOfHeaviest(next, isWorse);
    if (found === null) continue;
    if (worst === null || isWorse(found.item, worst.item))
      worst = { path: [name, ...found.path], item: found.item };
  }
  return worst;
}

function collect<Item>(at: Holder<Item>, into: Item[]): void {
  for (const item of at.items) into.push(item);
  for (const next of at.inside.values()) collect(next, into);
}
