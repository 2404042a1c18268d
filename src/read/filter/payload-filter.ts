/** The filter of a read: conditions on the payload and a text to search for, of which all must be met. */
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

/**
 * Makes the filter of rows.
 * @param search a text that the payload contains; null or empty: any payload
 * @returns null where every payload is wanted
 */
export function payloadFilter(conditions: readonly Condition[], search: string | null): RowFilter | null {
  const tests: PayloadTest[] = conditions.map(matcherOf);
  const contains: TextTest[] = conditions.flatMap(narrowingOf);
  if (search !== null && search !== '') {
    tests.push((payload) => containsText(payload, search));
    contains.push(containing(search));
  }
  if (tests.length === 0) return null;
  return {
    contains,
    prefilter: prefilterOf(conditions),
    matches: (payload) => tests.every((test) => test(payload)),
  };
}

/** Whether a payload's text contains another, as it was sent or with its escapes resolved. */
function containsText(payload: string, search: string): boolean {
  if (payload.includes(search)) return true;
  return payload.includes('\\') && unescaped(payload).includes(search);
}

const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|(.))/g;
const CONTROL: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

function unescaped(text: string): string {
  return text.replace(ESCAPE, (_, hex: string | undefined, character: string) =>
    hex === undefined ? (CONTROL[character] ?? character) : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}
