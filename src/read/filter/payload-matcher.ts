/**
 * Decides whether a payload meets a condition, from its text: what a parser would make of it has lost the exact numbers.
 * The text is known to be JSON. Of members with the same name the last one counts, as for JSON.parse.
 *
 * A path that comes to an array goes on in each of its elements: the test holds where it holds for one of them. Each name
 * of the path may read its part of the text once more, so the cost is at most the text's length times the path's.
 */
import { compareDecimals, type Decimal, parseDecimal } from '../../json/decimal.ts';
import { NONE, scalarEnd, skipSpace, stringEnd, valueEnd } from '../../json/walk.ts';
import type { Comparison, Condition, Operand, Test } from './parse-filter.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = '\\';
const BACKSLASH_CODE = 0x5c;
const CLOSE_BRACKET = 0x5d;
const MINUS = 0x2d;
const ZERO = 0x30;
const OPEN_BRACE = 0x7b;

/** Numbers of up to so many characters without an exponent are compared by their nearest floats, in the same order. */
const FLOAT_LENGTH = 15;
const PLAIN_NUMBER = /^-?\d+(?:\.\d+)?$/;

export type PayloadTest = (payload: string) => boolean;

export function matcherOf({ isNegated, path, test }: Condition): PayloadTest {
  const matcher = new PathMatcher(path, scalarTestOf(test));
  return (payload) => matcher.matches(payload) !== isNegated;
}

/** A scalar of a payload: the text of a string, or a number, true, false or null as it is spelled. */
export interface Scalar {
  readonly text: string;
  readonly isString: boolean;
}

/** Reads the scalars that a path leads to: several where an array is on the way, none where it leads to an object or nowhere. */
export function scalarsOf(path: readonly string[]): (payload: string) => readonly Scalar[] {
  let found: Scalar[] = [];
  // A test that never holds sees all of them.
  const collect = (isString: boolean) => (text: string) => {
    found.push({ text, isString });
    return false;
  };
  const matcher = new PathMatcher(path, { ofString: collect(true), ofOther: collect(false) });
  return (payload) => {
    found = [];
    matcher.matches(payload);
    return found;
  };
}

/** Tests the text of a string, or that of a number, true, false or null. */
export interface ScalarTest {
  readonly ofString: (text: string) => boolean;
  readonly ofOther: (text: string) => boolean;
}

class PathMatcher {
  readonly #path: readonly string[];
  /** Null where the path has but to lead somewhere. */
  readonly #test: ScalarTest | null;
  #text = '';
  #isFound = false;

  constructor(path: readonly string[], test: ScalarTest | null) {
    this.#path = path;
    this.#test = test;
  }

  matches(text: string): boolean {
    this.#text = text;
    this.#isFound = false;
    this.#visit(skipSpace(text, 0), 0);
    return this.#isFound;
  }

  /**
   * Looks at a value.
   * @param step how many names of the path have led here
   * @returns the index behind the value; of no meaning once it is found
   */
  #visit(at: number, step: number): number {
    const code = this.#text.charCodeAt(at);
    const isReached = step === this.#path.length;
    if (isReached && this.#test === null) {
      this.#isFound = true;
      return at;
    }
    if (code === OPEN_BRACKET) return this.#visitElements(at, step);
    if (code === OPEN_BRACE && !isReached) return this.#visitMember(at, step);
    return isReached ? this.#visitScalar(at, code) : valueEnd(this.#text, at);
  }

  #visitElements(start: number, step: number): number {
    const text = this.#text;
    let at = skipSpace(text, start + 1);
    if (text.charCodeAt(at) === CLOSE_BRACKET) return at + 1;
    for (;;) {
      at = this.#visit(at, step);
      if (this.#isFound) return at;
      at = skipSpace(text, at);
      if (text.charCodeAt(at) !== COMMA) return at + 1;
      at = skipSpace(text, at + 1);
    }
  }

  /** Looks at the member that the path names. Another one of that name may follow, so it comes after all of them. */
  #visitMember(start: number, step: number): number {
    const text = this.#text;
    const name = this.#path[step] ?? '';
    let member = NONE;
    let at = skipSpace(text, start + 1);
    while (text.charCodeAt(at) === QUOTE) {
      const keyEnd = stringEnd(text, at);
      const value = skipSpace(text, skipSpace(text, keyEnd) + 1);
      if (isName(text, at, keyEnd, name)) member = value;
      at = skipSpace(text, valueEnd(text, value));
      if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
    }
    if (member !== NONE) this.#visit(member, step + 1);
    return at + 1;
  }

  #visitScalar(at: number, code: number): number {
    const text = this.#text;
    if (code === OPEN_BRACE) return valueEnd(text, at);
    if (code === QUOTE) {
      const end = stringEnd(text, at);
      this.#isFound = this.#test?.ofString(stringAt(text, at, end)) === true;
      return end;
    }
    const end = scalarEnd(text, at);
    this.#isFound = this.#test?.ofOther(text.slice(at, end)) === true;
    return end;
  }
}

/** Whether the string between two indexes, quotes included, spells a name. */
function isName(text: string, start: number, end: number, name: string): boolean {
  if (end - start === name.length + 2 && text.startsWith(name, start + 1)) return !name.includes(BACKSLASH);
  // An escape is longer than what it stands for.
  return end - start > name.length + 2 && hasEscape(text, start, end) && stringAt(text, start, end) === name;
}

function hasEscape(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (text.charCodeAt(at) === BACKSLASH_CODE) return true;
  return false;
}

function stringAt(text: string, start: number, end: number): string {
  const inner = text.slice(start + 1, end - 1);
  // What the text of a payload has in quotes is a string.
  return inner.includes(BACKSLASH) ? (JSON.parse(text.slice(start, end)) as string) : inner;
}

/** @returns null where anything will do */
export function scalarTestOf(test: Test): ScalarTest | null {
  if (test.kind === 'exists') return null;
  return test.kind === 'equals' ? equalityTest(test.values) : comparisonTest(test.comparison, test.value);
}

/** An unquoted operand equals the string that it spells, and the number, true, false or null. */
function equalityTest(values: readonly Operand[]): ScalarTest {
  const strings = new Set(values.map(({ text }) => text));
  const unquoted = values.filter(({ isQuoted }) => !isQuoted).map(({ text }) => text);
  const words = new Set(unquoted.filter((text) => JSON_WORDS.has(text)));
  const numbers = unquoted.map(numberOf).filter((number) => number !== null);
  return {
    ofString: (text) => strings.has(text),
    ofOther: (text) => words.has(text) || numbers.some((number) => compare(text, number) === 0),
  };
}

export const JSON_WORDS: ReadonlySet<string> = new Set(['true', 'false', 'null']);

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
