/** export: all events of an app as NDJSON over HTTP, beside a bare COPY of the same rows. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { to as copyTo } from 'pg-copy-streams';
import { openCopyClient } from '../../src/storage/copy-client.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { withCost } from '../measure.ts';
import { memoryOf } from '../process-usage.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { type SeededApp, seededApp } from '../seed-events.ts';
import type { Spawned } from '../spawned.ts';
import type { Workbench } from '../workbench.ts';

const COPY_GOAL = 0.5;
const DAY_MS = 86_400_000;
/** A third of the events is enough for a round. */
const ROUND_DAYS = 10;
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

async function request(
  { app, server, token, until }: Work,
  query: string,
  headers: Record<string, string> = {},
): Promise<IncomingMessage> {
  const path = `/v1/apps/${app.appId}/export?to=${until.toISOString()}${query}`;
  const sent = get({ port: server.port, path, headers: { Authorization: `Bearer ${token}`, ...headers } });
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`An export was answered ${response.statusCode}.`);
  return response;
}

/** The lines are counted as they come, as cheaply as can be. */
async function lines(response: AsyncIterable<Buffer>): Promise<number> {
  let count = 0;
  for await (const chunk of response)
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) count += 1;
  return count;
}

async function copied({ bench, app, until }: Work): Promise<number> {
  const client = await openCopyClient(bench.connection, 'bench copy');
  try {
    const rows = client.query(
      copyTo(
        `COPY (SELECT * FROM events WHERE app_id = ${app.id} AND created_at < '${until.toISOString()}') TO STDOUT`,
      ),
    );
    return await lines(rows);
  } finally {
    await client.end();
  }
}

const WAYS: Readonly<Record<string, Way>> = {
  'COPY events TO STDOUT': copied,
  NDJSON: async (work) => await lines(await request(work, '')),
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

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const rounds = byLength(options, { full: 5, quick: 5, guard: 3, smoke: 1 });
  const app = await seededApp(bench, options.events);
  const server = await bench.startService({ limits: 'lifted' });
  const token = await bench.makeResourceToken([app]);
  const work: Work = { bench, app, server, token, until: new Date(app.from + ROUND_DAYS * DAY_MS) };
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
  const copy = results.get('COPY events TO STDOUT')?.map(({ perSecond }) => perSecond) ?? [];
  for (const [name, measured] of results) {
    const rates = measured.map(({ perSecond }) => perSecond);
    findings.figure(`${name}: events`, '/s', rates);
    if (name !== 'COPY events TO STDOUT')
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
    if (name !== 'COPY events TO STDOUT')
      findings.ratio(
        `${name} to COPY`,
        pairwise(rates, copy),
        name === 'NDJSON' ? { atLeast: COPY_GOAL } : undefined,
      );
  }
  findings.figure('Memory of the service, high-water mark', 'MB', [memoryOf(server.pid).highWater]);
}

export const EXPORT: Scenario = {
  name: 'export',
  about: 'GET /v1/apps/…/export as NDJSON, in gzip, as CSV and of one type, beside COPY events TO STDOUT.',
  shares: 'events',
  run,
};
