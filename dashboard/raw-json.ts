/**
 * JSON as text: where values begin and end, without reading them. What a producer sent is shown as it was spelled,
 * `1e400`, duplicate keys and 20-digit integers included. The text is valid JSON: the server has parsed it.
 */

/** One member of an object, or one element of an array, as a place in the text. */
export interface Child {
  /** The key as spelled, with its quotes; null in an array. */
  readonly key: string | null;
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

const SPACE = /[ \t\n\r]*/y;
const SCALAR = /[^,\]}\s]+/y;
const BRACKET_OR_QUOTE = /["[\]{}]/g;

/** The index of the next character that is not white space. */
function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  SPACE.test(text);
  return SPACE.lastIndex;
}

/** The index after the string whose opening quote is at `at`. */
function stringEnd(text: string, at: number): number {
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let escapes = quote - 1;
    while (text[escapes] === '\\') escapes -= 1;
    // An even number of backslashes are escaped backslashes; an odd one escapes the quote.
    if ((quote - escapes) % 2 === 1) return quote + 1;
  }
  return text.length;
}

/** The position after the value that begins at `at`. A loop, not a recursion: payloads may be a thousand levels deep. */
export function valueEnd(text: string, at: number): number {
  const first = text[at];
  if (first === '"') return stringEnd(text, at);
  if (first !== '{' && first !== '[') {
    SCALAR.lastIndex = at;
    SCALAR.test(text);
    return SCALAR.lastIndex;
  }
  let depth = 0;
  BRACKET_OR_QUOTE.lastIndex = at;
  for (let found = BRACKET_OR_QUOTE.exec(text); found !== null; found = BRACKET_OR_QUOTE.exec(text)) {
    const mark = found[0];
    if (mark === '"') BRACKET_OR_QUOTE.lastIndex = stringEnd(text, found.index);
    else depth += mark === '{' || mark === '[' ? 1 : -1;
    if (depth === 0) return found.index + 1;
  }
  return text.length;
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
  let place = skipSpace(text, from ?? at + 1);
  while (place < text.length && text[place] !== '}' && text[place] !== ']') {
    if (items.length >= limit) return { items, next: place };
    let key: string | null = null;
    if (isObject) {
      const keyEnd = stringEnd(text, place);
      key = text.slice(place, keyEnd);
      place = skipSpace(text, skipSpace(text, keyEnd) + 1);
    }
    const end = valueEnd(text, place);
    items.push({ key, start: place, end });
    place = skipSpace(text, end);
    if (text[place] === ',') place = skipSpace(text, place + 1);
  }
  return { items, next: null };
}

/** Members of the object that begins at `at`, by their plain key; of duplicates the last. */
export function members(text: string, at: number): Map<string, Child> {
  return new Map(children(text, at).items.map((child) => [JSON.parse(child.key ?? '""') as string, child]));
}
