/**
 * What the text of a payload must contain if it may meet a condition: the test that the database makes before the service
 * decides. A text that fails it never matches, however it spells its names, texts and numbers.
 */

import { type Decimal, parseDecimal } from '../../json/decimal.ts';
import { OTHER_NUMBER, wordsOf } from '../../json/words.ts';
import type { TextTest, WordTest } from '../../storage/fields/row-filter.ts';
import { type Condition, isScalar, type Operand } from './parse-filter.ts';

/** Characters that JSON text only has as escapes; and halves of characters, which UTF-8 only has so. */
const ONLY_ESCAPED = /["\\\p{Cc}\p{Cs}]/u;
const ASCII = /^[\x20-\x7e]*$/;

/**
 * With more digits, the two halves are searched for in place of every way to split them. A number has one decimal point,
 * so at least one half is not split.
 */
const MOST_SPLITS = 4;

/** The tests of a condition, the most selective first. A negated condition has none: what lacks a field meets it. */
export function narrowingOf({ isNegated, path, test }: Condition): TextTest[] {
  if (isNegated) return [];
  const longestName = path.reduce((longest, name) => (name.length > longest.length ? name : longest), '');
  const ofName = spellings(longestName, '"');
  if (test.kind !== 'equals') return [ofName];
  return [[...new Set(test.values.flatMap(operandSpellings))], ofName];
}

/** The test for a text that is anywhere in a payload's, as it is or with escapes resolved. */
export function containing(text: string): TextTest {
  const escaped = spellings(text, '');
  // Quotes and backslashes are part of the text of JSON itself. NUL and halves of characters never are.
  const isInText = !/[\0\p{Cs}]/u.test(text);
  return isInText ? [...new Set([text, ...escaped])] : escaped;
}

/** Zeros that a number may have beside its digits to be found by its word. */
const MOST_ZEROS = 30;

/** The words of a payload that meets a condition; without alternatives where there may be none. Values say more than names. */
export function wordTestOf({ isNegated, path, test }: Condition): WordTest {
  if (isNegated) return [];
  const names = path.flatMap(wordsOf);
  const values = test.kind === 'equals' ? test.values.flatMap(operandWords) : [];
  return values.length > 0 && values.every((words) => words.length > 0) ? values : [names];
}

function operandWords({ text, isQuoted, isExact }: Operand): number[][] {
  const number = isQuoted ? null : parseDecimal(text);
  const ofString = isExact && number !== null ? [] : [wordsOf(text)];
  if (number === null) return ofString;
  const plain = plainText(number);
  return [...ofString, plain === null ? [] : wordsOf(plain), [OTHER_NUMBER]];
}

/** The digits of a number without its sign, an exponent or zeros at the end of a fraction; null where these are too many. */
function plainText({ digits, exponent }: Decimal): string | null {
  if (digits === '') return '0';
  if (typeof exponent === 'bigint' || exponent < -MOST_ZEROS || exponent > digits.length + MOST_ZEROS)
    return null;
  if (exponent <= 0) return `0.${'0'.repeat(-exponent)}${digits}`;
  const whole = digits.slice(0, exponent).padEnd(exponent, '0');
  return exponent >= digits.length ? whole : `${whole}.${digits.slice(exponent)}`;
}

function operandSpellings({ text, isQuoted, isExact }: Operand): string[] {
  if (isQuoted || !isScalar(text)) return spellings(text, '"');
  const number = parseDecimal(text);
  // A string that spells the number contains its digits too, unless these are escaped.
  return [...(number === null ? [text] : digitSpellings(number.digits)), ...(isExact ? [] : ['\\u00'])];
}

/** @param digits without zeros at either end */
function digitSpellings(digits: string): string[] {
  if (digits === '') return ['0'];
  if (digits.length > MOST_SPLITS) {
    const half = digits.length >> 1;
    return [digits.slice(0, half), digits.slice(half)];
  }
  const splits = Array.from({ length: digits.length - 1 }, (_, i) => [
    digits.slice(0, i + 1),
    digits.slice(i + 1),
  ]);
  return [digits, ...splits.map((parts) => parts.join('.'))];
}

/**
 * What a JSON text has at least one of where it spells a text: the text itself, and escapes.
 * @param quote what stands around the text where it is a whole string
 * @returns the text first; only an escape where nothing else can spell it
 */
export function spellings(text: string, quote: '"' | ''): string[] {
  if (ONLY_ESCAPED.test(text)) return ['\\'];
  const escapes = [ASCII.test(text) ? '\\u00' : '\\u'];
  if (text.includes('/')) escapes.push('\\/');
  return [`${quote}${text}${quote}`, ...escapes];
}
