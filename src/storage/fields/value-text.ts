/**
 * The one text of each value of a field: values are equal where these texts are. It is JSON: the strings "DE" and
 * "\u0044E" both have the text `"DE"`, the numbers 1, 1.0 and 1e0 have `1`.
 */
import { type Decimal, parseDecimal } from '../../json/decimal.ts';

/** Most characters (UTF-16 units) of a string, or of a number's text, that is counted by itself. */
export const MAX_VALUE_LENGTH = 200;

/** In place of a value: one that is too long, or beyond the number of values that are counted separately. Not JSON. */
export const OTHER = 'other';
/** In place of a value, where an event has several different ones: an array leads to it. Not JSON. */
export const MANY = 'many';
/** In place of a value: what is counted are the numbers of a field. Not JSON. */
export const NUMBERS = 'number';
/** In place of a value: what is counted are the different values of a field. Not JSON. */
export const DISTINCT = 'distinct';
/** In place of one value of a pair: the event has none at its path. Not JSON. */
export const NONE = 'none';

/** Integers of so many characters are their own text. */
const PLAIN_LENGTH = 15;
const PLAIN_INTEGER = /^(?:0|-?[1-9]\d*)$/;
/** Numbers are spelled without an exponent up to so many digits before the point, and zeros after it. */
const MOST_WHOLE = 21;
const MOST_ZEROS = 6;

/**
 * @param literal the string as JSON, with its quotes; raw: as a payload's text has it
 * @returns {@link OTHER} where it is too long
 */
export function stringValue(literal: string): string {
  if (!literal.includes('\\')) return literal.length - 2 > MAX_VALUE_LENGTH ? OTHER : literal;
  const text: unknown = JSON.parse(literal);
  return typeof text === 'string' ? valueOfString(text) : OTHER;
}

/** The value text of a string. */
export function valueOfString(text: string): string {
  // Well-formed: lone surrogates and NUL, which PostgreSQL's texts do not take, stay escapes.
  return text.length > MAX_VALUE_LENGTH ? OTHER : JSON.stringify(text);
}

/** @param literal a number, true, false or null, as JSON has it */
export function scalarValue(literal: string): string {
  if (literal.length <= PLAIN_LENGTH && PLAIN_INTEGER.test(literal)) return literal;
  const decimal = parseDecimal(literal);
  if (decimal === null) return literal;
  const text = spell(decimal);
  return text.length > MAX_VALUE_LENGTH ? OTHER : text;
}

function spell({ sign, digits, exponent }: Decimal): string {
  if (sign === 0) return '0';
  const minus = sign === -1 ? '-' : '';
  if (typeof exponent === 'number') {
    if (exponent >= digits.length && exponent <= MOST_WHOLE)
      return minus + digits + '0'.repeat(exponent - digits.length);
    if (exponent > 0 && exponent < digits.length)
      return `${minus}${digits.slice(0, exponent)}.${digits.slice(exponent)}`;
    if (exponent <= 0 && exponent >= -MOST_ZEROS) return `${minus}0.${'0'.repeat(-exponent)}${digits}`;
    // An exponent beyond the range of numbers: such values are counted together.
    if (!Number.isFinite(exponent)) return OTHER;
  }
  const fraction = digits.length > 1 ? `.${digits.slice(1)}` : '';
  const power = typeof exponent === 'bigint' ? exponent - 1n : exponent - 1;
  return `${minus}${digits.charAt(0)}${fraction}e${power}`;
}
