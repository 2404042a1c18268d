/** What the rules of one account may take of a round of alerts, and what they leave to the others. */
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { addAlert } from '../../src/delivery/alerts/alert-rules.ts';
import {
  AlertRounds,
  MOST_TRANSITIONS_OF_RULE,
  MOST_WAITING_OF_APP,
  SETTLE_MS,
} from '../../src/delivery/alerts/rounds.ts';
import { isRuleProblem, parseRule } from '../../src/delivery/alerts/rule.ts';
import { DAY_MS, MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type FieldDatabase, fieldDatabase } from '../support/field-database.ts';

const START = Date.UTC(2026, 9, 28, 6);

let fields: FieldDatabase;
let rounds: AlertRounds;
let now = START;
beforeEach(async () => {
  fields = await fieldDatabase('postgres18', { now: START, from: START - 2 * DAY_MS, until: START + DAY_MS });
  now = START;
  for (const appId of [1, 2])
    await declareField(fields.sql, { appId, path: ['host'], kind: 'value', typeName: null, backfill: true });
  await fields.upkeep.everySecond();
  rounds = new AlertRounds({
    ...{ sql: fields.sql, storage: await openStorage(fields.sql), isLeader: () => true, publicUrl: '' },
    ...{ now: () => now, log: pino({ level: 'silent' }) },
  });
});
afterEach(() => fields.close());

/** Stores an event of each of some hosts in the minute before one. */
async function write(minute: number, hosts: number, typeId = 1): Promise<void> {
  const at = minute - MINUTE_MS;
  await fields.write(
    Array.from({ length: hosts }, (_, n) => ({
      ...{ id: fields.newId(at), at, typeId, payload: JSON.stringify({ host: `h${n}` }) },
    })),
  );
}

async function judge(minute: number): Promise<void> {
  now = minute + SETTLE_MS;
  fields.clock.now = now;
  await fields.upkeep.everySecond();
  await fields.settle();
  while (!(await rounds.round(minute))) {}
}

async function add(
  appId: number,
  name: string,
  rule: object,
  webhooks: readonly string[] = [],
): Promise<void> {
  for (const webhookId of webhooks)
    await fields.sql`
      INSERT INTO webhooks (public_id, app_id, name, url, secret, format)
      SELECT ${webhookId}, ${appId}, ${webhookId}, 'https://example.com', 'sealed', 'standard'
       WHERE NOT EXISTS (SELECT FROM webhooks WHERE public_id = ${webhookId})`.catch(() => undefined);
  await addAlert(
    fields.sql,
    { id: appId, appId: `app${appId}` },
    {
      ...{ name, rule: JSON.stringify(rule), timezone: 'UTC', webhooks: [], emails: [], alertmanager: null },
      ...{ most: 100, allowPrivate: true, sendsMail: false },
    },
  );
  await fields.sql`UPDATE alert_rules SET created_at = ${new Date(now)}, webhooks = ${[...webhooks]} WHERE name = ${name}`;
}

async function ruleOf(name: string): Promise<{ problem: string | null; evaluatedAt: Date | null }> {
  const [row] = await fields.sql<{ problem: string | null; evaluatedAt: Date | null }[]>`
    SELECT problem, evaluated_at AS "evaluatedAt" FROM alert_rules WHERE name = ${name}`;
  return row ?? { problem: 'there is no such rule', evaluatedAt: null };
}

const saidOf = async (name: string): Promise<number> =>
  (
    await fields.sql`SELECT FROM alert_transitions JOIN alert_rules ON alert_rules.id = rule_id WHERE name = ${name}`
  ).length;

test('values at more minutes than a rule may read are its problem, and not read; rules of others are judged', async () => {
  await add(1, 'too many', { of: 'count', by: 'host', window: '7d', above: 1e9, for: '1d' });
  await add(1, 'few', { of: 'count', by: 'host', window: '1m', above: 0 });
  await add(2, 'of another app', { of: 'count', window: '1m', above: 0 });
  const minute = START + MINUTE_MS;
  await write(minute, 1_500);
  await write(minute, 1, 3);
  await judge(minute);
  expect((await ruleOf('too many')).problem).toContain('too many values');
  expect((await ruleOf('few')).evaluatedAt).toEqual(new Date(minute));
  expect(await ruleOf('of another app')).toEqual({ problem: null, evaluatedAt: new Date(minute) });
  expect(await saidOf('of another app')).toBe(1);
});

test('a failure of the rules of one app keeps no other app from being judged', async () => {
  await add(1, 'fails', { of: 'count', window: '1m', above: 0 });
  await add(2, 'of another app', { of: 'count', window: '1m', above: 0 });
  await fields.sql.unsafe(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON alert_rules FOR EACH ROW WHEN (NEW.name = 'fails') EXECUTE FUNCTION refuse()`);
  const minute = START + MINUTE_MS;
  await expect(judge(minute)).rejects.toThrow('refused');
  expect((await ruleOf('of another app')).evaluatedAt).toEqual(new Date(minute));
});

test('of many series that change at once each is said once, in as many minutes as it takes, by a message for many', async () => {
  const hosts = MOST_TRANSITIONS_OF_RULE + 100;
  await add(1, 'burst', { of: 'count', by: 'host', window: '10m', above: 0 }, ['whk_1', 'whk_2']);
  const minute = START + MINUTE_MS;
  await write(minute, hosts);
  await judge(minute);
  expect(await saidOf('burst')).toBe(MOST_TRANSITIONS_OF_RULE);
  expect((await ruleOf('burst')).problem).toContain(`More than ${MOST_TRANSITIONS_OF_RULE} values`);
  await judge(minute + MINUTE_MS);
  expect(await saidOf('burst')).toBe(hosts);
  expect((await ruleOf('burst')).problem).toBeNull();
  const messages = await fields.sql<{ target: string; body: string }[]>`
    SELECT target, body FROM delivery_messages WHERE channel = 'webhook' ORDER BY id`;
  expect(messages.map(({ target }) => target)).toEqual(['whk_1', 'whk_2', 'whk_1', 'whk_2']);
  const [first] = messages.map(({ body }) => JSON.parse(body));
  expect(first.data.also).toHaveLength(MOST_TRANSITIONS_OF_RULE - 1);
  expect(first.data.also[0]).toMatchObject({ value: 1, threshold: 0, series: { host: expect.any(String) } });
});

test('an app with as many waiting messages as it may have gets no more, and the rule says so', async () => {
  await add(1, 'full', { of: 'count', window: '1m', above: 0 }, ['whk_1']);
  await fields.sql`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT 1, 'webhook', 'whk_0', n::text, 'alert.firing', '{}', now(), now() FROM generate_series(1, ${MOST_WAITING_OF_APP}) AS n`;
  const minute = START + MINUTE_MS;
  await write(minute, 1);
  await judge(minute);
  expect(await saidOf('full')).toBe(1);
  expect((await ruleOf('full')).problem).toContain('messages of this app wait');
  expect(await fields.sql`SELECT FROM delivery_messages`).toHaveLength(MOST_WAITING_OF_APP);
});

test('a rule that was judged by a clock that was ahead goes on at the present minute', async () => {
  await add(1, 'ahead', { of: 'count', window: '1m', above: 0 });
  await fields.sql`UPDATE alert_rules SET evaluated_at = ${new Date(START + 30 * DAY_MS)}`;
  const minute = START + MINUTE_MS;
  await write(minute, 1);
  await judge(minute);
  expect((await ruleOf('ahead')).evaluatedAt).toEqual(new Date(minute));
  expect(await saidOf('ahead')).toBe(1);
});

test('a statistic that must hold for hours is refused when the rule is made, as each of its minutes is a read', () => {
  const rule = (hold: string) =>
    parseRule(JSON.stringify({ of: 'p95', field: 'ms', window: '5m', above: 1, for: hold }));
  expect(isRuleProblem(rule('4h'))).toBe(false);
  expect(rule('5h')).toEqual({ field: 'for', problem: expect.stringContaining('at most 4h of a statistic') });
});
