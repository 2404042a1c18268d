/**
 * What is kept of the numbers of a field: their count, exact sum and sum of squares, minimum and maximum, and a sketch of their quantiles.
 * Summaries can be added in any order. As bytes they are added by concatenation, so that SQL adds them, too (string_agg).
 */
import { HISTOGRAM, isQuantile } from '../../base/measures.ts';
import { ownText } from '../../base/own-text.ts';
import { compare, type Decimal, DecimalSum, decimalOf, decimalText, ReadNumber } from './decimal-sum.ts';
import { Bins, binOf } from './sketch.ts';

/** Version of the bytes of a summary. */
const VERSION = 2;
/** The version before it, which has no squares; any other is not understood. */
const WITHOUT_SQUARES = 1;

/** A number with the double that is next to it. */
interface Extreme {
  readonly literal: string;
  readonly double: number;
}

/** Events that have no place in the statistics. */
export interface LeftOut {
  /** Events with several numbers: an array leads to the field. */
  readonly several: number;
  /** Events whose number has too many digits. */
  readonly unrepresentable: number;
}

/** Characters of a minimum or maximum that are kept as they are spelled. */
const MOST_KEPT = 100;

/** What of a summary is not needed for every statistic, and costs the most. */
export interface NumberParts {
  /** For the standard deviation. */
  readonly squares: boolean;
  /** For quantiles and histograms. */
  readonly bins: boolean;
}

const ALL_PARTS: NumberParts = { squares: true, bins: true };

/** What these statistics need. @param stats absent: all that there are */
export function partsFor(stats?: readonly string[]): NumberParts {
  if (stats === undefined) return ALL_PARTS;
  const bins = stats.some((stat) => stat === HISTOGRAM || isQuantile(stat));
  return { squares: stats.includes('stddev'), bins };
}

/** Where the bins of a summary are read to; each merges them at once. */
const [readBins, readCounts]: [number[], number[]] = [[], []];

/** The number that is being added. */
const number = new ReadNumber();

export class NumberSummary {
  readonly #hasBins: boolean;
  #count = 0;
  #several = 0;
  #unrepresentable = 0;
  readonly #sum = new DecimalSum();
  /** Null: some of the numbers were counted without them. */
  #squares: DecimalSum | null;
  #min: Extreme | null = null;
  #max: Extreme | null = null;
  readonly #bins = new Bins();

  /** @param parts what is kept: without squares they are not known, without bins there are none */
  constructor({ squares, bins }: NumberParts = ALL_PARTS) {
    this.#squares = squares ? new DecimalSum() : null;
    this.#hasBins = bins;
  }

  get count(): number {
    return this.#count;
  }
  get sum(): Decimal {
    return this.#sum.value;
  }
  /** The sum of the squares; null where it is not known of all numbers. */
  get squares(): Decimal | null {
    return this.#squares?.value ?? null;
  }
  /** As JSON, without an exponent; null where there are no numbers. */
  get min(): string | null {
    return this.#min && canonical(this.#min.literal);
  }
  get max(): string | null {
    return this.#max && canonical(this.#max.literal);
  }
  get bins(): Bins {
    return this.#bins;
  }
  get leftOut(): LeftOut {
    return { several: this.#several, unrepresentable: this.#unrepresentable };
  }

  /** @param literal a number of JSON */
  addNumber(literal: string): void {
    if (!number.read(literal)) {
      this.#unrepresentable += 1;
      return;
    }
    this.#count += 1;
    this.#sum.add(number);
    this.#squares?.addSquare(number);
    if (this.#hasBins) this.#bins.add(binOf(number.double), 1);
    this.#widen(literal, number.double);
  }

  /** Adds an event with several numbers. */
  addSeveral(): void {
    this.#several += 1;
  }

  add(other: NumberSummary): void {
    this.#count += other.#count;
    this.#several += other.#several;
    this.#unrepresentable += other.#unrepresentable;
    this.#sum.addDecimal(other.sum);
    this.#addSquares(other.squares);
    if (this.#hasBins) this.#bins.addBins(other.#bins);
    for (const extreme of [other.#min, other.#max])
      if (extreme !== null) this.#widen(extreme.literal, extreme.double);
  }

  /** Adds what {@link toBytes} gives, or several of these in a row. */
  addBytes(bytes: Uint8Array): void {
    for (const from = new Reader(bytes); !from.isAtEnd; ) {
      const version = from.byte();
      if (version !== VERSION && version !== WITHOUT_SQUARES)
        throw new Error('A summary of numbers is of an unknown version.');
      const count = from.integer();
      this.#count += count;
      this.#several += from.integer();
      this.#unrepresentable += from.integer();
      this.#sum.addText(from.text());
      const squares = version === VERSION ? from.text() : '';
      if (squares !== '') this.#squares?.addText(squares);
      else if (count > 0) this.#squares = null;
      for (const literal of [from.text(), from.text()])
        if (literal !== '') this.#widen(literal, Number(literal));
      const size = from.integer();
      if (!this.#hasBins) {
        from.passOver(2 * size);
        continue;
      }
      for (let [at, bin] = [0, 0]; at < size; at += 1) {
        bin += from.integer();
        readBins[at] = bin;
        readCounts[at] = from.integer();
      }
      this.#bins.addSorted(readBins, readCounts, size);
    }
  }

  /** Equal summaries have the same bytes. */
  toBytes(): Buffer {
    const into = new Bytes();
    into.byte(VERSION);
    for (const count of [this.#count, this.#several, this.#unrepresentable]) into.integer(count);
    into.text(decimalText(this.sum));
    into.text(this.squares === null ? '' : decimalText(this.squares));
    for (const extreme of [this.min, this.max]) into.text(extreme ?? '');
    into.integer(this.#bins.size);
    let last = 0;
    this.#bins.forEach((bin, count) => {
      into.integer(bin - last);
      into.integer(count);
      last = bin;
    });
    return into.done();
  }

  #addSquares(squares: Decimal | null): void {
    if (squares === null) this.#squares = null;
    else this.#squares?.addDecimal(squares);
  }

  #widen(literal: string, double: number): void {
    const isLeast = this.#min === null || isLess(literal, double, this.#min.literal, this.#min.double);
    const isMost = this.#max === null || isLess(this.#max.literal, this.#max.double, literal, double);
    if (!isLeast && !isMost) return;
    const extreme = { literal: kept(literal), double };
    if (isLeast) this.#min = extreme;
    if (isMost) this.#max = extreme;
  }
}

/** Doubles tell it, unless two numbers are next to the same one. */
function isLess(a: string, aDouble: number, b: string, bDouble: number): boolean {
  if (aDouble !== bDouble) return aDouble < bDouble;
  return a !== b && compare(exactly(a), exactly(b)) < 0;
}

function exactly(literal: string): Decimal {
  const decimal = decimalOf(literal);
  if (decimal === null) throw new Error('A number that was summed up is too long.');
  return decimal;
}

/** A number may be spelled with any number of zeros, and be part of a long text. */
function kept(literal: string): string {
  return literal.length > MOST_KEPT ? canonical(literal) : ownText(literal);
}

function canonical(literal: string): string {
  return decimalText(exactly(literal));
}

/** Seven bits of a byte, and the bit that says that more follow. */
const LOW = 128;

class Bytes {
  readonly #bytes: number[] = [];

  byte(value: number): void {
    this.#bytes.push(value);
  }

  /** A whole number that a double holds: its sign is in the lowest bit. */
  integer(value: number): void {
    let rest = value < 0 ? -2 * value - 1 : 2 * value;
    for (; rest >= LOW; rest = Math.floor(rest / LOW)) this.#bytes.push((rest % LOW) + LOW);
    this.#bytes.push(rest);
  }

  /** @param value of ASCII */
  text(value: string): void {
    this.integer(value.length);
    for (let at = 0; at < value.length; at += 1) this.#bytes.push(value.charCodeAt(at));
  }

  done(): Buffer {
    return Buffer.from(this.#bytes);
  }
}

function signed(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  byte(): number {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw new Error('A summary of numbers ends early.');
    this.#at += 1;
    return byte;
  }

  integer(): number {
    let byte = this.byte();
    // Most are of one byte.
    if (byte < LOW) return signed(byte);
    let value = byte % LOW;
    for (let factor = LOW; byte >= LOW; factor *= LOW) {
      byte = this.byte();
      value += (byte % LOW) * factor;
    }
    return signed(value);
  }

  /** Passes over so many integers. */
  passOver(integers: number): void {
    for (let left = integers; left > 0; ) if (this.byte() < LOW) left -= 1;
  }

  text(): string {
    let value = '';
    for (let left = this.integer(); left > 0; left -= 1) value += String.fromCharCode(this.byte());
    return value;
  }
}
