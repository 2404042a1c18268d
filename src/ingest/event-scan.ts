/**
 * Reads a batch's usual events in one pass over the text, without making objects of what is in them: a tenth of what
 * JSON.parse and a second look for the payload cost.
 *
 * Usual is a JSON object (RFC 8259, as strict as JSON.parse) in which
 * - no name has an escape, and none of `typeId`, `typeName`, `payload` and `createdAt` is there twice;
 * - `typeId`, `typeName` and `createdAt` are null or strings without escapes, and good;
 * - `payload` is an object, and nothing is nested deeper than {@link MAX_DEPTH}.
 *
 * Anything else, be it unusual, wrong or no JSON at all, is left to `parseBatchEvent`, which says what is wrong with it:
 * whatever is read here, that would read as the same event.
 */
import type { BatchEvent, TypeReferences } from './batch-event.ts';
import { parseEventTime } from './event-time.ts';

/** Nesting that is followed: the scan calls itself for each level. */
const MAX_DEPTH = 100;

const TAB = 0x09;
const FEED = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const LOWER_E = 0x65;
const LOWER_U = 0x75;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** Of a letter. */
const LOWER_CASE = 0x20;

/** What the functions below return where the text is not what they read. */
const NONE = -1;

export class EventScanner {
  /** Index behind the event that was read last. */
  end = 0;
  readonly #types: TypeReferences;

  /** @param types of the batch whose events are read */
  constructor(types: TypeReferences) {
    this.#types = types;
  }

  /**
   * Reads the event that starts at `start`; what follows it is not looked at.
   * @returns null, with `end` as it was, for what is not usual
   */
  read(text: string, start: number): BatchEvent | null {
    let typeId: string | null | undefined;
    let typeName: string | null | undefined;
    let createdAt: string | null | undefined;
    let payload: string | undefined;
    if (text.charCodeAt(start) !== OPEN_BRACE) return null;
    let at = start;
    do {
      const key = skipSpace(text, at + 1);
      const keyEnd = plainStringEnd(text, key);
      if (keyEnd === NONE) return null;
      at = skipSpace(text, keyEnd);
      if (text.charCodeAt(at) !== COLON) return null;
      at = skipSpace(text, at + 1);
      const value = at;
      at = valueEnd(text, value, 1);
      if (at === NONE) return null;
      switch (text.slice(key + 1, keyEnd - 1)) {
        case 'payload':
          if (payload !== undefined || text.charCodeAt(value) !== OPEN_BRACE) return null;
          payload = text.slice(value, at);
          break;
        case 'typeId':
          if (typeId !== undefined) return null;
          typeId = plainText(text, value, at);
          if (typeId === undefined) return null;
          break;
        case 'typeName':
          if (typeName !== undefined) return null;
          typeName = plainText(text, value, at);
          if (typeName === undefined) return null;
          break;
        case 'createdAt':
          if (createdAt !== undefined) return null;
          createdAt = plainText(text, value, at);
          if (createdAt === undefined) return null;
      }
      at = skipSpace(text, at);
    } while (text.charCodeAt(at) === COMMA);
    if (text.charCodeAt(at) !== CLOSE_BRACE || payload === undefined) return null;
    const type = this.#types.named(typeId, typeName);
    const time = createdAt ? parseEventTime(createdAt) : null;
    if (type === null || typeof time === 'string') return null;
    this.end = at + 1;
    return { type, createdAt: time, payload };
  }
}

/** The text of a string without escapes; null for null, undefined for anything else. */
function plainText(text: string, start: number, end: number): string | null | undefined {
  if (text.charCodeAt(start) !== QUOTE) return text.startsWith('null', start) ? null : undefined;
  return plainStringEnd(text, start) === NONE ? undefined : text.slice(start + 1, end - 1);
}

/** Index behind the value that starts at `start`, which is in `depth` objects and arrays; NONE where it is no JSON. */
function valueEnd(text: string, start: number, depth: number): number {
  const first = text.charCodeAt(start);
  if (first === QUOTE) return stringEnd(text, start);
  if (first === OPEN_BRACE) return depth > MAX_DEPTH ? NONE : objectEnd(text, start, depth + 1);
  if (first === OPEN_BRACKET) return depth > MAX_DEPTH ? NONE : arrayEnd(text, start, depth + 1);
  if (first === MINUS || isDigit(first)) return numberEnd(text, start);
  for (const word of ['true', 'false', 'null']) if (text.startsWith(word, start)) return start + word.length;
  return NONE;
}

function objectEnd(text: string, start: number, depth: number): number {
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) === CLOSE_BRACE) return at + 1;
  for (;;) {
    if (text.charCodeAt(at) !== QUOTE) return NONE;
    at = stringEnd(text, at);
    if (at === NONE) return NONE;
    at = skipSpace(text, at);
    if (text.charCodeAt(at) !== COLON) return NONE;
    at = valueEnd(text, skipSpace(text, at + 1), depth);
    if (at === NONE) return NONE;
    at = skipSpace(text, at);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACE) return at + 1;
    if (next !== COMMA) return NONE;
    at = skipSpace(text, at + 1);
  }
}

function arrayEnd(text: string, start: number, depth: number): number {
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) === CLOSE_BRACKET) return at + 1;
  for (;;) {
    at = valueEnd(text, at, depth);
    if (at === NONE) return NONE;
    at = skipSpace(text, at);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACKET) return at + 1;
    if (next !== COMMA) return NONE;
    at = skipSpace(text, at + 1);
  }
}

/** Index behind the closing quote of the string that starts at `start`. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; ; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    if (code === BACKSLASH) {
      at = escapeEnd(text, at);
      if (at === NONE) return NONE;
    } else if (!(code >= SPACE)) {
      return NONE; // A control character or, not a number, the text's end.
    }
  }
}

/** Index of the last character of the escape that starts at `start`. */
function escapeEnd(text: string, start: number): number {
  if (text.charCodeAt(start + 1) !== LOWER_U)
    return '"\\/bfnrt'.includes(text.charAt(start + 1)) ? start + 1 : NONE;
  return /^[0-9A-Fa-f]{4}$/.test(text.slice(start + 2, start + 6)) ? start + 5 : NONE;
}

/** The same as stringEnd; NONE too for a string with escapes. */
function plainStringEnd(text: string, start: number): number {
  if (text.charCodeAt(start) !== QUOTE) return NONE;
  for (let at = start + 1; ; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    if (code === BACKSLASH || !(code >= SPACE)) return NONE;
  }
}

function numberEnd(text: string, start: number): number {
  let at = text.charCodeAt(start) === MINUS ? start + 1 : start;
  // No digit follows a leading zero.
  at = text.charCodeAt(at) === ZERO ? at + 1 : digitsEnd(text, at);
  if (at !== NONE && text.charCodeAt(at) === POINT) at = digitsEnd(text, at + 1);
  if (at !== NONE && (text.charCodeAt(at) | LOWER_CASE) === LOWER_E) {
    const sign = text.charCodeAt(at + 1);
    at = digitsEnd(text, sign === PLUS || sign === MINUS ? at + 2 : at + 1);
  }
  return at;
}

/** Index behind one digit or more. */
function digitsEnd(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at += 1;
  return at === start ? NONE : at;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

/** Past JSON's white space, and nothing else. */
function skipSpace(text: string, from: number): number {
  let at = from;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code > SPACE || (code !== SPACE && code !== FEED && code !== RETURN && code !== TAB)) return at;
    at += 1;
  }
}
