/** Keys of events in commit order, which are read for many pages at once, and kept for those that follow. */
import type { CopiedRows } from '../read/copied-rows.ts';
import { uuidAt } from '../write/copy-messages.ts';
import { timeOf } from './committed-events.ts';
import { type EventKey, encodePosition, type FeedPosition } from './position.ts';

const ID_BYTES = 16;

/** Keys that stay what they are: what is deleted is left out where payloads are read. */
export class KeyList {
  readonly length: number;
  readonly #ids: Buffer;
  readonly #seconds: Float64Array;
  readonly #micros: Uint32Array;
  /** The lower 32 bits of the transactions; 0 where the whole minute is read. */
  readonly #writers: Uint32Array;
  readonly #ticks: readonly string[];
  readonly #tickOf: Uint16Array;

  /**
   * @param rows   in commit order but for their ticks: `id`, `created_at`, the transaction or 0
   * @param ticks  in their order
   * @param tickOf which of the ticks the row is in that a cursor has come to; -1: in none, and it is left out
   * @param most   how many keys are wanted
   */
  constructor(
    rows: readonly CopiedRows[],
    ticks: readonly string[],
    tickOf: (row: CopiedRows) => number,
    most: number,
  ) {
    const found = rows.reduce((sum, { length }) => sum + length, 0);
    const ofRows = new Int32Array(found);
    const starts = new Uint32Array(ticks.length + 1);
    eachRow(rows, (row, index) => {
      const tick = tickOf(row);
      ofRows[index] = tick;
      if (tick >= 0) starts[tick + 1] = (starts[tick + 1] ?? 0) + 1;
    });
    for (let tick = 1; tick < starts.length; tick += 1)
      starts[tick] = (starts[tick] ?? 0) + (starts[tick - 1] ?? 0);
    const length = Math.min(most, starts[ticks.length] ?? 0);
    this.length = length;
    this.#ids = Buffer.allocUnsafeSlow(length * ID_BYTES);
    this.#seconds = new Float64Array(length);
    this.#micros = new Uint32Array(length);
    this.#writers = new Uint32Array(length);
    this.#ticks = ticks;
    this.#tickOf = new Uint16Array(length);
    eachRow(rows, (row, index) => {
      const tick = ofRows[index] ?? -1;
      if (tick < 0) return;
      const at = starts[tick] ?? 0;
      starts[tick] = at + 1;
      if (at >= length) return;
      for (let byte = 0; byte < ID_BYTES; byte += 1)
        this.#ids[at * ID_BYTES + byte] = row.bytes[row.idStart + byte] ?? 0;
      this.#seconds[at] = row.seconds;
      this.#micros[at] = row.micros;
      this.#writers[at] = row.xid;
      this.#tickOf[at] = tick;
    });
  }

  tickOf(index: number): string {
    return this.#ticks[this.#tickOf[index] ?? 0] ?? '';
  }

  /** How the position of the event says where it is. */
  byOf(index: number): EventKey['by'] {
    return this.#writers[index] || 'minute';
  }

  /** The position behind an event. */
  position(index: number): FeedPosition {
    const id = uuidAt(this.#ids, index * ID_BYTES);
    return { tick: this.tickOf(index), after: { by: this.byOf(index), createdAt: this.#timeOf(index), id } };
  }

  /** As PostgreSQL writes it. */
  #timeOf(index: number): string {
    return timeOf({ seconds: this.#seconds[index] ?? 0, micros: this.#micros[index] ?? 0 });
  }

  isOf(index: number, row: CopiedRows): boolean {
    for (let byte = 0; byte < ID_BYTES; byte += 1)
      if (this.#ids[index * ID_BYTES + byte] !== row.bytes[row.idStart + byte]) return false;
    return this.#seconds[index] === row.seconds && this.#micros[index] === row.micros;
  }

  /** The keys from one on, as what a statement has of them. The times are microseconds from `base` on. */
  literals(from: number, until: number): KeyLiterals {
    const [seconds, micros] = [this.#seconds[from] ?? 0, this.#micros[from] ?? 0];
    const offsets: number[] = [];
    let [first, last] = [0, 0];
    for (let index = from; index < until; index += 1) {
      const apart = (this.#seconds[index] ?? 0) - seconds;
      // Farther ones have no exact number of microseconds.
      if (Math.abs(apart) > MOST_APART_S) break;
      const offset = apart * 1e6 + (this.#micros[index] ?? 0) - micros;
      if (offset < (offsets[first] ?? 0)) first = offsets.length;
      if (offset > (offsets[last] ?? 0)) last = offsets.length;
      offsets.push(offset);
    }
    const end = from + offsets.length;
    const hex = this.#ids.toString('hex', from * ID_BYTES, end * ID_BYTES);
    return {
      until: end,
      ids: hex.replace(/.{32}(?=.)/g, '$&,'),
      base: this.#timeOf(from),
      offsets: offsets.join(),
      first: this.#timeOf(from + first),
      last: this.#timeOf(from + last),
    };
  }
}

interface KeyLiterals {
  readonly until: number;
  readonly ids: string;
  readonly base: string;
  readonly offsets: string;
  /** The earliest and the latest time. */
  readonly first: string;
  readonly last: string;
}

const MOST_APART_S = 2 ** 32;

function eachRow(parts: readonly CopiedRows[], work: (row: CopiedRows, index: number) => void): void {
  let index = 0;
  for (const rows of parts) {
    rows.rewind();
    while (rows.next()) {
      work(rows, index);
      index += 1;
    }
  }
}

/** Keys of events in commit order, from a position on. */
export interface Run {
  readonly keys: KeyList;
  /** The position behind everything that was looked for; null: there were more keys. */
  readonly beyond: FeedPosition | null;
  /** Whether there may be more behind it. */
  readonly hasMore: boolean;
}

/** What is left of a run. */
export interface RestOfRun {
  readonly run: Run;
  readonly from: number;
}

/** Keys that are kept, of all runs: about 36 bytes each. */
const MOST_KEPT = 150_000;

/** Keys that were read ahead, by the position that they follow. The longest unused go first. */
export class ReadAhead {
  readonly #kept = new Map<string, RestOfRun>();
  #keys = 0;
  /** How long the payloads of an app are on the average, as of its last page. */
  readonly usualBytes = new Map<number, number>();

  /** What follows a position, if it is known. */
  find(appId: number, position: FeedPosition): RestOfRun | null {
    const key = keyOf(appId, position);
    const kept = this.#kept.get(key);
    if (kept === undefined) return null;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept;
  }

  keep(appId: number, position: FeedPosition, kept: RestOfRun): void {
    const key = keyOf(appId, position);
    this.#forget(key);
    this.#kept.set(key, kept);
    this.#keys += kept.run.keys.length;
    for (const oldest of this.#kept.keys()) {
      if (this.#keys <= MOST_KEPT || oldest === key) return;
      this.#forget(oldest);
    }
  }

  /** A client that goes on does not come back to the position before. */
  forget(appId: number, position: FeedPosition): void {
    this.#forget(keyOf(appId, position));
  }

  #forget(key: string): void {
    const kept = this.#kept.get(key);
    if (kept === undefined) return;
    this.#kept.delete(key);
    this.#keys -= kept.run.keys.length;
  }
}

function keyOf(appId: number, position: FeedPosition): string {
  return `${appId} ${encodePosition(position)}`;
}
