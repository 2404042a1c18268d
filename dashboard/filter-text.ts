/** Conditions on payloads, in the grammar of the API's `filter`: written for a value, and recognized in typed text. */

import { isScalar, readFilter } from '../src/read/filter/parse-filter.ts';
import { pathKey } from './known-fields.ts';

/** A name that needs no quotes. */
const PLAIN_NAME = /^[\p{L}_$@][\p{L}\p{N}_$@/-]*$/u;
/** A text that needs no quotes and does not look like a number. */
const PLAIN_TEXT = /^[\p{L}_/@][\p{L}\p{N}_/@.:+ -]*$/u;
/** What would end a value, or begin another condition, where it is typed. */
const JOINED = /\s(?:and|or)(?:\s|$)|\s\S*:/i;
/** The server's limit. */
const MOST_CHARACTERS = 1_000;

/** Names of members from the payload's top on, as a path of the grammar. Arrays have no name: a path goes on in each element. */
export function pathText(names: readonly string[]): string {
  return names.map((name) => (PLAIN_NAME.test(name) ? name : JSON.stringify(name))).join('.');
}

/** A scalar of JSON, in its own spelling, as a value is read: a text needs quotes only where it would be taken for something else. */
export function valueText(spelling: string): string {
  if (!spelling.startsWith('"')) return spelling;
  const text = JSON.parse(spelling) as string;
  const isPlain = PLAIN_TEXT.test(text) && !text.endsWith(' ') && !isScalar(text) && !JOINED.test(text);
  return isPlain ? text : spelling;
}

/** The condition that a field has one of some scalars of JSON, and not what merely reads the same; null where it would be too long. */
export function equals(path: string, ...spellings: readonly string[]): string | null {
  const areTexts = spellings.every((one) => one.startsWith('"'));
  const condition = areTexts ? `${path}:${spellings.map(valueText).join()}` : `${path}==${spellings.join()}`;
  return condition.length < MOST_CHARACTERS ? condition : null;
}

/** What a condition lets through, if it is that a field has one of some values. */
interface Allowed {
  readonly path: string;
  /** Scalars of JSON: without quotes, 5 is the number and the text. */
  readonly values: readonly string[];
}

export function allowedBy(condition: string): Allowed | null {
  const read = readFilter(condition);
  if (!('test' in read) || read.isNegated || read.test.kind !== 'equals') return null;
  const values = read.test.values.flatMap(({ text, isQuoted, isExact }) => [
    ...(!isQuoted && isScalar(text) ? [text] : []),
    ...(isExact ? [] : [JSON.stringify(text)]),
  ]);
  return { path: pathText(read.path), values };
}

/** The path of a condition that counts of a declared field may answer: that the field has one of some values. Else null. */
export const countablePath = (condition: string): string | null => allowedBy(condition)?.path ?? null;

/** A condition as it can be typed: values that contain words between conditions are in quotes. */
export function typable(condition: string): string {
  const allowed = allowedBy(condition.replace(/^-/, ''));
  if (allowed === null || allowed.values.some((value) => !value.startsWith('"'))) return condition;
  return `${condition.startsWith('-') ? '-' : ''}${equals(allowed.path, ...allowed.values) ?? condition}`;
}

/** Adds a condition to others: a second value of the same field is another that it may have. @param spelling a scalar of JSON */
export function withCondition(
  filters: readonly string[],
  path: string,
  spelling: string,
  not: boolean,
): string[] {
  const condition = equals(path, spelling);
  if (condition === null) return [...filters];
  const own = not ? `-${condition}` : condition;
  if (filters.includes(own)) return [...filters];
  const opposite = not ? condition : `-${condition}`;
  const kept = filters.filter((filter) => filter !== opposite);
  const index = not ? -1 : kept.findIndex((filter) => pathKey(countablePath(filter) ?? '') === pathKey(path));
  if (index < 0) return [...kept, own];
  const known = allowedBy(kept[index] ?? '') ?? { path, values: [] };
  const longer = known.values.includes(spelling) ? null : equals(known.path, ...known.values, spelling);
  return longer === null ? kept : kept.with(index, longer);
}

/** Longer signs before those that they begin with. */
const CONDITION = /^(-|!|not\s+)?((?:"(?:[^"\\]|\\.)*"|[^\s:<>="'()!])+)\s*(=[=~]?|!=|<>|[<>]=?|:)(.*)$/is;

/** The path at the beginning of typed text, and what follows it: `user.id = 4` has the path `user.id`. Null if there is none. */
export function typedPath(
  text: string,
): { readonly path: string; readonly sign: string; readonly value: string } | null {
  const [, not, path = '', sign = '', value = ''] = CONDITION.exec(text.trim()) ?? [];
  if (path === '') return null;
  const isNot = (not !== undefined) !== ['!=', '<>'].includes(sign);
  return {
    path: `${isNot ? '-' : ''}${path}`,
    sign: /^[<>]=?$/.test(sign) ? sign : ':',
    value: value.trim(),
  };
}

/** Where the server says which conditions a text is that was typed. */
export const typedConditionsPath = (text: string): string =>
  `/api/typed-conditions?text=${encodeURIComponent(text)}`;
