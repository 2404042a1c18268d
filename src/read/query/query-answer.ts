/** The lines of an answer to a query: what is known so far, and at last everything. */

import type { QueryGroup, QueryLine, QueryRow, QueryStatistics } from '../../api-types/answers.ts';
import { STATS } from '../../base/measures.ts';
import { SEARCHED_BY } from '../../base/searched-by.ts';
import { objectOf } from '../../http/operation.ts';
import type { Schema } from '../../http/query.ts';
import type { SeriesFrame } from '../../storage/counts/series.ts';
import { type Stats, statsOf } from '../../storage/counts/summary-series.ts';
import type { EventGroup, Tally } from '../../storage/fields/event-groups.ts';
import { COUNT, SEARCHED_BY_NOTE, TIMESTAMP } from '../answer-shapes.ts';
import { DISTINCT_FIELDS, STAT_FIELDS, shownStats } from '../charts/number-stats.ts';
import { INTERVALS, nameOfWidth, rowOfBucket, type ShownBucket, timestamp } from '../charts/series-rows.ts';
import { VALUE, valueInRow } from '../fields/shown-value.ts';
import type { AskedMeasure, QueryBody } from './query-body.ts';

/** A group, or all other events, whatever they were counted from. */
export interface AnsweredGroup {
  /** The value of each path as JSON; null: none of its own. */
  readonly values: readonly (string | null)[];
  readonly isOther: boolean;
  readonly count: number;
  /** One for each measure. */
  readonly stats: readonly Stats[];
  readonly buckets: readonly {
    readonly index: number;
    readonly count: number;
    readonly stats: readonly Stats[];
  }[];
  readonly missing: number;
}

/** What an answer is about. */
export interface AnswerFrame extends SeriesFrame {
  /** Whether it reaches to the present. */
  readonly isOpen: boolean;
}

const STATISTICS: Schema = {
  type: 'object',
  additionalProperties: objectOf(
    {
      count: { ...COUNT, description: 'Events that have a number at the path; with statistics of numbers.' },
      ...STAT_FIELDS,
      ...DISTINCT_FIELDS,
    },
    { title: 'QueryStatistics', optional: ['count', ...STATS, 'distinct', 'exact'] },
  ),
  description: 'The statistics of each path of `stats`, by the path as it was sent.',
};

const ROW = objectOf<QueryRow>(
  {
    start: { ...TIMESTAMP, description: 'Where the bucket starts.' },
    end: { ...TIMESTAMP, description: 'Where the bucket ends, exclusive.' },
    count: COUNT,
    of: STATISTICS,
    partial: {
      type: 'boolean',
      description: 'Whether the bucket reaches beyond `from`, `to` or the present.',
    },
  },
  { title: 'QueryRow', optional: ['of'] },
);

const GROUP = objectOf<QueryGroup>(
  {
    by: {
      type: 'object',
      additionalProperties: VALUE,
      description:
        'The value of each path of `by`, by the path as it was sent. A path is absent where the events have none there, several, or one of more than 200 characters.',
    },
    numbersIn: {
      type: 'array',
      items: { type: 'string' },
      description:
        'The paths of `by` whose value is a number, which is given as a text because a double cannot hold it. Absent: none.',
    },
    other: {
      const: true,
      description:
        'In place of `by`: all other events, those that have a value at none of the paths, and those of further groups.',
    },
    count: { ...COUNT, description: 'Events of the group.' },
    of: STATISTICS,
    missing: {
      ...COUNT,
      description:
        'After `truncated`: at most so many events of the group are among the others, and missing in its numbers. Absent: none.',
    },
    series: {
      type: 'array',
      items: ROW,
      description: 'With `interval`: the buckets that have events, in order of time.',
    },
  },
  { title: 'QueryGroup', optional: ['by', 'numbersIn', 'other', 'of', 'missing', 'series'] },
);

export const QUERY_LINE = objectOf<QueryLine>(
  {
    complete: { type: 'boolean', description: 'True in the last line, if it tells of all events.' },
    counted: { type: 'boolean', description: 'Whether counts answered it, so that no event was read.' },
    scannedFrom: {
      ...TIMESTAMP,
      description: 'All events from here to `to` have been read: they are read from the newest on.',
    },
    events: { ...COUNT, description: 'Events that meet the conditions, so far.' },
    looked: { ...COUNT, description: 'Events that were looked at, so far.' },
    searchedBy: {
      enum: SEARCHED_BY,
      description: `Where events were read for conditions on payloads. ${SEARCHED_BY_NOTE}`,
    },
    groups: {
      type: 'array',
      items: GROUP,
      description:
        'Those with the most events so far, most first, and all other events last. A line that is not the last has no more than 1,000 rows, and of the others their count alone.',
    },
    truncated: {
      const: true,
      description:
        'Memory was full, and the groups with the fewest events went to the others. Their sum is still exact.',
    },
    leftOut: {
      type: 'object',
      additionalProperties: objectOf({ several: COUNT, unrepresentable: COUNT }),
      description:
        'In the last line: events that are in no statistics of a path, because they have several numbers there, or one of too many digits.',
    },
    from: {
      ...TIMESTAMP,
      description: 'The start that was applied: that of the request, or the first event.',
    },
    to: { ...TIMESTAMP, description: 'The end that was applied; absent where it is the present.' },
    interval: { type: 'string', enum: INTERVALS.slice(1), description: 'The width of buckets.' },
    timezone: { type: 'string' },
    countsOnlyBefore: {
      ...TIMESTAMP,
      description:
        'Before it only counts are kept, and no events are read; absent if the range begins after it.',
    },
    declare: {
      type: 'array',
      items: { type: 'string', examples: ['--path amount --kind number --by country'] },
      description:
        'The options of `tidemark field add` for declarations with which counts would answer the question; absent where none would.',
    },
    stopped: {
      type: 'string',
      enum: ['budget', 'memory', 'busy'],
      description:
        'In a last line that is not complete: why it ended early. The rest can be asked for with `to` = `scannedFrom`.',
    },
    retryAfterSeconds: {
      ...COUNT,
      description: 'With `stopped`: after how many seconds the rest may be read.',
    },
  },
  {
    title: 'QueryLine',
    optional: [
      ...['searchedBy', 'truncated', 'leftOut', 'to', 'interval', 'countsOnlyBefore'],
      ...['declare', 'stopped', 'retryAfterSeconds'],
    ],
  },
);

/** What the lines of an answer have in common. */
export function headOf(
  { buckets, timezone }: QueryBody,
  { bucket, interval, countsOnlyBefore, isOpen }: AnswerFrame,
): Pick<QueryLine, 'from' | 'to' | 'interval' | 'timezone' | 'countsOnlyBefore'> {
  return {
    from: timestamp(interval.from),
    ...(!isOpen && { to: timestamp(interval.until) }),
    ...(buckets !== null && { interval: nameOfWidth(bucket) }),
    timezone,
    ...(countsOnlyBefore !== null && { countsOnlyBefore: timestamp(countsOnlyBefore) }),
  };
}

/** A group of events as its answer shows it. */
export function answeredGroup(group: EventGroup, isOther: boolean): AnsweredGroup {
  const stats = ({ summaries, count }: Tally): Stats[] => summaries.map((one) => statsOf(one, count));
  return {
    values: group.values,
    isOther,
    count: group.count,
    stats: stats(group),
    buckets: [...group.buckets]
      .sort(([a], [b]) => a - b)
      .map(([index, tally]) => ({ index, count: tally.count, stats: stats(tally) })),
    missing: group.missing,
  };
}

/** @param buckets of the whole frame; null: none are asked for */
export function shownGroup(
  { by, measures }: QueryBody,
  buckets: readonly ShownBucket[] | null,
  group: AnsweredGroup,
): QueryGroup {
  const named = group.values.flatMap((value, index) =>
    value === null ? [] : [[by[index]?.sent ?? '', valueInRow(value)] as const],
  );
  const numbersIn = named.flatMap(([path, { valueIsNumber }]) => (valueIsNumber ? [path] : []));
  return {
    ...(group.isOther
      ? { other: true }
      : { by: Object.fromEntries(named.map(([path, { value }]) => [path, value])) }),
    ...(numbersIn.length > 0 && { numbersIn }),
    count: group.count,
    ...shownMeasures(measures, group.stats),
    ...(group.missing > 0 && { missing: group.missing }),
    ...(buckets !== null && {
      series: group.buckets.flatMap(({ index, count, stats }) => {
        const bucket = buckets[index];
        return bucket === undefined
          ? []
          : [rowOfBucket(bucket, { count, ...shownMeasures(measures, stats) })];
      }),
    }),
  };
}

/** By path. Of different values the number of events that have one is left out: of the same path it is another one for numbers. */
function shownMeasures(
  measures: readonly AskedMeasure[],
  stats: readonly Stats[],
): Pick<QueryGroup, 'of'> | undefined {
  if (measures.length === 0 || stats.length === 0) return undefined;
  const of = new Map<string, QueryStatistics>();
  for (const [index, { sent, stats: wanted }] of measures.entries()) {
    const own = stats[index];
    if (own === undefined) continue;
    const shown = 'distinct' in own ? { distinct: own.distinct, exact: own.exact } : shownStats(own, wanted);
    of.set(sent, { ...of.get(sent), ...shown });
  }
  return { of: Object.fromEntries(of) };
}
