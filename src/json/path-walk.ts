/**
 * Visits the values that paths lead to in a text that is known to be JSON, in one pass over the objects on their way. Nothing is
 * parsed: what a parser would make of a number has lost its digits.
 *
 * The last of several members with the same name counts, as for JSON.parse. A path that comes to an array goes on in each of
 * its elements. Each name of a path may read its part of the text once more, so the cost is at most the text's length times the
 * longest path's.
 *
 * A search for the names comes first, which takes a tenth of the time of the walk. It gives up where it is not certain: at an escape,
 * an array, an object before a member, or a second member of a name.
 */
import { NONE, skipSpace } from './lexer.ts';
import { Occurrences } from './occurrences.ts';
import { Names } from './strings.ts';
import { firstItem, isClosing, memberValue, nextItem, scalarEnd, stringEnd, valueEnd } from './walk.ts';

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;

/**
 * Called with a value that paths lead to.
 * @param paths indexes of the paths
 * @param start index of the value's first character
 * @param end   index after a string, number, true, false or null; equal to `start` for an object or an array
 * @returns whether the walk is to stop
 */
export type VisitValue = (paths: readonly number[], text: string, start: number, end: number) => boolean;

/** A name that has one spelling without escapes, in any encoding, and that no text between two strings begins like. */
const SEARCHABLE = /^[A-Za-z0-9_$@#./-][ !#-[\]-~]*$/;
const NOT_ASCII = /[\x80-\xff]/;

/** A text of JSON within a longer one. */
export interface TextPart {
  /** Bytes of UTF-8, each as a character; outside of the part it may hold anything. */
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** The text of the part alone. */
  whole(): string;
}

export function textOf(payload: string | TextPart): string {
  return typeof payload === 'string' ? payload : payload.whole();
}

/** A name that paths share, with the names that follow it. */
interface Step {
  readonly names: string[];
  /** Each name with its closing quote: text is full of quotes, and a search stops at each place that begins like what it looks for. */
  readonly searches: Occurrences[];
  readonly keys: Names;
  readonly next: Step[];
  /** Indexes of the paths that end here. */
  readonly ends: number[];
  /** Where the member of each of `names` was last seen; meaningful during one object. */
  readonly found: number[];
}

export class PathWalk {
  readonly #root: Step = newStep();
  readonly #visitValue: VisitValue;
  readonly #marks = {
    escape: new Occurrences('\\'),
    object: new Occurrences('{'),
    objectEnd: new Occurrences('}'),
  };
  readonly #isSearchable: boolean;
  #text = '';
  #end = 0;
  #isStopped = false;

  constructor(paths: readonly (readonly string[])[], visit: VisitValue) {
    this.#visitValue = visit;
    for (const [index, path] of paths.entries()) {
      let step = this.#root;
      for (const name of path) step = following(step, name);
      step.ends.push(index);
    }
    this.#isSearchable = paths.every(
      (path) => path.length > 0 && path.every((name) => SEARCHABLE.test(name)),
    );
  }

  /** Visits the values of a text. @returns whether the visitor has stopped it */
  over(payload: string | TextPart): boolean {
    this.#isStopped = false;
    if (this.#root.next.length === 0 && this.#root.ends.length === 0) return false;
    const isPart = typeof payload !== 'string';
    const isFound =
      this.#isSearchable &&
      (isPart
        ? this.#search(payload.text, payload.start, payload.end)
        : this.#search(payload, 0, payload.length));
    if (isFound) {
      this.#visitFound(this.#root, isPart);
    } else {
      this.#text = textOf(payload);
      this.#visit(skipSpace(this.#text, 0), this.#root);
    }
    // The text of many payloads is searched on.
    if (!isFound || !isPart) this.#text = '';
    return this.#isStopped;
  }

  /** Looks for the members that the steps name. @returns whether it is certain of them */
  #search(text: string, start: number, end: number): boolean {
    if (text !== this.#text) {
      this.#text = text;
      for (const mark of Object.values(this.#marks)) mark.in(text);
      searchIn(text, this.#root);
    }
    this.#end = end;
    const open = skipSpace(text, start);
    if (text.charCodeAt(open) !== OPEN_BRACE || this.#marks.escape.from(start) < end) return false;
    return this.#find(this.#root, open);
  }

  #find(step: Step, open: number): boolean {
    const { object, objectEnd } = this.#marks;
    const { searches, next, found } = step;
    for (let index = 0; index < next.length; index += 1) {
      const name = searches[index] as Occurrences; // `searches`, `next` and `found` have the length of `names`.
      const value = this.#memberAfter(name, open);
      found[index] = value;
      if (value === NONE) continue;
      // With none of these in between it is a member of this object. The end of the outermost one comes last.
      if (object.from(open + 1) < value) return false;
      if (step !== this.#root && objectEnd.from(open + 1) < value) return false;
      if (this.#memberAfter(name, value) !== NONE) return false;
      const first = this.#text.charCodeAt(value);
      if (first === OPEN_BRACKET || (first === OPEN_BRACE && !this.#find(next[index] as Step, value)))
        return false;
    }
    return true;
  }

  /** @returns where the value of the first member of a name begins: without escapes, a string with a colon after it is a name */
  #memberAfter(name: Occurrences, index: number): number {
    const text = this.#text;
    for (let at = name.from(index + 1); at < this.#end; at = name.from(at + 1)) {
      if (text.charCodeAt(at - 1) !== QUOTE) continue;
      const colon = skipSpace(text, at + name.length);
      if (text.charCodeAt(colon) === COLON) return skipSpace(text, colon + 1);
    }
    return NONE;
  }

  #visitFound({ next, found }: Step, isBytewise: boolean): void {
    const text = this.#text;
    for (let index = 0; index < next.length && !this.#isStopped; index += 1) {
      const value = found[index] as number;
      if (value === NONE) continue;
      const step = next[index] as Step;
      const first = text.charCodeAt(value);
      if (step.ends.length > 0) {
        const end =
          first === OPEN_BRACE
            ? value
            : first === QUOTE
              ? text.indexOf('"', value + 1) + 1
              : scalarEnd(text, value);
        this.#isStopped = isBytewise
          ? this.#visitBytes(step.ends, value, end)
          : this.#visitValue(step.ends, text, value, end);
      }
      if (first === OPEN_BRACE && !this.#isStopped) this.#visitFound(step, isBytewise);
    }
  }

  #visitBytes(ends: readonly number[], start: number, end: number): boolean {
    const literal = this.#text.slice(start, end);
    const text = NOT_ASCII.test(literal) ? Buffer.from(literal, 'latin1').toString() : literal;
    return this.#visitValue(ends, text, 0, text.length);
  }

  /** @returns the index after the value; meaningless once the walk is stopped */
  #visit(at: number, step: Step): number {
    const text = this.#text;
    const code = text.charCodeAt(at);
    const isNested = code === OPEN_BRACKET || code === OPEN_BRACE;
    const end = isNested ? at : code === QUOTE ? stringEnd(text, at) : scalarEnd(text, at);
    if (step.ends.length > 0 && this.#visitValue(step.ends, text, at, end)) this.#isStopped = true;
    if (!isNested || this.#isStopped) return end;
    if (code === OPEN_BRACKET) return this.#visitElements(at, step);
    return step.next.length > 0 ? this.#visitMembers(at, step) : valueEnd(text, at);
  }

  #visitElements(start: number, step: Step): number {
    const text = this.#text;
    let at = firstItem(text, start);
    while (!isClosing(text, at)) {
      at = nextItem(text, this.#visit(at, step));
      if (this.#isStopped) return at;
    }
    return at + 1;
  }

  /** Looks at the members that the step names once all are seen: of those with the same name the last one counts. */
  #visitMembers(start: number, { keys, next, found }: Step): number {
    const text = this.#text;
    for (let index = 0; index < found.length; index += 1) found[index] = NONE;
    let at = firstItem(text, start);
    while (!isClosing(text, at)) {
      const keyEnd = stringEnd(text, at);
      const value = memberValue(text, keyEnd);
      const index = keys.indexOf(text, at + 1, keyEnd - 1);
      if (index !== NONE) found[index] = value;
      at = nextItem(text, valueEnd(text, value));
    }
    // A value may hold an object that comes to another step, never to this one.
    for (let index = 0; index < next.length && !this.#isStopped; index += 1) {
      const value = found[index] as number; // `found` and `next` have the length of `names`.
      if (value !== NONE) this.#visit(value, next[index] as Step);
    }
    return at + 1;
  }
}

function newStep(): Step {
  return { names: [], searches: [], keys: new Names(), next: [], ends: [], found: [] };
}

function searchIn(text: string, { searches, next }: Step): void {
  for (const name of searches) name.in(text);
  for (const step of next) searchIn(text, step);
}

function following(step: Step, name: string): Step {
  const known = step.next[step.names.indexOf(name)];
  if (known !== undefined) return known;
  const made = newStep();
  step.names.push(name);
  step.searches.push(new Occurrences(`${name}"`));
  step.keys.add(name);
  step.found.push(NONE);
  step.next.push(made);
  return made;
}
