/** Decides whether a payload meets a condition, from its text. The text is known to be JSON. */
import { compareDecimals, type Decimal, parseDecimal } from '../../json/decimal.ts';
import { PathWalk, type TextPart } from '../../json/path-walk.ts';
import { stringText } from '../../json/strings.ts';
import { type Comparison, type Condition, isScalar, type Operand, type Test } from './parse-filter.ts';

const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;

/** Numbers of up to so many characters without an exponent are compared by their nearest floats, in the same order. */
const FLOAT_LENGTH = 15;
const PLAIN_NUMBER = /^-?\d+(?:\.\d+)?$/;

export type PayloadTest = (payload: string | TextPart) => boolean;

/** The test of a condition: it holds where it holds for one of the values that the path leads to. */
export function matcherOf({ isNegated, path, test }: Condition): PayloadTest {
  const scalar = scalarTestOf(test);
  const walk = new PathWalk(
    [path],
    (_, text, start, end) => scalar === null || meets(scalar, text, start, end),
  );
  return (payload) => walk.over(payload) !== isNegated;
}

/** Whether a value is a scalar that passes. */
function meets(test: ScalarTest, text: string, start: number, end: number): boolean {
  if (start === end) return false;
  const isString = text.charCodeAt(start) === QUOTE;
  return isString ? test.ofString(stringText(text, start, end)) : test.ofOther(text.slice(start, end));
}

/** A scalar of a payload: the text of a string, or a number, true, false or null as it is spelled. */
export interface Scalar {
  readonly text: string;
  readonly isString: boolean;
}

/** Reads the scalars that a path leads to: several where an array is on the way, none where it leads to an object or nowhere. */
export function scalarsOf(path: readonly string[]): (payload: string) => readonly Scalar[] {
  let found: Scalar[] = [];
  const walk = new PathWalk([path], (_, text, start, end) => {
    const isString = text.charCodeAt(start) === QUOTE;
    if (end > start)
      found.push({ text: isString ? stringText(text, start, end) : text.slice(start, end), isString });
    return false;
  });
  return (payload) => {
    found = [];
    walk.over(payload);
    return found;
  };
}

/** Tests the text of a string, or that of a number, true, false or null. */
export interface ScalarTest {
  readonly ofString: (text: string) => boolean;
  readonly ofOther: (text: string) => boolean;
}

/** @returns null where anything will do */
export function scalarTestOf(test: Test): ScalarTest | null {
  if (test.kind === 'exists') return null;
  return test.kind === 'equals' ? equalityTest(test.values) : comparisonTest(test.comparison, test.value);
}

/** An unquoted operand equals the string that it spells, unless it is exact, and the number, true, false or null. */
function equalityTest(values: readonly Operand[]): ScalarTest {
  const strings = new Set(values.filter(({ isExact }) => !isExact).map(({ text }) => text));
  const scalars = values.filter(({ text, isQuoted }) => !isQuoted && isScalar(text)).map(({ text }) => text);
  const words = new Set(scalars);
  const numbers = scalars.map(numberOf).filter((number) => number !== null);
  return {
    ofString: (text) => strings.has(text),
    ofOther: (text) => words.has(text) || numbers.some((number) => compare(text, number) === 0),
  };
}

/** A number is compared with numbers, anything else with strings. */
function comparisonTest(comparison: Comparison, { text, isQuoted }: Operand): ScalarTest {
  const number = isQuoted ? null : numberOf(text);
  if (number === null) {
    return {
      ofString: (other) => holds(other < text ? -1 : Number(other > text), comparison),
      ofOther: () => false,
    };
  }
  return {
    ofString: () => false,
    ofOther: (other) => holds(compare(other, number), comparison),
  };
}

function holds(order: number, comparison: Comparison): boolean {
  switch (comparison) {
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '>':
      return order > 0;
    case '>=':
      return order >= 0;
  }
}

/** A number to compare with, in the two forms that it may be needed in. */
interface ComparableNumber {
  readonly exact: Decimal;
  /** Null where a float may not tell it from its neighbors. */
  readonly float: number | null;
}

function numberOf(text: string): ComparableNumber | null {
  const exact = parseDecimal(text);
  return exact === null ? null : { exact, float: floatOf(text) };
}

function floatOf(text: string): number | null {
  if (text.length > FLOAT_LENGTH) return null;
  const isNegative = text.charCodeAt(0) === MINUS;
  let value = 0;
  for (let at = isNegative ? 1 : 0; at < text.length; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (digit < 0 || digit > 9) return PLAIN_NUMBER.test(text) ? Number(text) : null;
    value = value * 10 + digit;
  }
  if (text === '' || text === '-') return null;
  return isNegative ? -value : value;
}

/** Compares the text of a number, or of a word, which is not comparable. */
function compare(text: string, number: ComparableNumber): number {
  const float = number.float === null ? null : floatOf(text);
  if (float !== null && number.float !== null) return float - number.float;
  const exact = parseDecimal(text);
  return exact === null ? Number.NaN : compareDecimals(exact, number.exact);
}
