/** Exact sums of decimal numbers. */
import { parseDecimal } from '../../json/decimal.ts';

/** Digits before the decimal point of a number that is summed up. */
export const MOST_WHOLE_DIGITS = 30;
/** Digits after it. */
export const MOST_FRACTION_DIGITS = 60;

/** `units / 10^scale`. With no zero at the end of the units unless the scale is 0, so that each value has one form. */
export interface Decimal {
  readonly units: bigint;
  /** Not negative. */
  readonly scale: number;
}

const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;

/** Characters of a number whose digits a double holds exactly. */
const SAFE_LENGTH = 15;
/** The square of units up to this is at most {@link MOST_DOUBLE}. */
const MOST_SQUARED = 2 ** 26;
/** Short numbers are added as doubles, as long as their sum is below this. */
const MOST_DOUBLE = 2 ** 52;
const POWERS = Array.from({ length: SAFE_LENGTH }, (_, exponent) => Number(`1e${exponent}`));

/** A number that was read, in the form in which it is added. */
export class ReadNumber {
  /** What is not a short number without an exponent; null where {@link units} and {@link scale} say it. */
  big: Decimal | null = null;
  units = 0;
  scale = 0;
  /** The double that is next to it. */
  double = 0;

  /**
   * @param literal a number of JSON
   * @returns false where it has too many digits
   */
  read(literal: string): boolean {
    const isNegative = literal.charCodeAt(0) === MINUS;
    const length = literal.length <= SAFE_LENGTH ? literal.length : 0;
    let units = 0;
    let point = length - 1;
    let at = isNegative ? 1 : 0;
    for (; at < length; at += 1) {
      const code = literal.charCodeAt(at);
      if (code === POINT) point = at;
      else if (code < ZERO || code > ZERO + 9) break;
      else units = units * 10 + code - ZERO;
    }
    if (length > 0 && at === length) {
      this.big = null;
      this.units = isNegative ? -units : units;
      this.scale = length - 1 - point;
      // Both are exact, so that their quotient is rounded once.
      this.double = this.units / (POWERS[this.scale] ?? 1);
      return true;
    }
    this.big = decimalOf(literal);
    this.double = Number(literal);
    return this.big !== null;
  }
}

/** The number of few digits that is being added. */
const fewDigits = new ReadNumber();

/** Adds up numbers. Those of few digits cost no big integer each. */
export class DecimalSum {
  /** Sums of units by their scale. */
  readonly #doubles: number[] = [];
  #units = 0n;
  #scale = 0;

  add({ big, units, scale }: ReadNumber): void {
    if (big === null) this.#addDouble(units, scale);
    else this.#addBig(big);
  }

  addDecimal(decimal: Decimal): void {
    this.#addBig(decimal);
  }

  /** Adds what {@link decimalText} has written. */
  addText(text: string): void {
    if (text.length <= SAFE_LENGTH && fewDigits.read(text)) this.add(fewDigits);
    else this.#addBig(parseText(text));
  }

  /** Adds the square of a number. */
  addSquare({ big, units, scale }: ReadNumber): void {
    if (big === null && Math.abs(units) <= MOST_SQUARED) {
      this.#addDouble(units * units, 2 * scale);
      return;
    }
    const exact = big ?? { units: BigInt(units), scale };
    this.#addBig({ units: exact.units ** 2n, scale: 2 * exact.scale });
  }

  get value(): Decimal {
    for (const [scale, sum] of this.#doubles.entries()) if (sum) this.#addBig({ units: BigInt(sum), scale });
    this.#doubles.length = 0;
    const value = shortest(this.#units, this.#scale);
    this.#units = value.units;
    this.#scale = value.scale;
    return value;
  }

  #addDouble(units: number, scale: number): void {
    while (this.#doubles.length <= scale) this.#doubles.push(0);
    const sum = (this.#doubles[scale] ?? 0) + units;
    if (Math.abs(sum) < MOST_DOUBLE) {
      this.#doubles[scale] = sum;
    } else {
      this.#doubles[scale] = 0;
      this.#addBig({ units: BigInt(sum), scale });
    }
  }

  #addBig({ units, scale }: Decimal): void {
    if (scale > this.#scale) {
      this.#units *= 10n ** BigInt(scale - this.#scale);
      this.#scale = scale;
    }
    this.#units += units * 10n ** BigInt(this.#scale - scale);
  }
}

/** A number of JSON exactly; null where it has too many digits. */
export function decimalOf(literal: string): Decimal | null {
  const decimal = parseDecimal(literal);
  if (decimal === null) return null;
  const { sign, digits, exponent } = decimal;
  if (sign === 0) return { units: 0n, scale: 0 };
  if (typeof exponent === 'bigint' || exponent > MOST_WHOLE_DIGITS) return null;
  const scale = digits.length - exponent;
  if (scale > MOST_FRACTION_DIGITS) return null;
  const units = BigInt(sign === -1 ? `-${digits}` : digits);
  return scale >= 0 ? { units, scale } : { units: units * 10n ** BigInt(-scale), scale: 0 };
}

function shortest(units: bigint, scale: number): Decimal {
  let [short, places] = [units, scale];
  while (places > 0 && short % 10n === 0n) {
    short /= 10n;
    places -= 1;
  }
  return { units: short, scale: places };
}

/** Without an exponent, as JSON. */
export function decimalText({ units, scale }: Decimal): string {
  const minus = units < 0n ? '-' : '';
  const digits = String(units < 0n ? -units : units);
  if (scale === 0) return minus + digits;
  const padded = digits.padStart(scale + 1, '0');
  return `${minus}${padded.slice(0, -scale)}.${padded.slice(-scale)}`;
}

/** What {@link decimalText} has written, of any length. */
export function parseText(text: string): Decimal {
  const point = text.indexOf('.');
  if (point < 0) return { units: BigInt(text), scale: 0 };
  return { units: BigInt(text.slice(0, point) + text.slice(point + 1)), scale: text.length - point - 1 };
}

/** @returns less than, equal to or more than 0, as `a` is to `b` */
export function compare(a: Decimal, b: Decimal): number {
  const scale = Math.max(a.scale, b.scale);
  const difference = a.units * 10n ** BigInt(scale - a.scale) - b.units * 10n ** BigInt(scale - b.scale);
  return difference < 0n ? -1 : Number(difference > 0n);
}

/** More digits than a double holds. */
const QUOTIENT_DIGITS = 25;

/** A decimal divided by a whole number, as a double. */
export function quotient({ units, scale }: Decimal, divisor: bigint): number {
  const more = Math.max(0, QUOTIENT_DIGITS + String(divisor).length - String(units).length);
  const dividend = units * 10n ** BigInt(more);
  // A digit stands for what is cut off: it decides which of two doubles is nearer.
  const rest = dividend % divisor === 0n ? '0' : '1';
  return Number(`${dividend / divisor}${rest}e${-(scale + more + 1)}`);
}
