/** The routes of webhooks and alerts for sessions: who may, what is refused and why, limits, and apps in the bin. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { AlertTrial } from '../../src/api-types/answers.ts';
import { findWebhook, skipEvent } from '../../src/delivery/webhooks.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { addPastEvents } from '../dashboard/past-events.ts';
import { joinApp, newOwnApp, newPerson, type Person, type Reply } from '../support/person.ts';
import { hurryRounds, RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { Receiver } from './receiver.ts';

const RULE = '{"of":"count","type":"test type","window":"1m","above":0}';
const clock = new RunningClock();
let service: TestService;
let owner: Person;
let maintainer: Person;
let viewer: Person;
let app: { appId: string; path: string; loggingToken: string };
const receivers: Receiver[] = [];
hurryRounds();
beforeAll(async () => {
  service = await startTestService({
    clock,
    config: { WEBHOOK_ALLOW_PRIVATE: 'true', MAX_WEBHOOKS_PER_APP: 2, MAX_ALERT_RULES_PER_APP: 2 },
  });
  owner = await newPerson(service, 'owner@example.com');
  maintainer = await newPerson(service, 'maintainer@example.com');
  viewer = await newPerson(service, 'viewer@example.com');
  app = await newOwnApp(owner);
  await joinApp(owner, app.path, maintainer, { email: 'maintainer@example.com', role: 'maintainer' });
  await joinApp(owner, app.path, viewer, { email: 'viewer@example.com', role: 'viewer' });
  expect(await post()).toBe(201);
});
afterEach(async () => {
  for (const receiver of receivers.splice(0)) receiver.close();
  await service.sql`DELETE FROM consumers WHERE kind = 'webhook'`;
  await service.sql`DELETE FROM webhooks`;
  await service.sql`DELETE FROM alert_rules`;
});
afterAll(() => service.stop());

const post = async (n = 0): Promise<number> =>
  (
    await service.post({
      ...{ loggingToken: app.loggingToken, typeId: undefined, typeName: 'test type', payload: { n } },
    })
  ).status;
const webhooks = async (who: Person = owner): Promise<Record<string, unknown>[]> =>
  (await who.get(`${app.path}/webhooks`)).data.webhooks as Record<string, unknown>[];
const alerts = async (who: Person = owner): Promise<Record<string, unknown>[]> =>
  (await who.get(`${app.path}/alerts`)).data.alerts as Record<string, unknown>[];
const receive = async (): Promise<{ receiver: Receiver; url: string }> => {
  const receiver = new Receiver();
  receivers.push(receiver);
  return { receiver, url: await receiver.listen() };
};
const nextMinute = async (): Promise<void> => {
  const minute = Math.floor(clock.wall() / 60_000) * 60_000 + 60_000;
  clock.advance(minute + 6_000 - clock.wall());
  await until(async () => {
    const rows = await service.sql`
      SELECT FROM alert_rules WHERE NOT is_paused AND (evaluated_at < ${new Date(minute)} OR evaluated_at IS NULL)`;
    return rows.length === 0;
  }, 'the round of the minute');
};

test('owners and maintainers change webhooks and alerts, viewers see them without a secret', async () => {
  const { receiver, url } = await receive();
  const made = await maintainer.post(`${app.path}/webhooks`, { url });
  expect(made.status, made.text).toBe(201);
  const { webhookId, secret } = made.data as { webhookId: string; secret: string };
  const alert = await owner.post(`${app.path}/alerts`, { name: 'Any', rule: RULE, webhooks: [webhookId] });
  expect(alert.status, alert.text).toBe(201);
  const { alertId } = alert.data;
  expect(await webhooks(viewer)).toEqual([expect.objectContaining({ webhookId, url, state: 'active' })]);
  expect(await alerts(viewer)).toEqual([
    expect.objectContaining({ alertId, state: 'ok', text: 'count of "test type" in 1m above 0' }),
  ]);
  expect((await viewer.get(`${app.path}/webhooks`)).text).not.toContain(secret);
  for (const path of [`webhooks/${webhookId}`, `alerts/${alertId}`]) {
    expect((await viewer.post(`${app.path}/${path}/pause`)).code).toBe('ACCESS_DENIED');
    expect((await viewer.delete(`${app.path}/${path}`)).code).toBe('ACCESS_DENIED');
    expect((await maintainer.post(`${app.path}/${path}/pause`)).status).toBe(200);
    expect((await owner.post(`${app.path}/${path}/resume`)).status).toBe(200);
    expect((await owner.post(`${app.path}/${path}/stop`)).code).toBe('NOT_FOUND');
  }
  const tested = await maintainer.post(`${app.path}/webhooks/${webhookId}/test`);
  expect(tested.data).toMatchObject({ status: 204, problem: null });
  expect(receiver.bodies.map(({ type }) => type)).toEqual(['webhook.test']);
  const [{ history } = { history: [] }] = await webhooks(viewer);
  expect(history).toEqual([expect.objectContaining({ type: 'webhook.test', status: 204 })]);
  const rotated = await owner.post(`${app.path}/webhooks/${webhookId}/rotate`);
  expect(rotated.data.secret).toMatch(/^whsec_/);
  expect(rotated.data.secret).not.toBe(secret);
  expect((await maintainer.post(`${app.path}/webhooks/${webhookId}/skip`)).data).toEqual({ eventId: null });
  const other = await newOwnApp(owner, 'Other');
  expect((await owner.post(`${other.path}/webhooks/${webhookId}/pause`)).code).toBe('WEBHOOK_NOT_FOUND');
  expect((await owner.delete(`${other.path}/alerts/${alertId}`)).code).toBe('ALERT_RULE_NOT_FOUND');
  expect((await maintainer.delete(`${app.path}/webhooks/${webhookId}`)).status).toBe(200);
  expect((await maintainer.delete(`${app.path}/alerts/${alertId}`)).status).toBe(200);
  const rows = await service.sql<{ action: string }[]>`
    SELECT DISTINCT action FROM audit_entries WHERE action LIKE 'webhook.%' OR action LIKE 'alert.%' ORDER BY 1`;
  expect(rows.map(({ action }) => action)).toEqual([
    ...['alert.add', 'alert.pause', 'alert.remove', 'alert.resume'],
    ...['webhook.add', 'webhook.pause', 'webhook.remove', 'webhook.resume', 'webhook.rotate'],
  ]);
});

test('bad input is refused with its field and what was expected', async () => {
  const hook = (body: object): Promise<Reply> => owner.post(`${app.path}/webhooks`, body);
  const alert = (body: object): Promise<Reply> =>
    owner.post(`${app.path}/alerts`, { name: 'a', rule: RULE, ...body });
  const cases: [Promise<Reply>, string][] = [
    [hook({}), '"url"'],
    [hook({ url: 'ftp://example.com' }), 'https://'],
    [hook({ url: 'https://user:pw@example.com' }), 'url'],
    [hook({ url: 'https://example.com', types: ['test tyep'] }), 'did you mean \\"test type\\"'],
    [hook({ url: 'https://example.com', filter: ['n>'] }), 'column'],
    [hook({ url: 'https://example.com', unordered: 'yes' }), 'unordered'],
    [alert({ name: '' }), 'name'],
    [alert({ rule: '{' }), 'JSON'],
    [
      alert({ rule: '{"of":"cuont","window":"1m","above":1}' }),
      'is wrong: the field \\"of\\" of the rule must be one of count',
    ],
    [alert({ rule: '{"of":"count","windwo":"1m","above":1}' }), 'did you mean \\"window\\"'],
    [alert({ rule: '{"of":"p99","field":"ms","window":"5m","above":1}' }), 'tidemark field add'],
    [alert({ timezone: 'Europe/Berlim' }), 'timezone'],
    [alert({ webhooks: ['whk_aaaaaaaaaaaaaaaaaaaa'] }), 'there is no webhook'],
    [alert({ emails: ['stranger@example.com'] }), 'members of the app'],
    [alert({ emails: ['owner@example.com'] }), 'SMTP_URL'],
    [alert({ alertmanager: 'alertmanager:9093' }), 'alertmanager'],
    [owner.get(`${app.path}/alerts/trial`), 'rule'],
    [owner.get(`${app.path}/alerts/trial?rule=${encodeURIComponent('{"of":"count"}')}`), 'window'],
    [
      owner.get(`${app.path}/alerts/trial?rule=${encodeURIComponent(RULE.replace('test type', '\\u0000'))}`),
      'NUL',
    ],
    [hook({ url: 'https://example.com', types: ['\0'] }), 'must not contain NUL'],
    [hook({ url: 'https://example.com', filter: ['n:\0'] }), 'must not contain NUL'],
    [owner.post(`${app.path}/shares`, { viewId: '\0', range: '1h', timezone: 'UTC' }), 'NUL'],
  ];
  for (const [reply, expected] of cases) {
    const { status, text } = await reply;
    expect(status, text).toBe(400);
    expect(text).toContain(expected);
  }
  expect(await webhooks()).toEqual([]);
  expect(await alerts()).toEqual([]);
});

test('a trial says how often a rule would have fired, and tells its last firings and when of all', async () => {
  const quiet = JSON.stringify({ absent: true, type: 'test type', window: '5m' });
  const begin = clock.wall();
  // An event each hour for six days: it would have fired between any two.
  const events = Array.from({ length: 144 }, (_, hour) => ({
    at: new Date(begin - 3_600_000 * (hour + 1)).toISOString(),
  }));
  const [type] = await service.sql<{ typeId: string }[]>`
    SELECT event_types.public_id AS "typeId" FROM event_types JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId}`;
  await addPastEvents(service, type?.typeId ?? '', events);
  const reply = await owner.get(`${app.path}/alerts/trial?${new URLSearchParams({ rule: quiet })}`);
  const { total, firings, fires, from, to } = reply.data as unknown as AlertTrial;
  expect(total).toBeGreaterThan(140);
  expect(firings.length).toBe(100);
  const last = Math.max(...firings.map((one) => one.from));
  expect(firings.at(-1)?.from).toBe(last);
  expect(last).toBeGreaterThan(begin - 2 * 3_600_000);
  // Six of thirty days, until now.
  const marked = fires.flatMap((isFiring, point) => (isFiring ? [point] : []));
  expect(marked.at(-1)).toBe(fires.length - 1);
  expect(marked.length).toBeGreaterThan(0.9 * fires.length * ((6 * 86_400_000) / (to - from)));
});

test('the limits of an app are exact, and said', async () => {
  const hooks = await Promise.all(
    [1, 2, 3, 4].map((n) => owner.post(`${app.path}/webhooks`, { url: `https://example.com/${n}` })),
  );
  expect(hooks.map(({ status }) => status).sort()).toEqual([201, 201, 400, 400]);
  expect(hooks.find(({ status }) => status === 400)?.text).toContain('MAX_WEBHOOKS_PER_APP');
  const rules = await Promise.all(
    ['a', 'b', 'c'].map((name) => owner.post(`${app.path}/alerts`, { name, rule: RULE })),
  );
  expect(rules.map(({ status }) => status).sort()).toEqual([201, 201, 400]);
  expect(rules.find(({ status }) => status === 400)?.text).toContain('MAX_ALERT_RULES_PER_APP');
  expect((await owner.get(`${app.path}/alerts`)).data).toMatchObject({ most: 2, sendsMail: false });
});

test('an app in the bin sends nothing and fires nothing; restored, both go on where they were', async () => {
  const { receiver, url } = await receive();
  receiver.answer = (response) => response.writeHead(500).end();
  const { data } = await owner.post(`${app.path}/webhooks`, { url });
  await owner.post(`${app.path}/alerts`, { name: 'Any', rule: RULE, webhooks: [data.webhookId] });
  await nextMinute();
  expect(await post(1)).toBe(201);
  expect(await post(2)).toBe(201);
  await until(async () => (await webhooks()).some(({ failedTries }) => failedTries === 1), 'a failed try');
  receiver.answer = (response) => response.writeHead(204).end();
  expect((await owner.delete(app.path, { confirm: 'Shop' })).status).toBe(200);
  const before = receiver.received.length;
  const [count] = await service.sql`SELECT count(*)::integer AS n FROM alert_transitions`;
  // Another app, whose deliveries and rounds show that those of this one had their turn.
  const other = await newOwnApp(owner, 'Other');
  const { receiver: beside, url: besideUrl } = await receive();
  const { data: hook } = await owner.post(`${other.path}/webhooks`, { url: besideUrl });
  await service.sql`
    INSERT INTO alert_rules (public_id, app_id, name, rule, timezone, webhooks, emails)
    SELECT 'alr_bbbbbbbbbbbbbbbbbbbb', id, 'Some', '{"of":"count","window":"1m","above":0}', 'UTC',
           ARRAY[${String(hook.webhookId)}], '{}' FROM apps WHERE public_id = ${other.appId}`;
  // Longer than the wait for the next try.
  clock.advance(300_000);
  await until(async () => {
    const [row] = await service.sql`SELECT FROM alert_rules WHERE name = 'Some' AND evaluated_at IS NOT NULL`;
    return row !== undefined;
  }, 'the round of the other alert');
  await service.post({ loggingToken: other.loggingToken, typeId: undefined, typeName: 'x', payload: {} });
  await until(() => beside.received.length > 0, 'the delivery of the other app');
  expect(receiver.received).toHaveLength(before);
  expect(await service.sql`SELECT count(*)::integer AS n FROM alert_transitions`).toEqual([count]);
  expect((await owner.get(`${app.path}/webhooks`)).status).toBe(404);
  expect((await owner.post(`/api/removed-apps/${app.appId}/restore`)).status).toBe(200);
  const payloads = (): unknown[] =>
    receiver.bodies
      .slice(before)
      .flatMap(({ type, data: one }) => (type === 'event.created' ? [one.payload] : []));
  await until(() => payloads().length === 2, 'the events that waited');
  expect(payloads()).toEqual([{ n: 1 }, { n: 2 }]);
  await nextMinute();
  expect(await post(3)).toBe(201);
  await nextMinute();
  await until(
    () => receiver.bodies.some(({ type }) => type === 'alert.firing'),
    'the alert of the restored app',
  );
});

test('skipping an event takes some steps, and ends with its client and its lease', async () => {
  const { url } = await receive();
  const made = await owner.post(`${app.path}/webhooks`, { url, filter: ['n:none'] });
  const webhookId = String(made.data.webhookId);
  await owner.post(`${app.path}/webhooks/${webhookId}/pause`);
  const events = Array.from({ length: 150 }, (_, n) => ({ type: 'test type', payload: { n } }));
  const sent = await service.request({
    ...{ method: 'POST', path: '/v1/events', body: JSON.stringify(events) },
    headers: { Authorization: `Bearer ${app.loggingToken}`, 'Content-Type': 'application/json' },
  });
  expect(sent.status, sent.body).toBe(200);
  const found = await findWebhook(service.sql, webhookId);
  let looks = 0;
  class Counted extends ConsumerStore {
    override async read(...args: Parameters<ConsumerStore['read']>) {
      looks += 1;
      return await super.read(...args);
    }
  }
  const store = new Counted('postgres', service.sql);
  const notYet = { rejection: { reason: 'unavailable' } };
  await expect(skipEvent(service.sql, store, found, { pass: async () => false })).rejects.toMatchObject(
    notYet,
  );
  expect(looks).toBe(0);
  await until(async () => {
    // A tick tells of the events that were committed before it.
    looks = 0;
    return await skipEvent(service.sql, store, found, { mostSteps: 1 }).then(
      () => false,
      () => true,
    );
  }, 'the events can be read');
  expect(looks).toBe(1);
  // The next one continues behind the first 100, and finds no event to be skipped.
  expect(await skipEvent(service.sql, store, found, { mostSteps: 2 })).toBeNull();
  class Taken extends ConsumerStore {
    override async read(...args: Parameters<ConsumerStore['read']>) {
      await this.endLease(found.appId, webhookId);
      return await super.read(...args);
    }
  }
  await expect(skipEvent(service.sql, new Taken('postgres', service.sql), found)).rejects.toMatchObject(
    notYet,
  );
});
