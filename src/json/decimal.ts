/** Numbers as JSON spells them, compared exactly: 20-digit integers, 0.1 and 1e400 are none of them what a float makes of them. */

/** The value `sign × 0.digits × 10^exponent`. Each value has one form. */
export interface Decimal {
  readonly sign: -1 | 0 | 1;
  /** Without zeros at either end; empty for zero. */
  readonly digits: string;
  /** A bigint where it may not fit into a number; infinite where it is longer than any that it is compared with. */
  readonly exponent: number | bigint;
}

const NUMBER = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?$/;

/** Digits of an exponent that a number holds exactly, with room for the shift by the length of a text. */
const SAFE_DIGITS = 15;
/** No filter is this long, so no exponent of this many digits equals one of a filter's. */
const MOST_DIGITS = 2_000;

/** @returns null for a text that is no number of JSON */
export function parseDecimal(text: string): Decimal | null {
  const [, minus, whole = '', fraction = '', exponentSign, exponentDigits = ''] = NUMBER.exec(text) ?? [];
  if (whole === '') return null;
  const all = whole + fraction;
  const first = firstDigit(all);
  if (first === all.length) return { sign: 0, digits: '', exponent: 0 };
  let end = all.length;
  while (all.charCodeAt(end - 1) === ZERO) end -= 1;
  const shift = whole.length - first;
  return {
    sign: minus === '-' ? -1 : 1,
    digits: all.slice(first, end),
    exponent: exponentOf(exponentDigits, exponentSign === '-', shift),
  };
}

const ZERO = 0x30;

/** Index of the first digit other than 0. */
function firstDigit(digits: string): number {
  let at = 0;
  while (digits.charCodeAt(at) === ZERO) at += 1;
  return at;
}

function exponentOf(written: string, isNegative: boolean, shift: number): number | bigint {
  const digits = written.slice(firstDigit(written));
  if (digits.length > MOST_DIGITS) return isNegative ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (digits.length <= SAFE_DIGITS) return (isNegative ? -1 : 1) * Number(digits) + shift;
  return BigInt(isNegative ? `-${digits}` : digits) + BigInt(shift);
}

/** @returns less than, equal to or more than 0, as `a` is to `b` */
export function compareDecimals(a: Decimal, b: Decimal): number {
  if (a.sign !== b.sign) return a.sign - b.sign;
  return a.sign * compareSizes(a, b);
}

function compareSizes(a: Decimal, b: Decimal): number {
  if (a.exponent < b.exponent) return -1;
  if (a.exponent > b.exponent) return 1;
  // Without zeros at the end a longer fraction is the larger one of two that begin alike, as texts are ordered.
  if (a.digits === b.digits) return 0;
  return a.digits < b.digits ? -1 : 1;
}
