/** POST /v1/events: what is stored of a batch, what each of its events is answered, and what the counts make of it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createTokenText } from '../../src/base/token-text.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { readEventPage } from '../../src/storage/read/event-page.ts';
import { refused } from '../http/answers.ts';
import { answered, type BatchResult, postBatch, storedIds } from '../support/batch.ts';
import { availableEngines, type TestEngine } from '../support/database.ts';
import { sized } from '../support/fuzz.ts';
import {
  sharedService,
  startTestService,
  TestClock,
  type TestService,
  until,
  withTestService,
} from '../support/service.ts';
import { upkeepOf } from '../support/upkeep.ts';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 10, 21, 13, 0, 0, 500);

const codes = (results: readonly BatchResult[]): (string | undefined)[] => results.map(({ code }) => code);

async function isSettled(engine: TestEngine, sql: Sql): Promise<boolean> {
  const upkeep = upkeepOf(engine);
  await upkeep.settle(sql);
  return (await upkeep.pending(sql)) === 0;
}

describe.each(availableEngines())('on %s a batch', (engine) => {
  let service: TestService;
  const clock = new TestClock(NOW);
  beforeAll(async () => {
    service = await startTestService({ engine, clock, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterAll(() => service.stop());

  test('is stored as it was sent: each event under its app, type and time, with the text of its payload', async () => {
    const { typeId } = service.type;
    const body = `{"note": 1, "events": [
      {"typeId":"${typeId}","payload": {"b": 1e400, "a": -0, "b": "\\u0000" }},
      {"typeName":"made by a batch","payload":{}, "createdAt": "2026-03-01T02:03:04.567+01:00", "role": "owner"},
      {"payload":{"__proto__": {"x":1}},"typeName":"ignored","typeId":"${typeId}"} ]}`;
    const { results } = answered(await postBatch(service, body));
    const rows = await service.sql`
      SELECT events.id::text AS "eventId", apps.public_id AS app, event_types.public_id AS "typeId",
             event_types.name, events.created_at AS "createdAt", payload::text AS payload
        FROM events JOIN apps ON apps.id = events.app_id JOIN event_types ON event_types.id = type_id`;
    const stored = results.map(({ eventId }) => rows.find((row) => row.eventId === eventId));
    const past = new Date('2026-03-01T01:03:04.567Z');
    expect(stored).toEqual([
      {
        eventId: results[0]?.eventId,
        app: service.app.appId,
        typeId,
        name: 'test type',
        createdAt: new Date(NOW),
        payload: '{"b": 1e400, "a": -0, "b": "\\u0000" }',
      },
      {
        eventId: results[1]?.eventId,
        app: service.app.appId,
        typeId: results[1]?.typeId,
        name: 'made by a batch',
        createdAt: past,
        payload: '{}',
      },
      {
        eventId: results[2]?.eventId,
        app: service.app.appId,
        typeId,
        name: 'test type',
        createdAt: new Date(NOW),
        payload: '{"__proto__": {"x":1}}',
      },
    ]);
    expect(results.map(({ timestamp }) => timestamp)).toEqual([
      new Date(NOW).toISOString(),
      past.toISOString(),
      new Date(NOW).toISOString(),
    ]);
  });

  test('answers for each event in its place: what is wrong with one harms no other', async () => {
    const good = { typeId: service.type.typeId, payload: {} };
    const other = await service.newType(await service.newApp(), 'of another app');
    const before = await storedIds(service);
    const { results } = answered(
      await postBatch(service, [
        good,
        { ...good, payload: [] },
        { ...good, typeId: other.typeId },
        { ...good, typeId: '\0' },
        good,
        { ...good, createdAt: new Date(NOW + 1).toISOString() },
        { ...good, createdAt: new Date(NOW).toISOString() },
        { ...good, createdAt: '1969-12-31T23:59:59Z' },
        { payload: {} },
        7,
      ]),
    );
    expect(codes(results)).toEqual([
      undefined,
      'INVALID_REQUEST',
      'EVENT_TYPE_NOT_FOUND',
      'EVENT_TYPE_NOT_FOUND',
      undefined,
      'EVENT_IN_FUTURE',
      undefined,
      'INVALID_REQUEST',
      'INVALID_REQUEST',
      'INVALID_REQUEST',
    ]);
    expect(results[5]).toEqual({
      error: 'Invalid request body',
      details: 'The field "createdAt" is in the future: it is 1 ms ahead of the clock of the service.',
      code: 'EVENT_IN_FUTURE',
      serverTime: new Date(NOW).toISOString(),
      aheadMs: 1,
      param: 'createdAt',
    });
    const added = (await storedIds(service)).filter((id) => !before.includes(id));
    expect(added.sort()).toEqual(results.flatMap(({ eventId }) => eventId ?? []).sort());
  });

  test('of the first moments of 1970, which producers send for none, is stored beside others', async () => {
    const { typeId } = service.type;
    const times = [0, 0, 1].map((time) => new Date(time).toISOString());
    const events = times.map((createdAt) => ({ typeId, payload: {}, createdAt }));
    const { stored, results } = answered(await postBatch(service, events));
    expect([stored, results.map(({ timestamp }) => timestamp)]).toEqual([3, times]);
    const added = await storedIds(service);
    expect(results.every(({ eventId }) => eventId !== undefined && added.includes(eventId))).toBe(true);
  });

  test('of which nothing can be stored is answered with 207, and why', async () => {
    const { stored, results } = answered(await postBatch(service, [{ typeId: 'unknown', payload: {} }]));
    expect([stored, codes(results)]).toEqual([0, ['EVENT_TYPE_NOT_FOUND']]);
  });

  test('that takes several transactions is stored whole, counted exactly, with ids in the order of time', async () => {
    const own = await service.newApp();
    // More events, and more days, than one transaction writes.
    const [count, days] = [sized(5_000, 10_000), sized(50, 400)];
    const events = Array.from({ length: count }, (_, n) => ({
      typeName: `type ${n % 7}`,
      payload: { n },
      createdAt: new Date(NOW - (((n * 7_919) % count) / count) * days * DAY_MS).toISOString(),
    }));
    const { stored, results } = answered(
      await postBatch(service, events, { Authorization: `Bearer ${own.loggingToken}` }),
    );
    expect(stored).toBe(count);
    expect(results.map(({ timestamp }) => timestamp)).toEqual(events.map(({ createdAt }) => createdAt));
    const [app] = await service.sql<[{ id: number }]>`SELECT id FROM apps WHERE public_id = ${own.appId}`;
    const [rows] = await service.sql<[{ rows: number; ids: number; days: number; ordered: boolean }]>`
      SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids,
             count(DISTINCT date_trunc('day', created_at))::int AS days,
             bool_and(substr(replace(id::text, '-', ''), 1, 12)
                      = lpad(to_hex((extract(epoch FROM created_at) * 1000)::bigint), 12, '0')) AS ordered
        FROM events WHERE app_id = ${app.id}`;
    expect(rows).toEqual({ rows: count, ids: count, days: expect.any(Number), ordered: true });
    expect(rows.days).toBeGreaterThanOrEqual(days);
    // Once as they were written, and once more after the upkeep has settled them.
    const from = NOW - 99.9 * DAY_MS;
    const within = events.filter(({ createdAt }) => Date.parse(createdAt) >= from).length;
    const total = async (bounds: { from: number | null }): Promise<number> => {
      const scope = { appId: app.id, typeIds: null, until: null, ...bounds };
      return (
        await readEventPage(service.sql, { scope, offset: 2_500, limit: 1, order: 'asc', maxBytes: 1e6 })
      ).total;
    };
    for (const settled of [false, true]) {
      // The service settles too, and each may find the other half-way.
      if (settled) await until(() => isSettled(engine, service.sql), 'everything is settled', 60_000);
      expect([settled, await total({ from: null }), await total({ from })]).toEqual([settled, count, within]);
    }
    for (const relation of ['events_per_minute', 'events_per_hour', 'events_per_day', 'events_per_month']) {
      const [counted] = await service.sql<[{ all: number; types: number }]>`
        SELECT coalesce(sum(count) FILTER (WHERE type_id = 0), 0)::int AS all,
               coalesce(sum(count) FILTER (WHERE type_id > 0), 0)::int AS types
          FROM ${service.sql(relation)} WHERE app_id = ${app.id}`;
      expect({ relation, ...counted }).toEqual({ relation, all: count, types: count });
    }
  }, 120_000);

  test('reads back in order, those of one millisecond as they were sent', async () => {
    const own = await service.newApp();
    const createdAt = '2026-05-05T05:05:05.005Z';
    const { results } = answered(
      await postBatch(
        service,
        Array.from({ length: 50 }, (_, n) => ({ typeName: 'same', payload: { n }, createdAt })),
        { Authorization: `Bearer ${own.loggingToken}` },
      ),
    );
    const ids = await service.sql`
      SELECT events.id::text AS id FROM events JOIN event_types ON event_types.id = type_id
       WHERE name = 'same' ORDER BY events.created_at, events.id`;
    expect(ids.map(({ id }) => id)).toEqual(results.map(({ eventId }) => eventId));
  });

  test('is stored but for the event that the database refuses', async () => {
    await withTestService({ engine }, async (own) => {
      await own.sql.unsafe(
        `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
      );
      const events = Array.from({ length: 300 }, (_, n) => ({
        typeName: 'a',
        payload: n === 123 ? { poison: 1 } : { n },
      }));
      const { stored, results } = answered(await postBatch(own, events));
      expect([stored, results[123]?.code]).toEqual([299, 'INVALID_REQUEST']);
      expect(await storedIds(own)).toEqual(results.flatMap(({ eventId }) => eventId ?? []));
    });
  });
});

test('events that retention has removed, or is to remove, are refused one by one', async () => {
  const clock = new TestClock(NOW);
  await withTestService({ clock, config: { RETENTION_DAYS: 10 } }, async (service) => {
    const at = (time: number) => ({ typeName: 'a', payload: {}, createdAt: new Date(time).toISOString() });
    const boundary = Date.UTC(2026, 10, 11);
    const { results } = answered(await postBatch(service, [at(boundary), at(boundary - 1)]));
    expect(codes(results)).toEqual([undefined, 'INVALID_REQUEST']);
    expect(results[1]?.details).toContain('before 2026-11-11, the retention boundary');
    // The boundary of the database counts too: another process may keep less.
    await service.sql`UPDATE retention SET readable_from = ${new Date(boundary + DAY_MS)}`;
    clock.advance(31_000);
    expect(codes(answered(await postBatch(service, [at(boundary), at(NOW)])).results)).toEqual([
      'INVALID_REQUEST',
      undefined,
    ]);
  });
});

test('an app that has as many types as it may have: a batch makes those that fit, each other event is refused', async () => {
  await withTestService({ database: 'shared', config: { MAX_EVENT_TYPES_PER_APP: 5 } }, async (service) => {
    const events = Array.from({ length: 20 }, (_, n) => ({ typeName: `name ${n % 10}`, payload: { n } }));
    const { stored, results } = answered(await postBatch(service, events));
    // One of the five is the type that the app had before.
    expect(stored).toBe(8);
    expect(new Set(codes(results))).toEqual(new Set([undefined, 'TOO_MANY_EVENT_TYPES']));
  });
});

test('a batch on more than 1,000 days is refused whole', async () => {
  const service = await sharedService();
  const events = Array.from({ length: 1_001 }, (_, n) => ({
    typeName: 'a',
    payload: {},
    createdAt: new Date(Date.now() - n * DAY_MS).toISOString(),
  }));
  const { details } = refused(
    await postBatch(service, events),
    400,
    'INVALID_REQUEST',
    'Invalid request body',
  );
  expect(details).toContain('1000 days');
  expect(await storedIds(service)).toEqual([]);
});

describe('a token', () => {
  test.each([
    ['is missing', () => null],
    ['is of another scheme', (token: string) => `Basic ${token}`],
    ['is a resource token', () => `Bearer ${createTokenText('tdr')}`],
    ['is unknown', () => `Bearer ${createTokenText('tdl')}`],
    ['is mistyped', (token: string) => `Bearer ${token.slice(0, -1)}`],
  ])('that %s is answered with 401, and nothing is stored', async (_, authorization) => {
    const service = await sharedService();
    const { loggingToken } = service.app;
    const body = JSON.stringify({ loggingToken, events: [{ typeName: 'a', payload: {}, loggingToken }] });
    const response = await service.request({
      method: 'POST',
      path: `/v1/events?loggingToken=${loggingToken}`,
      body,
      headers: { Authorization: authorization(loggingToken) },
    });
    refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
    expect(response.headers['www-authenticate']).toBe('Bearer');
    expect(await storedIds(service)).toEqual([]);
  });

  test('that was rotated and whose grace is over is answered with 401', async () => {
    const service = await sharedService();
    await service.sql`
        UPDATE logging_tokens SET expires_at = now() - interval '1 second'
         WHERE app_id = (SELECT id FROM apps WHERE public_id = ${service.app.appId})`;
    const response = await postBatch(service, [{ typeName: 'a', payload: {} }]);
    expect(refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token').details).toContain(
      'rotated',
    );
  });
});

test('a batch is one request for the limit, which it shares with single events', async () => {
  await withTestService({ database: 'shared', config: { CREATE_LIMIT_PER_MINUTE: 3 } }, async (service) => {
    const events = Array.from({ length: 10 }, () => ({ typeName: 'a', payload: {} }));
    expect((await postBatch(service, events)).headers['ratelimit-remaining']).toBe('2');
    expect((await service.post()).status).toBe(201);
    expect((await postBatch(service, '{')).status).toBe(400); // Counted: its token was good.
    const response = await postBatch(service, events);
    refused(response, 429, 'RATE_LIMIT_EXCEEDED', 'Rate limit exceeded');
    expect(Number(response.headers['retry-after'])).toBeGreaterThan(50);
  });
});
