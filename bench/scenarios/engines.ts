/** engines: PostgreSQL and TimescaleDB side by side, with a year of events of one app. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { profileDay, unprofiledDays } from '../../src/storage/counts/daily-prefix-sums.ts';
import { connect } from '../../src/storage/database/connect.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { addDashboardUser, seriesPath, signIn } from '../load/dashboard-user.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadRequest } from '../load/load-job.ts';
import { type Contender, checkLedger, checkStatuses, createRequest, interleavedRounds } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Installation } from '../servers/installation.ts';
import { cpuOfFamily } from '../servers/process-usage.ts';
import { LAUNCHER } from '../servers/spawned.ts';
import { postmasterOf, type Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';

const DAY_MS = 86_400_000;
const DAYS = 365;
const END = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const START = END - DAYS * DAY_MS;
const TYPES = 20;
/** One event in a thousand is of the last type. */
const RARE_ONE_IN = 1_000;
/** Lines that are written to the import at once. */
const CHUNK_LINES = 1_000;
const CONNECTIONS = 256;

/** The same numbers on every run, so that both engines get the same events (Park and Miller's generator, 1988). */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
}

const STATUS = ['placed', 'paid', 'packed', 'shipped', 'delivered', 'returned'] as const;
const SOURCES = ['web', 'ios', 'android', 'partner'] as const;

/** What a shop might log: about 200 bytes, some of it new in every event. */
function payload(n: number, random: (below: number) => number): string {
  const items = Array.from({ length: 1 + random(3) }, () => ({
    sku: `SKU-${random(2_000)}`,
    quantity: 1 + random(4),
  }));
  return JSON.stringify({
    orderId: 1_000_000 + n,
    customerId: `c_${random(50_000)}`,
    status: STATUS[random(STATUS.length)],
    source: SOURCES[random(SOURCES.length)],
    currency: 'EUR',
    total: random(50_000) / 100,
    country: ['DE', 'AT', 'CH', 'FR'][random(4)],
    items,
    newsletter: random(2) === 0,
  });
}

/** Lines of a year of events, evenly spread, as `tidemark import` reads them. */
function* importLines(events: number): Generator<string> {
  const random = randomNumbers(42);
  for (let n = 0; n < events; ) {
    let lines = '';
    for (let i = 0; i < CHUNK_LINES && n < events; i += 1, n += 1) {
      const at = new Date(START + Math.floor((n * DAYS * DAY_MS) / events)).toISOString();
      const type = random(RARE_ONE_IN) === 0 ? TYPES : 1 + random(TYPES - 1);
      lines += `{"type":"type ${type}","createdAt":"${at}","payload":${payload(n, random)}}\n`;
    }
    yield lines;
  }
}

/** `tidemark import` of these lines. @returns seconds until the events are stored, and until their counts are settled too */
export async function importEvents(
  { settings }: Installation,
  appId: string,
  lines: Iterable<string>,
): Promise<{ imported: number; stored: number; settled: number }> {
  const startedAt = performance.now();
  const child = spawn(process.execPath, [LAUNCHER, 'import', '-', '--app', appId, '--json'], {
    env: { PATH: process.env.PATH ?? '', ...settings },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
  });
  const exited = once(child, 'exit');
  await pipeline(Readable.from(lines), child.stdin);
  await exited;
  const { imported, seconds } = JSON.parse(output) as { imported: number; seconds: number };
  return { imported, stored: seconds, settled: (performance.now() - startedAt) / 1_000 };
}

/** An engine with its year of events, served. */
export interface Side extends Omit<Contender, 'requests'> {
  readonly installation: Installation;
  readonly year: BenchApp;
  readonly written: BenchApp;
  /** Public ids of a type with one event in twenty, and one with one in a thousand. */
  readonly commonType: string;
  readonly rareType: string;
  readonly token: string;
  readonly cookie: string;
}

async function openSide(
  bench: Workbench,
  findings: Findings,
  installation: Installation,
  events: number,
): Promise<Side> {
  const { sql, engine } = installation;
  // Without the version, which the notes have.
  const name = engine.split(' ')[0] ?? engine;
  findings.note(engine);
  const year = await installation.makeApp('a year');
  const { imported, stored, settled } = await importEvents(installation, year.appId, importLines(events));
  findings.check(`${name}: every line is imported`, imported === events, `${imported} of ${events}`);
  findings.figure(`${name}: imported, stored`, '/s', [events / stored]);
  findings.figure(`${name}: imported, with settled counts`, '/s', [events / settled]);
  for (const day of await unprofiledDays(sql, END + 2 * DAY_MS)) await profileDay(sql, day);
  await sql`VACUUM ANALYZE`;
  await addDashboardUser(installation, [year.appId]);
  const postmaster = await postmasterOf(sql);
  // Rows stay rows until compressAll: the service would move chunks while their pages are measured.
  const settings = { COMPRESS_AFTER_DAYS: '0' };
  const { port, pid } = await bench.startService({ limits: 'lifted', installation, settings });
  return {
    name,
    port,
    pid,
    databaseCpu: () => cpuOfFamily(postmaster),
    installation,
    year,
    written: await installation.makeApp('written'),
    commonType: await publicTypeId(installation, year, 'type 1'),
    rareType: await publicTypeId(installation, year, `type ${TYPES}`),
    token: await installation.makeResourceToken([year]),
    cookie: await signIn(port),
  };
}

async function publicTypeId({ sql }: Installation, app: BenchApp, name: string): Promise<string> {
  const [row] = await sql<{ id: string }[]>`
    SELECT public_id AS id FROM event_types WHERE app_id = ${app.id} AND name = ${name}`;
  return row?.id ?? '';
}

interface Read {
  readonly name: string;
  readonly request: (side: Side) => LoadRequest;
}

function readsOf(events: number): Read[] {
  const page = (name: string, share: number, typeOf: (side: Side) => string | null): Read[] =>
    [0, Math.floor((events * share) / 2)].map((offset) => ({
      name: `page at ${offset.toLocaleString('en-GB')}, ${name}`,
      request: (side) => pageRequest(side, offset, typeOf(side)),
    }));
  return [
    ...page('all types', 1, () => null),
    ...page('a type', 1 / TYPES, ({ commonType }) => commonType),
    ...page('a type with one event in 1,000', 1 / RARE_ONE_IN, ({ rareType }) => rareType),
    ...['UTC', 'Europe/Berlin', 'Asia/Kathmandu'].map((timezone) => ({
      name: `a chart of the year, ${timezone}`,
      request: ({ year, cookie }: Side): LoadRequest => ({
        method: 'GET',
        path: seriesPath(year.appId, { from: START, until: END, timezone }),
        headers: { Cookie: cookie },
      }),
    })),
  ];
}

function pageRequest({ year, token }: Side, offset: number, typeId: string | null): LoadRequest {
  const query = new URLSearchParams({ appId: year.appId, limit: '100', offset: String(offset) });
  if (typeId !== null) query.set('typeId', typeId);
  return {
    method: 'GET',
    path: `/public/get_events?${query}`,
    headers: { Authorization: `Bearer ${token}` },
  };
}

/** Totals and sums of charts are the number of events that went in. */
async function checkTotals(findings: Findings, side: Side, events: number): Promise<void> {
  const ask = async ({ path, headers = {} }: LoadRequest): Promise<unknown> =>
    (await fetch(`http://127.0.0.1:${side.port}${path}`, { headers })).json();
  const page = (await ask(pageRequest(side, 0, null))) as { data: { pagination: { total: number } } };
  const { total } = page.data.pagination;
  const path = seriesPath(side.year.appId, { from: START, until: END });
  const chart = (await ask({ method: 'GET', path, headers: { Cookie: side.cookie } })) as {
    data: { all: number[] };
  };
  const sum = chart.data.all.reduce((counted, count) => counted + count, 0);
  findings.check(
    `${side.name}: the total and the sum of the chart are the events that went in`,
    total === events && sum === events,
    `${total} and ${sum} of ${events}`,
  );
}

async function measureReads(
  bench: Workbench,
  findings: Findings,
  sides: readonly Side[],
  options: RunOptions & { generator: LoadGenerator; suffix?: string },
): Promise<void> {
  const { suffix = '', events, generator } = options;
  const round = byLength(options, {
    full: { seconds: 1, rounds: 5 },
    quick: { seconds: 0.5, rounds: 3 },
    smoke: { seconds: 0.5, rounds: 1 },
  });
  for (const { name, request } of readsOf(events)) {
    const contenders = sides.map((side) => ({ ...side, requests: [request(side)] }));
    const results = await interleavedRounds(bench, generator, contenders, { connections: 1, ...round });
    for (const [engine, { rounds }] of results) {
      const reports = rounds.map(({ report }) => report);
      checkStatuses(findings, `${engine}${suffix}, ${name}`, reports, [200]);
      const p50 = reports.map(({ latency }) => latency?.p50 ?? Number.NaN);
      findings.figure(`${engine}${suffix}, ${name}: p50`, 'ms', p50);
    }
  }
}

async function measureWrites(
  bench: Workbench,
  findings: Findings,
  sides: readonly Side[],
  options: RunOptions & { generator: LoadGenerator },
): Promise<void> {
  const round = byLength(options, {
    full: { seconds: 4, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const contenders = sides.map((side) => ({ ...side, requests: [createRequest(side.written, 180)] }));
  const results = await interleavedRounds(bench, options.generator, contenders, {
    connections: CONNECTIONS,
    ...round,
  });
  const rates: number[][] = [];
  for (const { name, installation, written } of sides) {
    const { warmUp, rounds = [] } = results.get(name) ?? {};
    const reports = [warmUp, ...rounds].flatMap((one) => one?.report ?? []);
    addRounds(findings, `${name}, ${CONNECTIONS} connections`, rounds);
    checkStatuses(findings, name, reports, [201]);
    checkLedger(findings, name, reports, await sumOfTable(installation.sql, 'events', [written.id]));
    rates.push(rounds.map(({ accepted }) => accepted));
  }
  findings.ratio('events, TimescaleDB to PostgreSQL', pairwise(rates[1] ?? [], rates[0] ?? []));
}

async function addSize(findings: Findings, side: Side, events: number, suffix = ''): Promise<void> {
  const { sql } = side.installation;
  const [row] = isTimescale(side)
    ? await sql<{ bytes: number }[]>`SELECT hypertable_size('events')::float8 AS bytes`
    : await sql<{ bytes: number }[]>`
        SELECT sum(pg_total_relation_size(relid))::float8 AS bytes FROM pg_partition_tree('events')`;
  findings.figure(`${side.name}${suffix}: size of an event`, 'B', [(row?.bytes ?? Number.NaN) / events]);
}

export const isTimescale = ({ name }: Side): boolean => name.startsWith('TimescaleDB');

/** Moves every chunk to the columnstore, as the policy does with old ones. */
export async function compressAll({ address, sql }: Installation): Promise<void> {
  // A session of its own, with what the service's start has set for them.
  const session = connect(address, { connections: 1, name: 'tidemark bench' });
  await session`SELECT count(compress_chunk(chunk)) FROM show_chunks('events') AS chunk`;
  await session.end();
  await sql`VACUUM ANALYZE`;
}

/** Both engines with the same events; none where there is no TimescaleDB. */
export async function openSides(bench: Workbench, findings: Findings, events: number): Promise<Side[]> {
  const url = process.env.TIMESCALE_URL;
  if (url === undefined) {
    findings.note('Skipped: TIMESCALE_URL names no empty database with TimescaleDB.');
    return [];
  }
  findings.note(
    `${events.toLocaleString('en-GB')} events of ${TYPES} types over ${DAYS} days, by tidemark import.`,
  );
  const sides: Side[] = [];
  for (const installation of [bench.installation, await bench.openInstallation(url)])
    sides.push(await openSide(bench, findings, installation, events));
  return sides;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { events } = options;
  const sides = await openSides(bench, findings, events);
  if (sides.length === 0) return;
  const generator = bench.startGenerator();
  for (const side of sides) {
    await checkTotals(findings, side, events);
    await addSize(findings, side, events);
  }
  await measureReads(bench, findings, sides, { ...options, generator });
  const columnar = sides.filter(isTimescale);
  const suffix = ', columnstore';
  for (const side of columnar) {
    await compressAll(side.installation);
    await checkTotals(findings, side, events);
    await addSize(findings, side, events, suffix);
  }
  await measureReads(bench, findings, columnar, { ...options, generator, suffix });
  await measureWrites(bench, findings, sides, { ...options, generator });
}

export const ENGINES: Scenario = {
  name: 'engines',
  about:
    'PostgreSQL and TimescaleDB with a year of events: import, size, pages, charts, writes (TIMESCALE_URL).',
  run,
};
