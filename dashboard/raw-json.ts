/**
 * JSON as text: where values begin and end, without reading them. What a producer sent is shown as it was spelled,
 * `1e400`, duplicate keys and 20-digit integers included. The text is valid JSON: the server has parsed it.
 */
import { skipSpace } from '../src/json/lexer.ts';
import { firstItem, isClosing, memberValue, nextItem, stringEnd, valueEnd } from '../src/json/walk.ts';

/** One member of an object, or one element of an array, as a place in the text. */
export interface Child {
  /** The key as spelled, with its quotes; null in an array. */
  readonly key: string | null;
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

export interface Children {
  readonly items: readonly Child[];
  /** Where to go on for more, as `from` of the next call; null where these were the last. */
  readonly next: number | null;
}

/**
 * The children of the object or array that begins at `at`.
 * @param limit how many at most
 * @param from  `next` of the call before
 */
export function children(text: string, at: number, limit = Infinity, from: number | null = null): Children {
  const isObject = text[at] === '{';
  const items: Child[] = [];
  let place = from === null ? firstItem(text, at) : skipSpace(text, from);
  while (!isClosing(text, place)) {
    if (items.length >= limit) return { items, next: place };
    const keyEnd = isObject ? stringEnd(text, place) : null;
    const start = keyEnd === null ? place : memberValue(text, keyEnd);
    const end = valueEnd(text, start);
    items.push({ key: keyEnd === null ? null : text.slice(place, keyEnd), start, end });
    place = nextItem(text, end);
  }
  return { items, next: null };
}

/** Members of the object that begins at `at`, by their plain key; of duplicates the last. */
export function members(text: string, at: number): Map<string, Child> {
  return new Map(children(text, at).items.map((child) => [JSON.parse(child.key ?? '""') as string, child]));
}
