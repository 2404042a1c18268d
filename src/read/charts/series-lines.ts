/** The counts of a series by line: one reader, whose lines the dashboard's chart shows as columns and tools get as rows. */

import { isDeepStrictEqual } from 'node:util';
import { sum } from '../../base/sum.ts';
import type { BucketsProblem } from '../../storage/counts/buckets.ts';
import type { FieldLine, FieldSeries } from '../../storage/counts/field-series.ts';
import type { Series, SeriesFrame } from '../../storage/counts/series.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';

/** What is counted apart: nothing, event types, or the values of the field of a path. */
export type By = 'none' | 'type' | readonly string[];

/** Events by bucket, and those before the first bucket. */
export type Counted = Pick<FieldLine, 'counts' | 'before'>;

export interface SeriesLines extends SeriesFrame {
  /** What is counted apart: those with the most events, or those that were chosen. */
  readonly lines: readonly FieldLine[];
  /** All other events; null where there are none. */
  readonly rest: Counted | null;
  readonly all: Counted;
}

/** What lines a series has. */
export interface LinesQuery {
  readonly by: By;
  /** Only events that pass it, where declared fields have counts of it. With values of a field: a filter on the same field. */
  readonly filter: FieldFilter | null;
}

export type LinesProblem = BucketsProblem | Extract<Awaited<ReturnType<EventReader['valueSeries']>>, string>;

/** @returns the problem if counts do not answer it, or there would be too many buckets */
export async function readLines(
  events: EventReader,
  request: Parameters<EventReader['valueSeries']>[0],
  { by, filter }: LinesQuery,
): Promise<SeriesLines | LinesProblem> {
  if (by !== 'none' && by !== 'type' && filter !== null && !isDeepStrictEqual(filter.path, by))
    return await pairLines(events, request, by, filter);
  if (by !== 'none' && by !== 'type') return linesOf(await events.valueSeries(request, by, filter), true);
  if (filter !== null)
    return linesOf(await events[by === 'type' ? 'filteredTypes' : 'filteredSeries'](request, filter), false);
  const series = await events.series(by === 'type' ? request : { ...request, topTypes: 0 });
  return typeof series === 'string' ? series : typeLines(series, by);
}

/** The events of some values of one field by the values of another, which a declaration of the two counts. */
async function pairLines(
  events: EventReader,
  { withBefore, values, ...request }: Parameters<EventReader['valueSeries']>[0],
  by: readonly string[],
  filter: FieldFilter,
): Promise<SeriesLines | LinesProblem> {
  const question = { kind: 'value', of: null, by, filter } as const;
  const asked = { ...request, question, ...(values !== undefined && { topTypes: EVERY_LINE }) };
  const series = await events.summarySeries(asked);
  if (typeof series === 'string') return series;
  const { lines, leftOut: _, completeFrom: __, ...frame } = series;
  const earlier =
    withBefore && request.from !== null
      ? await events.summarySeries({
          ...asked,
          ...{ from: null, until: series.interval.from, buckets: 1, topTypes: EVERY_LINE },
        })
      : null;
  if (typeof earlier === 'string') return earlier;
  const before = new Map(earlier?.lines.map(({ value, overall }) => [value, overall.count]));
  const all = lines.map(({ value, stats }, number) => ({
    value,
    counts: stats.map(({ count }) => count),
    before: before.get(value) ?? 0,
    number,
  }));
  const apart = all.filter(({ value }) => value !== null && values?.includes(value) !== false);
  const rest = all.filter((line) => !apart.includes(line));
  return linesOf<never>(
    {
      ...frame,
      lines: [
        ...apart,
        {
          value: null,
          counts: frame.starts.map((_, index) => sum(rest.map(({ counts }) => counts[index] ?? 0))),
          before: sum([...before.values()]) - sum(apart.map((line) => line.before)),
        },
      ],
    },
    true,
  );
}

/** No field has as many values. */
const EVERY_LINE = 1_000_000;

/** @param keepsRest whether there is a rest even where it has no event */
function linesOf<Problem extends string>(
  series: FieldSeries | Problem,
  keepsRest: boolean,
): SeriesLines | Problem {
  if (typeof series === 'string') return series;
  const { lines, ...frame } = series;
  const apart = lines.filter(({ value, type }) => value !== null || type !== undefined);
  const rest = lines.find(({ value, type }) => value === null && type === undefined);
  return {
    ...frame,
    lines: apart,
    rest: rest !== undefined && (keepsRest || hasEvents(rest)) ? rest : null,
    all: {
      counts: frame.starts.map((_, index) => sum(lines.map(({ counts }) => counts[index] ?? 0))),
      before: sum(lines.map(({ before }) => before)),
    },
  };
}

function typeLines({ types, all, other, before, ...frame }: Series, by: 'none' | 'type'): SeriesLines {
  const lines = (by === 'none' ? [] : types).map(({ typeId, name, counts }) => ({
    value: null,
    type: { typeId, name },
    counts,
    before: before.byType[typeId] ?? 0,
  }));
  const beforeRest = before.all - sum(lines.map((line) => line.before));
  return {
    ...frame,
    lines,
    rest: other === null ? null : { counts: other, before: beforeRest },
    all: { counts: all, before: before.all },
  };
}

function hasEvents({ counts, before }: Counted): boolean {
  return before > 0 || counts.some((count) => count > 0);
}
