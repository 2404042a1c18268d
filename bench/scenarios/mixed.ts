/** mixed: the fleet, readers and a dashboard at once; soak: the same for ten minutes. */

import type { Findings } from '../findings.ts';
import { spreadOf } from '../judge.ts';
import { addDashboardUser, seriesPath, signIn } from '../load/dashboard-user.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport, OpenJob } from '../load/load-job.ts';
import { answersOf, checkLedger, checkStatuses, withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { memoryOf } from '../servers/process-usage.ts';
import { type SeededApp, seededApp } from '../servers/seed-events.ts';
import type { Workbench } from '../servers/workbench.ts';
import { FLEET_APPS, FLEET_PER_SECOND, fleetJob } from './fleet.ts';
import { addLatency, windowsOverLimit } from './limits.ts';

/** Readers keep to their own limit of 100 a minute each. */
const READERS = 20;
const READS_PER_SECOND = 20;
const CHARTS_PER_SECOND = 2;
const DAY_MS = 86_400_000;
const SEEDED_EVENTS = 1_000_000;
/** Of the fleet, in the soak: at full load a machine with two shared cores may queue, and a queue is never flat. */
const SOAK_SHARE = 0.4;
const MEMORY_GOAL_MB = 300;

type Part = 'fleet' | 'readers' | 'dashboard';
type Jobs = (seconds: number) => Readonly<Record<Part, OpenJob>>;

function readerRequests(app: SeededApp, tokens: readonly string[]): OpenJob['requests'] {
  return Array.from({ length: tokens.length * 10 }, (_, index) => {
    const offset = (index * 7_919_317) % app.events;
    const type = index % 3 === 0 ? `&typeId=${app.commonType}` : '';
    return {
      method: 'GET' as const,
      path: `/public/get_events?appId=${app.appId}&limit=100&offset=${offset}${type}`,
      headers: { Authorization: `Bearer ${tokens[index % tokens.length]}` },
    };
  });
}

function dashboardRequests(app: SeededApp, cookie: string): OpenJob['requests'] {
  const headers = { Cookie: cookie };
  const days = [1, 7, 30].map((count) =>
    seriesPath(app.appId, { from: app.until - count * DAY_MS, until: app.until }),
  );
  const paths = ['/api/apps', ...days, `/api/apps/${app.appId}/events?limit=50`];
  return paths.map((path) => ({ method: 'GET' as const, path, headers }));
}

interface Slice {
  readonly reports: Readonly<Record<Part, LoadReport>>;
  readonly serverMs: number;
  readonly databaseMs: number;
  /** Megabytes. */
  readonly resident: number;
}

/** Everything at once, in slices one right after the other. */
async function runMix(
  bench: Workbench,
  findings: Findings,
  options: { fleetApps: number; slices: number; seconds: number; events: number },
): Promise<{ slices: Slice[]; highWater: number }> {
  const app = await seededApp(bench, Math.min(options.events, SEEDED_EVENTS));
  const apps = await bench.makeApps(options.fleetApps, 'fleet');
  const tokens: string[] = [];
  for (let index = 0; index < READERS; index += 1) tokens.push(await bench.makeResourceToken([app]));
  await addDashboardUser(bench, [app.appId]);
  const generators = {
    fleet: bench.startGenerator(),
    readers: bench.startGenerator(),
    dashboard: bench.startGenerator(),
  };
  // The readers belong to one account.
  const settings = { READ_LIMIT_PER_MINUTE: String(2 * 60 * READS_PER_SECOND) };
  const service = await bench.startService({ limits: 'kept', settings });
  const { port, pid } = service;
  const cookie = await signIn(port);
  const jobs: Jobs = (seconds) => ({
    fleet: fleetJob(port, apps, seconds),
    readers: {
      ...openJob(port, seconds),
      perSecond: READS_PER_SECOND,
      requests: readerRequests(app, tokens),
    },
    dashboard: {
      ...openJob(port, seconds),
      connections: 4,
      perSecond: CHARTS_PER_SECOND,
      requests: dashboardRequests(app, cookie),
    },
  });
  const runSlice = async (seconds: number): Promise<Slice> => {
    const { fleet, readers, dashboard } = jobs(seconds);
    const cost = await withCost(bench, service, async () => {
      const [first, second, third] = await Promise.all([
        generators.fleet.run(fleet),
        generators.readers.run(readers),
        generators.dashboard.run(dashboard),
      ]);
      return { fleet: first, readers: second, dashboard: third };
    });
    const { serverMs, databaseMs } = cost;
    return { reports: cost.result, serverMs, databaseMs, resident: memoryOf(pid).resident };
  };
  const slices: Slice[] = [];
  for (let slice = 0; slice < options.slices; slice += 1) slices.push(await runSlice(options.seconds));
  const { highWater } = memoryOf(pid);

  const of = (part: Part): LoadReport[] => slices.map(({ reports }) => reports[part]);
  checkStatuses(findings, 'fleet', of('fleet'), [201, 429]);
  checkStatuses(findings, 'readers', of('readers'), [200]);
  checkStatuses(findings, 'dashboard', of('dashboard'), [200]);
  const ids = apps.map(({ id }) => id);
  checkLedger(findings, 'fleet', of('fleet'), await sumOfTable(bench.sql, 'events', ids));
  const over = await windowsOverLimit(bench.sql, ids);
  findings.check('fleet: never more than 1,000 of an app in any 60 seconds', over === 0, `${over} times`);
  return { slices, highWater };
}

function openJob(port: number, seconds: number) {
  return { kind: 'open', port, seconds, connections: 16, warmUpSeconds: Math.min(5, seconds / 3) } as const;
}

function addMix(findings: Findings, slices: readonly Slice[], highWater: number, offered: number): void {
  const of = (part: Part): LoadReport[] => slices.map(({ reports }) => reports[part]);
  findings.figure('events offered', '/s', [offered]);
  findings.figure(
    'events accepted',
    '/s',
    of('fleet').map((report) => answersOf(report, /^201$/) / report.seconds),
  );
  findings.figure(
    'events refused',
    '/s',
    of('fleet').map((report) => answersOf(report, /^429$/) / report.seconds),
  );
  findings.figure(
    'events offered and never sent',
    '',
    of('fleet').map(({ dropped }) => dropped),
  );
  addLatency(findings, 'events', of('fleet'));
  addLatency(findings, `pages, ${READS_PER_SECOND}/s`, of('readers'));
  addLatency(findings, `dashboard, ${CHARTS_PER_SECOND}/s`, of('dashboard'));
  const perEvent = (ms: (slice: Slice) => number): number[] =>
    slices.map((slice) => (ms(slice) * 1_000) / answersOf(slice.reports.fleet));
  findings.figure(
    'server CPU, reads included',
    'µs/event',
    perEvent(({ serverMs }) => serverMs),
  );
  findings.figure(
    'database CPU, reads included',
    'µs/event',
    perEvent(({ databaseMs }) => databaseMs),
  );
  findings.figure(
    'server memory',
    'MB',
    slices.map(({ resident }) => resident),
  );
  findings.figure('server memory, high-water', 'MB', [highWater]);
}

const ABOUT_LOAD = `Open loop: the fleet at its limits, ${READERS} readers with ${READS_PER_SECOND} pages a second at any offset, a dashboard with ${CHARTS_PER_SECOND} requests a second.`;

async function runMixed(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(ABOUT_LOAD);
  const seconds = byLength(options, { full: 60, quick: 15, smoke: 5 });
  const { events } = options;
  const { slices, highWater } = await runMix(bench, findings, {
    fleetApps: FLEET_APPS,
    slices: 1,
    seconds,
    events,
  });
  addMix(findings, slices, highWater, FLEET_PER_SECOND);
}

async function runSoak(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(ABOUT_LOAD);
  findings.note(
    `The fleet has ${SOAK_SHARE * 100} % of its apps: at full load two shared cores may queue, and a queue is never flat.`,
  );
  const length = byLength(options, {
    full: { slices: 20, seconds: 30 },
    quick: { slices: 6, seconds: 15 },
    smoke: { slices: 3, seconds: 3 },
  });
  const fleetApps = Math.round(FLEET_APPS * SOAK_SHARE);
  const { slices, highWater } = await runMix(bench, findings, {
    fleetApps,
    ...length,
    events: options.events,
  });
  addMix(findings, slices, highWater, (fleetApps * 1_000) / 60);
  findings.goal('server memory, high-water', 'MB', highWater, { atMost: MEMORY_GOAL_MB });
  const third = Math.ceil(slices.length / 3);
  const lastToFirst = (of: (slice: Slice) => number): number[] => [
    spreadOf(slices.slice(-third).map(of)).median / spreadOf(slices.slice(0, third).map(of)).median,
  ];
  findings.ratio(
    'memory, last third to first',
    lastToFirst(({ resident }) => resident),
    { atMost: 1.2 },
  );
  const p99 = ({ reports }: Slice): number => reports.fleet.latency?.p99 ?? Number.NaN;
  findings.ratio('p99 of events, last third to first', lastToFirst(p99), { atMost: 1.5 });
}

export const MIXED: readonly Scenario[] = [
  {
    name: 'mixed',
    about: 'The fleet at its limits, readers at any offset and a dashboard, all at once.',
    shares: 'events',
    run: runMixed,
  },
  {
    name: 'soak',
    about: 'Ten minutes of the mix: memory and latency stay flat.',
    shares: 'events',
    run: runSoak,
  },
];
