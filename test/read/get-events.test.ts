import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { PublicIds } from '../../src/apps/public-ids.ts';
import { ResourceTokens } from '../../src/apps/resource-token-lookup.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { Window } from '../../src/base/window.ts';
import { Exchange, type Outcome } from '../../src/http/exchange.ts';
import { ReadSlots } from '../../src/http/read-slots.ts';
import { createGetEvents } from '../../src/read/get-events.ts';
import { ResourceTokenAccess } from '../../src/read/resource-token-access.ts';
import { ensurePartitions } from '../../src/storage/engines/postgres/maintenance.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { exchangeLimits } from '../support/exchange-limits.ts';
import { insertSelected } from '../support/insert-selected.ts';

const AT = Date.UTC(2026, 0, 31, 8, 30, 15, 123);
const ID = '019c1111-2222-7333-8444-555566667777';
const PAYLOAD = '{ "n":1e400, "n":-0, "text":"\\u0000ü" }';
const READS_PER_MINUTE = 5;

let database: TestDatabase;
let authorization: string;
let getEvents: (exchange: Exchange) => Promise<Outcome>;

beforeAll(async () => {
  database = await testDatabase();
  const { sql } = database;
  await sql`INSERT INTO apps (public_id, name) VALUES ('app_a', 'A'), ('app_b', 'B')`;
  await sql`INSERT INTO event_types (public_id, app_id, name)
            SELECT 'typ_' || lower(name), id, name FROM apps`;
  await ensurePartitions(sql, AT, AT);
  const row = sql`
    SELECT ${ID}::uuid, app_id, id, ${AT}::timestamptz, ${PAYLOAD}::text::json
      FROM event_types WHERE public_id = 'typ_a'`;
  await insertSelected(sql, database.engine, row);
  const token = await createResourceToken(sql, { name: 'test', appIds: ['app_a'], expiresInSeconds: null });
  authorization = `Bearer ${token.resourceToken}`;
});
afterAll(() => database.drop());

beforeEach(async () => {
  const { sql } = database;
  const common = { sql, cacheMs: 1_000, now: () => AT };
  const apps = new PublicIds(common);
  const access = new ResourceTokenAccess({
    resourceTokens: new ResourceTokens({ ...common, onError: (error) => expect.unreachable(String(error)) }),
    limiter: new Window<number>({ limit: READS_PER_MINUTE, now: () => 0 }),
    limiterOfAccounts: new Window<number>({ limit: 0, now: () => 0 }),
    apps,
  });
  const { reader } = await openStorage(sql);
  getEvents = createGetEvents({
    access,
    slots: new ReadSlots({ places: 4, maxWaiting: 10, sql, reader }),
    apps,
    maxPageBytes: 1_000_000,
  });
});

function exchangeOf(query: string, header: string): Exchange {
  const wire = {
    method: 'GET',
    path: '/public/get_events',
    remoteAddress: '127.0.0.1',
    query,
    header: (name: string) => (name === 'authorization' ? header : ''),
    pauseBody: () => undefined,
    resumeBody: () => undefined,
    readBody: () => expect.unreachable('a read has no body'),
    respond: () => expect.unreachable('the server answers, not the handler'),
    stream: () => expect.unreachable('the server answers, not the handler'),
  };
  return new Exchange(wire, 'id', 0, [], exchangeLimits(1), () => undefined);
}

/** Status and parsed body of the answer. */
async function get(query: string, header = authorization) {
  const outcome = await getEvents(exchangeOf(query, header));
  if ('open' in outcome) expect.unreachable('a page is a whole answer');
  const text = outcome.body.toString();
  return { status: outcome.status, text, body: JSON.parse(text) as unknown };
}

test('a page has the form of the contract, with the payload as the text that was sent', async () => {
  const { status, text, body } = await get('appId=app_a&limit=5000');
  expect(status).toBe(200);
  expect(text).toContain(`"payload":${PAYLOAD}`);
  expect(body).toEqual({
    success: true,
    data: {
      events: [
        { id: ID, typeId: 'typ_a', createdAt: '2026-01-31T08:30:15.123Z', payload: expect.any(Object) },
      ],
      pagination: { total: 1, limit: 1_000, offset: 0, hasMore: false },
    },
  });
});

test.each([
  'typeId=typ_b',
  'typeId=none',
  'typeId=%00',
  `typeId=${'x'.repeat(5_000)}`,
  'offset=1',
  'endDate=2026-01-30',
])('%.40s gives an empty page', async (query) => {
  const { status, body } = await get(`appId=app_a&${query}`);
  expect(status).toBe(200);
  expect(body).toMatchObject({ data: { events: [], pagination: { hasMore: false } } });
});

test.each(['none', '%00', '%zz', '%ff', 'x'.repeat(5_000), '__proto__'])(
  'the app %.10s does not exist',
  async (appId) => {
    expect(await get(`appId=${appId}`)).toMatchObject({ status: 404, body: { code: 'APP_NOT_FOUND' } });
  },
);

test('the checks come in the order token, rate limit, parameters, app, permission', async () => {
  expect((await get('limit=0', 'Bearer x')).status).toBe(401);
  expect((await get('appId=none&limit=0')).status).toBe(400);
  expect((await get('appId=none')).status).toBe(404);
  expect((await get('appId=app_b')).status).toBe(403);
  for (let i = 3; i < READS_PER_MINUTE; i += 1) expect((await get('appId=app_a')).status).toBe(200);
  expect((await get('limit=0')).status).toBe(429);
  expect((await get('', 'Bearer x')).status).toBe(401);
});

test('every response after the token is known has the rate limit headers, and a 429 says when to retry', async () => {
  const first = exchangeOf('', authorization);
  await getEvents(first);
  expect(first.rateLimit).toMatchObject({
    accepted: true,
    limit: READS_PER_MINUTE,
    remaining: READS_PER_MINUTE - 1,
  });
  for (let i = 1; i < READS_PER_MINUTE; i += 1) await get('');
  const refused = exchangeOf('appId=app_a', authorization);
  expect(await getEvents(refused)).toMatchObject({
    reason: 'rateLimitExceeded',
    headers: { 'Retry-After': '60' },
  });
  expect(refused.rateLimit).toMatchObject({ accepted: false, remaining: 0 });
});
