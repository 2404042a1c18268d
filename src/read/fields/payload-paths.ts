/** The paths of a payload, spelled as a filter takes them, with the values that they lead to. The text is known to be JSON. */
import { first, PLAIN, spellName } from '../../base/path-text.ts';
import { skipSpace } from '../../json/lexer.ts';
import {
  firstItem,
  isClosing,
  memberValue,
  nextItem,
  scalarEnd,
  stringEnd,
  valueEnd,
} from '../../json/walk.ts';

export { spellPath } from '../../base/path-text.ts';

export const KINDS = ['string', 'number', 'boolean', 'null', 'object', 'array'] as const;
export type Kind = (typeof KINDS)[number];

/** @param text the JSON text of a string, number, boolean or null; empty for an object or array */
export type PathVisitor = (path: string, kind: Kind, text: string) => void;

/** Levels that are looked at, objects and arrays alike, and elements of an array. */
export const MAX_LEVELS = 8;
export const MAX_ELEMENTS = 20;
/** Longer names are taken for data: a map by id, or a text. */
const MAX_NAME = 100;
/** A longer path would leave a filter no room for a value. */
const MAX_PATH = 500;

const QUOTE = 0x22;
const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const OPEN_BRACKET = 0x5b;
const LETTER_N = 0x6e;
const OPEN_BRACE = 0x7b;

/**
 * Calls back for each member, in order. A path that comes to an array goes on in its elements, as that of a filter does: it is
 * called for the array and for each element.
 */
export function visitPaths(payload: string, visit: PathVisitor): void {
  new PathScan(payload, visit).members(skipSpace(payload, 0), '', MAX_LEVELS);
}

class PathScan {
  readonly #text: string;
  readonly #visit: PathVisitor;

  constructor(text: string, visit: PathVisitor) {
    this.#text = text;
    this.#visit = visit;
  }

  /** @returns the index after the object that starts at `start` */
  members(start: number, parent: string, levels: number): number {
    const text = this.#text;
    let at = firstItem(text, start);
    while (!isClosing(text, at)) {
      const keyEnd = stringEnd(text, at);
      const name = keyEnd - at - 2 > MAX_NAME ? null : nameOf(text.slice(at, keyEnd));
      const value = memberValue(text, keyEnd);
      const path = name === null ? '' : parent === '' ? first(name) : `${parent}.${name}`;
      const isListed = path !== '' && path.length <= MAX_PATH;
      at = nextItem(text, isListed ? this.#value(value, path, levels - 1) : valueEnd(text, value));
    }
    return at + 1;
  }

  /** @returns the index after the value */
  #value(at: number, path: string, levels: number): number {
    const text = this.#text;
    const kind = kindOf(text.charCodeAt(at));
    if (kind === 'object' || kind === 'array') {
      this.#visit(path, kind, '');
      if (levels === 0) return valueEnd(text, at);
      return kind === 'object' ? this.members(at, path, levels) : this.#elements(at, path, levels);
    }
    const end = kind === 'string' ? stringEnd(text, at) : scalarEnd(text, at);
    this.#visit(path, kind, text.slice(at, end));
    return end;
  }

  #elements(start: number, path: string, levels: number): number {
    const text = this.#text;
    let at = firstItem(text, start);
    for (let seen = 0; seen < MAX_ELEMENTS && !isClosing(text, at); seen += 1)
      at = nextItem(text, this.#value(at, path, levels - 1));
    return isClosing(text, at) ? at + 1 : valueEnd(text, start);
  }
}

function kindOf(code: number): Kind {
  if (code === QUOTE) return 'string';
  if (code === OPEN_BRACE) return 'object';
  if (code === OPEN_BRACKET) return 'array';
  if (code === MINUS || (code >= DIGIT_0 && code <= DIGIT_9)) return 'number';
  return code === LETTER_N ? 'null' : 'boolean';
}

/** @param quoted a JSON string, as a payload has it */
function nameOf(quoted: string): string {
  const inner = quoted.slice(1, -1);
  return PLAIN.test(inner) ? inner : spellName(JSON.parse(quoted) as string);
}
