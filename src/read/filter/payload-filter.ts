/** The filter of a read: conditions on the payload and texts to search for, of which all must be met. */
import { textOf } from '../../json/path-walk.ts';
import { unescaped } from '../../json/strings.ts';
import { containsWord, innerWordsOf, wordsOf } from '../../json/words.ts';
import type { RowFilter, TextTest, WordTest } from '../../storage/fields/row-filter.ts';
import { containing, narrowingOf, wordTestOf } from './narrowing.ts';
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
  const words: WordTest[] = [];
  const search = (
    text: string | null | undefined,
    isIn: (payload: string, text: string) => boolean,
    certainWords: (text: string) => number[],
  ): void => {
    if (!text) return;
    words.push([certainWords(text)]);
    tests.push((payload) => {
      const whole = textOf(payload);
      return isIn(whole, text) || (whole.includes('\\') && isIn(unescaped(whole), text));
    });
    contains.push(containing(text));
  };
  search(word, containsWord, wordsOf);
  search(q, (payload, text) => payload.includes(text), innerWordsOf);
  words.push(...conditions.map(wordTestOf));
  if (tests.length === 0) return null;
  return {
    contains,
    prefilter: prefilterOf(conditions),
    // An alternative without words holds everywhere, and a test without alternatives says nothing.
    words: words.filter((test) => test.length > 0 && test.every((all) => all.length > 0)),
    matches: (payload) => tests.every((test) => test(payload)),
  };
}
