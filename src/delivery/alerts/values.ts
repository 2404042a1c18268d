/** Values of the rules of alerts at each minute, from the counts alone. */
import { DAY_MS, MINUTE_MS, QUARTER_HOUR_MS } from '../../base/time-units.ts';
import {
  type EventReader,
  MOST_WINDOW_CELLS,
  type Stats,
  type SummaryLine,
  sameLocalTime,
  type WidthName,
  type WindowRequest,
  type WindowSums,
} from '../../storage/storage.ts';
import type { Limits, SeriesValues, Test } from './judge.ts';
import type { Measure, Measured, Rule } from './rule.ts';

/** A rule whose values are wanted at each minute from `first` to `last`, both included. */
export interface Wanted {
  readonly rule: Rule;
  /** Internal id of the app. */
  readonly appId: number;
  /** Names of the types of the app → internal ids. */
  readonly types: ReadonlyMap<string, number>;
  /** On whose clock quarter-hours are compared. */
  readonly timezone: string;
  readonly first: number;
  readonly last: number;
}

/**
 * Not counted: a field is not declared, or not counted for all of the time. Too many values: those of `by`, at all of the minutes, are
 * beyond what one rule may read.
 */
export type Values = readonly SeriesValues[] | 'not counted' | 'too many values';

export const TOO_MANY_VALUES =
  'reads too many values of "by" at too many minutes: a shorter "for" or "window", or a field with fewer values, takes less';

/** Values of a field that are judged apart. */
const MOST_SERIES = 20_000;
/** Each minute of a statistic is a read of its own, as quantiles of a window are not made of those of its minutes. */
export function readsOf(rule: Rule, minutes: number): number {
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
  const requests = wanted.map((one) => partsOf(one.rule).map((part) => countRequest(one, part)));
  const asked = requests.flat().filter((request) => request !== null);
  const sums = await events.windows(asked);
  const found = new Map<WindowRequest, WindowSums | string>(
    asked.map((request, index) => [request, sums[index] ?? 'not counted']),
  );
  const all: Values[] = [];
  for (const [index, one] of wanted.entries()) {
    const parts: (Series | null)[] = [];
    let isTooMuch = false;
    for (const [place, part] of partsOf(one.rule).entries()) {
      const request = requests[index]?.[place] ?? null;
      const counted = request === null ? await readStats(events, one, part) : found.get(request);
      isTooMuch ||= counted === 'too many values';
      parts.push(typeof counted === 'object' ? counted : null);
    }
    all.push(isTooMuch ? 'too many values' : await valuesOf(events, one, parts));
  }
  return all;
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

function partsOf(rule: Rule): readonly Measured[] {
  if (rule.kind === 'unusual') return [];
  return rule.kind === 'ratio' ? [rule.measured, rule.to] : [rule.measured];
}

function typeIdsOf({ types }: Wanted, { type }: Measured): readonly number[] | null {
  return type === null ? null : [types.get(type) ?? NO_TYPE];
}

/** @returns null where a statistic is wanted and not a count */
function countRequest(wanted: Wanted, measured: Measured): WindowRequest | null {
  if (measured.of !== 'count') return null;
  const { appId, first, last, rule } = wanted;
  const { filter } = measured;
  const { by, windowMs } = rule;
  return {
    appId,
    typeIds: typeIdsOf(wanted, measured),
    filter,
    by,
    windowMs,
    stepMs: MINUTE_MS,
    first,
    last,
  };
}

async function valuesOf(
  events: EventReader,
  wanted: Wanted,
  parts: readonly (Series | null)[],
): Promise<Values> {
  const { rule, first, last } = wanted;
  if (rule.kind === 'unusual') return await readUnusual(events, wanted, rule);
  const [own, to] = parts;
  if (own === null || own === undefined || to === null) return 'not counted';
  const ends = (last - first) / MINUTE_MS + 1;
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
  } else if (rule.kind === 'absent' || rule.side === 'below') {
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

/** Statistics at each minute: quantiles of a window are not made of those of its minutes. */
async function readStats(
  events: EventReader,
  wanted: Wanted,
  measured: Measured,
): Promise<Series | 'too many values' | null> {
  const { first, last, rule } = wanted;
  const length = (last - first) / MINUTE_MS + 1;
  const all = new Map<string, (number | null)[]>();
  for (let index = 0; index < length; index += 1) {
    const until = first + index * MINUTE_MS;
    const found = await statsWithin(events, wanted, measured, { from: until - rule.windowMs, until });
    if (found === null) return null;
    for (const [series, value] of found) {
      if (all.size * length > MOST_WINDOW_CELLS) return 'too many values';
      const values = all.get(series) ?? nulls(length);
      values[index] = value;
      all.set(series, values);
    }
  }
  if (measured.of !== 'sum') return all;
  return new Map([...all].map(([series, values]) => [series, values.map((value) => value ?? 0)]));
}

interface Within {
  readonly from: number;
  readonly until: number;
}

async function statsWithin(
  events: EventReader,
  wanted: Wanted,
  measured: Measured,
  interval: Within,
): Promise<ReadonlyMap<string, number | null> | null> {
  const lines = await readSummary(events, wanted, measured, { ...interval, buckets: 100 });
  return lines && new Map(lines.map(({ value, overall }) => [value ?? '', statOf(overall, measured.of)]));
}

/** Values of a rule on statistics in windows beside one another. @returns null where counts do not answer it */
export async function readBuckets(
  events: EventReader,
  wanted: Wanted,
  interval: Within,
  width: WidthName,
): Promise<ReadonlyMap<string, readonly (number | null)[]> | null> {
  const { rule } = wanted;
  const parts: ReadonlyMap<string, readonly (number | null)[]>[] = [];
  for (const part of rule.kind === 'ratio' ? [rule.measured, rule.to] : [rule.measured]) {
    // Counts have no statistics; those of events that have the number are of them.
    if (part.of === 'count') return null;
    const lines = await readSummary(events, wanted, part, { ...interval, buckets: width });
    if (lines === null) return null;
    parts.push(
      new Map(lines.map(({ value, stats }) => [value ?? '', stats.map((one) => statOf(one, part.of))])),
    );
  }
  const [own, to] = parts;
  if (own === undefined || to === undefined) return own ?? null;
  return new Map(
    [...own].map(([key, values]) => [key, values.map((value, at) => quotient(value, to.get(key)?.[at]))]),
  );
}

async function readSummary(
  events: EventReader,
  wanted: Wanted,
  measured: Measured,
  interval: Within & { readonly buckets: number | WidthName },
): Promise<readonly SummaryLine[] | null> {
  const { appId, rule } = wanted;
  const { of, field, filter } = measured;
  const found = await events.summarySeries({
    appId,
    typeIds: typeIdsOf(wanted, measured),
    ...interval,
    timezone: 'UTC',
    exactEnds: 'both',
    topTypes: MOST_SERIES,
    question: { kind: of === 'distinct' ? 'distinct' : 'number', of: field, by: rule.by, filter },
  });
  if (typeof found === 'string') return null;
  return found.lines.filter(({ value }) => rule.by === null || value !== null);
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
  const pastOf = new Map(ends.map((end) => [end, pastEnds(timezone, end)]));
  const span = await events.appSpan(appId);
  const counts = await countQuarters(events, wanted, rule.measured, [
    ...ends,
    ...[...pastOf.values()].flat(),
  ]);
  if (ends.some((end) => counts.get(end) === undefined)) return 'not counted';
  const oldest = span.firstEventAt?.getTime() ?? Number.POSITIVE_INFINITY;
  const judged = new Map(
    ends.map((end) => {
      const past = (pastOf.get(end) ?? []).filter((at) => at - QUARTER_HOUR_MS >= oldest);
      const usual = past.flatMap((at) => counts.get(at) ?? []);
      return [end, limitsOf(usual, rule)];
    }),
  );
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
  const distinct = [...new Set(ends)].sort((a, b) => a - b);
  if (measured.of !== 'count') {
    for (const until of distinct) {
      const found = await statsWithin(events, wanted, measured, { from: until - QUARTER_HOUR_MS, until });
      const value = found?.get('') ?? null;
      if (value !== null) counts.set(until, value);
    }
    return counts;
  }
  // Quarter-hours that lie near one another are read together.
  const runs: { first: number; last: number }[] = [];
  for (const end of distinct) {
    const run = runs.at(-1);
    if (run !== undefined && end - run.last <= DAY_MS) run.last = end;
    else runs.push({ first: end, last: end });
  }
  const typeIds = typeIdsOf(wanted, measured);
  const requests = runs.map((run) => {
    const { appId } = wanted;
    const step = { windowMs: QUARTER_HOUR_MS, stepMs: QUARTER_HOUR_MS };
    return { appId, typeIds, filter: measured.filter, by: null, ...step, ...run };
  });
  const sums = await events.windows(requests);
  for (const [index, { first, last }] of runs.entries()) {
    const found = sums[index];
    const own = typeof found === 'object' ? found.get('') : undefined;
    for (let end = first, at = 0; own !== undefined && end <= last; end += QUARTER_HOUR_MS, at += 1)
      counts.set(end, own[at] ?? 0);
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
