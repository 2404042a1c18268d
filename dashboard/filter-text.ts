/** Conditions on payloads, in the grammar of the API's `filter`: written for a value, and recognized in typed text. */

/** A name that needs no quotes. */
const PLAIN_NAME = /^[\p{L}_$@][\p{L}\p{N}_$@/-]*$/u;
/** A text that needs no quotes and does not look like a number. */
const PLAIN_TEXT = /^[\p{L}_/@][\p{L}\p{N}_/@.:+ -]*$/u;
const WORDS = ['true', 'false', 'null'];
/** The server's limit. */
const MOST_CHARACTERS = 1_000;

/** Names of members from the payload's top on, as a path of the grammar. Arrays have no name: a path goes on in each element. */
export function pathText(names: readonly string[]): string {
  return names.map((name) => (PLAIN_NAME.test(name) ? name : JSON.stringify(name))).join('.');
}

/** A scalar of JSON, in its own spelling, as a value of the grammar. */
export function valueText(spelling: string): string {
  if (!spelling.startsWith('"')) return spelling;
  const text = JSON.parse(spelling) as string;
  const isPlain = PLAIN_TEXT.test(text) && !text.endsWith(' ') && !WORDS.includes(text);
  return isPlain ? text : spelling;
}

/** The condition that a field has a value; null where it would be too long. */
export function equals(path: string, value: string): string | null {
  const condition = `${path}:${value}`;
  return condition.length < MOST_CHARACTERS ? condition : null;
}

/** Adds a condition to others: a second value of the same field is another that it may have. */
export function withCondition(
  filters: readonly string[],
  path: string,
  value: string,
  not: boolean,
): string[] {
  const condition = equals(path, value);
  if (condition === null) return [...filters];
  const own = not ? `-${condition}` : condition;
  if (filters.includes(own)) return [...filters];
  const opposite = not ? condition : `-${condition}`;
  const kept = filters.filter((filter) => filter !== opposite);
  const index = kept.findIndex((filter) => !not && filter.startsWith(`${path}:`) && !filter.endsWith(':*'));
  if (index < 0) return [...kept, own];
  const longer = `${kept[index]},${value}`;
  return kept.map((filter, i) => (i === index && longer.length < MOST_CHARACTERS ? longer : filter));
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

/** The path of a condition that counts of a declared field may answer: that the field has one of some values. Else null. */
export function countablePath(condition: string): string | null {
  const [, path = '', value = ''] =
    /^((?!\s*-)(?:[^":<>=\\]|"(?:[^"\\]|\\.)*")+):(.*)$/s.exec(condition) ?? [];
  return path.trim() === '' || ['', '*'].includes(value.trim()) ? null : path.trim();
}

/** Where the server says which conditions a text is that was typed. */
export const typedConditionsPath = (text: string): string =>
  `/api/typed-conditions?text=${encodeURIComponent(text)}`;
