/** The values of a field for which a condition holds, as the counts of declared fields know them. */

import { notYet } from '../../errors.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import { OTHER, scalarValue, valueOfString } from '../../storage/fields/value-text.ts';
import { type Condition, isScalar } from './parse-filter.ts';
import { hasTexts, payloadFilter, type SearchedTexts } from './payload-filter.ts';

/** The answer to what only counts know, while too much of it is not counted yet: maintenance needs some seconds for it. */
export const COUNTED_LATER = notYet(
  'Many events of the interval are not counted by the values of the field yet; try again shortly.',
  5,
);

/** When reads answer {@link COUNTED_LATER}, for their descriptions. */
export const COUNTED_LATER_NOTE =
  'What only the counts of a declared field answer is refused with 503 `UNAVAILABLE` and `Retry-After` while more than 5,000 ' +
  'minutes, or minutes with more than 50,000 events, are not counted by its values yet, or where `to` lies in a minute with more ' +
  'than 200,000 events.';

/** @returns null where the condition is not that the field has one of some values, or a value is too long to be counted */
export function countedValues({ isNegated, test }: Condition): readonly string[] | null {
  if (isNegated || test.kind !== 'equals') return null;
  const values = new Set<string>();
  for (const { text, isQuoted, isExact } of test.values) {
    if (!isExact) values.add(valueOfString(text));
    // An unquoted value is also the number, true, false or null that it spells.
    if (!isQuoted && isScalar(text)) values.add(scalarValue(text));
  }
  return values.has(OTHER) ? null : [...values];
}

/** @returns null where the counts of declared fields cannot answer it: it is not that one field has one of some values */
export function fieldFilterOf(query: SearchedTexts & { filter: readonly Condition[] }): FieldFilter | null {
  const [condition, ...others] = query.filter;
  const rows = payloadFilter(query.filter, query);
  if (condition === undefined || rows === null || others.length > 0) return null;
  if (hasTexts(query)) return null;
  const values = countedValues(condition);
  return values === null ? null : { path: condition.path, values, rows };
}
