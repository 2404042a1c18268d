/** The connections of the dashboard: what routes of an app wait for does not delay a sign-in, and a list costs the same with many rows. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Sql } from '../../src/storage/database/connect.ts';
import { dashboardRoutes } from '../support/dashboard-routes.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { reserved } from '../support/reserved.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

/** What a sign-in, a session and the role of a member read and write. */
const OF_ACCOUNTS = [
  ...['users', 'sessions', 'known_devices', 'second_factors', 'recovery_codes', 'user_identities'],
  ...['apps', 'app_members', 'account_links', 'audit_entries', 'installation'],
];
/** Ids of the form that paths have, of nothing that is there. */
const NOWHERE: Readonly<Record<string, string>> = {
  action: 'pause',
  eventId: '00000000-0000-4000-8000-000000000000',
  typeId: 'none',
  token: 'a'.repeat(43),
};

let service: TestService;
let proxy: FaultyProxy;
beforeAll(async () => {
  service = await startTestService({
    config: {
      ...{ REQUEST_TIMEOUT_SECONDS: 600, READ_CONNECTIONS: 2, WEBHOOK_ALLOW_PRIVATE: 'true' },
      ...{ MAX_WEBHOOKS_PER_APP: 20, MAX_ALERT_RULES_PER_APP: 20 },
    },
    reach: async (address) => {
      proxy = await FaultyProxy.start(address);
      return proxy.address;
    },
  });
});
afterAll(async () => {
  await service.stop();
  await proxy.stop();
});

/** Locks all tables but some. @returns lets go of them */
async function holdAllBut(sql: Sql, free: readonly string[]): Promise<() => Promise<void>> {
  const held = await reserved(sql);
  const tables = await held<{ name: string }[]>`
    SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL(${[...free]}::text[])
     ORDER BY tablename`;
  await held`BEGIN`;
  await held.unsafe(
    `LOCK TABLE ${tables.map(({ name }) => `"${name}"`).join(', ')} IN ACCESS EXCLUSIVE MODE`,
  );
  return async () => {
    await held`ROLLBACK`;
    held.release();
  };
}

/** Messages that run a statement, by the name of their connection, while something is done. */
async function statementsOf(work: () => Promise<unknown>): Promise<Readonly<Record<string, number>>> {
  const counts: Record<string, number> = {};
  proxy.onSent = (sent, name) => {
    for (let at = 0; at + 5 <= sent.length; at += 1 + sent.readUInt32BE(at + 1))
      if ('EQ'.includes(String.fromCharCode(sent[at] ?? 0))) counts[name] = (counts[name] ?? 0) + 1;
  };
  await work();
  proxy.onSent = () => undefined;
  return counts;
}

test('whatever the routes of an app wait for, others sign in', async () => {
  const holder = await newPerson(service, 'holder@example.com');
  await newPerson(service, 'innocent@example.com');
  const { appId } = await newOwnApp(holder);
  const routes = (await dashboardRoutes(service)).filter(
    ({ path }) => path.startsWith('/api/apps/:appId') && !path.endsWith('/live'),
  );
  expect(routes.length).toBeGreaterThan(60);
  const release = await holdAllBut(service.sql, OF_ACCOUNTS);
  let answered = 0;
  const asked = routes.map(async ({ method, path }) => {
    const filled = path.replace(/:(\w+)/g, (_, name: string) =>
      name === 'appId' ? appId : (NOWHERE[name] ?? `${name.slice(0, 3)}_${'0'.repeat(20)}`),
    );
    // The client may give up before.
    await service
      .request({
        ...{ method, path: filled, headers: { Cookie: holder.cookie, 'Content-Type': 'application/json' } },
        ...(method !== 'GET' && { body: '{}' }),
      })
      .catch(() => undefined);
    answered += 1;
  });
  try {
    await until(
      async () =>
        (await service.sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).length >= 4,
      'requests hold their connections',
    );
    const innocent = new Person(service);
    expect(
      (await innocent.post('/api/session', { email: 'innocent@example.com', password: PASSWORD })).status,
    ).toBe(200);
    expect((await innocent.get('/api/session')).status).toBe(200);
    expect((await innocent.get('/api/sessions')).status).toBe(200);
    expect(answered).toBeLessThan(asked.length);
  } finally {
    await release();
    await Promise.all(asked);
  }
});

test('many changes by one account wait for themselves', async () => {
  const [busy, other] = [
    await newPerson(service, 'busy@example.com'),
    await newPerson(service, 'other@example.com'),
  ];
  const [ofBusy, ofOther] = [await newOwnApp(busy), await newOwnApp(other)];
  const release = await holdAllBut(service.sql, OF_ACCOUNTS);
  let answered = 0;
  const changes = Array.from({ length: 60 }, async (_, n) => {
    await busy.post(`${ofBusy.path}/views`, { name: `View ${n}`, search: '' });
    answered += 1;
  });
  await until(
    async () => (await service.sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).length > 0,
    'the first changes hold their connections',
  );
  const change = other.post(`${ofOther.path}/views`, { name: 'View', search: '' }).then((reply) => {
    expect(reply.status, reply.text).toBe(201);
    return answered;
  });
  // It has arrived, and waits.
  await other.get('/api/session');
  await release();
  expect(await change).toBeLessThan(40);
  await Promise.all(changes);
});

test('a list of an app takes as many statements with ten rows as with one', async () => {
  const owner = await newPerson(service, 'lists@example.com');
  const { appId, path } = await newOwnApp(owner);
  const add = async (n: number): Promise<void> => {
    const hook = await owner.post(`${path}/webhooks`, { url: `http://127.0.0.1:1/${n}` });
    const rule = `{"of":"count","window":"1m","above":${n}}`;
    const alert = await owner.post(`${path}/alerts`, {
      name: `Alert ${n}`,
      rule,
      webhooks: [hook.data.webhookId],
    });
    const view = await owner.post(`${path}/views`, { name: `View ${n}`, search: '' });
    const viewIds = [
      view.data.viewId,
      (await owner.post(`${path}/views`, { name: `Other ${n}`, search: '' })).data.viewId,
    ];
    const board = await owner.post(`${path}/boards`, { name: `Board ${n}`, viewIds });
    const token = await owner.post(`${path}/tokens`, { name: `Token ${n}` });
    const producer = await owner.post(`${path}/producers`, { name: `Producer ${n}` });
    const statuses = [hook, alert, view, board, token, producer].map(({ status }) => status);
    expect(statuses, [hook, alert, view, board, token, producer].map(({ text }) => text).join()).toEqual(
      statuses.map(() => 201),
    );
    await service.sql`
      INSERT INTO erasures (public_id, app_id, action, actor, condition_hmac, asked_at, covers_until)
      SELECT ${`ers_${String(n).padStart(20, '0')}`}, id, 'delete', 'test', '', now(), now() FROM apps WHERE public_id = ${appId}`;
  };
  const lists = (await dashboardRoutes(service))
    .filter(({ method, path: one }) => method === 'GET' && /^\/api\/apps\/:appId\/[a-z-]+$/.test(one))
    .map(({ path: one }) => one.replace(':appId', appId))
    .filter((one) => !/live|export/.test(one));
  const cost = async (): Promise<Record<string, number>> => {
    const costs: Record<string, number> = {};
    for (const list of lists) {
      await owner.get(list);
      const { 'tidemark reads': reads = 0, 'tidemark dashboard': changes = 0 } = await statementsOf(() =>
        owner.get(list),
      );
      costs[list] = reads + changes;
    }
    return costs;
  };
  await add(0);
  const ofOne = await cost();
  expect(ofOne[`${path}/webhooks`]).toBeGreaterThan(0);
  for (let n = 1; n < 10; n += 1) await add(n);
  const dearer = Object.entries(await cost()).filter(([list, count]) => count - (ofOne[list] ?? 0) >= 9);
  expect(dearer).toEqual([]);
});

test('what an erasure and a rule of retention would take is counted in turns of reads', async () => {
  const owner = await newPerson(service, 'erasures@example.com');
  const { path } = await newOwnApp(owner);
  const body = { filter: ['user:1'], dryRun: true };
  // What a round of the service does meanwhile is not part of it.
  await until(async () => {
    const { 'tidemark reads': reads = 0, 'tidemark dashboard': changes = 0 } = await statementsOf(async () =>
      expect((await owner.post(`${path}/erasures`, body)).status).toBe(200),
    );
    return reads > 0 && changes === 0;
  }, 'it takes no connection of the dashboard');
});
