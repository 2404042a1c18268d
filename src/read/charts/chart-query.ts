/** The query of the dashboard's charts: which events, in which buckets, by which lines. */
import { HISTOGRAM } from '../../base/measures.ts';
import { endsBefore } from '../../base/ranges.ts';
import { OWN_RANGES } from '../../base/view.ts';
import { MOST_BUCKETS, WIDTHS, type WidthName } from '../../base/widths.ts';
import { Rejection } from '../../errors.ts';
import {
  flag,
  Invalid,
  oneOf,
  type Parameter,
  Query,
  text,
  type Values,
  wholeNumber,
} from '../../http/query.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import type { RowFilter } from '../../storage/fields/row-filter.ts';
import { decodeCursor } from '../../storage/read/event-list.ts';
import { fieldFilterOf } from '../filter/counted-values.ts';
import { MAX_FILTERS } from '../filter/filter-query.ts';
import { MAX_FILTER_LENGTH, parsePath } from '../filter/parse-filter.ts';
import { parseFilters, payloadFilter } from '../filter/payload-filter.ts';
import {
  checkScope,
  EXCEPT_TYPES,
  instant,
  MAX_EXCEPT_TYPES,
  MAX_TYPES,
  SCOPE,
  timezone,
} from '../scope-query.ts';

const DEFAULT_BUCKETS = 200;
const MAX_LINES = 1_000;
/** Lines that are easy to distinguish in a chart. */
const DEFAULT_LINES = 5;

/** What is wrong with the conditions of a chart is said once, by the list beside it: here they are read as they were sent. */
const AS_SENT: Parameter<readonly string[]> = {
  description: 'Only events whose payload meets these conditions.',
  schema: { type: 'array', items: { type: 'string' } },
  rule: 'must be texts',
  convert: (value) => (value as readonly string[] | undefined) ?? [],
};

export const NO_PATH = new Invalid('must be the path of a field');

/** The path of a field, as a filter spells it; null where it is none. */
export function pathIn(sent: string): readonly string[] | null {
  const parsed = parsePath(sent);
  return 'problem' in parsed ? null : parsed;
}

/** @param problem what a path that is none becomes */
const path = (description: string, problem: null | Invalid): Parameter<readonly string[] | null> =>
  text(description, { convert: (sent) => pathIn(sent) ?? problem });

const BY = 'The field whose values are the lines; absent: event types are.';

const { typeId, from, to } = SCOPE;

const CHART = {
  ...{ typeId, exceptTypeId: EXCEPT_TYPES.exceptTypeId, from, to },
  compareFrom: instant('The start of an earlier interval to count as well.'),
  compareTo: instant('Its end, exclusive.'),
  timezone: timezone('IANA time zone on whose clock buckets start. Absent: UTC.'),
  buckets: wholeNumber('Most buckets.', { minimum: 1, absent: DEFAULT_BUCKETS, largest: MOST_BUCKETS }),
  width: oneOf(
    'The width of buckets, in place of how many; where there would be more than 1,000, the next one.',
    ['auto', ...WIDTHS],
    'auto',
  ),
  lines: wholeNumber('Most lines that are counted apart.', {
    minimum: 1,
    absent: DEFAULT_LINES,
    largest: MAX_LINES,
  }),
  // A path that is none is not counted either: the chart is by type, and says so.
  by: path(BY, null),
  filter: AS_SENT,
  q: text('Only events whose payload contains this text.', { convert: (sent) => sent }),
  word: text('The same for a text that stands alone.', { convert: (sent) => sent }),
} as const;

/** Which events a chart is of, in which buckets, by which lines. */
export type ChartQuestion = Values<typeof CHART>;

/** The chart of all events. */
export const PLAIN_CHART: ChartQuestion = {
  ...{ typeId: [], exceptTypeId: [], from: null, to: null, compareFrom: null, compareTo: null },
  ...{ timezone: null, buckets: DEFAULT_BUCKETS, width: 'auto', lines: DEFAULT_LINES, by: null },
  ...{ filter: [], q: null, word: null },
};

/** What the charts of a board have in common. */
const BOARD_PARAMETERS = {
  ranges: oneOf(
    'Whether the charts have the range of the board, or each that of its view.',
    ['board', OWN_RANGES],
    'board',
  ),
  ...{ from: CHART.from, to: CHART.to, compareFrom: CHART.compareFrom, compareTo: CHART.compareTo },
  ...{ timezone: CHART.timezone, buckets: CHART.buckets, lines: CHART.lines, filter: AS_SENT },
} as const;

/** What a chart of producers takes. */
export const PRODUCER_PARAMETERS = {
  ...{ from: CHART.from, to: CHART.to, timezone: CHART.timezone, buckets: CHART.buckets },
} as const;

/** The limits of a request's types, where they come from an address that was saved. */
export function checkTypes(query: Pick<ChartQuestion, 'typeId' | 'exceptTypeId'>): string | null {
  const most = { typeId: MAX_TYPES, exceptTypeId: MAX_EXCEPT_TYPES } as const;
  const name = (['typeId', 'exceptTypeId'] as const).find((one) => query[one].length > most[one]);
  return name === undefined ? null : `${name} may be given at most ${most[name]} times.`;
}

export function checkChart(
  query: Pick<ChartQuestion, 'from' | 'to' | 'compareFrom' | 'compareTo'>,
): string | null {
  const { compareFrom, compareTo } = query;
  if (compareFrom !== null && compareTo !== null && compareFrom >= compareTo)
    return `compareFrom must be before compareTo${endsBefore(compareFrom, compareTo, 'compareTo=')}.`;
  return checkScope(query);
}

export const CHART_QUERY = new Query(CHART, checkChart);
export const BOARD_QUERY = new Query(BOARD_PARAMETERS, checkChart);

/** What the charts of several views have in common. */
export type BoardQuestion = Values<typeof BOARD_PARAMETERS> & Partial<Pick<ChartQuestion, 'width'>>;

/** The query of statistics: also the field, and whether hidden types are left out. */
export const NUMBERS_QUERY = new Query(
  {
    ...CHART,
    ...EXCEPT_TYPES,
    of: {
      ...text('The field whose numbers are summarized.', {
        convert: (sent) => {
          const named = pathIn(sent);
          return named === null ? NO_PATH : { sent, path: named };
        },
      }),
      required: true,
    },
    stat: oneOf(
      'Statistics of numbers, these and how many numbers there are by size, or how many different values there are.',
      ['number', HISTOGRAM, 'distinct'],
      'number',
    ),
    byType: flag('Whether event types are lines. Not with `by`.'),
    before: flag('Whether the sums before the interval are asked for, too.'),
  },
  (query) => {
    if (query.by !== null && query.byType) return 'by cannot be combined with byType.';
    return checkChart(query);
  },
);

/** The statistics of which field a chart shows, of which events. */
export type NumbersQuestion = Values<(typeof NUMBERS_QUERY)['parameters']>;

/** The query of a chart that is counted from rows, part by part: also where this part begins. */
export const SCAN_QUERY = new Query(
  {
    ...CHART,
    by: path(BY, NO_PATH),
    cursor: text('`next` of the part before.', {
      convert: (sent) => {
        const cursor = decodeCursor(sent);
        return cursor?.order === 'desc' ? cursor : new Invalid('must be the next of an earlier part');
      },
    }),
  },
  checkChart,
);

/** The conditions of a chart as counts and rows answer them. */
export interface ChartConditions {
  /** What counts may answer; null: none, or one that has to be searched for. */
  readonly filter: FieldFilter | null;
  /** Whether there are conditions on payloads. */
  readonly hasConditions: boolean;
  /** The conditions as a search needs them, null where there are none; or what is wrong with them. */
  readonly rows: RowFilter | null | Rejection;
}

export function conditionsOf(query: Pick<ChartQuestion, 'filter' | 'q' | 'word'>): ChartConditions {
  const { filter, q, word } = query;
  const conditions = parseFilters(filter);
  const hasConditions = q !== null || word !== null || filter.length > 0;
  if (typeof conditions === 'string')
    return { filter: null, hasConditions, rows: refuse(`filter ${conditions}.`) };
  const counted = fieldFilterOf({ ...query, filter: conditions });
  return { filter: counted, hasConditions, rows: tooMuch(query) ?? payloadFilter(conditions, query) };
}

/** The limits are those of the list of the same events. */
function tooMuch({ filter, ...texts }: Parameters<typeof conditionsOf>[0]): Rejection | null {
  if (filter.length > MAX_FILTERS) return refuse(`filter may be given at most ${MAX_FILTERS} times.`);
  const long = (['q', 'word'] as const).find((name) => (texts[name]?.length ?? 0) > MAX_FILTER_LENGTH);
  return long === undefined ? null : refuse(`${long} must have at most ${MAX_FILTER_LENGTH} characters.`);
}

/** The buckets of a chart: as few as it says, or of a width. */
function bucketsAsked({
  buckets,
  width,
}: Pick<ChartQuestion, 'buckets' | 'width'>): number | { readonly from: WidthName } {
  return width === 'auto' ? buckets : { from: width };
}

/** What a chart asks of the counts, or of the rows. @param typeIds internal ids; null: all types */
export function requestOf(
  appId: number,
  typeIds: readonly number[] | null,
  query: Pick<ChartQuestion, 'from' | 'to' | 'timezone' | 'buckets' | 'width'>,
  now: number,
) {
  return {
    ...({ appId, typeIds, timezone: query.timezone ?? 'UTC', exactEnds: 'both' } as const),
    ...intervalOf(query, now),
    buckets: bucketsAsked(query),
  };
}

/** The interval of a chart. The current millisecond is part of the present. */
export function intervalOf(
  { from, to }: Pick<ChartQuestion, 'from' | 'to'>,
  now: number,
): { readonly from: number | null; readonly until: number } {
  return { from, until: to ?? Math.max(now, from ?? 0) + 1 };
}

function refuse(details: string): Rejection {
  return new Rejection('invalidParameters', details);
}
