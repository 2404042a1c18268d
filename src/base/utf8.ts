/** Bytes of a body to text, and the place of those that are no UTF-8. */
import { isAscii, isUtf8, transcode } from 'node:buffer';
import { Rejection } from '../errors.ts';
import { atOnce } from './time-slice.ts';

export const BOM = 0xfeff;
const BOM_BYTES = 3;
const HAS_BOM = new Rejection('invalidBody', 'The body starts with a byte order mark.');
/** From this many bytes on, `transcode` and a UTF-16 `toString` are together faster than a UTF-8 `toString`. */
const TRANSCODED_BYTES = 512;
/** Bytes of a damaged body that are decoded at a time. */
const BLOCK_BYTES = 4_096;
/** A byte that is no UTF-8 becomes a low surrogate alone, which no UTF-8 has: this one and the byte (as in Python's PEP 383). */
const BROKEN = 0xdc00;
const ALONE = /\p{Surrogate}/u;

/** A text of a body, and where it has bytes that are no UTF-8; null where it has none. */
export interface Decoded {
  readonly text: string;
  readonly damage: Damage | null;
}

/** Bytes to text: refuses what is not UTF-8. @param mark what becomes of a byte order mark at the start */
export function decode(bytes: Buffer, mark: 'skipped' | 'refused' = 'skipped'): string | Rejection {
  const text = wellFormed(bytes);
  if (text === null) {
    const { text: damaged, damage } = atOnce(decoded(bytes));
    return damage?.in(0, damaged.length, 'The body') ?? damaged;
  }
  if (text.charCodeAt(0) !== BOM) return text;
  return mark === 'refused' ? HAS_BOM : text.slice(1);
}

/**
 * Bytes to text, also where some of them are no UTF-8; yields where it may pause.
 * @param firstLine number of the line with which the bytes begin
 */
export function* decoded(bytes: string | Buffer, firstLine = 1): Generator<undefined, Decoded> {
  const whole = typeof bytes === 'string' ? bytes : wellFormed(bytes);
  let text = whole ?? '';
  for (let at = 0; whole === null && at < bytes.length; yield) {
    const block = blockAt(bytes as Buffer, at);
    text += isUtf8(block) ? block.toString('utf8') : escaped(block);
    at += block.length;
  }
  const skipped = text.charCodeAt(0) === BOM ? 1 : 0;
  if (skipped > 0) text = text.slice(skipped);
  return { text, damage: whole === null ? new Damage(text, firstLine, skipped * BOM_BYTES) : null };
}

/** What bytes are in place of text in UTF-8, as the first of them say; null: nothing that is known by its beginning. */
export function otherForm(bytes: Buffer): 'gzip' | 'zstd' | 'UTF-16' | null {
  if (bytes.length < 2) return null;
  const first = bytes.readUInt16BE(0);
  if (first === 0x1f8b) return 'gzip';
  if (first === 0xfffe || first === 0xfeff) return 'UTF-16';
  return bytes.length >= 4 && bytes.readUInt32BE(0) === 0x28b52ffd ? 'zstd' : null;
}

/**
 * The refusal of a body that is compressed and has no Content-Encoding, or is UTF-16; null for any other.
 * @param taken the encodings that the route takes
 */
export function unnamedEncoding(bytes: Buffer, taken: readonly string[] = []): Rejection | null {
  const form = otherForm(bytes);
  if (form === null) return null;
  const advice = taken.includes(form) ? `send Content-Encoding: ${form}` : 'send it without compression';
  return new Rejection(
    'invalidBody',
    `The body looks like ${form}: ${form === 'UTF-16' ? 'send it as UTF-8' : advice}.`,
  );
}

function wellFormed(bytes: Buffer): string | null {
  // Text of one byte a character is scanned faster.
  if (isAscii(bytes)) return bytes.toString('latin1');
  if (!isUtf8(bytes)) return null;
  return bytes.length < TRANSCODED_BYTES
    ? bytes.toString('utf8')
    : transcode(bytes, 'utf8', 'utf16le').toString('utf16le');
}

/** A few bytes that end where a character does, if they are UTF-8. */
function blockAt(bytes: Buffer, start: number): Buffer {
  let end = Math.min(start + BLOCK_BYTES, bytes.length);
  for (let back = 0; back < 3 && end < bytes.length && isContinuation(bytes[end]); back += 1) end -= 1;
  return bytes.subarray(start, end);
}

function escaped(block: Buffer): string {
  let text = '';
  for (let at = 0; at < block.length; ) {
    const length = characterLength(block, at);
    text +=
      length === 0
        ? String.fromCharCode(BROKEN + (block[at] as number))
        : length === 1
          ? String.fromCharCode(block[at] as number)
          : block.toString('utf8', at, at + length);
    at += Math.max(1, length);
  }
  return text;
}

/** Bytes of the character at an index; 0 where none begins (The Unicode Standard, table 3-7). */
function characterLength(bytes: Buffer, at: number): number {
  const first = bytes[at] as number;
  if (first < 0x80) return 1;
  const second = bytes[at + 1];
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || !isContinuation(second)) return 0;
  // The cast: only a number is a continuation.
  const next = second as number;
  if ((first === 0xe0 && next < 0xa0) || (first === 0xed && next > 0x9f)) return 0;
  if ((first === 0xf0 && next < 0x90) || (first === 0xf4 && next > 0x8f)) return 0;
  for (let more = 2; more < length; more += 1) if (!isContinuation(bytes[at + more])) return 0;
  return length;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Whether a character stands for a byte that is no UTF-8. */
export function isBroken(code: number): boolean {
  return code >= BROKEN + 0x80 && code <= BROKEN + 0xff;
}

/** Where the characters of a text are in its bytes. It goes on from the last place: those that follow in order cost one pass. */
export class Places {
  readonly #text: string;
  readonly #first: { readonly line: number; readonly byte: number };
  #at = 0;
  #line: number;
  /** Bytes of the line before {@link #at}. */
  #byte: number;

  /** @param skipped bytes before the text */
  constructor(text: string, firstLine = 1, skipped = 0) {
    this.#text = text;
    this.#first = { line: firstLine, byte: skipped };
    this.#line = firstLine;
    this.#byte = skipped;
  }

  /** Line and byte, both from 1 on. */
  of(index: number): { readonly line: number; readonly byte: number } {
    if (index < this.#at) {
      this.#at = 0;
      this.#line = this.#first.line;
      this.#byte = this.#first.byte;
    }
    // Only what was not passed before is looked at: each of the events of a long line may ask.
    const passed = this.#text.slice(this.#at, index);
    const start = passed.lastIndexOf('\n') + 1;
    if (start > 0) this.#byte = 0;
    this.#line += countLines(passed.slice(0, start));
    const rest = passed.slice(start);
    this.#byte += Buffer.byteLength(rest);
    // A broken byte counts as three, like the character in its place.
    for (const _ of rest.matchAll(EACH_ALONE)) this.#byte -= 2;
    this.#at = index;
    return { line: this.#line, byte: this.#byte + 1 };
  }
}

const EACH_ALONE = /\p{Surrogate}/gu;

/** Line feeds of a text. */
export function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}

/** The bytes of a text that are no UTF-8. */
export class Damage {
  readonly #text: string;
  readonly places: Places;

  constructor(text: string, firstLine: number, skipped: number) {
    this.#text = text;
    this.places = new Places(text, firstLine, skipped);
  }

  /** The refusal of a part of the text; null where all of it is UTF-8. @param what it is, such as "The line" */
  in(start: number, end: number, what: string): Rejection | null {
    const index = this.#text.slice(start, end).search(ALONE);
    if (index < 0) return null;
    const value = this.#text.charCodeAt(start + index) - BROKEN;
    const { line, byte } = this.places.of(start + index);
    return new Rejection(
      'invalidBody',
      `${what} is not valid UTF-8: 0x${value.toString(16).toUpperCase()} at line ${line}, byte ${byte}.`,
    );
  }
}
