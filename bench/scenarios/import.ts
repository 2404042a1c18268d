/** import: `tidemark import` of a file beside a bare COPY of the same events, also on TimescaleDB where TIMESCALE_URL is set. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createEventIds } from '../../src/ingest/event-id.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { BareCopy, copyText, type Row } from '../rivals/bare-copy.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Installation } from '../servers/installation.ts';
import { cpuOfFamily } from '../servers/process-usage.ts';
import { LAUNCHER } from '../servers/spawned.ts';
import { postmasterOf, type Workbench } from '../servers/workbench.ts';

const DAY_MS = 86_400_000;
const GOAL = 0.5;
const TYPES = 20;
/** Rows of one bare COPY: the import's own groups. */
const COPIED_ROWS = 10_000;

/** Over how many days the events are spread: most events have a minute of their own, or share it with some. */
const SPREADS = [
  { name: 'sparse', days: 365 },
  { name: 'dense', days: 1 },
] as const;

interface Line {
  readonly type: number;
  readonly createdAt: number;
  readonly payload: string;
}

/** Events in the order of time, about 250 bytes a line. */
function* linesOf(events: number, days: number): Generator<Line> {
  const start = Math.floor(Date.now() / DAY_MS) * DAY_MS - days * DAY_MS;
  for (let n = 0; n < events; n += 1) {
    const payload = `{"orderId":${1_000_000 + n},"customerId":"c_${(n * 7_919) % 50_000}","status":"shipped","total":${(n % 5_000) / 100},"items":[{"sku":"SKU-${(n * 31) % 2_000}","quantity":1}],"source":"web"}`;
    yield {
      type: 1 + (((n * 48_271) % 2_147_483_647) % TYPES),
      createdAt: start + Math.floor((n * days * DAY_MS) / events),
      payload,
    };
  }
}

async function writeFileOf(path: string, events: number, days: number): Promise<void> {
  function* texts(): Generator<string> {
    let text = '';
    for (const { type, createdAt, payload } of linesOf(events, days)) {
      text += `{"type":"type ${type}","createdAt":"${new Date(createdAt).toISOString()}","payload":${payload}}\n`;
      if (text.length < 65_536) continue;
      yield text;
      text = '';
    }
    yield text;
  }
  await pipeline(Readable.from(texts()), createWriteStream(path));
}

/** Rates and CPU of one run. */
interface Run {
  /** Events a second, until they are stored, and until their counts are settled too. */
  readonly stored: number;
  readonly settled: number;
  /** CPU of PostgreSQL in microseconds an event, all of it. */
  readonly databaseMicros: number;
}

async function copyRun(installation: Installation, app: BenchApp, { events, days }: Size): Promise<Run> {
  const types = await makeTypes(installation, app);
  const newId = createEventIds();
  const texts: string[] = [];
  let rows: Row[] = [];
  for (const { type, createdAt, payload } of linesOf(events, days)) {
    rows.push({ id: newId(createdAt), appId: app.id, typeId: types[type - 1] ?? 0, createdAt, payload });
    if (rows.length < COPIED_ROWS) continue;
    texts.push(copyText(rows));
    rows = [];
  }
  texts.push(copyText(rows));
  const { address } = installation;
  const copy = await BareCopy.open('url' in address ? { connectionString: address.url } : address);
  const database = await cpuClock(installation);
  const startedAt = performance.now();
  for (const text of texts) await copy.copy(text);
  const seconds = (performance.now() - startedAt) / 1_000;
  await copy.stop();
  return {
    stored: events / seconds,
    settled: events / seconds,
    databaseMicros: (database() * 1_000) / events,
  };
}

async function importRun(
  installation: Installation,
  app: BenchApp,
  file: string,
  { events }: Size,
): Promise<Run & { imported: number }> {
  const database = await cpuClock(installation);
  const child = spawn(process.execPath, [LAUNCHER, 'import', file, '--app', app.appId, '--json'], {
    env: { PATH: process.env.PATH ?? '', ...installation.settings },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
  });
  await once(child, 'close');
  const { imported, seconds, settledSeconds } = JSON.parse(output) as Outcome;
  return {
    imported,
    stored: events / seconds,
    settled: events / settledSeconds,
    databaseMicros: (database() * 1_000) / events,
  };
}

/** What `tidemark import --json` says. */
interface Outcome {
  readonly imported: number;
  readonly seconds: number;
  readonly settledSeconds: number;
}

interface Size {
  readonly events: number;
  readonly days: number;
}

/** CPU of PostgreSQL since now, in milliseconds. */
async function cpuClock({ sql }: Installation): Promise<() => number> {
  const postmaster = await postmasterOf(sql);
  const before = cpuOfFamily(postmaster);
  return () => cpuOfFamily(postmaster) - before;
}

/** Internal ids of the app's types, by their numbers; made for the copies, by the import itself for its own. */
async function makeTypes(installation: Installation, app: BenchApp): Promise<readonly number[]> {
  for (let n = 1; n <= TYPES; n += 1) await installation.makeType(app.appId, `type ${n}`);
  const rows = await installation.sql<{ id: number }[]>`
    SELECT id FROM event_types WHERE app_id = ${app.id} AND name LIKE 'type %' ORDER BY id`;
  return rows.map(({ id }) => id);
}

/** A comparison of all counts with the rows is what `tidemark doctor` does on a sample; here it is every day's total. */
async function daysThatDiffer({ sql }: Installation, app: BenchApp): Promise<number> {
  const [row] = await sql<{ days: number }[]>`
    SELECT count(*)::integer AS days
      FROM (SELECT date_bin('1 day', created_at, 'epoch') AS day, count(*) AS events FROM events
             WHERE app_id = ${app.id} GROUP BY 1) AS stored
      FULL JOIN (SELECT bucket AS day, sum(count) AS events FROM events_per_day
                  WHERE app_id = ${app.id} AND type_id = 0 GROUP BY 1) AS counted USING (day)
     WHERE stored.events IS DISTINCT FROM counted.events`;
  return row?.days ?? Number.NaN;
}

async function measure(
  bench: Workbench,
  findings: Findings,
  installation: Installation,
  { rounds, events }: { rounds: number; events: number },
): Promise<void> {
  const engine = installation.engine.split(' ')[0] ?? '';
  for (const { name, days } of SPREADS) {
    const size = { events, days };
    const file = join(bench.folder, `${name}.ndjson`);
    await writeFileOf(file, events, days);
    const [copies, imports]: [Run[], Run[]] = [[], []];
    for (let round = -1; round < rounds; round += 1) {
      const [copied, app] = await installation.makeApps(2, `${name} ${round}`);
      if (copied === undefined || app === undefined) throw new Error('No apps were made.');
      // The first import makes the partitions. It warms up, too, as the first copy does.
      const imported = await importRun(installation, app, file, size);
      const copy = await copyRun(installation, copied, size);
      findings.checkAll(`${engine}, ${name}: every line is imported`, imported.imported === events);
      findings.checkAll(
        `${engine}, ${name}: counts agree with rows`,
        (await daysThatDiffer(installation, app)) === 0,
      );
      if (round < 0) continue;
      imports.push(imported);
      copies.push(copy);
    }
    const of = (runs: readonly Run[], key: keyof Run): number[] => runs.map((run) => run[key]);
    const what = `${engine}, ${name}`;
    findings.figure(`${what}: bare COPY`, '/s', of(copies, 'stored'));
    findings.figure(`${what}: bare COPY, CPU of PostgreSQL`, 'µs/event', of(copies, 'databaseMicros'));
    findings.figure(`${what}: import, stored`, '/s', of(imports, 'stored'));
    findings.figure(`${what}: import, with settled counts`, '/s', of(imports, 'settled'));
    findings.figure(`${what}: import, CPU of PostgreSQL`, 'µs/event', of(imports, 'databaseMicros'));
    findings.ratio(
      `${what}: import, stored, to bare COPY`,
      pairwise(of(imports, 'stored'), of(copies, 'stored')),
      { atLeast: GOAL },
    );
    findings.ratio(
      `${what}: import, settled, to bare COPY`,
      pairwise(of(imports, 'settled'), of(copies, 'stored')),
      { atLeast: GOAL },
    );
  }
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const rounds = byLength(options, { full: 5, quick: 3, smoke: 1 });
  const events = byLength(options, { full: 500_000, quick: 100_000, smoke: 20_000 });
  findings.note(
    `${events.toLocaleString('en-GB')} events of ${TYPES} types in the order of time, over ${SPREADS.map(({ name, days }) => `${days} days (${name})`).join(' and ')}; bare COPY: the same rows, made beforehand, without counts.`,
  );
  await measure(bench, findings, bench.installation, { rounds, events });
  const url = process.env.TIMESCALE_URL;
  if (url === undefined)
    findings.note('TimescaleDB was left out: TIMESCALE_URL names no empty database with it.');
  else await measure(bench, findings, await bench.openInstallation(url), { rounds, events });
}

export const IMPORT: Scenario = {
  name: 'import',
  about:
    '`tidemark import` beside a bare COPY of the same events, sparse and dense (TIMESCALE_URL for TimescaleDB).',
  run,
};
