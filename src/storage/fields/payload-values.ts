/** The values of fields in a payload, which are those that a filter on their paths would find. Objects are no values. */
import { PathWalk, type TextPart } from '../../json/path-walk.ts';
import { MANY, scalarValue, stringValue } from './value-text.ts';

const QUOTE = 0x22;
const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;

/**
 * `value`: events are counted by the field's values. `number`: statistics of its numbers are kept. `distinct`: how many different values
 * it has.
 */
export type FieldKind = 'value' | 'number' | 'distinct';

export class PayloadValues {
  readonly #walk: PathWalk;
  readonly #kinds: readonly FieldKind[];
  readonly #values: (string | null)[];
  /** All values of the paths about different values. */
  readonly #different: string[][];
  readonly #hasDistinct: boolean;

  /** @param kinds of the paths; absent: all are about values */
  constructor(paths: readonly (readonly string[])[], kinds: readonly FieldKind[] = []) {
    this.#kinds = kinds;
    this.#values = paths.map(() => null);
    this.#different = paths.map(() => []);
    this.#hasDistinct = kinds.includes('distinct');
    this.#walk = new PathWalk(paths, (ends, text, start, end) => {
      if (end > start) this.#note(ends, text.charCodeAt(start), text.slice(start, end));
      return false;
    });
  }

  /**
   * The value of each path: its text, MANY where there are several different ones, null where there is none. Of a path about
   * numbers: the number as the payload spells it, MANY where there are several, equal or not; what is no number counts as
   * nothing. Valid until the next call.
   */
  read(payload: string | TextPart): readonly (string | null)[] {
    this.#values.fill(null);
    if (this.#hasDistinct) for (const list of this.#different) list.length = 0;
    this.#walk.over(payload);
    return this.#values;
  }

  /** Every value of a path about different values, of the payload that was read last; some may repeat. Valid until the next call. */
  different(index: number): readonly string[] {
    return this.#different[index] ?? [];
  }

  /** @param first the first character of the literal */
  #note(paths: readonly number[], first: number, literal: string): void {
    let text: string | null = null;
    for (const index of paths) {
      const known = this.#values[index] ?? null;
      const kind = this.#kinds[index];
      if (kind === 'number') {
        const isNumber = first === MINUS || (first >= DIGIT_0 && first <= DIGIT_9);
        if (isNumber) this.#values[index] = known === null ? literal : MANY;
      } else {
        text ??= first === QUOTE ? stringValue(literal) : scalarValue(literal);
        this.#values[index] = known === null || known === text ? text : MANY;
        if (kind === 'distinct') this.#different[index]?.push(text);
      }
    }
  }
}
