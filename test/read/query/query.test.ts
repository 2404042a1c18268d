/** POST /v1/apps/:appId/query: what it answers is what the events themselves say, whether counts or rows answer it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { QueryGroup, QueryLine } from '../../../src/api-types/answers.ts';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { answered, postBatch } from '../../support/batch.ts';
import { availableEngines } from '../../support/database.ts';
import { postForLines } from '../../support/lines.ts';
import { newOwnApp, newPerson, type Person } from '../../support/person.ts';
import {
  answerTo,
  type OracleEvent,
  type OracleGroup,
  type OracleQuestion,
} from '../../support/query-oracle.ts';
import { startTestService, type TestService } from '../../support/service.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** Around the end of summer time in Europe: 2026-10-25 at 01:00 UTC. */
const START = Date.UTC(2026, 9, 23);
const DAYS = 4;
const EVENTS = 600;

const COUNTRIES = ['DE', 'FR', 'DE', 'IT', ['DE', 'DE'], ['DE', 'FR'], 7, null, 'x'.repeat(201), { a: 1 }];
const PLANS = ['pro', 'free', 'pro', undefined, true];

/** Different at each place, and the same in each run. */
function payloadOf(i: number): Record<string, unknown> {
  const country = COUNTRIES[(i * 7 + (i >> 3)) % COUNTRIES.length];
  const plan = PLANS[(i * 3 + (i >> 4)) % PLANS.length];
  return {
    n: i,
    order: { country, ...(i % 11 > 0 && { amount: (((i * 7919) % 100_000) - 10_000) / 100 }) },
    ...(plan !== undefined && { plan }),
    user: { id: `u${(i * 31) % 97}` },
    tags: [`t${i % 5}`, `t${i % 3}`],
    ms: i % 13 === 0 ? [1, 2] : (i * i) % 5_000,
  };
}

const events: readonly OracleEvent[] = Array.from({ length: EVENTS }, (_, i) => ({
  at: START + Math.floor(((i * 2_654_435_761) % 2 ** 32) * ((DAYS * DAY_MS) / 2 ** 32)),
  payload: payloadOf(i),
}));

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  let owner: Person;
  let appId: string;
  let token: string;

  beforeAll(async () => {
    service = await startTestService({
      engine,
      config: { READ_LIMIT_PER_MINUTE: 0, QUERY_SECONDS_PER_MINUTE: 0 },
    });
    owner = await newPerson(service, 'owner@example.com');
    const app = await newOwnApp(owner);
    ({ appId } = app);
    ({ resourceToken: token } = await createResourceToken(service.sql, {
      name: 'test',
      appIds: [appId],
      expiresInSeconds: null,
    }));
    const batch = events.map(({ at, payload }, i) => ({
      typeName: i % 4 === 0 ? 'refund' : 'order',
      createdAt: new Date(at).toISOString(),
      payload,
    }));
    answered(await postBatch(service, batch, { Authorization: `Bearer ${app.loggingToken}` }));
  });
  afterAll(() => service.stop());

  async function ask(
    body: unknown,
    path = `/v1/apps/${appId}/query`,
    who: Record<string, string> = { Authorization: `Bearer ${token}` },
  ): Promise<{ status: number; lines: QueryLine[]; text: string }> {
    const { status, text } = await postForLines(service, path, body, who);
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    return { status, lines, text };
  }

  async function answer(body: unknown): Promise<QueryLine> {
    const { status, lines, text } = await ask(body);
    expect(status, text).toBe(200);
    const last = lines.at(-1);
    expect(last?.complete).toBe(true);
    if (last === undefined) throw new Error('no line');
    return last;
  }

  /** A group as the oracle has it. */
  function shown({ by, count, of = {}, series = [] }: QueryGroup): OracleGroup {
    const statistics = Object.entries(of).map(([path, { exact, count: numbers, ...stats }]) => {
      const wanted = 'count' in stats ? { ...stats, count: numbers } : stats;
      return [path, wanted] as const;
    });
    return {
      by: by ?? null,
      count,
      of: Object.fromEntries(statistics) as OracleGroup['of'],
      buckets: new Map(series.map((row) => [Date.parse(row.start), row.count])),
    };
  }

  function expectSame(line: QueryLine, wanted: readonly OracleGroup[]): void {
    const byKey = (groups: readonly OracleGroup[]): Map<string, OracleGroup> =>
      new Map(groups.map((group) => [JSON.stringify(group.by && Object.entries(group.by).sort()), group]));
    const found = byKey(line.groups.map(shown));
    const expected = byKey(wanted);
    expect([...found.keys()].sort()).toEqual([...expected.keys()].sort());
    for (const [key, group] of expected) {
      const own = found.get(key);
      expect(own?.count, key).toBe(group.count);
      expect(own?.buckets, key).toEqual(group.buckets);
      for (const [path, stats] of Object.entries(group.of))
        for (const [stat, value] of Object.entries(stats)) {
          const given = own?.of[path]?.[stat] ?? null;
          if (stat.startsWith('p') && value !== null)
            expect(Math.abs((given ?? Number.NaN) - value), `${key} ${path} ${stat}`).toBeLessThanOrEqual(
              Math.abs(value) * 0.01,
            );
          else if (['avg', 'stddev'].includes(stat) && value !== null) expect(given).toBeCloseTo(value, 9);
          else expect(given, `${key} ${path} ${stat}`).toBe(value);
        }
    }
    expect(line.events).toBe(wanted.reduce((sum, { count }) => sum + count, 0));
  }

  const stats = [
    'count',
    ...['sum', 'avg', 'min', 'max', 'stddev', 'p50', 'p95'].map((stat) => ({ of: 'order.amount', stat })),
    { of: 'user.id', stat: 'distinct' },
    { of: 'tags', stat: 'distinct' },
    { of: 'ms', stat: 'sum' },
    { of: 'ms', stat: 'distinct' },
  ] as const;

  test.each<[OracleQuestion & { by: readonly string[] }]>([
    [{ by: [] }],
    [{ by: ['order.country'] }],
    [{ by: ['plan', 'order.country'] }],
    [{ by: ['plan', 'order.country', 'tags'] }],
    [{ by: ['nothing.there'] }],
  ])('all events by %j', async (question) => {
    const line = await answer({ ...question, stats, limit: 1_000 });
    expect(line.counted).toBe(false);
    expect(line.looked).toBe(EVENTS);
    expectSame(line, answerTo(events, { ...question, stats }));
  });

  test('those that meet conditions, of one type, in a range', async () => {
    const [from, to] = [START + 0.3 * DAY_MS, START + 2.7 * DAY_MS];
    const wanted = events.filter(
      ({ at, payload }, i) =>
        at >= from && at < to && i % 4 !== 0 && Number(payload.n) >= 50 && payload.plan === 'pro',
    );
    const line = await answer({
      filter: ['n>=50', 'plan:pro'],
      by: ['order.country'],
      stats,
      typeName: 'order',
      from: new Date(from).toISOString(),
      to: new Date(to).toISOString(),
    });
    expect(wanted.length).toBeGreaterThan(50);
    expectSame(line, answerTo(wanted, { by: ['order.country'], stats }));
    expect(line).toMatchObject({ from: new Date(from).toISOString(), to: new Date(to).toISOString() });
  });

  test('by days of a time zone whose clock changes', async () => {
    const [from, to] = ['2026-10-23T10:00:00.000Z', '2026-10-26T10:00:00.000Z'];
    const wanted = events.filter(({ at }) => at >= Date.parse(from) && at < Date.parse(to));
    // Midnight in Berlin, before and after the change.
    const starts = ['22T22', '23T22', '24T22', '25T23'].map((day) => Date.parse(`2026-10-${day}:00:00Z`));
    const line = await answer({
      ...{ by: 'plan', stats, from, to },
      interval: '1d',
      timezone: 'Europe/Berlin',
    });
    expect(line).toMatchObject({ interval: '1d', timezone: 'Europe/Berlin' });
    expectSame(line, answerTo(wanted, { by: ['plan'], stats, starts }));
    const [first] = line.groups;
    expect(first?.series?.map(({ partial }) => partial)).toEqual([true, false, false, true]);
  });

  test('beyond the limit all other events are one group, whose sums are exact', async () => {
    const line = await answer({ by: 'user.id', stats, limit: 5 });
    expect(line.groups).toHaveLength(6);
    const all = answerTo(events, { by: ['user.id'], stats });
    const top = line.groups.slice(0, 5).map(({ by }) => by?.['user.id']);
    const rest = events.filter(({ payload }) => !top.includes((payload.user as { id: string }).id));
    const [other] = answerTo(rest, { stats });
    expectSame(line, [
      ...all.filter(({ by }) => top.includes(by?.['user.id'] as string)),
      { ...(other as OracleGroup), by: null },
    ]);
    const counts = all.map(({ count }) => count).sort((a, b) => b - a);
    expect(line.groups.slice(0, 5).map(({ count }) => count)).toEqual(counts.slice(0, 5));
  });

  test('a session asks the same handler', async () => {
    const path = `/api/apps/${appId}/query`;
    const { status, lines } = await ask({ by: ['plan'], stats }, path, { Cookie: owner.cookie });
    expect(status).toBe(200);
    const [last] = lines.slice(-1);
    if (last === undefined) throw new Error('no line');
    expectSame(last, answerTo(events, { by: ['plan'], stats }));
  });
});
