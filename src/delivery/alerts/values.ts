/** Values of the rules of alerts at each minute, from the counts alone. */
import { TimeSlice } from '../../base/time-slice.ts';
import { DAY_MS, MINUTE_MS, QUARTER_HOUR_MS } from '../../base/time-units.ts';
import type { Stats } from '../../storage/counts/summary-series.ts';
import { sameLocalTime } from '../../storage/counts/timezone.ts';
import type { WindowRequest } from '../../storage/counts/windows.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import type { Limits, SeriesValues, Test } from './judge.ts';
import { firesBelow, type Measure, type Measured, partsOf, type Rule } from './rule.ts';

/** A rule whose values are wanted at each step from `first` to `last`, both included. */
export interface Wanted {
  readonly rule: Rule;
  readonly appId: number;
  /** Names of the types of the app → internal ids. */
  readonly types: ReadonlyMap<string, number>;
  /** On whose clock quarter-hours are compared. */
  readonly timezone: string;
  readonly first: number;
  readonly last: number;
  /** By default a minute. */
  readonly stepMs?: number;
}

/**
 * Not counted: a field is not declared, or not counted for all of the time. Too many values: those of `by`, at all of the minutes, are
 * beyond what one rule may read.
 */
export type Values = readonly SeriesValues[] | NoValues;
type NoValues = 'not counted' | 'too many values';
const problemOf = (found: string): NoValues => (found === 'too many values' ? found : 'not counted');

export const TOO_MANY_VALUES =
  'reads too many values of "by" at too many minutes: a shorter "for" or "window", or a field with fewer values, takes less';

/** Values of a field that are judged apart. */
const MOST_SERIES = 20_000;
/** Windows of statistics at each of some minutes: what is kept of their numbers is put together for each of them. */
export function windowsOf(rule: Rule, minutes: number): number {
  if (rule.kind === 'unusual') return 0;
  return partsOf(rule).filter(({ of }) => of !== 'count').length * minutes;
}

/** Weeks that a quarter-hour is compared with, and how many of them there must be. */
const WEEKS = 8;
const FEWEST_WEEKS = 3;
/** A median absolute deviation as a standard deviation of a normal distribution. */
const MAD_AS_DEVIATION = 1.4826;
/** Statistics of numbers deviate by this share of what is expected at least. */
const LEAST_SHARE = 0.05;
/** A type that the app does not have has no events. */
const NO_TYPE = -1;

type Series = ReadonlyMap<string, ArrayLike<number | null>>;

/** Reads the values of rules, in the order of the rules. All counts of events are read together. */
export async function readValues(events: EventReader, wanted: readonly Wanted[]): Promise<readonly Values[]> {
  const parts = wanted.map((one) =>
    one.rule.kind === 'unusual' ? [] : partsOf(one.rule).map((part) => windowsRequest(one, part)),
  );
  const found = await readParts(events, parts.flat());
  const all: Values[] = [];
  for (const [index, one] of wanted.entries()) {
    const own = (parts[index] ?? []).map((part) => found.get(part) ?? 'not counted');
    const problem = own.find((part) => part === 'too many values');
    all.push(problem ?? (await valuesOf(events, one, own)));
  }
  return all;
}

/** Fills in the types that rules name, by one statement. */
export async function withTypes<T extends Pick<Wanted, 'rule' | 'appId'>>(
  sql: Sql,
  wanted: readonly T[],
): Promise<readonly (T & Pick<Wanted, 'types'>)[]> {
  const names = new Set(wanted.flatMap(({ rule }) => partsOf(rule).flatMap(({ type }) => type ?? [])));
  const apps = new Set(wanted.map(({ appId }) => appId));
  const rows =
    names.size === 0
      ? []
      : await sql<{ appId: number; name: string; id: number }[]>`
          SELECT app_id AS "appId", name, id FROM event_types WHERE app_id = ANY(${[...apps]}) AND name = ANY(${[...names]})`;
  return wanted.map((one) => {
    const own = rows.filter(({ appId }) => appId === one.appId);
    return { ...one, types: new Map(own.map(({ name, id }) => [name, id])) };
  });
}

/** Whether a value fires. */
export function testOf(rule: Rule): Test {
  switch (rule.kind) {
    case 'absent':
      return (value) => value === 0;
    case 'unusual':
      return (value, limits) =>
        value !== null && limits !== null && (value > limits.high || value < limits.low);
    default: {
      const { side, threshold } = rule;
      return (value) => value !== null && (side === 'above' ? value > threshold : value < threshold);
    }
  }
}

function typeIdsOf({ types }: Wanted, { type }: Measured): readonly number[] | null {
  return type === null ? null : [types.get(type) ?? NO_TYPE];
}

type Part = WindowRequest & { readonly measured: Measured };

function windowsRequest(wanted: Wanted, measured: Measured, windowMs = wanted.rule.windowMs): Part {
  const { appId, first, last, rule, stepMs = MINUTE_MS } = wanted;
  const { filter } = measured;
  const typeIds = typeIdsOf(wanted, measured);
  return { appId, typeIds, filter, by: rule.by, windowMs, stepMs, first, last, measured };
}

/** Counts are read together, and all windows of a statistic at once. */
async function readParts(
  events: EventReader,
  parts: readonly Part[],
): Promise<ReadonlyMap<Part, Series | NoValues>> {
  const counts = parts.filter(({ measured }) => measured.of === 'count');
  const sums = await events.windows(counts);
  const found = new Map<Part, Series | NoValues>();
  for (const [index, part] of counts.entries()) {
    const own = sums[index] ?? 'not counted';
    found.set(part, typeof own === 'string' ? problemOf(own) : own);
  }
  for (const part of parts) if (part.measured.of !== 'count') found.set(part, await readStats(events, part));
  return found;
}

async function readStats(
  events: EventReader,
  { measured, by, filter, ...windows }: Part,
): Promise<Series | NoValues> {
  const { of, field } = measured;
  const kind = of === 'distinct' ? 'distinct' : 'number';
  const found = await events.summaryWindows({
    ...windows,
    question: { kind, of: field, by, filter, stats: [of] },
  });
  if (typeof found === 'string') return problemOf(found);
  return new Map(
    [...found].map(([series, stats]) => [
      series,
      stats.map((one) => (one === null ? null : statOf(one, of)) ?? (of === 'sum' ? 0 : null)),
    ]),
  );
}

async function valuesOf(
  events: EventReader,
  wanted: Wanted,
  parts: readonly (Series | NoValues)[],
): Promise<Values> {
  const { rule, first, last, stepMs = MINUTE_MS } = wanted;
  if (rule.kind === 'unusual') return await readUnusual(events, wanted, rule);
  const [own, to] = parts;
  if (typeof own !== 'object' || typeof to === 'string') return 'not counted';
  const ends = Math.round((last - first) / stepMs) + 1;
  const nothing = new Float64Array(ends);
  if (to !== undefined) {
    const keys = [...new Set([...own.keys(), ...to.keys()])];
    return keys.map((series) => {
      const [a, b] = [own.get(series) ?? nothing, to.get(series) ?? nothing];
      return { series, values: Array.from({ length: ends }, (_, at) => quotient(a[at], b[at])) };
    });
  }
  const known = new Map(own);
  if (rule.by === null) {
    if (!known.has('')) known.set('', nothing);
  } else if (firesBelow(rule)) {
    const of = { appId: wanted.appId, typeIds: typeIdsOf(wanted, rule.measured), by: rule.by };
    const recent = await events.recentValues(of, last);
    if (typeof recent === 'string') return 'not counted';
    const empty = rule.measured.of === 'count' || rule.measured.of === 'sum' ? nothing : nulls(ends);
    for (const value of recent) if (!known.has(value)) known.set(value, empty);
    for (const value of known.keys()) if (!recent.has(value)) known.delete(value);
  }
  return [...known].slice(0, MOST_SERIES).map(([series, values]) => ({ series, values }));
}

function quotient(part: number | null | undefined, whole: number | null | undefined): number | null {
  return part == null || whole == null || whole === 0 ? null : part / whole;
}

function nulls(length: number): (number | null)[] {
  return new Array<number | null>(length).fill(null);
}

function statOf(stats: Stats, of: Measure): number | null {
  const stat = ({ ...stats } as Readonly<Record<string, unknown>>)[of];
  return stat === null || stat === undefined ? null : Number(stat);
}

type Unusual = Extract<Rule, { kind: 'unusual' }>;

/** The last whole quarter-hour at each minute, and what was usual on the same weekday at the same local time. */
async function readUnusual(events: EventReader, wanted: Wanted, rule: Unusual): Promise<Values> {
  const { first, last, timezone, appId } = wanted;
  const quarter = (at: number): number => Math.floor(at / QUARTER_HOUR_MS) * QUARTER_HOUR_MS;
  const ends: number[] = [];
  for (let end = quarter(first); end <= last; end += QUARTER_HOUR_MS) ends.push(end);
  // A trial of a month looks up 23,000 local times.
  const slices = new TimeSlice();
  const pastOf = new Map<number, readonly number[]>();
  for (const end of ends) {
    pastOf.set(end, pastEnds(timezone, end));
    if (slices.isOver) await slices.next();
  }
  const span = await events.appSpan(appId);
  const counts = await countQuarters(events, wanted, rule.measured, [
    ...ends,
    ...[...pastOf.values()].flat(),
  ]);
  if (ends.some((end) => counts.get(end) === undefined)) return 'not counted';
  const oldest = span.firstEventAt?.getTime() ?? Number.POSITIVE_INFINITY;
  const judged = new Map<number, Limits | null>();
  for (const end of ends) {
    const past = (pastOf.get(end) ?? []).filter((at) => at - QUARTER_HOUR_MS >= oldest);
    const usual = past.flatMap((at) => counts.get(at) ?? []);
    judged.set(end, limitsOf(usual, rule));
    if (slices.isOver) await slices.next();
  }
  const length = (last - first) / MINUTE_MS + 1;
  const minutes = Array.from({ length }, (_, index) => quarter(first + index * MINUTE_MS));
  const values = minutes.map((end) => counts.get(end) ?? null);
  return [{ series: '', values, limits: minutes.map((end) => judged.get(end) ?? null) }];
}

/** Ends of the same quarter-hour in the weeks before; one that daylight saving time skipped is left out. */
function pastEnds(timezone: string, end: number): readonly number[] {
  const weeks = Array.from({ length: WEEKS }, (_, week) => 7 * (week + 1));
  return weeks.flatMap((days) => {
    const start = sameLocalTime(timezone, end - QUARTER_HOUR_MS, days);
    return start === null ? [] : [start + QUARTER_HOUR_MS];
  });
}

/** End of a quarter-hour → its value; absent where it is not counted, or there is none. */
async function countQuarters(
  events: EventReader,
  wanted: Wanted,
  measured: Measured,
  ends: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const counts = new Map<number, number>();
  // Quarter-hours that lie near one another are read together.
  const runs: { first: number; last: number }[] = [];
  for (const end of [...new Set(ends)].sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run !== undefined && end - run.last <= DAY_MS) run.last = end;
    else runs.push({ first: end, last: end });
  }
  const parts = runs.map((run) =>
    windowsRequest({ ...wanted, ...run, stepMs: QUARTER_HOUR_MS }, measured, QUARTER_HOUR_MS),
  );
  for (const [{ first }, found] of await readParts(events, parts)) {
    const own = typeof found === 'object' ? (found.get('') ?? []) : [];
    for (const [at, value] of Array.from(own).entries())
      if (value !== null) counts.set(first + at * QUARTER_HOUR_MS, value);
  }
  return counts;
}

/** Median, and how far from it a value may be (median absolute deviation). Null: too few weeks. */
function limitsOf(usual: readonly number[], { deviations, measured }: Unusual): Limits | null {
  if (usual.length < FEWEST_WEEKS) return null;
  const expected = median(usual);
  const mad = median(usual.map((value) => Math.abs(value - expected)));
  // Counts vary by their square root at least (Poisson).
  const least = measured.of === 'count' ? Math.max(1, Math.sqrt(expected)) : Math.abs(expected) * LEAST_SHARE;
  const room = deviations * Math.max(mad * MAD_AS_DEVIATION, least);
  return { expected, low: expected - room, high: expected + room };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? 0) + upper) / 2;
}
