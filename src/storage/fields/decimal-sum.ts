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

/** Digits that a double holds exactly. */
const SAFE_DIGITS = 15;
/** Digits whose square a double holds exactly. */
const SQUARED_DIGITS = 7;
/** Numbers of so many digits are added as doubles, as long as their sum is below this. */
const MOST_DOUBLE = 2 ** 52;
const PLAIN = /^(-?)(\d+)(?:\.(\d+))?$/;

/** Adds up numbers. Those of few digits cost no big integer each. */
export class DecimalSum {
  /** Sums of units by their scale. */
  readonly #doubles: number[] = [];
  #units = 0n;
  #scale = 0;

  /**
   * @param literal a number of JSON
   * @returns whether it was added: a number of too many digits is not
   */
  add(literal: string): boolean {
    const [, minus, whole = '', fraction = ''] = (literal.length <= SAFE_DIGITS && PLAIN.exec(literal)) || [];
    if (whole !== '') {
      const units = Number(whole + fraction);
      this.#addDouble(minus === '-' ? -units : units, fraction.length);
      return true;
    }
    const decimal = decimalOf(literal);
    if (decimal === null) return false;
    this.#addBig(decimal);
    return true;
  }

  addDecimal(decimal: Decimal): void {
    this.#addBig(decimal);
  }

  /** Adds the square of a number that {@link add} takes. */
  addSquare(literal: string): void {
    const [, , whole = '', fraction = ''] = (literal.length <= SQUARED_DIGITS && PLAIN.exec(literal)) || [];
    if (whole !== '') {
      this.#addDouble(Number(whole + fraction) ** 2, 2 * fraction.length);
      return;
    }
    const decimal = decimalOf(literal);
    if (decimal !== null) this.#addBig({ units: decimal.units ** 2n, scale: 2 * decimal.scale });
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
