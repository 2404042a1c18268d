/** What the rules of one account may take of a round of alerts, and what they leave to the others. */
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { deliveryFacts, deliveryFindings } from '../../src/cli/doctor/delivery-facts.ts';
import { addAlert, listAlerts, shownAlert } from '../../src/delivery/alerts/alert-rules.ts';
import { MOST_TRANSITIONS_OF_RULE } from '../../src/delivery/alerts/judging.ts';
import { bodyOf } from '../../src/delivery/alerts/messages.ts';
import { AlertRounds, SETTLE_MS } from '../../src/delivery/alerts/rounds.ts';
import { isRuleProblem, parseRule } from '../../src/delivery/alerts/rule.ts';
import { MOST_WAITING_OF_APP } from '../../src/delivery/alerts/telling.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { type FieldDatabase, fieldDatabase } from '../support/field-database.ts';
import { seededRandom } from '../support/field-oracle.ts';

const START = Date.UTC(2026, 9, 28, 6);

let fields: FieldDatabase;
let rounds: AlertRounds;
let now = START;
/** The reads of statistics of the rounds, by name. */
const statistics: string[] = [];
beforeEach(async () => {
  fields = await fieldDatabase('postgres18', { now: START, from: START - 2 * DAY_MS, until: START + DAY_MS });
  now = START;
  for (const appId of [1, 2])
    await declareField(fields.sql, { appId, path: ['host'], kind: 'value', typeName: null, backfill: true });
  await fields.upkeep.everySecond();
  const storage = await openStorage(fields.sql);
  const inSnapshot: Storage['inSnapshot'] = (sql, read) =>
    storage.inSnapshot(sql, (events) =>
      read({
        ...events,
        summarySeries: (request) => {
          statistics.push('summarySeries');
          return events.summarySeries(request);
        },
        summaryWindows: (request) => {
          statistics.push('summaryWindows');
          return events.summaryWindows(request);
        },
      }),
    );
  rounds = new AlertRounds({
    ...{ sql: fields.sql, storage: { ...storage, inSnapshot }, isLeader: () => true },
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
      INSERT INTO webhooks (public_id, app_id, url, digest, sealed)
      VALUES (${webhookId}, ${appId}, 'https://example.com', '', '') ON CONFLICT DO NOTHING`;
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
  const messages = await fields.sql<{ target: string; said: string }[]>`
    SELECT target, said FROM delivery_messages WHERE channel = 'webhook' ORDER BY id`;
  expect(messages.map(({ target }) => target)).toEqual(['whk_1', 'whk_2', 'whk_1', 'whk_2']);
  const [first] = messages.map(({ said }) => JSON.parse(bodyOf('webhook', said, '') ?? ''));
  expect(first.data.also).toHaveLength(MOST_TRANSITIONS_OF_RULE - 1);
  expect(first.data.also[0]).toMatchObject({ value: 1, threshold: 0, series: { host: expect.any(String) } });
});

test('what many rules say in a round, and of many series, is stored by one statement each', async () => {
  const { sql } = fields;
  for (let n = 0; n < 20; n += 1)
    await add(1, `rule ${n}`, { of: 'count', window: '1m', above: 0 }, ['whk_1']);
  await add(1, 'series', { of: 'count', by: 'host', window: '1m', above: 0 });
  await sql`UPDATE alert_rules SET alertmanager = 'https://alerts.example.com'`;
  await sql.unsafe(`
    CREATE TABLE statements (of text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO statements VALUES (TG_TABLE_NAME || ' ' || TG_OP); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER INSERT OR DELETE ON alert_states FOR EACH STATEMENT EXECUTE FUNCTION note();
    CREATE TRIGGER note AFTER INSERT ON alert_transitions FOR EACH STATEMENT EXECUTE FUNCTION note();
    CREATE TRIGGER note AFTER INSERT ON delivery_messages FOR EACH STATEMENT EXECUTE FUNCTION note()`);
  const statements = async () =>
    (
      await sql<{ of: string; n: number }[]>`
      WITH taken AS (DELETE FROM statements RETURNING of)
      SELECT of, count(*)::integer AS n FROM taken GROUP BY of`
    )
      .map(({ of, n }) => `${of} ${n}`)
      .sort();
  const minute = START + MINUTE_MS;
  await write(minute, 50);
  await judge(minute);
  expect(await sql`SELECT FROM alert_states`).toHaveLength(70);
  // One for all rules on counts of all events, and one for the rule by a field.
  const all = ['alert_states DELETE 2', 'alert_states INSERT 2', 'alert_transitions INSERT 2'];
  expect(await statements()).toEqual([...all, 'delivery_messages INSERT 2']);
  // Alertmanager is told again of all that fires.
  await sql`DELETE FROM delivery_messages`;
  await write(minute + MINUTE_MS, 50);
  await judge(minute + MINUTE_MS);
  expect(await statements()).toEqual(['delivery_messages INSERT 1']);
  const again = await sql<{ said: string }[]>`SELECT said FROM delivery_messages`;
  const bodies = again.map(({ said }) => bodyOf('alertmanager', said, '') ?? '');
  expect(bodies.flatMap((body) => JSON.parse(body) as unknown[])).toHaveLength(70);
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

test('a rule that was judged by a clock that was ahead is named, and goes on at the present minute', async () => {
  await add(1, 'ahead', { of: 'count', window: '1m', above: 0 });
  await fields.sql`UPDATE alert_rules SET evaluated_at = now() + interval '2 hours'`;
  const [shown] = (await listAlerts(fields.sql, 1)).map((one) => shownAlert(one, Date.now()));
  expect(shown).toMatchObject({ state: 'problem', problem: expect.stringContaining('ahead of the clock') });
  const events = (await openStorage(fields.sql)).reader(fields.sql);
  const findings = deliveryFindings({ deliveries: await deliveryFacts(fields.sql, events) });
  expect(findings.map(({ found }) => found)).toEqual([
    expect.stringMatching(/"ahead" cannot be .* ahead of the clock/),
  ]);
  await fields.sql`UPDATE alert_rules SET evaluated_at = ${new Date(START + 2 * HOUR_MS)}`;
  const minute = START + MINUTE_MS;
  await write(minute, 1);
  await judge(minute);
  expect((await ruleOf('ahead')).evaluatedAt).toEqual(new Date(minute));
  expect(await saidOf('ahead')).toBe(1);
});

test('all windows of a statistic are one read, and tell what each of them read alone tells', async () => {
  const { sql } = fields;
  await declareField(sql, {
    ...{ appId: 1, path: ['ms'], kind: 'number', by: ['host'], typeName: null, backfill: true },
  });
  await fields.upkeep.everySecond();
  const random = seededRandom(59);
  const events = Array.from({ length: 400 }, () => {
    const at = START - random(random(900) + 1) * MINUTE_MS - random(MINUTE_MS) - 1;
    const payload = JSON.stringify({ host: `h${random(3)}`, ms: random(1_000) });
    return { id: fields.newId(at), at, typeId: 1 + random(2), payload };
  });
  await fields.write(events.slice(0, 300));
  await fields.upkeep.everySecond();
  await fields.settle();
  // Of the last ones the counts do not know yet.
  await fields.write(events.slice(300));
  const reader = (await openStorage(sql)).reader(sql);
  for (const by of [null, ['host']])
    for (const [minutes, ends] of [
      ...[[1, 1] as const, [1, 6] as const, [5, 8] as const, [7, 5] as const],
      ...[[200, 3] as const, [300, 3] as const, [1_500, 1] as const],
    ]) {
      const windowMs = minutes * MINUTE_MS;
      const question = { kind: 'number', of: ['ms'], by, filter: null } as const;
      const of = { appId: 1, typeIds: by === null ? [1] : null, question };
      const first = START - (ends - 1) * MINUTE_MS;
      const windows = await reader.summaryWindows({ ...of, windowMs, stepMs: MINUTE_MS, first, last: START });
      if (typeof windows === 'string') throw new Error(windows);
      for (let at = 0; at < ends; at += 1) {
        const until = first + at * MINUTE_MS;
        const frame = { timezone: 'UTC', exactEnds: 'both', buckets: 100, topTypes: 100 } as const;
        const alone = await reader.summarySeries({ ...of, ...frame, from: until - windowMs, until });
        if (typeof alone === 'string') throw new Error(alone);
        const lines = alone.lines.filter(({ value }) => by === null || value !== null);
        const told = [...windows].flatMap(([value, stats]) =>
          stats[at] === null ? [] : [[value, stats[at]]],
        );
        expect(Object.fromEntries(told), `${minutes} minutes until ${at}`).toEqual(
          Object.fromEntries(lines.map(({ value, overall }) => [value ?? '', overall])),
        );
      }
    }
  await add(1, 'slow', { of: 'p99', field: 'ms', by: 'host', window: '5m', above: 10, for: '4h' });
  statistics.length = 0;
  await judge(START + MINUTE_MS);
  expect(await ruleOf('slow')).toMatchObject({ problem: null });
  expect(statistics).toEqual(['summaryWindows']);
});

test('a statistic that must hold for hours is refused when the rule is made, as each of its minutes is a read', () => {
  const rule = (hold: string) =>
    parseRule(JSON.stringify({ of: 'p95', field: 'ms', window: '5m', above: 1, for: hold }));
  expect(isRuleProblem(rule('4h'))).toBe(false);
  expect(rule('5h')).toEqual({ field: 'for', problem: expect.stringContaining('at most 4h of a statistic') });
});
