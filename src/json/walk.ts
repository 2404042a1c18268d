/** Where things begin and end in a text that is known to be JSON. On any other text these functions mean nothing, but they end. */
import { skipSpace } from './lexer.ts';

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** So many characters of a string are looked at one by one. A search has a fixed cost, and then costs a tenth by the character. */
const LOOKED_AT = 24;

/** Index after the closing quote of the string that starts at `start`. */
export function stringEnd(text: string, start: number): number {
  const near = Math.min(text.length, start + LOOKED_AT);
  for (let at = start + 1; at < near; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    if (code === BACKSLASH) return searchedEnd(text, at);
  }
  return searchedEnd(text, near);
}

/** The end of a string, searched from an index in it on, before which no escape begins. */
function searchedEnd(text: string, from: number): number {
  for (let at = text.indexOf('"', from); at !== -1; at = text.indexOf('"', at + 1)) {
    let first = at;
    while (first > from && text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
    // Two backslashes stand for one, and do not escape the quote.
    if ((at - first) % 2 === 0) return at + 1;
  }
  return text.length;
}

/** Index after the number, true, false or null that starts at `start`. */
export function scalarEnd(text: string, start: number): number {
  for (let at = start; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code <= SPACE || code === COMMA || code === CLOSE_BRACKET || code === CLOSE_BRACE) return at;
  }
  return text.length;
}

/** Index after the value that starts at `start`. A loop, because a payload may be a thousand levels deep. */
export function valueEnd(text: string, start: number): number {
  const first = text.charCodeAt(start);
  if (first === QUOTE) return stringEnd(text, start);
  if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return scalarEnd(text, start);
  let depth = 1;
  for (let at = start + 1; at < text.length; ) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = stringEnd(text, at);
      continue;
    }
    at += 1;
    if (code === OPEN_BRACE || code === OPEN_BRACKET) depth += 1;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth -= 1;
    if (depth === 0) return at;
  }
  return text.length;
}

/**
 * Index of the first member or element of the object or array that starts at `start`; of its closing bracket if it is empty,
 * see {@link isClosing}.
 */
export function firstItem(text: string, start: number): number {
  return skipSpace(text, start + 1);
}

/** Index of the next member or element, or of the closing bracket. @param end index after a member's value or an element */
export function nextItem(text: string, end: number): number {
  const at = skipSpace(text, end);
  return text.charCodeAt(at) === COMMA ? skipSpace(text, at + 1) : at;
}

/** Whether an object or array ends at an index, or the text does. */
export function isClosing(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code === CLOSE_BRACE || code === CLOSE_BRACKET || at >= text.length;
}

/** Index of a member's value. @param keyEnd index after its name */
export function memberValue(text: string, keyEnd: number): number {
  return skipSpace(text, skipSpace(text, keyEnd) + 1);
}
