/** A quick search for the logging token in the text of a body, without parsing it. */
import { isWellFormed, TOKEN_CHARACTERS } from '../../token-text.ts';
import { NONE, skipSpace } from './lexer.ts';

const KEY = '"loggingToken"';
/** Places with the key that are looked at. Payloads with keys of that name are rare, and long lists of them unheard of. */
const MAX_PLACES = 16;
/** Different tokens that are looked up: each may be a question to the database. */
const MAX_TOKENS = 2;

const QUOTE = 0x22;
const COLON = 0x3a;

/** Letters, digits and `_` as escapes: what could spell the key or a token in another way. */
const ESCAPED_WORD = /\\u00(?:3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])/;

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

/** Whether the key or its value may be spelled with escapes somewhere. No serializer escapes letters or digits. */
export function mayHideToken(text: string): boolean {
  return ESCAPED_WORD.test(text);
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
