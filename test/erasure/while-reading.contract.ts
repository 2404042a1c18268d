/** From its answer on nobody gets an erased event, by whichever route; and while it runs every answer is one of exact counts. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { availableEngines } from '../support/database.ts';
import { LiveClient } from '../support/live-client.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const CANARY = 'canary-4711';
const EVENTS = 3_000;
const FILTER = [`user.id:${CANARY}`];

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  let folder: string;
  let owner: Person;
  let app: { readonly appId: string; readonly path: string };
  let token: string;
  let id = 0;
  let typeId = 0;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tidemark-erase-reading-'));
    service = await startTestService({ engine, config: { READ_LIMIT_PER_MINUTE: 0, DATA_DIR: folder } });
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    const { sql } = service;
    const type = await service.newType({ appId: app.appId, loggingToken: '' }, 'visit');
    const [ids] = await sql<{ id: number; typeId: number }[]>`
      SELECT app_id AS id, id AS "typeId" FROM event_types WHERE public_id = ${type.typeId}`;
    [id, typeId] = [ids?.id ?? 0, ids?.typeId ?? 0];
    await declareField(sql, {
      appId: id,
      path: ['user', 'id'],
      kind: 'value',
      typeName: null,
      backfill: true,
    });
    const made = await createResourceToken(sql, {
      name: 'reader',
      appIds: [app.appId],
      expiresInSeconds: null,
    });
    token = made.resourceToken;
    await store(EVENTS, true);
  });
  afterAll(async () => {
    await service.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const newId = createEventIds();
  async function store(count: number, withCanary: boolean): Promise<void> {
    const now = Date.now();
    const rows = Array.from({ length: count }, (_, n) => {
      const at = now - n * 7_000;
      const user = withCanary && n % 10 === 0 ? CANARY : `user-${n % 7}`;
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

  /** A text of everything that a route tells of the canary: empty once nothing does. */
  const routes: Readonly<Record<string, () => Promise<boolean>>> = {
    page: async () =>
      (await read(`/public/get_events?appId=${app.appId}&limit=1000&order=desc`)).includes(CANARY),
    list: async () => (await read(`/v1/apps/${app.appId}/events?limit=1000`)).includes(CANARY),
    search: async () =>
      (await read(`/v1/apps/${app.appId}/events?filter=${FILTER[0]}&limit=10`)).includes(CANARY),
    total: async () => {
      const { data } = JSON.parse(
        await read(`/v1/apps/${app.appId}/events?filter=${FILTER[0]}&limit=1&total=exact`),
      );
      return data.pagination.total > 0;
    },
    values: async () => (await read(`/v1/apps/${app.appId}/fields/values?path=user.id`)).includes(CANARY),
    export: async () => {
      const headers = { Authorization: `Bearer ${token}` };
      const answer = await fetch(`${service.url}/v1/apps/${app.appId}/export`, { headers });
      expect(answer.status).toBe(200);
      return (await answer.text()).includes(CANARY);
    },
    series: async () => {
      const { data } = JSON.parse(await read(`/v1/apps/${app.appId}/series?filter=${FILTER[0]}&interval=1d`));
      return data.series.some((row: { count: number }) => row.count > 0);
    },
  };

  /** Totals of a snapshot agree with its rows. */
  async function expectExact(): Promise<void> {
    const from = new Date(Date.now() - 30 * 60_000).toISOString();
    const { data } = JSON.parse(
      await read(`/v1/apps/${app.appId}/events?from=${from}&limit=1000&total=exact`),
    );
    expect(data.events).toHaveLength(data.pagination.total);
  }

  test('only owners with their password erase, and hear beforehand what it takes', async () => {
    const path = `${app.path}/erasures`;
    const dry = await owner.post(path, { filter: FILTER, dryRun: true });
    expect(dry.data).toMatchObject({ matching: EVENTS / 10, total: EVENTS });
    expect((await owner.post(path, { filter: FILTER })).status).toBe(400);
    expect((await owner.post(path, { filter: FILTER, password: 'wrong' })).status).toBe(403);
    const most = await owner.post(path, { filter: ['n:*'], password: PASSWORD });
    expect(most.status).toBe(400);
    expect(most.text).toContain('more than half of the app');
    const other = await newPerson(service, 'other@example.com');
    expect((await other.post(path, { filter: FILTER, password: PASSWORD })).status).toBe(404);
    expect((await owner.get(path)).data).toEqual({ erasures: [] });
  });

  test('no route tells of an erased event after the answer', { timeout: 120_000 }, async () => {
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
    expect(await read(`/v1/apps/${app.appId}/fields`)).not.toContain(CANARY);
    await expectExact();
    await store(5, false);
    await until(() => feed.messages.length > begun, 'the feed goes on');
    expect(JSON.stringify(feed.messages)).not.toContain(CANARY);
    // What a watcher shows of minutes that have lost events is loaded again.
    await until(() => feed.has('reset') || feed.has('recount'), 'watchers are told');
    expect((await shown())[0]).toMatchObject({
      by: 'owner@example.com',
      reason: 'a request',
      receipt: { events: EVENTS / 10 },
    });
  }
});
