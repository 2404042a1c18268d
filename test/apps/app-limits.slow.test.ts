/** Limits of single apps: set, kept by every process soon after, and refused beyond the operator's bounds. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Outcome, tidemark } from '../support/command-line.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import {
  sharedService,
  startTestService,
  type TestApp,
  TestClock,
  type TestService,
  type TestServiceOptions,
  until,
} from '../support/service.ts';

const NOON = Date.parse('2026-11-20T12:00:30Z');
const NONE = { createPerMinute: null, bytesPerDay: null, types: null };

let folder: string;
const open: TestService[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-limits-test-'));
});
afterEach(async () => {
  for (const service of open.splice(0).reverse()) await service.stop();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function start(options: TestServiceOptions = {}): Promise<TestService> {
  const service = await startTestService(options);
  open.push(service);
  return service;
}

const run = (
  service: TestService,
  args: readonly string[],
  config: Record<string, string> = {},
): Promise<Outcome> =>
  tidemark(['app', 'limit', ...args], { ...config, DATABASE_URL: service.database.url, DATA_DIR: folder });

async function limit(
  service: TestService,
  args: readonly string[],
  app: TestApp = service.app,
): Promise<object> {
  const { code, stdout, stderr } = await run(service, ['--app', app.appId, ...args, '--json']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout);
}

const post = (service: TestService, payload: object = {}): Promise<HttpResponse> => service.post({ payload });
const limitOf = async (service: TestService): Promise<string | undefined> =>
  (await post(service)).headers['ratelimit-limit'] as string | undefined;

async function statusesOf(service: TestService, requests: number): Promise<Record<number, number>> {
  const counts: Record<number, number> = {};
  for (let sent = 0; sent < requests; sent += 1) {
    const { status } = await post(service);
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

describe('limits of an app', () => {
  test('are the defaults until one is set, and again after --default', async () => {
    const service = await sharedService();
    const highest = { createPerMinute: 100_000, bytesPerDay: null, types: 10_000 };
    const defaults = {
      appId: service.app.appId,
      createPerMinute: 1_000,
      bytesPerDay: null,
      types: 10_000,
      highest,
    };
    expect(await limit(service, [])).toEqual({ ...defaults, own: NONE });
    const set = { createPerMinute: 5_000, bytesPerDay: 1_000_000 };
    expect(await limit(service, ['--create-per-minute', '5000', '--bytes-per-day', '1000000'])).toEqual({
      ...defaults,
      ...set,
      own: { ...set, types: null },
    });
    expect(await limit(service, ['--types', '3'])).toMatchObject({ ...set, types: 3 });
    expect(await limit(service, ['--default'])).toEqual({ ...defaults, own: NONE });
    const audit = await service.sql`
      SELECT details FROM audit_entries JOIN apps ON apps.id = app_id
       WHERE action = 'app.limit' AND public_id = ${service.app.appId} ORDER BY audit_entries.id`;
    expect(audit.map(({ details }) => details)).toEqual([
      { ...set, types: null },
      { ...set, types: 3 },
      NONE,
    ]);
  });

  test('hold below and above the default, in another process too, and leave other apps alone', async () => {
    const clock = new TestClock(NOON);
    const service = await start({ clock, config: { CREATE_LIMIT_PER_MINUTE: 10 } });
    const other = await start({ clock, config: { CREATE_LIMIT_PER_MINUTE: 10 }, database: service.database });
    expect(await limitOf(service)).toBe('10');
    await limit(service, ['--create-per-minute', '3']);
    await until(async () => (await limitOf(service)) === '3', 'the first process keeps the limit');
    clock.advance(60_000);
    expect(await statusesOf(service, 5)).toEqual({ 201: 3, 429: 2 });
    const refused = await post(service);
    expect(JSON.parse(refused.body)).toMatchObject({
      code: 'RATE_LIMIT_EXCEEDED',
      details: 'At most 3 requests per minute and app are accepted.',
    });
    // The other service has an app of its own, whose limit stays.
    expect(await limitOf(other)).toBe('10');
    await limit(service, ['--create-per-minute', '3'], other.app);
    await until(async () => (await limitOf(other)) === '3', 'the second process keeps the limit');

    await limit(service, ['--create-per-minute', '25']);
    await until(async () => (await limitOf(service)) === '25', 'the limit is raised');
    clock.advance(60_000);
    expect(await statusesOf(service, 27)).toEqual({ 201: 25, 429: 2 });
    // Lowered while the window is full: the answer says when a request can be accepted, which is not when the oldest leaves.
    clock.advance(30_000);
    await limit(service, ['--create-per-minute', '2']);
    await until(async () => (await post(service)).headers['ratelimit-limit'] === '2', 'the limit is lowered');
    expect((await post(service)).headers).toMatchObject({ 'retry-after': '30', 'ratelimit-remaining': '0' });
    await limit(service, ['--default']);
    await until(async () => (await post(service)).headers['ratelimit-limit'] === '10', 'the default is back');
  });

  test('of bytes per day refuse what does not fit, whole, on every way in, until the next day, across a restart', async () => {
    const clock = new TestClock(NOON);
    const service = await start({ clock });
    await limit(service, ['--bytes-per-day', '100']);
    const { loggingToken } = service.app;
    const batch = (
      path: string,
      events: readonly object[],
      type = 'application/json',
    ): Promise<HttpResponse> =>
      service.request({
        method: 'POST',
        path,
        headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': type },
        body:
          type === 'application/json'
            ? JSON.stringify(events)
            : events.map((one) => JSON.stringify(one)).join('\n'),
      });
    // 40 bytes: two fit.
    const payload = { text: 'x'.repeat(29) };
    expect(JSON.stringify(payload)).toHaveLength(40);
    expect((await post(service, payload)).status).toBe(201);
    expect((await batch('/v1/events', [{ typeName: 'a', payload }])).status).toBe(200);
    const refused = await batch('/v1/events', [
      { typeName: 'a', payload },
      { typeName: 'a', payload: {} },
    ]);
    expect(refused.status).toBe(429);
    expect(JSON.parse(refused.body)).toMatchObject({
      code: 'RATE_LIMIT_EXCEEDED',
      details: 'At most 100 bytes of payloads per day (UTC) and app are accepted.',
    });
    expect(Number(refused.headers['retry-after'])).toBe(12 * 3_600 - 30);
    expect((await batch('/v1/events', [{ typeName: 'a', payload }], 'application/x-ndjson')).status).toBe(
      429,
    );
    expect((await post(service, payload)).status).toBe(429);
    // A request that is repeated brings no more bytes: it is answered as it was.
    const request = {
      method: 'POST',
      path: '/public/create_event',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': 'one' },
      body: JSON.stringify({ loggingToken, typeId: service.type.typeId, payload: { n: 1 } }),
    } as const;
    for (const replayed of [undefined, 'true', 'true', 'true', 'true', 'true']) {
      const { status, headers } = await service.request(request);
      expect({ status, replayed: headers['idempotent-replayed'] }).toEqual({ status: 201, replayed });
    }
    // What fits is accepted still, and a restart forgets nothing.
    expect((await post(service, {})).status).toBe(201);
    open.pop();
    await service.stop({ keepDatabase: true });
    const { database, app, type } = service;
    const again = await start({ clock, database });
    const postAgain = (payload: object): Promise<HttpResponse> =>
      again.post({ loggingToken: app.loggingToken, typeId: type.typeId, payload });
    expect((await postAgain(payload)).status).toBe(429);
    expect((await postAgain({})).status).toBe(201);
    clock.advance(12 * 3_600_000);
    expect((await postAgain(payload)).status).toBe(201);
    open.pop();
    await again.stop();
    await database.drop();
  });

  test('of types name the limit, in events and on the command line', async () => {
    const service = await sharedService();
    await limit(service, ['--types', '2']);
    const named = (typeName: string): Promise<HttpResponse> => service.post({ typeId: undefined, typeName });
    expect((await named('second')).status).toBe(201);
    expect(JSON.parse((await named('third')).body)).toMatchObject({
      code: 'TOO_MANY_EVENT_TYPES',
      details: 'An app may have at most 2 event types.',
    });
    const made = await tidemark(['type', 'create', '--app', service.app.appId, '--name', 'third'], {
      DATABASE_URL: service.database.url,
      DATA_DIR: folder,
    });
    expect(made.stderr).toContain('the app has as many event types as it may have, 2 (its own limit)');
    await limit(service, ['--types', '3']);
    await until(async () => (await named('third')).status === 201, 'the raised limit holds');
  });

  test('are refused with their bounds where they are beyond them, and nothing changes', async () => {
    const service = await sharedService();
    for (const [args, message] of [
      [
        ['--create-per-minute', '100001'],
        'requests per minute must be a whole number from 1 to 100000 (MAX_APP_CREATE_PER_MINUTE), not 100001',
      ],
      [['--create-per-minute', '0'], 'from 1 to 100000 (MAX_APP_CREATE_PER_MINUTE), not 0'],
      [
        ['--bytes-per-day', '2001'],
        'bytes per day must be a whole number from 1 to 2000 (MAX_APP_BYTES_PER_DAY), not 2001',
      ],
      [
        ['--types', '10001'],
        'event types must be a whole number from 1 to 10000 (MAX_EVENT_TYPES_PER_APP), not 10001',
      ],
      [['--types', 'many'], 'Write a whole number of at least 1.'],
      [['--types', '5', '--default'], '--default removes all limits: name no other one with it'],
    ] as const) {
      const { code, stdout, stderr } = await run(service, ['--app', service.app.appId, ...args, '--json'], {
        MAX_APP_BYTES_PER_DAY: '2000',
      });
      expect([args, code === 0, stdout]).toEqual([args, false, '']);
      expect(stderr).toContain(message);
    }
    expect(await limit(service, [])).toMatchObject({ own: NONE });
  });

  test('are shown to owners, and on the usage page to all members', async () => {
    const service = await sharedService();
    const owner = await newPerson(service, 'limits-owner@example.com');
    const app = await newOwnApp(owner);
    await run(service, ['--app', app.appId, '--create-per-minute', '7', '--types', '4']);
    expect((await owner.get(`${app.path}/limits`)).data).toMatchObject({
      createPerMinute: 7,
      bytesPerDay: null,
      types: 4,
      own: { createPerMinute: 7, bytesPerDay: null, types: 4 },
      highest: { createPerMinute: 100_000, bytesPerDay: null, types: 10_000 },
    });
    expect((await owner.get(`${app.path}/usage`)).data).toMatchObject({
      limits: { create: 7, read: 100, bytesPerDay: null, types: 4 },
      types: 0,
    });
    const other = await newPerson(service, 'limits-other@example.com');
    expect((await other.get(`${app.path}/limits`)).status).toBe(404);
  });
});

describe.skipIf(REDIS_SERVER === undefined)('over two processes with Redis,', () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await TestRedis.start();
  });
  afterAll(() => redis?.remove());

  test("an app's own limits are exact", async () => {
    const config = { REDIS_URL: redis.url, REDIS_TIMEOUT_MS: 5_000 };
    const first = await start({ config });
    const second = await start({ config, database: first.database });
    const { app, type } = first;
    const send = (service: TestService, payload: object): Promise<HttpResponse> =>
      service.post({ loggingToken: app.loggingToken, typeId: type.typeId, payload });
    await limit(first, ['--create-per-minute', '30', '--bytes-per-day', '1000']);
    await until(
      async () => (await send(second, {})).headers['ratelimit-limit'] === '30',
      'both processes have the limit',
    );
    // 2 bytes of each event so far, and 100 of each here.
    const payload = { text: 'x'.repeat(89) };
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) => send(index % 2 === 0 ? first : second, payload)),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(9);
    const rest = await Promise.all(
      Array.from({ length: 20 }, (_, index) => send(index % 2 === 0 ? first : second, {})),
    );
    const [row] = await first.sql<{ sent: number }[]>`SELECT count(*)::integer AS sent FROM events`;
    expect(rest.some(({ status }) => status === 429)).toBe(true);
    // Requests that were refused for their bytes count as requests, as all do whose token is valid.
    expect(row?.sent).toBeLessThanOrEqual(30 - 11);
  });
});
