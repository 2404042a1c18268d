/** series: histograms of a day, a month and a year, at one and at ten million events. */

import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { addDashboardUser, type SeriesRange, seriesPath, signIn } from '../load/dashboard-user.ts';
import { addReads, type Contender, interleavedRounds } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { seedYear, YEAR_END } from '../servers/seed-counts.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const DAY_MS = 86_400_000;
const SIZE_GOAL = 1.2;

const RANGES = [
  { name: 'a day', days: 1 },
  { name: 'a month', days: 30 },
  { name: 'a year', days: 365 },
] as const;
const TIMEZONES = ['UTC', 'Europe/Berlin'] as const;

interface Series {
  readonly data: {
    readonly all: readonly number[];
    readonly starts: readonly number[];
    readonly end: number;
  };
}

/** The sum of a chart's bars against the counts that it stands for. */
async function checkSum(
  bench: Workbench,
  findings: Findings,
  name: string,
  request: { port: number; app: BenchApp; cookie: string; range: SeriesRange },
): Promise<void> {
  const { port, app, cookie, range } = request;
  const response = await fetch(`http://127.0.0.1:${port}${seriesPath(app.appId, range)}`, {
    headers: { Cookie: cookie },
  });
  // The API's own shape; a sum of something else would not be the right one.
  const { data } = (await response.json()) as Series;
  const sum = data.all.reduce((total, count) => total + count, 0);
  // Of the first and the last bar only what lies in the range is counted.
  const from = Math.max(range.from, data.starts[0] ?? 0);
  const until = Math.min(range.until, data.end);
  const [counted] = await bench.sql<{ total: number }[]>`
    SELECT sum(count)::float8 AS total FROM events_per_quarter_hour
     WHERE app_id = ${app.id} AND type_id = 0
       AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}`;
  findings.check(
    `${name}: the bars add up`,
    sum > 0 && sum === counted?.total,
    `${sum} of ${counted?.total}`,
  );
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'GET /api/apps/…/series with a session, one after the other on one connection; up to 400 bars, 20 types.',
  );
  const round = byLength(options, {
    full: { seconds: 1, rounds: 5 },
    quick: { seconds: 0.5, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const sizes = [options.events / 10, options.events];
  const apps: { app: BenchApp; events: number }[] = [];
  for (const events of sizes) {
    const app = await bench.makeApp(`a year of ${events}`);
    await seedYear(bench.sql, app.id, events);
    apps.push({ app, events });
  }
  await bench.sql`VACUUM ANALYZE`;
  await addDashboardUser(
    bench,
    apps.map(({ app }) => app.appId),
  );
  const generator = bench.startGenerator();
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const cookie = await signIn(port);
  for (const { name, days } of RANGES) {
    for (const timezone of TIMEZONES) {
      const range = { from: YEAR_END - days * DAY_MS, until: YEAR_END, timezone };
      const contenders: Contender[] = [];
      for (const { app, events } of apps) {
        const contender = `${name}, ${timezone}, ${events.toLocaleString('en-GB')} events`;
        await checkSum(bench, findings, contender, { port, app, cookie, range });
        const path = seriesPath(app.appId, range);
        contenders.push({
          name: contender,
          port,
          pid,
          requests: [{ method: 'GET', path, headers: { Cookie: cookie } }],
        });
      }
      const results = await interleavedRounds(bench, generator, contenders, { connections: 1, ...round });
      const medians: number[][] = [];
      for (const [contender, { rounds }] of results) {
        medians.push(addReads(findings, contender, rounds));
      }
      const [smaller = [], larger = []] = medians;
      findings.ratio(`ten times as many events, ${name}, ${timezone}`, pairwise(larger, smaller), {
        atMost: SIZE_GOAL,
      });
    }
  }
}

export const SERIES: Scenario = {
  name: 'series',
  about: 'The chart of a day, a month and a year at one and at ten million events, in two time zones.',
  run,
};
