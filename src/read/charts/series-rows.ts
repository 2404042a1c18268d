/** Counts of events by bucket, for tools: one row for each bucket, or for each bucket and type. */

import { isDeepStrictEqual } from 'node:util';
import type { SeriesRows } from '../../api-types/answers.ts';
import { HISTOGRAM, STATS } from '../../base/measures.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { MOST_BUCKETS, WIDTHS } from '../../base/widths.ts';
import { Rejection } from '../../errors.ts';
import type { DataOf } from '../../http/data.ts';
import { dataOf, json, objectOf } from '../../http/operation.ts';
import { flag, invalidParameters, oneOf, Query, text } from '../../http/query.ts';
import type { WidthName } from '../../storage/counts/buckets.ts';
import type { SeriesFrame, SeriesRequest } from '../../storage/counts/series.ts';
import type {
  Stats,
  SummaryLine,
  SummaryQuestion,
  SummarySeries,
} from '../../storage/counts/summary-series.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { Histogram } from '../../storage/fields/sketch.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { COUNT, nullable, TIMESTAMP, TYPE_ID } from '../answer-shapes.ts';
import { type AppRead, appRead } from '../app-read.ts';
import { VALUE, VALUE_IS_NUMBER, valueInRow } from '../fields/shown-value.ts';
import { DECLARE, type UncountedRead, whyNotCounted } from '../fields/why-not-counted.ts';
import { COUNTED_LATER, COUNTED_LATER_NOTE, fieldFilterOf } from '../filter/counted-values.ts';
import { FILTER, pathOf } from '../filter/filter-query.ts';
import type { Condition } from '../filter/parse-filter.ts';
import { checkScope, findTypes, SCOPE, timezone } from '../scope-query.ts';
import {
  BINS,
  binsOf,
  DISTINCT_FIELDS,
  HISTOGRAM_FIELD,
  histogramOfAll,
  LEAST_BINS,
  LEFT_OUT,
  OVERALL,
  SERIES_STAT,
  SHOWN_BINS,
  STAT_FIELDS,
  shownStats,
} from './number-stats.ts';
import { type By, readLines, type SeriesLines } from './series-lines.ts';

/** Most buckets of `auto`. */
const AUTO_BUCKETS = 200;
/** Types, where none is chosen, or values of a field that are shown apart. */
const TOP_LINES = 50;

/** A month is `1M`, as minutes are `1m`. */
export const INTERVALS = ['auto', ...WIDTHS.map((width) => (width === '1mo' ? '1M' : width))] as const;
export type IntervalName = (typeof INTERVALS)[number];

const SERIES_QUERY = new Query(
  {
    ...SCOPE,
    interval: oneOf(
      `The width of a bucket. \`auto\` is the finest that gives at most ${AUTO_BUCKETS} buckets, or months.`,
      INTERVALS,
      'auto',
    ),
    timezone: timezone('IANA time zone on whose clock buckets start. Absent: UTC.'),
    by: text(
      `\`type\` counts each event type apart: those of \`typeId\` and \`typeName\`, else the ${TOP_LINES} with the most events, and all others together. ` +
        `The path of a declared field, such as \`order.country\`, does so with the ${TOP_LINES} values that have the most events; with a \`filter\` on another path, or with \`of\`, a declaration of the two paths together must be there.`,
      {
        schema: { examples: ['type', 'order.country'] },
        convert: (sent) =>
          sent === 'type' || sent === 'none'
            ? sent
            : pathOf(sent, 'none, type or the path of a declared field'),
      },
    ),
    filter: FILTER.filter,
    of: text(
      'The path of a declared field of the kind `number`, such as `duration_ms`: statistics of its numbers in place of counts of events; or, with `stat=distinct`, of a field of the kind `distinct`. With `by` or `filter` the declaration must be one by that path. Not with `by=type` or `accumulated`.',
      {
        schema: { examples: ['duration_ms'] },
        convert: (sent) => pathOf(sent, 'the path of a declared field'),
      },
    ),
    stat: SERIES_STAT,
    bins: BINS,
    accumulated: flag('Whether each row also has the count of all events up to the end of its bucket.'),
  },
  (query) => {
    if (query.of === null && query.stat.length > 0) return 'stat needs of.';
    if (query.of !== null && query.stat.length === 0) return 'stat is missing: it says what of is asked for.';
    if (query.of !== null && (query.accumulated || query.by === 'type'))
      return 'of cannot be combined with by=type or accumulated.';
    if (query.bins !== null && !query.stat.includes('histogram')) return 'bins needs stat=histogram.';
    if (query.stat.includes('distinct') && query.stat.some((stat) => stat !== 'distinct' && stat !== 'count'))
      return 'stat must be distinct alone, or statistics of numbers: ask for each of them with a request of its own.';
    if (isPath(query.by) && query.accumulated && isOfOther(query.by, query.filter))
      return 'accumulated cannot be combined with by and a filter on another path.';
    return checkScope(query);
  },
);

/** Whether a filter is about another path than that of the lines. */
function isOfOther(by: readonly string[], filter: readonly Condition[]): boolean {
  return filter.some(({ path }) => !isDeepStrictEqual(path, by));
}

function isPath(by: By | null): by is readonly string[] {
  return by !== null && by !== 'type' && by !== 'none';
}

const ROW = objectOf(
  {
    start: { ...TIMESTAMP, description: 'Where the bucket starts.' },
    end: { ...TIMESTAMP, description: 'Where the bucket ends, exclusive.' },
    typeId: { ...nullable(TYPE_ID), description: 'With `by=type`; null for all other types together.' },
    typeName: { type: ['string', 'null'], description: 'With `by=type`; null for all other types together.' },
    value: {
      ...VALUE,
      description: 'With `by` a field: the value as JSON; a number that a double cannot hold as a text.',
    },
    valueIsNumber: VALUE_IS_NUMBER,
    other: {
      const: true,
      description: 'With `by` a field: the row of all other events, those without the field among them.',
    },
    count: {
      ...COUNT,
      description:
        'Events of the bucket that lie between `from` and `to`; with `of` those that have a number in the field.',
    },
    ...STAT_FIELDS,
    ...DISTINCT_FIELDS,
    histogram: HISTOGRAM_FIELD,
    accumulated: {
      ...COUNT,
      description: 'With `accumulated=true`: all events before the end of the bucket, or before `to`.',
    },
    partial: {
      type: 'boolean',
      description:
        'Whether the bucket reaches beyond `from`, `to` or the present, so that `count` is not that of the whole bucket.',
    },
  },
  {
    title: 'SeriesRow',
    optional: [
      ...['typeId', 'typeName', 'value', 'valueIsNumber', 'other', 'accumulated'],
      ...[...STATS, 'distinct', 'exact', 'histogram'],
    ],
  },
);

export const SERIES = {
  path: '/series',
  query: SERIES_QUERY,
  operation: {
    id: 'getSeries',
    summary: 'Read exact counts of events by bucket.',
    description: COUNTED_LATER_NOTE,
    answers: {
      200: json(
        'One row for each bucket; with `by=type` one for each type and bucket. Buckets without events have rows, too.',
        dataOf(
          objectOf<SeriesRows>(
            {
              series: { type: 'array', items: ROW },
              interval: {
                type: 'string',
                enum: INTERVALS.slice(1),
                description: 'The width of the buckets.',
              },
              timezone: { type: 'string' },
              from: {
                ...TIMESTAMP,
                description:
                  'The start that was applied: that of the request; else the first event, to the hour. Before `countsOnlyBefore` it is a quarter-hour.',
              },
              to: {
                ...TIMESTAMP,
                description: 'The end that was applied; absent if the series reaches to the present.',
              },
              countsOnlyBefore: {
                ...TIMESTAMP,
                description:
                  'Before it only counts are kept, no events; absent if the series begins after it.',
              },
              completeFrom: {
                ...TIMESTAMP,
                description:
                  'With `of`, and with `by` and a filter on another path: from when on the declaration counts all events.',
              },
              bins: SHOWN_BINS,
              overall: OVERALL,
              leftOut: LEFT_OUT,
            },
            { optional: ['to', 'countsOnlyBefore', 'completeFrom', 'bins', 'overall', 'leftOut'] },
          ),
        ),
      ),
    },
    refusals: ['eventTypeNotFound'],
    refusalProperties: { 400: DECLARE },
  },
} as const;

/** Counts of bins in an answer: some megabytes. */
const MOST_CELLS = 1_000_000;
const TOO_MANY_CELLS = `The answer would have more than ${MOST_CELLS.toLocaleString('en-US')} counts: ask for a wider interval, for fewer bins, or without by.`;

const PROBLEMS = {
  'not counted':
    'The counts of the field do not answer this: filter must be one condition that a declared field has one of some values, such as country:DE,FR, and not too many of them.',
  'too fine': 'interval must be 15m or wider: the range reaches to where only counts are kept.',
} as const;

export function seriesRead(now: () => number): AppRead {
  return appRead(SERIES, async ({ app, sql, events, turns }, query) => {
    const typeIds = await findTypes(sql, app.id, query);
    if (typeIds instanceof Rejection) return typeIds;
    const { from, to, interval, accumulated } = query;
    const request = {
      appId: app.id,
      typeIds,
      from,
      // The current millisecond is part of the present.
      until: to ?? Math.max(now(), from ?? 0) + 1,
      timezone: query.timezone ?? 'UTC',
      buckets: interval === 'auto' ? AUTO_BUCKETS : widthOf(interval),
      exactEnds: to === null ? 'start' : 'both',
      withBefore: accumulated,
    } as const;
    const question = questionOf(query);
    const series =
      question === null
        ? await countLines(events, request, query)
        : question === 'not counted'
          ? question
          : await events.summarySeries({ ...request, question, topTypes: TOP_LINES });
    if (series === 'not counted yet') return COUNTED_LATER;
    if (series === 'not counted')
      return (
        (await whyNotAnswered(sql, { app, typeIds, from }, query)) ?? invalidParameters(PROBLEMS[series])
      );
    if (series === 'too many') {
      const { param, problem } = await tooManyBuckets(events, request);
      return invalidParameters(`${param} ${problem}.`, param);
    }
    if (typeof series === 'string') return invalidParameters(PROBLEMS[series], 'interval');
    const { bucket, timezone, countsOnlyBefore } = series;
    const histogram =
      query.stat.includes(HISTOGRAM) && 'leftOut' in series
        ? histogramOfAll(
            series.lines.map(({ overall }) => overall),
            query.bins,
          )
        : null;
    const mostBins = Math.floor(MOST_CELLS / (series.starts.length * series.lines.length));
    if (histogram !== null && histogram.bins.length > mostBins)
      return invalidParameters(TOO_MANY_CELLS, mostBins < LEAST_BINS ? 'interval' : 'bins');
    const buckets = shownBuckets({ ...series, isOpen: to === null });
    const lines =
      'leftOut' in series
        ? series.lines.map((line) => () => rowsOfStats(line, buckets, { ...query, histogram }))
        : labelled(series, query.by).map((line) => () => rowsOf(line, buckets, accumulated));
    const about = {
      ...('leftOut' in series && { completeFrom: timestamp(series.completeFrom) }),
      ...(histogram !== null && { bins: histogram.bins }),
      ...('leftOut' in series && query.of !== null && overallOf(series, { ...query, histogram })),
      interval: nameOfWidth(bucket),
      timezone,
      from: timestamp(series.interval.from),
      ...(to !== null && { to: timestamp(series.interval.until) }),
      ...(countsOnlyBefore !== null && { countsOnlyBefore: timestamp(countsOnlyBefore) }),
    } satisfies DataOf<Omit<SeriesRows, 'series'>>;
    return {
      data: () => ({ series: lines.flatMap((rowsOfLine) => rowsOfLine()), ...about }),
      present: async () => {
        const rows = await writtenRows(lines, new TimeSlice(turns));
        const body = `{"success":true,"data":{"series":[${rows}],${JSON.stringify(about).slice(1)}}`;
        return { status: 200, body };
      },
    };
  });
}

/** The rows of all lines. There may be fifty thousand, so they are written in slices. */
async function writtenRows(lines: readonly (() => readonly object[])[], slices: TimeSlice): Promise<string> {
  const rows: string[] = [];
  for (const rowsOfLine of lines) {
    const written = JSON.stringify(rowsOfLine()).slice(1, -1);
    if (written !== '') rows.push(written);
    if (slices.isOver) await slices.next();
  }
  return rows.join(',');
}

/** What a declaration of numbers, of different values or of a pair answers; null: other counts do. */
function questionOf({
  of,
  by,
  stat,
  filter,
}: {
  of: readonly string[] | null;
  by: By | null;
  stat: readonly string[];
  filter: readonly Condition[];
}): SummaryQuestion | 'not counted' | null {
  const isPair = isPath(by) && isOfOther(by, filter);
  if (of === null && !isPair) return null;
  const field = fieldFilterOf({ filter });
  if (field === null && filter.length > 0) return 'not counted';
  const kind = of === null ? 'value' : stat.includes('distinct') ? 'distinct' : 'number';
  return { kind, of, by: isPath(by) ? by : null, filter: field, stats: stat };
}

/** The refusal for the first field of a query whose counts do not answer it. */
async function whyNotAnswered(
  sql: Sql,
  scope: Pick<UncountedRead, 'app' | 'typeIds' | 'from'>,
  query: {
    of: readonly string[] | null;
    by: By | null;
    stat: readonly string[];
    filter: readonly Condition[];
  },
): Promise<Rejection | null> {
  const { of, by, filter } = query;
  const question = questionOf(query);
  if (question === 'not counted') return null;
  if (question !== null) {
    const { kind } = question;
    const second = question.filter?.path ?? null;
    if (of === null)
      return await whyNotCounted(sql, { ...scope, param: 'by', path: question.by ?? [], kind, by: second });
    if (question.by !== null && second !== null && !isDeepStrictEqual(question.by, second)) return null;
    return await whyNotCounted(sql, { ...scope, param: 'of', path: of, kind, by: question.by ?? second });
  }
  if (isPath(by))
    return await whyNotCounted(sql, { ...scope, param: 'by', path: by, kind: 'value', by: null });
  const field = fieldFilterOf({ filter });
  if (field === null) return null;
  return await whyNotCounted(sql, { ...scope, param: 'filter', path: field.path, kind: 'value', by: null });
}

/** The counts that a query asks for. */
async function countLines(
  events: EventReader,
  request: Parameters<typeof readLines>[1],
  { by, filter }: { readonly by: By | null; readonly filter: readonly Condition[] },
): Promise<SeriesLines | keyof typeof PROBLEMS | 'too many' | 'not counted yet'> {
  const field = fieldFilterOf({ filter });
  if (field === null && filter.length > 0) return 'not counted';
  return await readLines(events, { ...request, topTypes: TOP_LINES }, { by: by ?? 'none', filter: field });
}

export function widthOf(name: Exclude<IntervalName, 'auto'>): WidthName {
  return name === '1M' ? '1mo' : name;
}

/** The parameter to change of a range that has more buckets than a series may have, and how, worded to follow its name. */
export async function tooManyBuckets(
  events: EventReader,
  request: SeriesRequest,
): Promise<{ readonly param: 'interval' | 'to'; readonly problem: string }> {
  const frame = await events.frame({ ...request, buckets: MOST_BUCKETS });
  if (typeof frame === 'string') return { param: 'to', problem: 'must be at most 1,000 months after from' };
  const finest = nameOfWidth(frame.bucket);
  const problem = `must be ${finest} or wider: the range has more than 1,000 buckets of this width`;
  return { param: 'interval', problem };
}

/** A width as series name it. */
export function nameOfWidth(width: WidthName): Exclude<IntervalName, 'auto'> {
  return width === '1mo' ? '1M' : width;
}

interface Line {
  /** The row's fields that say whose counts these are. */
  readonly label: {
    readonly typeId?: string | null;
    readonly typeName?: string | null;
    readonly value?: unknown;
    readonly valueIsNumber?: true;
    readonly other?: true;
  };
  readonly counts: readonly number[];
  /** Events before the first bucket. */
  readonly before: number;
}

function labelled({ lines, rest, all }: SeriesLines, by: By | null): readonly Line[] {
  if (by === null || by === 'none') return [{ label: {}, ...all }];
  const apart = lines.map(({ value, type, counts, before }) => ({
    label:
      value === null ? { typeId: type?.typeId ?? null, typeName: type?.name ?? null } : valueInRow(value),
    counts,
    before,
  }));
  const others = by === 'type' ? { typeId: null, typeName: null } : ({ other: true } as const);
  return rest === null ? apart : [...apart, { label: others, ...rest }];
}

function rowsOf(
  { label, counts, before }: Line,
  buckets: readonly ShownBucket[],
  accumulated: boolean,
): readonly object[] {
  let running = before;
  return rowsOfBuckets(buckets, (index) => {
    const count = counts[index] ?? 0;
    running += count;
    return { ...label, count, ...(accumulated && { accumulated: running }) };
  });
}

/** Rows of one line of statistics. */
function rowsOfStats(
  line: SummaryLine,
  buckets: readonly ShownBucket[],
  asked: StatsAsked,
): readonly object[] {
  return rowsOfBuckets(buckets, (index) => {
    const own = line.stats[index];
    return own === undefined ? {} : statsOfLine(line, own, asked);
  });
}

interface StatsAsked {
  readonly by: By | null;
  readonly stat: readonly string[];
  /** Null: it is not asked for. */
  readonly histogram: Histogram | null;
}

/** The statistics of a line, of a bucket or of the whole interval. */
const statsOfLine = (line: SummaryLine, stats: Stats, { by, stat, histogram }: StatsAsked): object => ({
  ...labelOf(line, by),
  ...shownStats(stats, stat),
  ...(histogram !== null && { histogram: histogram.countsOf(binsOf(stats)) }),
});

function labelOf({ value }: SummaryLine, by: By | null): Line['label'] {
  if (!isPath(by)) return {};
  return value === null ? { other: true } : valueInRow(value);
}

/** Statistics of the whole interval, with `by` of each line. */
function overallOf({ lines, leftOut }: SummarySeries, asked: StatsAsked): object {
  const { by, stat } = asked;
  const rows = lines.map((line) => statsOfLine(line, line.overall, asked));
  const isOfNumbers = !stat.includes('distinct');
  return { overall: isPath(by) ? rows : rows[0], ...(isOfNumbers && { leftOut }) };
}

/** A bucket of an answer: its ends, and whether it reaches beyond the interval or the present. */
export interface ShownBucket {
  readonly start: string;
  readonly end: string;
  readonly partial: boolean;
}

/** The buckets of a frame, made once for all lines of an answer. */
export const shownBuckets = ({
  starts,
  end,
  interval,
  isOpen,
}: SeriesFrame & { readonly isOpen: boolean }): readonly ShownBucket[] =>
  starts.map((start, index) => {
    const until = starts[index + 1] ?? end;
    const partial = start < interval.from || until > interval.until || (isOpen && until === end);
    return { start: timestamp(start), end: timestamp(until), partial };
  });

const rowsOfBuckets = (
  buckets: readonly ShownBucket[],
  fieldsOf: (index: number) => object,
): readonly object[] => buckets.map((bucket, index) => rowOfBucket(bucket, fieldsOf(index)));

/** A row of an answer by bucket. */
export function rowOfBucket<T extends object>({ start, end, partial }: ShownBucket, fields: T) {
  return { start, end, ...fields, partial };
}

export function timestamp(ms: number): string {
  return new Date(ms).toISOString();
}
