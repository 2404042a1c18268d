/** Conditions on payloads as people type them, in this grammar or in those of other tools. */

import { parseFilter } from '../filter/parse-filter.ts';

/** Conditions in the grammar of filters, or what is wrong and how it is written here. */
export type ReadConditions = { readonly conditions: readonly string[] } | { readonly mistake: string };

/** Longer ones before those that they begin with. */
const SIGNS = ['==', '=~', '!=', '<>', '<=', '>=', '=', '<', '>', ':'];
const ORDERS = ['<', '<=', '>', '>='];
/** Comparisons of other languages: with a part of a value. */
const PARTIAL = ['like', 'ilike', 'contains', 'matches'];
const NO_NAME = ' \t\n:<>=!"\'()';
const PART_IS_TEXT = 'To find a part of a value, type that part alone: it is searched for in the payload.';

/** How a condition begins. */
interface Head {
  readonly isNot: boolean;
  readonly path: string;
  /** A sign, `in`, or one of {@link PARTIAL}. */
  readonly sign: string;
  /** Where its value begins. */
  readonly at: number;
}

/**
 * Reads conditions as people write them, here and elsewhere: `country:DE`, `country = 'DE' AND plan != free`, `plan in (a, b)`.
 * @returns null where the text is no condition, or has no value yet
 */
export function readConditions(text: string): ReadConditions | null {
  const wanted = text.trim();
  if (wanted.startsWith('(') && SIGNS.some((sign) => wanted.includes(sign)))
    return { mistake: 'Write conditions as country:DE,FR AND plan:pro: brackets are not understood.' };
  if (headOf(wanted, 0) === null) return null;
  const conditions: string[] = [];
  let isEither = false;
  for (let at = 0; at < wanted.length; ) {
    const head = headOf(wanted, at);
    if (head === null) return { mistake: `A condition is missing after ${wanted.slice(0, at).trim()}.` };
    const { path, sign } = head;
    const end = endOfValue(wanted, head.at);
    if (end.isOpen) return { mistake: 'The closing quote is missing.' };
    const value = wanted.slice(head.at, end.at).trim();
    if (PARTIAL.includes(sign) || sign === '=~' || hasStar(value))
      return { mistake: `A condition is on the whole value: ${path}:"the value". ${PART_IS_TEXT}` };
    if (value === '') return null;
    const isOrder = ORDERS.includes(sign);
    const list = valuesOf(sign === 'in' ? value.replace(/^\(/, '').replace(/\)$/, '') : value);
    // Other languages have == before texts without quotes, too.
    const isExact = sign === '==' && !('problem' in parseFilter(`v==${list}`));
    const start = `${head.isNot ? '-' : ''}${path}${isOrder ? sign : isExact ? '==' : ':'}`;
    const own = start + list;
    const last = conditions.at(-1) ?? '';
    if (!isEither) conditions.push(own);
    else if (head.isNot || isOrder || !last.startsWith(start) || last === `${path}:*`)
      return {
        mistake: 'OR joins values of one field: country:DE,FR. Conditions on several fields must all be met.',
      };
    else conditions.splice(-1, 1, `${last},${list}`);
    isEither = end.isEither;
    at = end.next;
  }
  return { conditions };
}

/** @returns null where no path with a comparison begins here */
function headOf(text: string, from: number, mayPause = true): Head | null {
  let at = from;
  const word = (): string => /^[a-z]*/i.exec(text.slice(at))?.[0].toLowerCase() ?? '';
  const skip = (): void => {
    while (' \t\n'.includes(text[at] ?? '.')) at += 1;
  };
  skip();
  let isNot = '-!'.includes(text[at] ?? '.');
  if (isNot) at += 1;
  else if (mayPause && word() === 'not' && text[at + 3] === ' ') {
    isNot = true;
    at += 3;
    skip();
  }
  const start = at;
  for (; at < text.length; at += 1) {
    if (text[at] === '"') at = endOfQuote(text, at) - 1;
    else if (NO_NAME.includes(text[at] ?? '')) break;
  }
  const path = text.slice(start, at);
  const isApart = text[at] === ' ';
  if (mayPause) skip();
  let sign = SIGNS.find((one) => text.startsWith(one, at)) ?? '';
  if (sign === '' && mayPause && isApart) {
    const isNotIn = word() === 'not';
    if (isNotIn) {
      at += 3;
      skip();
    }
    sign = [...PARTIAL, 'in'].find((one) => one === word()) ?? '';
    if (!' ('.includes(text[at + sign.length] ?? '.') || (sign === 'in' && !text.slice(at).includes('(')))
      sign = '';
    isNot = isNot !== isNotIn;
  }
  if (path === '' || sign === '') return null;
  return { isNot: isNot !== (sign === '!=' || sign === '<>'), path, sign, at: at + sign.length };
}

/** The index after the quoted text that begins at another; beyond the end where its quote is missing. */
function endOfQuote(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === text[start]) return at + 1;
    if (text[at] === '\\' && text[start] === '"') at += 1;
  }
  return text.length + 1;
}

interface ValueEnd {
  readonly at: number;
  /** Where the next condition begins. */
  readonly next: number;
  readonly isEither: boolean;
  /** Whether a quote is missing. */
  readonly isOpen: boolean;
}

/** A value ends before a word or sign between conditions, before the next condition, or with the text. */
function endOfValue(text: string, from: number): ValueEnd {
  let isBegun = false;
  for (let at = from; at < text.length; at += 1) {
    const character = text[at] ?? '';
    const isQuote =
      character === '"' || (character === "'" && (!isBegun || ' ,('.includes(text[at - 1] ?? '')));
    if (isQuote) at = endOfQuote(text, at) - 1;
    isBegun ||= character !== ' ';
    if (at >= text.length) return { at, next: at, isEither: false, isOpen: true };
    const rest = text.slice(at, at + 5).toLowerCase();
    const joint = [' and ', ' or ', '&&', '||'].find((one) => rest.startsWith(one));
    if (joint !== undefined)
      return { at, next: at + joint.length, isEither: joint === ' or ' || joint === '||', isOpen: false };
    if (character === ' ' && isBegun && headOf(text, at + 1, false) !== null)
      return { at, next: at + 1, isEither: false, isOpen: false };
  }
  return { at: text.length, next: text.length, isEither: false, isOpen: false };
}

/** Whether a value has a star that does not stand alone. */
const hasStar = (value: string): boolean =>
  value !== '*' && value.replace(/"(?:[^"\\]|\\.)*"|'[^']*'|\\./g, '').includes('*');

/** Single quotes are those of other languages. */
function valuesOf(list: string): string {
  if (!list.includes("'")) return list.trim();
  return list
    .split(',')
    .map((one) => one.trim())
    .map((one) => (one.startsWith("'") && one.endsWith("'") ? JSON.stringify(one.slice(1, -1)) : one))
    .join(',');
}
