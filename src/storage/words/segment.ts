/** Makes a segment: the words of some events of an app and day, in order of time, by slices. */
import { TimeSlice } from '../../base/time-slice.ts';
import { eachWordOfPayload, HASH_BITS } from '../../json/words.ts';
import { encodePart, entryOf, type ListCode, listCodeOf, MOST_SLICES, partOfEntry } from './lists.ts';

/** Events of a segment. */
export const SEGMENT_EVENTS = 131_072;
/** Words of slices that are in memory at once, four bytes each. */
const MOST_ENTRIES = 8_000_000;
/** Entries between two looks at the clock: half a millisecond. */
const ENTRIES_AT_ONCE = 65_536;
/** A slice with more words is full: its payloads are large. */
const MOST_SLICE_WORDS = 65_536;

/** A segment as it is stored. */
export interface Segment extends ListCode {
  /** Milliseconds since 1970. */
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
  /** The slice in which a word was seen last, by its hash, from 1 on. */
  readonly #seen = new Uint16Array(2 ** HASH_BITS);
  #entries = new Uint32Array(1 << 16);
  #length = 0;
  #words = 0;
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
    if (this.#isSliceFull || (isApart && mayBegin))
      this.#times.push({ first: at, last: at, events: 0, words: 0 });
    const slice = this.#times.at(-1);
    if (slice === undefined) return;
    const number = this.#times.length;
    const before = this.#length;
    eachWordOfPayload(bytes, start, end, (hash) => {
      const seen = this.#seen[hash];
      if (seen === number) return;
      if (seen === 0) this.#words += 1;
      this.#seen[hash] = number;
      if (this.#length === this.#entries.length) this.#grow();
      this.#entries[this.#length] = entryOf(hash, number - 1);
      this.#length += 1;
    });
    slice.last = at;
    slice.events += 1;
    slice.words += this.#length - before;
    this.#events += 1;
  }

  #grow(): void {
    const larger = new Uint32Array(this.#length * 2);
    larger.set(this.#entries);
    this.#entries = larger;
  }

  /** Ends the segment, which has at least one event. Other work of the event loop comes between its parts. */
  async finish(turns = new TimeSlice()): Promise<Segment> {
    const code = listCodeOf(this.#length, this.#words);
    const groups = await this.#byPart(code, turns);
    const parts: { part: number; list: Buffer }[] = [];
    for (const [part, entries] of groups.entries()) {
      if (entries.length > 0) parts.push({ part, list: encodePart(entries.sort(), part, code) });
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

  /** The entries of each part, in no order. */
  async #byPart(code: ListCode, turns: TimeSlice): Promise<Uint32Array[]> {
    const entries = this.#entries.subarray(0, this.#length);
    const ends = new Uint32Array(2 ** code.partBits);
    const partAt = (index: number): number => partOfEntry(entries[index] ?? 0, code);
    for (let at = 0; at < entries.length; at += 1) {
      const part = partAt(at);
      ends[part] = (ends[part] ?? 0) + 1;
      if (at % ENTRIES_AT_ONCE === 0 && turns.isOver) await turns.next();
    }
    for (let part = 1; part < ends.length; part += 1) ends[part] = (ends[part] ?? 0) + (ends[part - 1] ?? 0);
    const sorted = new Uint32Array(entries.length);
    const begins = ends.slice();
    for (let at = entries.length - 1; at >= 0; at -= 1) {
      const part = partAt(at);
      const place = (begins[part] ?? 0) - 1;
      begins[part] = place;
      sorted[place] = entries[at] ?? 0;
      if (at % ENTRIES_AT_ONCE === 0 && turns.isOver) await turns.next();
    }
    return [...ends].map((end, part) => sorted.subarray(begins[part], end));
  }
}
