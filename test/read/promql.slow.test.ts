/** PromQL over the counts: equal to the events, to the series of /v1, and to a Prometheus that has scraped each minute. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { atOnce, inSlices, TimeSlice } from '../../src/base/time-slice.ts';
import { evaluate, selectorsOf } from '../../src/read/prometheus/evaluate.ts';
import {
  estimatedInstructions,
  parseExpression,
  parseSelectors,
  Unsupported,
} from '../../src/read/prometheus/parse.ts';
import { freePort } from '../support/cluster.ts';
import { availableEngines } from '../support/database.ts';
import { seededRandom } from '../support/field-oracle.ts';
import { first, runs } from '../support/fuzz.ts';
import { expectLinear } from '../support/linear.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TYPES = ['order placed', 'order paid', 'page|viewed'];
const minute = (at: number): number => Math.floor(at / MINUTE) * MINUTE;
const PROMETHEUS = spawnSync('prometheus', ['--version']).error === undefined;
if (!PROMETHEUS) process.stderr.write('\nSkipped: answers of a real Prometheus: not in PATH.\n');

interface Row {
  readonly metric: Readonly<Record<string, string>>;
  readonly value?: readonly [number, string];
  readonly values?: readonly (readonly [number, string])[];
}

interface Answered {
  readonly status: string;
  readonly data: { readonly resultType: string; readonly result: readonly Row[] };
  readonly error?: string;
  readonly errorType?: string;
  readonly warnings?: readonly string[];
}

/** Rows in one order, values as numbers. */
function inOrder({ data }: Answered): object[] {
  const rows = data.result.map(({ metric, values = [] }) => ({
    metric: Object.fromEntries(Object.entries(metric).sort()),
    values: values.map(([at, value]) => [at, Number(value)]),
  }));
  return rows.toSorted((a, b) => (JSON.stringify(a.metric) < JSON.stringify(b.metric) ? -1 : 1));
}

describe.each(first(availableEngines()))('on %s', (engine) => {
  let service: TestService;
  let owner: Person;
  let shops: Awaited<ReturnType<typeof newOwnApp>>[];
  let token: string;
  /** Midnight (UTC) three days ago, in seconds. */
  let start: number;
  const events: { app: number; type: string; at: number }[] = [];

  beforeAll(async () => {
    service = await startTestService({
      engine,
      config: { READ_LIMIT_PER_MINUTE: 0, CREATE_LIMIT_PER_MINUTE: 0 },
    });
    owner = await newPerson(service, 'owner@example.com');
    shops = [await newOwnApp(owner, 'First'), await newOwnApp(owner, 'Second')];
    token = await tokenOf(shops.map(({ appId }) => appId));
    start = (Math.floor(Date.now() / 1_000 / DAY) - 3) * DAY;
    const random = seededRandom(7);
    for (let n = 0; n < 3_000; n += 1) {
      // Most are in the first six hours, the others anywhere in two days; some are at whole minutes.
      const spread = n % 5 === 0 ? 2 * DAY : 6 * HOUR;
      const seconds = random(spread * 1_000) / 1_000;
      events.push({
        app: n % 3 === 0 ? 1 : 0,
        type: TYPES[random(TYPES.length)] ?? '',
        at: start * 1_000 + (n % 7 === 0 ? minute(seconds) * 1_000 : Math.round(seconds * 1_000)),
      });
    }
    for (const [app, shop] of shops.entries()) {
      const own = events
        .filter((event) => event.app === app)
        .map(({ type, at }) => ({ typeName: type, createdAt: new Date(at).toISOString(), payload: {} }));
      const { status } = await service.request({
        method: 'POST',
        path: '/v1/events',
        headers: { Authorization: `Bearer ${shop.loggingToken}` },
        body: JSON.stringify({ events: own }),
      });
      expect(status).toBe(200);
    }
  });
  afterAll(() => service?.stop());

  const tokenOf = async (appIds: readonly string[]): Promise<string> =>
    (await createResourceToken(service.sql, { name: 'grafana', appIds, expiresInSeconds: null }))
      .resourceToken;

  const get = async (path: string, query: Record<string, string | number> = {}): Promise<Answered> => {
    const sent = new URLSearchParams(
      Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
    );
    const { body } = await service.request({
      path: `/api/v1/${path}?${sent}`,
      headers: { Authorization: `Bearer ${token}` },
    });
    return JSON.parse(body) as Answered;
  };
  const range = (query: string, from: number, to: number, step: number | string): Promise<Answered> =>
    get('query_range', { query, start: from, end: to, step });
  const countBefore = (app: number | null, type: string | null, at: number): number =>
    events.filter(
      (event) =>
        (app === null || event.app === app) &&
        (type === null || event.type === type) &&
        event.at < at * 1_000,
    ).length;
  const idOf = (app: number): string => shops[app]?.appId ?? '';

  test.each([
    ['whole minutes', 0, MINUTE],
    ['any seconds', 17, 437],
    ['quarter-hours', 0, 15 * MINUTE],
    ['less than minutes', 1, 15],
  ])('has at each step the events before the last whole minute: %s', async (_, shift, step) => {
    const [from, to] = [start + HOUR + shift, start + HOUR + shift + 150 * step];
    const answer = await range('tidemark_events_total{type!="order paid"}', from, to, step);
    expect(answer.data.resultType).toBe('matrix');
    const wanted = [0, 1].flatMap((app) =>
      TYPES.filter((type) => type !== 'order paid').map((type) => ({
        metric: { __name__: 'tidemark_events_total', app: idOf(app), type },
        values: Array.from({ length: 151 }, (__, n) => [
          from + n * step,
          countBefore(app, type, minute(from + n * step)),
        ]),
      })),
    );
    expect(inOrder(answer)).toEqual(
      inOrder({
        status: '',
        data: {
          resultType: '',
          result: wanted.map((row) => ({
            ...row,
            values: row.values.map(([at = 0, value]) => [at, String(value)] as const),
          })),
        },
      }),
    );
  });

  test.each([
    ['increase', 15 * MINUTE, 15 * MINUTE],
    ['increase', HOUR, 20 * MINUTE],
    ['rate', 5 * MINUTE + 3, 7 * MINUTE + 11],
  ])('%s over %i seconds each %i is the events between the whole minutes', async (of, window, step) => {
    const [from, to] = [start + HOUR, start + 30 * HOUR];
    const query = `sum by (app) (${of}(tidemark_events_total{app="${idOf(0)}"}[${window}s]))`;
    const answer = await range(query, from, to, step);
    const values = Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => {
      const at = from + n * step;
      const [begin, end] = [minute(at - window), minute(at)];
      const count = countBefore(0, null, end) - countBefore(0, null, begin);
      return [at, of === 'rate' ? (count * 1_000) / ((end - begin) * 1_000) : count];
    });
    expect(inOrder(answer)).toEqual([{ metric: { app: idOf(0) }, values }]);
  });

  test('increase over a step equals the series of /v1', async () => {
    const [from, to] = [start, start + 2 * DAY];
    const { body } = await service.request({
      path: `/v1/apps/${idOf(0)}/series?interval=1h&by=type&from=${new Date(from * 1_000).toISOString()}&to=${new Date(to * 1_000).toISOString()}`,
      headers: { Authorization: `Bearer ${token}` },
    });
    const rows = (
      JSON.parse(body) as { data: { series: { typeName: string; end: string; count: number }[] } }
    ).data.series;
    const answer = await range(
      `increase(tidemark_events_total{app="${idOf(0)}"}[1h])`,
      from + HOUR,
      to,
      '1h',
    );
    const series = answer.data.result.flatMap(({ metric, values = [] }) =>
      values.map(([at, value]) => `${metric.type} ${new Date(at * 1_000).toISOString()} ${value}`),
    );
    expect(series.toSorted()).toEqual(
      rows.map(({ typeName, end, count }) => `${typeName} ${end} ${count}`).toSorted(),
    );
    expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(countBefore(0, null, to));
  });

  test('an instant query has one value, and numbers are scalars', async () => {
    expect(await get('query', { query: '1+1', time: 4 })).toEqual({
      status: 'success',
      data: { resultType: 'scalar', result: [4, '2'] },
    });
    const all = await get('query', { query: 'sum(tidemark_events_total)' });
    expect(all.data.result).toEqual([{ metric: {}, value: [expect.any(Number), '3000'] }]);
    // Nothing is known of the future, and a sample stands for five minutes.
    const later = Math.floor(Date.now() / 1_000) + HOUR;
    expect((await get('query', { query: 'tidemark_events_total', time: later })).data.result).toEqual([]);
    const info = await get('query', { query: 'tidemark_app_info{name="Second"}' });
    expect(info.data.result.map(({ metric }) => metric)).toEqual([
      { __name__: 'tidemark_app_info', app: idOf(1), name: 'Second' },
    ]);
  });

  /** What its data source sends: pkg/promlib and packages/grafana-prometheus of github.com/grafana/grafana. */
  test('answers each request of Grafana', async () => {
    const headers = {
      ...{ 'User-Agent': 'Grafana/11.6.0', 'Accept-Encoding': 'gzip', FromAlert: 'false' },
      ...{
        'X-Grafana-Org-Id': '1',
        'X-Datasource-Uid': 'tidemark',
        'X-Dashboard-Uid': 'd1',
        'X-Panel-Id': '2',
      },
      Authorization: `Basic ${Buffer.from(`grafana:${token}`).toString('base64')}`,
    };
    const form = async (
      path: string,
      sent: Record<string, string>,
    ): Promise<{ status: number; data: unknown }> => {
      const asked = await fetch(`${service.url}/api/v1/${path}`, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams(sent),
      });
      return { status: asked.status, data: ((await asked.json()) as { data?: unknown }).data };
    };
    const address = async (
      path: string,
      sent: Record<string, string> = {},
    ): Promise<{ status: number; data: unknown }> => {
      const asked = await fetch(`${service.url}/api/v1/${path}?${new URLSearchParams(sent)}`, { headers });
      return { status: asked.status, data: ((await asked.json()) as { data?: unknown }).data };
    };
    const ok = (data: unknown): object => ({ status: 200, data });
    // "Save & test", and what it finds out: without features it is a Prometheus.
    expect(await form('query', { query: '1+1', time: '4', timeout: '60s' })).toEqual(
      ok({ resultType: 'scalar', result: [4, '2'] }),
    );
    expect(await address('status/buildinfo')).toEqual(
      ok(expect.not.objectContaining({ features: expect.anything() })),
    );
    // Its editor: names, labels and values, within the range of the panel.
    const range = { start: String(start), end: String(start + 2 * DAY), limit: '40000' };
    expect(await address('label/__name__/values', range)).toEqual(
      ok(['tidemark_app_info', 'tidemark_events_total']),
    );
    expect(await form('labels', range)).toEqual(ok(['__name__', 'app', 'name', 'type']));
    expect(await form('labels', { ...range, 'match[]': '{__name__="tidemark_events_total"}' })).toEqual(
      ok(['__name__', 'app', 'type']),
    );
    expect(
      await address('label/type/values', { ...range, 'match[]': '{__name__="tidemark_events_total"}' }),
    ).toEqual(ok(TYPES.toSorted()));
    const all = await form('series', { ...range, 'match[]': '{__name__!=""}' });
    expect(all).toEqual(
      ok(expect.arrayContaining([{ __name__: 'tidemark_app_info', app: idOf(1), name: 'Second' }])),
    );
    expect(await address('metadata', { limit: '1' })).toEqual(
      ok({ tidemark_events_total: [{ type: 'counter', help: expect.any(String), unit: '' }] }),
    );
    // Its list of rules; and exemplars, of which it asks no more after a refusal.
    expect(await address('rules')).toEqual(ok({ groups: [] }));
    expect((await address('query_exemplars', { query: 'test', start: '1', end: '4' })).status).toBe(404);
    // A panel: times are floats whose last digits are noise, steps are seconds, and $__rate_interval is a duration of Go.
    for (const [step, interval] of [
      ['60', '4m0s'],
      ['0.2', '1m0s'],
      ['3600', '1h0m0s'],
    ] as const) {
      const query = `sum by (type) (rate(tidemark_events_total{app="${idOf(0)}"}[${interval}]))`;
      const [from, to] = [start + HOUR + 0.123_000_04, start + HOUR + 0.2 + 4 * Number(step)];
      const { status, data } = await form('query_range', {
        ...{ query, step, timeout: '60s' },
        ...{ start: String(from), end: String(to) },
      });
      const { resultType, result } = data as Answered['data'];
      expect([status, resultType, result.map(({ metric }) => metric.type).sort()]).toEqual([
        ...[200, 'matrix'],
        TYPES.toSorted(),
      ]);
      expect(result[0]?.values?.map(([at]) => at)).toEqual(
        Array.from(
          { length: 5 },
          (_, n) => Math.round((start + HOUR + 0.123 + n * Number(step)) * 1_000) / 1_000,
        ),
      );
    }
    // Variables: label_values() and query_result().
    expect(await address('label/app/values', { ...range, 'match[]': 'tidemark_app_info' })).toEqual(
      ok([idOf(0), idOf(1)].sort()),
    );
    const top = await form('query', {
      query: 'topk(1, sum by (app) (tidemark_events_total))',
      time: `${start + 2 * DAY}`,
    });
    expect(top).toMatchObject(ok({ resultType: 'vector', result: [{ metric: { app: idOf(0) } }] }));
  });

  test('reads signs as Prometheus does', async () => {
    const scalarOf = async (query: string): Promise<unknown> => {
      const { data } = (await get('query', { query })) as unknown as { data: { result: [number, string] } };
      return data.result[1];
    };
    for (const [query, value] of [
      ['-2^2', '-4'],
      ['2*-2^2', '-8'],
      ['-2^2*3', '-12'],
      ['(-2)^2', '4'],
      ['-2^3^2', '-512'],
      ['2^-2', '0.25'],
      ['- 2', '-2'],
      ['+ 2', '2'],
      ['-Inf', '-Inf'],
      ['3 - -2', '5'],
      ['3 -2', '1'],
      ['-(2)^2', '-4'],
      ['-1h', '-3600'],
    ])
      expect([query, await scalarOf(query ?? '')]).toEqual([query, value]);
  });

  test('tells that there are no series by absent, with the labels that were asked for', async () => {
    const resultOf = async (query: string): Promise<unknown> => (await get('query', { query })).data.result;
    const never = `increase(tidemark_events_total{app="${idOf(0)}",type="never sent"}[15m])`;
    expect(await resultOf(`absent(${never})`)).toEqual([
      { metric: { app: idOf(0), type: 'never sent' }, value: [expect.any(Number), '1'] },
    ]);
    expect(await resultOf(`absent(sum(${never})) > 0`)).toEqual([
      { metric: {}, value: [expect.any(Number), '1'] },
    ]);
    expect(await resultOf('absent(tidemark_events_total)')).toEqual([]);
  });

  test('refuses in the words of Prometheus what it does not have', async () => {
    const refusal = async (query: string): Promise<string> => {
      const { status, errorType, error = '' } = await get('query', { query });
      expect([query, status, errorType]).toEqual([query, 'error', 'bad_data']);
      return error;
    };
    expect(await refusal('histogram_quantile(0.9, x)')).toMatch(
      /^histogram_quantile is not supported\. Supported are/,
    );
    expect(await refusal('sum(')).toContain('the expression ends too early');
    expect(await refusal('a and b')).toContain('and is not supported');
    expect(await refusal('sum(a) or vector(0)')).toMatch(/^or is not supported\. .*can be left out/);
    expect(await refusal('vector(0)')).toMatch(/^vector is not supported\. .*can be left out/);
    expect(await refusal('time()')).toContain('by offset');
    expect(await refusal('round(a)')).toContain('Counts are whole');
    expect(await refusal('absent(1)')).toContain('absent takes series');
    expect(await refusal('a * on(app) b')).toContain('on(app) is not supported');
    expect(await refusal('a[5m:1m]')).toContain('is not supported');
    expect(await refusal('a @ 5')).toContain('is not supported');
    expect(await refusal('increase(a)')).toContain('a selector with a range');
    expect(await refusal('a[5m]')).toContain('must be in increase or rate');
    expect(await refusal('{type=~"(?=x)"}')).toContain('is not one of RE2');
    expect(await refusal('1 > 2')).toContain('bool');
    const many = await range('tidemark_events_total', start, start + 2 * DAY, 15);
    expect(many.error).toContain('at most 11,000 points');
    const other = await newOwnApp(owner, 'Other');
    expect(
      (await get('query', { query: `tidemark_events_total{app="${other.appId}"}` })).data.result,
    ).toEqual([]);
    const { status, body } = await service.request({ path: '/api/v1/query?query=1' });
    expect({ status, ...JSON.parse(body) }).toMatchObject({ status: 'error', errorType: 'unauthorized' });
  });

  test('bounds what a query takes, whatever its form', async () => {
    const wide = await newOwnApp(owner, 'Wide');
    await service.sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_wide_' || n, apps.id, 'type ' || n FROM apps, generate_series(1, 3000) n WHERE public_id = ${wide.appId}`;
    const ofOthers = token;
    onTestFinished(() => {
      token = ofOthers;
    });
    token = await tokenOf([wide.appId]);
    const balanced = (parts: readonly string[]): string =>
      parts.length < 2
        ? parts.join('')
        : `(${balanced(parts.slice(0, parts.length / 2))}+${balanced(parts.slice(parts.length / 2))})`;
    // Each selector compares each name.
    const selectors = Array.from({ length: 350 }, (_, n) => `{type="${n}"}`);
    const { body } = await service.request({
      method: 'POST',
      path: '/api/v1/query',
      headers: {
        'Content-Type': 'application/x-www-form-urlencoded',
        Authorization: `Bearer ${token}`,
      },
      body: new URLSearchParams({ query: balanced(selectors) }).toString(),
    });
    expect((JSON.parse(body) as Answered).error).toContain('compares too many names');
    // Times that are all after now need one count, and a value each.
    const later = 4_102_444_800;
    const steps = await range('tidemark_events_total', later, later + 10_990 * 900, 900);
    expect(steps.error).toContain('The query is too large');
    token = ofOthers;
    // Counts by the minute are those of all apps together.
    const days = async (app: string): Promise<string | undefined> =>
      (await range(`sum(tidemark_events_total${app})`, start - 400 * DAY + MINUTE, start + MINUTE, DAY))
        .error;
    expect(await days(`{app="${idOf(0)}"}`)).toBeUndefined();
    expect(await days('')).toContain('too many counts by the minute');
  });

  test.skipIf(!PROMETHEUS || engine !== 'postgres18')(
    'answers as a Prometheus that has scraped each minute',
    { timeout: patient(120_000) },
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-promql-test-'));
      const lines = ['# TYPE tidemark_events counter'];
      for (const app of [0, 1])
        for (const type of TYPES)
          for (let at = start; at <= start + 6 * HOUR; at += MINUTE)
            lines.push(
              `tidemark_events_total{app="${idOf(app)}",type="${type}"} ${countBefore(app, type, at)} ${at}`,
            );
      await writeFile(join(folder, 'samples.txt'), `${lines.join('\n')}\n# EOF\n`);
      await writeFile(join(folder, 'prometheus.yml'), '{}');
      const data = join(folder, 'data');
      await promisify(execFile)('promtool', [
        'tsdb',
        'create-blocks-from',
        'openmetrics',
        join(folder, 'samples.txt'),
        data,
      ]);
      const port = await freePort();
      const child = spawn(
        'prometheus',
        [
          `--config.file=${join(folder, 'prometheus.yml')}`,
          `--storage.tsdb.path=${data}`,
          `--web.listen-address=127.0.0.1:${port}`,
          '--log.level=error',
        ],
        { stdio: 'ignore' },
      );
      const ended = once(child, 'exit');
      const ask = async (query: string, shift: number, step: number): Promise<Answered | null> => {
        const [from, to] = [start + 2 * HOUR + shift, start + 5 * HOUR + shift];
        const sent = new URLSearchParams({ query, start: String(from), end: String(to), step: String(step) });
        const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query_range?${sent}`).catch(() => null);
        return answer === null || answer.status === 503 ? null : ((await answer.json()) as Answered);
      };
      const all = 'tidemark_events_total';
      const paid = `${all}{type="order paid"}`;
      try {
        await until(async () => (await ask(all, 0, HOUR))?.status === 'success', 'Prometheus is ready');
        // Between scrapes Prometheus extrapolates an increase: those are compared at whole minutes.
        for (const [query, shift] of [
          ...[all, `sum by (app) (${all})`, `sum without (type) (${paid} offset 30m)`, `avg(${all})`].map(
            (q) => [q, 17] as const,
          ),
          ...[
            `sum(topk(2, ${all}))`,
            `sum by (type) (bottomk by (type) (1, ${all}))`,
            `count(${all} > 400)`,
            `max(${all}) - min(${all})`,
          ].map((q) => [q, 17] as const),
          ...[`${paid} * 2 + 1`, `2 ^ -${paid} % 3`, `-${all} < bool -300`, `sum(${paid}) / sum(${all})`].map(
            (q) => [q, 17] as const,
          ),
          ...[`${all}{type=~"order.+",app!~"x|y"} >= 100`, `${all}{type=~"page\\\\|viewed|order paid"}`].map(
            (q) => [q, 17] as const,
          ),
          ...[
            `${all} == ${paid}`,
            '1 + 2 * 3 ^ 2',
            `${all}{job=""}`,
            `${all}{job!=""}`,
            `sum(${all}) by (nothing)`,
          ].map((q) => [q, 17] as const),
          ...[`increase(${all}[10m])`, `sum(increase(${all}[1h]))`, `rate(${paid}[5m])`].map(
            (q) => [q, 0] as const,
          ),
          [`sum by (app) (rate(${all}[30m] offset 7m)) > 0.02`, 0],
        ] as const) {
          const step = 3 * MINUTE;
          const wanted = await ask(query, shift, step);
          const own = await range(query, start + 2 * HOUR + shift, start + 5 * HOUR + shift, step);
          expect([query, wanted?.status, own.status, own.error]).toEqual([
            query,
            'success',
            'success',
            undefined,
          ]);
          const [left, right] = [inOrder(own), inOrder(wanted ?? own)];
          expect([query, left.map((row) => ({ ...row, values: [] }))]).toEqual([
            query,
            right.map((row) => ({ ...row, values: [] })),
          ]);
          // Of a sum of fractions the last digits depend on the order.
          const numbers = (rows: object[]): number[] =>
            rows.flatMap((row) => (row as { values: number[][] }).values.flat());
          const [mine, its] = [numbers(left), numbers(right)];
          expect([query, mine.length]).toEqual([query, its.length]);
          const off = mine.filter((value, n) => Math.abs(value - (its[n] ?? 0)) > 1e-9 * Math.abs(value));
          expect([query, off]).toEqual([query, []]);
        }
        const url = new URL(service.url);
        [url.username, url.password] = ['prometheus', token];
        const times = [`--start=${start + HOUR}`, `--end=${start + 2 * HOUR}`, '--step=1h'];
        const asked = ['query', 'range', ...times, url.href.replace(/\/$/, ''), `sum(${all})`];
        const { stdout } = await promisify(execFile)('promtool', asked);
        expect(stdout).toBe(
          `{} =>\n${countBefore(null, null, start + HOUR)} @[${start + HOUR}]\n${countBefore(null, null, start + 2 * HOUR)} @[${start + 2 * HOUR}]\n`,
        );
        const client = async (command: string, ...args: string[]): Promise<string> =>
          (await promisify(execFile)('promtool', ['query', command, ...args])).stdout;
        const server = url.href.replace(/\/$/, '');
        expect(await client('instant', `--time=${start + HOUR}`, server, `sum(${all})`)).toBe(
          `{} => ${countBefore(null, null, start + HOUR)} @[${start + HOUR}]\n`,
        );
        const second = `--match=tidemark_events_total{app="${idOf(1)}",type=~"order.+"}`;
        expect((await client('series', second, server)).trim().split('\n')).toHaveLength(2);
        expect(await client('labels', server, 'type')).toBe(`${TYPES.toSorted().join('\n')}\n`);
      } finally {
        child.kill();
        await ended;
        await rm(folder, { recursive: true, force: true });
      }
    },
  );

  test('before the retention boundary quarter-hours are kept, and shorter ranges have gaps', async () => {
    const boundary = start + DAY;
    await service.sql`UPDATE retention SET readable_from = ${new Date(boundary * 1_000)}`;
    const [from, to] = [start + 2 * HOUR, start + 3 * HOUR];
    const selector = `tidemark_events_total{app="${idOf(0)}"}`;
    const values = async (query: string): Promise<(readonly [number, string])[]> => {
      const answer = await range(query, from, to, '5m');
      expect(answer.warnings ?? []).toEqual(
        query.includes('[5m]') ? [expect.stringContaining('by the quarter-hour')] : [],
      );
      return [...(answer.data.result[0]?.values ?? [])];
    };
    const quarter = (at: number): number => Math.floor(at / 900) * 900;
    expect(await values(`sum(${selector})`)).toEqual(
      Array.from({ length: 13 }, (_, n) => [
        from + n * 300,
        String(countBefore(0, null, quarter(from + n * 300))),
      ]),
    );
    expect(await values(`sum(increase(${selector}[5m]))`)).toEqual(
      Array.from({ length: 5 }, (_, n) => [
        from + n * 900,
        String(countBefore(0, null, from + n * 900) - countBefore(0, null, from + n * 900 - 900)),
      ]),
    );
  });
});

test('min and max leave out what is no number, wherever it stands', () => {
  const togetherOf = (query: string, numbers: readonly number[]): unknown => {
    const series = numbers.map((value, n) => ({ labels: { n: `${n}` }, values: [value] }));
    const result = atOnce(evaluate(parseExpression(query), 1, () => series));
    return typeof result === 'number' ? result : result[0]?.values[0];
  };
  for (const numbers of [
    [1, Number.NaN, 2],
    [Number.NaN, 2, 1],
    [1, 2, Number.NaN],
    [Number.NaN, 1, Number.NaN, 2, Number.NaN],
  ])
    expect([
      togetherOf('min(x)', numbers),
      togetherOf('max(x)', numbers),
      togetherOf('max(-x)', numbers),
    ]).toEqual([...[1, 2, -1]]);
  expect(togetherOf('min(x)', [Number.NaN, Number.NaN])).toBeNaN();
});

describe('any expression', () => {
  const leaf = fc.constantFrom(
    'tidemark_events_total',
    '{type=~"a+|(b|c)*"}',
    'x{a!="\\"",b!~`.*`} offset -5m',
    '1',
    'Inf',
    'increase(x[5m])',
    'rate({app="a"}[1h30m] offset 1d)',
    '0x1f',
    '"text"',
    'time()',
  );
  const { expression } = fc.letrec<{ expression: string }>((tie) => ({
    expression: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      leaf,
      fc
        .tuple(
          fc.constantFrom(
            'sum',
            'topk',
            'min by (app)',
            'avg without (type)',
            'count_values',
            '-',
            'rate',
            'abs',
          ),
          tie('expression'),
        )
        .map(([of, inner]) => `${of}(${inner})`),
      fc.tuple(fc.nat(5), tie('expression')).map(([k, inner]) => `topk(${k}, ${inner})`),
      fc
        .tuple(
          tie('expression'),
          fc.constantFrom('+', '/', '%', '^', '>', '== bool', 'and', '* on(a)', '!='),
          tie('expression'),
        )
        .map((parts) => parts.join(' ')),
      fc
        .tuple(tie('expression'), fc.constantFrom('[5m]', ' offset 1h', ' @ 5', '{}', ')', '#'))
        .map((parts) => parts.join('')),
    ),
  }));

  test('is computed, or refused by a sentence', () => {
    const labels = { app: 'a', type: 'b' };
    let computed = 0;
    fc.assert(
      fc.property(fc.oneof(expression, fc.string({ maxLength: 40 })), (text) => {
        try {
          const parsed = parseExpression(text);
          selectorsOf(parsed);
          const result = atOnce(evaluate(parsed, 2, () => [{ labels, values: [1, null] }]));
          expect(typeof result === 'number' || result.every(({ values }) => values.length === 2)).toBe(true);
          computed += 1;
        } catch (error) {
          if (!(error instanceof Unsupported)) throw new Error(text, { cause: error });
          expect(error.message).toMatch(/\.$/);
        }
      }),
      runs(1_500),
    );
    expect(computed).toBeGreaterThan(20);
  });

  test('is computed in slices, and lets others have the event loop in between', async () => {
    const values = Array.from({ length: 500 }, (_, n) => n);
    const series = Array.from({ length: 1_000 }, (_, n) => ({ labels: { type: String(n) }, values }));
    let turns = 0;
    let isOver = false;
    const others = (): void => {
      turns += 1;
      if (!isOver) setImmediate(others);
    };
    setImmediate(others);
    const computing = evaluate(parseExpression('sum(topk(5, -a))'), 500, () => series);
    expect(await inSlices(computing, new TimeSlice())).toHaveLength(1);
    isOver = true;
    expect(turns).toBeGreaterThan(10);
  });

  test.each<[string, (size: number) => string]>([
    ['a long sum', (size) => Array.from({ length: size }, () => 'a').join('+')],
    ['brackets', (size) => '('.repeat(size)],
    ['a long name', (size) => 'a'.repeat(size)],
    ['alternatives', (size) => `{type=~"${'a|'.repeat(size)}"}`],
    ['escapes', (size) => `{type="${'\\n'.repeat(size)}"}`],
    ['a duration', (size) => `increase(a[${'1h'.repeat(size)}])`],
    ['broken brackets', (size) => 'sum(a{'.repeat(size)],
  ])('is read in linear time: %s', (_, text) => {
    expectLinear((size) => {
      const sent = text(size);
      return () => {
        for (let n = 0; n < 10; n += 1)
          try {
            parseExpression(sent);
          } catch (error) {
            if (!(error instanceof Unsupported)) throw error;
          }
      };
    }, 150);
  });

  test('regular expressions are matched in linear time, and their programs are bounded', () => {
    const passes = (pattern: string): ((text: string) => boolean) => {
      const expression = parseExpression(`{type=~"${pattern}"}`);
      if (expression.kind !== 'selector') throw new Error(pattern);
      return expression.matchers[0]?.passes ?? (() => false);
    };
    const slow = passes('(a*)*b');
    expectLinear((size) => () => expect(slow('a'.repeat(size))).toBe(false), 4_000);
    expect(() => passes('(.{0,30}x){100}')).toThrow(Unsupported);
    expect(() => passes('a.'.repeat(1_001))).toThrow(Unsupported);
    expect(estimatedInstructions('.{1000}'.repeat(250))).toBe(250_000);
    // They are refused before they are made, also where several selectors have a part each.
    for (const large of [
      '.{1000}'.repeat(250),
      '(a{30}){30}'.repeat(20),
      `[)](${'a'.repeat(100)}){50}`,
      `\\\\Q)\\\\E(${'ab'.repeat(40)}){60}`,
    ])
      expect(() => passes(large), large).toThrow('too large');
    expect(() => parseSelectors(Array.from({ length: 9 }, () => '{type=~".{500}"}'))).toThrow('too large');
    // Anchored at both ends, over lines.
    expect([passes('b')('abc'), passes('a.c')('a\nc'), passes('a|b')('b'), passes('')('')]).toEqual([
      false,
      true,
      true,
      true,
    ]);
  });
});
