/** What reads of declared fields must give: a computation over all payloads, beside which their answers are held. */
import { expect } from 'vitest';
import { HISTOGRAM, STATS } from '../../src/base/measures.ts';
import { countedValues } from '../../src/read/filter/counted-values.ts';
import { parseFilter } from '../../src/read/filter/parse-filter.ts';
import { payloadFilter } from '../../src/read/filter/payload-filter.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../src/storage/counts/levels.ts';
import type { NumberStats, Stats } from '../../src/storage/counts/summary-series.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { type FieldFilter, resolveFieldScope } from '../../src/storage/fields/field-scope.ts';
import { type FieldKind, PayloadValues } from '../../src/storage/fields/payload-values.ts';
import { Bins, histogramOf } from '../../src/storage/fields/sketch.ts';
import { MANY } from '../../src/storage/fields/value-text.ts';
import type { LineReader } from '../../src/storage/read/event-lines.ts';
import { readPageIn } from '../../src/storage/read/event-page.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { readSnapshot } from '../../src/storage/read/snapshot.ts';
import type { FieldEvent } from './field-database.ts';

const PLENTY = 1_000_000;
const FILTERS = [
  'country:DE',
  'country:FR,IT',
  'status:200',
  'status:"200"',
  'status:null',
  'country:XX',
  'user.id:7',
];
const VALUE_PATHS = [['country'], ['status'], ['user', 'id']];
const NUMBER_PATHS = [['total'], ['user', 'id']];
const ZONES = ['UTC', 'Asia/Kathmandu', 'Europe/Berlin'];

/** A random number that follows from the ones before. @param below excluded */
export type Random = (below: number) => number;

export function seededRandom(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

/** Numbers as payloads spell them. The last ones are in no statistics. */
const NUMBERS = [
  ...[
    '0',
    '-0.0',
    '1',
    '1.0',
    '17',
    '-17',
    '0.1',
    '2.5e-3',
    '1e2',
    '123.456',
    '-0.001',
    '99999999999999999999',
  ],
  ...['12345678901234567890.123', '-1E20', '1e-50', '9007199254740993', '9007199254740992'],
  ...['1e400', '1e-400', `1${'0'.repeat(40)}`, `0.${'1'.repeat(80)}`],
];

export function randomPayload(random: Random): string {
  const pick = <T>(from: readonly T[]): T => from[random(from.length)] as T;
  const country = pick([
    ...['"DE"', '"D\\u0045"', '"FR"', '"IT"', 'null', '["IT"]', '{}'],
    random(9) > 0 ? '[]' : '["DE","FR"]',
  ]);
  const status = pick(['200', '2e2', '"200"', '404', 'null', 'true', `"${'x'.repeat(201)}"`]);
  const total = pick([
    ...[pick(NUMBERS), pick(NUMBERS), `[${pick(NUMBERS)},"5"]`, '"12"', 'null', '[]'],
    ...[String(random(10_000) / 100), String(random(1_000)), `-${random(50)}.25`],
    random(5) > 0 ? '3' : '[7,7.0]',
  ]);
  return `{"country":${country},"status":${status},"user":{"id":${random(12)}},"total":${total}}`;
}

export function fieldFilter(text: string): FieldFilter {
  const condition = parseFilter(text);
  if ('problem' in condition) throw new Error(condition.problem);
  const values = countedValues(condition);
  const filter = payloadFilter([condition]);
  if (values === null || filter === null) throw new Error(`${text} is not about values`);
  return { path: condition.path, values, rows: filter };
}

export interface Scope {
  readonly typeIds: readonly number[] | null;
  readonly from: number | null;
  readonly until: number | null;
}

/** All events of app 1, and how it is read. */
export interface Oracle {
  /** Where its fields are counted. */
  readonly counts: Sql;
  readonly reader: EventReader;
  readonly events: readonly FieldEvent[];
  readonly random: Random;
  readonly now: number;
  /** Told of each read of a field whether the counts have answered it. */
  readonly onRead?: (read: FieldRead, isAnswered: boolean) => void;
}

/** What a read asks the counts of a field for. */
export interface FieldRead extends Scope {
  readonly path: readonly string[];
  readonly kind: FieldKind;
}

export const within = ({ typeIds, from, until }: Scope, { at, typeId }: FieldEvent): boolean =>
  (typeIds === null || typeIds.includes(typeId)) &&
  at >= (from ?? 0) &&
  at < (until ?? Number.POSITIVE_INFINITY);

const ordered = (found: readonly FieldEvent[]): FieldEvent[] =>
  found.toSorted((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));

function scopes({ random, now }: Oracle): Scope[] {
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  return [
    { typeIds: null, from: null, until: null },
    { typeIds: [1], from: now - 2 * HOUR_MS - random(MINUTE_MS), until: null },
    { typeIds: null, from: today + random(HOUR_MS), until: now - random(HOUR_MS) },
    { typeIds: [1, 2], from: now - random(DAY_MS), until: now + 1 },
    { typeIds: [2], from: null, until: now - random(20) * MINUTE_MS },
  ];
}

/** Pages by cursor and at an offset, with totals. @returns how many scopes the counts have answered */
export async function expectPages(oracle: Oracle): Promise<number> {
  const { reader, events, random } = oracle;
  let answered = 0;
  for (const scope of scopes(oracle)) {
    const filter = fieldFilter(FILTERS[random(FILTERS.length)] ?? '');
    const expected = ordered(events.filter((row) => within(scope, row) && filter.rows.matches(row.payload)));
    const order = random(2) === 0 ? 'asc' : 'desc';
    const inOrder = order === 'asc' ? expected : expected.toReversed();
    const limit = 1 + random(80);
    const request = { appId: 1, ...scope, order, limit, maxBytes: PLENTY, withTotal: true } as const;
    const seen: string[] = [];
    let list = await reader.filteredList({ ...request, after: null }, filter);
    oracle.onRead?.({ ...scope, path: filter.path, kind: 'value' }, typeof list !== 'string');
    if (typeof list === 'string') continue;
    answered += 1;
    for (
      ;
      typeof list !== 'string';
      list = await reader.filteredList({ ...request, after: list.next }, filter)
    ) {
      expect(list.total).toBe(expected.length);
      seen.push(...list.events.map(({ id }) => id));
      if (list.next === null) break;
    }
    expect(seen).toEqual(inOrder.map(({ id }) => id));
    await expectPageAtOffset(oracle, scope, filter, order, inOrder);
  }
  return answered;
}

async function expectPageAtOffset(
  { counts, random }: Oracle,
  scope: Scope,
  filter: FieldFilter,
  order: 'asc' | 'desc',
  expected: readonly FieldEvent[],
): Promise<void> {
  const offset = random(expected.length + 1);
  const page = await readSnapshot(counts, async (tx) => {
    const field = await resolveFieldScope(tx, { appId: 1, ...scope, isCountedAlone: true }, filter);
    if (typeof field === 'string') throw new Error('the counts have answered it before');
    const { from, until } = scope;
    return await readPageIn(tx, {
      scope: { appId: 1, typeIds: null, from, until, field },
      ...{ order, offset, limit: 7, maxBytes: PLENTY },
    });
  });
  expect(page.events.map(({ id, payload: text }) => [id, text])).toEqual(
    expected.slice(offset, offset + 7).map(({ id, payload: text }) => [id, text]),
  );
  expect(page.hasMore).toBe(offset + 7 < expected.length);
}

/** The lines of an export, which are those of a search, and how many rows were looked at for them. */
export async function expectLines({ reader, events, random, now }: Oracle): Promise<number> {
  const typeIds = [null, [1]][random(2)] ?? null;
  const scope = { typeIds, from: [null, now - 3 * HOUR_MS][random(2)] ?? null, until: null };
  const filter = fieldFilter(FILTERS[random(FILTERS.length)] ?? '');
  let looked = 0;
  const matches: typeof filter.rows.matches = (payload) => {
    looked += 1;
    return filter.rows.matches(payload);
  };
  const after = [null, { at: now - HOUR_MS, id: '80000000-0000-0000-0000-000000000000' }][random(2)] ?? null;
  const request = { appId: 1, ...scope, order: 'asc', after } as const;
  const counted = await linesOf(
    reader.filteredLines(request, { ...filter, rows: { contains: [], matches } }),
  );
  expect(counted).toEqual(await linesOf(reader.lines(request, filter.rows)));
  const follows = ({ at, id }: FieldEvent): boolean =>
    after === null || at > after.at || (at === after.at && id > after.id);
  const wanted = events.filter(
    (row) => within(scope, row) && follows(row) && filter.rows.matches(row.payload),
  );
  expect(counted.map((line) => line.slice(7, 43))).toEqual(ordered(wanted).map(({ id }) => id));
  return looked;
}

async function linesOf(from: LineReader): Promise<string[]> {
  const lines: string[] = [];
  for (let part = await from.next(); part !== null; part = await from.next())
    lines.push(...part.lines.toString().split('\n').slice(0, -1));
  return lines;
}

/** Series of filters, values and numbers. @returns how many the counts have answered */
export async function expectSeries(oracle: Oracle): Promise<number> {
  const { reader, events, random, now } = oracle;
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  let answered = 0;
  for (const [from, until, buckets] of [
    [now - 2 * HOUR_MS - random(MINUTE_MS), now + random(MINUTE_MS), 60],
    [today - (5 * HOUR_MS) / 2 + random(HOUR_MS), now, 50],
    [null, now + 5 * MINUTE_MS, 5],
  ] as const) {
    const typeIds = [null, [1], [2, 1]][random(3)] ?? null;
    const timezone = ZONES[random(ZONES.length)] ?? 'UTC';
    const request = {
      ...{ appId: 1, typeIds, from, until, buckets, timezone },
      ...({ exactEnds: 'both', withBefore: true } as const),
    };
    const filter = fieldFilter(FILTERS[random(FILTERS.length)] ?? '');
    const series = await reader.filteredSeries(request, filter);
    const asked = { typeIds, from: null, until, path: filter.path, kind: 'value' } as const;
    oracle.onRead?.(asked, typeof series !== 'string');
    if (series !== 'not counted' && series !== 'not counted yet') {
      if (typeof series === 'string') throw new Error(series);
      answered += 1;
      const ofTypes = events.filter((row) => within({ typeIds, from: null, until: null }, row));
      const matching = ofTypes.filter(({ payload }) => filter.rows.matches(payload));
      const [line] = series.lines;
      expect(line?.counts).toEqual(inBuckets(series, matching).map((found) => found.length));
      expect(line?.before).toBe(matching.filter(({ at }) => at < series.interval.from).length);
    }
    const exceptTypes = typeIds === null && random(2) === 0 ? [1 + random(2)] : [];
    answered += await expectTypes(oracle, { ...request, exceptTypes }, filter);
    answered += await expectValues(oracle, { ...request, exceptTypes });
    answered += await expectNumbers(oracle, request);
  }
  return answered;
}

interface Buckets {
  readonly starts: readonly number[];
  readonly end: number;
  readonly interval: { readonly from: number; readonly until: number };
}

function inBuckets({ starts, end, interval }: Buckets, found: readonly FieldEvent[]): FieldEvent[][] {
  return starts.map((start, index) => {
    const from = Math.max(start, interval.from);
    const until = Math.min(starts[index + 1] ?? end, interval.until);
    return found.filter(({ at }) => at >= from && at < until);
  });
}

type FieldRequest = Parameters<EventReader['valueSeries']>[0];

/** All events of the types of a request, whenever they were. */
function ofTypesOf({ events }: Oracle, { typeIds, exceptTypes = [] }: FieldRequest): FieldEvent[] {
  const all = { typeIds, from: null, until: null };
  return events.filter((row) => within(all, row) && !exceptTypes.includes(row.typeId));
}

/** What passes a filter, by type. */
async function expectTypes(oracle: Oracle, request: FieldRequest, filter: FieldFilter): Promise<number> {
  const series = await oracle.reader.filteredTypes({ ...request, topTypes: oracle.random(3) }, filter);
  if (series === 'not counted' || series === 'not counted yet') return 0;
  if (typeof series === 'string') throw new Error(series);
  const matching = ofTypesOf(oracle, request).filter(({ payload }) => filter.rows.matches(payload));
  const shown = series.lines.map(({ type }) => type?.typeId);
  for (const { type, counts, before } of series.lines) {
    const found = matching.filter(({ typeId }) =>
      type === undefined ? !shown.includes(`type${typeId}`) : type.typeId === `type${typeId}`,
    );
    expect(counts).toEqual(inBuckets(series, found).map((some) => some.length));
    expect(before).toBe(found.filter(({ at }) => at < series.interval.from).length);
  }
  return 1;
}

async function expectValues(oracle: Oracle, request: FieldRequest): Promise<number> {
  const { reader, random, onRead } = oracle;
  const path = VALUE_PATHS[random(VALUE_PATHS.length)] ?? [];
  const name = path.join('.');
  const only = random(2) === 0 ? null : FILTERS.filter((text) => text.startsWith(`${name}:`))[random(3)];
  const filter = only == null ? null : fieldFilter(only);
  const series = await reader.valueSeries({ ...request, topTypes: 3 }, path, filter);
  const { typeIds, until } = request;
  if (filter === null)
    onRead?.({ typeIds, from: null, until, path, kind: 'value' }, typeof series !== 'string');
  if (series === 'not counted' || series === 'not counted yet') return 0;
  if (typeof series === 'string') throw new Error(series);
  const values = new PayloadValues([path]);
  const ofTypes = ofTypesOf(oracle, request).filter(
    ({ payload }) => filter === null || filter.rows.matches(payload),
  );
  const valued = ofTypes.map((row) => ({ row, value: values.read(row.payload)[0] ?? null }));
  const shown = series.lines.map(({ value }) => value);
  for (const { value, counts, before } of series.lines) {
    const own = valued.filter((one) =>
      value === null
        ? one.value === null || one.value === MANY || !shown.includes(one.value)
        : one.value === value,
    );
    const found = own.map(({ row }) => row);
    expect(counts).toEqual(inBuckets(series, found).map((some) => some.length));
    expect(before).toBe(found.filter(({ at }) => at < series.interval.from).length);
  }
  return 1;
}

/** Statistics of the numbers of a declared field, as its only line. @param stats those that are needed; absent: all */
export async function numberSeries(
  reader: EventReader,
  request: Omit<Parameters<EventReader['summarySeries']>[0], 'question'>,
  path: readonly string[],
  stats?: readonly string[],
) {
  const question = { kind: 'number', of: path, by: null, filter: null, ...(stats && { stats }) } as const;
  const series = await reader.summarySeries({ ...request, question });
  if (typeof series === 'string') return series;
  const { lines, ...about } = series;
  const numbers = (one: Stats | undefined): NumberStats => {
    if (one === undefined || !('sum' in one)) throw new Error('These are no statistics of numbers.');
    return one;
  };
  const [line] = lines;
  return { ...about, stats: (line?.stats ?? []).map(numbers), overall: numbers(line?.overall) };
}

/** Statistics of numbers: exact, but for quantiles, which are within 1 %. @returns 1 where the summaries have answered */
export async function expectNumbers(
  { reader, events, random, onRead }: Oracle,
  request: Omit<Parameters<EventReader['summarySeries']>[0], 'question'>,
): Promise<number> {
  const path = NUMBER_PATHS[random(NUMBER_PATHS.length)] ?? [];
  const series = await numberSeries(reader, request, path, [...STATS, HISTOGRAM]);
  const { typeIds, from, until } = request;
  onRead?.({ typeIds, from, until, path, kind: 'number' }, typeof series !== 'string');
  if (series === 'not counted' || series === 'not counted yet') return 0;
  if (typeof series === 'string') throw new Error(series);
  const name = path.at(-1) ?? '';
  const ofTypes = events.filter((row) => within({ typeIds: request.typeIds, from: null, until: null }, row));
  const buckets = inBuckets(series, ofTypes).map((some) =>
    some.map(({ payload }) => numberIn(payload, name)),
  );
  expect(series.stats).toHaveLength(buckets.length);
  for (const [index, found] of buckets.entries()) expectStats(series.stats[index], found);
  expectStats(series.overall, buckets.flat());
  expectHistogram(series, buckets);
  const asked = STATS[random(STATS.length)] ?? 'sum';
  const alone = await numberSeries(reader, request, path, [asked]);
  if (typeof alone === 'string') throw new Error(alone);
  const shown = (all: NumberStats) => [all.count, all[asked]];
  expect(alone.stats.map(shown)).toEqual(series.stats.map(shown));
  expect(shown(alone.overall)).toEqual(shown(series.overall));
  // An answer may have thousands of statistics.
  expect(alone.stats.filter(({ bins }) => bins !== undefined)).toEqual([]);
  const leftOut = (kind: Found): number => buckets.flat().filter((found) => found === kind).length;
  expect(series.leftOut).toEqual({
    several: leftOut('several'),
    unrepresentable: leftOut('unrepresentable'),
  });
  return 1;
}

/** What a payload has under a name: a number as units of 10^-60, or why it has none. */
type Found = bigint | 'several' | 'unrepresentable' | 'none';

const PLACES = 60;

/** Of the payloads of {@link randomPayload}, by their text: JSON.parse would round the numbers. */
function numberIn(payload: string, name: string): Found {
  const text = payload.slice(payload.indexOf(`"${name}":`) + name.length + 3);
  const value = text.startsWith('[')
    ? text.slice(1, text.indexOf(']')).split(',')
    : [text.split(/[,}]/)[0] ?? ''];
  const numbers = value.filter((one) => /^[-\d]/.test(one));
  const [literal] = numbers;
  if (literal === undefined) return 'none';
  return numbers.length > 1 ? 'several' : unitsOf(literal);
}

function unitsOf(literal: string): Found {
  const [mantissa = '', exponent = '0'] = literal.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  const places = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  if (digits === 0n) return 0n;
  if (Math.abs(places) > 200) return 'unrepresentable';
  const units = places <= PLACES ? digits * 10n ** BigInt(PLACES - places) : 'unrepresentable';
  return units !== 'unrepresentable' && (units < 0n ? -units : units) < 10n ** 90n
    ? units
    : 'unrepresentable';
}

const asUnits = (text: string | null): Found => (text === null ? 'none' : sumUnits(text));
function sumUnits(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(PLACES, '0'));
}

function expectStats(stats: NumberStats | undefined, found: readonly Found[]): void {
  const numbers = found.filter((one) => typeof one === 'bigint').sort((a, b) => (a < b ? -1 : Number(a > b)));
  const sum = numbers.reduce((total, one) => total + one, 0n);
  expect(stats?.count).toBe(numbers.length);
  expect(asUnits(stats?.sum ?? null)).toBe(sum);
  expect(asUnits(stats?.min ?? null)).toBe(numbers[0] ?? 'none');
  expect(asUnits(stats?.max ?? null)).toBe(numbers.at(-1) ?? 'none');
  const double = (units: bigint): number => Number(`${units}e-${PLACES}`);
  if (numbers.length === 0) {
    expect(stats).toMatchObject({ avg: null, stddev: null, p50: null, p90: null, p95: null, p99: null });
    return;
  }
  const average = Number(`${(sum * 10n ** 20n) / BigInt(numbers.length)}e-${PLACES + 20}`);
  expect(stats?.avg).toBe(average);
  expectDeviation(stats?.stddev ?? null, numbers, sum);
  for (const [name, quantile] of [
    ['p50', 0.5],
    ['p90', 0.9],
    ['p95', 0.95],
    ['p99', 0.99],
  ] as const) {
    const right = double(numbers[Math.ceil(quantile * numbers.length) - 1] ?? 0n);
    const error = Math.abs((stats?.[name] ?? Number.NaN) - right);
    expect(error, `${name} of ${numbers.length}: ${right}`).toBeLessThanOrEqual(0.01 * Math.abs(right));
  }
}

/** Counts by the edges that are told, of each bucket. */
function expectHistogram(
  { stats, overall }: { stats: readonly NumberStats[]; overall: NumberStats },
  buckets: readonly (readonly Found[])[],
): void {
  const { bins, countsOf } = histogramOf(overall.bins ?? new Bins(), 5 + overall.count);
  for (const [index, found] of buckets.entries()) {
    const numbers = found.filter((one) => typeof one === 'bigint').map((one) => Number(`${one}e-${PLACES}`));
    expect(countsOf(stats[index]?.bins ?? new Bins())).toEqual(
      bins.map(({ from, to }) => {
        const isIn = (number: number): boolean =>
          from === to
            ? number === 0
            : from < 0
              ? from <= number && number < to
              : from < number && number <= to;
        return numbers.filter(isIn).length;
      }),
    );
  }
}

/** Of a sample: from what each number is away from the mean, n times as much, so that it is a whole number. */
function expectDeviation(found: number | null, numbers: readonly bigint[], sum: bigint): void {
  const n = BigInt(numbers.length);
  if (n < 2n) {
    expect(found).toBeNull();
    return;
  }
  const squares = numbers.reduce((total, one) => total + (n * one - sum) ** 2n, 0n);
  const right = Math.sqrt(Number(`${(squares * 10n ** 20n) / (n * n * (n - 1n))}e-${2 * PLACES + 20}`));
  expect(Math.abs((found ?? Number.NaN) - right)).toBeLessThanOrEqual(1e-14 * right);
}
