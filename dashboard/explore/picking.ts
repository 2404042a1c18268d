/** How a view is filtered by a line of its chart: by an event type, or by a value of the field that the chart is by. */
import { countablePath, equals, valueText, withCondition } from '../filter-text.ts';
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
  const own = filters.filter(isOwn).map((filter) => filter.slice(filter.indexOf(':', by.length) + 1));
  return {
    picked: own.flatMap((value) => keyOf(value) ?? []),
    with: (key) => {
      const condition = key === null ? null : equals(by, valueText(key));
      return { filters: condition === null ? others : [...others, condition], hidden: [] };
    },
    without: (key) => ({ filters: withCondition(filters, by, valueText(key), true), hidden: [] }),
  };
}

/** The key of a value as the grammar of filters spells it; null for several values. */
function keyOf(value: string): string | null {
  try {
    return typeof JSON.parse(value) === 'object' && value !== 'null' ? null : value;
  } catch {
    return value.includes(',') ? null : JSON.stringify(value);
  }
}
