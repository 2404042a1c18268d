/** Counts as counters for Prometheus: equal to the totals, bounded, conditional, and scraped by a real Prometheus. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { postBatch } from '../support/batch.ts';
import { freePort } from '../support/cluster.ts';
import { availableEngines } from '../support/database.ts';
import { first, isLong } from '../support/fuzz.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';

hurryRounds();

const PATH = '/v1/apps/metrics';
const PROMETHEUS = spawnSync('prometheus', ['--version']).error === undefined;
if (!PROMETHEUS) process.stderr.write('\nSkipped: counters in a real Prometheus: not in PATH.\n');

describe.each(first(availableEngines()))('on %s', (engine) => {
  let dataDir: string;
  let service: TestService;
  let owner: Person;
  let shop: Awaited<ReturnType<typeof newOwnApp>>;
  let token: string;

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'tidemark-prometheus-data-'));
    service = await startTestService({
      engine,
      config: { READ_LIMIT_PER_MINUTE: 0, CREATE_LIMIT_PER_MINUTE: 0, DATA_DIR: dataDir },
    });
    owner = await newPerson(service, 'owner@example.com');
    shop = await newOwnApp(owner);
    token = await tokenOf([shop.appId]);
    for (const [path, kind] of [
      ['plan', 'value'],
      ['order.total', 'number'],
      ['half', 'value'],
    ])
      expect(
        (await owner.post(`/api/apps/${shop.appId}/declared-fields`, { path, kind, backfill: true })).status,
      ).toBe(201);
    await store('order placed', { plan: 'pro', order: { total: 10.5 } }, 3);
    await store('order placed', { plan: 'free', order: { total: -2 } }, 2);
    await store('quoted "\\\n type', { plan: '1' });
    await store('quoted "\\\n type', { plan: 1 });
    for (const plan of ['\ud83d', '\ude00', '\ufffd']) await store('half', { half: plan });
  });
  afterAll(async () => {
    await service?.stop();
    if (dataDir !== undefined) await rm(dataDir, { recursive: true, force: true });
  });

  const tokenOf = async (appIds: readonly string[]): Promise<string> =>
    (await createResourceToken(service.sql, { name: 'scraper', appIds, expiresInSeconds: null }))
      .resourceToken;

  async function store(typeName: string, payload: object, times = 1): Promise<void> {
    for (let n = 0; n < times; n += 1) {
      const body = JSON.stringify({ loggingToken: shop.loggingToken, typeName, payload });
      const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
      expect(status).toBe(201);
    }
  }

  const scrape = (query = '', headers: Record<string, string> = {}) =>
    service.request({ path: PATH + query, headers: { Authorization: `Bearer ${token}`, ...headers } });
  const samples = (body: string): string[] => body.split('\n').filter((line) => /^[a-z]/.test(line));
  const refusal = async (query: string, bearer = token): Promise<unknown> => {
    const { status, body } = await scrape(query, { Authorization: `Bearer ${bearer}` });
    const { code, details } = JSON.parse(body);
    return { status, code, details };
  };

  test('has each type of each app, with all events ever stored', async () => {
    const { status, headers, body } = await scrape();
    expect(status).toBe(200);
    expect(headers['content-type']).toContain('text/plain; version=0.0.4');
    const app = `app="${shop.appId}"`;
    expect(samples(body)).toEqual([
      `tidemark_app_info{${app},name="Shop"} 1`,
      `tidemark_events_total{${app},type="order placed"} 5`,
      `tidemark_events_total{${app},type="quoted \\"\\\\\\n type"} 2`,
      `tidemark_events_total{${app},type="half"} 3`,
    ]);
    expect(samples((await scrape('?typeName=order+placed')).body)).toHaveLength(2);
    if (PROMETHEUS) {
      const checked = spawnSync('promtool', ['check', 'metrics'], { input: body, encoding: 'utf8' });
      expect(checked.stdout + checked.stderr).toBe('');
    }
  });

  test('has the values and the numbers of declared fields, where they are asked for', async () => {
    // A path that is spelled in two ways is one field.
    const query = '?value=plan&value="plan"&number=order.total';
    await until(async () => (await scrape(query)).status === 200, 'the fields are counted');
    const of = `app="${shop.appId}",field=`;
    const { body } = await scrape(query);
    expect(samples(body).filter((line) => !/events_total\{app="[^"]*",type|app_info/.test(line))).toEqual([
      `tidemark_value_events_total{${of}"plan",value="pro"} 3`,
      // A text and a number that read the same are one series.
      ...[`tidemark_value_events_total{${of}"plan",value="free"} 2`],
      `tidemark_value_events_total{${of}"plan",value="1"} 2`,
      `tidemark_numbers_total{${of}"order.total"} 5`,
      `tidemark_numbers_sum{${of}"order.total"} 27.5`,
    ]);
    // Half a character is none of UTF-8: as a text it is the same as another half.
    expect(samples((await scrape('?value=half')).body).filter((line) => line.includes('field='))).toEqual([
      `tidemark_value_events_total{${of}"half",value="\ufffd"} 3`,
    ]);
    // An app without the field has no samples of it, and does not refuse those of the others.
    const other = await newOwnApp(owner);
    token = await tokenOf([shop.appId, other.appId]);
    expect(samples((await scrape(query)).body).filter((line) => line.includes(other.appId))).toHaveLength(1);
    expect((await scrape(`?appId=${other.appId}&value=plan`)).status).toBe(400);
    token = await tokenOf([shop.appId]);
  });

  test('answers 304 until something changes', async () => {
    const { etag } = (await scrape()).headers as Record<string, string>;
    const again = await scrape('', { 'If-None-Match': String(etag) });
    expect({ status: again.status, body: again.body }).toEqual({ status: 304, body: '' });
    await store('later', {});
    expect((await scrape('', { 'If-None-Match': String(etag) })).status).toBe(200);
  });

  test('refuses what it cannot tell, with what would help', async () => {
    expect(await refusal('?value=nothing')).toEqual({
      status: 400,
      code: 'INVALID_REQUEST',
      details: expect.stringContaining('tidemark field add --app'),
    });
    expect(await refusal('?value=a..b')).toMatchObject({
      status: 400,
      details: expect.stringContaining('column'),
    });
    expect(await refusal('?values=plan')).toMatchObject({
      status: 400,
      details: expect.stringContaining('value'),
    });
    expect(await refusal('?value=a&value=b&value=c&value=d&value=e')).toMatchObject({ status: 400 });
    const other = await newOwnApp(owner);
    expect(await refusal(`?appId=${other.appId}`)).toMatchObject({ status: 403, code: 'ACCESS_DENIED' });
    expect(await refusal('?appId=app_none')).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
    expect(await refusal('', shop.loggingToken)).toMatchObject({ status: 401 });
  });

  // A daemon of others: nightly.
  test.skipIf(!PROMETHEUS || engine !== 'postgres18' || !isLong)(
    'is scraped by Prometheus, also across retention and an erasure',
    { timeout: patient(120_000) },
    async () => {
      const createdAt = new Date(Date.now() - 10 * 86_400_000).toISOString();
      const old = { typeName: 'order placed', createdAt, payload: {} };
      const headers = { Authorization: `Bearer ${shop.loggingToken}` };
      expect((await postBatch(service, [old, old, old], headers)).status).toBe(200);
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-prometheus-test-'));
      const config = join(folder, 'prometheus.yml');
      const target = new URL(service.url).host;
      await writeFile(
        config,
        JSON.stringify({
          global: { scrape_interval: '500ms', scrape_timeout: '500ms' },
          scrape_configs: [
            {
              job_name: 'tidemark',
              metrics_path: PATH,
              authorization: { credentials: token },
              static_configs: [{ targets: [target] }],
            },
          ],
        }),
      );
      const port = await freePort();
      const child = spawn(
        'prometheus',
        [
          `--config.file=${config}`,
          `--storage.tsdb.path=${join(folder, 'data')}`,
          `--web.listen-address=127.0.0.1:${port}`,
          '--log.level=error',
        ],
        { stdio: 'ignore' },
      );
      const ended = once(child, 'exit');
      interface Row {
        readonly value?: readonly [number, string];
        readonly values?: readonly (readonly [number, string])[];
      }
      const ask = async (expression: string): Promise<Row | undefined> => {
        const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(expression)}`;
        const answer = await fetch(url).catch(() => null);
        if (answer?.ok !== true) return undefined;
        return ((await answer.json()) as { data?: { result: Row[] } }).data?.result[0];
      };
      const query = async (expression: string): Promise<number | null> => {
        const { value } = (await ask(expression)) ?? {};
        return value === undefined ? null : Number(value[1]);
      };
      const samplesOf = async (selector: string): Promise<NonNullable<Row['values']>> =>
        (await ask(`${selector}[1h]`))?.values ?? [];
      const series = `tidemark_events_total{app="${shop.appId}",type="order placed"}`;
      /** Prometheus extrapolates an increase to the ends of its range: not where these are scrapes. */
      const increase = async (): Promise<number | null> => {
        const scrapes = await samplesOf(series);
        const [[first = 0] = [], [last = 0] = []] = [scrapes[0], scrapes.at(-1)];
        return await query(`increase(${series}[${Math.round((last - first) * 1_000)}ms] @ ${last})`);
      };
      try {
        await until(async () => (await query(series)) === 8, 'the first scrape');
        await store('order placed', { plan: 'pro', order: { total: 1 } }, 7);
        await until(async () => (await query(series)) === 15, 'a later scrape');
        expect([await increase(), await query(`resets(${series}[1h])`)]).toEqual([7, 0]);
        expect((await owner.put(`${shop.path}/retention`, { days: '3' })).status).toBe(200);
        const scrapes = (await samplesOf(series)).length;
        await until(async () => (await samplesOf(series)).length > scrapes + 1, 'a scrape after retention');
        expect([await increase(), await query(`resets(${series}[1h])`)]).toEqual([7, 0]);
        const erasure = { filter: ['plan:free'], password: PASSWORD };
        expect((await owner.post(`${shop.path}/erasures`, erasure)).status).toBe(202);
        await until(async () => (await query(series)) === 13, 'a scrape after the erasure', 45_000);
        // What is left counts as new.
        expect([await increase(), await query(`resets(${series}[1h])`)]).toEqual([7 + 13, 1]);
      } finally {
        child.kill();
        await ended;
        await rm(folder, { recursive: true, force: true });
      }
    },
  );
});
