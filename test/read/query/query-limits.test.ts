/** What queries, and series of pairs, are refused over HTTP; and what a token and an account may read. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { answered, postBatch } from '../../support/batch.ts';
import { heldLock } from '../../support/held-lock.ts';
import { postForLines } from '../../support/lines.ts';
import { newOwnApp, newPerson, type Person } from '../../support/person.ts';
import {
  hurryRounds,
  RunningClock,
  startTestService,
  type TestService,
  until,
} from '../../support/service.ts';

hurryRounds();

let service: TestService;
let owner: Person;
let appId: string;
let token: string;
const clock = new RunningClock();
const UNITS_PER_SECOND = 10;

beforeAll(async () => {
  service = await startTestService({
    clock,
    config: { READ_LIMIT_PER_MINUTE: 0, QUERY_SECONDS_PER_MINUTE: 1 },
  });
  owner = await newPerson(service, 'owner@example.com');
  const app = await newOwnApp(owner);
  ({ appId } = app);
  token = await newToken();
  const batch = Array.from({ length: 12 }, (_, i) => ({
    typeName: 'order',
    payload: {
      country: ['DE', 'FR', 'IT'][i % 3],
      plan: i % 2 === 0 ? 'pro' : 'free',
      amount: i / 4,
      user: i % 5,
    },
  }));
  answered(await postBatch(service, batch, { Authorization: `Bearer ${app.loggingToken}` }));
});
afterAll(() => service.stop());

async function newToken(): Promise<string> {
  const made = await createResourceToken(service.sql, { name: 't', appIds: [appId], expiresInSeconds: null });
  return made.resourceToken;
}

async function ask(body: unknown, bearer = token) {
  const path = `/v1/apps/${appId}/query`;
  const { status, text, headers } = await postForLines(service, path, body, {
    Authorization: `Bearer ${bearer}`,
  });
  const lines = text.trimEnd().split('\n');
  return { status, headers, body: JSON.parse(lines.at(-1) ?? '') };
}

async function get(path: string) {
  const { status, body } = await service.request({
    path: `/v1/apps/${appId}${path}`,
    headers: { Authorization: `Bearer ${token}` },
  });
  return { status, ...JSON.parse(body) };
}

test('a value that is a number alone says so where it is given as a text', async () => {
  const app = await service.newApp();
  const other = await createResourceToken(service.sql, {
    name: 'n',
    appIds: [app.appId],
    expiresInSeconds: null,
  });
  for (const n of [
    '12345678901234567890',
    '"12345678901234567890"',
    '12345678901234567890',
    '12345678901234567890',
    '"12345678901234567890"',
    '7',
  ]) {
    const body = `{"loggingToken":"${app.loggingToken}","typeName":"n","payload":{"n":${n}}}`;
    expect((await service.request({ method: 'POST', path: '/public/create_event', body })).status).toBe(201);
  }
  const { body } = await service.request({
    path: `/v1/apps/${app.appId}/fields/values?path=n`,
    headers: { Authorization: `Bearer ${other.resourceToken}` },
  });
  expect(JSON.parse(body).data.values).toEqual([
    { value: '12345678901234567890', valueIsNumber: true, events: 3 },
    { value: '12345678901234567890', events: 2 },
    { value: 7, events: 1 },
  ]);
});

test('an interval that is compared with and ends where it begins says that its end is exclusive', async () => {
  const chart = async (from: string, to: string) =>
    await owner.get(
      `/api/apps/${appId}/series?from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00Z&compareFrom=${from}&compareTo=${to}`,
    );
  const [day, next] = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'];
  expect((await chart(day, day)).text).toMatch(
    /compareFrom must be before compareTo: compareTo is exclusive, .* choose compareTo=2026-01-02\./,
  );
  expect((await chart(next, day)).text).toContain('compareFrom must be before compareTo.');
  expect((await chart(day, next)).status).toBe(200);
});

test.each<[unknown, string, RegExp]>([
  [{ by: 'order..country' }, 'by', /"order..country" is wrong at column 7/],
  [{ by: ['a', 'b', 'c', 'd'] }, 'by', /at most 3 paths, and has 4/],
  [{ by: ['a', '"a"'] }, 'by', /more than once/],
  [{ by: 7 }, 'by', /a text or a list of texts/],
  [{ filter: 'status=500' }, 'filter', /one of : < <= > >= must follow/],
  [{ stats: ['sum'] }, 'stats', /\{"of":"amount","stat":"sum"\}/],
  [{ stats: [{ of: 'amount', stat: 'median' }] }, 'stats', /p50, p90, p95, p99/],
  [{ stats: [{ of: '.', stat: 'sum' }] }, 'stats', /paths such as order.country/],
  [{ interval: '2h' }, 'interval', /must be auto, 1m/],
  [{ interval: '1m', from: '2026-01-01', to: '2026-02-01' }, 'interval', /must be 1h or wider/],
  [{ interval: 'auto', to: '9998-12-31' }, 'to', /must be at most 1,000 months after from/],
  [
    { interval: '1d', from: '2025-01-01', to: '2026-01-01', by: 'a', limit: 1_000 },
    'limit',
    /must be at most 273 with 365 buckets.*100,000 rows/,
  ],
  [{ limit: 0 }, 'limit', /from 1 to 10000/],
  [{ from: '2026-02-01', to: '2026-01-01' }, 'from', /must be before to\.$/],
  [
    { from: '2026-01-31', to: '2026-01-31' },
    'from',
    /to is exclusive, and a date is its midnight: .* to=2026-02-01\.$/,
  ],
  [{ from: 'yesterday' }, 'from', /ISO 8601/],
  [{ timezone: 'Mars/Base' }, 'timezone', /IANA/],
  [{ groupBy: 'a', filters: [] }, 'groupBy', /is not one of this route/],
  [{ filters: [] }, 'filters', /did you mean filter\?/],
])('400: %j', async (body, param, details) => {
  const refused = await ask(body);
  expect(refused).toMatchObject({ status: 400, body: { param, code: 'INVALID_REQUEST' } });
  expect(refused.body.details).toMatch(details);
  clock.advance(60_000);
});

test('400 for what is no object in JSON, 404 for a type that the app does not have', async () => {
  expect((await ask('[]')).body.details).toContain('a JSON object');
  expect((await ask('{"by":')).body.details).toContain('not valid JSON');
  expect(await ask({ typeName: 'nothing' })).toMatchObject({
    status: 404,
    body: { code: 'EVENT_TYPE_NOT_FOUND' },
  });
  clock.advance(60_000);
});

test('without a token, with one of another app, and from another site', async () => {
  const path = `/v1/apps/${appId}/query`;
  expect((await postForLines(service, path, {}, {})).status).toBe(401);
  const other = await service.newApp();
  const { resourceToken } = await createResourceToken(service.sql, {
    ...{ name: 'other', appIds: [other.appId], expiresInSeconds: null },
  });
  expect((await postForLines(service, path, {}, { Authorization: `Bearer ${resourceToken}` })).status).toBe(
    403,
  );
  const foreign = await owner.post(
    `/api/apps/${appId}/query`,
    {},
    { headers: { Origin: 'https://evil.example' } },
  );
  expect(foreign).toMatchObject({ status: 403, code: 'CROSS_ORIGIN' });
});

test('a token has its budget, an account twice as much, and both have it again after a minute', async () => {
  clock.advance(60_000);
  const tokens = [token, await newToken(), await newToken()];
  const until429 = async (bearer: string): Promise<number> => {
    for (let accepted = 0; ; accepted += 1) {
      const { status, headers, body } = await ask({ by: 'plan' }, bearer);
      if (status === 200) continue;
      expect([status, body.code]).toEqual([429, 'RATE_LIMIT_EXCEEDED']);
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
      return accepted;
    }
  };
  const accepted = [];
  for (const bearer of tokens) accepted.push(await until429(bearer));
  // Each takes at least a tenth of a second of the budget.
  expect(accepted[0]).toBeGreaterThan(0);
  expect(accepted[0]).toBeLessThanOrEqual(UNITS_PER_SECOND);
  expect(accepted[2]).toBe(0);
  clock.advance(61_000);
  expect((await ask({ by: 'plan' }, tokens[2])).status).toBe(200);
  const { body } = await service.request({ path: '/metrics' });
  expect(body).toMatch(/tidemark_query_budget_spent_total\{outcome="refused"\} [1-9]/);
});

test('a client that goes frees its reader, though the database has not answered', async () => {
  clock.advance(61_000);
  const lock = await heldLock(service.sql, 'events', 'ACCESS EXCLUSIVE');
  const aborter = new AbortController();
  const running = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return Number(/^tidemark_reads_running\{kind="query"\} (\d+)/m.exec(body)?.[1]);
  };
  try {
    const asked = fetch(`${service.url}/v1/apps/${appId}/query`, {
      ...{ method: 'POST', body: JSON.stringify({ by: ['plan', 'country'], from: '2026-01-01' }) },
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      signal: aborter.signal,
    }).then((response) => response.text());
    asked.catch(() => undefined);
    await until(async () => (await running()) === 1, 'the query reads');
    aborter.abort();
    await until(async () => (await running()) === 0, 'its reader is free');
    await expect(asked).rejects.toThrow();
  } finally {
    await lock.release();
  }
});

test('pairs answer series, and a refusal says which declaration would', async () => {
  const refused = await get('/series?of=amount&stat=sum&by=country');
  expect(refused).toMatchObject({
    status: 400,
    param: 'of',
    declare: '--path amount --kind number --by country',
  });
  expect((await get('/series?by=country&filter=plan:pro')).declare).toBe('--path country --by plan');
  expect((await get('/series?of=user&stat=distinct')).declare).toBe('--path user --kind distinct');
  for (const field of [
    { path: 'amount', kind: 'number', by: 'country' },
    { path: 'country', kind: 'value', by: 'plan' },
    { path: 'user', kind: 'distinct' },
  ])
    expect(
      (await owner.post(`/api/apps/${appId}/declared-fields`, { ...field, backfill: true })).status,
    ).toBe(201);
  const ready = async (query: string): Promise<boolean> => (await get(`/series?${query}`)).status === 200;
  for (const query of [
    'of=amount&stat=sum&by=country',
    'by=country&filter=plan:pro',
    'of=user&stat=distinct',
  ])
    await until(() => ready(query), query);
  const { data } = await get('/series?of=amount&stat=sum&by=country');
  const [sums, counts] = [new Map<unknown, number>(), new Map<unknown, number>()];
  for (const row of data.overall) {
    sums.set(row.value, row.sum);
    counts.set(row.value, row.count);
  }
  expect([...sums]).toEqual(
    expect.arrayContaining([
      ['DE', 4.5],
      ['FR', 5.5],
      ['IT', 6.5],
    ]),
  );
  expect(counts.get('DE')).toBe(4);
  const pro = (await get('/series?by=country&filter=plan:pro')).data.series as {
    value?: string;
    count: number;
  }[];
  const total = pro.filter(({ value }) => value === 'DE').reduce((sum, { count }) => sum + count, 0);
  expect(total).toBe(2);
  expect((await get('/series?of=user&stat=distinct')).data.overall).toMatchObject({
    distinct: 5,
    exact: true,
  });
  // A statistic that the kind does not have.
  const wrong = await get('/series?of=user&stat=sum');
  expect(wrong).toMatchObject({ status: 400, param: 'of', declare: '--path user --kind number' });
  expect(wrong.details).toContain('the number of its different values');
  // And the query is answered by them.
  clock.advance(61_000);
  const counted = await ask({ by: 'country', filter: 'plan:pro' });
  expect(counted.body).toMatchObject({ counted: true, events: 6 });
});
