/** What apps and tokens use: every request of theirs once, and nothing of those who have no token. */
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { setAppLimits } from '../../src/apps/app-limits.ts';
import { addRedaction } from '../../src/apps/redaction.ts';
import { type RefusedRequest, WaitingRefusals } from '../../src/apps/refused-requests.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, TestClock, type TestService } from '../support/service.ts';

/** In the middle of a minute, and of a day. */
const NOON = Date.parse('2026-11-20T12:00:30Z');
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

interface UsageAnswer {
  limits: object;
  minutes: { at: string; accepted: number; refused: number }[];
  refused: { code: string; requests: number }[];
  refusedEvents: { code: string; events: number }[];
  lastRefused: { at: string; producer: string | null; code: string; body: string | null }[];
  days: { day: string; events: number; bytes: number }[];
  tokens: { name: string; reads: number; refused: number; lastUsedAt: string | null }[];
}

const clock = new TestClock(NOON);
let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    clock,
    config: { CREATE_LIMIT_PER_MINUTE: 60, READ_LIMIT_PER_MINUTE: 2 },
  });
});
afterAll(() => service.stop());

let people = 0;
/** Another owner of another app. */
async function newOwner(): Promise<{
  owner: Person;
  email: string;
  app: Awaited<ReturnType<typeof newOwnApp>>;
}> {
  people += 1;
  const email = `usage-${people}@example.com`;
  const owner = await newPerson(service, email);
  return { owner, email, app: await newOwnApp(owner) };
}

/** The rows of an app in a table. */
const rowsOf = ({ appId }: { appId: string }, table: string): Promise<readonly unknown[]> =>
  service.sql`SELECT FROM ${service.sql(table)} WHERE app_id = (SELECT id FROM apps WHERE public_id = ${appId})`;

const read = async (person: Person, path: string): Promise<UsageAnswer> => {
  const reply = await person.get(`${path}/usage`);
  expect(reply.status).toBe(200);
  return reply.data as unknown as UsageAnswer; // As the route declares it.
};
const used = ({ minutes }: UsageAnswer): object[] =>
  minutes.filter(({ accepted, refused }) => accepted + refused > 0);

describe('the usage of an app', () => {
  test('costs nothing for those who have no token', async () => {
    const { owner, app } = await newOwner();
    for (let sent = 0; sent < 5; sent += 1) {
      expect((await service.post({ loggingToken: `tdl_${'x'.repeat(38)}` })).status).toBe(401);
      expect((await service.post({ loggingToken: service.app.loggingToken.slice(0, -1) })).status).toBe(401);
      const headers = { Authorization: 'Bearer tdr_no' };
      expect((await service.request({ path: '/v1/apps', headers })).status).toBe(401);
      expect((await service.request({ method: 'POST', path: '/v1/events', body: '{}' })).status).toBe(401);
    }
    // Which writes what was counted.
    await read(owner, app.path);
    for (const table of ['app_requests', 'token_requests', 'usage_days'])
      expect(await service.sql`SELECT FROM ${service.sql(table)}`, table).toHaveLength(0);
  });

  test('has its events, bytes and requests, however they came, and no others', async () => {
    const { owner, app } = await newOwner();
    const other = await newOwnApp(owner, 'Other');
    const limits = { createPerMinute: 5 };
    await setAppLimits(service.sql, service.config, { appId: app.appId, limits });
    const { loggingToken } = app;
    const post = (fields: object, headers: Record<string, string> = {}) =>
      service.request({
        method: 'POST',
        path: '/public/create_event',
        headers,
        body: JSON.stringify({ loggingToken, typeName: 'a', payload: { a: 'é' }, ...fields }),
      });
    expect((await post({})).status).toBe(201);
    // Once, though it is sent twice.
    for (const _ of [1, 2])
      expect((await post({ payload: { n: 12 } }, { 'Idempotency-Key': 'k' })).status).toBe(201);
    expect((await post({ typeName: undefined, typeId: 'typ_none' })).status).toBe(404);
    const batch = JSON.stringify([
      { typeName: 'a', payload: {} },
      { typeName: 'a', payload: {} },
      { payload: {} },
    ]);
    const answer = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: {
        Authorization: `Bearer ${loggingToken}`,
        'Content-Encoding': 'gzip',
        'Content-Type': 'application/json',
      },
      body: gzipSync(`{"events":${batch}}`),
    });
    expect(answer.status).toBe(207);
    for (const _ of [1, 2]) expect((await post({})).status).toBe(429);

    const usage = await read(owner, app.path);
    expect(usage.limits).toEqual({ create: 5, read: 2, bytesPerDay: null, types: 10_000 });
    expect(usage.minutes).toHaveLength(60);
    expect(usage.minutes.at(-1)).toEqual({ at: '2026-11-20T12:00:00.000Z', accepted: 4, refused: 3 });
    expect(used(usage)).toHaveLength(1);
    expect(usage.refused).toEqual([
      { code: 'RATE_LIMIT_EXCEEDED', requests: 2 },
      { code: 'EVENT_TYPE_NOT_FOUND', requests: 1 },
    ]);
    expect(usage.refusedEvents).toEqual([{ code: 'INVALID_REQUEST', events: 1 }]);
    // "é" has two bytes.
    expect(usage.days.at(-1)).toEqual({ day: '2026-11-20', events: 4, bytes: 10 + 8 + 2 + 2 });
    expect(usage.days).toHaveLength(30);
    expect(used(await read(owner, other.path))).toEqual([]);

    clock.advance(MINUTE_MS);
    expect((await post({})).status).toBe(201);
    const later = await read(owner, app.path);
    expect(later.minutes.slice(-2).map(({ accepted }) => accepted)).toEqual([4, 1]);
    clock.advance(DAY_MS);
    const nextDay = await read(owner, app.path);
    expect(used(nextDay)).toEqual([]);
    expect(nextDay.days.slice(-2).map(({ events }) => events)).toEqual([5, 0]);
  });

  test('has the events that were refused inside of accepted requests, whatever their format', async () => {
    const { owner, app } = await newOwner();
    const send = async (path: string, body: string, type = 'application/json'): Promise<void> => {
      const { status } = await service.request({
        method: 'POST',
        path,
        headers: { Authorization: `Bearer ${app.loggingToken}`, 'Content-Type': type },
        body,
      });
      expect([200, 207], path).toContain(status);
    };
    const good = '{"typeName":"a","payload":{}}';
    // Two of each are refused.
    await send('/v1/records?type=a', '{"n":1}\nnot JSON\n7\n', 'application/x-ndjson');
    await send('/v1/events', `${good}\n{}\n{"typeName":"a"}\n`, 'application/x-ndjson');
    await send('/v1/cloudevents', '[{},7]', 'application/cloudevents-batch+json');
    await send('/v1/batch', '{"batch":[7,{"type":"identify"},{"type":"nothing"}]}');
    await send('/v1/elasticsearch/a/_bulk', '{"index":{}}\n{}\n{"delete":{}}\n{"index":{}}\n[]\n');
    const usage = await read(owner, app.path);
    expect(usage.refusedEvents).toEqual([{ code: 'INVALID_REQUEST', events: 10 }]);
    expect(usage.refused).toEqual([]);
    expect(usage.minutes.at(-1)).toMatchObject({ accepted: 5, refused: 0 });
  });

  test('has every refusal of a valid token, and the latest of them with reason, producer and the body', async () => {
    const { owner, email, app } = await newOwner();
    const start = clock.wall();
    const { data: made } = await owner.post(`${app.path}/producers`, { name: 'Billing' });
    const token = String(made.loggingToken);
    const sent = async (body: string, headers: Record<string, string> = {}, path = '/public/create_event') =>
      (await service.request({ method: 'POST', path, headers, body })).status;
    const post = (fields: object, headers = {}): Promise<number> =>
      sent(JSON.stringify({ loggingToken: token, ...fields }), headers);
    const bearer = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    expect((await owner.get(app.path)).data).toMatchObject({ refusedLately: false });

    // What is refused before the token is read, and after it.
    expect(await post({ typeName: '', payload: {} })).toBe(400);
    expect(await post({ payload: {} })).toBe(400);
    expect(await post({ typeName: 'a', payload: [1] })).toBe(400);
    expect(await sent(`{"loggingToken":"${token}","payload":{"a":`)).toBe(400);
    expect(await post({ typeName: 'a', payload: {} }, { 'Idempotency-Key': 'k'.repeat(300) })).toBe(400);
    expect(await post({ typeId: 'typ_none', payload: { half: '\ud800', nul: '\0' } })).toBe(404);
    expect(await sent('{"events":', bearer, '/v1/events')).toBe(400);
    // A body that is too large has its token at its beginning.
    expect(await post({ typeName: 'a', payload: { long: 'x'.repeat(1_100_000) } })).toBe(413);
    clock.advance(1_000);
    expect(await sent('[{"typeName":"a","payload":{}},{"payload":{}}]', bearer, '/v1/events')).toBe(207);
    const answer = await owner.get(`${app.path}/usage`);
    const usage = answer.data as unknown as UsageAnswer;
    expect(usage.refused).toEqual([
      { code: 'INVALID_REQUEST', requests: 6 },
      { code: 'EVENT_TYPE_NOT_FOUND', requests: 1 },
      { code: 'PAYLOAD_TOO_LARGE', requests: 1 },
    ]);
    expect(usage.lastRefused).toHaveLength(9);
    expect(usage.lastRefused.filter(({ code }) => code === 'PAYLOAD_TOO_LARGE')).toMatchObject([
      { producer: 'Billing', route: '/public/create_event', body: null },
    ]);
    expect(usage.lastRefused[0]).toEqual({
      at: new Date(start + 1_000).toISOString(),
      ...{ producer: 'Billing', route: '/v1/events', code: 'INVALID_REQUEST', isCut: false },
      details: 'event 2: One of the fields "typeId" and "typeName" is required.',
      body: '[{"typeName":"a","payload":{}},{"payload":{}}]',
    });
    expect(usage.lastRefused.at(-1)).toMatchObject({
      ...{ at: new Date(start).toISOString(), producer: 'Billing', route: '/public/create_event' },
      body: '{"loggingToken":"tdl_***","typeName":"","payload":{}}',
    });
    expect(JSON.stringify(usage)).not.toContain(token.slice(4));
    expect(JSON.stringify((await owner.get(app.path.concat('/producers'))).data)).toContain('"refused":8');
    expect((await owner.get(app.path)).data).toMatchObject({ refusedLately: true });

    // Twenty, the latest of each code; a limit that is exceeded is one of them, and the body is cut.
    for (let n = 0; n < 25; n += 1) await post({ typeName: 'a', payload: [n], more: 'é'.repeat(5_000) });
    for (let n = 0; n < 62; n += 1) await post({ typeName: 'a', payload: {} });
    const { lastRefused } = await read(owner, app.path);
    expect(lastRefused).toHaveLength(20);
    const wrong = lastRefused.filter(({ code }) => code === 'INVALID_REQUEST');
    expect(wrong).toHaveLength(17);
    expect(new Set(lastRefused.map(({ code }) => code))).toEqual(
      new Set(['INVALID_REQUEST', 'RATE_LIMIT_EXCEEDED', 'EVENT_TYPE_NOT_FOUND', 'PAYLOAD_TOO_LARGE']),
    );
    expect(wrong.at(-1)).toMatchObject({ isCut: true, body: expect.stringContaining('"payload":[8]') });
    expect(lastRefused.every(({ body }) => (body ?? '').length <= 1_000)).toBe(true);

    clock.advance(2 * 60 * MINUTE_MS);
    expect((await owner.get(app.path)).data).toMatchObject({ refusedLately: false });
    clock.advance(8 * DAY_MS);
    await owner.signIn(email);
    await read(owner, app.path);
    expect(await rowsOf(app, 'refused_requests')).toHaveLength(0);
  });

  test('keeps the refusals of producers from what a public browser key brings, in one write and in many', async () => {
    const { owner, app } = await newOwner();
    const origins = ['https://shop.example.com'];
    const made = await owner.post(`${app.path}/browser-keys`, { name: 'Shop', origins, types: ['a'] });
    const { browserKey: key } = made.data;
    const collect = (body: object) =>
      service.request({
        method: 'POST',
        path: '/v1/collect',
        headers: { Origin: 'https://shop.example.com', 'Content-Type': 'text/plain' },
        body: JSON.stringify({ key, ...body }),
      });
    const useful = await service.post({ loggingToken: app.loggingToken, typeId: undefined, payload: {} });
    expect(useful.status).toBe(400);
    for (let writes = 0; writes < 3; writes += 1) {
      for (let n = 0; n < 30; n += 1) expect((await collect({ events: n })).status).toBe(400);
      clock.advance(MINUTE_MS);
      const { lastRefused } = await read(owner, app.path);
      expect(lastRefused).toHaveLength(20);
      expect(lastRefused.filter(({ producer }) => producer !== null)).toHaveLength(1);
    }
  });

  test('shows no value that is redacted or erased in a body that was refused', async () => {
    const { owner, app } = await newOwner();
    const { loggingToken } = app;
    const post = async (body: string): Promise<void> => {
      const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
      expect(status).toBe(400);
    };
    const wrong = JSON.stringify({ loggingToken, typeName: 'a', paylod: { card: { number: 4111 } } });
    await post(wrong);
    const before = await read(owner, app.path);
    expect(before.lastRefused[0]?.body).toContain('4111');

    await service.post({ loggingToken, typeId: undefined, typeName: 'a' });
    await addRedaction(service.sql, {
      ...{ appId: app.appId, type: 'a', path: ['card', 'number'], action: 'mask' },
    });
    expect((await read(owner, app.path)).lastRefused).toEqual([]);
    await post(wrong);
    await post(wrong.slice(0, -1));
    await post(`${wrong.slice(0, -1)},"long":"${'x'.repeat(5_000)}"}`);
    const { lastRefused } = await read(owner, app.path);
    expect(lastRefused.map(({ body }) => body)).toEqual([
      null,
      null,
      '{"loggingToken":"tdl_***","typeName":"a","paylod":{"card":{"number":"***"}}}',
    ]);
    // Also one that waits to be written.
    await post(wrong);
    const erasure = { filter: ['a:1'], dryRun: false, password: PASSWORD };
    expect((await owner.post(`${app.path}/erasures`, erasure)).status).toBe(202);
    expect((await read(owner, app.path)).lastRefused).toEqual([]);
  });

  test('has the reads of its tokens', async () => {
    const { owner, app } = await newOwner();
    const { data } = await owner.post(`${app.path}/tokens`, { name: 'Grafana' });
    await owner.post(`${app.path}/tokens`, { name: 'Idle' });
    const get = (path: string) =>
      service.request({ path, headers: { Authorization: `Bearer ${String(data.resourceToken)}` } });
    expect((await get(`/public/get_events?appId=${app.appId}`)).status).toBe(200);
    expect((await get('/v1/apps')).status).toBe(200);
    expect((await get('/v1/apps')).status).toBe(429);
    const { tokens } = await read(owner, app.path);
    expect(tokens.map(({ lastUsedAt, ...token }) => token)).toEqual([
      { tokenId: data.tokenId, name: 'Grafana', reads: 2, refused: 1 },
      { tokenId: expect.any(String), name: 'Idle', reads: 0, refused: 0 },
    ]);
    clock.advance(MINUTE_MS);
    expect((await read(owner, app.path)).tokens[0]).toMatchObject({ reads: 0, refused: 1 });
  });

  test('is the sum of what all processes counted, and what a stop still had', async () => {
    const neighbor = await startTestService({ clock, database: service.database });
    const { owner, app } = await newOwner();
    for (const at of [service, neighbor, neighbor])
      expect(
        (await at.post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'a' })).status,
      ).toBe(201);
    await neighbor.stop();
    const usage = await read(owner, app.path);
    expect(usage.minutes.at(-1)?.accepted).toBe(3);
    expect(usage.days.at(-1)?.events).toBe(3);
  });

  test('is forgotten with the app, and by the minute after two hours', async () => {
    const { owner, app } = await newOwner();
    const gone = await newOwnApp(owner, 'Gone');
    const [{ id: goneId } = { id: 0 }] = await service.sql<{ id: number }[]>`
      SELECT id FROM apps WHERE public_id = ${gone.appId}`;
    for (const { loggingToken } of [app, gone])
      expect((await service.post({ loggingToken, typeId: undefined, typeName: 'a' })).status).toBe(201);
    await owner.delete(gone.path, { confirm: 'Gone' });
    await owner.delete(`/api/removed-apps/${gone.appId}`, { confirm: 'Gone' });
    // Counted before, written after the deletion.
    expect((await read(owner, app.path)).minutes.at(-1)?.accepted).toBe(1);
    expect(await service.sql`SELECT FROM usage_days WHERE app_id = ${goneId}`).toHaveLength(0);
    clock.advance(3 * 60 * MINUTE_MS);
    await read(owner, app.path);
    expect(await rowsOf(app, 'app_requests')).toHaveLength(0);
    expect(await rowsOf(app, 'usage_days')).toHaveLength(1);
  });

  test('that could not be written is written later, and a log line and a metric tell it', async () => {
    const { owner, app } = await newOwner();
    await service.sql`ALTER TABLE usage_days RENAME TO elsewhere`;
    expect(
      (await service.post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'a' })).status,
    ).toBe(201);
    expect((await owner.get(`${app.path}/usage`)).status).toBe(500);
    expect(service.log.filter(({ msg }) => String(msg).startsWith('usage: write failed'))).toHaveLength(1);
    const { body } = await service.request({ path: '/metrics' });
    expect(body).toMatch(/^tidemark_usage_write_failures_total [1-9]/m);
    await service.sql`ALTER TABLE elsewhere RENAME TO usage_days`;
    const usage = await read(owner, app.path);
    expect([usage.minutes.at(-1)?.accepted, usage.days.at(-1)?.events]).toEqual([1, 1]);
  });

  test('is told to members alone', async () => {
    const { app } = await newOwner();
    const stranger = await newPerson(service, 'usage-stranger@example.com');
    expect(await stranger.get(`${app.path}/usage`)).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
    expect((await service.request({ path: `${app.path}/usage` })).status).toBe(401);
  });
});

test('refused requests of many apps leave room for those of another one', () => {
  const waiting = new WaitingRefusals();
  const refuse = (appId: number, at: number): void => {
    const request = {
      appId,
      at,
      producerId: 0,
      route: '/v1/events',
      code: 'INVALID_REQUEST',
      details: 'no',
      body: null,
    };
    waiting.add(request satisfies RefusedRequest);
  };
  for (let appId = 1; appId <= 100; appId += 1) for (let at = 0; at < 20; at += 1) refuse(appId, at);
  for (let at = 0; at < 5; at += 1) refuse(1_000, at);
  const taken = waiting.take();
  expect(taken).toHaveLength(1_000);
  expect(taken.filter(({ appId }) => appId === 1_000).map(({ at }) => at)).toEqual([0, 1, 2, 3, 4]);
  // The latest of the others are there.
  expect(taken.filter(({ appId }) => appId === 1).at(-1)?.at).toBe(19);
});
