/** engine-search: filtered pages and exports on PostgreSQL and TimescaleDB, there from rows and from the columnstore. */
import type { Findings } from '../findings.ts';
import { withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';
import { compressAll, isTimescale, openSides, type Side } from './engines.ts';
import { copiedRows, exported, lines } from './export.ts';
import { allPages } from './search.ts';

const SEARCHES = [
  ['by a value', 'filter=orderId:1004711'],
  ['by a text', 'q=1004711,'],
  ['by a comparison', 'filter=total>=1000'],
] as const;

/** @returns events a second, and events a second of CPU of the service and the database */
async function rateOf(
  bench: Workbench,
  side: Side,
  events: number,
  work: () => Promise<void>,
): Promise<{ readonly perSecond: number; readonly perCore: number }> {
  const startedAt = performance.now();
  const { serverMs, databaseMs } = await withCost(bench, side, work);
  const seconds = (performance.now() - startedAt) / 1_000;
  return { perSecond: events / seconds, perCore: (events * 1_000) / (serverMs + databaseMs) };
}

async function measureSide(
  bench: Workbench,
  findings: Findings,
  side: Side,
  { events, rounds, suffix }: { events: number; rounds: number; suffix: string },
): Promise<void> {
  const name = `${side.name}${suffix}`;
  const { appId, id } = side.year;
  for (const [kind, query] of SEARCHES) {
    const found = new Set<number>();
    const results = [];
    for (let round = 0; round < rounds; round += 1)
      results.push(
        await rateOf(bench, side, events, async () => {
          found.add((await allPages(side.port, side.year, side.token, query)).ids.length);
        }),
      );
    findings.checkAll(
      `${name}: a search finds what is there`,
      [...found].join() === (query.startsWith('filter=total') ? '0' : '1'),
    );
    findings.figure(
      `${name}, a search ${kind}: events`,
      '/s',
      results.map(({ perSecond }) => perSecond),
    );
    findings.figure(
      `${name}, a search ${kind}: events, by CPU of service and database`,
      '/s',
      results.map(({ perCore }) => perCore),
    );
  }
  const path = `/v1/apps/${appId}/export`;
  const headers = { Authorization: `Bearer ${side.token}` };
  const [rates, copies]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    const whole = await rateOf(bench, side, events, async () => {
      const count = await lines(await exported(side.port, path, headers));
      findings.checkAll(`${name}: every event is exported once`, count === events);
    });
    const query = `SELECT * FROM events WHERE app_id = ${id}`;
    const copy = await rateOf(bench, side, events, async () => {
      const count = await copiedRows(side.installation.address, query);
      findings.checkAll(`${name}: COPY has the same events`, count === events);
    });
    rates.push(whole.perSecond);
    copies.push(copy.perSecond);
  }
  findings.figure(`${name}, an export: events`, '/s', rates);
  findings.figure(`${name}, COPY: events`, '/s', copies);
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { events } = options;
  const rounds = byLength(options, { full: 3, quick: 2, smoke: 1 });
  const sides = await openSides(bench, findings, events);
  for (const side of sides) await measureSide(bench, findings, side, { events, rounds, suffix: '' });
  for (const side of sides.filter(isTimescale)) {
    await compressAll(side.installation);
    await measureSide(bench, findings, side, { events, rounds, suffix: ', columnstore' });
  }
}

export const ENGINE_SEARCH: Scenario = {
  name: 'engine-search',
  about: 'Filtered pages and exports of a year on PostgreSQL and TimescaleDB (TIMESCALE_URL).',
  run,
};
