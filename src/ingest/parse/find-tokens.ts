/** A quick search for the logging token in the text of a body, without parsing it. */
import { isWellFormed, TOKEN_CHARACTERS } from '../../token-text.ts';
import { NONE, skipSpace } from './lexer.ts';

const KEY = '"loggingToken"';
/** Places with the key that are looked at. Payloads with keys of that name are rare, and long lists of them unheard of. */
const MAX_PLACES = 16;
/** Different tokens that are looked up: each may be a question to the database. */
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
/** Of a letter. */
const LOWER_CASE = 0x20;

export interface FoundTokens {
  /** The values of the key that have the form of a token, each once. */
  readonly tokens: readonly string[];
  /** What the key has: nothing, as it is not there; or no string, wherever it is. */
  readonly value: 'missing' | 'not a string' | 'string';
  /** False where there are more places or tokens than were looked at. */
  readonly isComplete: boolean;
}

/**
 * The values of `"loggingToken"`, at whatever depth, also inside of strings: whoever sends a good one has it among them,
 * unless {@link mayHideToken} says that it may be spelled in another way.
 * @param text of a body, which need not be JSON; UTF-8 may be in it byte by byte
 */
export function findTokens(text: string): FoundTokens {
  const tokens: string[] = [];
  let value: FoundTokens['value'] = 'missing';
  let at = text.indexOf(KEY);
  for (let places = 0; at >= 0; places += 1) {
    if (places === MAX_PLACES) return { tokens, value, isComplete: false };
    const start = valueStart(text, at + KEY.length);
    if (text.charCodeAt(start) === QUOTE) {
      value = 'string';
      const token = tokenAt(text, start);
      if (token !== null && !tokens.includes(token)) {
        if (tokens.length === MAX_TOKENS) return { tokens, value, isComplete: false };
        tokens.push(token);
      }
    } else if (start !== NONE && value === 'missing') {
      value = 'not a string';
    }
    at = text.indexOf(KEY, at + KEY.length);
  }
  return { tokens, value, isComplete: true };
}

/**
 * Whether the key or its value may be spelled with escapes somewhere: `\u00` and the code of a letter, a digit or `_`. No
 * serializer escapes these.
 */
export function mayHideToken(text: string): boolean {
  const first = text.indexOf('\\');
  if (first < 0) return false;
  // Of `\u00`, one is a fourth character. A regular expression is slow where it is interpreted, which it is now and then.
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

/** Of a hexadecimal digit in either case; of other characters it is of no meaning. */
function hexValue(code: number): number {
  return code <= NINE ? code - ZERO : (code | LOWER_CASE) - LOWER_A + 10;
}

function isWord(code: number): boolean {
  const letter = code | LOWER_CASE;
  return (code >= ZERO && code <= NINE) || (letter >= LOWER_A && letter <= LOWER_Z) || code === UNDERSCORE;
}

/** Index of the value of the key that ends before `keyEnd`; NONE where it is no key. */
function valueStart(text: string, keyEnd: number): number {
  const colon = skipSpace(text, keyEnd);
  return text.charCodeAt(colon) === COLON ? skipSpace(text, colon + 1) : NONE;
}

/** @param quote index of the value's opening quote */
function tokenAt(text: string, quote: number): string | null {
  const end = quote + 1 + TOKEN_CHARACTERS;
  if (text.charCodeAt(end) !== QUOTE) return null;
  const token = text.slice(quote + 1, end);
  return isWellFormed(token, 'tdl') ? token : null;
}
