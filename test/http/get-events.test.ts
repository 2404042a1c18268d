import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken, revokeResourceToken } from '../../src/apps/resource-tokens.ts';
import { startTestService, TestClock, type TestService } from '../support/service.ts';

const START = Date.UTC(2026, 0, 31, 23, 59, 58);
const PATH = '/public/get_events';

interface Page {
  readonly success: boolean;
  readonly data: {
    readonly events: readonly { id: string; typeId: string; createdAt: string; payload: { n: number } }[];
    readonly pagination: { total: number; limit: number; offset: number; hasMore: boolean };
  };
}

describe('GET /public/get_events', () => {
  const clock = new TestClock(START);
  let service: TestService;
  let token: string;
  let otherAppId: string;

  beforeAll(async () => {
    service = await startTestService({ clock, config: { READ_LIMIT_PER_MINUTE: 0 } });
    token = await newToken();
    otherAppId = (await service.newApp()).appId;
    // Ten events, a second apart, over the end of a month; every other one of a second type.
    for (let n = 0; n < 10; n += 1) {
      const type = n % 2 === 0 ? {} : { typeId: undefined, typeName: 'odd' };
      expect((await service.post({ ...type, payload: { n } })).status).toBe(201);
      clock.advance(1_000);
    }
  });
  afterAll(() => service.stop());

  async function newToken(expiresInSeconds: number | null = null): Promise<string> {
    const made = { name: 'reader', appIds: [service.app.appId], expiresInSeconds };
    return (await createResourceToken(service.sql, made)).resourceToken;
  }

  const read = (query: string, authorization: string | null = `Bearer ${token}`) =>
    service.request({
      method: 'GET',
      path: `${PATH}?${query}`,
      ...(authorization !== null && { headers: { Authorization: authorization } }),
    });

  /** The numbers of the events of a page of the app. */
  async function numbers(query: string): Promise<readonly number[]> {
    const answer = await read(`appId=${service.app.appId}&${query}`);
    expect(answer.status).toBe(200);
    const page: Page = JSON.parse(answer.body);
    return page.data.events.map((event) => event.payload.n);
  }

  test('a page has the contract’s fields and the events in the order of their time', async () => {
    const answer = await read(`appId=${service.app.appId}`);
    const page: Page = JSON.parse(answer.body);
    expect(page.success).toBe(true);
    expect(page.data.pagination).toEqual({ total: 10, limit: 100, offset: 0, hasMore: false });
    expect(page.data.events.map(({ payload }) => payload.n)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(Object.keys(page.data.events[0] ?? {}).sort()).toEqual(['createdAt', 'id', 'payload', 'typeId']);
    expect(page.data.events[0]?.createdAt).toBe(new Date(START).toISOString());
  });

  test('offset and limit page through everything, and hasMore ends it', async () => {
    const seen: number[] = [];
    for (let hasMore = true; hasMore; ) {
      const answer = await read(`appId=${service.app.appId}&limit=4&offset=${seen.length}`);
      const page: Page = JSON.parse(answer.body);
      seen.push(...page.data.events.map(({ payload }) => payload.n));
      hasMore = page.data.pagination.hasMore;
    }
    expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await numbers('offset=1000000000000000')).toEqual([]);
  });

  test.each([
    ['order=desc&limit=3', [9, 8, 7]],
    ['order=desc&limit=3&offset=8', [1, 0]],
    ['endDate=2026-01-31', [0, 1]],
    ['startDate=2026-02-01', [2, 3, 4, 5, 6, 7, 8, 9]],
    ['startDate=2026-01-31T23:59:59.000Z&endDate=2026-02-01T00:00:01.000Z', [1, 2, 3]],
    ['startDate=2026-02-01T00:59:59%2B01:00&endDate=2026-02-01T01:00:00+01:00', [1, 2]],
    ['startDate=2026-01-31T23:59:59.001&endDate=2026-01-31T23:59:59.999', []],
    ['typeId=&startDate=&endDate=&unknown=1&limit=1', [0]],
    ['typeId=typ_unknown', []],
  ])('%s', async (query, expected) => {
    expect(await numbers(query)).toEqual(expected);
  });

  test('a type has its own total', async () => {
    const page: Page = JSON.parse(
      (await read(`appId=${service.app.appId}&typeId=${service.type.typeId}&limit=2`)).body,
    );
    expect(page.data.pagination).toEqual({ total: 5, limit: 2, offset: 0, hasMore: true });
    expect(page.data.events.map(({ payload }) => payload.n)).toEqual([0, 2]);
  });

  test('a limit above 1,000 is applied and shown as 1,000', async () => {
    const page: Page = JSON.parse((await read(`appId=${service.app.appId}&limit=5000`)).body);
    expect(page.data.pagination.limit).toBe(1_000);
  });

  test.each([
    ['limit=0', 'limit'],
    ['limit=1.5', 'limit'],
    ['offset=-1', 'offset'],
    ['offset=x', 'offset'],
    ['startDate=2026-02-30', 'startDate'],
    ['endDate=yesterday', 'endDate'],
    ['startDate=2026-02-02&endDate=2026-02-01', 'startDate'],
    ['limit=1&limit=2', 'limit'],
    ['order=up', 'order'],
    ['typeId=%00', 'typeId'],
  ])('%s is refused with 400, or answered, and names the parameter', async (query, name) => {
    const answer = await read(`appId=${service.app.appId}&${query}`);
    if (name === 'typeId') {
      expect([200, 400]).toContain(answer.status);
      return;
    }
    expect(answer.status).toBe(400);
    const body: unknown = JSON.parse(answer.body);
    expect(body).toMatchObject({
      success: false,
      error: 'Invalid request parameters',
      code: 'INVALID_REQUEST',
    });
    expect(body).toMatchObject({ details: expect.stringContaining(name) });
  });

  test('tokens: missing, junk, logging, expired and revoked ones are 401 with WWW-Authenticate', async () => {
    const expiring = await newToken(60);
    // By the service's clock, which is not the database's here.
    await service.sql`UPDATE resource_tokens SET expires_at = ${new Date(clock.wall() - 1)} WHERE expires_at IS NOT NULL`;
    const revoked = await newToken();
    const [row] = await service.sql<
      { id: string }[]
    >`SELECT public_id AS id FROM resource_tokens ORDER BY resource_tokens.id DESC LIMIT 1`;
    await revokeResourceToken(service.sql, row?.id ?? '');
    const bad = [
      null,
      'Bearer junk',
      `Bearer ${service.app.loggingToken}`,
      `Bearer ${expiring}`,
      `Bearer ${revoked}`,
    ];
    for (const authorization of bad) {
      const answer = await read(`appId=${service.app.appId}`, authorization);
      expect(answer.status).toBe(401);
      expect(answer.headers['www-authenticate']).toMatch(/^Bearer/);
      expect(JSON.parse(answer.body)).toMatchObject({
        error: 'Invalid resource token',
        code: 'AUTH_INVALID_TOKEN',
      });
    }
    expect((await read(`appId=${service.app.appId}&token=${token}`, null)).status).toBe(401);
  });

  test.each([
    ['offset=1000000000000000000', 400],
    ['offset=-1', 400],
    ['limit=%00', 400],
    ['startDate=%zz', 400],
    ['startDate=%00', 400],
    ["endDate='", 400],
    ['endDate=%2B275760-09-13', 400],
    ['endDate=-000001-01-01', 400],
    ['startDate=0000-01-01', 200],
    ["typeId='%3B--", 200],
    ['typeId=%00', 200],
    ['typeId=%zz', 200],
    ['typeId=%FF', 200],
  ])('security 20: %s is answered with %i, without a word of SQL', async (query, status) => {
    const answer = await read(`appId=${service.app.appId}&${query}`);
    expect(answer.status).toBe(status);
    expect(answer.body).not.toMatch(/SELECT|syntax|postgres|invalid byte/i);
  });

  test("security 20: an appId of ', %00 or %zz is one that is not there", async () => {
    for (const appId of ["'", '%00', '%zz', '%FF', '%ED%A0%80'])
      expect((await read(`appId=${appId}`)).status).toBe(404);
  });

  test('an unknown app is 404, one that the token may not read 403; parameters are checked before', async () => {
    expect((await read('appId=app_unknown')).status).toBe(404);
    expect((await read(`appId=${otherAppId}`)).status).toBe(403);
    expect((await read('appId=app_unknown&limit=0')).status).toBe(400);
    expect(JSON.parse((await read('')).body)).toMatchObject({ details: expect.stringContaining('appId') });
  });
});

test('of 101 reads of a token in a minute the last is 429, and another token is not affected', async () => {
  const clock = new TestClock(START);
  const service = await startTestService({ clock });
  try {
    const made = { name: 'reader', appIds: [service.app.appId], expiresInSeconds: null };
    const [one, two] = [
      await createResourceToken(service.sql, made),
      await createResourceToken(service.sql, made),
    ];
    const status = async (token: string): Promise<number> => {
      const headers = { Authorization: `Bearer ${token}` };
      return (
        await service.request({ method: 'GET', path: `${PATH}?appId=${service.app.appId}&limit=0`, headers })
      ).status;
    };
    // A read counts once its token is known to be good, whatever becomes of it.
    for (let i = 0; i < 100; i += 1) expect(await status(one.resourceToken)).toBe(400);
    expect(await status(one.resourceToken)).toBe(429);
    expect(await status(two.resourceToken)).toBe(400);
    clock.advance(60_000);
    expect(await status(one.resourceToken)).toBe(400);
  } finally {
    await service.stop();
  }
});
