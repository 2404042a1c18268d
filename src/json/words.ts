/**
 * The words of JSON texts. A word is a run of letters and digits of ASCII, underscores and characters beyond ASCII; a point between two
 * digits belongs to it. Lists of words (storage/words) know them by hashes, in which upper and lower case are alike.
 */
import { unescaped } from './strings.ts';

const POINT = 0x2e;
const UNDERSCORE = 0x5f;
const ZERO = 0x30;
const NINE = 0x39;
const E = 0x65;
const MINUS = 0x2d;
const BACKSLASH = 0x5c;

const isDigit = (code: number): boolean => code >= ZERO && code <= NINE;

function isOfWord(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  if (code === POINT) return isDigit(text.charCodeAt(at - 1)) && isDigit(text.charCodeAt(at + 1));
  const lower = code | 0x20;
  return isDigit(code) || (lower >= 0x61 && lower <= 0x7a) || code === UNDERSCORE || code > 0x7f;
}

const isWithinWord = (text: string, at: number): boolean => isOfWord(text, at - 1) && isOfWord(text, at);

/** Whether a text contains another of which neither end lies within a word. */
export function containsWord(text: string, word: string): boolean {
  for (let at = text.indexOf(word); at !== -1; at = text.indexOf(word, at + 1)) {
    // What begins within a word may begin again after it.
    if (isWithinWord(text, at)) while (isWithinWord(text, at + 1)) at += 1;
    else if (!isWithinWord(text, at + word.length)) return true;
  }
  return false;
}

/** Bits of a hash. */
export const HASH_BITS = 22;
/**
 * In place of numbers with an exponent, which may be spelled in many ways. Others have one spelling beside their own: that without zeros at
 * the end of a fraction.
 */
export const OTHER_NUMBER = 0;

/** Bytes of words as hashes have them; 0 for those between words, and for the point. */
const FOLDED = Uint8Array.from({ length: 256 }, (_, byte) => {
  const isUpper = byte >= 0x41 && byte <= 0x5a;
  const lower = isUpper ? byte | 0x20 : byte;
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x7a) || byte === UNDERSCORE || byte > 0x7f ? lower : 0;
});

/** FNV-1a, and the last step of MurmurHash3, whose first bits depend on all of it. */
const SEED = 0x811c9dc5;
const PRIME = 0x01000193;
function finished(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> (32 - HASH_BITS);
}

/**
 * Calls back with the hash of each word of a text in UTF-8.
 * @param add also gets where the word begins and ends
 * @returns whether a backslash is between words
 */
export function eachWord(
  bytes: Uint8Array,
  start: number,
  end: number,
  add: (hash: number, from: number, until: number) => void,
): boolean {
  let hasBackslash = false;
  for (let next = start; next < end; ) {
    let byte = FOLDED[bytes[next] ?? 0] ?? 0;
    if (byte === 0) {
      if (bytes[next] === BACKSLASH) hasBackslash = true;
      next += 1;
      continue;
    }
    const from = next;
    const isNumber = byte <= NINE;
    let hash = SEED;
    let hasPoint = false;
    let hasExponent = false;
    /** Up to the last character that is no zero of a fraction. */
    let shortened = SEED;
    for (;;) {
      hash = Math.imul(hash ^ byte, PRIME);
      if (isNumber) {
        if (!hasPoint || byte !== ZERO) shortened = hash;
        if (byte === E) hasExponent = true;
      }
      next += 1;
      byte = next < end ? (FOLDED[bytes[next] ?? 0] ?? 0) : 0;
      if (byte !== 0) continue;
      if (bytes[next] !== POINT || next + 1 >= end) break;
      if (!isDigit(bytes[next - 1] ?? 0) || !isDigit(bytes[next + 1] ?? 0)) break;
      hasPoint = true;
      hash = Math.imul(hash ^ POINT, PRIME);
      next += 1;
      byte = bytes[next] ?? 0;
    }
    add(finished(hash), from, next);
    if (!isNumber) continue;
    if (shortened !== hash) add(finished(shortened), from, next);
    if (!hasExponent || from === start) continue;
    const before = from - 1 > start ? (bytes[from - 2] ?? 0) : 0;
    if (isBeforeNumber(bytes[from - 1] ?? 0, before)) add(OTHER_NUMBER, from, next);
  }
  return hasBackslash;
}

/** Whether a number of JSON may begin after two characters. */
function isBeforeNumber(last: number, before: number): boolean {
  const isBefore = (code: number): boolean =>
    code === 0x3a || code === 0x2c || code === 0x5b || code === 0x20 || (code >= 0x09 && code <= 0x0d);
  return isBefore(last) || (last === MINUS && isBefore(before));
}

/** Calls back with the words of a payload: as it was sent, and with its escapes resolved. */
export function eachWordOfPayload(
  bytes: Buffer,
  start: number,
  end: number,
  add: (hash: number) => void,
): void {
  if (!eachWord(bytes, start, end, add)) return;
  const text = Buffer.from(unescaped(bytes.toString('utf8', start, end)));
  eachWord(text, 0, text.length, add);
}

/** Hashes of the words of a text that begins and ends with words of their own. */
export function wordsOf(text: string): number[] {
  const words = new Set<number>();
  const bytes = Buffer.from(text);
  eachWord(bytes, 0, bytes.length, (hash) => words.add(hash));
  return [...words];
}

/** Hashes of the words of which a text has both ends, whatever stands around it. */
export function innerWordsOf(text: string): number[] {
  const words = new Set<number>();
  // With a digit at either end, what might go on there does.
  const bytes = Buffer.from(`0${text}0`);
  eachWord(bytes, 0, bytes.length, (hash, from, until) => {
    if (from > 0 && until < bytes.length) words.add(hash);
  });
  return [...words];
}
