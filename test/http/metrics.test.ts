/** GET /metrics: every figure is what has happened. */
import { spawnSync } from 'node:child_process';
import { afterEach, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { SAMPLED_ONE_IN } from '../../src/metrics/sampling.ts';
import { markedTable, readPage } from '../docs/pages.ts';
import { testDatabase } from '../support/database.ts';
import { Exposition } from '../support/exposition.ts';
import { HttpConnection, requestBytes } from '../support/http-client.ts';
import { FaultyProxy, isBatch } from '../support/proxy.ts';
import { reserved } from '../support/reserved.ts';
import {
  CREATE_EVENT,
  sharedService,
  startTestService,
  type TestService,
  type TestServiceOptions,
  testSecret,
  until,
} from '../support/service.ts';
import { created } from './answers.ts';

const PATH = '/metrics';

const open: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  // The services first: they leave through their proxies.
  for (const one of open.splice(0)) await one.stop();
});

async function start(options: TestServiceOptions): Promise<TestService> {
  const service = await startTestService({ database: 'shared', ...options });
  open.push(service);
  return service;
}

/** A service that reaches its database through a proxy. */
async function proxied(options: TestServiceOptions): Promise<{ service: TestService; proxy: FaultyProxy }> {
  let proxy: FaultyProxy | undefined;
  const reach: TestServiceOptions['reach'] = async (address) => {
    proxy = await FaultyProxy.start(address);
    return proxy.address;
  };
  const service = await start({ ...options, reach });
  if (proxy === undefined) throw new Error('The service did not ask how to reach its database.');
  open.push(proxy);
  return { service, proxy };
}

async function scrape(service: TestService): Promise<Exposition> {
  const response = await service.request({ path: PATH });
  expect(response.status).toBe(200);
  return new Exposition(response.body);
}

test('the phase is told in which a commit waits: for its rows, or for its COMMIT', async () => {
  const service = await startTestService({ config: { COMMIT_CONNECTIONS: 1 } });
  open.push(service);
  const { sql } = service.database;
  // Deferred triggers run at the COMMIT, as the sync of the log does.
  await sql.unsafe(`
    CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON count_deltas DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION wait_at_commit()`);
  const counts = async (): Promise<number[]> => {
    const figures = await scrape(service);
    return ['queue', 'connection', 'rows', 'commit', 'answer'].map((phase) =>
      figures.value('tidemark_commit_phase_seconds_count', { phase }),
    );
  };
  const waits = async (): Promise<boolean> => {
    const [row] = await sql<{ waits: boolean }[]>`
      SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tidemark writer%'
                        AND wait_event_type = 'Lock') AS waits`;
    return row?.waits === true;
  };
  /** Posts an event whose commit waits for a lock. @returns the counts of the phases meanwhile */
  const whileHeld = async (lock: string): Promise<number[]> => {
    const holder = await reserved(sql);
    try {
      await holder.unsafe(`BEGIN; ${lock}`);
      const answer = service.post();
      await until(waits, 'the commit waits');
      const during = await counts();
      await holder`COMMIT`;
      created(await answer);
      return during;
    } finally {
      holder.release();
    }
  };
  created(await service.post());
  await until(async () => (await counts())[4] === 1, 'the first event is answered');
  expect(await counts()).toEqual([1, 1, 1, 1, 1]);
  expect(await whileHeld('SELECT pg_advisory_xact_lock(4711)')).toEqual([2, 2, 2, 1, 1]);
  expect(await whileHeld('LOCK TABLE events IN SHARE MODE')).toEqual([3, 3, 2, 2, 2]);
  await until(async () => (await counts())[4] === 3, 'all events are answered');
  expect(await counts()).toEqual([3, 3, 3, 3, 3]);
});

describe('over HTTP,', () => {
  test("the response is in Prometheus' text format and is not cached", async () => {
    const service = await sharedService();
    const { status, headers, body } = await service.request({ path: PATH });
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(headers['cache-control']).toBe('no-store');
    const info = new Exposition(body).families.find(({ name }) => name === 'tidemark_info')?.samples;
    expect(info).toEqual([
      {
        name: 'tidemark_info',
        labels: {
          version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
          engine: expect.stringMatching(/^PostgreSQL 18\.\d+$/),
          transport: 'uws',
        },
        value: 1,
      },
    ]);
    expect((await service.request({ path: PATH, method: 'HEAD' })).body).toBe('');
  });

  test('requests are counted by route and status, refusals by code', async () => {
    const service = await start({ config: { CREATE_LIMIT_PER_MINUTE: 4 } });
    for (let n = 0; n < 3; n += 1) created(await service.post());
    await service.post({ typeId: 'unknown' }); // 404, and the last that the limit lets through
    await service.post(); // 429
    await service.post({ payload: undefined }); // 400
    await service.post({ loggingToken: createTokenText('tdl') }); // 401
    await service.request({ path: '/public/get_events' }); // 401
    await service.request({ path: CREATE_EVENT, method: 'DELETE' }); // 405
    for (let n = 0; n < 50; n += 1) await service.request({ path: `/nope/${n}` }); // 404
    // The route of a path with parts that vary is its pattern.
    for (const app of ['one', 'two']) await service.request({ path: `/apps/${app}` });
    await service.request({ path: '/livez' });
    await service.request({ path: '/livez', method: 'HEAD' });

    const figures = await scrape(service);
    expect(figures.nonZero('tidemark_requests_total')).toEqual({
      '/public/create_event 201': 3,
      '/public/create_event 400': 1,
      '/public/create_event 401': 1,
      '/public/create_event 404': 1,
      '/public/create_event 429': 1,
      '/public/get_events 401': 1,
      'other 404': 50,
      '/apps/:appId 200': 2,
      'other 405': 1,
      '/livez 200': 2,
    });
    expect(figures.nonZero('tidemark_refusals_total')).toEqual({
      INVALID_REQUEST: 1,
      AUTH_INVALID_TOKEN: 2,
      EVENT_TYPE_NOT_FOUND: 1,
      RATE_LIMIT_EXCEEDED: 1,
      NOT_FOUND: 50,
      METHOD_NOT_ALLOWED: 1,
    });
    // A code that has not come yet is there with 0: an alert on its increase sees the first one.
    expect(figures.value('tidemark_refusals_total', { code: 'OUTCOME_UNKNOWN' })).toBe(0);
    expect(figures.value('tidemark_events_stored_total')).toBe(3);
    // The scrape is a request too, once it has been answered.
    expect((await scrape(service)).value('tidemark_requests_total', { route: PATH, status: '200' })).toBe(1);
  });

  test(`stages and requests are timed for the first of ${SAMPLED_ONE_IN} requests`, async () => {
    const service = await start({});
    const stages = ['validate', 'token', 'limit', 'type', 'commit'];
    const counts = async (): Promise<number[]> => {
      const figures = await scrape(service);
      return [
        ...stages.map((stage) => figures.value('tidemark_stage_seconds_count', { stage })),
        figures.find('tidemark_request_seconds_count', { route: CREATE_EVENT }) ?? 0,
      ];
    };
    expect(await counts()).toEqual([0, 0, 0, 0, 0, 0]);
    for (let n = 0; n < SAMPLED_ONE_IN; n += 1) created(await service.post());
    expect(await counts()).toEqual([1, 1, 1, 1, 1, 1]);
    await service.post({ loggingToken: createTokenText('tdl') });
    expect(await counts()).toEqual([2, 2, 1, 1, 1, 2]);

    const figures = await scrape(service);
    const seconds = stages.map((stage) => figures.value('tidemark_stage_seconds_sum', { stage }));
    const whole = figures.value('tidemark_request_seconds_sum', { route: CREATE_EVENT });
    for (const stage of seconds) expect(stage).toBeGreaterThan(0);
    expect(seconds.reduce((sum, stage) => sum + stage, 0)).toBeLessThan(whole);
  });

  test('waiting events are shown while they wait, and batches when they are written', async () => {
    const { service, proxy } = await proxied({ config: { COMMIT_CONNECTIONS: 1 } });
    created(await service.post());
    const held = proxy.next(isBatch, 'hold-answer');
    const first = service.post();
    await until(() => held() === 1, 'the first batch is on its way');
    const second = [service.post(), service.post()];
    await until(
      async () => (await scrape(service)).value('tidemark_commit_buffer_events') === 3,
      'three events wait',
    );
    const bytes = JSON.stringify({
      loggingToken: service.app.loggingToken,
      typeId: service.type.typeId,
    }).length;
    const during = await scrape(service);
    expect(during.value('tidemark_request_body_bytes')).toBe(3 * (bytes + ',"payload":{}'.length));
    expect(during.value('tidemark_events_stored_total')).toBe(1);
    expect(during.value('tidemark_batch_events_count')).toBe(1);

    proxy.release();
    for (const answer of [first, ...second]) created(await answer);
    const after = await scrape(service);
    expect(after.value('tidemark_commit_buffer_events')).toBe(0);
    expect(after.value('tidemark_request_body_bytes')).toBe(0);
    expect(after.value('tidemark_events_stored_total')).toBe(4);
    expect(after.value('tidemark_batch_events_count')).toBe(3);
    expect(after.value('tidemark_batch_events_sum')).toBe(4);
    expect(after.value('tidemark_batch_events_bucket', { le: '1' })).toBe(2);
    expect(after.value('tidemark_batch_events_bucket', { le: '2' })).toBe(3);
    expect(after.value('tidemark_batch_seconds_count')).toBe(3);
    expect(after.value('tidemark_batch_seconds_sum')).toBeGreaterThan(0);
  });

  test('a client that disconnects before its response is counted separately', async () => {
    const service = await start({});
    const connection = await HttpConnection.open(service.port);
    await connection.write(
      requestBytes({ method: 'POST', path: CREATE_EVENT, body: '{"a', headers: { 'Content-Length': '99' } }),
    );
    await until(
      async () => (await scrape(service)).value('tidemark_request_body_bytes') === 3,
      'the server has the beginning of the body',
    );
    connection.reset();
    await until(
      async () => (await scrape(service)).value('tidemark_requests_aborted_total') === 1,
      'the server has seen the reset',
    );
    const figures = await scrape(service);
    expect(figures.value('tidemark_request_body_bytes')).toBe(0);
    expect(figures.find('tidemark_requests_total', { route: CREATE_EVENT, status: '503' })).toBeUndefined();
  });
});

test('lookups are counted as hits and misses', async () => {
  const database = await testDatabase();
  try {
    // Before the service listens for changes: each of them would have it forget everything.
    const app = await createApp(database.sql, await testSecret(), { name: 'Counted' });
    const made = { name: 'reader', appIds: [app.appId], expiresInSeconds: null };
    const { resourceToken } = await createResourceToken(database.sql, made);
    const service = await startTestService({ database });
    try {
      for (let n = 0; n < 3; n += 1) created(await service.post());
      for (let n = 0; n < 2; n += 1) await service.post({ loggingToken: createTokenText('tdl') });
      await service.post({ loggingToken: 'no token at all' });
      const headers = { Authorization: `Bearer ${resourceToken}` };
      for (const typeId of ['', '', 'unknown', 'unknown']) {
        const path = `/public/get_events?appId=${app.appId}&typeId=${typeId}`;
        expect((await service.request({ path, headers })).status).toBe(200);
      }
      const figures = await scrape(service);
      expect(figures.nonZero('tidemark_cache_hits_total')).toEqual({
        logging_tokens: 2,
        event_types: 2,
        resource_tokens: 3,
        apps: 1,
      });
      // Junk is told by its check characters, and is no lookup.
      expect(figures.nonZero('tidemark_cache_misses_total')).toEqual({
        logging_tokens: 3,
        event_types: 1,
        resource_tokens: 1,
        apps: 1,
      });
    } finally {
      await service.stop();
    }
  } finally {
    await database.drop();
  }
});

test('a batch that is tried again is counted as a retry, and its event once', async () => {
  const { service, proxy } = await proxied({});
  created(await service.post());
  expect((await scrape(service)).value('tidemark_write_retries_total')).toBe(0);
  proxy.next(isBatch, 'lose-answer');
  created(await service.post());
  const figures = await scrape(service);
  expect(figures.value('tidemark_write_retries_total')).toBe(1);
  expect(figures.value('tidemark_events_stored_total')).toBe(2);
  expect(figures.value('tidemark_batch_events_count')).toBe(2);
});

const hasPromtool = spawnSync('promtool', ['--version']).error === undefined;

test.skipIf(!hasPromtool)(
  'promtool finds nothing in the names, types and labels of the metrics',
  async () => {
    const service = await sharedService();
    const { body } = await service.request({ path: PATH });
    const checked = spawnSync('promtool', ['check', 'metrics'], { input: body, encoding: 'utf8' });
    expect({ status: checked.status, found: checked.stderr + checked.stdout }).toEqual({
      status: 0,
      found: '',
    });
  },
);

test('the delay of the event loop is measured since the last scrape', async () => {
  const service = await sharedService();
  const delay = async (stat: string): Promise<number> =>
    (await scrape(service)).value('tidemark_event_loop_delay_seconds', { stat });
  await delay('max');
  // A timer that was set later than the measured one and is longer: that one has come meanwhile.
  await new Promise((resolve) => setTimeout(resolve, 30));
  const end = performance.now() + 300;
  while (performance.now() < end);
  const blocked = await delay('max');
  expect(blocked).toBeGreaterThan(0.25);
  // Seconds, not milliseconds.
  expect(blocked).toBeLessThan(100);
  await until(async () => (await delay('max')) < 0.2, 'a turn of the loop that nothing holds up');
});

test("process metrics have the names of Prometheus' client libraries", async () => {
  const service = await sharedService();
  const before = await scrape(service);
  const cpu = before.value('process_cpu_seconds_total');
  expect(
    Math.abs(before.value('process_start_time_seconds') - (Date.now() / 1_000 - process.uptime())),
  ).toBeLessThan(2);
  for (const name of [
    'process_resident_memory_bytes',
    'nodejs_heap_size_total_bytes',
    'nodejs_heap_size_used_bytes',
  ])
    expect(before.value(name)).toBeGreaterThan(1_048_576);
  await until(
    async () => (await scrape(service)).value('process_cpu_seconds_total') > cpu,
    'the process has used its processor',
  );
});

test('docs/limits.md names a metric that exists for whatever requests share', () => {
  const metricRows = markedTable(readPage('docs/monitoring.md'), 'metrics');
  const listed = new Set(metricRows.map(([name = '']) => /\w+/.exec(name)?.[0]));
  const shared = markedTable(readPage('docs/limits.md'), 'shared');
  expect(shared.length).toBeGreaterThan(10);
  for (const row of shared) {
    const metrics = row.at(-1)?.match(/\b(?:tidemark|process)_\w+/g) ?? [];
    expect(metrics, row[0]).not.toEqual([]);
    for (const name of metrics) expect(listed, row[0]).toContain(name);
  }
});

test('docs/monitoring.md lists exactly the metrics that exist, with their labels', async () => {
  const service = await sharedService();
  created(await service.post());
  const rows = markedTable(readPage('docs/monitoring.md'), 'metrics');
  const listed = new Map<string, readonly string[]>(
    rows.map(([cell = '', labels = '']) => [cell, labels.match(/\w+/g) ?? []]),
  );
  const { families } = await scrape(service);
  const names = families.map(({ name, type }) => `\`${name}\`${type === 'histogram' ? ' (histogram)' : ''}`);
  expect([...listed.keys()].sort()).toEqual([...names].sort());
  for (const [index, { samples }] of families.entries()) {
    const seen = new Set(samples.flatMap(({ labels }) => Object.keys(labels)));
    seen.delete('le');
    const documented = listed.get(names[index] ?? '') ?? [];
    expect(
      [...seen].filter((label) => !documented.includes(label)),
      names[index],
    ).toEqual([]);
  }
});
