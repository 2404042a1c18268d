/**
 * Finds the payload's own text in a body, so that it is stored as it was sent: never parsed and written again.
 *
 * What is found is right where the text is JSON. In any other text the scan ends too, with spans inside of it that are
 * not JSON themselves, or that leave something behind which is not.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const SPACE = 0x20;

export interface Span {
  /** Index of the value's first character. */
  readonly start: number;
  /** Index behind its last character. */
  readonly end: number;
  /** Levels of objects and arrays in it: 0 for a string or a number, 1 for `{}`. */
  readonly depth: number;
}

/**
 * The span of a member's value in the text of a JSON object. As in JSON.parse the last of several members of the same
 * name counts, and a name may be spelled with escapes.
 *
 * @param text the text of a JSON object that JSON.parse has accepted: the scan relies on it and checks nothing again
 * @returns null where there is no such member
 */
export function memberSpan(text: string, name: string): Span | null {
  let found: Span | null = null;
  let at = skipSpace(text, skipSpace(text, 0) + 1);
  while (text.charCodeAt(at) === QUOTE) {
    const keyEnd = stringEnd(text, at);
    const matches = keyIs(text, at, keyEnd, name);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const value = valueSpan(text, start);
    if (matches) found = value;
    at = skipSpace(text, value.end);
    if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
  }
  return found;
}

function keyIs(text: string, start: number, end: number, name: string): boolean {
  if (end - start === name.length + 2 && text.startsWith(name, start + 1)) return true;
  const key = text.slice(start, end);
  return key.includes('\\') && JSON.parse(key) === name;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  // JSON knows four characters of white space, all at or below U+0020; nothing else that is valid here is.
  while (text.charCodeAt(at) <= SPACE) at += 1;
  return at;
}

/** Index behind the closing quote of the string that starts at `start`; the text's end where none closes it. */
export function stringEnd(text: string, start: number): number {
  for (let from = start + 1; ; ) {
    const quote = text.indexOf('"', from);
    if (quote < 0) return text.length;
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

/** The span of the value that starts at `start`, in an object, in an array or alone. */
export function valueSpan(text: string, start: number): Span {
  const first = text.charCodeAt(start);
  if (first === QUOTE) return { start, end: stringEnd(text, start), depth: 0 };
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return containerSpan(text, start);
  let end = start;
  while (end < text.length && !endsScalar(text.charCodeAt(end))) end += 1;
  return { start, end, depth: 0 };
}

function endsScalar(code: number): boolean {
  return code === COMMA || code === CLOSE_BRACE || code === CLOSE_BRACKET || code <= SPACE;
}

function containerSpan(text: string, start: number): Span {
  let level = 0;
  let depth = 0;
  let at = start;
  do {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = stringEnd(text, at);
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      level += 1;
      if (level > depth) depth = level;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      level -= 1;
    }
    at += 1;
  } while (level > 0 && at < text.length);
  return { start, end: at, depth };
}
