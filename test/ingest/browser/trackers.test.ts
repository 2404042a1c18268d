/** The bodies of the trackers of Umami and Plausible, with a browser key. */
import { beforeAll, describe, expect, test } from 'vitest';
import { createBrowserKey } from '../../../src/apps/browser-keys.ts';
import { storedIds } from '../../support/batch.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { sharedService, type TestService, testSecret } from '../../support/service.ts';

const ORIGIN = 'https://shop.example';

let service: TestService;
let key: string;
beforeAll(async () => {
  service = await sharedService();
  ({ browserKey: key } = await createBrowserKey(service.sql, await testSecret(), {
    ...{ appId: service.app.appId, name: 'shop', origins: [ORIGIN] },
    types: ['pageview', 'Signup', 'identify', 'performance', 'engagement'],
  }));
});

function post(
  path: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<HttpResponse> {
  return service.request({
    ...{ method: 'POST', path, body: typeof body === 'string' ? body : JSON.stringify(body) },
    headers: { Origin: ORIGIN, 'Content-Type': 'application/json', ...headers },
  });
}

/** The last event that was stored. */
async function last(): Promise<{ type: string; payload: string; createdAt: Date } | undefined> {
  const [row] = await service.sql<{ type: string; payload: string; createdAt: Date }[]>`
    SELECT event_types.name AS type, payload::text AS payload, events.created_at AS "createdAt"
      FROM events JOIN event_types ON event_types.id = type_id JOIN apps ON apps.id = events.app_id
     WHERE apps.public_id = ${service.app.appId} ORDER BY events.id DESC LIMIT 1`;
  return row;
}

describe('a body of Umami', () => {
  const payload = {
    ...{ website: '94db1cb1-74f4-4a40-ad6c-962362670409', hostname: 'shop.example', language: 'en-US' },
    ...{ referrer: '', screen: '1920x1080', title: 'Cart', url: '/cart' },
  };

  test('is an event of its name, or a page view, with its payload as it was sent', async () => {
    const answer = await post(`/v1/umami/${key}/api/send`, { type: 'event', payload });
    expect([answer.status, JSON.parse(answer.body)]).toEqual([200, { success: true }]);
    expect(await last()).toMatchObject({ type: 'pageview', payload: JSON.stringify(payload) });
    const named = { ...payload, website: key, name: 'Signup', data: { plan: 'pro' } };
    expect((await post('/v1/umami/api/send', { type: 'event', payload: named })).status).toBe(200);
    expect(await last()).toMatchObject({ type: 'Signup', payload: JSON.stringify(named) });
    expect((await post(`/v1/umami/${key}/api/send`, { type: 'identify', payload })).status).toBe(200);
    expect(await last()).toMatchObject({ type: 'identify' });
    expect((await post(`/v1/umami/${key}/api/send`, { type: 'performance', payload })).status).toBe(200);
    expect(await last()).toMatchObject({ type: 'performance' });
  });

  test('may have the time of the event, in seconds', async () => {
    const timestamp = Math.floor(Date.now() / 1_000) - 3_600;
    const { status } = await post(`/v1/umami/${key}/api/send`, {
      type: 'event',
      payload: { ...payload, timestamp },
    });
    expect(status).toBe(200);
    const [row] = await service.sql`SELECT FROM events WHERE created_at = ${new Date(timestamp * 1_000)}`;
    expect(row).toBeDefined();
  });

  test.each([
    [{ type: 'event', payload: { ...payload, name: 'Order' } }, 403],
    [{ type: 'other', payload }, 400],
    [{ type: 'event' }, 400],
    [{ type: 'event', payload: { ...payload, timestamp: 'now' } }, 400],
    [{ type: 'event', payload: { ...payload, timestamp: [1] } }, 400],
    [{ type: 'event', payload: { ...payload, timestamp: {} } }, 400],
    [{ type: 'event', payload: { ...payload, name: ['x'] } }, 400],
    [{ type: 'event', payload: { ...payload, title: 'x'.repeat(16_384) } }, 413],
    ['[]', 400],
    ['{', 400],
  ])('that cannot be stored is refused: %j', async (body, status) => {
    expect((await post(`/v1/umami/${key}/api/send`, body)).status).toBe(status);
  });

  test('is taken after the preflight that its tracker makes', async () => {
    const answer = await service.request({ method: 'OPTIONS', path: `/v1/umami/${key}/api/send` });
    expect(answer.headers['access-control-allow-headers']).toBe(
      'Content-Type, X-Umami-Cache, traceparent, tracestate, baggage, sentry-trace, *',
    );
  });
});

describe('a body of Plausible', () => {
  const body = { n: 'pageview', u: 'https://shop.example/cart', d: 'shop.example', r: null };

  test('is an event of its name, with the whole body as payload', async () => {
    const answer = await post(`/v1/plausible/${key}/api/event`, body, { 'Content-Type': 'text/plain' });
    expect([answer.status, answer.body]).toEqual([202, 'ok']);
    expect(answer.headers['access-control-allow-origin']).toBe('*');
    expect(await last()).toMatchObject({ type: 'pageview', payload: JSON.stringify(body) });
    const long = { name: 'Signup', url: 'https://shop.example/', domain: key, props: { plan: 'pro' } };
    expect((await post('/v1/plausible/api/event', long)).status).toBe(202);
    expect(await last()).toMatchObject({ type: 'Signup', payload: JSON.stringify(long) });
  });

  test.each([
    [{ ...body, n: 'Order' }, 403],
    [{ ...body, n: '' }, 400],
    [{ ...body, n: ['x'] }, 400],
    [{ u: '/' }, 400],
    ['1', 400],
  ])('that cannot be stored is refused: %j', async (sent, status) => {
    expect((await post(`/v1/plausible/${key}/api/event`, sent)).status).toBe(status);
  });
});

test('a tracker without a key, with a token, or of another origin stores nothing', async () => {
  const count = async (): Promise<number> => (await storedIds(service)).length;
  const before = await count();
  for (const path of ['/v1/umami/api/send', '/v1/plausible/api/event']) {
    const body = path.includes('umami') ? { type: 'event', payload: {} } : { n: 'pageview' };
    expect((await post(path, body)).status).toBe(400);
    const withKey = path.replace('/api', `/${service.app.loggingToken}/api`);
    expect((await post(withKey, body)).status).toBe(401);
    const foreign = { Origin: 'https://evil.example' };
    expect((await post(path.replace('/api', `/${key}/api`), body, foreign)).status).toBe(403);
  }
  expect(await count()).toBe(before);
});
