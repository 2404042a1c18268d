/** From its answer on nobody gets an erased event, by whichever route; and while it runs every answer is one of exact counts. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { addConsumer } from '../../src/delivery/consumers.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { postForLines } from '../support/lines.ts';
import { LiveClient } from '../support/live-client.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { hurryRounds, RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const CANARY = 'canary-4711';
const EVENTS = 1_500;
const FILTER = [`user.id:${CANARY}`];

const USERS = 7;
/** One of them, whose events are anonymized. */
const USER = 'user-1';

function erasedWhileReading(makeDatabase: () => Promise<TestDatabase>): void {
  const clock = new RunningClock();
  let service: TestService;
  let folder: string;
  let owner: Person;
  let app: { readonly appId: string; readonly path: string };
  let token: string;
  let id = 0;
  let typeId = 0;
  /** Of an event that is erased: the newest, whose id has its time. */
  let eventId: string;
  let boardId: string;
  /** Paths of links: to the board, and to a view with its list of events. */
  let links: readonly string[];
  /** What is erased. */
  let sought = CANARY;
  const condition = (): string => `user.id:${sought}`;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tidemark-erase-reading-'));
    service = await startTestService({
      database: await makeDatabase(),
      clock,
      config: { READ_LIMIT_PER_MINUTE: 0, DATA_DIR: folder, WEBHOOK_ALLOW_PRIVATE: 'true' },
    });
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    const { sql } = service;
    const type = await service.newType({ appId: app.appId, loggingToken: '' }, 'visit');
    const [ids] = await sql<{ id: number; typeId: number }[]>`
      SELECT app_id AS id, id AS "typeId" FROM event_types WHERE public_id = ${type.typeId}`;
    [id, typeId] = [ids?.id ?? 0, ids?.typeId ?? 0];
    for (const kind of ['value', 'distinct'] as const)
      await declareField(sql, { appId: id, path: ['user', 'id'], kind, typeName: null, backfill: true });
    const made = await createResourceToken(sql, {
      name: 'reader',
      appIds: [app.appId],
      expiresInSeconds: null,
    });
    token = made.resourceToken;
    const consumers = new ConsumerStore(service.database.engine, sql);
    const consumer = (name: string): Promise<void> =>
      addConsumer(sql, consumers, id, { name, types: [], filter: [], from: 'start', most: 10 });
    // One has the events as later than its begin, the other one as history.
    await consumer('earlier');
    await store(EVENTS, true);
    await consumer('later');
    await until(async () => (await consumed('earlier')).includes(CANARY), 'the consumer has the events');
    eventId = String((await readEvents(`filter=${FILTER[0]}&limit=1&order=desc`)).events[0]?.id);
    const viewIds: string[] = [];
    for (const search of ['range=24h&by=user.id', 'range=24h'])
      viewIds.push(String((await owner.post(`${app.path}/views`, { name: search, search })).data.viewId));
    const board = await owner.post(`${app.path}/boards`, { name: 'users', viewIds });
    expect(board.status, board.text).toBe(201);
    boardId = String(board.data.boardId);
    const terms = { range: '24h', timezone: 'UTC' };
    const shares = [{ boardId }, { viewId: viewIds[1], list: 'payloads' }];
    const shared = await Promise.all(
      shares.map((one) => owner.post(`${app.path}/shares`, { ...terms, ...one })),
    );
    links = shared.map(({ data }) => `/api${new URL(String(data.url)).pathname}`);
    await until(async () => {
      const path = `/v1/apps/${app.appId}/events?filter=${FILTER[0]}&limit=1&total=exact`;
      return (await service.request({ path, headers: { Authorization: `Bearer ${token}` } })).status === 200;
    }, 'the values are counted for all of the time');
    await fire();
  }, 120_000);
  afterAll(async () => {
    await service.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** An alert fires for each user, and its webhook does not answer: the messages wait. */
  async function fire(): Promise<void> {
    const { sql } = service;
    const hook = await owner.post(`${app.path}/webhooks`, {
      url: 'http://127.0.0.1:9/',
      types: [],
      filter: [],
    });
    expect(hook.status, hook.text).toBe(201);
    const rule = JSON.stringify({ of: 'count', by: 'user.id', window: '1h', above: 10 });
    const alert = { name: 'busy', rule, webhooks: [hook.data.webhookId] };
    expect((await owner.post(`${app.path}/alerts`, alert)).status).toBe(201);
    let judged = 0;
    await until(async () => {
      const [rule] = await sql<
        { at: Date | null; problem: string | null }[]
      >`SELECT evaluated_at AS at, problem FROM alert_rules`;
      const said = await sql`SELECT FROM alert_transitions WHERE kind = 'firing'`;
      if (said.length > USERS) return true;
      // What is not counted yet is judged again a minute later.
      if (judged === 0 || (rule?.at ?? null) !== null || (rule?.problem ?? null) !== null) {
        clock.advance(60_000);
        judged += 1;
        await sql`UPDATE alert_rules SET problem = NULL`;
      }
      return false;
    }, 'the alert has fired for each user');
  }

  async function readEvents(
    query: string,
  ): Promise<{ events: { id: string }[]; pagination: { total: number } }> {
    return JSON.parse(await read(`/v1/apps/${app.appId}/events?${query}`)).data;
  }

  async function askAgent(name: string, asked: object): Promise<string> {
    const params = { name, arguments: { appId: app.appId, ...asked } };
    const { status, body } = await service.request({
      method: 'POST',
      path: '/mcp',
      headers: { Authorization: `Bearer ${token}` },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    });
    expect(status, body).toBe(200);
    return body;
  }

  /** All that a consumer has not acknowledged; it acknowledges nothing. */
  async function consumed(name: string): Promise<string> {
    const path = `/v1/apps/${app.appId}/consumers/${name}`;
    const headers = { Authorization: `Bearer ${token}` };
    let body = '';
    await until(async () => {
      const response = await service.request({ path: `${path}/events?limit=10000`, headers });
      body = response.body;
      // Another one of this test may have it.
      return response.status !== 409;
    }, 'the consumer is free');
    const { events, lease } = JSON.parse(body).data;
    if (events.length === 0) return body;
    const release = await service.request({
      method: 'POST',
      path: `${path}/release`,
      headers,
      body: JSON.stringify({ lease }),
    });
    expect(release.status, release.body).toBe(200);
    return body;
  }

  async function ofSession(path: string): Promise<string> {
    const { status, text } = await owner.get(`${app.path}${path}`);
    expect(status, `${path}: ${text}`).toBe(200);
    return text;
  }

  const newId = createEventIds();
  async function store(count: number, withCanary: boolean): Promise<void> {
    const now = Date.now();
    const rows = Array.from({ length: count }, (_, n) => {
      const at = now - n * 7_000;
      const user = withCanary && n % 5 === 0 ? CANARY : `user-${n % USERS}`;
      return { id: newId(at), appId: id, typeId, at, payload: `{"user":{"id":"${user}"},"n":${n}}` };
    });
    await storeRows(service.sql, service.database.engine, rows);
  }

  async function read(path: string): Promise<string> {
    const response = await service.request({
      method: 'GET',
      path,
      headers: { Authorization: `Bearer ${token}` },
    });
    expect(response.status, `${path}: ${response.body}`).toBe(200);
    return response.body;
  }

  async function follow(path = ''): Promise<string> {
    const response = await service.request({ path });
    expect(response.status, `${path}: ${response.body}`).toBe(200);
    return response.body;
  }

  const range = (): string => {
    const [from, to] = [clock.wall() - 86_400_000, clock.wall() + 60_000].map((at) =>
      new Date(at).toISOString(),
    );
    return `from=${from}&to=${to}`;
  };

  /** Whether a route tells of the value that is sought. */
  const routes: Readonly<Record<string, () => Promise<boolean>>> = {
    page: async () =>
      (await read(`/public/get_events?appId=${app.appId}&limit=1000&order=desc`)).includes(sought),
    list: async () => (await read(`/v1/apps/${app.appId}/events?limit=1000`)).includes(sought),
    search: async () =>
      (await read(`/v1/apps/${app.appId}/events?filter=${condition()}&limit=10`)).includes(sought),
    total: async () => (await readEvents(`filter=${condition()}&limit=1&total=exact`)).pagination.total > 0,
    event: async () => {
      const headers = { Authorization: `Bearer ${token}` };
      const { status } = await service.request({ path: `/v1/apps/${app.appId}/events/${eventId}`, headers });
      return status === 200;
    },
    // It answers again what it has answered some seconds ago.
    fields: async () => (await read(`/v1/apps/${app.appId}/fields`)).includes(sought),
    query: async () => {
      const { text } = await postForLines(
        service,
        `/v1/apps/${app.appId}/query`,
        { by: ['user.id'] },
        { Authorization: `Bearer ${token}` },
      );
      return text.includes(sought);
    },
    chart: async () => (await ofSession(`/series?${range()}&by=user.id`)).includes(sought),
    different: async () => {
      const { data } = JSON.parse(await ofSession(`/numbers?${range()}&of=user.id&stat=distinct`));
      return data.overall.distinct > USERS;
    },
    board: async () => (await ofSession(`/boards/${boardId}/data?${range()}`)).includes(sought),
    'shared board': async () => (await follow(links[0])).includes(sought),
    'shared list': async () => (await follow(links[1])).includes(sought),
    'history of an alert': async () => (await ofSession('/alerts')).includes(sought),
    annotations: async () => (await read(`/v1/apps/${app.appId}/annotations?${range()}`)).includes(sought),
    Prometheus: async () => (await read('/v1/apps/metrics?value=user.id')).includes(sought),
    'search of an agent': async () => (await askAgent('search', {})).includes(sought),
    'breakdown of an agent': async () => (await askAgent('breakdown', { by: ['user.id'] })).includes(sought),
    'values for an agent': async () => (await askAgent('values', { path: 'user.id' })).includes(sought),
    consumer: async () => (await consumed('earlier')).includes(sought),
    'consumer of history': async () => (await consumed('later')).includes(sought),
    'messages that wait': async () => {
      const rows =
        await service.sql`SELECT FROM delivery_messages WHERE body LIKE ${`%${sought}%`} OR said LIKE ${`%${sought}%`}`;
      return rows.length > 0;
    },
    values: async () => (await read(`/v1/apps/${app.appId}/fields/values?path=user.id`)).includes(sought),
    export: async () => {
      const headers = { Authorization: `Bearer ${token}` };
      const answer = await fetch(`${service.url}/v1/apps/${app.appId}/export`, { headers });
      expect(answer.status).toBe(200);
      return (await answer.text()).includes(sought);
    },
    series: async () => {
      const { data } = JSON.parse(
        await read(`/v1/apps/${app.appId}/series?filter=${condition()}&interval=1d`),
      );
      return data.series.some((row: { count: number }) => row.count > 0);
    },
  };

  /** Totals of a snapshot agree with its rows. */
  async function expectExact(): Promise<void> {
    const from = new Date(Date.now() - 30 * 60_000).toISOString();
    const { events, pagination } = await readEvents(`from=${from}&limit=1000&total=exact`);
    expect(events).toHaveLength(pagination.total);
  }

  test('only owners with their password erase, and hear beforehand what it takes', async () => {
    const path = `${app.path}/erasures`;
    const dry = await owner.post(path, { filter: FILTER, dryRun: true });
    expect(dry.data).toMatchObject({ matching: EVENTS / 5, total: EVENTS });
    expect((await owner.post(path, { filter: FILTER })).status).toBe(400);
    expect((await owner.post(path, { filter: FILTER, password: 'wrong' })).status).toBe(403);
    const most = await owner.post(path, { filter: ['n:*'], password: PASSWORD });
    expect(most.status).toBe(400);
    expect(most.text).toContain('more than half of the app');
    const other = await newPerson(service, 'other@example.com');
    expect((await other.post(path, { filter: FILTER, password: PASSWORD })).status).toBe(404);
    expect((await owner.get(path)).data).toEqual({ erasures: [] });
  });

  test('no route tells of an erased event after the answer', { timeout: patient(120_000) }, async () => {
    const feed = await LiveClient.follow(service.port, app.appId, { token });
    for (const [name, tells] of Object.entries(routes)) expect([name, await tells()]).toEqual([name, true]);
    let isOver = false;
    let rounds = 0;
    const reading = (async () => {
      while (!isOver)
        for (const route of [...Object.values(routes), expectExact]) {
          if (isOver) return;
          await route();
          rounds += 1;
        }
    })();
    reading.catch(() => undefined); // It is awaited below.
    try {
      await eraseWatched(feed);
    } finally {
      isOver = true;
      feed.close();
      await reading;
    }
    expect(rounds).toBeGreaterThan(0);
  });

  async function eraseWatched(feed: LiveClient): Promise<void> {
    const asked = await owner.post(`${app.path}/erasures`, {
      filter: FILTER,
      reason: 'a request',
      password: PASSWORD,
    });
    expect(asked.status, asked.text).toBe(202);
    const shown = async () =>
      (await owner.get(`${app.path}/erasures`)).data.erasures as { state: string; receipt: object | null }[];
    await until(async () => (await shown())[0]?.state === 'finished', 'the erasure is finished', 45_000);
    const begun = feed.messages.length;
    // Whatever begins now comes after the answer.
    for (const [name, tells] of Object.entries(routes)) expect([name, await tells()]).toEqual([name, false]);
    await expectExact();
    await store(5, false);
    await until(() => feed.messages.length > begun, 'the feed goes on');
    expect(JSON.stringify(feed.messages)).not.toContain(CANARY);
    // What a watcher shows of minutes that have lost events is loaded again.
    await until(() => feed.has('reset') || feed.has('recount'), 'watchers are told');
    expect((await shown())[0]).toMatchObject({
      by: 'owner@example.com',
      reason: 'a request',
      receipt: { events: EVENTS / 5 },
    });
  }

  test('no route tells of an anonymized value after the answer, and no event is lost', async () => {
    sought = USER;
    // An anonymized event is still there, and its value still one of as many.
    const { event: _, different: __, ...others } = routes;
    for (const [name, tells] of Object.entries(others)) expect([name, await tells()]).toEqual([name, true]);
    const total = async (): Promise<number> => (await readEvents('limit=1&total=exact')).pagination.total;
    const before = await total();
    const asked = await owner.post(`${app.path}/erasures`, {
      ...{ filter: [condition()], anonymize: true, password: PASSWORD },
    });
    expect(asked.status, asked.text).toBe(202);
    await until(async () => {
      const { erasures } = (await owner.get(`${app.path}/erasures`)).data as {
        erasures: { state: string }[];
      };
      return erasures[0]?.state === 'finished';
    }, 'the erasure is finished');
    for (const [name, tells] of Object.entries(others)) expect([name, await tells()]).toEqual([name, false]);
    expect(await total()).toBe(before);
    await expectExact();
  });
}

hurryRounds();
describe.each(availableEngines())('on %s', (engine) =>
  erasedWhileReading(() => testDatabase(engine, { prepared: true })),
);
