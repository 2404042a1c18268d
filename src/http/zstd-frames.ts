/**
 * Follows the frames of a Zstandard body (RFC 8878, 3.1) to know whether its end is one of a frame: the decoder of Node 22
 * takes a frame that is cut off for a whole one. Only the lengths are read. What is no frame, the decoder refuses.
 */

const MAGIC = 0;
const SKIPPED_LENGTH = 1;
const DESCRIPTOR = 2;
const BLOCK_HEADER = 3;
/** Bytes of each of these fields. */
const FIELD_BYTES = [4, 4, 1, 3] as const;

const FRAME_MAGIC = 0xfd2fb528;
/** The last four bits are free. */
const SKIPPABLE_MAGIC = 0x184d2a50;
const SKIPPABLE_BITS = 0xfffffff0;

const RLE_BLOCK = 1;
const CHECKSUM_BYTES = 4;
const DICTIONARY_BYTES = [0, 1, 2, 4] as const;

export class ZstdFrames {
  #field: 0 | 1 | 2 | 3 = MAGIC;
  /** What there is of the field: its value so far, little-endian, and its bytes. */
  #value = 0;
  #bytes = 0;
  /** Bytes to pass before the field begins. */
  #passing = 0;
  #hasChecksum = false;
  #hasBegun = false;

  /** Whether a frame ends with what has been pushed. */
  get isAtEnd(): boolean {
    return this.#hasBegun && this.#field === MAGIC && this.#bytes === 0 && this.#passing === 0;
  }

  push(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.#passing > 0) {
        const passed = Math.min(this.#passing, chunk.length - at);
        this.#passing -= passed;
        at += passed;
        continue;
      }
      this.#value += (chunk[at++] ?? 0) * 2 ** (8 * this.#bytes);
      this.#bytes += 1;
      if (this.#bytes === FIELD_BYTES[this.#field]) this.#endField(this.#value);
    }
  }

  #endField(value: number): void {
    this.#value = 0;
    this.#bytes = 0;
    switch (this.#field) {
      case MAGIC:
        this.#begin(value);
        break;
      case SKIPPED_LENGTH:
        this.#passing = value;
        this.#field = MAGIC;
        break;
      case DESCRIPTOR:
        this.#hasChecksum = (value & 4) !== 0;
        this.#passing = headerBytes(value);
        this.#field = BLOCK_HEADER;
        break;
      case BLOCK_HEADER:
        this.#passing = ((value >> 1) & 3) === RLE_BLOCK ? 1 : value >> 3;
        if ((value & 1) === 0) break;
        if (this.#hasChecksum) this.#passing += CHECKSUM_BYTES;
        this.#field = MAGIC;
    }
  }

  #begin(magic: number): void {
    this.#hasBegun = true;
    if (magic === FRAME_MAGIC) this.#field = DESCRIPTOR;
    else if ((magic & SKIPPABLE_BITS) === SKIPPABLE_MAGIC) this.#field = SKIPPED_LENGTH;
    else this.#passing = Number.POSITIVE_INFINITY;
  }
}

/** Bytes of a frame's header after its descriptor. */
function headerBytes(descriptor: number): number {
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const sizeFlag = descriptor >> 6;
  const window = isSingleSegment ? 0 : 1;
  const size = sizeFlag === 0 ? Number(isSingleSegment) : 2 ** sizeFlag;
  return window + (DICTIONARY_BYTES[descriptor & 3] ?? 0) + size;
}
