/** Closes connections whose peers read responses, or send the rest of refused bodies, too slowly. */

export interface SlowPeer {
  /** Bytes transferred over its connection in both directions, counted from any start. */
  readonly moved: () => number;
  /** Closes its connection, even if data is lost. */
  readonly cut: () => void;
}

/** Minimum rate of a peer, in bytes per second: the same as uWebSockets.js requires of senders. */
const MIN_RATE = 16_384;
/** Limit of the timeout, in milliseconds, while too many responses wait for slow readers. */
const CROWDED_TIMEOUT_MS = 10_000;

export class SlowPeers {
  readonly #timeoutMs: number;
  readonly #now: () => number;
  readonly #peers = new Map<SlowPeer, { since: number; moved: number }>();

  /**
   * @param timeoutMs milliseconds after which the rate of a peer is checked, repeatedly
   * @param now       milliseconds of a monotonic clock
   */
  constructor(timeoutMs: number, now: () => number) {
    this.#timeoutMs = timeoutMs;
    this.#now = now;
  }

  /** Starts to measure a peer. */
  add(peer: SlowPeer): void {
    this.#peers.set(peer, { since: this.#now(), moved: peer.moved() });
  }

  /** Stops measuring: the peer has read everything, or disconnected. */
  delete(peer: SlowPeer): void {
    this.#peers.delete(peer);
  }

  /**
   * Closes the connections of peers below the minimum rate.
   * @param isCrowded whether unsent responses exceed their limit
   */
  sweep(isCrowded: boolean): void {
    const now = this.#now();
    const timeoutMs = isCrowded ? Math.min(CROWDED_TIMEOUT_MS, this.#timeoutMs) : this.#timeoutMs;
    for (const [peer, { since, moved }] of this.#peers) {
      if (now - since < timeoutMs) continue;
      if (peer.moved() - moved >= (MIN_RATE * (now - since)) / 1_000) {
        this.add(peer);
      } else {
        this.#peers.delete(peer);
        peer.cut();
      }
    }
  }
}
