/**
 * Reads the values of several paths from the text of a payload, in one pass over the objects that the paths lead through. The
 * text is known to be JSON. It finds what a filter on one of the paths would: of members with the same name the last one
 * counts, and a path that comes to an array goes on in each of its elements. Objects are no values.
 */
import { NONE, scalarEnd, skipSpace, stringEnd, valueEnd } from '../../json/walk.ts';
import { MANY, scalarValue, stringValue } from './value-text.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = '\\';
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;

/** A name that paths share, with the names that follow it. */
interface Step {
  readonly names: string[];
  readonly next: Step[];
  /** Indexes of the paths that end here, and are about values, numbers or different values. */
  readonly ends: number[];
  readonly numberEnds: number[];
  readonly distinctEnds: number[];
  /** Where the member of each of `names` was last seen; meaningful during one object. */
  readonly found: number[];
}

/**
 * `value`: events are counted by the field's values. `number`: statistics of its numbers are kept. `distinct`: how many different values
 * it has.
 */
export type FieldKind = 'value' | 'number' | 'distinct';

export class PayloadValues {
  readonly #root: Step = newStep();
  readonly #values: (string | null)[];
  /** All values of the paths about different values. */
  readonly #different: string[][];
  readonly #hasDistinct: boolean;
  #text = '';

  /** @param kinds of the paths; absent: all are about values */
  constructor(paths: readonly (readonly string[])[], kinds: readonly FieldKind[] = []) {
    this.#values = paths.map(() => null);
    this.#different = paths.map(() => []);
    this.#hasDistinct = kinds.includes('distinct');
    for (const [index, path] of paths.entries()) {
      let step = this.#root;
      for (const name of path) step = following(step, name);
      if (kinds[index] === 'number') step.numberEnds.push(index);
      else {
        step.ends.push(index);
        if (kinds[index] === 'distinct') step.distinctEnds.push(index);
      }
    }
  }

  /**
   * The value of each path: its text, MANY where there are several different ones, null where there is none. Of a path about
   * numbers: the number as the payload spells it, MANY where there are several, equal or not; what is no number counts as
   * nothing. Valid until the next call.
   */
  read(payload: string): readonly (string | null)[] {
    this.#values.fill(null);
    if (this.#hasDistinct) for (const list of this.#different) list.length = 0;
    this.#text = payload;
    this.#visit(skipSpace(payload, 0), this.#root);
    this.#text = '';
    return this.#values;
  }

  /** @returns the index after the value */
  #visit(at: number, step: Step): number {
    const code = this.#text.charCodeAt(at);
    if (code === OPEN_BRACKET) return this.#visitElements(at, step);
    if (code === OPEN_BRACE && step.names.length > 0) return this.#visitMembers(at, step);
    if (code === OPEN_BRACE || (step.ends.length === 0 && step.numberEnds.length === 0))
      return valueEnd(this.#text, at);
    const isString = code === QUOTE;
    const end = isString ? stringEnd(this.#text, at) : scalarEnd(this.#text, at);
    const literal = this.#text.slice(at, end);
    if (step.ends.length > 0) this.#note(step, isString ? stringValue(literal) : scalarValue(literal));
    if (code === MINUS || (code >= DIGIT_0 && code <= DIGIT_9)) this.#noteNumber(step, literal);
    return end;
  }

  #noteNumber({ numberEnds }: Step, literal: string): void {
    for (const index of numberEnds) this.#values[index] = this.#values[index] === null ? literal : MANY;
  }

  /** Every value of a path about different values, of the payload that was read last; some may repeat. Valid until the next call. */
  different(index: number): readonly string[] {
    return this.#different[index] ?? [];
  }

  #note({ ends, distinctEnds }: Step, value: string): void {
    for (const index of distinctEnds) this.#different[index]?.push(value);
    for (const index of ends) {
      const known = this.#values[index] ?? null;
      this.#values[index] = known === null || known === value ? value : MANY;
    }
  }

  #visitElements(start: number, step: Step): number {
    const text = this.#text;
    let at = skipSpace(text, start + 1);
    if (text.charCodeAt(at) === CLOSE_BRACKET) return at + 1;
    for (;;) {
      at = skipSpace(text, this.#visit(at, step));
      if (text.charCodeAt(at) !== COMMA) return at + 1;
      at = skipSpace(text, at + 1);
    }
  }

  #visitMembers(start: number, step: Step): number {
    const text = this.#text;
    const { names, found, next } = step;
    found.fill(NONE);
    let at = skipSpace(text, start + 1);
    while (text.charCodeAt(at) === QUOTE) {
      const keyEnd = stringEnd(text, at);
      const value = skipSpace(text, skipSpace(text, keyEnd) + 1);
      const place = placeOf(names, text, at, keyEnd);
      if (place !== NONE) found[place] = value;
      at = skipSpace(text, valueEnd(text, value));
      if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
    }
    // A member's value may hold an object that comes to another step, never to this one.
    for (const [place, following] of next.entries()) {
      const value = found[place] ?? NONE;
      if (value !== NONE) this.#visit(value, following);
    }
    return at + 1;
  }
}

function newStep(): Step {
  return { names: [], next: [], ends: [], numberEnds: [], distinctEnds: [], found: [] };
}

function following(step: Step, name: string): Step {
  const known = step.next[step.names.indexOf(name)];
  if (known !== undefined) return known;
  const made = newStep();
  step.names.push(name);
  step.found.push(NONE);
  step.next.push(made);
  return made;
}

/** Which of several names the string between two indexes, quotes included, spells. */
function placeOf(names: readonly string[], text: string, start: number, end: number): number {
  const length = end - start - 2;
  for (let place = 0; place < names.length; place += 1) {
    const name = names[place] ?? '';
    if (name.length === length && text.startsWith(name, start + 1) && !name.includes(BACKSLASH)) return place;
  }
  // An escape is longer than what it stands for.
  const hasEscape = text.slice(start, end).includes(BACKSLASH);
  return hasEscape ? names.indexOf(JSON.parse(text.slice(start, end)) as string) : NONE;
}
