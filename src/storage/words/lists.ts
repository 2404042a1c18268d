/**
 * Lists of the words of a segment: for each word, by its hash, the slices that have it. They are sorted by hash, which is coded by its
 * distance from the one before (Rice); a word in one slice takes some 15 bits. A part has the hashes with the same first bits.
 */
import { HASH_BITS } from '../../json/words.ts';

/** Slices of a segment. */
export const MOST_SLICES = 1_024;
const SLICE_BITS = 10;
const SLICE_MASK = MOST_SLICES - 1;
/** A word in more slices than these has a bit for each group of slices. */
const MOST_LISTED = 384;
const GROUPS = 32;
const GROUP_SLICES = MOST_SLICES / GROUPS;
/** Bytes of a part, about: a row of a table. */
const PART_BYTES = 1_024;
/** Bytes that a word of a slice takes, about. */
const ENTRY_BYTES = 1.6;

/** How the lists of a segment are coded. */
export interface ListCode {
  readonly partBits: number;
  /** Bits of a distance that are written as they are. */
  readonly rice: number;
}

/** @param entries words of slices @param words different ones */
export function listCodeOf(entries: number, words: number): ListCode {
  const partBits = Math.max(0, Math.round(Math.log2((entries * ENTRY_BYTES) / PART_BYTES)));
  const rice = Math.max(0, Math.floor(Math.log2((0.69 * 2 ** HASH_BITS) / Math.max(1, words))));
  return { partBits: Math.min(partBits, HASH_BITS), rice: Math.min(rice, HASH_BITS) };
}

export const partOf = (hash: number, { partBits }: Pick<ListCode, 'partBits'>): number =>
  hash >>> (HASH_BITS - partBits);

/** A word of a slice, as a number: sorted by hash, then by slice. */
export const entryOf = (hash: number, slice: number): number => (hash << SLICE_BITS) | slice;

/** The part of an entry. */
export const partOfEntry = (entry: number, code: Pick<ListCode, 'partBits'>): number =>
  partOf(entry >>> SLICE_BITS, code);

class BitWriter {
  #bytes = new Uint8Array(4_096);
  #at = 0;

  /** @param value of which the last bits count */
  bits(value: number, count: number): void {
    for (let left = count; left > 0; ) {
      const byte = this.#at >> 3;
      if (byte === this.#bytes.length) this.#grow();
      const free = 8 - (this.#at & 7);
      const taken = Math.min(free, left);
      left -= taken;
      const some = (value >>> left) & ((1 << taken) - 1);
      this.#bytes[byte] = (this.#bytes[byte] ?? 0) | (some << (free - taken));
      this.#at += taken;
    }
  }

  /** A number from 1 on, in few bits where it is small (Elias gamma). */
  gamma(value: number): void {
    const more = 31 - Math.clz32(value);
    this.bits(0, more);
    this.bits(value, more + 1);
  }

  rice(value: number, bits: number): void {
    for (let left = value >>> bits; left > 0; left -= 1) this.bits(1, 1);
    this.bits(0, 1);
    this.bits(value, bits);
  }

  get whole(): Buffer {
    return Buffer.from(this.#bytes.subarray(0, (this.#at + 7) >> 3));
  }

  #grow(): void {
    const larger = new Uint8Array(this.#bytes.length * 2);
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}

class BitReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  bits(count: number): number {
    let value = 0;
    for (let left = count; left > 0; left -= 1) value = (value << 1) | this.#bit();
    return value;
  }

  gamma(): number {
    let more = 0;
    while (this.#bit() === 0) more += 1;
    return (1 << more) | this.bits(more);
  }

  rice(bits: number): number {
    let high = 0;
    while (this.#bit() === 1) high += 1;
    return (high << bits) | this.bits(bits);
  }

  #bit(): number {
    const byte = this.#bytes[this.#at >> 3];
    if (byte === undefined) throw new Error('A list of words ends too early.');
    const bit = (byte >> (7 - (this.#at & 7))) & 1;
    this.#at += 1;
    return bit;
  }
}

const WORDS_BITS = 24;

/** Bits of the distance between two of so many slices that are written as they are. */
const sliceRice = (count: number): number => Math.max(0, SLICE_BITS - Math.ceil(Math.log2(count)) - 1);

/**
 * Codes the words of a part.
 * @param entries of {@link entryOf}, in order, each once
 * @param part    its number
 */
export function encodePart(entries: Uint32Array, part: number, { partBits, rice }: ListCode): Buffer {
  const writer = new BitWriter();
  let words = 0;
  let last = -1;
  for (const entry of entries) {
    const hash = entry >>> SLICE_BITS;
    if (hash !== last) words += 1;
    last = hash;
  }
  writer.bits(words, WORDS_BITS);
  let before = part * 2 ** (HASH_BITS - partBits) - 1;
  for (let at = 0; at < entries.length; ) {
    const hash = (entries[at] ?? 0) >>> SLICE_BITS;
    let end = at;
    while (end < entries.length && (entries[end] ?? 0) >>> SLICE_BITS === hash) end += 1;
    writer.rice(hash - before - 1, rice);
    before = hash;
    const count = end - at;
    writer.gamma(Math.min(count, MOST_LISTED + 1));
    if (count > MOST_LISTED) {
      let groups = 0;
      for (; at < end; at += 1) groups |= 1 << Math.floor(((entries[at] ?? 0) & SLICE_MASK) / GROUP_SLICES);
      writer.bits(groups, GROUPS);
    } else {
      const bits = sliceRice(count);
      for (let slice = -1; at < end; at += 1) {
        const next = (entries[at] ?? 0) & SLICE_MASK;
        if (slice === -1 && count === 1) writer.bits(next, SLICE_BITS);
        else writer.rice(next - slice - 1, bits);
        slice = next;
      }
    }
  }
  return writer.whole;
}

/** The slices that may have a word: those of a part of lists. */
export function slicesIn(list: Uint8Array, hash: number, { partBits, rice }: ListCode): number[] {
  const reader = new BitReader(list);
  let known = partOf(hash, { partBits }) * 2 ** (HASH_BITS - partBits) - 1;
  for (let left = reader.bits(WORDS_BITS); left > 0; left -= 1) {
    known += reader.rice(rice) + 1;
    if (known > hash) return [];
    const count = reader.gamma();
    const slices: number[] = [];
    if (count > MOST_LISTED) {
      const groups = reader.bits(GROUPS);
      for (let slice = 0; slice < MOST_SLICES; slice += 1)
        if (((groups >>> Math.floor(slice / GROUP_SLICES)) & 1) === 1) slices.push(slice);
    } else if (count === 1) {
      slices.push(reader.bits(SLICE_BITS));
    } else {
      const bits = sliceRice(count);
      for (let slice = -1; slices.length < count; slices.push(slice)) slice += reader.rice(bits) + 1;
    }
    if (known === hash) return slices;
  }
  return [];
}
