/** Finds the ends of JSON tokens (RFC 8259), as strict as JSON.parse. */

const TAB = 0x09;
const FEED = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const MINUS = 0x2d;
const POINT = 0x2e;
const SLASH = 0x2f;
const ZERO = 0x30;
const NINE = 0x39;
const BACKSLASH = 0x5c;
const LOWER_A = 0x61;
const LOWER_B = 0x62;
const LOWER_E = 0x65;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_R = 0x72;
const LOWER_T = 0x74;
const LOWER_U = 0x75;
/** The bit that makes a letter lower case. */
const LOWER_CASE = 0x20;

/** Returned by the functions below if the text is not the expected token. */
export const NONE = -1;

/** Index after JSON's white space. */
export function skipSpace(text: string, from: number): number {
  let at = from;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code > SPACE || (code !== SPACE && code !== FEED && code !== RETURN && code !== TAB)) return at;
    at += 1;
  }
}

/** Index after the closing quote of the string at `start`. */
export function stringEnd(text: string, start: number, limit: number): number {
  const quote = stringRest(text, start + 1, limit);
  return quote < limit && quote !== NONE ? quote + 1 : NONE;
}

/**
 * Continues inside a string.
 * @param stop at most the text's length
 * @returns index of the closing quote, or of the first unscanned character at or after `stop`
 */
export function stringRest(text: string, from: number, stop: number): number {
  const near = Math.min(stop, from + SCANNED_FIRST);
  const at = scanEnd(text, from, near);
  return at < near || at >= stop ? at : searchEnd(text, at, stop);
}

/** Characters that need no check: no control character, quote or backslash. */
const PLAIN = /[ !#-[\]-\uffff]*/y;
/** So many characters of a string are scanned first. A search has a fixed cost, and then costs less per character. */
const SCANNED_FIRST = 64;

/** Like {@link stringRest}, character by character. */
function scanEnd(text: string, from: number, stop: number): number {
  for (let at = from; ; at += 1) {
    if (at >= stop) return at;
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at;
    if (code === BACKSLASH) {
      at = escapeEnd(text, at);
      if (at === NONE) return NONE;
    } else if (code < SPACE) {
      return NONE;
    }
  }
}

/** Like {@link stringRest}, for long strings. */
function searchEnd(text: string, from: number, stop: number): number {
  let at = from;
  for (;;) {
    const searched = plainEnd(text, at, stop);
    // Where escapes are close together, searching costs more than scanning.
    const near = Math.min(
      stop,
      searched + (searched - at < SCANNED_FIRST ? 8 * SCANNED_FIRST : SCANNED_FIRST),
    );
    at = scanEnd(text, searched, near);
    if (at < near || at >= stop) return at;
  }
}

/** Index of the first character from `from` on that is not {@link PLAIN}, or `stop`. */
function plainEnd(text: string, from: number, stop: number): number {
  // A slice shares the text's memory.
  const searched = stop < text.length ? text.slice(from, stop) : text;
  const start = searched === text ? from : 0;
  PLAIN.lastIndex = start;
  PLAIN.test(searched);
  return from + PLAIN.lastIndex - start;
}

/** Index of the first character that must not be in a string. @param from index in a string for which {@link stringRest} is NONE */
export function stringMistake(text: string, from: number): number {
  for (let at = from; ; at += 1) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH) {
      const end = escapeEnd(text, at);
      if (end === NONE) return at;
      at = end;
    } else if (!(code >= SPACE)) {
      return at;
    }
  }
}

/** Index of the last character of the escape at `start`. */
function escapeEnd(text: string, start: number): number {
  switch (text.charCodeAt(start + 1)) {
    case QUOTE:
    case BACKSLASH:
    case SLASH:
    case LOWER_B:
    case LOWER_F:
    case LOWER_N:
    case LOWER_R:
    case LOWER_T:
      return start + 1;
    case LOWER_U:
      for (let at = start + 2; at < start + 6; at += 1) if (!isHexDigit(text.charCodeAt(at))) return NONE;
      return start + 5;
    default:
      return NONE;
  }
}

/**
 * Index after the number, true, false or null at `start`.
 * @param first the character at `start`
 */
export function scalarEnd(text: string, start: number, first: number): number {
  switch (first) {
    case LOWER_T:
      return text.startsWith('true', start) ? start + 4 : NONE;
    case LOWER_F:
      return text.startsWith('false', start) ? start + 5 : NONE;
    case LOWER_N:
      return text.startsWith('null', start) ? start + 4 : NONE;
    case MINUS:
      return numberEnd(text, start + 1, text.charCodeAt(start + 1));
    default:
      return numberEnd(text, start, first);
  }
}

/** @param first the character at `start`, which must be a digit */
function numberEnd(text: string, start: number, first: number): number {
  if (!isDigit(first)) return NONE;
  let at = start + 1;
  let code = text.charCodeAt(at);
  // No digit follows a leading zero.
  while (first !== ZERO && isDigit(code)) {
    at += 1;
    code = text.charCodeAt(at);
  }
  if (code === POINT) {
    at = digitsEnd(text, at + 1);
    if (at === NONE) return NONE;
    code = text.charCodeAt(at);
  }
  if ((code | LOWER_CASE) !== LOWER_E) return at;
  const sign = text.charCodeAt(at + 1);
  return digitsEnd(text, sign === PLUS || sign === MINUS ? at + 2 : at + 1);
}

/** Index after one or more digits. */
function digitsEnd(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at += 1;
  return at === start ? NONE : at;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

function isHexDigit(code: number): boolean {
  const letter = code | LOWER_CASE;
  return isDigit(code) || (letter >= LOWER_A && letter <= LOWER_F);
}
