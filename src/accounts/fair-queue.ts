/**
 * A queue for expensive work that anyone can ask for: bounded, and shared out by network.
 *
 * Turns go round: first between the widest networks that have work waiting, then between the networks inside of one, then
 * in order of arrival. When all places are taken, the latest work of the network that holds most of them leaves, so a
 * network's share shrinks as others come, and a client that nobody shares a network with always finds a place.
 */

/** Work as the queue sees it. */
export interface Waiting {
  /** The client's networks, the narrowest first. */
  readonly networks: readonly string[];
  /** Attempts of the client that failed lately: where shares are equal, who has fewer keeps the place. */
  readonly failures: number;
}

/** A network with work waiting, and the networks inside of it. */
interface Network<T> {
  count: number;
  /** By name; the next turn is the first one's. Empty in the narrowest networks. */
  readonly inside: Map<string, Network<T>>;
  /** Of the narrowest networks, in order of arrival. */
  readonly work: T[];
}

export class FairQueue<T extends Waiting> {
  readonly #places: number;
  readonly #root = network<T>();

  constructor(places: number) {
    this.#places = places;
  }

  get size(): number {
    return this.#root.count;
  }

  /**
   * Adds work.
   * @returns the work that has to leave for it, which may be the added one; null where there was a place
   */
  add(added: T): T | null {
    let at = this.#root;
    at.count += 1;
    for (const name of widestFirst(added)) {
      let next = at.inside.get(name);
      if (next === undefined) {
        next = network<T>();
        at.inside.set(name, next);
      }
      at = next;
      at.count += 1;
    }
    at.work.push(added);
    if (this.#root.count <= this.#places) return null;
    const leaving = heaviest(this.#root);
    this.#remove(leaving);
    return leaving;
  }

  /** Takes the work whose turn it is; null where none waits. */
  take(): T | null {
    let at = this.#root;
    while (at.inside.size > 0) {
      const [first] = at.inside;
      if (first === undefined) break;
      const [name, next] = first;
      // To the end of the round.
      at.inside.delete(name);
      at.inside.set(name, next);
      at = next;
    }
    const taken = at.work[0];
    if (taken === undefined) return null;
    this.#remove(taken);
    return taken;
  }

  /** How much work waits for the widest network of this one. */
  sharers({ networks }: Waiting): number {
    return this.#root.inside.get(networks.at(-1) ?? '')?.count ?? 0;
  }

  #remove(work: T): void {
    const path = [this.#root];
    for (const name of widestFirst(work)) {
      const next = path.at(-1)?.inside.get(name);
      if (next === undefined) return;
      path.push(next);
    }
    const narrowest = path.at(-1);
    narrowest?.work.splice(narrowest.work.indexOf(work), 1);
    for (const at of path) at.count -= 1;
    const names = widestFirst(work);
    for (const [i, name] of names.entries()) {
      if (path[i + 1]?.count === 0) {
        path[i]?.inside.delete(name);
        return;
      }
    }
  }
}

function network<T>(): Network<T> {
  return { count: 0, inside: new Map(), work: [] };
}

function widestFirst({ networks }: Waiting): readonly string[] {
  return networks.toReversed();
}

/** The latest work of the network with most of it, level by level. */
function heaviest<T extends Waiting>(at: Network<T>): T {
  if (at.inside.size === 0) {
    const latest = at.work.at(-1);
    if (latest === undefined) throw new Error('A network without work was kept.');
    return latest;
  }
  const most = Math.max(...[...at.inside.values()].map(({ count }) => count));
  return [...at.inside.values()]
    .filter(({ count }) => count === most)
    .map(heaviest<T>)
    .reduce((worst, one) => (one.failures >= worst.failures ? one : worst));
}
