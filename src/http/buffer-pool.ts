/** Memory for bodies that come in pieces, used again and again: what is allocated outside of the heap makes V8 collect it all. */

/** Sizes are powers of two from this one on. */
const LEAST_BYTES = 256;
/** Memory that waits to be used again takes at most this much. */
const MAX_IDLE_BYTES = 8 * 1_048_576;

/**
 * Buffers to be used again.
 *
 * Whoever takes one gives it back only when nothing else can still read it: the next request writes into it. One that is
 * not given back is collected like any other.
 */
export class BufferPool {
  /** Idle buffers by the logarithm of their size. */
  readonly #idle: Buffer[][] = [];
  #idleBytes = 0;

  /** Bytes of the buffers that wait to be used again. */
  get idleBytes(): number {
    return this.#idleBytes;
  }

  /** @returns a buffer of at least so many bytes, with whatever was in it */
  take(bytes: number): Buffer {
    const size = sizeFor(bytes);
    const idle = this.#idle[Math.log2(size)]?.pop();
    if (idle === undefined) return Buffer.allocUnsafeSlow(size);
    this.#idleBytes -= size;
    return idle;
  }

  /** Takes a buffer of {@link take} back. */
  giveBack(buffer: Buffer): void {
    if (this.#idleBytes + buffer.length > MAX_IDLE_BYTES) return;
    const level = Math.log2(buffer.length);
    this.#idle[level] ??= [];
    this.#idle[level].push(buffer);
    this.#idleBytes += buffer.length;
  }
}

function sizeFor(bytes: number): number {
  return Math.max(LEAST_BYTES, 2 ** Math.ceil(Math.log2(bytes)));
}
