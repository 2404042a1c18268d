/** The columns of the dashboard's chart, against events that are counted by hand. */
import { beforeAll, expect, test } from 'vitest';
import type { Series } from '../../src/api-types/answers.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { markText } from '../../src/read/charts/series-columns.ts';
import { postBatch } from '../support/batch.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { sharedService, type TestService } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const MINUTE_MS = 60_000;
const NAMES = ['visit', 'order', 'noise'] as const;
/** Minutes with events, of which the chart shows the last five, and the five before them to compare with. */
const MINUTES = 12;

let service: TestService;
let owner: Person;
let app: Awaited<ReturnType<typeof newOwnApp>>;
let start: number;
let typeIds: string[];

/** Events of a type in a minute. */
const eventsOf = (type: number, minute: number): number => 1 + ((3 * minute + 5 * type) % 7) * (3 - type);
const column = (type: number, from: number, until: number): number[] =>
  Array.from({ length: until - from }, (_, index) => eventsOf(type, from + index));
const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);

beforeAll(async () => {
  service = await sharedService();
  const { sql, database } = service;
  owner = await newPerson(service);
  app = await newOwnApp(owner);
  for (const name of NAMES) await service.newType(app, name);
  const types = await sql<{ id: number; typeId: string; appId: number }[]>`
    SELECT event_types.id, event_types.public_id AS "typeId", app_id AS "appId"
      FROM event_types JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId} ORDER BY id`;
  typeIds = types.map(({ typeId }) => typeId);
  start = Math.floor(Date.now() / 86_400_000) * 86_400_000;
  const rows = types.flatMap(({ id, appId }, type) =>
    Array.from({ length: MINUTES }, (_, minute) => minute).flatMap((minute) =>
      Array.from({ length: eventsOf(type, minute) }, (_, index) => {
        const at = start + minute * MINUTE_MS + index;
        const time = at
          .toString(16)
          .padStart(12, '0')
          .replace(/^(.{8})/, '$1-');
        const last = String(100 * type + minute).padStart(12, '0');
        return { id: `${time}-7000-8000-${last}`, at, payload: '{}', appId, typeId: id };
      }),
    ),
  );
  await storeRows(sql, database.engine, rows);
});

async function chart(more: Readonly<Record<string, string>>): Promise<Series> {
  const at = (minute: number): string => new Date(start + minute * MINUTE_MS).toISOString();
  const query = new URLSearchParams({
    ...{ from: at(7), to: at(12), compareFrom: at(2), compareTo: at(7) },
    ...{ timezone: 'UTC', buckets: '30', ...more },
  });
  return (await owner.get(`/api/apps/${app.appId}/series?${query}`)).data as unknown as Series; // As the route declares it.
}

test('lines by type, the most events first, with what is before them, beside an earlier interval, and others together', async () => {
  const { lines, all, other, before, compared, by, hidden } = await chart({ lines: '2' });
  const totals = NAMES.map((name, type) => ({ name, type, total: sum(column(type, 7, 12)) }));
  totals.sort((a, b) => b.total - a.total);
  const [first, second, third] = totals;
  if (first === undefined || second === undefined || third === undefined) throw new Error('three types');
  expect(lines.map(({ name, counts, total, key }) => ({ name, counts, total, key }))).toEqual(
    [first, second].map(({ name, type, total }) => ({
      ...{ name, total, key: typeIds[type], counts: column(type, 7, 12) },
    })),
  );
  const together = (from: number, until: number): number[] =>
    column(0, from, until).map((count, index) =>
      sum([count, column(1, from, until)[index] ?? 0, column(2, from, until)[index] ?? 0]),
    );
  expect(all).toEqual(together(7, 12));
  expect(other).toEqual(column(third.type, 7, 12));
  expect(before.all).toBe(sum(together(0, 7)));
  expect(before.byKey[first.type === 0 ? (typeIds[0] ?? '') : '']).toBe(sum(column(0, 0, 7)));
  expect(compared?.all).toEqual(together(2, 7));
  expect(compared?.byKey[typeIds[second.type] ?? '']).toEqual(column(second.type, 2, 7));
  expect([by, hidden]).toEqual([null, null]);
});

test('chosen types alone', async () => {
  const { lines, all, other } = await chart({ typeId: typeIds[1] ?? '' });
  expect(lines.map(({ name }) => name)).toEqual(['order']);
  expect([all, other]).toEqual([column(1, 7, 12), null]);
});

test('hidden types as one line, in no other number', async () => {
  await owner.patch(`/api/apps/${app.appId}/types/${typeIds[2]}`, { hidden: true });
  const { lines, all, hidden } = await chart({});
  expect(lines.map(({ name }) => name).sort()).toEqual(['order', 'visit']);
  expect(all).toEqual(column(0, 7, 12).map((count, index) => count + (column(1, 7, 12)[index] ?? 0)));
  expect(hidden).toEqual({
    typeIds: [typeIds[2]],
    ...{ counts: column(2, 7, 12), before: sum(column(2, 0, 7)), compared: column(2, 2, 7) },
  });
});

test('marks of the events of a type that is shown as annotation, bounded by the chart, and none without one', async () => {
  const type = `/api/apps/${app.appId}/types/${typeIds[1]}`;
  expect(await chart({})).not.toHaveProperty('marks');
  expect((await owner.patch(type, { annotation: true })).data).toMatchObject({ annotation: true });
  // Whatever the chart is of.
  const { marks, lines } = await chart({ typeId: typeIds[0] ?? '' });
  expect(lines.map(({ name }) => name)).toEqual(['visit']);
  expect(marks).toHaveLength(sum(column(1, 7, 12)));
  const [newest] = marks ?? [];
  expect(newest).toEqual({
    eventId: expect.stringMatching(/^[\da-f-]{36}$/),
    at: new Date(start + 11 * MINUTE_MS + eventsOf(1, 11) - 1).toISOString(),
    text: 'order',
  });
  const event = (await owner.get(`/api/apps/${app.appId}/events/${newest?.eventId}`)).data;
  expect(event).toMatchObject({ typeId: typeIds[1], createdAt: newest?.at });
  const { types } = (await owner.get(`/api/apps/${app.appId}/types`)).data as {
    types: { typeId: string; annotation: boolean }[];
  };
  expect(types.filter(({ annotation }) => annotation).map(({ typeId }) => typeId)).toEqual([typeIds[1]]);
  await owner.patch(type, { annotation: false });
  expect(await chart({})).not.toHaveProperty('marks');
});

test('at most ten types are shown as annotations', async () => {
  const more: string[] = [];
  for (let n = 0; n < 11; n += 1) more.push((await service.newType(app, `deploy ${n}`)).typeId);
  const statuses: (readonly [number, string])[] = [];
  for (const typeId of more) {
    const { status, code } = await owner.patch(`/api/apps/${app.appId}/types/${typeId}`, {
      annotation: true,
    });
    statuses.push([status, code]);
  }
  expect(statuses.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => [200, '']));
  expect(statuses[10]).toEqual([400, 'TOO_MANY_ANNOTATING_TYPES']);
});

test('a mark says what the payload says first, and is short', () => {
  const said = (payload: unknown): string => markText('deploy', JSON.stringify(payload));
  expect(said({ version: '2.4', text: 'Release 2.4' })).toBe('deploy: Release 2.4');
  expect(said({ version: '2.4', text: ' ' })).toBe('deploy: 2.4');
  expect(said({ sha: 'ab' })).toBe('deploy: {"sha":"ab"}');
  expect([said({}), said(null), said([1])]).toEqual(['deploy', 'deploy: null', 'deploy: [1]']);
  expect(said({ title: 'x'.repeat(500) })).toBe(`deploy: ${'x'.repeat(120)}…`);
});

test('types that had events in the compared interval and have none now are lines, with all of their events there', async () => {
  const [one] = await service.sql<
    { appId: number }[]
  >`SELECT id AS "appId" FROM apps WHERE public_id = ${app.appId}`;
  const silent = await createEventType(service.sql, { appId: app.appId, name: 'silent', maxTypes: 100 });
  const [type] = await service.sql<
    { id: number }[]
  >`SELECT id FROM event_types WHERE public_id = ${silent.typeId}`;
  const at = start + 3 * MINUTE_MS;
  const time = at
    .toString(16)
    .padStart(12, '0')
    .replace(/^(.{8})/, '$1-');
  const rows = Array.from({ length: 40 }, (_, index) => ({
    ...{ id: `${time}-7000-8000-${String(9_000 + index).padStart(12, '0')}`, at, payload: '{}' },
    ...{ appId: one?.appId ?? 0, typeId: type?.id ?? 0 },
  }));
  await storeRows(service.sql, service.database.engine, rows);
  for (const lines of ['1', '12']) {
    const { lines: shown, compared, before } = await chart({ lines });
    expect(shown.at(-1)).toMatchObject({ key: silent.typeId, name: 'silent', total: 0 });
    // Of the two others that are shown at all.
    expect(shown.length).toBe(lines === '1' ? 2 : 3);
    expect(sum(compared?.byKey[silent.typeId] ?? [])).toBe(40);
    expect(before.byKey[silent.typeId]).toBe(40);
  }
  await owner.patch(`/api/apps/${app.appId}/types/${silent.typeId}`, { hidden: true });
  expect((await chart({})).lines.map(({ name }) => name)).not.toContain('silent');
});

test('what all events of a part have, and none of the rest, explains it most', async () => {
  const other = await newOwnApp(owner);
  const events = Array.from({ length: 120 }, (_, n) => ({
    typeName: n < 90 ? 'usual' : 'only here',
    payload: {},
    createdAt: `2026-01-05T${n < 90 ? '08' : '09'}:${String(n % 60).padStart(2, '0')}:00Z`,
  }));
  const stored = await postBatch(service, events, { Authorization: `Bearer ${other.loggingToken}` });
  expect(stored.status).toBe(200);
  const query = 'from=2026-01-05&to=2026-01-06&partFrom=2026-01-05T09:00&partTo=2026-01-05T10:00';
  const { data } = await owner.get(`/api/apps/${other.appId}/explanation?${query}`);
  expect(data.differences).toMatchObject([
    { path: null, name: 'only here', partShare: 1, restShare: 0, inPart: 30, inRest: 0 },
    { path: null, name: 'usual', partShare: 0, restShare: 1, inPart: 0, inRest: 90 },
  ]);
});
