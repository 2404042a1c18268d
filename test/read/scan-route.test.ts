/** Charts that are counted from rows: the sum of all parts is what SQL counts, however small the parts are. */
import { beforeAll, expect, test } from 'vitest';
import type { Api } from '../../src/accounts/routes/api.ts';
import { Rejection } from '../../src/errors.ts';
import { NUMBERS_QUERY } from '../../src/read/charts/chart-query.ts';
import { readNumbersOf } from '../../src/read/charts/numbers-route.ts';
import { scanRoute } from '../../src/read/charts/scan-route.ts';
import { createReader, type EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { sharedService, type TestService } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const MINUTE_MS = 60_000;
const EVENTS = 400;
const COUNTRIES = ['"DE"', '"FR"', '"\\u0044E"', '["DE","FR"]', '["IT"]', '7', '7.0', 'null'];

interface Column {
  readonly at: number[];
  readonly counts: number[];
}
interface Part {
  readonly starts: number[];
  readonly lines: (Column & { readonly key: string; readonly name: string })[];
  readonly rest: Column;
  readonly hidden: (Column & { readonly typeIds: readonly string[] }) | null;
  readonly looked: number;
  readonly next: string | null;
  readonly bucket: string;
  readonly interval: { readonly from: number; readonly until: number };
}

let service: TestService;
let owner: Person;
let path: string;
let start: number;
let types: { id: number; typeId: string; name: string }[];
let ids: { appId: number };

beforeAll(async () => {
  service = await sharedService();
  const { sql, database } = service;
  owner = await newPerson(service);
  const app = await newOwnApp(owner);
  ({ path } = app);
  for (const name of ['visit', 'order', 'noise']) await service.newType(app, name);
  types = [
    ...(await sql<{ id: number; typeId: string; name: string }[]>`
      SELECT event_types.id, event_types.public_id AS "typeId", event_types.name
        FROM event_types JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId} ORDER BY id`),
  ];
  const [row] = await sql<{ appId: number }[]>`SELECT id AS "appId" FROM apps WHERE public_id = ${app.appId}`;
  if (row === undefined) throw new Error('no app');
  ids = row;
  start = Math.floor(Date.now() / 86_400_000) * 86_400_000;
  await storeRows(
    sql,
    database.engine,
    Array.from({ length: EVENTS }, (_, i) => {
      const at = start + Math.floor(i / 3) * (MINUTE_MS / 10);
      const time = at
        .toString(16)
        .padStart(12, '0')
        .replace(/^(.{8})/, '$1-');
      const country = COUNTRIES[i % COUNTRIES.length];
      return {
        id: `${time}-7000-8000-${String(i).padStart(12, '0')}`,
        at,
        payload: `{"n":${i},"country":${country}}`,
        ...ids,
        typeId: types[i % types.length]?.id ?? 0,
      };
    }),
  );
});

const range = (): string =>
  new URLSearchParams({
    from: new Date(start).toISOString(),
    to: new Date(start + 20 * MINUTE_MS).toISOString(),
    timezone: 'UTC',
    buckets: '30',
  }).toString();

/** All parts of a scan, each of at most so many rows. */
async function scan(query: string, rows = 1_000_000): Promise<Part[]> {
  const { sql } = service;
  const events = (await openStorage(sql)).reader(sql);
  const app = { id: ids.appId, appId: '' };
  let handle: (call: object) => Promise<unknown> = () => Promise.reject(new Error('no route'));
  const api = {
    readInTurn: (_path: string, _access: string, given: typeof handle) => {
      handle = given;
    },
  } as unknown as Api;
  const now = (): number => 0;
  scanRoute({ api, now, monotonic: now, partBudget: { rows, ms: 1_000 } });
  const parts: Part[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const asked: string = cursor === '' ? query : `${query}&cursor=${cursor}&width=${parts[0]?.bucket}`;
    const pass = (): Promise<boolean> => Promise.resolve(true);
    const outcome = await handle({ app, exchange: { query: asked }, sql, events, pass });
    if (outcome instanceof Rejection) throw new Error(outcome.code);
    const part = (JSON.parse((outcome as { body: string }).body) as { data: Part }).data;
    parts.push(part);
    cursor = part.next;
  }
  return parts;
}

/** Events by line and bucket. */
function sums(parts: readonly Part[]): Record<string, Record<number, number>> {
  const found: Record<string, Record<number, number>> = {};
  const add = (name: string, { at, counts }: Column): void => {
    for (const [place, index] of at.entries()) {
      found[name] ??= {};
      const column = found[name];
      column[index] = (column[index] ?? 0) + (counts[place] ?? 0);
    }
  };
  for (const { lines, rest, hidden } of parts) {
    for (const line of lines) add(line.name, line);
    add('rest', rest);
    if (hidden !== null) add('hidden', hidden);
  }
  return found;
}

test.each([1_000_000, 50, 7])('by type, with two conditions, in parts of %i rows', async (rows) => {
  const parts = await scan(`${range()}&filter=n>=100&filter=country:DE`, rows);
  const wanted: Record<string, Record<number, number>> = {};
  for (let i = 100; i < EVENTS; i++) {
    // A text, the same text spelled otherwise, and one of an array.
    if (![0, 2, 3].includes(i % COUNTRIES.length)) continue;
    const name = types[i % types.length]?.name ?? '';
    const bucket = Math.floor(Math.floor(i / 3) / 10);
    if (bucket >= 20) continue;
    wanted[name] ??= {};
    wanted[name][bucket] = (wanted[name][bucket] ?? 0) + 1;
  }
  expect(sums(parts)).toEqual(wanted);
  const looked = parts.reduce((sum, part) => sum + part.looked, 0);
  expect(looked).toBe(EVENTS);
  for (const part of parts) expect(part.looked).toBeLessThanOrEqual(rows);
});

test('by the values of a field: each value has one spelling, several in one event are none of them', async () => {
  const [part] = await scan(`${range()}&by=country`);
  expect(part?.lines.map(({ key }) => key).sort()).toEqual(['"DE"', '"FR"', '"IT"', '7', 'null']);
  const total = (name: string): number =>
    Object.values(sums(part === undefined ? [] : [part])[name] ?? {}).reduce((sum, count) => sum + count, 0);
  expect([total('DE'), total('FR'), total('IT'), total('7'), total('rest')]).toEqual([100, 50, 50, 100, 50]);
});

test('of hidden types in a line of their own, unless types are chosen', async () => {
  const [, , noise] = types;
  await owner.patch(`${path}/types/${noise?.typeId}`, { hidden: true });
  const counted = sums(await scan(`${range()}&filter=n>=0`));
  expect(Object.keys(counted).sort()).toEqual(['hidden', 'order', 'visit']);
  const chosen = sums(await scan(`${range()}&filter=n>=0&typeId=${noise?.typeId}`));
  expect(Object.keys(chosen)).toEqual(['noise']);
  expect(chosen.noise).toEqual(counted.hidden);
  await owner.patch(`${path}/types/${noise?.typeId}`, { hidden: false });
});

test('is answered to members over HTTP, and says what is wrong with a parameter', async () => {
  const reply = await owner.get(`${path}/scan?${range()}&filter=country:DE&filter=n<10`);
  expect(reply.status).toBe(200);
  expect(sums([reply.data as unknown as Part])).toEqual(
    sums(await scan(`${range()}&filter=country:DE&filter=n<10`)),
  );
  for (const [query, said] of [
    ['cursor=x', 'cursor'],
    ['width=2h', 'width'],
    ['filter=a..b:1', 'filter is wrong at column 3'],
    ['by=a..b', 'by must be the path'],
    [`q=${'x'.repeat(1_001)}`, 'q must have at most'],
  ] as const) {
    const refused = await owner.get(`${path}/scan?${range()}&${query}`);
    expect([refused.status, refused.code, refused.text.includes(said)], query).toEqual([
      400,
      'INVALID_REQUEST',
      true,
    ]);
  }
  const stranger = await newPerson(service);
  expect((await stranger.get(`${path}/scan?${range()}`)).status).toBe(404);
});

test('statistics of numbers are of the events that meet the conditions', async () => {
  const { data } = await owner.get(`${path}/numbers?${range()}&of=n&filter=country:DE&filter=n>=100`);
  const wanted = Array.from({ length: EVENTS }, (_, n) => n).filter(
    (n) => n >= 100 && [0, 2, 3].includes(n % COUNTRIES.length),
  );
  expect(data).toMatchObject({ counted: false });
  expect(data.overall).toMatchObject({
    count: wanted.length,
    sum: wanted.reduce((sum, n) => sum + n, 0),
    min: wanted[0],
    max: wanted.at(-1),
  });
});

test('statistics by a field, by type and of different values are read from the rows, bucket by bucket', async () => {
  interface Line {
    readonly name: string;
    readonly stats: { readonly count: number[]; readonly sum: number[]; readonly distinct: number[] };
    readonly overall: Readonly<Record<string, number>>;
  }
  const numbers = async (query: string) => {
    const { data, text } = await owner.get(`${path}/numbers?${range()}&of=n&${query}`);
    expect(text, query).toContain('"counted":false');
    expect(data.seconds).toBeGreaterThanOrEqual(0);
    return data as unknown as {
      lines: Line[];
      rest: Line | null;
      overall: Line['overall'];
      starts: number[];
    };
  };
  const add = (all: readonly number[]): number => all.reduce((sum, one) => sum + one, 0);
  const byName = async (by: string): Promise<Map<string, { count: number; sum: number }>> => {
    const rows = await service.sql.unsafe<{ name: string; count: number; sum: number }[]>(
      `SELECT ${by} AS name, count(*)::int AS count, sum((payload->>'n')::int)::int AS sum
         FROM events JOIN event_types AS types ON types.id = type_id WHERE events.app_id = ${ids.appId} AND (payload->>'n')::int >= 100 GROUP BY 1`,
    );
    return new Map(rows.map(({ name, ...one }) => [name, one]));
  };
  const condition = 'filter=n>=100';
  const ofTypes = await numbers(`${condition}&byType=true`);
  const types = await byName('types.name');
  expect(new Map(ofTypes.lines.map((line) => [line.name, line.overall.sum]))).toEqual(
    new Map([...types].map(([name, { sum }]) => [name, sum])),
  );
  const ofCountry = await numbers(`${condition}&by=country`);
  const german = ofCountry.lines.find(({ name }) => name === 'DE');
  expect(german?.overall).toMatchObject((await byName(`payload->>'country'`)).get('DE') ?? {});
  for (const { lines, rest, overall, starts } of [ofTypes, ofCountry]) {
    const all = rest === null ? lines : [...lines, rest];
    expect(add(all.map((line) => line.overall.count ?? 0))).toBe(overall.count);
    for (const line of all) {
      expect(line.stats.count).toHaveLength(starts.length);
      expect([add(line.stats.count), add(line.stats.sum)]).toEqual([line.overall.count, line.overall.sum]);
    }
  }
  // Two lines, and all that is left.
  const two = await numbers(`${condition}&by=country&lines=2`);
  expect(two.lines.map(({ name }) => name)).toEqual(ofCountry.lines.slice(0, 2).map(({ name }) => name));
  expect(
    add([...two.lines, ...(two.rest === null ? [] : [two.rest])].map((line) => line.overall.count ?? 0)),
  ).toBe(two.overall.count);
  const different = await numbers(`${condition}&by=country&stat=distinct`);
  // Each number is there once.
  for (const { name, overall } of different.lines)
    expect([name, overall.distinct]).toEqual([name, overall.count]);
});

test('a statistic that takes too long to read is refused with the declaration that would answer it', async () => {
  const { sql } = service;
  const query = NUMBERS_QUERY.parse(`${range()}&of=n&filter=country:DE`);
  if (query instanceof Rejection) throw new Error(query.details);
  // It has to end after the first rows, and there are more.
  const position = { at: start, id: '00000000-0000-0000-0000-000000000000' };
  const step = async () => ({ events: [], looked: 1, position, searchedBy: null });
  const events = { ...createReader(sql), search: () => ({ step, visit: async () => null }) };
  const place = { sql, events: events as unknown as EventReader, pass: async () => false }; // It visits nothing.
  const options = { now: Date.now, monotonic: () => performance.now() };
  const found = await readNumbersOf(options, place, { id: ids.appId, appId: 'app_1' }, query, {
    readsRows: true,
  });
  if (!(found instanceof Rejection)) throw new Error('It was read.');
  expect(found.details).toContain('cannot be read in the time that a chart may take');
  expect(found.field('declare')).toBe('--path n --kind number --by country');
});
