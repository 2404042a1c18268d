/** The reads under /v1 for resource tokens: admission, shapes and headers, on every engine. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken, revokeResourceToken } from '../../src/apps/resource-tokens.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { availableEngines } from '../support/database.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { sharedService, startTestService, type TestService } from '../support/service.ts';
import { expectCommonHeaders, refused } from './answers.ts';

const PAYLOADS = ['{ "n":1e400, "n":-0 }', '{"text":"\\u0000ü"}', '{}'];

describe.each(availableEngines())('on %s,', (engine) => {
  let service: TestService;
  let token: string;
  let events: { id: string; typeId: string; createdAt: string }[];
  let paths: string[];

  beforeAll(async () => {
    service = await startTestService({ engine, database: 'shared', config: { READ_LIMIT_PER_MINUTE: 0 } });
    token = await newToken();
    const sent = PAYLOADS.map((payload, i) => `{"typeName":"${i < 2 ? 'a' : 'b'}","payload":${payload}}`);
    const response = await service.request({
      method: 'POST',
      path: '/v1/events',
      body: `{"events":[${sent.join(',')}]}`,
      headers: { Authorization: `Bearer ${service.app.loggingToken}` },
    });
    events = JSON.parse(response.body).results.map(
      ({ eventId, typeId, timestamp }: Record<string, string>) => ({
        id: eventId,
        typeId,
        createdAt: timestamp,
      }),
    );
    const app = `/v1/apps/${service.app.appId}`;
    paths = [
      '/v1/apps',
      ...['/types', '/events', `/events/${events[0]?.id}`, '/live'].map((path) => app + path),
    ];
  });
  afterAll(() => service.stop());

  const newToken = async (appIds = [service.app.appId]): Promise<string> =>
    (await createResourceToken(service.sql, { name: 'test', appIds, expiresInSeconds: null })).resourceToken;

  const get = (path: string, authorization: string | null = `Bearer ${token}`): Promise<HttpResponse> =>
    service.request({ path, headers: { Authorization: authorization } });

  const read = async (path: string): Promise<{ body: string; data: Record<string, unknown> }> => {
    const response = await get(`/v1/apps/${service.app.appId}${path}`);
    expect(response.status, response.body).toBe(200);
    expectCommonHeaders(response);
    return { body: response.body, data: JSON.parse(response.body).data };
  };

  test('a request without a valid resource token gets 401, whatever it asks for', async () => {
    const revoked = await createResourceToken(service.sql, {
      name: 'revoked',
      appIds: [service.app.appId],
      expiresInSeconds: null,
    });
    await revokeResourceToken(service.sql, revoked.tokenId);
    const wrong = [null, 'Basic x', `Bearer ${createTokenText('tdr')}`, `Bearer ${service.app.loggingToken}`];
    for (const path of [...paths, '/v1/apps/nothing/events'])
      for (const authorization of [...wrong, `Bearer ${revoked.resourceToken}`]) {
        const response = await get(path, authorization);
        refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid resource token');
        expect(response.headers['www-authenticate']).toBe('Bearer');
      }
  });

  test("another app's token gets 403, and an app that does not exist is 404", async () => {
    const other = `Bearer ${await newToken([(await service.newApp()).appId])}`;
    for (const path of paths.slice(1)) {
      refused(await get(path, other), 403, 'ACCESS_DENIED', 'Access denied');
      const nowhere = path.replace(service.app.appId, '%00app');
      refused(await get(nowhere), 404, 'APP_NOT_FOUND', 'App not found');
    }
  });

  test('GET /v1/apps lists the apps of the token alone', async () => {
    const second = await service.newApp();
    await service.newApp();
    const response = await get('/v1/apps', `Bearer ${await newToken([second.appId, service.app.appId])}`);
    expect(JSON.parse(response.body)).toEqual({
      success: true,
      data: {
        apps: [service.app, second].map(({ appId }) => ({
          appId,
          name: 'Test app',
          createdAt: expect.stringMatching(/Z$/),
        })),
      },
    });
  });

  test('types have their counts and the time of their last event', async () => {
    const { data } = await read('/types');
    const [, a, b] = events;
    const createdAt = expect.stringMatching(/Z$/);
    const shown = { hidden: false, annotation: false };
    expect(data).toEqual({
      types: [
        {
          typeId: service.type.typeId,
          name: 'test type',
          createdAt,
          count: 0,
          lastEventAt: null,
          ...shown,
        },
        { typeId: a?.typeId, name: 'a', createdAt, count: 2, lastEventAt: a?.createdAt, ...shown },
        { typeId: b?.typeId, name: 'b', createdAt, count: 1, lastEventAt: b?.createdAt, ...shown },
      ],
    });
  });

  test('events come page by page, with their payloads as they were sent', async () => {
    const first = await read('/events?limit=2');
    const { events: page, pagination } = first.data as {
      events: { id: string }[];
      pagination: { nextCursor: string };
    };
    expect(page.map(({ id }) => id)).toEqual(events.slice(0, 2).map(({ id }) => id));
    expect(first.body).toContain(`"payload":${PAYLOADS[0]},`);
    expect(pagination).toEqual({ limit: 2, nextCursor: expect.stringMatching(/^[\w-]+$/) });
    const last = await read(`/events?limit=2&cursor=${pagination.nextCursor}`);
    expect(last.data).toEqual({ events: [{ ...events[2], payload: {} }], pagination: { limit: 2 } });
  });

  test('types are chosen by id and by name, and the total is counted on request', async () => {
    const total = async (query: string): Promise<unknown> =>
      ((await read(`/events?total=exact&limit=1&${query}`)).data.pagination as { total: number }).total;
    expect(await total('')).toBe(3);
    expect(await total('typeName=a')).toBe(2);
    expect(await total(`typeName=a&typeId=${events[2]?.typeId}`)).toBe(3);
    expect(await total(`typeName=a&typeId=${events[0]?.typeId}`)).toBe(2);
    expect(await total(`to=${events[0]?.createdAt}`)).toBe(0);
  });

  test.each(['typeName=nothing', 'typeId=typ_nothing', 'typeName=a&typeName=nothing', 'typeName=%00'])(
    'a type that the app does not have is 404: %s',
    async (query) => {
      const response = await get(`/v1/apps/${service.app.appId}/events?${query}`);
      refused(response, 404, 'EVENT_TYPE_NOT_FOUND', 'Event type not found');
    },
  );

  test.each([
    ['limit=0', 'limit'],
    ['limit=x', 'limit'],
    ['limit=1&limit=2', 'limit'],
    ['order=up', 'order'],
    ['total=1', 'total'],
    ['from=2026-02-30', 'from'],
    ['to=yesterday', 'to'],
    ['from=2026-02-01&to=2026-02-01', 'from'],
    ['cursor=x', 'cursor'],
  ])('%s is refused, and %s named', async (query, name) => {
    const response = await get(`/v1/apps/${service.app.appId}/events?${query}`);
    const { details } = refused(response, 400, 'INVALID_REQUEST', 'Invalid request parameters');
    expect(details).toMatch(new RegExp(`^${name} .*[.]$`));
  });

  test('a cursor of one order is refused in the other', async () => {
    const { data } = await read('/events?limit=1');
    const { nextCursor } = data.pagination as { nextCursor: string };
    const response = await get(`/v1/apps/${service.app.appId}/events?order=desc&cursor=${nextCursor}`);
    expect(refused(response, 400, 'INVALID_REQUEST', 'Invalid request parameters').details).toMatch(
      /^cursor /,
    );
  });

  test('one event has its type and its app', async () => {
    const { body, data } = await read(`/events/${events[1]?.id}`);
    const { payload: _, ...known } = data;
    expect(known).toEqual({ ...events[1], typeName: 'a', appId: service.app.appId });
    expect(body).toContain(`"payload":${PAYLOADS[1]},`);
    for (const id of ['x', '019c1111-2222-7333-8444-555566667777', '%00']) {
      const response = await get(`/v1/apps/${service.app.appId}/events/${id}`);
      refused(response, 404, 'EVENT_NOT_FOUND', 'Event not found');
    }
  });
});

test('members read the same in the dashboard, through the same handlers', async () => {
  const service = await sharedService();
  try {
    const owner = await newPerson(service);
    const app = await newOwnApp(owner);
    const body = `{"loggingToken":"${app.loggingToken}","typeName":"a","payload":{"a":1}}`;
    for (let n = 0; n < 3; n += 1)
      await service.request({ method: 'POST', path: '/public/create_event', body });
    const { resourceToken } = await createResourceToken(service.sql, {
      name: 'test',
      appIds: [app.appId],
      expiresInSeconds: null,
    });
    for (const path of ['/types', '/events', '/events?order=desc&limit=2&total=exact']) {
      const [ofToken, ofMember] = await Promise.all([
        service.request({
          path: `/v1/apps/${app.appId}${path}`,
          headers: { Authorization: `Bearer ${resourceToken}` },
        }),
        service.request({ path: `/api/apps/${app.appId}${path}`, headers: { Cookie: owner.cookie } }),
      ]);
      expect(ofToken.status).toBe(200);
      // Where a live feed goes on, which a token has none of.
      expect(ofMember.body.replace(/,"feed":"[^"]+"/, '')).toBe(ofToken.body);
    }
  } finally {
    await service.stop();
  }
});

test('each request counts once for the limit of its token, whatever becomes of it', async () => {
  const service = await startTestService({ database: 'shared', config: { READ_LIMIT_PER_MINUTE: 4 } });
  try {
    const { resourceToken } = await createResourceToken(service.sql, {
      name: 'test',
      appIds: [service.app.appId],
      expiresInSeconds: null,
    });
    const get = (path: string): Promise<HttpResponse> =>
      service.request({ path, headers: { Authorization: `Bearer ${resourceToken}` } });
    const app = `/v1/apps/${service.app.appId}`;
    const statuses: number[] = [];
    for (const path of ['/v1/apps', `${app}/events?limit=x`, '/v1/apps/nothing/types', `${app}/types`]) {
      const { status, headers } = await get(path);
      statuses.push(status);
      expect(headers['ratelimit-remaining']).toBe(String(4 - statuses.length));
    }
    expect(statuses).toEqual([200, 400, 404, 200]);
    const response = await get(`${app}/events`);
    refused(response, 429, 'RATE_LIMIT_EXCEEDED', 'Rate limit exceeded');
    expect(Number(response.headers['retry-after'])).toBeGreaterThan(0);
  } finally {
    await service.stop();
  }
});

test('all tokens of an account together have a limit, and those of another account have their own', async () => {
  const config = { READ_LIMIT_PER_MINUTE: 3, READ_LIMIT_TOKENS_PER_ACCOUNT: 2 };
  const service = await startTestService({ database: 'shared', config });
  try {
    const apps = await Promise.all([1, 2].map(async () => newOwnApp(await newPerson(service))));
    const [ofEve = '', ofAda = ''] = apps.map(({ appId }) => appId);
    const newToken = async (appId: string): Promise<string> =>
      (await createResourceToken(service.sql, { name: 'test', appIds: [appId], expiresInSeconds: null }))
        .resourceToken;
    const get = (appId: string, token: string): Promise<HttpResponse> =>
      service.request({ path: `/v1/apps/${appId}/types`, headers: { Authorization: `Bearer ${token}` } });
    const remaining: (string | undefined)[] = [];
    // The headers are those of the token, as long as it is what decides.
    for (const token of await Promise.all([1, 2, 3].map(() => newToken(ofEve))))
      for (let n = 0; n < 2; n += 1) remaining.push((await get(ofEve, token)).headers['ratelimit-remaining']);
    expect(remaining).toEqual(['2', '1', '2', '1', '2', '1']);
    const response = await get(ofEve, await newToken(ofEve));
    refused(response, 429, 'RATE_LIMIT_EXCEEDED', 'Rate limit exceeded');
    expect(response.headers).toMatchObject({ 'ratelimit-limit': '6', 'ratelimit-remaining': '0' });
    expect(Number(response.headers['retry-after'])).toBeGreaterThan(0);
    expect((await get(ofAda, await newToken(ofAda))).status).toBe(200);
  } finally {
    await service.stop();
  }
});
