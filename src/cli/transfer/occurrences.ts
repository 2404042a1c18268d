/** Numbers identical lines of one input: the first, the second and so on, exactly, in bounded memory. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const HOUR_MS = 3_600_000;
/** Two words of fingerprint and one that counts. */
const SLOT_WORDS = 3;
const FIRST_SLOTS = 64;

/** Fingerprints of one hour: a hash table with open addressing. */
interface Table {
  words: Uint32Array<ArrayBuffer>;
  used: number;
  /** When it was last asked for, in lines. */
  touched: number;
}

/**
 * Identical lines have the same time, so each hour of `createdAt` has a table of its own, at most 34 bytes a line. Where
 * all tables together pass the limit, those of hours that the input has left behind go into a temporary folder, and come
 * back if the input does: an input in order of time needs no more than the limit, and one in no order still has exact numbers.
 */
export class Occurrences {
  readonly #limitBytes: number;
  readonly #idleLines: number;
  readonly #tables = new Map<number, Table>();
  readonly #spilled = new Map<number, number>();
  #folder: string | null = null;
  #bytes = 0;
  #lines = 0;
  #nextSpill = 0;

  /**
   * @param options.limitBytes of all tables in memory
   * @param options.idleLines  an hour is left behind when this many lines were of others
   */
  constructor({ limitBytes = 128 * 1_048_576, idleLines = 1_000_000 } = {}) {
    this.#limitBytes = limitBytes;
    this.#idleLines = idleLines;
  }

  /** Bytes of the tables in memory. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * @param digest hexadecimal, of what makes lines identical; its last 16 digits are the fingerprint
   * @returns 1 for the first line with this digest
   */
  count(createdAt: number, digest: string): number {
    this.#lines += 1;
    const table = this.#table(Math.floor(createdAt / HOUR_MS));
    const high = Number.parseInt(digest.slice(-16, -8), 16);
    // No fingerprint is all zeros: that is an empty slot.
    const low = Number.parseInt(digest.slice(-8), 16) || 1;
    const at = slotOf(table.words, high, low);
    if (table.words[at + 1] === 0) {
      table.words[at] = high;
      table.words[at + 1] = low;
      table.used += 1;
    }
    const number = (table.words[at + 2] ?? 0) + 1;
    table.words[at + 2] = number;
    if (table.used * SLOT_WORDS * 4 > table.words.length * 3) this.#grow(table);
    return number;
  }

  close(): void {
    if (this.#folder !== null) rmSync(this.#folder, { recursive: true, force: true });
    this.#folder = null;
  }

  #table(hour: number): Table {
    let table = this.#tables.get(hour);
    if (table === undefined) {
      const used = this.#spilled.get(hour);
      const words = used === undefined ? new Uint32Array(FIRST_SLOTS * SLOT_WORDS) : this.#unspill(hour);
      table = { words, used: used ?? 0, touched: 0 };
      this.#tables.set(hour, table);
      this.#bytes += words.byteLength;
    }
    table.touched = this.#lines;
    if (this.#bytes > this.#limitBytes && this.#lines >= this.#nextSpill) this.#spill();
    return table;
  }

  #grow(table: Table): void {
    const old = table.words;
    const words = new Uint32Array(old.length * 2);
    for (let from = 0; from < old.length; from += SLOT_WORDS) {
      if (old[from + 1] === 0) continue;
      words.set(old.subarray(from, from + SLOT_WORDS), slotOf(words, old[from] ?? 0, old[from + 1] ?? 0));
    }
    table.words = words;
    this.#bytes += words.byteLength - old.byteLength;
  }

  #spill(): void {
    this.#folder ??= mkdtempSync(join(tmpdir(), 'tidemark-import-'));
    for (const [hour, { words, used, touched }] of this.#tables) {
      if (this.#lines - touched < this.#idleLines) continue;
      writeFileSync(join(this.#folder, String(hour)), words, { mode: 0o600 });
      this.#spilled.set(hour, used);
      this.#tables.delete(hour);
      this.#bytes -= words.byteLength;
    }
    // Where everything is in use, looking again at each line would be of no use.
    this.#nextSpill = this.#lines + Math.max(1, this.#idleLines / 10);
  }

  #unspill(hour: number): Uint32Array<ArrayBuffer> {
    const bytes = readFileSync(join(this.#folder ?? '', String(hour)));
    this.#spilled.delete(hour);
    const words = new Uint32Array(bytes.length / 4);
    new Uint8Array(words.buffer).set(bytes);
    return words;
  }
}

/** Index of the slot that holds the fingerprint, or of the empty one where it belongs. */
function slotOf(words: Uint32Array, high: number, low: number): number {
  const slots = words.length / SLOT_WORDS;
  let at = ((high ^ low) & (slots - 1)) * SLOT_WORDS;
  while (words[at + 1] !== 0 && (words[at] !== high || words[at + 1] !== low)) {
    at += SLOT_WORDS;
    if (at === words.length) at = 0;
  }
  return at;
}
