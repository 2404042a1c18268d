/** The values of a field in answers. */
import type { Schema } from '../../http/query.ts';

export const VALUE: Schema = {
  description: 'The value as JSON; a number that a double cannot hold as a text.',
  type: ['string', 'number', 'boolean', 'null'],
};

/** @param value its one text (value-text.ts) */
export function shownValue(value: string): string | number | boolean | null {
  const parsed = JSON.parse(value) as string | number | boolean | null; // Values of fields are scalars.
  const isExact = typeof parsed !== 'number' || String(parsed) === value;
  return isExact ? parsed : value;
}
