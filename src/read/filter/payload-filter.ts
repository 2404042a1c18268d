/** The filter of a read: conditions on the payload and texts to search for, of which all must be met. */
import type { RowFilter, TextTest } from '../../storage/storage.ts';
import { containing, narrowingOf } from './narrowing.ts';
import { type Condition, parseFilter } from './parse-filter.ts';
import { matcherOf, type PayloadTest } from './payload-matcher.ts';
import { prefilterOf } from './prefilter.ts';

/**
 * Reads several filters, all of which must be met.
 * @returns what is wrong with the first bad one, worded to follow the name of the parameter
 */
export function parseFilters(texts: readonly string[]): readonly Condition[] | string {
  const conditions: Condition[] = [];
  for (const [index, text] of texts.entries()) {
    const condition = parseFilter(text);
    if ('problem' in condition) {
      const which = texts.length === 1 ? '' : ` ${index + 1} of ${texts.length}`;
      return `${which} is wrong at column ${condition.column}: ${condition.problem}`.trimStart();
    }
    conditions.push(condition);
  }
  return conditions;
}

/** Texts that a payload contains; absent, null or empty: any payload does. */
export interface SearchedTexts {
  /** Anywhere. */
  readonly q?: string | null;
  /** Where it begins and ends no longer word. */
  readonly word?: string | null;
}

/** Whether texts are searched for. */
export const hasTexts = ({ q, word }: SearchedTexts): boolean => Boolean(q) || Boolean(word);

/**
 * Makes the filter of rows.
 * @returns null where every payload is wanted
 */
export function payloadFilter(
  conditions: readonly Condition[],
  { q, word }: SearchedTexts = {},
): RowFilter | null {
  const tests: PayloadTest[] = conditions.map(matcherOf);
  const contains: TextTest[] = conditions.flatMap(narrowingOf);
  const search = (
    text: string | null | undefined,
    isIn: (payload: string, text: string) => boolean,
  ): void => {
    if (!text) return;
    tests.push(
      (payload) => isIn(payload, text) || (payload.includes('\\') && isIn(unescaped(payload), text)),
    );
    contains.push(containing(text));
  };
  search(q, (payload, text) => payload.includes(text));
  search(word, containsWord);
  if (tests.length === 0) return null;
  return {
    contains,
    prefilter: prefilterOf(conditions),
    matches: (payload) => tests.every((test) => test(payload)),
  };
}

/** Whether a text contains another of which neither end lies within a word. */
function containsWord(text: string, word: string): boolean {
  for (let at = text.indexOf(word); at !== -1; at = text.indexOf(word, at + 1)) {
    // What begins within a word may begin again after it.
    if (isWithinWord(text, at)) while (isWithinWord(text, at + 1)) at += 1;
    else if (!isWithinWord(text, at + word.length)) return true;
  }
  return false;
}

const isWithinWord = (text: string, at: number): boolean => isOfWord(text, at - 1) && isOfWord(text, at);

/** Letters and digits of ASCII, the underscore, every character beyond ASCII, and a point between two digits are of words. */
function isOfWord(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  if (code === POINT) return isDigit(text.charCodeAt(at - 1)) && isDigit(text.charCodeAt(at + 1));
  const lower = code | 0x20;
  return isDigit(code) || (lower >= 0x61 && lower <= 0x7a) || code === UNDERSCORE || code > 0x7f;
}

const POINT = 0x2e;
const UNDERSCORE = 0x5f;
const isDigit = (code: number): boolean => code >= 0x30 && code <= 0x39;

const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|(.))/g;
const CONTROL: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

function unescaped(text: string): string {
  return text.replace(ESCAPE, (_, hex: string | undefined, character: string) =>
    hex === undefined ? (CONTROL[character] ?? character) : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}
