/** How a view is filtered by a line of its chart: by an event type, or by a value of the field that the chart is by. */
import { allowedBy, countablePath, equals, withCondition } from '../filter-text.ts';
import { pathKey } from '../known-fields.ts';
import type { View } from '../url.ts';

export interface Picking {
  /** Keys of the lines that the view is filtered by. */
  readonly picked: readonly string[];
  /** Only the events of this line; null: of all lines again. */
  readonly with: (key: string | null) => Partial<View>;
  /** All but the events of this line. */
  readonly without: (key: string) => Partial<View>;
}

/** @param by the path of the field whose values the lines are; null: they are event types */
export function pickingOf({ types, filters }: View, by: string | null): Picking {
  if (by === null)
    return {
      picked: types,
      with: (key) => ({ types: key === null ? [] : [key], hidden: [] }),
      without: (key) => ({
        types: types.includes(key) ? types.filter((type) => type !== key) : [...types, `-${key}`],
        hidden: [],
      }),
    };
  const isOwn = (filter: string): boolean => pathKey(countablePath(filter) ?? '') === pathKey(by);
  const others = filters.filter((filter) => !isOwn(filter));
  return {
    picked: filters.filter(isOwn).flatMap((filter) => {
      const [value = '', ...others] = allowedBy(filter)?.values ?? [];
      // Several values are no line. A number without quotes is that of the text, too.
      return others.every((other) => other === JSON.stringify(value)) ? [value, ...others] : [];
    }),
    with: (key) => {
      const condition = key === null ? null : equals(by, key);
      return { filters: condition === null ? others : [...others, condition], hidden: [] };
    },
    without: (key) => ({ filters: withCondition(filters, by, key, true), hidden: [] }),
  };
}
