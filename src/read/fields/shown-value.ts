/** The values of a field in answers. */
import type { Schema } from '../../http/query.ts';
import { isScalar } from '../filter/parse-filter.ts';

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

/** A value in a row: one that is a number, and given as a text, says so, as the text of the same digits is another value. */
export function valueInRow(value: string): {
  readonly value: ReturnType<typeof shownValue>;
  readonly valueIsNumber?: true;
} {
  const shown = shownValue(value);
  return shown === value ? { value: shown, valueIsNumber: true } : { value: shown };
}

export const VALUE_IS_NUMBER: Schema = {
  const: true,
  description:
    'The value is a number, which is given as a text because a double cannot hold it. Else absent.',
};

/** A value for display: a text without quotes, unless it would look like something else. */
export function nameOf(value: string): string {
  const parsed: unknown = JSON.parse(value);
  const isPlain = typeof parsed === 'string' && parsed.trim() !== '' && !isScalar(parsed);
  return isPlain ? parsed : value;
}
