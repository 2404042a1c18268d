/** retention: what twelve retentions of each app cost writers, and what removing the rows of one app costs the readers of others. */
import { setTimeout as pause } from 'node:timers/promises';
import { setRetention } from '../../src/apps/retention.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { removeExpired } from '../../src/storage/engines/postgres/app-removal.ts';
import { ExpiredRows, REMOVE_ROWS_MS } from '../../src/storage/maintenance/expired-rows.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport } from '../load/load-job.ts';
import { type Contender, checkLedger, checkStatuses, createRequest, interleavedRounds } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startLifted } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { FILLED_DAYS, FILLED_FROM, fillEvents } from '../servers/seed-events.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';
import { addLatency } from './limits.ts';

const DAY_MS = 86_400_000;
const CONNECTIONS = 256;
/** Of each app: one of its own, and one of each of its other types. */
const RETENTIONS = 12;
const WITHOUT = 'apps without a retention';
const WITH = `apps with ${RETENTIONS} retentions`;
const WRITE_GOAL = { atMost: 1.1 };
/** Of the filled events, each app has as many. */
const FILLED_APPS = 10;
const READ_GOAL = { atMost: 1.05 };
const PAGE_EVENTS = 100;
const MOST_WINDOWS = 40;

/** Types of apps, and for the apps of `kept` a retention of the app and of each type: as `tidemark retention set` leaves them. */
async function addRetentions(
  { sql }: Workbench,
  apps: readonly BenchApp[],
  kept: readonly BenchApp[],
): Promise<void> {
  const ids = (of: readonly BenchApp[]): number[] => of.map(({ id }) => id);
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'typ_kept' || app_id || '_' || n, app_id, 'type ' || n
      FROM unnest(${ids(apps)}::integer[]) AS app_id, generate_series(1, ${RETENTIONS - 1}::integer) AS n`;
  const rules = sql`
    SELECT app_id, type_id, days, date_trunc('day', now() - days * interval '24 hours', 'UTC') AS readable_from
      FROM (SELECT app_id, NULL::integer AS type_id, 30 AS days FROM unnest(${ids(kept)}::integer[]) AS app_id
             UNION ALL
            SELECT app_id, id, 1 + (row_number() OVER (PARTITION BY app_id ORDER BY id))::integer
              FROM event_types WHERE app_id = ANY(${ids(kept)}) AND public_id LIKE 'typ_kept%') AS wanted`;
  await sql`INSERT INTO retention_rules (app_id, type_id, days, readable_from) ${rules}`;
  await sql`
    INSERT INTO app_boundaries (app_id, type_id, readable_from, removed_until, moved_at)
    SELECT app_id, coalesce(type_id, 0), readable_from, readable_from, now() FROM (${rules}) AS rules`;
}

async function runWriters(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { count, seconds, rounds } = byLength(options, {
    full: { count: 1_000, seconds: 6, rounds: 7 },
    quick: { count: 1_000, seconds: 4, rounds: 4 },
    smoke: { count: 50, seconds: 1, rounds: 1 },
  });
  findings.note(
    `Writers: ${count.toLocaleString('en')} apps of each kind in turns, ${CONNECTIONS} connections, limits lifted.`,
  );
  const apps = await bench.makeApps(2 * count, 'retention');
  const [without, kept] = [apps.slice(0, count), apps.slice(count)];
  await addRetentions(bench, apps, kept);
  const [first] = apps;
  if (first === undefined) throw new Error('No app was made.');
  const { port, pid } = await startLifted(bench, first);
  const contender = (name: string, of: readonly BenchApp[]): Contender => ({
    name,
    port,
    pid,
    requests: of.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)),
  });
  const generator = bench.startGenerator();
  const results = await interleavedRounds(
    bench,
    generator,
    [contender(WITHOUT, without), contender(WITH, kept)],
    { connections: CONNECTIONS, seconds, rounds },
  );
  const reports = [...results.values()].flatMap(({ rounds: some, warmUp }) =>
    [warmUp, ...some].map(({ report }) => report),
  );
  checkStatuses(findings, 'retention, writers', reports, [201]);
  checkLedger(
    findings,
    'retention, writers',
    reports,
    await sumOfTable(
      bench.sql,
      'events',
      apps.map(({ id }) => id),
    ),
  );
  const [plain, limited] = [results.get(WITHOUT)?.rounds ?? [], results.get(WITH)?.rounds ?? []];
  addRounds(findings, WITHOUT, plain);
  addRounds(findings, WITH, limited);
  const cpu = (some: typeof plain): number[] =>
    some.map(({ serverMicros, databaseMicros }) => serverMicros + databaseMicros);
  const p99 = (some: typeof plain): number[] => some.map(({ report }) => report.latency?.p99 ?? Number.NaN);
  findings.ratio(
    `CPU of an event, ${RETENTIONS} retentions to none`,
    pairwise(cpu(limited), cpu(plain)),
    WRITE_GOAL,
  );
  findings.ratio(
    `p99 of writes, ${RETENTIONS} retentions to none`,
    pairwise(p99(limited), p99(plain)),
    WRITE_GOAL,
  );
}

async function runReaders(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { sql } = bench;
  const windowSeconds = byLength(options, { full: 5, quick: 3, smoke: 1 });
  const apps = await bench.makeApps(FILLED_APPS, 'retention of one');
  const types = await sql<{ id: number }[]>`
    SELECT id FROM event_types WHERE app_id = ANY(${apps.map(({ id }) => id)}) ORDER BY app_id`;
  const byId = apps.toSorted((a, b) => a.id - b.id);
  await fillEvents(sql, {
    appIds: byId.map(({ id }) => id),
    typeIds: types.map(({ id }) => id),
    events: options.events,
  });
  const [removed, ...others] = byId;
  if (removed === undefined) throw new Error('No app was made.');
  const own = options.events / FILLED_APPS;
  findings.note(
    `Readers: pages of ${PAGE_EVENTS} events of other apps at offsets in ${own.toLocaleString('en')} events each, while all events of one app go; in turns with none going.`,
  );
  const service = await bench.startService({ limits: 'lifted' });
  const token = await bench.makeResourceToken(others);
  const requests = others.map((app, index) => ({
    method: 'GET' as const,
    path: `/public/get_events?appId=${app.appId}&limit=${PAGE_EVENTS}&offset=${Math.floor((own * index) / others.length)}`,
    headers: { Authorization: `Bearer ${token}` },
  }));
  const generator = bench.startGenerator();
  const read = (): Promise<LoadReport> =>
    generator.run({ kind: 'closed', port: service.port, connections: 1, seconds: windowSeconds, requests });
  const last = FILLED_FROM + FILLED_DAYS * DAY_MS;
  const rule = {
    appId: removed.appId,
    type: null,
    days: Math.floor((Date.now() - last) / DAY_MS),
    now: Date.now(),
  };
  await read();
  await setRetention(sql, { RETENTION_DAYS: 0 }, rule);
  const maintenance = connect(bench.installation.address, { connections: 1, name: 'bench retention' });
  bench.keep({ stop: async () => await maintenance.end() });
  const expired = new ExpiredRows(maintenance, removeExpired, Date.now);
  await expired.look();
  const [quiet, busy]: [LoadReport[], LoadReport[]] = [[], []];
  while (expired.hasSome && busy.length < MOST_WINDOWS) {
    quiet.push(await read());
    let isOver = false;
    const reading = read().finally(() => {
      isOver = true;
    });
    // As the service does: for a part of each second.
    while (!isOver && expired.hasSome) {
      await expired.removeSome(Date.now() + REMOVE_ROWS_MS);
      await pause(1_000 - REMOVE_ROWS_MS);
    }
    busy.push(await reading);
  }
  const [left] = await sql<
    { rows: number }[]
  >`SELECT count(*)::float8 AS rows FROM events WHERE app_id = ${removed.id}`;
  findings.check('all rows of the app are removed', left?.rows === 0, `${left?.rows} of ${own}`);
  checkStatuses(findings, 'retention, readers', [...quiet, ...busy], [200]);
  addLatency(findings, 'pages, nothing is removed', quiet);
  addLatency(findings, 'pages, rows of another app are removed', busy);
  const of = (name: 'p50' | 'p99', some: readonly LoadReport[]): number[] =>
    some.map(({ latency }) => latency?.[name] ?? Number.NaN);
  findings.ratio(
    'p50 of pages, while rows of another app are removed',
    pairwise(of('p50', busy), of('p50', quiet)),
    READ_GOAL,
  );
  findings.ratio(
    'p99 of pages, while rows of another app are removed',
    pairwise(of('p99', busy), of('p99', quiet)),
  );
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  await runWriters(bench, findings, options);
  await runReaders(bench, findings, options);
}

export const RETENTION: Scenario = {
  name: 'retention',
  about:
    'A thousand apps with twelve retentions beside a thousand without: what an event costs. Then pages of other apps while a tenth of all events is removed.',
  run,
};
