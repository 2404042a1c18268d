/** The parameters `filter`, `q` and `word` of a read. */
import { Invalid, type Parameter, text, texts } from '../../http/query.ts';
import type { RowFilter } from '../../storage/fields/row-filter.ts';
import { type Condition, MAX_FILTER_LENGTH, parsePath } from './parse-filter.ts';
import { parseFilters, payloadFilter, type SearchedTexts } from './payload-filter.ts';

export const MAX_FILTERS = 20;
const LIST = texts(
  'Only events whose payload meets this condition, such as `user.id:42`, `status>=500`, `country:DE,FR`, `coupon:*` ' +
    '(is there) or `-bot:true` (not). May be given several times: all conditions must be met.',
  { most: MAX_FILTERS },
);

const searched = (description: string): Parameter<string | null> =>
  text(description, {
    schema: { maxLength: MAX_FILTER_LENGTH },
    rule: `must have at most ${MAX_FILTER_LENGTH} characters`,
    convert: (sent) => sent,
  });

/** The names of a path. @param what it must be, where it is none */
export function pathOf(sent: string, what = 'the path of a field'): readonly string[] | Invalid {
  const path = parsePath(sent);
  return 'problem' in path ? new Invalid(`must be ${what}: column ${path.column}: ${path.problem}`) : path;
}

/** For a {@link Query}; {@link filterOf} makes a filter of the values. */
export const FILTER: {
  filter: Parameter<readonly Condition[]>;
  q: Parameter<string | null>;
  word: Parameter<string | null>;
} = {
  filter: {
    ...LIST,
    convert: (value) => {
      const conditions = parseFilters((value as readonly string[] | undefined) ?? []);
      return typeof conditions === 'string' ? new Invalid(conditions) : conditions;
    },
  },
  q: searched(
    'Only events whose payload contains this text: in the JSON as it was sent, or with its escapes resolved.',
  ),
  word: searched(
    'Only events whose payload contains this text, as `q`, where neither of its ends lies within a longer word: a name, a word or an id.',
  ),
};

/** @returns null where every payload is wanted */
export function filterOf(query: SearchedTexts & { filter: readonly Condition[] }): RowFilter | null {
  return payloadFilter(query.filter, query);
}
