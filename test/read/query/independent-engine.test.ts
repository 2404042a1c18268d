/** The same questions asked of an independent engine, DuckDB, over an export of the very events: the answers are equal. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type DuckDBConnection, DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { QueryGroup, QueryLine } from '../../../src/api-types/answers.ts';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { answered, postBatch } from '../../support/batch.ts';
import { seededRandom } from '../../support/field-oracle.ts';
import { postForLines } from '../../support/lines.ts';
import { newOwnApp, newPerson } from '../../support/person.ts';
import { hurryRounds, startTestService, type TestService, until } from '../../support/service.ts';

hurryRounds();

const EVENTS = 2_000;
const MONTHS = ['2026-08', '2026-09', '2026-10'];
const RANGE = { from: '2026-08-01', to: '2026-11-01' };
const FIELDS = [
  { path: 'country', kind: 'value', by: 'plan' },
  { path: 'user.id', kind: 'distinct' },
  { path: 'tokens', kind: 'number', by: 'customer' },
  { path: 'ms', kind: 'number' },
];

let service: TestService;
let appId: string;
let token: string;
let folder: string;
let duck: DuckDBConnection;

beforeAll(async () => {
  service = await startTestService({ config: { READ_LIMIT_PER_MINUTE: 0, QUERY_SECONDS_PER_MINUTE: 0 } });
  const owner = await newPerson(service, 'owner@example.com');
  const app = await newOwnApp(owner);
  ({ appId } = app);
  const made = await createResourceToken(service.sql, { name: 't', appIds: [appId], expiresInSeconds: null });
  token = made.resourceToken;
  for (const field of FIELDS)
    expect(
      (await owner.post(`/api/apps/${appId}/declared-fields`, { ...field, backfill: true })).status,
    ).toBe(201);
  const random = seededRandom(20_261_126);
  const lines = Array.from({ length: EVENTS }, (_, i) => {
    const day = `${MONTHS[random(3)]}-${String(1 + random(3)).padStart(2, '0')}`;
    const hour = String(random(24)).padStart(2, '0');
    // More digits than a double has: written as text, because JSON.stringify would round them.
    const tokens = `${random(1_000_000)}${String(random(1_000_000_000)).padStart(9, '0')}.${1 + random(9)}`;
    const payload = {
      ...{ user: { id: `u${(i * 7) % 1_399}` }, customer: `c${random(12)}`, ms: 1 + random(100_000) },
      ...(random(8) > 0 && { country: ['DE', 'FR', 'IT'][random(3)] }),
      ...(random(5) > 0 && { plan: ['pro', 'free'][random(2)] }),
    };
    const text = JSON.stringify(payload).replace(
      /}$/,
      `,"tokens":${BigInt(tokens.split('.')[0] ?? '0')}.${tokens.split('.')[1]}}`,
    );
    return `{"typeName":"order","createdAt":"${day}T${hour}:15:00.000Z","payload":${text}}`;
  });
  const headers = { Authorization: `Bearer ${app.loggingToken}` };
  answered(await postBatch(service, `{"events":[${lines.join(',')}]}`, headers));
  folder = await mkdtemp(join(tmpdir(), 'tidemark-duckdb-'));
  const file = join(folder, 'export.ndjson');
  const response = await fetch(`${service.url}/v1/apps/${appId}/export`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  await writeFile(file, await response.text());
  duck = await (await DuckDBInstance.create(':memory:', { threads: '1' })).connect();
  // Whole lines: DuckDB's own reader of JSON makes doubles of numbers.
  await duck.run(`
    CREATE TABLE events AS
    SELECT (line->>'$.createdAt')::TIMESTAMP AS moment, line->>'$.payload.country' AS country, line->>'$.payload.plan' AS plan,
           line->>'$.payload.user.id' AS user_id, line->>'$.payload.customer' AS customer, (line->>'$.payload.ms')::DOUBLE AS ms,
           regexp_extract(line, '"tokens":([0-9.]+)', 1)::DECIMAL(38, 6) AS tokens
      FROM read_csv('${file}', delim = '\x01', header = false, quote = '', escape = '', columns = {line: 'VARCHAR'})`);
  expect(await rows('SELECT count(*)::INTEGER AS count FROM events')).toEqual([{ count: EVENTS }]);
});
afterAll(async () => {
  duck.closeSync();
  await rm(folder, { recursive: true });
  await service.stop();
});

async function rows(sql: string): Promise<Record<string, unknown>[]> {
  return (await duck.runAndReadAll(sql)).getRowObjectsJson();
}

interface Row {
  readonly start: string;
  readonly value?: string;
  readonly other?: true;
  readonly [stat: string]: unknown;
}

/** A series, once its fields are counted. */
async function series(query: Record<string, string>): Promise<{ series: Row[]; overall: Row }> {
  let body = '';
  await until(async () => {
    const reply = await service.request({
      path: `/v1/apps/${appId}/series?${new URLSearchParams({ ...RANGE, ...query })}`,
      headers: { Authorization: `Bearer ${token}` },
    });
    ({ body } = reply);
    return reply.status === 200;
  }, 'the fields are counted');
  return JSON.parse(body).data;
}

async function query(body: object): Promise<QueryLine> {
  const headers = { Authorization: `Bearer ${token}` };
  const { status, text } = await postForLines(
    service,
    `/v1/apps/${appId}/query`,
    { ...RANGE, ...body },
    headers,
  );
  expect(status).toBe(200);
  return JSON.parse(text.trimEnd().split('\n').at(-1) ?? '');
}

/** Exact, whatever its zeros. */
function decimal(value: unknown): string {
  const text = String(value);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

test('different values by month and of the whole range', async () => {
  const { series: found, overall } = await series({ of: 'user.id', stat: 'distinct', interval: '1M' });
  const wanted =
    await rows(`SELECT strftime(moment, '%Y-%m') AS month, count(DISTINCT user_id)::INTEGER AS users
                               FROM events GROUP BY 1 ORDER BY 1`);
  expect(found.map(({ start, distinct }) => ({ month: start.slice(0, 7), users: distinct }))).toEqual(wanted);
  const [all] = await rows('SELECT count(DISTINCT user_id)::INTEGER AS users FROM events');
  // Beyond 1,024 it is an estimate: three standard errors.
  const users = Number(all?.users);
  expect(users).toBeGreaterThan(1_024);
  expect(overall.exact).toBe(false);
  expect(Math.abs(Number(overall.distinct) - users)).toBeLessThanOrEqual(users * 0.025);
});

test('pairs of values by day', async () => {
  const { series: found } = await series({ by: 'country', filter: 'plan:pro', interval: '1d' });
  const shown = found
    .filter(({ value, count }) => value !== undefined && count !== 0)
    .map(({ start, value, count }) => ({ day: start.slice(0, 10), country: value, count }));
  const wanted = await rows(`SELECT strftime(moment, '%Y-%m-%d') AS day, country, count(*)::INTEGER AS count
                               FROM events WHERE plan = 'pro' AND country IS NOT NULL GROUP BY 1, 2`);
  expect(shown).toHaveLength(wanted.length);
  expect(shown).toEqual(expect.arrayContaining(wanted));
});

test('sums of 15 digits by customer and month', async () => {
  const { series: found } = await series({ of: 'tokens', stat: 'sum', by: 'customer', interval: '1M' });
  const shown = found
    .filter(({ value }) => value !== undefined)
    .map(({ start, value, sum }) => ({ month: start.slice(0, 7), customer: value, sum: decimal(sum) }));
  const wanted = await rows(`SELECT strftime(moment, '%Y-%m') AS month, customer, sum(tokens)::VARCHAR AS sum
                               FROM events GROUP BY 1, 2`);
  expect(shown).toHaveLength(wanted.length);
  expect(shown).toEqual(expect.arrayContaining(wanted.map((row) => ({ ...row, sum: decimal(row.sum) }))));
});

test('a percentile within its error', async () => {
  const { overall } = await series({ of: 'ms', stat: 'p95', interval: '1M' });
  const [exact] = await rows('SELECT list_sort(list(ms))[ceil(0.95 * count(*))::INTEGER] AS p95 FROM events');
  const p95 = Number(exact?.p95);
  expect(Math.abs(Number(overall.p95) - p95)).toBeLessThanOrEqual(p95 * 0.01);
});

test('a query that nothing was declared for, by three paths and under two conditions', async () => {
  const line = await query({
    filter: ['ms>=20000', '-customer:c3'],
    ...{ by: ['country', 'plan', 'customer'], limit: 1_000 },
    stats: [
      'count',
      { of: 'tokens', stat: 'sum' },
      { of: 'user.id', stat: 'distinct' },
      { of: 'ms', stat: 'max' },
    ],
  });
  expect([line.counted, line.complete]).toEqual([false, true]);
  const shown = line.groups.map(({ by, count, of }: QueryGroup) => ({
    ...{ country: by?.country ?? null, plan: by?.plan ?? null, customer: by?.customer ?? null, count },
    ...{ sum: decimal(of?.tokens?.sum), users: of?.['user.id']?.distinct, most: of?.ms?.max },
  }));
  const wanted = await rows(`
    SELECT country, plan, customer, count(*)::INTEGER AS count, sum(tokens)::VARCHAR AS sum,
           count(DISTINCT user_id)::INTEGER AS users, max(ms) AS most
      FROM events WHERE ms >= 20000 AND customer <> 'c3' GROUP BY 1, 2, 3`);
  expect(wanted.length).toBeGreaterThan(100);
  expect(shown).toHaveLength(wanted.length);
  expect(shown).toEqual(expect.arrayContaining(wanted.map((row) => ({ ...row, sum: decimal(row.sum) }))));
});

test('a query by months', async () => {
  const { groups } = await query({ by: 'plan', stats: [{ of: 'tokens', stat: 'sum' }], interval: '1M' });
  const shown = groups.flatMap(({ by, series: buckets = [] }) =>
    buckets.map(({ start, count, of }) => ({
      ...{ plan: by?.plan ?? null, month: start.slice(0, 7), count, sum: decimal(of?.tokens?.sum) },
    })),
  );
  const wanted =
    await rows(`SELECT plan, strftime(moment, '%Y-%m') AS month, count(*)::INTEGER AS count, sum(tokens)::VARCHAR AS sum
                               FROM events GROUP BY 1, 2`);
  expect(shown).toHaveLength(wanted.length);
  expect(shown).toEqual(expect.arrayContaining(wanted.map((row) => ({ ...row, sum: decimal(row.sum) }))));
});
