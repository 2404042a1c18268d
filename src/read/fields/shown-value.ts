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

/** A value for display: a text without quotes, unless it would look like something else. */
export function nameOf(value: string): string {
  const parsed: unknown = JSON.parse(value);
  const isPlain = typeof parsed === 'string' && parsed.trim() !== '' && !isScalar(parsed);
  return isPlain ? parsed : value;
}

function isScalar(text: string): boolean {
  return ['true', 'false', 'null'].includes(text) || /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i.test(text);
}
