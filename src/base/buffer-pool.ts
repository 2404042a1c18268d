/** Reusable buffers for bodies of requests and commit groups: allocations outside of the heap cause full garbage collections. */

/** The smallest size; sizes are powers of two. */
const MIN_BYTES = 256;
/** Limit of the memory of idle buffers. */
const MAX_IDLE_BYTES = 8 * 1_048_576;

/**
 * A pool of buffers.
 *
 * Give a buffer back only when nothing can read it any more: the next request writes into it. A buffer that is not given
 * back is garbage collected.
 */
export class BufferPool {
  /** Idle buffers by the logarithm of their size. */
  readonly #idle: Buffer[][] = [];
  #idleBytes = 0;

  /** @returns a buffer of at least this size, with unspecified content */
  take(bytes: number): Buffer {
    const size = sizeFor(bytes);
    const idle = this.#idle[Math.log2(size)]?.pop();
    if (idle === undefined) return Buffer.allocUnsafeSlow(size);
    this.#idleBytes -= size;
    return idle;
  }

  /** Returns a buffer of {@link take} to the pool. */
  giveBack(buffer: Buffer): void {
    if (this.#idleBytes + buffer.length > MAX_IDLE_BYTES) return;
    const level = Math.log2(buffer.length);
    this.#idle[level] ??= [];
    this.#idle[level].push(buffer);
    this.#idleBytes += buffer.length;
  }
}

function sizeFor(bytes: number): number {
  return Math.max(MIN_BYTES, 2 ** Math.ceil(Math.log2(bytes)));
}
