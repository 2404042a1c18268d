/** Makes a segment: the words of some events of an app and day, in order of time, by slices. */
import { TimeSlice } from '../../base/time-slice.ts';
import { eachWordOfPayload, HASH_BITS } from '../../json/words.ts';
import { encodePart, entryOf, hashOf, type ListCode, listCodeOf, MOST_SLICES, partOf } from './lists.ts';

/** Events of a segment. */
export const SEGMENT_EVENTS = 131_072;
/** Words of slices that are in memory at once, four bytes each. */
const MOST_ENTRIES = 8_000_000;
/** Entries between two looks at the clock: half a millisecond. */
const ENTRIES_AT_ONCE = 65_536;
/** Words of a slice that are known not to be new, at most: those that were seen last. */
const RECENT = 4_096;
/** Entries are sorted by so many bits of their hashes at once. */
const SORTED_BITS = HASH_BITS / 2;
const DIGITS = 1 << SORTED_BITS;
/** A slice with more words is full: its payloads are large. */
const MOST_SLICE_WORDS = 65_536;

/** A segment as it is stored. */
export interface Segment extends ListCode {
  readonly start: number;
  readonly until: number;
  readonly events: number;
  readonly slices: number;
  /** First and last millisecond of each slice from the start on, as 32-bit integers. */
  readonly times: Buffer;
  /** The parts of its lists that have words. */
  readonly parts: readonly { readonly part: number; readonly list: Buffer }[];
}

export class SegmentBuilder {
  readonly #sliceEvents: number;
  /** Hashes of the slice's words, plus 1, by their last bits. */
  readonly #recent = new Uint32Array(RECENT);
  #entries = new Uint32Array(1 << 16);
  #length = 0;
  #events = 0;
  readonly #times: { first: number; last: number; events: number; words: number }[] = [];

  /** @param segmentEvents how many events it may have, in full slices */
  constructor(segmentEvents = SEGMENT_EVENTS) {
    this.#sliceEvents = Math.ceil(segmentEvents / MOST_SLICES);
  }

  /** Whether the next event belongs to another segment. */
  get isFull(): boolean {
    if (this.#length >= MOST_ENTRIES) return true;
    return this.#times.length === MOST_SLICES && this.#isSliceFull;
  }

  get events(): number {
    return this.#events;
  }

  get #isSliceFull(): boolean {
    const last = this.#times.at(-1);
    return last === undefined || last.events >= this.#sliceEvents || last.words >= MOST_SLICE_WORDS;
  }

  /** Adds an event. @param isApart whether others may lie between it and the one before */
  add(bytes: Buffer, start: number, end: number, at: number, isApart: boolean): void {
    const mayBegin = this.#times.length < MOST_SLICES;
    if (this.#isSliceFull || (isApart && mayBegin)) {
      this.#times.push({ first: at, last: at, events: 0, words: 0 });
      this.#recent.fill(0);
    }
    const slice = this.#times.at(-1);
    if (slice === undefined) return;
    const before = this.#length;
    eachWordOfPayload(bytes, start, end, this.#add);
    slice.last = at;
    slice.events += 1;
    slice.words += this.#length - before;
    this.#events += 1;
  }

  readonly #add = (hash: number): void => {
    const place = hash % RECENT;
    if (this.#recent[place] === hash + 1) return;
    this.#recent[place] = hash + 1;
    if (this.#length === this.#entries.length) this.#grow();
    this.#entries[this.#length] = entryOf(hash, this.#times.length - 1);
    this.#length += 1;
  };

  #grow(): void {
    const larger = new Uint32Array(this.#length * 2);
    larger.set(this.#entries);
    this.#entries = larger;
  }

  /** Ends the segment, which has at least one event. Other work of the event loop comes between its parts. */
  async finish(turns = new TimeSlice()): Promise<Segment> {
    // Those of a word are in the order of its slices to begin with.
    const entries = this.#entries.subarray(0, this.#length);
    const byEnd = new Uint32Array(entries.length);
    await sortBy(0, entries, byEnd, turns);
    await sortBy(SORTED_BITS, byEnd, entries, turns);
    let words = 0;
    await inParts(entries.length, turns, (from, until) => {
      words += wordsIn(entries, from, until);
    });
    const code = listCodeOf(entries.length, words);
    const parts: { part: number; list: Buffer }[] = [];
    for (let at = 0; at < entries.length; ) {
      const part = partOf(hashOf(entries[at] ?? 0), code);
      const end = endOfPart(entries, at, code);
      parts.push({ part, list: encodePart(entries.subarray(at, end), part, code) });
      at = end;
      if (turns.isOver) await turns.next();
    }
    const start = this.#times[0]?.first ?? 0;
    const times = Buffer.alloc(this.#times.length * 8);
    for (const [index, { first, last }] of this.#times.entries()) {
      times.writeUInt32BE(first - start, index * 8);
      times.writeUInt32BE(last - start, index * 8 + 4);
    }
    const until = (this.#times.at(-1)?.last ?? start) + 1;
    return { ...code, start, until, events: this.#events, slices: this.#times.length, times, parts };
  }
}

/** Runs a loop in parts, between which other work of the event loop comes. */
async function inParts(
  length: number,
  turns: TimeSlice,
  loop: (from: number, until: number) => void,
): Promise<void> {
  for (let from = 0; from < length; from += ENTRIES_AT_ONCE) {
    loop(from, Math.min(length, from + ENTRIES_AT_ONCE));
    if (turns.isOver) await turns.next();
  }
}

/** How many words begin among sorted entries. */
function wordsIn(entries: Uint32Array, from: number, until: number): number {
  let words = 0;
  let last = from === 0 ? -1 : hashOf(entries[from - 1] ?? 0);
  for (let at = from; at < until; at += 1) {
    const hash = hashOf(entries[at] ?? 0);
    if (hash !== last) words += 1;
    last = hash;
  }
  return words;
}

/** After the last of the sorted entries that are in the part of one. */
function endOfPart(entries: Uint32Array, from: number, code: ListCode): number {
  const part = partOf(hashOf(entries[from] ?? 0), code);
  let end = from + 1;
  while (end < entries.length && partOf(hashOf(entries[end] ?? 0), code) === part) end += 1;
  return end;
}

/**
 * Puts entries in order of some bits of their hashes, from one on (radix sort).
 * @param sorted takes them; those that are alike in these bits stay in their order
 */
async function sortBy(
  bit: number,
  entries: Uint32Array,
  sorted: Uint32Array,
  turns: TimeSlice,
): Promise<void> {
  const places = new Uint32Array(DIGITS + 1);
  await inParts(entries.length, turns, (from, until) => {
    for (let at = from; at < until; at += 1) {
      const after = digitOf(entries[at] ?? 0, bit) + 1;
      places[after] = (places[after] ?? 0) + 1;
    }
  });
  for (let digit = 1; digit <= DIGITS; digit += 1)
    places[digit] = (places[digit] ?? 0) + (places[digit - 1] ?? 0);
  await inParts(entries.length, turns, (from, until) => {
    for (let at = from; at < until; at += 1) {
      const entry = entries[at] ?? 0;
      const digit = digitOf(entry, bit);
      const place = places[digit] ?? 0;
      places[digit] = place + 1;
      sorted[place] = entry;
    }
  });
}

const digitOf = (entry: number, bit: number): number => (hashOf(entry) >>> bit) % DIGITS;
