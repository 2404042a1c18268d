/** explore: how long the page of an app takes in a browser until it is drawn, and after each kind of change of its view. */
import { join } from 'node:path';
import type { Browser, Locator, Page } from 'playwright-core';
import { isRoot, unprivilegedUser } from '../../src/embedded/user.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { BUILTIN_LOCALE, startCluster, urlOf } from '../../test/support/cluster.ts';
import type { Findings } from '../findings.ts';
import { spreadOf } from '../judge.ts';
import { addDashboardUser, signIn } from '../load/dashboard-user.ts';
import {
  hasChromium,
  type InputEvent,
  type Opened,
  openBrowser,
  type SlowLine,
  Visitor,
} from '../load/visit.ts';
import { withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Installation } from '../servers/installation.ts';
import { cpuOfFamily } from '../servers/process-usage.ts';
import type { Spawned } from '../servers/spawned.ts';
import { postmasterOf, type Workbench } from '../servers/workbench.ts';
import { importEvents, randomNumbers } from './engines.ts';

const DAY_MS = 86_400_000;
const DAYS = 30;
const EVENTS = 520_000;
const TYPES = 25;
const CHUNK_LINES = 1_000;
/** Events are dated in one minute of so many: each minute is counted by its own, and a reader would wait for 43,200 of them. */
const BURST_EVERY_MS = 600_000;
const COLD_GOAL = 700;
const WARM_GOAL = 400;
const CHANGE_GOAL = 170;
const SLOW_GOAL = 5_000;

/** A slow 3G line, as WebPageTest and the tour of the reviews have it, and a phone with a quarter of this processor. */
const SLOW_3G: SlowLine = { latency: 400, bytesPerSecond: 50_000, cpuRate: 4 };
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 3, isMobile: true, hasTouch: true };

const DECLARED = [
  { path: 'country', kind: 'value' },
  { path: 'plan', kind: 'value' },
  { path: 'path', kind: 'value' },
  { path: 'latency', kind: 'number' },
  { path: 'customer', kind: 'distinct' },
] as const;
const COUNTRIES = ['DE', 'DE', 'DE', 'US', 'US', 'FR', 'GB', 'AT', 'CH', 'PL', 'IT', 'ES'] as const;
const PLANS = ['free', 'free', 'free', 'team', 'pro'] as const;

/** Lines of a month of events, in bursts up to now; the first types have the most. */
function* lines(events: number, until: number): Generator<string> {
  const random = randomNumbers(40);
  for (let n = 0; n < events; ) {
    let chunk = '';
    for (let i = 0; i < CHUNK_LINES && n < events; i += 1, n += 1) {
      const due = until - Math.floor(((events - n) * DAYS * DAY_MS) / events);
      const at = new Date(due - (due % BURST_EVERY_MS) + (due % 60_000)).toISOString();
      const type = 1 + Math.min(random(TYPES), random(TYPES), random(TYPES));
      const payload = {
        orderId: 1_000_000 + n,
        country: COUNTRIES[random(COUNTRIES.length)],
        plan: PLANS[random(PLANS.length)],
        path: `/articles/${random(30)}`,
        latency: 5 + random(40) + (random(20) === 0 ? random(2_000) : 0),
        customer: `c_${random(20_000)}`,
      };
      chunk += `{"type":"type ${String(type).padStart(2, '0')}","createdAt":"${at}","payload":${JSON.stringify(payload)}}\n`;
    }
    yield chunk;
  }
}

interface Served {
  readonly server: Spawned;
  /** CPU of the database, milliseconds. */
  readonly databaseCpu: () => number;
  readonly url: string;
  readonly cookie: string;
  readonly path: string;
}

/** An app with its month of events, whose declared fields are counted as they come. */
async function serve(
  bench: Workbench,
  findings: Findings,
  installation: Installation,
  engine: string,
  events: number,
): Promise<Served> {
  const { appId } = await installation.makeApp('a shop');
  await addDashboardUser(installation, [appId]);
  const server = await bench.startService({ limits: 'lifted', installation });
  const cookie = await signIn(server.port);
  const url = `http://127.0.0.1:${server.port}`;
  const fields = `${url}/api/apps/${appId}/declared-fields`;
  for (const field of DECLARED) {
    const answer = await fetch(fields, {
      method: 'POST',
      headers: { Cookie: cookie, 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...field, backfill: true }),
    });
    if (!answer.ok) throw new Error(`A field was refused: ${answer.status} ${await answer.text()}`);
  }
  // Without events all of them are counted at once; those that are stored later are counted as they come.
  while (!(await isCounted(fields, cookie))) await new Promise((resolve) => setTimeout(resolve, 100));
  const { imported, settled } = await importEvents(installation, appId, lines(events, Date.now()));
  findings.check(`${engine}: every line is imported`, imported === events, `${imported} of ${events}`);
  process.stderr.write(`${engine}: imported in ${Math.round(settled)} s\n`);
  const asked = `of=latency&from=${new Date(Date.now() - DAYS * DAY_MS).toISOString()}`;
  const numbers = `${url}/api/apps/${appId}/numbers?${asked}`;
  const isSettled = async (): Promise<boolean> =>
    (await fetch(numbers, { headers: { Cookie: cookie } })).ok && (await uncounted(installation)) === 0;
  while (!(await isSettled())) await new Promise((resolve) => setTimeout(resolve, 500));
  await installation.sql`VACUUM ANALYZE`;
  const postmaster = await postmasterOf(installation.sql);
  const databaseCpu = (): number => cpuOfFamily(postmaster);
  return { server, databaseCpu, url, cookie, path: `/apps/${appId}?range=30d&tz=Europe/Berlin` };
}

async function isCounted(fields: string, cookie: string): Promise<boolean> {
  const answer = await fetch(fields, { headers: { Cookie: cookie } });
  // The shape of the dashboard's answer.
  const { data } = (await answer.json()) as {
    data: { fields: { completeFrom: string | null; backfill: boolean }[] };
  };
  return data.fields.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
}

/** Minutes whose fields are not counted yet. */
async function uncounted({ sql }: Installation): Promise<number> {
  const [row] = await sql<{ minutes: number }[]>`SELECT count(*)::float8 AS minutes FROM uncounted_minutes`;
  return row?.minutes ?? 0;
}

/** A change of the view, what begins it, and how the page comes back to where it can be made again. */
interface Change {
  readonly name: string;
  readonly event: InputEvent;
  /** What precedes it, such as opening a menu. */
  readonly before?: (page: Page) => Promise<unknown>;
  readonly make: (page: Page) => Promise<unknown>;
  readonly after?: (page: Page) => Promise<unknown>;
}

const button = (page: Page, name: string | RegExp): Locator =>
  page.getByRole('button', typeof name === 'string' ? { name, exact: true } : { name });

async function chooseRange(page: Page, name: string): Promise<void> {
  await button(page, /^Time range/).click();
  await page.getByRole('group', { name: 'Presets' }).getByRole('button', { name, exact: true }).click();
}

const CHANGES: readonly Change[] = [
  {
    name: 'range',
    event: 'click',
    before: (page) => button(page, /^Time range/).click(),
    make: (page) =>
      page.getByRole('group', { name: 'Presets' }).getByRole('button', { name: '7 d', exact: true }).click(),
    after: (page) => chooseRange(page, '30 d'),
  },
  {
    name: 'filter by a facet',
    event: 'click',
    before: (page) => button(page, 'Fields').click(),
    make: (page) => page.locator('.facet-value input').first().click(),
    after: async (page) => {
      await page.locator('.facet-value input:checked').first().click();
      await button(page, 'Fields').click();
    },
  },
  {
    name: 'by a field',
    event: 'change',
    make: (page) => page.getByLabel('Break down by').selectOption('country'),
    after: (page) => page.getByLabel('Break down by').selectOption(''),
  },
  {
    name: 'p95 of a field',
    event: 'click',
    before: async (page) => {
      await button(page, /^What the chart shows/).click();
      await page.getByLabel('Statistic').selectOption('p95');
    },
    make: (page) => button(page, 'Show the statistic').click(),
    after: async (page) => {
      await button(page, /^What the chart shows/).click();
      await button(page, 'Number of events').click();
    },
  },
  {
    name: 'tab',
    event: 'click',
    before: (page) => page.getByRole('link', { name: 'Overview' }).click(),
    make: (page) => page.getByRole('link', { name: 'Explore' }).click(),
  },
  {
    name: 'zoom by dragging',
    event: 'pointerup',
    before: async (page) => {
      const box = await page.locator('.plot .over').boundingBox();
      const { x, y, width } = box ?? { x: 0, y: 0, width: 0 };
      await page.mouse.move(x + 0.3 * width, y + 50);
      await page.mouse.down();
      await page.mouse.move(x + 0.6 * width, y + 60, { steps: 4 });
    },
    make: async (page) => {
      await page.mouse.up();
      // A pointer that rests on a bar would ask for its events.
      await page.mouse.move(5, 5);
    },
    after: (page) => button(page, 'Back').click(),
  },
  {
    name: 'page of the list',
    event: 'wheel',
    make: (page) => page.mouse.wheel(0, 100_000),
    after: (page) => page.evaluate('scrollTo(0, 0)'),
  },
  {
    name: 'comparison',
    event: 'change',
    before: (page) => button(page, /^Chart options/).click(),
    make: (page) => page.getByLabel('Compare with').selectOption('week'),
    after: async (page) => {
      await page.getByLabel('Compare with').selectOption('previous');
      await page.keyboard.press('Escape');
    },
  },
];

function addOpened(findings: Findings, name: string, opened: readonly Opened[]): number {
  const times = opened.map(({ ms }) => ms);
  findings.figure(`${name}: drawn`, 'ms', times);
  findings.figure(
    `${name}: of it with answers on their way`,
    'ms',
    opened.map(({ networkMs }) => networkMs),
  );
  findings.figure(
    `${name}: of it waiting for first bytes`,
    'ms',
    opened.map(({ waitMs }) => waitMs),
  );
  findings.figure(
    `${name}: scripts`,
    'ms',
    opened.map(({ scriptMs }) => scriptMs),
  );
  findings.figure(
    `${name}: styles and layout`,
    'ms',
    opened.map(({ layoutMs }) => layoutMs),
  );
  findings.figure(
    `${name}: requests`,
    '',
    opened.map(({ requests }) => requests),
  );
  findings.figure(
    `${name}: sent`,
    'kB',
    opened.map(({ kilobytes }) => kilobytes),
  );
  return spreadOf(times).median;
}

async function measure(
  bench: Workbench,
  findings: Findings,
  browser: Browser,
  engine: string,
  { served, rounds, events }: { served: Served; rounds: number; events: number },
): Promise<void> {
  const [cold, warm]: [Opened[], Opened[]] = [[], []];
  const cpu: { readonly serverMs: number; readonly databaseMs: number }[] = [];
  const { databaseCpu } = served;
  const own = { pid: served.server.pid, databaseCpu };
  for (let round = 0; round <= rounds; round += 1) {
    const visitor = await Visitor.open(browser, served);
    const { result: first, ...cost } = await withCost(bench, own, () => visitor.goTo(served.path));
    const second = await visitor.goTo(served.path);
    if (round === 0) findings.figure(`${engine}: the first visit: drawn`, 'ms', [first.ms]);
    else {
      cold.push(first);
      cpu.push(cost);
      warm.push(second);
    }
    const shown = await visitor.page.locator('dl.figures-row dd').first().innerText();
    const total = Number((/^[\d,]+/.exec(shown)?.[0] ?? '').replaceAll(',', ''));
    // The first events leave the range while the bench runs.
    findings.checkAll(
      `${engine}: the page shows the events of the range`,
      total > 0.98 * events && total <= events,
    );
    findings.checkAll(`${engine}: no error on the page`, visitor.complaints.length === 0);
    await visitor.close();
  }
  const ofServer = cpu.map(({ serverMs }) => serverMs);
  const ofDatabase = cpu.map(({ databaseMs }) => databaseMs);
  findings.figure(`${engine}, cold: CPU of the service`, 'ms', ofServer);
  findings.figure(`${engine}, cold: CPU of the database`, 'ms', ofDatabase);
  findings.goal(`${engine}, cold`, 'ms', addOpened(findings, `${engine}, cold`, cold), { atMost: COLD_GOAL });
  findings.goal(`${engine}, warm`, 'ms', addOpened(findings, `${engine}, warm`, warm), { atMost: WARM_GOAL });

  const visitor = await Visitor.open(browser, served);
  await visitor.goTo(served.path);
  await visitor.still();
  const { page } = visitor;
  for (const { name, event, before, make, after } of CHANGES) {
    const times: number[] = [];
    for (let round = 0; round <= rounds; round += 1) {
      await before?.(page);
      await visitor.still();
      const ms = await visitor.change(event, () => make(page));
      if (round > 0) times.push(ms);
      await after?.(page);
      await visitor.still();
    }
    findings.figure(`${engine}, ${name}: drawn`, 'ms', times);
    findings.goal(`${engine}, ${name}`, 'ms', spreadOf(times).median, { atMost: CHANGE_GOAL });
  }
  findings.checkAll(`${engine}: no error on the page`, visitor.complaints.length === 0);
  await visitor.close();
}

/** The page on a phone with a slow line and an empty cache. */
async function measureSlow(
  findings: Findings,
  browser: Browser,
  engine: string,
  { served, rounds }: { served: Served; rounds: number },
): Promise<void> {
  const opened: Opened[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const visitor = await Visitor.open(browser, served, { ...PHONE, line: SLOW_3G });
    opened.push(await visitor.goTo(served.path));
    await visitor.close();
  }
  const name = `${engine}, a phone on slow 3G`;
  findings.goal(name, 'ms', addOpened(findings, name, opened), { atMost: SLOW_GOAL });
}

/** TimescaleDB on a server of its own, where it is installed. */
async function openTimescale(bench: Workbench, home: string): Promise<Installation> {
  const options = [
    'shared_preload_libraries=timescaledb',
    'timescaledb.telemetry_level=off',
    'fsync=on',
    'full_page_writes=on',
    'shared_buffers=128MB',
    'max_wal_size=2GB',
  ];
  const cluster = await startCluster(
    join(home, 'bin'),
    BUILTIN_LOCALE,
    isRoot() ? await unprivilegedUser() : undefined,
    options.map((option) => `-c ${option}`).join(' '),
  );
  bench.keep(cluster);
  const sql = connect({ url: urlOf(cluster.address, 'postgres') }, { connections: 1, name: 'bench setup' });
  await sql`CREATE DATABASE bench`;
  await sql.end();
  return await bench.openInstallation(urlOf(cluster.address, 'bench'));
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  if (!hasChromium) return findings.note('Skipped: there is no Chromium (CHROMIUM).');
  const events = byLength(options, { full: EVENTS, quick: EVENTS, smoke: 20_000 });
  const rounds = byLength(options, { full: 7, quick: 7, smoke: 1 });
  findings.note(
    `${events.toLocaleString('en-GB')} events of ${TYPES} types over ${DAYS} days, five declared fields, by tidemark import. Drawn: chart, legend and list have been painted; after a change: the last of what it led to has been painted.`,
  );
  findings.note('Slow 3G: 400 ms for each request, 400 kbit/s, a processor four times slower, 390 × 844.');
  const browser = await openBrowser();
  bench.keep({ stop: () => browser.close() });
  const home = process.env.TIMESCALE_PG_HOME;
  if (home === undefined) findings.note('Without TimescaleDB: TIMESCALE_PG_HOME names no installation.');
  for (const engine of ['PostgreSQL', 'TimescaleDB']) {
    if (engine === 'TimescaleDB' && home === undefined) continue;
    const installation =
      engine === 'PostgreSQL' || home === undefined ? bench.installation : await openTimescale(bench, home);
    const served = await serve(bench, findings, installation, engine, events);
    await measure(bench, findings, browser, engine, { served, rounds, events });
    if (engine === 'PostgreSQL') await measureSlow(findings, browser, engine, { served, rounds });
  }
}

export const EXPLORE: Scenario = {
  name: 'explore',
  about:
    'Explore of 520,000 events in a browser: cold, warm, eight changes of the view, a phone on slow 3G (TIMESCALE_PG_HOME).',
  run,
};
