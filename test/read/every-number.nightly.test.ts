/**
 * Numbers as they are answered over /v1 and /api, each against the same computed here from the list of what was sent: for ranges that
 * begin and end within buckets, days of daylight saving time, types, conditions, values and statistics.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Series } from '../../src/api-types/answers.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

interface Sent {
  readonly at: number;
  readonly type: string;
  readonly payload: {
    readonly country?: unknown;
    readonly plan: string;
    readonly ms?: unknown;
    readonly user: string;
  };
}

const HOUR_MS = 3_600_000;
const START = Date.parse('2026-10-12T22:17:31.250Z');
const HOURS = 21 * 24;
const TYPES = ['page viewed', 'order placed', 'payment failed'];
/** Values that are easily taken for each other, and none. */
const COUNTRIES = ['DE', 'FR', '5', 5, true, 'true', null, undefined, '(none)', 'other', ['DE', 'FR']];
/** What a value is filtered by: it alone. */
const FILTERS: Readonly<Record<string, (payload: Sent['payload']) => boolean>> = {
  'country:"DE"': ({ country }) => country === 'DE' || Array.isArray(country),
  'country:"5"': ({ country }) => country === '5',
  'country==5': ({ country }) => country === 5,
  'country==true': ({ country }) => country === true,
  'country:DE,FR': ({ country }) => ['DE', 'FR'].includes(String(country)) || Array.isArray(country),
  'plan:pro': ({ plan }) => plan === 'pro',
};
const RANGES: readonly (readonly [from: string, to: string])[] = [
  ['2026-10-13T00:00:00Z', '2026-10-14T00:00:00Z'],
  ['2026-10-14T09:13:20.5Z', '2026-10-14T11:47:03.001Z'],
  ['2026-10-18T22:00:00Z', '2026-10-25T23:00:00Z'],
  ['2026-10-24T12:00:00Z', '2026-10-26T12:00:00Z'],
  ['2026-10-01T00:00:00Z', '2026-11-05T00:00:00Z'],
];

let service: TestService;
let owner: Person;
let appId: string;
let token: string;
const sent: Sent[] = [];
let checked = 0;

beforeAll(async () => {
  service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
  owner = await newPerson(service, 'owner@example.com');
  const app = await newOwnApp(owner);
  ({ appId } = app);
  for (const field of [
    ...[
      { path: 'country', kind: 'value' },
      { path: 'plan', kind: 'value' },
      { path: 'ms', kind: 'number' },
    ],
    ...[
      { path: 'ms', kind: 'number', by: 'plan' },
      { path: 'user', kind: 'distinct' },
    ],
  ])
    expect((await owner.post(`/api/apps/${appId}/declared-fields`, field)).status).toBe(201);
  // About ten an hour, in no order of time within a request.
  for (let n = 0; n < HOURS * 10; n += 1) {
    const country = COUNTRIES[(n * n) % COUNTRIES.length];
    const ms = n % 9 === 0 ? `${n}` : n % 11 === 0 ? undefined : ((n * 7_919) % 10_007) / 8;
    const payload = {
      ...(country !== undefined && { country }),
      plan: n % 3 === 0 ? 'pro' : 'free',
      ms,
      user: `u${(n * 31) % 499}`,
    };
    sent.push({ at: START + ((n * 2_654_435) % (HOURS * HOUR_MS)), type: TYPES[(n % 7) % 3] ?? '', payload });
  }
  for (let at = 0; at < sent.length; at += 1_000) {
    const events = sent.slice(at, at + 1_000).map(({ type: typeName, payload, at: time }) => {
      return { typeName, payload, createdAt: new Date(time).toISOString() };
    });
    const { status, body } = await service.request({
      ...{ method: 'POST', path: '/v1/events', headers: { Authorization: `Bearer ${app.loggingToken}` } },
      body: JSON.stringify({ events }),
    });
    expect(status, body).toBe(200);
  }
  const made = await createResourceToken(service.sql, { name: 'r', appIds: [appId], expiresInSeconds: null });
  token = made.resourceToken;
  await until(async () => {
    const { fields } = (await owner.get(`/api/apps/${appId}/declared-fields`)).data as {
      fields: { completeFrom: string | null }[];
    };
    return fields.every(({ completeFrom }) => completeFrom !== null);
  }, 'the fields are counted');
});
afterAll(async () => {
  await service?.stop();
});

type Json = Record<string, unknown>;
type Wanted = (event: Sent) => boolean;

const within =
  ([from, to]: readonly [string, string]): Wanted =>
  ({ at }) =>
    at >= Date.parse(from) && at < Date.parse(to);
const both =
  (...all: readonly Wanted[]): Wanted =>
  (event) =>
    all.every((one) => one(event));
const count = (wanted: Wanted): number => sent.filter(wanted).length;

async function read(
  path: string,
  query: Readonly<Record<string, string | readonly string[]>>,
): Promise<Json> {
  const parameters = new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      [value].flat().map((one) => [name, one] as [string, string]),
    ),
  );
  for (;;) {
    const { status, body, headers } = await service.request({
      ...{
        method: 'GET',
        path: `/v1/apps/${appId}/${path}?${parameters}`,
        headers: { Authorization: `Bearer ${token}` },
      },
    });
    // What is not counted yet passes by itself.
    if (status === 503 && headers['retry-after'] !== undefined) continue;
    expect(status, `${path} ${parameters} ${body}`).toBe(200);
    return JSON.parse(body).data as Json;
  }
}

async function ask(question: object): Promise<Json> {
  const answer = await fetch(`${service.url}/v1/apps/${appId}/query`, {
    ...{ method: 'POST', headers: { Authorization: `Bearer ${token}` }, body: JSON.stringify(question) },
  });
  const text = await answer.text();
  expect(answer.status, `${JSON.stringify(question)} ${text}`).toBe(200);
  return JSON.parse(text.trim().split('\n').at(-1) ?? '') as Json;
}

function same(actual: unknown, expected: unknown, what: string): void {
  checked += 1;
  expect(actual, what).toEqual(expected);
}

/** What a bucket of a zone is called, as its clock says. */
const dayIn = (timezone: string) => {
  const format = new Intl.DateTimeFormat('en-CA', { timeZone: timezone, dateStyle: 'short' });
  return (at: number): string => format.format(at);
};

test('totals, charts, tables and statistics are those of what was sent', async () => {
  for (const range of RANGES) {
    const [from, to] = range;
    const inRange = within(range);
    for (const typeName of [null, ...TYPES]) {
      const ofType: Wanted = ({ type }) => typeName === null || type === typeName;
      const asked = { from, to, ...(typeName !== null && { typeName }) };
      const all = count(both(inRange, ofType));
      const page = await read('events', { ...asked, total: 'exact', limit: '1' });
      same((page.pagination as Json).total, all, `total ${from} ${typeName}`);
      same((await ask(asked)).events, all, `query ${from} ${typeName}`);
      if (typeName === null) {
        const chart = (await owner.get(`/api/apps/${appId}/series?${new URLSearchParams({ from, to })}`))
          .data as unknown as Series;
        same(
          chart.all.reduce((sum, events) => sum + events, 0),
          all,
          `chart ${from}`,
        );
        for (const { name, total } of chart.lines)
          same(total, count(both(inRange, ({ type }) => type === name)), `chart ${from} ${name}`);
      }
      for (const [filter, passes] of Object.entries(FILTERS)) {
        const wanted = both(inRange, ofType, ({ payload }) => passes(payload));
        const found = await read('events', { ...asked, filter, total: 'exact', limit: '1' });
        same((found.pagination as Json).total, count(wanted), `total ${from} ${typeName} ${filter}`);
        const { series } = (await read('series', { ...asked, filter, interval: '1d' })) as {
          series: { count: number }[];
        };
        same(
          series.reduce((sum, row) => sum + row.count, 0),
          count(wanted),
          `series ${from} ${typeName} ${filter}`,
        );
        same(
          (await ask({ ...asked, filter, word: 'plan' })).events,
          count(wanted),
          `word ${from} ${typeName} ${filter}`,
        );
      }
    }
    for (const timezone of ['UTC', 'Europe/Berlin', 'America/New_York']) {
      const { series } = (await read('series', { from, to, interval: '1d', timezone })) as {
        series: { start: string; count: number }[];
      };
      const dayOf = dayIn(timezone);
      for (const { start, count: events } of series) {
        const day = dayOf(Date.parse(start));
        same(events, count(both(inRange, ({ at }) => dayOf(at) === day)), `day ${start} ${timezone}`);
      }
    }
    const numbers = (wanted: Wanted): number[] =>
      sent
        .filter(both(inRange, wanted))
        .flatMap(({ payload: { ms } }) => (typeof ms === 'number' ? [ms] : []))
        .sort((a, b) => a - b);
    for (const plan of [null, 'pro', 'free']) {
      const own = numbers(({ payload }) => plan === null || payload.plan === plan);
      const condition = plan === null ? {} : { filter: `plan:${plan}` };
      const stats = ['count', 'sum', 'min', 'max', 'p50', 'p95'];
      const { overall } = (await read('series', { from, to, of: 'ms', stat: stats, ...condition })) as {
        overall: Record<string, number>;
      };
      const rank = (q: number): number => own[Math.ceil(q * own.length) - 1] ?? Number.NaN;
      const exact = {
        count: own.length,
        sum: own.reduce((sum, ms) => sum + ms, 0),
        min: own[0],
        max: own.at(-1),
      };
      for (const [stat, value] of Object.entries(exact))
        same(Number(overall[stat]), value, `${stat} ${from} ${plan}`);
      for (const [stat, q] of [
        ['p50', 0.5],
        ['p95', 0.95],
      ] as const) {
        checked += 1;
        expect(Math.abs((overall[stat] ?? 0) / rank(q) - 1), `${stat} ${from} ${plan}`).toBeLessThanOrEqual(
          0.01,
        );
      }
      const users = new Set(
        sent
          .filter(both(inRange, ({ payload }) => plan === null || payload.plan === plan))
          .map(({ payload }) => payload.user),
      );
      if (plan === null) {
        const different = (await read('series', { from, to, of: 'user', stat: 'distinct' })) as {
          overall: { distinct: number };
        };
        same(different.overall.distinct, users.size, `distinct ${from}`);
      }
    }
    const groups = (await ask({ from, to, by: ['country'] })).groups as {
      by: { country?: unknown } | null;
      count: number;
    }[];
    for (const value of new Set(COUNTRIES.filter((one) => !Array.isArray(one) && one !== undefined))) {
      const shown = groups.find(({ by }) => by !== null && by.country === value);
      same(
        shown?.count ?? 0,
        count(both(inRange, ({ payload }) => payload.country === value)),
        `by country ${from} ${JSON.stringify(value)}`,
      );
    }
  }
  expect(checked).toBeGreaterThanOrEqual(330);
});
