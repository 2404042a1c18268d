/**
 * Visits the values that paths lead to in a text that is known to be JSON, in one pass over the objects on their way. Nothing is
 * parsed: what a parser would make of a number has lost its digits.
 *
 * The last of several members with the same name counts, as for JSON.parse. A path that comes to an array goes on in each of
 * its elements. Each name of a path may read its part of the text once more, so the cost is at most the text's length times the
 * longest path's.
 */
import { NONE, skipSpace } from './lexer.ts';
import { Names } from './strings.ts';
import { firstItem, isClosing, memberValue, nextItem, scalarEnd, stringEnd, valueEnd } from './walk.ts';

const QUOTE = 0x22;
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

/** A name that paths share, with the names that follow it. */
interface Step {
  readonly names: string[];
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
  #text = '';
  #isStopped = false;

  constructor(paths: readonly (readonly string[])[], visit: VisitValue) {
    this.#visitValue = visit;
    for (const [index, path] of paths.entries()) {
      let step = this.#root;
      for (const name of path) step = following(step, name);
      step.ends.push(index);
    }
  }

  /** Visits the values of a text. @returns whether the visitor has stopped it */
  over(text: string): boolean {
    this.#text = text;
    this.#isStopped = false;
    this.#visit(skipSpace(text, 0), this.#root);
    this.#text = '';
    return this.#isStopped;
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
  return { names: [], keys: new Names(), next: [], ends: [], found: [] };
}

function following(step: Step, name: string): Step {
  const known = step.next[step.names.indexOf(name)];
  if (known !== undefined) return known;
  const made = newStep();
  step.names.push(name);
  step.keys.add(name);
  step.found.push(NONE);
  step.next.push(made);
  return made;
}
