/** What people type, as the dashboard reads it: conditions, and ranges or instants on the clock of their zone. */
import type { Api } from '../../accounts/routes/api.ts';
import type { TypedConditions, TypedRange } from '../../api-types/answers.ts';
import { isoText, rangeText } from '../../base/ranges.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import { Query, text } from '../../http/query.ts';
import type { Route } from '../../http/route.ts';
import { timezone } from '../scope-query.ts';
import { readConditions } from './typed-conditions.ts';
import { parseInstants, parseTyped } from './typed-range.ts';

const MOST_CHARACTERS = 1_000;
const TEXT = text('What was typed.', { convert: (sent) => sent.slice(0, MOST_CHARACTERS) });
const CONDITIONS = new Query({ text: TEXT });
const RANGE = new Query({
  text: TEXT,
  timezone: timezone('IANA time zone whose clock it is on. Absent: UTC.'),
});

const isoOrNull = (instant: number | null | undefined): string | null =>
  typeof instant === 'number' ? isoText(instant) : null;

export function typedRoutes({ api, now }: { readonly api: Api; readonly now: () => number }): Route[] {
  return [
    api.read('/api/typed-conditions', 'signed-in', ({ exchange }) => {
      const query = CONDITIONS.parse(exchange.query);
      return query instanceof Rejection
        ? query
        : done<TypedConditions>({ conditions: null, mistake: null, ...readConditions(query.text ?? '') });
    }),
    api.read('/api/typed-range', 'signed-in', ({ exchange }) => {
      const query = RANGE.parse(exchange.query);
      if (query instanceof Rejection) return query;
      const [typed, zone] = [query.text ?? '', query.timezone ?? 'UTC'];
      const range = parseTyped(typed, now(), zone);
      const instants = parseInstants(typed, now(), zone);
      return done<TypedRange>({
        range: range && rangeText(range),
        at: isoOrNull(instants?.from),
        until: isoOrNull(instants?.until),
      });
    }),
  ];
}
