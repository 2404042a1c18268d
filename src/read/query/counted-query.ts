/** The answer of counts to a query, where declared fields have it; and which declarations would have it. */
import { isDeepStrictEqual } from 'node:util';
import type { SeriesRequest } from '../../storage/counts/series.ts';
import { noStats, type Stats, type SummarySeries } from '../../storage/counts/summary-series.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { readLines } from '../charts/series-lines.ts';
import { declarationOf } from '../fields/why-not-counted.ts';
import { fieldFilterOf } from '../filter/counted-values.ts';
import type { AnsweredGroup } from './query-answer.ts';
import type { QueryBody } from './query-body.ts';

export interface CountedAnswer {
  readonly groups: readonly AnsweredGroup[];
  readonly leftOut: readonly SummarySeries['leftOut'][];
}

/** What counts would have to answer: at most one path of lines, and a filter on one path. */
interface CountedQuestion {
  readonly by: readonly string[] | null;
  readonly filter: FieldFilter | null;
  /** Whether the filter is about another path than the lines. */
  readonly isPair: boolean;
}

/** @returns null where no declaration could answer the question */
function questionOf({ by, filter, q, word, exceptTypeId, hidden }: QueryBody): CountedQuestion | null {
  const [line, second] = by;
  if (second !== undefined || q !== null || word !== null) return null;
  if (exceptTypeId.length > 0 || hidden === 'exclude') return null;
  const field = fieldFilterOf({ filter });
  if (field === null && filter.length > 0) return null;
  const path = line?.path ?? null;
  const isPair = path !== null && field !== null && !isDeepStrictEqual(path, field.path);
  return { by: path, filter: field, isPair };
}

/** The options of the command that declares what is missing, one for each declaration; empty: none would do. */
export function declarationsFor(query: QueryBody): readonly string[] {
  const question = questionOf(query);
  const { measures } = query;
  if (question === null || (question.isPair && measures.length > 0)) return [];
  const { by, filter, isPair } = question;
  const second = by ?? filter?.path ?? null;
  const needed = measures.map(({ path, kind }) => declarationOf({ path, kind, by: second }));
  if (isPair && filter !== null && by !== null)
    needed.push(declarationOf({ path: by, kind: 'value', by: filter.path }));
  else if (second !== null) needed.push(declarationOf({ path: second, kind: 'value', by: null }));
  return [...new Set(needed)];
}

/** @returns null where counts do not answer it */
export async function answerOfCounts(
  events: EventReader,
  request: SeriesRequest,
  query: QueryBody,
): Promise<CountedAnswer | null> {
  const question = questionOf(query);
  const { measures, limit } = query;
  if (question === null || (question.isPair && measures.length > 0)) return null;
  const lines = await countedLines(events, { ...request, topTypes: limit }, question);
  if (lines === null) return null;
  const values = lines.flatMap(({ value, isOther }) => (value === null || isOther ? [] : [value]));
  const series: SummarySeries[] = [];
  for (const { path, kind, stats } of measures) {
    const { by, filter } = question;
    const one = await events.summarySeries({
      ...request,
      question: { kind, of: path, by, filter, stats },
      ...(by !== null && { values }),
    });
    if (typeof one === 'string') return null;
    series.push(one);
  }
  const groups = lines.map((line) => groupOf(line, series, question, measures));
  return {
    groups: groups.filter(({ count }) => count > 0 || question.by === null),
    leftOut: series.map(({ leftOut }) => leftOut),
  };
}

interface CountedLine {
  readonly value: string | null;
  readonly isOther: boolean;
  readonly counts: readonly number[];
}

async function countedLines(
  events: EventReader,
  request: SeriesRequest,
  { by, filter, isPair }: CountedQuestion,
): Promise<readonly CountedLine[] | null> {
  if (isPair) {
    const series = await events.summarySeries({
      ...request,
      question: { kind: 'value', of: null, by, filter },
    });
    if (typeof series === 'string') return null;
    return series.lines.map(({ value, stats }) => ({
      value,
      isOther: value === null,
      counts: stats.map(({ count }) => count),
    }));
  }
  const series = await readLines(events, { ...request, withBefore: false }, { by: by ?? 'none', filter });
  if (typeof series === 'string') return null;
  const { lines, rest, all } = series;
  if (by === null) return [{ value: null, isOther: false, counts: all.counts }];
  const shown = lines.map(({ value, counts }) => ({ value, isOther: false, counts }));
  return rest === null ? shown : [...shown, { value: null, isOther: true, counts: rest.counts }];
}

function groupOf(
  { value, isOther, counts }: CountedLine,
  series: readonly SummarySeries[],
  { by }: CountedQuestion,
  measures: QueryBody['measures'],
): AnsweredGroup {
  const found = series.map(({ lines }) => lines.find((line) => line.value === value));
  const statsAt = (index: number | null): Stats[] =>
    found.map((line, measure) => {
      const own = index === null ? line?.overall : line?.stats[index];
      return own ?? noStats(measures[measure]?.kind ?? 'value');
    });
  return {
    values: by === null ? [] : [value],
    isOther,
    count: counts.reduce((sum, count) => sum + count, 0),
    stats: statsAt(null),
    buckets: counts.flatMap((count, index) => (count === 0 ? [] : [{ index, count, stats: statsAt(index) }])),
    missing: 0,
  };
}
