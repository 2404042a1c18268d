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

/** The hash of the word of an entry. */
export const hashOf = (entry: number): number => entry >>> SLICE_BITS;

/** Most bits that are written at once: with those of a byte that is not whole they fit an integer. */
const MOST_BITS = 24;

class BitWriter {
  #bytes = new Uint8Array(2 * PART_BYTES);
  #at = 0;
  /** The last bits are not in a byte yet. */
  #held = 0;
  #heldBits = 0;

  /** @param value of which the last bits count */
  bits(value: number, count: number): void {
    if (count > MOST_BITS) {
      this.bits(value >>> MOST_BITS, count - MOST_BITS);
      this.bits(value, MOST_BITS);
      return;
    }
    this.#held = (this.#held << count) | (value & ((1 << count) - 1));
    this.#heldBits += count;
    if (this.#at + 4 > this.#bytes.length) this.#grow();
    for (; this.#heldBits >= 8; this.#at += 1) {
      this.#heldBits -= 8;
      this.#bytes[this.#at] = this.#held >>> this.#heldBits;
    }
  }

  /** A number from 1 on, in few bits where it is small (Elias gamma). */
  gamma(value: number): void {
    const more = 31 - Math.clz32(value);
    this.bits(0, more);
    this.bits(value, more + 1);
  }

  rice(value: number, bits: number): void {
    let left = value >>> bits;
    for (; left > 7; left -= 8) this.bits(0xff, 8);
    this.bits((1 << (left + 1)) - 2, left + 1);
    this.bits(value, bits);
  }

  /** What has been written, filled up with zeros to a whole byte. */
  get whole(): Buffer {
    if (this.#heldBits > 0) this.bits(0, 8 - this.#heldBits);
    return Buffer.from(this.#bytes.buffer, 0, this.#at);
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

/** Bits of the distance between two of so many slices, of at least two, that are written as they are. */
const sliceRice = (count: number): number => Math.max(0, SLICE_BITS - 33 + Math.clz32(count - 1));

/**
 * Codes the words of a part.
 * @param entries of {@link entryOf}, in order; those that are there twice count once
 * @param part    its number
 */
export function encodePart(entries: Uint32Array, part: number, { partBits, rice }: ListCode): Buffer {
  const writer = new BitWriter();
  let words = 0;
  writer.bits(0, WORDS_BITS);
  let before = part * 2 ** (HASH_BITS - partBits) - 1;
  for (let at = 0; at < entries.length; ) {
    const hash = (entries[at] ?? 0) >>> SLICE_BITS;
    let end = at + 1;
    while (end < entries.length && (entries[end] ?? 0) >>> SLICE_BITS === hash) end += 1;
    words += 1;
    writer.rice(hash - before - 1, rice);
    before = hash;
    let count = 1;
    for (let own = at + 1; own < end; own += 1) if (entries[own] !== entries[own - 1]) count += 1;
    writer.gamma(Math.min(count, MOST_LISTED + 1));
    if (count > MOST_LISTED) {
      let groups = 0;
      for (; at < end; at += 1) groups |= 1 << Math.floor(((entries[at] ?? 0) & SLICE_MASK) / GROUP_SLICES);
      writer.bits(groups, GROUPS);
    } else if (count === 1) {
      writer.bits(entries[at] ?? 0, SLICE_BITS);
      at = end;
    } else {
      const bits = sliceRice(count);
      for (let slice = -1; at < end; at += 1) {
        const next = (entries[at] ?? 0) & SLICE_MASK;
        if (next === slice) continue;
        writer.rice(next - slice - 1, bits);
        slice = next;
      }
    }
  }
  const { whole } = writer;
  whole.writeUIntBE(words, 0, WORDS_BITS / 8);
  return whole;
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
