/** Searches the text of a body for logging tokens without parsing it. */

import { isWellFormed, TOKEN_CHARACTERS } from '../../base/token-text.ts';
import { NONE, skipSpace } from '../../json/lexer.ts';

const KEY = '"loggingToken"';
/** Limit of examined occurrences of the key. Payloads that contain it are rare. */
const MAX_OCCURRENCES = 16;
/** Limit of different tokens: each may cost a query. */
const MAX_TOKENS = 2;

const QUOTE = 0x22;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const UNDERSCORE = 0x5f;
const LOWER_A = 0x61;
const LOWER_U = 0x75;
const LOWER_Z = 0x7a;
/** The bit that makes a letter lower case. */
const LOWER_CASE = 0x20;

export interface FoundTokens {
  /** The values of the key that have the form of a token, without duplicates. */
  readonly tokens: readonly string[];
  /** Whether the key occurs, and whether any of its values is a string. */
  readonly value: 'missing' | 'not a string' | 'string';
  /** The beginning of the first value that is a string, of which it tells what is wrong with it; empty where there is none. */
  readonly sample: string;
  /** False if there are more occurrences or tokens than the limits. */
  readonly isComplete: boolean;
}

/**
 * The values of `"loggingToken"` at any depth, also inside strings. A body's token is among them unless it is written with
 * escapes, see {@link mayHideToken}.
 * @param text the body, which may be invalid JSON; UTF-8 may be decoded as Latin-1
 */
export function findTokens(text: string): FoundTokens {
  const tokens: string[] = [];
  let value: FoundTokens['value'] = 'missing';
  let sample = '';
  let at = text.indexOf(KEY);
  for (let count = 0; at >= 0; count += 1) {
    if (count === MAX_OCCURRENCES) return { tokens, value, sample, isComplete: false };
    const start = valueStart(text, at + KEY.length);
    if (text.charCodeAt(start) === QUOTE) {
      if (value !== 'string') sample = beginningAt(text, start);
      value = 'string';
      const token = tokenAt(text, start);
      if (token !== null && !tokens.includes(token)) {
        if (tokens.length === MAX_TOKENS) return { tokens, value, sample, isComplete: false };
        tokens.push(token);
      }
    } else if (start !== NONE && value === 'missing') {
      value = 'not a string';
    }
    at = text.indexOf(KEY, at + KEY.length);
  }
  return { tokens, value, sample, isComplete: true };
}

/**
 * Whether the key or its value may contain an escape: `\u00` and the code of a letter, a digit or `_`. Serializers do not
 * escape these.
 */
export function mayHideToken(text: string): boolean {
  const first = text.indexOf('\\');
  if (first < 0) return false;
  // Steps of four characters hit one of `\u00`. Not a regular expression, which is slow until V8 has compiled it.
  for (let at = first + 3; at < text.length; at += 4) {
    const code = text.charCodeAt(at);
    if (code === ZERO) {
      if (isEscapedWord(text, at - 2) || isEscapedWord(text, at - 3)) return true;
    } else if (code === BACKSLASH) {
      if (isEscapedWord(text, at)) return true;
    } else if (code === LOWER_U && isEscapedWord(text, at - 1)) {
      return true;
    }
  }
  return false;
}

function isEscapedWord(text: string, start: number): boolean {
  return (
    text.charCodeAt(start) === BACKSLASH &&
    text.charCodeAt(start + 1) === LOWER_U &&
    text.charCodeAt(start + 2) === ZERO &&
    text.charCodeAt(start + 3) === ZERO &&
    isWord(16 * hexValue(text.charCodeAt(start + 4)) + hexValue(text.charCodeAt(start + 5)))
  );
}

/** The value of a hexadecimal digit; meaningless for other characters. */
function hexValue(code: number): number {
  return code <= NINE ? code - ZERO : (code | LOWER_CASE) - LOWER_A + 10;
}

function isWord(code: number): boolean {
  const letter = code | LOWER_CASE;
  return (code >= ZERO && code <= NINE) || (letter >= LOWER_A && letter <= LOWER_Z) || code === UNDERSCORE;
}

/** Index of the value of the key that ends before `keyEnd`; NONE if it is not a key. */
function valueStart(text: string, keyEnd: number): number {
  const colon = skipSpace(text, keyEnd);
  return text.charCodeAt(colon) === COLON ? skipSpace(text, colon + 1) : NONE;
}

/** The text of a string, at most a character longer than a token. @param quote index of its opening quote */
function beginningAt(text: string, quote: number): string {
  const beginning = text.slice(quote + 1, quote + 2 + TOKEN_CHARACTERS);
  const end = beginning.indexOf('"');
  return end < 0 ? beginning : beginning.slice(0, end);
}

/** @param quote index of the value's opening quote */
function tokenAt(text: string, quote: number): string | null {
  const end = quote + 1 + TOKEN_CHARACTERS;
  if (text.charCodeAt(end) !== QUOTE) return null;
  const token = text.slice(quote + 1, end);
  return isWellFormed(token, 'tdl') ? token : null;
}
