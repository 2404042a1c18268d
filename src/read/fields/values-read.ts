/** GET …/fields/values: the values of a field, and how many events have each, whatever filter these pass. */

import { isDeepStrictEqual } from 'node:util';
import type { FieldValues } from '../../api-types/answers.ts';
import { ownText } from '../../base/own-text.ts';
import { sum } from '../../base/sum.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { dataOf, json, objectOf } from '../../http/operation.ts';
import { Query, text, wholeNumber } from '../../http/query.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import { PayloadValues } from '../../storage/fields/payload-values.ts';
import { EVERY_ROW, type RowFilter } from '../../storage/fields/row-filter.ts';
import { MANY, OTHER } from '../../storage/fields/value-text.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import { COUNT, nullable, TIMESTAMP } from '../answer-shapes.ts';
import { type AppRead, answered, appRead } from '../app-read.ts';
import { readSearchPage, SEARCH_BUDGET, type SearchBudget } from '../events/search-page.ts';
import { fieldFilterOf } from '../filter/counted-values.ts';
import { FILTER, filterOf, pathOf } from '../filter/filter-query.ts';
import { checkScope, EXCEPT_TYPES, findScopedTypes, SCOPE } from '../scope-query.ts';
import { VALUE, VALUE_IS_NUMBER, valueInRow } from './shown-value.ts';

const DEFAULT_PAGE_VALUES = 20;
const MAX_PAGE_VALUES = 100;
/** The newest events that pass, where their values are not counted: how many, and about how many bytes of payloads. */
const SAMPLE = { limit: 1_000, maxBytes: 4 * 1_048_576 } as const;
/** Buckets of a series whose counts are added up. */
const BUCKETS = 12;

export const VALUES = {
  path: '/fields/values',
  query: new Query(
    {
      path: {
        ...text('The path of the field, such as `order.country`. It need not be declared.', {
          schema: { examples: ['order.country'] },
          convert: (sent) => pathOf(sent),
        }),
        required: true,
      },
      ...SCOPE,
      ...EXCEPT_TYPES,
      ...FILTER,
      limit: wholeNumber(`Most values. A larger number is reduced to ${MAX_PAGE_VALUES}.`, {
        minimum: 1,
        absent: DEFAULT_PAGE_VALUES,
        largest: MAX_PAGE_VALUES,
      }),
    },
    checkScope,
  ),
  operation: {
    id: 'listFieldValues',
    summary: 'Read which values a field has.',
    description:
      'Without `filter`, `q` and `word`, or with one filter on the same field, the counts of a declared field answer it exactly. Otherwise ' +
      `the newest ${SAMPLE.limit.toLocaleString('en-US')} events that pass, with at most 4 MiB of payloads, are a sample: they are ` +
      `looked for in ${SEARCH_BUDGET.rows.toLocaleString('en-US')} events, unless the counts of a declared field find them.`,
    answers: {
      200: json(
        'The values with the most events, most first.',
        dataOf(
          objectOf<FieldValues>({
            values: {
              type: 'array',
              items: objectOf(
                { value: VALUE, valueIsNumber: VALUE_IS_NUMBER, events: COUNT },
                { title: 'FieldValue', optional: ['valueIsNumber'] },
              ),
            },
            otherEvents: {
              ...COUNT,
              description: 'Events with other values, with several different ones, or without the field.',
            },
            exact: {
              type: 'boolean',
              description:
                'Whether all events of the scope that pass are counted; otherwise those of `sample`.',
            },
            sample: {
              ...nullable(
                objectOf({
                  events: { ...COUNT, description: 'Events that pass and were looked at.' },
                  from: { ...nullable(TIMESTAMP), description: 'The oldest of them; null if there is none.' },
                  to: { ...nullable(TIMESTAMP), description: 'The newest of them.' },
                }),
              ),
              description: 'The events that were looked at; null where counts have answered.',
            },
          }),
        ),
      ),
    },
    refusals: ['eventTypeNotFound'],
  },
} as const;

export interface ValuesReadOptions {
  readonly now: () => number;
  readonly monotonic: () => number;
  /** What a search for a sample may look at. */
  readonly searchBudget?: SearchBudget;
}

export interface ValueScope {
  readonly appId: number;
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes: readonly number[];
  readonly from: number | null;
  readonly until: number | null;
}

/** Values with the most events, most first, each as its one text. */
interface ValueCounts {
  readonly values: readonly (readonly [value: string, events: number])[];
  readonly otherEvents: number;
  readonly exact: boolean;
  readonly sample: { readonly events: number; readonly from: Date | null; readonly to: Date | null } | null;
}

export function valuesRead(options: ValuesReadOptions): AppRead {
  const { now } = options;
  return appRead(VALUES, async ({ app, sql, events, pass }, query) => {
    const types = await findScopedTypes(sql, app.id, query);
    if (types instanceof Rejection) return types;
    const { typeIds, exceptTypes, exceptIds } = types;
    const { from, to: until, limit } = query;
    // It is required.
    const path = query.path ?? [];
    const scope = { appId: app.id, typeIds, exceptTypes, from, until };
    const rows = filterOf(query);
    const field = fieldFilterOf(query);
    const isCountable = rows === null || (field !== null && isDeepStrictEqual(field.path, path));
    const counted = isCountable
      ? await valuesByCounts(events, { ...scope, now: now() }, path, { field, limit })
      : null;
    const counts =
      counted ??
      (await valuesOf(await newestOf(options, { events, pass }, scope, { rows, field }), path, {
        limit,
        exceptIds,
      }));
    const values = counts.values.map(([value, count]) => ({ ...valueInRow(value), events: count }));
    return answered<FieldValues>({ ...counts, values });
  });
}

/** What the counts of a declared field tell. @returns null where they do not answer it */
export async function valuesByCounts(
  events: EventReader,
  { now, until, ...scope }: ValueScope & { readonly now: number },
  path: readonly string[],
  { field, limit }: { readonly field: FieldFilter | null; readonly limit: number },
): Promise<ValueCounts | null> {
  const request = {
    ...scope,
    // The current millisecond is part of the present.
    until: until ?? Math.max(now, scope.from ?? 0) + 1,
    timezone: 'UTC',
    buckets: BUCKETS,
    exactEnds: until === null ? 'start' : 'both',
    withBefore: false,
    topTypes: limit,
  } as const;
  const series = await events.valueSeries(request, path, field);
  if (typeof series === 'string') return null;
  const sums = series.lines.map(({ value, counts }) => [value, sum(counts)] as const);
  const values = sums
    .flatMap(([value, count]) => (value === null || count === 0 ? [] : [[value, count] as const]))
    .toSorted(([, a], [, b]) => b - a);
  const otherEvents = sum(sums.map(([value, count]) => (value === null ? count : 0)));
  // Right after the declaration no value has counts of its own.
  if (values.length === 0 && otherEvents > 0) return null;
  return { values, otherEvents, exact: true, sample: null };
}

interface SampleRequest {
  readonly rows: RowFilter | null;
  readonly field: FieldFilter | null;
}

interface Newest {
  readonly events: readonly StoredEvent[];
  /** Whether these are all events of the scope that pass. */
  readonly isWhole: boolean;
}

/** The newest events of a scope that pass: those that counts find, or a search. */
export async function newestOf(
  { monotonic, searchBudget: budget = SEARCH_BUDGET }: ValuesReadOptions,
  { events, pass }: Pick<ReadPlace, 'events' | 'pass'>,
  scope: ValueScope,
  { rows, field }: SampleRequest,
): Promise<Newest> {
  const request = { ...scope, ...SAMPLE, order: 'desc', after: null } as const;
  const found = field === null ? 'not counted' : await events.filteredList(request, field);
  if (typeof found !== 'string') return { events: found.events, isWhole: found.next === null };
  const page = await readSearchPage(events, request, rows ?? EVERY_ROW, { budget, now: monotonic, pass });
  return { events: page.events, isWhole: page.next === null };
}

/** The values of a sample's events. @param exceptIds public ids of types that are left out */
export async function valuesOf(
  { events, isWhole }: Newest,
  path: readonly string[],
  { limit, exceptIds }: { readonly limit: number; readonly exceptIds: ReadonlySet<string> },
): Promise<ValueCounts> {
  const reader = new PayloadValues([path]);
  const counts = new Map<string, number>();
  // What counts find is of all types.
  const sample = events.filter(({ typeId }) => !exceptIds.has(typeId));
  const slices = new TimeSlice();
  for (const { payload } of sample) {
    const value = reader.read(payload)[0] ?? null;
    if (value !== null && value !== MANY && value !== OTHER) counts.set(value, (counts.get(value) ?? 0) + 1);
    if (slices.isOver) await slices.next();
  }
  const most = [...counts].toSorted(([, a], [, b]) => b - a).slice(0, limit);
  const values = most.map(([value, count]) => [ownText(value), count] as const);
  return {
    values,
    otherEvents: sample.length - sum(values.map(([, count]) => count)),
    exact: isWhole,
    sample: {
      events: sample.length,
      from: sample.at(-1)?.createdAt ?? null,
      to: sample[0]?.createdAt ?? null,
    },
  };
}
