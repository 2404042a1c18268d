/** Peers that hardly take their answers, or hardly go on with bodies that were refused: how long they are waited for. */

export interface SlowPeer {
  /** Bytes that have gone over its connection, either way, from whatever beginning. */
  readonly moved: () => number;
  /** Ends its connection, whatever is lost by that. */
  readonly cut: () => void;
}

/** What a peer must move within its window, in bytes a second. The same as uWebSockets.js asks of senders. */
const LEAST_RATE = 16_384;
/** While there is no room for further answers, no window is longer, in milliseconds. */
const CROWDED_MS = 10_000;

interface Window {
  readonly since: number;
  readonly moved: number;
}

export class SlowPeers {
  readonly #windowMs: number;
  readonly #now: () => number;
  readonly #peers = new Map<SlowPeer, Window>();

  /**
   * @param windowMs how long a peer is waited for before its rate is looked at, again and again, in milliseconds
   * @param now      milliseconds of a monotonic clock
   */
  constructor(windowMs: number, now: () => number) {
    this.#windowMs = windowMs;
    this.#now = now;
  }

  /** Begins to wait for a peer. */
  add(peer: SlowPeer): void {
    this.#peers.set(peer, { since: this.#now(), moved: peer.moved() });
  }

  /** It has taken everything, or is gone. */
  delete(peer: SlowPeer): void {
    this.#peers.delete(peer);
  }

  /**
   * Ends the connections of those that moved too little in their window.
   * @param isCrowded true while unsent answers are beyond their ceiling
   */
  sweep(isCrowded: boolean): void {
    const now = this.#now();
    const windowMs = isCrowded ? Math.min(CROWDED_MS, this.#windowMs) : this.#windowMs;
    for (const [peer, { since, moved }] of this.#peers) {
      if (now - since < windowMs) continue;
      if (peer.moved() - moved >= (LEAST_RATE * (now - since)) / 1_000) {
        this.add(peer);
      } else {
        this.#peers.delete(peer);
        peer.cut();
      }
    }
  }
}
