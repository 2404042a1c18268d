/** Reads an input of any size as numbered lines, in bounded memory. */
import { isUtf8 } from 'node:buffer';
import { otherForm } from '../../base/utf8.ts';
import { OperatorError } from '../../errors.ts';

export interface InputLine {
  /** From 1; blank lines count. */
  readonly number: number;
  /** The line without its line break; null if it cannot be read. */
  readonly text: string | null;
  /** Why the line cannot be read; empty if there is a text. */
  readonly problem: string;
}

const NEWLINE = 0x0a;
const EMPTY = Buffer.alloc(0);
const SPACE = 0x20;
const LAST_ASCII = 0x7f;
/** The bytes of U+FEFF, each as a character. */
const BYTE_ORDER_MARK = '\u00ef\u00bb\u00bf';

/** A cursor over some lines; before the first one to begin with. Blank lines are skipped. */
export class LineBlock implements InputLine {
  readonly bytes: Buffer;
  /** Each byte as a character, so that indexes are the same: scans of a text are faster than of bytes. */
  readonly characters: string;
  number: number;
  problem = '';
  /** Where the line begins and ends. */
  start = 0;
  end = 0;
  readonly #maxBytes: number;
  readonly #isTooLong: boolean;
  readonly #hasMarks: boolean;
  readonly #isUtf8: boolean;
  #next = 0;

  /**
   * @param bytes    lines without the last line break; null for one line that is too long
   * @param before   number of the line before
   * @param maxBytes a longer line has a problem
   * @param hasMarks whether each line may begin with a byte order mark, which joined files have
   */
  constructor(bytes: Buffer | null, before: number, maxBytes: number, hasMarks = false) {
    this.bytes = bytes ?? EMPTY;
    this.characters = this.bytes.toString('latin1');
    this.number = before;
    this.#maxBytes = maxBytes;
    this.#isTooLong = bytes === null;
    this.#hasMarks = hasMarks;
    this.#isUtf8 = isUtf8(this.bytes);
  }

  /** @returns false after the last line; {@link number} is then its number, blank or not */
  next(): boolean {
    for (;;) {
      this.start = this.#next;
      if (this.start > this.bytes.length) return false;
      const feed = this.characters.indexOf('\n', this.start);
      this.end = feed === -1 ? this.bytes.length : feed;
      this.#next = this.end + 1;
      this.number += 1;
      this.problem = this.#problem();
      if (this.problem !== '') return true;
      const mayHaveMark = this.#hasMarks || this.number === 1;
      if (mayHaveMark && this.characters.startsWith(BYTE_ORDER_MARK, this.start))
        this.start += BYTE_ORDER_MARK.length;
      if (!this.#isBlank()) return true;
    }
  }

  get text(): string | null {
    return this.problem === '' ? this.bytes.toString('utf8', this.start, this.end) : null;
  }

  #problem(): string {
    const { start, end } = this;
    if (this.#isTooLong || end - start > this.#maxBytes)
      return `it is longer than ${this.#maxBytes} bytes (MAX_BODY_BYTES)`;
    return this.#isUtf8 || isUtf8(this.bytes.subarray(start, end)) ? '' : 'it is not valid UTF-8';
  }

  #isBlank(): boolean {
    if (this.start === this.end) return true;
    const first = this.characters.charCodeAt(this.start);
    if (first > SPACE && first < LAST_ASCII) return false;
    return this.text?.trim() === '';
  }
}

/**
 * Reads lines in blocks, without a byte order mark at the start. A block is to be read to its end before the next one.
 * @param maxBytes a longer line has a problem instead of its text, and is never buffered as a whole
 * @param hasMarks whether the same goes for a byte order mark at the start of each line
 * @throws OperatorError where the input is compressed, or UTF-16
 */
export async function* readLines(
  source: AsyncIterable<Buffer>,
  maxBytes: number,
  hasMarks = false,
): AsyncGenerator<LineBlock> {
  let block: LineBlock | null = null;
  let held: Buffer[] = [];
  let heldBytes = 0;

  /** @param lines whole ones without the last line break, after what is held */
  const blockOf = (lines: Buffer): LineBlock => {
    const bytes = heldBytes === 0 ? lines : Buffer.concat([...held, lines]);
    block = new LineBlock(heldBytes > maxBytes ? null : bytes, block?.number ?? 0, maxBytes, hasMarks);
    held = [];
    heldBytes = 0;
    return block;
  };
  const hold = (part: Buffer): void => {
    heldBytes += part.length;
    if (heldBytes <= maxBytes) held.push(part);
    else held = [];
  };

  for await (const chunk of source) {
    const form = block === null && heldBytes === 0 ? otherForm(chunk) : null;
    if (form !== null)
      throw new OperatorError(
        `the file looks like ${form}: ${form === 'UTF-16' ? 'save it as UTF-8' : 'decompress it, and import what comes out, which may be piped (FILE is -)'}`,
      );
    let rest = chunk;
    if (heldBytes > 0) {
      // The line that is held ends by itself: it may be too long, and the others need not be copied.
      const end = rest.indexOf(NEWLINE);
      if (end === -1) {
        hold(rest);
        continue;
      }
      hold(rest.subarray(0, end));
      yield blockOf(EMPTY);
      rest = rest.subarray(end + 1);
    }
    const last = rest.lastIndexOf(NEWLINE);
    if (last !== -1) yield blockOf(rest.subarray(0, last));
    if (last + 1 < rest.length) hold(rest.subarray(last + 1));
  }
  if (heldBytes > 0) yield blockOf(EMPTY);
}
