/** What alerts cost: 10,000 rules a minute, and a year of one rule that is tried. */
import pino from 'pino';
import { createPublicId } from '../../src/base/token-text.ts';
import { requireRule } from '../../src/delivery/alerts/alert-rules.ts';
import { AlertRounds, SETTLE_MS } from '../../src/delivery/alerts/rounds.ts';
import { tryRule } from '../../src/delivery/alerts/trial.ts';
import { openStorage } from '../../src/storage/storage.ts';
import type { Findings } from '../findings.ts';
import { byLength, type RunOptions } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';

/** Of a core: 5 % of a minute. */
const ROUND_GOAL_MS = 3_000;
const YEAR_GOAL_MS = 200;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const APPS = 50;
const RULES_OF_APP = 200;
const TYPES = 10;

/** Counts of an app's types and ratios of them, as one finds them most; every fifth asks longer windows. */
function rulesOf(): string[] {
  return Array.from({ length: RULES_OF_APP }, (_, n) => {
    const type = `type ${n % TYPES}`;
    const window = ['5m', '10m', '15m', '1h', '5m'][n % 5];
    if (n % 10 === 3)
      return JSON.stringify({ ratio: { type }, to: { type: `type ${(n + 1) % TYPES}` }, window, above: 100 });
    if (n % 10 === 7) return JSON.stringify({ absent: true, type, window });
    return JSON.stringify({
      of: 'count',
      type,
      window,
      above: 1_000_000 + n,
      for: n % 2 === 0 ? '2m' : '0m',
    });
  });
}

export async function measureAlerts(
  bench: Workbench,
  findings: Findings,
  options: RunOptions,
): Promise<void> {
  await measureRounds(bench, findings, options);
  await measureYear(bench, findings, options);
}

async function measureRounds(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { sql } = bench;
  const rounds = byLength(options, { full: 8, quick: 5, smoke: 2 });
  findings.note(
    `${APPS * RULES_OF_APP} rules of ${APPS} apps on ${TYPES} types each: counts, ratios and absences over 5 minutes to an hour. One round judges all of them.`,
  );
  const storage = await openStorage(sql);
  const start = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const apps = await bench.installation.seedApps(APPS, 'alerts');
  for (const app of apps) {
    await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT ${`typ_${app.id}_`}::text || n, ${app.id}::integer, 'type ' || n FROM generate_series(0, ${TYPES - 1}::integer) n`;
    await sql`
      INSERT INTO minute_counts (app_id, type_id, bucket, count)
      SELECT ${app.id}::integer, type_id, ${new Date(start - 2 * 60 * MINUTE_MS)}::timestamptz + n * interval '1 minute', 5
        FROM generate_series(0, 180) n,
             (SELECT id AS type_id FROM event_types WHERE app_id = ${app.id} UNION ALL SELECT 0) AS types`;
    for (const [index, rule] of rulesOf().entries())
      await sql`
        INSERT INTO alert_rules (public_id, app_id, name, rule, created_at)
        VALUES (${createPublicId('alr')}, ${app.id}, ${`rule ${index}`}, ${rule}, ${new Date(start - DAY_MS)})`;
  }
  await sql`ANALYZE minute_counts`;
  let now = start;
  const alerts = new AlertRounds({
    ...{ sql, storage, isLeader: () => true, publicUrl: '', now: () => now },
    log: pino({ level: 'silent' }),
  });
  const costs: number[] = [];
  const times: number[] = [];
  for (let round = 0; round < rounds + 1; round += 1) {
    const minute = start + round * MINUTE_MS;
    now = minute + SETTLE_MS;
    const before = { own: process.cpuUsage(), database: bench.databaseCpu(), at: performance.now() };
    while (!(await alerts.round(minute)));
    const { user, system } = process.cpuUsage(before.own);
    // The first one compiles.
    if (round === 0) continue;
    costs.push((user + system) / 1_000 + bench.databaseCpu() - before.database);
    times.push(performance.now() - before.at);
  }
  const judged = APPS * RULES_OF_APP * (rounds + 1);
  findings.check(
    'each round judges all rules',
    alerts.stats.evaluations === judged,
    `${alerts.stats.evaluations} of ${judged}`,
  );
  findings.figure('a round of 10,000 rules', 'ms', times);
  findings.figure('a round of 10,000 rules: CPU with the database', 'ms', costs);
  findings.goal('CPU of 10,000 rules, of a minute of a core', 'ms', median(costs), { atMost: ROUND_GOAL_MS });
  await sql`DELETE FROM alert_rules`;
}

async function measureYear(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { sql } = bench;
  const rounds = byLength(options, { full: 9, quick: 5, smoke: 1 });
  const storage = await openStorage(sql);
  const until = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const from = until - 365 * DAY_MS;
  const app = await bench.makeApp('a year of counts');
  const [type] = await sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id}`;
  const typeId = type?.id ?? 0;
  await sql`
    INSERT INTO minute_counts (app_id, type_id, bucket, count)
    SELECT ${app.id}::integer, type_id, bucket, 1 + (hashint4(extract(epoch FROM bucket)::integer) & 15)
      FROM generate_series(${new Date(from)}::timestamptz, ${new Date(until - MINUTE_MS)}::timestamptz, interval '1 minute') AS bucket,
           unnest(ARRAY[0, ${typeId}::integer]) AS type_id`;
  await sql`VACUUM ANALYZE minute_counts`;
  findings.note('A year of one rule: 525,600 minutes with events, each judged.');
  for (const [name, text] of [
    ['a year of one rule', '{"of":"count","type":"page viewed","window":"5m","above":60}'],
    ['a year of one rule, an hour', '{"of":"count","type":"page viewed","window":"1h","above":600}'],
  ] as const) {
    const times: number[] = [];
    let firings = 0;
    for (let round = 0; round < rounds + 1; round += 1) {
      const startedAt = performance.now();
      const tried = { rule: requireRule(text), appId: app.id, timezone: 'UTC' };
      const trial = await tryRule({ sql, events: storage.reader(sql) }, tried, { from, until });
      if (round > 0) times.push(performance.now() - startedAt);
      firings = trial?.total ?? 0;
    }
    findings.check(`${name} fires`, firings > 0, `${firings} times`);
    findings.figure(name, 'ms', times);
    findings.goal(`${name}, median`, 'ms', median(times), { atMost: YEAR_GOAL_MS });
  }
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
