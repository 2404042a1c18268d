/** Which event types a read lists, and what leaving a type out does to events, charts, scans and exports alike. */
import { beforeAll, expect, test } from 'vitest';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { sharedService, type TestService } from '../support/service.ts';

const TYPES = [
  ['order placed', 3],
  ['order paid', 2],
  ['page viewed', 4],
] as const;
const ALL = 9;

let service: TestService;
let owner: Person;
let path: string;
let ids: Map<string, string>;

beforeAll(async () => {
  service = await sharedService();
  owner = await newPerson(service);
  const app = await newOwnApp(owner);
  ({ path } = app);
  const { loggingToken } = app;
  for (const [typeName, events] of TYPES)
    for (let n = 0; n < events; n += 1) {
      const body = JSON.stringify({ loggingToken, typeName, payload: { n, plan: 'pro' } });
      const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
      expect(status).toBe(201);
    }
  ids = new Map((await typesOf('')).map(({ typeId, name }) => [name, typeId]));
});

interface Type {
  readonly typeId: string;
  readonly name: string;
  readonly count: number;
}
const typesOf = async (query: string): Promise<Type[]> =>
  ((await owner.get(`${path}/types${query}`)).data as { types: Type[] }).types;
const names = async (query: string): Promise<string[]> => (await typesOf(query)).map(({ name }) => name);
const idOf = (name: string): string => ids.get(name) ?? '';

test('types are found by name and by id, the busiest first where that is asked for', async () => {
  expect(await names('')).toEqual(['order placed', 'order paid', 'page viewed']);
  expect(await names('?sort=events&limit=2')).toEqual(['page viewed', 'order placed']);
  expect(await names('?search=ORDER&sort=events')).toEqual(['order placed', 'order paid']);
  expect(await names(`?typeId=${idOf('page viewed')}&typeId=typ_nothing`)).toEqual(['page viewed']);
  expect((await owner.get(`${path}/types?limit=0`)).status).toBe(400);
  expect((await owner.get(`${path}/types?sort=name`)).status).toBe(400);
});

test('a type that is left out is in no list, chart, scan, value or export', async () => {
  const except = `exceptTypeId=${idOf('page viewed')}`;
  const left = ALL - 4;
  const listed = await owner.get(`${path}/events?${except}&total=exact`);
  expect(listed.data).toMatchObject({ pagination: { total: left } });
  expect((listed.data as { events: unknown[] }).events).toHaveLength(left);
  for (const query of [except, `${except}&filter=n:*`, `${except}&q=pro`])
    expect(((await owner.get(`${path}/events?${query}`)).data as { events: unknown[] }).events).toHaveLength(
      left,
    );
  const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
  const chart = (await owner.get(`${path}/series?${except}`)).data as {
    all: number[];
    lines: { name: string }[];
    hidden: unknown;
  };
  expect([sum(chart.all), chart.lines.map(({ name }) => name), chart.hidden]).toEqual([
    left,
    ['order placed', 'order paid'],
    null,
  ]);
  const scan = (await owner.get(`${path}/scan?${except}&q=pro`)).data as { lines: { counts: number[] }[] };
  expect(sum(scan.lines.map(({ counts }) => sum(counts)))).toBe(left);
  const numbers = (await owner.get(`${path}/numbers?${except}&of=n`)).data as { overall: { count: number } };
  expect(numbers.overall.count).toBe(left);
  const values = (await owner.get(`${path}/fields/values?${except}&path=plan`)).data;
  expect(values).toMatchObject({ values: [{ value: 'pro', events: left }], otherEvents: 0 });
  const file = await service.request({
    path: `${path}/export?${except}`,
    headers: { Cookie: owner.cookie },
  });
  expect(file.body.match(/"typeId"/g)).toHaveLength(left);
});

test('a hidden type stays a line of its own beside one that is left out', async () => {
  await owner.patch(`${path}/types/${idOf('order paid')}`, { hidden: true });
  try {
    const chart = async (query: string): Promise<unknown> => {
      const { lines, hidden } = (await owner.get(`${path}/series?${query}`)).data as {
        lines: { name: string }[];
        hidden: { typeIds: string[] } | null;
      };
      return [lines.map(({ name }) => name), hidden?.typeIds ?? null];
    };
    const hidden = [idOf('order paid')];
    expect(await chart(`exceptTypeId=${idOf('page viewed')}`)).toEqual([['order placed'], hidden]);
    expect(await chart(`exceptTypeId=${idOf('order paid')}`)).toEqual([
      ['page viewed', 'order placed'],
      null,
    ]);
  } finally {
    await owner.patch(`${path}/types/${idOf('order paid')}`, { hidden: false });
  }
});

test('what is left out must exist, and be left out of all types', async () => {
  const refused = async (query: string): Promise<unknown> => {
    const { status, body } = await service.request({
      path: `${path}/${query}`,
      headers: { Cookie: owner.cookie },
    });
    return [status, (JSON.parse(body) as { code: string }).code];
  };
  for (const read of ['events', 'series', 'scan', 'numbers']) {
    const query = `${read}?of=n&`.replace(/(events|series|scan)\?of=n&/, '$1?');
    expect(await refused(`${query}exceptTypeId=typ_nothing`), read).toEqual([404, 'EVENT_TYPE_NOT_FOUND']);
    expect(
      await refused(`${query}exceptTypeId=${idOf('order paid')}&typeId=${idOf('page viewed')}`),
      read,
    ).toEqual([400, 'INVALID_REQUEST']);
  }
});
