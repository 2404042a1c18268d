/** Browser keys: what a page may send with one, and what the answers tell. */
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { checkOrigin, createBrowserKey, revokeBrowserKey } from '../../../src/apps/browser-keys.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { Opened } from '../../support/proxied-service.ts';
import {
  sharedService,
  startTestService,
  TestClock,
  type TestService,
  type TestServiceOptions,
  testSecret,
} from '../../support/service.ts';

const ORIGIN = 'https://shop.example';

const opened = new Opened();
afterEach(opened.stopAll);

/** Without options the one that all share. */
async function start(options?: TestServiceOptions): Promise<TestService> {
  if (options === undefined) return await sharedService();
  const service = await startTestService(options);
  opened.add(service);
  return service;
}

interface Keyed {
  readonly service: TestService;
  readonly tokenId: string;
  readonly key: string;
}

async function keyed(service: TestService, types = ['view'], origins = [ORIGIN]): Promise<Keyed> {
  const made = await createBrowserKey(service.sql, await testSecret(), {
    ...{ appId: service.app.appId, name: 'shop', types, origins },
  });
  return { service, tokenId: made.tokenId, key: made.browserKey };
}

type Body = Readonly<Record<string, unknown>>;

function collect(
  { service, key }: Keyed,
  events: readonly unknown[],
  { headers = {}, ...fields }: { readonly headers?: Readonly<Record<string, string>> } & Body = {},
): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: '/v1/collect',
    headers: { Origin: ORIGIN, 'Content-Type': 'text/plain;charset=UTF-8', ...headers },
    body: JSON.stringify({ key, ...fields, events }),
  });
}

const view = (n: number, fields: Body = {}): Body => ({ type: 'view', payload: { n }, ...fields });

async function stored({ service }: Keyed): Promise<unknown[]> {
  const rows = await service.sql<{ n: number }[]>`
    SELECT (payload ->> 'n')::int AS n FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${service.app.appId} ORDER BY 1`;
  return rows.map(({ n }) => n);
}

const parsed = ({ body }: HttpResponse): Record<string, unknown> =>
  JSON.parse(body) as Record<string, unknown>;

describe('POST /v1/collect', () => {
  test('stores events of named types from named origins, each key with its time once', async () => {
    const page = await keyed(await start());
    const createdAt = new Date(Date.now() - 60_000).toISOString();
    const events = [view(1, { key: 'a', createdAt }), view(2, { key: 'b', createdAt }), view(3)];
    const first = await collect(page, events);
    expect(first.status).toBe(200);
    expect(first.headers['access-control-allow-origin']).toBe('*');
    expect(first.headers).not.toHaveProperty('access-control-allow-credentials');
    expect(parsed(first)).toEqual({
      ...{ success: true, stored: 3, refused: 0, errors: [], serverTime: expect.stringMatching(/Z$/) },
    });
    const again = await collect(page, events.slice(0, 2), {
      headers: { 'Content-Type': 'application/json' },
    });
    // The same answer: whether the event was there before is not told.
    expect({ ...parsed(again), serverTime: 0 }).toEqual({ ...parsed(first), stored: 2, serverTime: 0 });
    expect(await stored(page)).toEqual([1, 2, 3]);
  });

  test('answers a preflight, and lets pages of all origins read every answer of the route, and of no other', async () => {
    const { service, key } = await keyed(await start());
    const preflight = await service.request({
      method: 'OPTIONS',
      path: '/v1/collect',
      headers: { Origin: ORIGIN, 'Access-Control-Request-Method': 'POST' },
    });
    expect(preflight.status).toBe(200);
    expect(preflight.headers).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': expect.stringContaining('Content-Type'),
    });
    for (const body of ['{', '{}', `{"key":"${key}"}`, 'x'.repeat(1_100_000)]) {
      const answer = await service.request({ method: 'POST', path: '/v1/collect', body });
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(answer.headers['access-control-allow-origin']).toBe('*');
    }
    for (const path of ['/v1/events', '/public/create_event', '/livez', '/api/session']) {
      const answer = await service.request({ method: 'POST', path, headers: { Origin: ORIGIN }, body: '{}' });
      expect(answer.headers).not.toHaveProperty('access-control-allow-origin');
    }
  });
});

test('a key is looked for at the beginning, among four texts', async () => {
  const { service, key } = await keyed(await start());
  const send = async (body: string): Promise<[number, unknown]> => {
    const answer = await service.request({
      ...{ method: 'POST', path: '/v1/collect', body },
      headers: { Origin: ORIGIN, 'Content-Type': 'text/plain' },
    });
    // News of the key forget the origin once more, and a long body is to be sent again then.
    if (answer.status === 503) return await send(body);
    return [answer.status, parsed(answer).code];
  };
  const wrong = `tdb_${'A'.repeat(38)}`;
  const after = (text: string, times: number): string =>
    `{"x":[${Array.from({ length: times }, () => `{"key":"${text}"}`).join()}],"key":"${key}","events":[]}`;
  expect(await send(after(wrong, 3))).toEqual([200, undefined]);
  expect(await send(after(wrong, 4))).toEqual([401, 'AUTH_INVALID_TOKEN']);
  expect(await send(after(wrong, 10_000))).toEqual([401, 'AUTH_INVALID_TOKEN']);
  expect(await send(after('x', 4))).toEqual([401, 'AUTH_INVALID_TOKEN']);
  expect(await send(`{"x":"${'x'.repeat(1_024)}","key":"${key}","events":[]}`)).toEqual([
    400,
    'INVALID_REQUEST',
  ]);
});

test('a long body from an origin that no key has is refused before it is sent, until a key has the origin', async () => {
  const page = await keyed(await start());
  const origin = 'https://other.example';
  const path = '/v1/collect';
  const headers = { Origin: origin, 'Content-Type': 'text/plain', 'Content-Length': 1_000_000 };
  expect((await collect(page, [], { headers: { Origin: origin } })).status).toBe(403);
  const ask = httpRequest(`${page.service.url}${path}`, { method: 'POST', headers });
  ask.on('error', () => undefined);
  ask.flushHeaders();
  const [answer] = (await once(ask, 'response')) as [IncomingMessage];
  expect(answer.statusCode).toBe(403);
  ask.destroy();
  await keyed(page.service, ['view'], [origin]).then(async (other) => {
    const long = { type: 'view', payload: { text: 'x'.repeat(8_000) } };
    await expect
      .poll(async () => (await collect(other, [long], { headers: { Origin: origin } })).status)
      .toBe(200);
  });
});

describe('a browser key', () => {
  test('is of no use from another origin, from none, and once it is revoked; and is unknown to other routes', async () => {
    const page = await keyed(await start());
    const { service, key, tokenId } = page;
    for (const origin of [
      'https://evil.example',
      'null',
      '',
      `${ORIGIN}:8443`,
      'http://shop.example',
      ORIGIN.toUpperCase(),
    ]) {
      const answer = await collect(page, [view(1)], { headers: { Origin: origin } });
      expect([origin, answer.status, parsed(answer).code]).toEqual([origin, 403, 'ACCESS_DENIED']);
      const why =
        origin === '' ? 'has no Origin' : origin === 'null' ? 'Origin is null' : `the origin ${origin}:`;
      expect(parsed(answer).details).toContain(why);
    }
    const none = await keyed(service, ['view'], []);
    expect((await collect(none, [view(1)])).status).toBe(403);
    const bearer = { Authorization: `Bearer ${key}`, Origin: ORIGIN };
    const body = JSON.stringify({ events: [view(1)] });
    expect(
      (await service.request({ method: 'POST', path: '/v1/events', headers: bearer, body })).status,
    ).toBe(401);
    expect((await service.post({ loggingToken: key })).status).toBe(401);
    const path = `/public/get_events?appId=${service.app.appId}`;
    expect((await service.request({ path, headers: bearer })).status).toBe(401);
    const logging = { ...page, key: service.app.loggingToken };
    expect((await collect(logging, [view(1)])).status).toBe(401);
    await revokeBrowserKey(service.sql, tokenId);
    await expect.poll(async () => (await collect(page, [view(1)])).status).toBe(401);
    expect(await stored(page)).toEqual([]);
  });

  test('writes its own types alone, by their names, and payloads of at most 16 KiB', async () => {
    const page = await keyed(await start(), ['view', 'click']);
    const { service } = page;
    const large = (bytes: number): Body => ({ type: 'view', payload: { n: 5, text: 'x'.repeat(bytes) } });
    const answer = await collect(page, [
      view(1),
      view(2, { type: 'order' }),
      { typeId: service.type.typeId, payload: { n: 3 } },
      view(4, { type: 'click' }),
      large(16_384),
      large(16_384 - 17),
    ]);
    expect(answer.status).toBe(207);
    const { errors, ...counts } = parsed(answer);
    expect(counts).toMatchObject({ success: false, stored: 3, refused: 3 });
    expect((errors as { details: string }[])[0]?.details).toBe('The key does not name the type "order".');
    expect((errors as { index: number; code: string }[]).map(({ index, code }) => [index, code])).toEqual([
      [1, 'ACCESS_DENIED'],
      [2, 'ACCESS_DENIED'],
      [4, 'PAYLOAD_TOO_LARGE'],
    ]);
    expect(await stored(page)).toEqual([1, 4, 5]);
  });

  test('answers tell nothing of the app: no ids, no retention, no limit of types, no limit of requests', async () => {
    const page = await keyed(await start({ config: { MAX_EVENT_TYPES_PER_APP: 1, RETENTION_DAYS: 1 } }));
    const { service } = page;
    const old = { key: 'old', createdAt: '2020-01-01T00:00:00.000Z' };
    const named = await keyed(service, [service.type.name]);
    const answers = [
      await collect(page, [view(1)]),
      await collect(named, [
        view(1, { type: service.type.name }),
        view(2, { type: service.type.name, ...old }),
      ]),
    ];
    for (const { body, headers } of answers) {
      expect(body).not.toMatch(/typ_|app_|eventId|repeated|retention|TOO_MANY_EVENT_TYPES/);
      expect(Number(headers['ratelimit-limit'])).toBe(service.config.BROWSER_NETWORK_LIMIT_PER_MINUTE);
    }
    expect(parsed(answers[0] as HttpResponse).errors).toEqual([
      { index: 0, error: 'Invalid request body', details: 'The event is refused.', code: 'INVALID_REQUEST' },
    ]);
  });

  test('has limits of its own, by key and by network, below the app’s, which no other origin can use up', async () => {
    const clock = new TestClock();
    const service = await start({
      clock,
      config: {
        ...{ TRUST_PROXY: 1, CREATE_LIMIT_PER_MINUTE: 5 },
        ...{ BROWSER_KEY_LIMIT_PER_MINUTE: 4, BROWSER_NETWORK_LIMIT_PER_MINUTE: 2 },
      },
    });
    const page = await keyed(service);
    const from = (address: string, origin = ORIGIN): Promise<number> =>
      collect(page, [view(1)], { headers: { 'X-Forwarded-For': address, Origin: origin } }).then(
        ({ status }) => status,
      );
    for (let n = 0; n < 10; n += 1) expect(await from('192.0.2.1', 'https://evil.example')).toBe(403);
    expect([await from('2001:db8::1'), await from('2001:db8::2'), await from('2001:db8::3')]).toEqual([
      200, 200, 429,
    ]);
    // Another network has room, until that of the key is used up.
    expect([await from('2001:db8:0:1::1'), await from('192.0.2.1'), await from('192.0.2.2')]).toEqual([
      200, 200, 429,
    ]);
    // The app has room for its servers.
    expect((await service.post()).status).toBe(201);
    expect((await service.post()).status).toBe(429);
    clock.advance(60_000);
    const late = await collect(page, [view(1)]);
    expect(late.status).toBe(200);
  });

  test('is found wherever the body has it; a body without one is refused with what is missing', async () => {
    const page = await keyed(await start());
    const { service, key } = page;
    const post = (body: string, contentType = 'text/plain'): Promise<HttpResponse> =>
      service.request({
        ...{ method: 'POST', path: '/v1/collect', body },
        headers: { Origin: ORIGIN, 'Content-Type': contentType },
      });
    const last = JSON.stringify({
      events: [view(1, { key: 'k', createdAt: new Date().toISOString() })],
      key,
    });
    expect((await post(last)).status).toBe(200);
    expect((await post(` { "events" : [ ] , "key" : "${key}" } `)).status).toBe(200);
    const foreign = await keyed(service, ['view'], ['https://other.example']);
    // A payload that has the text of another key in it.
    expect(
      (await post(JSON.stringify({ key, events: [view(2, { payload: { n: 2, key: foreign.key } })] })))
        .status,
    ).toBe(200);
    const mixed = await post(
      JSON.stringify({ key: foreign.key, events: [{ type: 'view', payload: { key } }] }),
    );
    expect([mixed.status, parsed(mixed).param]).toEqual([400, 'key']);
    for (const [body, status] of [
      ['{"events":[]}', 400],
      ['{"key":7,"events":[]}', 400],
      ['{"key":"","events":[]}', 401],
      [`{"key":"${key.slice(0, -1)}","events":[]}`, 401],
      [`{"key":"${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}","events":[]}`, 401],
      [`{"key":"${key}"}`, 400],
      [`{"key":"${key}","events":{}}`, 400],
      [`{"key":"${key}","events":[1]}`, 207],
      [`{"key":"${key}","events":[`, 400],
      [`["key":"${key}"]`, 400],
    ] as const)
      expect([body, (await post(body)).status]).toEqual([body, status]);
    expect((await post(last, 'application/x-www-form-urlencoded')).status).toBe(415);
    expect((await post(last, 'text/plainer')).status).toBe(415);
    expect((await post(last, '')).status).toBe(200);
    const many = Array.from({ length: 1_001 }, () => view(1));
    expect((await collect(page, many)).status).toBe(400);
    expect(await stored(page)).toEqual([1, 2]);
  });

  test('of an event that is ahead says by how much, and stores the others', async () => {
    const clock = new TestClock();
    const page = await keyed(await start({ clock, database: 'shared' }));
    const ahead = { key: 'a', createdAt: new Date(clock.wall() + 3_600_000).toISOString() };
    const answer = parsed(await collect(page, [view(1, ahead), view(2)]));
    expect(answer).toMatchObject({
      ...{ stored: 1, refused: 1, serverTime: new Date(clock.wall()).toISOString() },
      errors: [{ index: 0, code: 'EVENT_IN_FUTURE', aheadMs: 3_600_000 }],
    });
  });
});

test.each([
  ['https://shop.example/', 'path'],
  ['https://shop.example/cart', 'path'],
  ['https://shop.example?a', 'path'],
  ['https://*.example', 'wildcard'],
  ['*', 'wildcard'],
  ['http://shop.example', 'https'],
  ['shop.example', 'https'],
  ['ftp://shop.example', 'https'],
  ['null', 'without one'],
  ['https://user@shop.example', 'user name'],
  ['https://shop .example', 'not an address'],
  ['', 'https'],
])('the origin %s is refused when the key is made, with the reason', (origin, reason) => {
  expect(() => checkOrigin(origin)).toThrow(reason);
});

test('an origin is taken as browsers send it', async () => {
  const service = await start();
  const page = await keyed(service, ['view'], ['https://Shop.Example:443', 'http://localhost:3000']);
  const [row] = await service.sql<{ origins: string[] }[]>`
    SELECT origins FROM browser_keys ORDER BY id DESC LIMIT 1`;
  expect(row?.origins).toEqual(['https://shop.example', 'http://localhost:3000']);
  expect((await collect(page, [view(1)])).status).toBe(200);
});

test('apps and extensions have origins too; others are refused with what is taken', async () => {
  const native = [
    ...['capacitor://localhost', 'ionic://localhost', 'tauri://localhost', 'http://tauri.localhost'],
    ...[
      'chrome-extension://abcdefghijklmnopabcdefghijklmnop',
      'moz-extension://6c1a2b3c-1d2e-4f5a-8b9c-0d1e2f3a4b5c',
    ],
  ];
  const page = await keyed(await start(), ['view'], native);
  for (const [n, origin] of native.entries())
    expect([origin, (await collect(page, [view(n)], { headers: { Origin: origin } })).status]).toEqual([
      origin,
      200,
    ]);
  expect((await collect(page, [view(1)], { headers: { Origin: 'capacitor://other' } })).status).toBe(403);
  for (const origin of ['file:///app', 'capacitor://', 'ftp://shop.example', 'tauri://localhost/path'])
    await expect(keyed(page.service, ['view'], [origin])).rejects.toThrow(/capacitor, ionic, tauri/);
  expect(() => checkOrigin('capacitor://localhost')).toThrow('https://');
});
