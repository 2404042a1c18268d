/**
 * The grammar of a filter on payloads: one condition, in the spelling of a query parameter.
 *
 *     filter     = ["-"] path ( ":" "*" | ( ":" | "==" ) value *( "," value ) | comparison value )
 *     path       = name *( "." name )
 *     comparison = "<" | "<=" | ">" | ">="
 *     name       = quoted | 1*( character other than . : < > = " \ | escape )
 *     value      = quoted | 1*( character other than , * \ | escape )
 *     escape     = "\" character             stands for the character
 *     quoted     = a JSON string             the only spelling of NUL, of lone surrogates, and of an empty text
 *
 * Spaces around unquoted names and values do not belong to them. After "==" a value is JSON: 5 is the number alone, "5" the text.
 */
import { parseDecimal } from '../../json/decimal.ts';

/** A value to compare with. Unquoted, it may also be a number, true, false or null; exact, it is nothing but that. */
export interface Operand {
  readonly text: string;
  readonly isQuoted: boolean;
  readonly isExact?: true;
}

export type Comparison = '<' | '<=' | '>' | '>=';

export type Test =
  | { readonly kind: 'exists' }
  | { readonly kind: 'equals'; readonly values: readonly Operand[] }
  | { readonly kind: 'compares'; readonly comparison: Comparison; readonly value: Operand };

export interface Condition {
  /** True where payloads are wanted for which the test fails. */
  readonly isNegated: boolean;
  /** Names of members from the payload's top on; at least one. */
  readonly path: readonly string[];
  readonly test: Test;
}

/** What is wrong with a filter, and where. */
export interface FilterMistake {
  /** In characters (code points), from 1. */
  readonly column: number;
  /** A clause without a full stop. */
  readonly problem: string;
}

/** Limits of one filter: characters (UTF-16 units), names of its path, values of its list. */
export const MAX_FILTER_LENGTH = 1_000;
const MAX_NAMES = 32;
const MAX_VALUES = 100;

const WORDS: ReadonlySet<string> = new Set(['true', 'false', 'null']);

/** Whether an unquoted text spells a number, true, false or null. */
export const isScalar = (text: string): boolean => WORDS.has(text) || parseDecimal(text) !== null;

const ESCAPE = '\\';
const QUOTE = '"';
const END_OF_NAME = new Set(['.', ':', '<', '>', '=', QUOTE]);
const HEX4 = /^[0-9a-fA-F]{4}$/;

export function parseFilter(text: string): Condition | FilterMistake {
  return worded(readFilter(text));
}

/** Reads a filter, without words for what is wrong: the page reads what the server has understood. */
export const readFilter = (text: string): Condition | Mistake => read(text, (parser) => parser.filter());

/** Reads a path alone. @returns its names */
export function parsePath(text: string): readonly string[] | FilterMistake {
  return worded(read(text, (parser) => parser.wholePath()));
}

function read<T>(text: string, part: (parser: FilterParser) => T): T | Mistake {
  try {
    return part(new FilterParser(text));
  } catch (error) {
    if (error instanceof Mistake) return error;
    throw error;
  }
}

function worded<T>(found: T | Mistake): T | FilterMistake {
  if (!(found instanceof Mistake)) return found;
  return { column: found.column, problem: PROBLEMS[found.code](found.detail) };
}

const NO_SIGN = 'one of : < <= > >= must follow the name';
/** What is wrong, in words. */
const PROBLEMS = {
  longFilter: () => `a filter has at most ${MAX_FILTER_LENGTH} characters`,
  oneValue: (comparison) => `${comparison} takes one value`,
  longPath: () => `a path has at most ${MAX_FILTER_LENGTH} characters`,
  noPath: () => 'a path is names with dots between them',
  manyNames: () => `a path has at most ${MAX_NAMES} names`,
  noName: () => 'the name of a field is missing',
  noSign: () => NO_SIGN,
  equality: () =>
    `${NO_SIGN} (equal is written status:500, the number alone status==500, and unequal -status:500)`,
  afterStar: () => 'nothing may follow * (for a star itself, write \\*)',
  manyValues: () => `a list has at most ${MAX_VALUES} values`,
  noJson: () => 'after == a value is JSON: a number, true, false, null, or a text in quotes',
  noComma: () => 'a comma or the end must follow a quoted value',
  star: () => '* stands alone (for a star itself, write \\*)',
  noValue: () => 'a value is missing (for an empty text, write "")',
  noEscaped: () => 'a character must follow \\',
  openQuote: () => 'the closing quote is missing',
  control: () => 'a control character in quotes is written as an escape',
  noEscape: () => 'this is no escape of a JSON string',
} satisfies Record<string, (detail: string) => string>;

/** Leaves the parser from any depth. */
class Mistake {
  readonly column: number;
  readonly code: keyof typeof PROBLEMS;
  readonly detail: string;

  constructor(column: number, code: keyof typeof PROBLEMS, detail: string) {
    this.column = column;
    this.code = code;
    this.detail = detail;
  }
}

class FilterParser {
  readonly #text: string;
  /** Index of the character that comes next. */
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  filter(): Condition {
    if (this.#text.length > MAX_FILTER_LENGTH) throw this.#mistake('longFilter', MAX_FILTER_LENGTH);
    this.#skipSpaces();
    const isNegated = this.#take('-');
    const path = this.#path();
    if (this.#take('==')) return { isNegated, path, test: this.#values(true) };
    if (this.#take(':')) return { isNegated, path, test: this.#listed() };
    const comparison = this.#comparison();
    const value = this.#value();
    if (this.#at < this.#text.length) throw this.#mistake('oneValue', this.#at, comparison);
    return { isNegated, path, test: { kind: 'compares', comparison, value } };
  }

  wholePath(): string[] {
    if (this.#text.length > MAX_FILTER_LENGTH) throw this.#mistake('longPath', MAX_FILTER_LENGTH);
    const path = this.#path();
    if (this.#at < this.#text.length) throw this.#mistake('noPath');
    return path;
  }

  #path(): string[] {
    const path = [this.#name()];
    while (this.#take('.')) {
      if (path.length === MAX_NAMES) throw this.#mistake('manyNames');
      path.push(this.#name());
    }
    return path;
  }

  #name(): string {
    this.#skipSpaces();
    if (this.#text[this.#at] === QUOTE) return this.#quoted();
    const name = this.#unquoted(END_OF_NAME);
    if (name === '') throw this.#mistake('noName');
    return name;
  }

  #comparison(): Comparison {
    for (const comparison of ['<=', '>=', '<', '>'] as const) if (this.#take(comparison)) return comparison;
    const isEquality = this.#text[this.#at] === '=' || this.#text.startsWith('!=', this.#at);
    throw this.#mistake(isEquality ? 'equality' : 'noSign');
  }

  /** What may follow a colon. */
  #listed(): Test {
    this.#skipSpaces();
    if (this.#take('*')) {
      this.#skipSpaces();
      if (this.#at < this.#text.length) throw this.#mistake('afterStar');
      return { kind: 'exists' };
    }
    return this.#values(false);
  }

  #values(isJson: boolean): Test {
    const values: Operand[] = [];
    do {
      if (values.length === MAX_VALUES) throw this.#mistake('manyValues');
      const value = this.#value();
      if (isJson && !value.isQuoted && !isScalar(value.text)) throw this.#mistake('noJson');
      values.push(isJson && !value.isQuoted ? { ...value, isExact: true } : value);
    } while (this.#take(','));
    if (this.#at < this.#text.length) throw this.#mistake('noComma');
    return { kind: 'equals', values };
  }

  #value(): Operand {
    this.#skipSpaces();
    if (this.#text[this.#at] === QUOTE) return { text: this.#quoted(), isQuoted: true };
    const text = this.#unquoted(END_OF_VALUE);
    if (this.#text[this.#at] === '*') throw this.#mistake('star');
    if (text === '') throw this.#mistake('noValue');
    return { text, isQuoted: false };
  }

  /** A text up to one of the characters that end it, with its escapes resolved and without the spaces around it. */
  #unquoted(ends: ReadonlySet<string>): string {
    this.#skipSpaces();
    let text = '';
    let lengthWithoutSpaces = 0;
    for (; this.#at < this.#text.length; this.#at += 1) {
      const character = this.#text.charAt(this.#at);
      if (ends.has(character)) break;
      if (character === ESCAPE) {
        this.#at += 1;
        if (this.#at === this.#text.length) throw this.#mistake('noEscaped', this.#at - 1);
      }
      text += this.#text.charAt(this.#at);
      if (character !== ' ') lengthWithoutSpaces = text.length;
    }
    return text.slice(0, lengthWithoutSpaces);
  }

  /** A JSON string, and the spaces after it. */
  #quoted(): string {
    const start = this.#at;
    for (this.#at += 1; this.#text[this.#at] !== QUOTE; this.#at += 1) {
      const character = this.#text[this.#at];
      if (character === undefined) throw this.#mistake('openQuote', start);
      if (character < ' ') throw this.#mistake('control');
      if (character === ESCAPE) this.#skipEscape();
    }
    this.#at += 1;
    const text = this.#text.slice(start, this.#at);
    this.#skipSpaces();
    // What was passed over is a string, as strict as the parser takes it.
    return JSON.parse(text) as string;
  }

  /** To the last character of an escape of JSON. */
  #skipEscape(): void {
    const kind = this.#text.charAt(this.#at + 1);
    const isUnicode = kind === 'u' && HEX4.test(this.#text.slice(this.#at + 2, this.#at + 6));
    if (!isUnicode && (kind === '' || !'"\\/bfnrt'.includes(kind))) throw this.#mistake('noEscape');
    this.#at += isUnicode ? 5 : 1;
  }

  #take(expected: string): boolean {
    if (!this.#text.startsWith(expected, this.#at)) return false;
    this.#at += expected.length;
    return true;
  }

  #skipSpaces(): void {
    while (this.#text[this.#at] === ' ') this.#at += 1;
  }

  /** @param at index of the character at fault: by default the next one */
  #mistake(code: keyof typeof PROBLEMS, at = this.#at, detail = ''): Mistake {
    return new Mistake([...this.#text.slice(0, at)].length + 1, code, detail);
  }
}

const END_OF_VALUE = new Set([',', '*']);
