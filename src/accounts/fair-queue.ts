/**
 * A bounded queue for expensive work that unauthenticated clients can request, shared fairly by network.
 *
 * Turns are round robin: first between the widest networks with waiting work, then between the networks inside one, then
 * in order of arrival. When the queue is full, the latest work of the network with most of it is evicted. A network's
 * share shrinks as others arrive, and a client alone in its network always gets a place.
 */

/** Queued work. */
export interface Waiting {
  /** The client's networks, the narrowest first. */
  readonly networks: readonly string[];
  /** Recent failed attempts of the client. Between equal shares, the client with fewer keeps its place. */
  readonly failures: number;
}

/** A network with waiting work, and the networks inside it. */
interface Network<T> {
  count: number;
  /** By name, in order of turns. Empty in the narrowest networks. */
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
   * @returns the work that is evicted for it, which may be the added one; null if there was room
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

  /** Takes the work whose turn it is; null if none waits. */
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

  /** Number of works waiting in the widest network of this one. */
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
    if (latest === undefined) throw new Error('fair queue holds a network without work');
    return latest;
  }
  const most = Math.max(...[...at.inside.values()].map(({ count }) => count));
  return [...at.inside.values()]
    .filter(({ count }) => count === most)
    .map(heaviest<T>)
    .reduce((worst, one) => (one.failures >= worst.failures ? one : worst));
}
