/** export: events of an app as NDJSON over HTTP, beside a bare COPY of the same rows; and all of them beside writers. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { to as copyTo } from 'pg-copy-streams';
import type { DatabaseAddress } from '../../src/storage/database/connect.ts';
import { openCopyClient } from '../../src/storage/database/copy-client.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadReport } from '../load/load-job.ts';
import { answersOf, checkStatuses, withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { memoryOf } from '../servers/process-usage.ts';
import { type SeededApp, seededApp } from '../servers/seed-events.ts';
import type { Spawned } from '../servers/spawned.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addLatency } from './limits.ts';

const COPY_GOAL = 0.5;
const DAY_MS = 86_400_000;
/** Over which the events are spread. */
const SEEDED_DAYS = 30;
/** Enough events for a round, of which there are at most a third. */
const ROUND_EVENTS = 1_000_000;
const MOST_DAYS = 10;
/** New events meanwhile, in batches as of a shipper that does not wait long. */
const WRITTEN_PER_SECOND = 10_000;
const BATCH_EVENTS = 10;
const SLICE_SECONDS = 5;
const LINE_FEED = 0x0a;

interface Round {
  readonly perSecond: number;
  readonly serverMicros: number;
  readonly databaseMicros: number;
}

interface Work {
  readonly bench: Workbench;
  readonly app: SeededApp;
  readonly server: Spawned;
  readonly token: string;
  readonly until: Date;
}

/** @returns events that came */
type Way = (work: Work) => Promise<number>;

function request(
  { app, server, token, until }: Work,
  query: string,
  headers: Record<string, string> = {},
): Promise<IncomingMessage> {
  const path = `/v1/apps/${app.appId}/export?to=${until.toISOString()}${query}`;
  return exported(server.port, path, { Authorization: `Bearer ${token}`, ...headers });
}

/** The answer to the request of an export. */
export async function exported(
  port: number,
  path: string,
  headers: Record<string, string>,
): Promise<IncomingMessage> {
  const sent = get({ port, path, headers });
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`An export was answered ${response.statusCode}.`);
  return response;
}

/** The lines are counted as they come, as cheaply as can be. */
export async function lines(response: AsyncIterable<Buffer>): Promise<number> {
  let count = 0;
  for await (const chunk of response)
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) count += 1;
  return count;
}

function copied({ bench, app, until }: Work): Promise<number> {
  const scope = `app_id = ${app.id} AND created_at < '${until.toISOString()}'`;
  return copiedRows(bench.connection, `SELECT * FROM events WHERE ${scope}`);
}

/** Rows of a query by COPY, counted. */
export async function copiedRows(address: DatabaseAddress, query: string): Promise<number> {
  const client = await openCopyClient(address, 'bench copy');
  try {
    return await lines(client.query(copyTo(`COPY (${query}) TO STDOUT`)));
  } finally {
    await client.end();
  }
}

const COPY = 'COPY events TO STDOUT';
const ndjson: Way = async (work) => await lines(await request(work, ''));

const WAYS: Readonly<Record<string, Way>> = {
  [COPY]: copied,
  NDJSON: ndjson,
  'NDJSON in gzip': async (work) => {
    // Not inflated: the cost of the client is not measured.
    for await (const _ of await request(work, '', { 'Accept-Encoding': 'gzip' }));
    return Number.NaN;
  },
  CSV: async (work) => (await lines(await request(work, '&format=csv'))) - 1,
  'NDJSON of one type': async (work) => await lines(await request(work, `&typeId=${work.app.commonType}`)),
};

/** What each way has to give; NaN where it does not count. */
async function expectedOf({ bench, app, until }: Work): Promise<(name: string) => number> {
  const [counted] = await bench.sql<{ all: number; common: number }[]>`
    SELECT count(*)::float8 AS all,
           (count(*) FILTER (WHERE type_id = (SELECT id FROM event_types WHERE public_id = ${app.commonType})))::float8 AS common
      FROM events WHERE app_id = ${app.id} AND created_at < ${until}`;
  return (name) => (name === 'NDJSON of one type' ? (counted?.common ?? 0) : (counted?.all ?? 0));
}

async function measure(
  work: Work,
  name: string,
  way: Way,
  looked: number,
): Promise<Round & { readonly events: number }> {
  const startedAt = performance.now();
  const { result: events, serverMs, databaseMs } = await withCost(work.bench, work.server, () => way(work));
  const seconds = (performance.now() - startedAt) / 1_000;
  const rows = name === 'NDJSON of one type' ? looked : Number.isNaN(events) ? looked : events;
  return {
    events,
    perSecond: rows / seconds,
    serverMicros: (serverMs * 1_000) / rows,
    databaseMicros: (databaseMs * 1_000) / rows,
  };
}

/** Batches at a steady rate: once for a while, or until something has ended. @returns a report for each slice */
async function written(
  generator: LoadGenerator,
  port: number,
  app: BenchApp,
  until: Promise<unknown> | null,
): Promise<LoadReport[]> {
  const event = { typeId: app.typeId, payload: { path: '/articles/{g}', text: 'x'.repeat(150) } };
  const job = {
    kind: 'open',
    port,
    connections: 32,
    seconds: SLICE_SECONDS,
    warmUpSeconds: 0,
    perSecond: WRITTEN_PER_SECOND / BATCH_EVENTS,
    requests: [
      {
        method: 'POST',
        path: '/v1/events',
        headers: { Authorization: `Bearer ${app.loggingToken}` },
        body: JSON.stringify({ events: Array.from({ length: BATCH_EVENTS }, () => event) }),
      },
    ],
  } as const;
  const reports: LoadReport[] = [];
  let isOver = until === null;
  const ended = () => {
    isOver = true;
  };
  until?.then(ended, ended);
  do reports.push(await generator.run(job));
  while (!isOver);
  return reports;
}

/** All events while others come in: what the export still gives, and what writers notice. */
async function runBesideWriters(work: Work, findings: Findings): Promise<void> {
  const { bench, server } = work;
  const [generator, writers] = [bench.startGenerator(), await bench.makeApp('writers')];
  const all: Work = { ...work, until: new Date(work.app.until) };
  const alone = await measure(all, COPY, copied, work.app.events);
  const before = await written(generator, server.port, writers, null);
  const exporting = measure(all, 'NDJSON', ndjson, work.app.events);
  const beside = await written(generator, server.port, writers, exporting);
  const exported = await exporting;
  findings.check(
    'all events come, once, while others are stored',
    exported.events === work.app.events && alone.events === work.app.events,
    `${exported.events.toLocaleString('en-GB')} events`,
  );
  checkStatuses(findings, 'writers', [...before, ...beside], [200]);
  findings.note(`Beside writers all ${work.app.events.toLocaleString('en-GB')} events are exported, once.`);
  const name = 'all events';
  findings.figure(`${name}, by COPY alone`, '/s', [alone.perSecond]);
  findings.figure(`${name}, as NDJSON beside writers`, '/s', [exported.perSecond]);
  findings.ratio(`${name}, NDJSON beside writers to COPY alone`, [exported.perSecond / alone.perSecond]);
  findings.figure(
    'Events that writers store meanwhile',
    '/s',
    beside.map((report) => (answersOf(report, /^200$/) * BATCH_EVENTS) / report.seconds),
  );
  addLatency(findings, 'Writers, before the export', before);
  addLatency(findings, 'Writers, beside the export', beside);
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const rounds = byLength(options, { full: 3, quick: 5, smoke: 1 });
  const app = await seededApp(bench, options.events);
  const server = await bench.startService({ limits: 'lifted' });
  const token = await bench.makeResourceToken([app]);
  const days = Math.min(MOST_DAYS, Math.ceil(ROUND_EVENTS / (app.events / SEEDED_DAYS)));
  const work: Work = { bench, app, server, token, until: new Date(app.from + days * DAY_MS) };
  const expected = await expectedOf(work);
  const looked = expected('NDJSON');
  findings.note(
    `${looked.toLocaleString('en-GB')} events of one app, about 190 bytes of payload; one type: by events looked at, of which one in twenty is sent.`,
  );
  const results = new Map<string, Round[]>(Object.keys(WAYS).map((name) => [name, []]));
  for (let round = -1; round < rounds; round += 1) {
    const ways = Object.entries(WAYS);
    for (const [name, way] of round % 2 === 0 ? ways : ways.toReversed()) {
      const measured = await measure(work, name, way, looked);
      const isRight = Number.isNaN(measured.events) || measured.events === expected(name);
      findings.checkAll('every event comes, once', isRight);
      // The first round warms up.
      if (round >= 0) results.get(name)?.push(measured);
    }
  }
  const copy = results.get(COPY)?.map(({ perSecond }) => perSecond) ?? [];
  for (const [name, measured] of results) {
    const rates = measured.map(({ perSecond }) => perSecond);
    findings.figure(`${name}: events`, '/s', rates);
    if (name !== COPY)
      findings.figure(
        `${name}: CPU of the service`,
        'µs an event',
        measured.map(({ serverMicros }) => serverMicros),
      );
    findings.figure(
      `${name}: CPU of PostgreSQL`,
      'µs an event',
      measured.map(({ databaseMicros }) => databaseMicros),
    );
    if (name !== COPY)
      findings.ratio(
        `${name} to COPY`,
        pairwise(rates, copy),
        name === 'NDJSON' ? { atLeast: COPY_GOAL } : undefined,
      );
  }
  await runBesideWriters(work, findings);
  findings.figure('Memory of the service, high-water mark', 'MB', [memoryOf(server.pid).highWater]);
}

export const EXPORT: Scenario = {
  name: 'export',
  about:
    'GET /v1/apps/…/export as NDJSON, in gzip, as CSV and of one type, beside COPY events TO STDOUT; and beside writers.',
  shares: 'events',
  run,
};
