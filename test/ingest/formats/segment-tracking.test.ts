/** Segment's calls, from its own library and by hand. */
import { Analytics } from '@segment/analytics-node';
import { beforeAll, expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { sharedService, type TestService, until } from '../../support/service.ts';

let service: TestService;
beforeAll(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
});

const basic = (user: string, password = ''): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

function post(call: string, body: string | object, authorization?: string | null): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: `/v1/${call}`,
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: {
      Authorization: authorization === undefined ? basic(service.app.loggingToken) : authorization,
    },
  });
}

async function stored(type: string) {
  return await service.sql<{ payload: Record<string, unknown>; time: Date }[]>`
    SELECT event.payload, event.created_at AS time FROM events AS event
      JOIN event_types AS type ON type.id = event.type_id JOIN apps AS app ON app.id = event.app_id
     WHERE type.name = ${type} AND app.public_id = ${service.app.appId} ORDER BY event.created_at, event.id`;
}

test("Segment's library delivers each of its calls", async () => {
  const analytics = new Analytics({
    host: service.url,
    writeKey: service.app.loggingToken,
    flushAt: 10,
  });
  const errors: unknown[] = [];
  analytics.on('error', (error) => errors.push(error));
  const timestamp = new Date('2026-01-31T08:30:00.123Z');
  const userId = 'u1';
  analytics.track({ userId, event: 'Order Placed', properties: { total: 9.5 }, timestamp, messageId: 'm-1' });
  analytics.page({ userId, name: 'Home' });
  analytics.screen({ userId, name: 'Main' });
  analytics.identify({ userId, traits: { plan: 'pro' } });
  analytics.group({ userId, groupId: 'g1' });
  analytics.alias({ userId, previousId: 'u0' });
  await analytics.closeAndFlush();
  expect(errors).toEqual([]);
  const [placed] = await stored('Order Placed');
  expect(placed?.time).toEqual(timestamp);
  expect(placed?.payload).toMatchObject({ type: 'track', messageId: 'm-1', properties: { total: 9.5 } });
  for (const call of ['page', 'screen', 'identify', 'group', 'alias'])
    expect(await stored(call), call).toHaveLength(1);
});

test('each call has a route, and its message keeps its text', async () => {
  const { status, body } = await post('track', '{"event":"kept", "n":1e400,"n":-0}');
  expect({ status, body: JSON.parse(body) }).toEqual({
    status: 200,
    body: { success: true, stored: 1, refused: 0, errors: [] },
  });
  const [row] = await service.sql<{ payload: string }[]>`
    SELECT payload::text AS payload FROM events JOIN apps ON apps.id = app_id
     WHERE public_id = ${service.app.appId} AND payload::text LIKE '%kept%'`;
  expect(row?.payload).toBe('{"event":"kept", "n":1e400,"n":-0}');
  expect((await post('screen', { type: 'track', event: 'no track' })).status).toBe(200);
  await until(async () => (await stored('screen')).length > 0, 'the route decides on the call');
});

test('a clock that is wrong is corrected by whole minutes, a time to come is now', async () => {
  const now = Date.now();
  const at = (ms: number): string => new Date(ms).toISOString();
  const send = (event: string, timestamp: number, sentAt: number): Promise<HttpResponse> =>
    post('batch', { sentAt: at(sentAt), batch: [{ type: 'track', event, timestamp: at(timestamp) }] });
  await send('right', now - 5_000, now - 10_000);
  await send('behind', now - 3_600_000 - 5_000, now - 3_600_000);
  await send('ahead', now + 3_600_000 - 5_000, now + 3_600_000);
  await send('to come', now + 3_600_000, now);
  const timeOf = async (type: string): Promise<number | undefined> => (await stored(type))[0]?.time.getTime();
  for (const type of ['right', 'behind', 'ahead']) expect(await timeOf(type), type).toBe(now - 5_000);
  expect(await timeOf('to come')).toBeLessThan(now + 60_000);
});

test('a message that is sent again is the same, whatever the difference of sentAt and the reception has become', async () => {
  const now = Date.now();
  const at = (ms: number): string => new Date(ms).toISOString();
  const send = (messageId: string, timestamp: number, sentAt: number): Promise<HttpResponse> =>
    post('batch', {
      sentAt: at(sentAt),
      batch: [{ type: 'track', event: messageId, messageId, timestamp: at(timestamp) }],
    });
  for (const ago of [0, 35_000, 90_000, 600_000]) await send('written once', now - 700_000, now - ago);
  expect((await stored('written once')).map(({ time }) => time.getTime())).toEqual([now - 700_000]);
  for (let repeat = 0; repeat < 3; repeat += 1) await send('by a clock ahead', now + 120_000, now);
  expect(await stored('by a clock ahead')).toHaveLength(1);
});

test('the token is a write key, and is asked for before the body is looked at', async () => {
  for (const authorization of [null, basic('wrong'), basic('', service.app.loggingToken), 'Basic !']) {
    const response = await post('track', '{', authorization);
    refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
    expect(response.headers['www-authenticate']).toBe('Basic realm="Tidemark"');
  }
  const bearer = `Bearer ${service.app.loggingToken}`;
  expect((await post('track', { event: 'by bearer' }, bearer)).status).toBe(200);
});

test('the short paths of phones and pages are those of the calls', async () => {
  for (const path of ['t', 'p', 's', 'i', 'g', 'a'])
    expect([path, (await post(path, { event: 'short' })).status]).toEqual([path, 200]);
  const { body } = await post('b', { batch: [{ type: 'track', event: 'short' }] });
  expect(JSON.parse(body)).toMatchObject({ stored: 1 });
});

test('a batch without messages is a success, as an empty export is', async () => {
  const { status, body } = await post('batch', { batch: [] });
  expect([status, JSON.parse(body)]).toEqual([200, { success: true, stored: 0, refused: 0, errors: [] }]);
});

test.each<[string, string | object, RegExp]>([
  ['track', '{', /JSON/],
  ['track', '[]', /object/],
  ['track', {}, /"event" is missing/],
  ['track', { event: { a: 1 } }, /"event" must be a string/],
  ['track', { event: 'a', timestamp: [1] }, /"timestamp" must be/],
  ['track', { event: 'a', timestamp: {} }, /"timestamp" must be/],
  ['track', { event: 'a', timestamp: -1 }, /"timestamp" must be a time: .*not "-1"/],
  ['track', { event: 'a', messageId: {} }, /"messageId" must be/],
  ['track', { event: 'x'.repeat(201) }, /200 characters/],
  ['track', { event: 'a', timestamp: 'soon' }, /timestamp/],
  ['track', { event: 'a', timestamp: '2026-01-31T08:30:00Z', sentAt: 'soon' }, /sentAt/],
  ['batch', {}, /"batch" must be an array/],
  ['batch', '{"batch":[{}', /JSON/],
])('%s refuses %j', async (call, body, details) => {
  expect(refused(await post(call, body), 400, 'INVALID_REQUEST', 'Invalid request body').details).toMatch(
    details,
  );
});

test('messages of a batch that are not valid are refused by themselves', async () => {
  const batch = [{ type: 'track', event: 'neighbor' }, { type: 'other' }, 7, { type: 'track' }];
  const { status, body } = await post('batch', { batch });
  expect({ status, ...JSON.parse(body) }).toMatchObject({
    status: 200,
    success: false,
    stored: 1,
    refused: 3,
  });
});
