/** Alerts from outside: commands, a clock that is moved, and receivers. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { deliveryFacts, deliveryFindings } from '../../src/cli/doctor/delivery-facts.ts';
import { listAlerts, shownAlert } from '../../src/delivery/alerts/alert-rules.ts';
import { latenessWarnings } from '../../src/delivery/alerts/lateness.ts';
import { parseRule } from '../../src/delivery/alerts/rule.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { build, type Outcome, tidemark } from '../support/command-line.ts';
import { hurryRounds, RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { Receiver } from './receiver.ts';

const NO_FACTS = { isStopped: false, stuck: [], lost: [], problems: [], oldestMessageSeconds: 0, total: 1 };

let service: TestService;
let folder: string;
const clock = new RunningClock();
const receivers: Receiver[] = [];
hurryRounds();
beforeAll(async () => {
  build();
  folder = await mkdtemp(join(tmpdir(), 'tidemark-alerts-'));
  service = await startTestService({
    clock,
    config: { WEBHOOK_ALLOW_PRIVATE: 'true', PUBLIC_URL: 'https://tidemark.example' },
  });
}, 120_000);
afterEach(async () => {
  for (const receiver of receivers.splice(0)) receiver.close();
  await service.sql`DELETE FROM alert_rules`;
  await service.sql`DELETE FROM webhooks`;
  await service.sql`DELETE FROM delivery_messages`;
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true, force: true });
});

const run = (...args: string[]): Promise<Outcome> =>
  tidemark(args, {
    DATABASE_URL: service.database.url,
    DATA_DIR: folder,
    SECRET: 'the secret of the tests, 32 characters',
    WEBHOOK_ALLOW_PRIVATE: 'true',
    MAX_ALERT_RULES_PER_APP: '3',
  });
const json = async <T>(...args: string[]): Promise<T> => {
  const outcome = await run(...args, '--json');
  expect(outcome.code, outcome.stderr).toBe(0);
  return JSON.parse(outcome.stdout) as T;
};
const hook = async (): Promise<{ receiver: Receiver; webhookId: string; secret: string }> => {
  const receiver = new Receiver();
  receivers.push(receiver);
  const url = await receiver.listen();
  const made = await json<{ webhookId: string; secret: string }>(
    ...['webhook', 'add', '--app', service.app.appId, '--url', url, '--type', 'of no event'],
  );
  return { receiver, ...made };
};
const add = (name: string, rule: object, ...args: string[]): Promise<{ alertId: string }> =>
  json('alert', 'add', '--app', service.app.appId, '--name', name, '--rule', JSON.stringify(rule), ...args);
const post = (typeName: string, at: number, payload: object = {}): Promise<void> =>
  store([{ typeName, createdAt: new Date(at).toISOString(), payload }]);
const store = async (events: readonly object[]): Promise<void> => {
  const response = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { authorization: `Bearer ${service.app.loggingToken}` },
    body: JSON.stringify({ events }),
  });
  expect(response.status, response.body).toBe(200);
};
const minute = (): number => Math.floor(clock.wall() / 60_000) * 60_000;
/** Moves the clock into the next minute, and waits for its round. */
const nextMinute = async (count = 1): Promise<void> => {
  for (let n = 0; n < count; n += 1) {
    clock.advance(minute() + 60_000 + 6_000 - clock.wall());
    const due = new Date(minute());
    await until(async () => {
      const rows =
        await service.sql`SELECT FROM alert_rules WHERE evaluated_at < ${due} OR evaluated_at IS NULL`;
      return rows.length === 0;
    }, 'the round of the minute');
  }
};

const eventsOf = async (): Promise<EventReader> => (await openStorage(service.sql)).reader(service.sql);

test('a threshold fires, resolves, and says both by a signed message', async () => {
  const { receiver, webhookId, secret } = await hook();
  const { alertId } = await add(
    'many errors',
    { of: 'count', type: 'error', window: '2m', above: 2 },
    '--webhook',
    webhookId,
  );
  await nextMinute();
  for (let n = 0; n < 3; n += 1) await post('error', minute() + n);
  await nextMinute();
  await until(() => receiver.received.length === 1, 'the firing');
  const [{ headers, body } = { headers: {}, body: '' }] = receiver.received;
  expect(() => new Webhook(secret).verify(body, headers as Record<string, string>)).not.toThrow();
  expect(JSON.parse(body)).toMatchObject({
    type: 'alert.firing',
    data: {
      rule: { alertId, name: 'many errors', above: 2 },
      value: 3,
      threshold: 2,
      appId: service.app.appId,
    },
  });
  expect(JSON.parse(body).data.link).toContain('https://tidemark.example/apps/');
  const { alerts } = await json<{ alerts: { state: string }[] }>('alert', 'list', '--app', service.app.appId);
  expect(alerts[0]?.state).toBe('firing');
  await nextMinute(2);
  await until(() => receiver.received.length === 2, 'the end');
  expect(JSON.parse(receiver.received[1]?.body ?? '')).toMatchObject({
    type: 'alert.resolved',
    data: { value: 0 },
  });
  expect(JSON.parse(receiver.received[1]?.body ?? '').data.resolves).toBe(headers['webhook-id']);
});

test('an alert whose events come later than it is judged says so, with the delay that would do', async () => {
  const absent = { absent: true, type: 'tick', window: '5m' };
  const minutesAgo = (typeName: string, minutes: number): object => ({
    ...{ typeName, payload: {}, createdAt: new Date(clock.wall() - minutes * 60_000).toISOString() },
  });
  const times = (count: number, event: (n: number) => object): object[] =>
    Array.from({ length: count }, (_, n) => event(n));
  // A day of the past is an import, and no lateness; nor is the last day, where it is sent at once.
  await store([
    ...times(20, () => minutesAgo('imported', 2 * 24 * 60)),
    ...times(47, (n) => minutesAgo('history', (n + 1) * 30)),
    ...times(47, (n) => minutesAgo('tick', (n + 1) * 30)),
  ]);
  for (let n = 0; n < 10; n += 1) {
    await store([
      ...times(n < 9 ? 1 : 0, () => minutesAgo('soon over', 6)),
      minutesAgo('tick', 6),
      ...times(10, (k) => minutesAgo('some late', k === 0 ? 85 : 0)),
    ]);
    clock.advance(60_000);
  }
  await until(async () => {
    const [row] = await service.sql`SELECT sum(events)::integer AS events FROM late_events`;
    return row?.events === 47 + 47 + 9 + 10 + 10;
  }, 'the late events');
  const warning =
    'up to 7m after their own time: the rule is judged before they are there. Give it "delay":"7m".';
  const rules: readonly [object, string | null][] = [
    [absent, warning],
    [{ ...absent, window: '7m' }, null],
    [{ ...absent, delay: '2m' }, null],
    [{ ...absent, delay: '1m' }, warning],
    [{ of: 'count', type: 'tick', window: '5m', below: 10 }, warning],
    [{ of: 'count', type: 'tick', window: '5m', below: 10, delay: '7m' }, null],
    [{ of: 'count', type: 'tick', window: '1m', above: 5 }, warning],
    [{ ratio: { type: 'imported' }, to: { type: 'tick' }, window: '5m', above: 5 }, warning],
    [{ of: 'count', type: 'some late', window: '5m', below: 10 }, '"delay":"90m"'],
    [{ absent: true, type: 'some late', window: '5m' }, null],
    [{ of: 'count', type: 'imported', window: '5m', below: 10 }, null],
    [{ of: 'count', type: 'history', window: '5m', below: 10 }, null],
    [{ of: 'count', type: 'soon over', window: '5m', below: 10 }, null],
    [{ absent: true, type: 'of no event', window: '5m' }, null],
  ];
  const [app] = await service.sql<
    { id: number }[]
  >`SELECT id FROM apps WHERE public_id = ${service.app.appId}`;
  const place = { sql: service.sql, events: await eventsOf() };
  const parsed = rules.map(([rule]) => parseRule(JSON.stringify(rule)));
  const warnings = await latenessWarnings(place, app?.id ?? 0, parsed, clock.wall());
  for (const [index, [rule, expected]] of rules.entries())
    expect([rule, warnings[index]]).toEqual([rule, expected && expect.stringContaining(expected)]);
  expect(await add('in time', { ...absent, delay: '2m' })).toMatchObject({ warning: null });
  expect(await add('late', absent)).toMatchObject({ warning: expect.stringContaining(warning) });
  const { late } = await deliveryFacts(service.sql, await eventsOf());
  expect(late).toHaveLength(1);
  const { alerts } = await json<{ alerts: { name: string; warning: string | null }[] }>(
    ...['alert', 'list', '--app', service.app.appId],
  );
  expect(alerts.map((one) => [one.name, one.warning !== null])).toEqual([
    ['in time', false],
    ['late', true],
  ]);
  const doctor = await run('doctor');
  expect(doctor.stdout).toMatch(/alert alr_\w+ "late" is judged before its late events are there/);
  expect((await run('alert', 'list', '--app', service.app.appId)).stdout).toContain(warning);
}, 120_000);

test('a rule with a delay is judged that much later, so that late events are in time', async () => {
  const late = { absent: true, type: 'heartbeat', window: '2m' };
  // Before the rule is there its windows are not empty either.
  for (let n = 2; n < 7; n += 1) await post('heartbeat', minute() - n * 60_000);
  const { alertId } = await json<{ alertId: string }>(
    ...['alert', 'add', '--app', service.app.appId, '--name', 'late', '--rule', JSON.stringify(late)],
    ...['--delay', '3m'],
  );
  const judged = async (): Promise<number> => {
    const [row] = await service.sql`SELECT evaluated_at AS at FROM alert_rules WHERE public_id = ${alertId}`;
    return (row?.at as Date | null)?.getTime() ?? 0;
  };
  // Each event comes two minutes late.
  for (let n = 0; n < 6; n += 1) {
    await post('heartbeat', minute() - 2 * 60_000);
    clock.advance(minute() + 66_000 - clock.wall());
    const due = minute() - 3 * 60_000;
    await until(async () => (await judged()) === due, 'the round of the minute');
  }
  const list = async (): Promise<unknown> => {
    const [row] = await service.sql<{ app: number }[]>`SELECT app_id AS app FROM alert_rules`;
    const [found] = await listAlerts(service.sql, row?.app ?? 0);
    return found && shownAlert(found, clock.wall());
  };
  expect(await list()).toMatchObject({
    rule: { delay: '3m' },
    text: 'no "heartbeat" in 2m, judged 3m later',
    state: 'ok',
    problem: null,
  });
  expect(await service.sql`SELECT FROM alert_transitions`).toHaveLength(0);
  // What is corrected again and again says so, in the list and to the operator.
  await service.sql`
    INSERT INTO alert_transitions (public_id, rule_id, series, kind, at, window_from, window_to)
    SELECT 'made up ' || n, id, '', 'corrected', now(), now(), now() FROM alert_rules, generate_series(1, 3) AS n`;
  expect(await list()).toMatchObject({ state: 'problem', problem: expect.stringContaining('"delay":"10m"') });
  const { problems } = await deliveryFacts(service.sql, await eventsOf());
  expect(deliveryFindings({ deliveries: { ...NO_FACTS, problems } })).toMatchObject([
    {
      level: 'warning',
      found: expect.stringMatching(/"late" is corrected by late events: 3 times in a day/),
    },
  ]);
  const day = await run(
    ...['alert', 'test', '--app', service.app.appId, '--rule', JSON.stringify(late)],
    ...['--from', '2026-01-31', '--to', '2026-01-31'],
  );
  expect([day.code, day.stderr]).toEqual([
    2,
    expect.stringMatching(/--from must be before --to: --to is exclusive, .* choose --to 2026-02-01/),
  ]);
  const refused = await run(
    'alert',
    'add',
    '--app',
    service.app.appId,
    '--name',
    'x',
    '--rule',
    JSON.stringify(late),
    '--delay',
    '2d',
  );
  expect([refused.code, refused.stderr]).toEqual([
    2,
    expect.stringContaining('"delay" of the rule must be at most 1 days'),
  ]);
});
