/**
 * The engines side by side, in one run: COPY rows/s, bytes per event as rows and in the columnstore, a page and its
 * total at offset 5,000,000, and a year's series, on ten million events of one app over a year, with the counts and
 * profiles that the service keeps; and an import of a million lines over thirty days.
 *
 * POSTGRES_URL and TIMESCALE_URL name two empty databases; EVENTS and ROUNDS change the size and the rounds. On a machine
 * that others use meanwhile, REALTIME=1 (as root, with chrt) puts reads and import before them; loading stays as it is.
 * To run it: `npm run bench:engines`. Writes bench/results/engines.json and prints a table.
 */
import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { Readable } from 'node:stream';
import { type ImportedEvent, importEvents } from '../src/cli/transfer/import-events.ts';
import { createEventIds } from '../src/ingest/event-id.ts';
import { connect, type Sql } from '../src/storage/connect.ts';
import { profileDay, unprofiledDays } from '../src/storage/counts/day-profiles.ts';
import { readSeries } from '../src/storage/counts/series.ts';
import type { Engine } from '../src/storage/engine.ts';
import { ENGINES } from '../src/storage/engines.ts';
import { readEventPage } from '../src/storage/event-page.ts';
import { ensurePartitions, foldCounts } from '../src/storage/postgres/maintenance.ts';
import { openStorage, type Storage } from '../src/storage/storage.ts';
import { mergeMarks, refreshStale } from '../src/storage/timescale/maintenance.ts';
import { applyPolicies } from '../src/storage/timescale/policies.ts';
import type { EventRow } from '../src/storage/write/accepted-event.ts';
import { CopyConnection } from '../src/storage/write/copy-connection.ts';
import { COPY_COMMANDS, copyGroup } from '../src/storage/write/copy-group.ts';
import { ImportWriter } from '../src/storage/write/import-writer.ts';

const EVENTS = Number(process.env.EVENTS ?? 10_000_000);
const ROUNDS = Number(process.env.ROUNDS ?? 21);
const DAYS = 365;
const DAY_MS = 86_400_000;
const END = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const START = END - DAYS * DAY_MS;
const BATCH = 1_000;
const TYPES = 20;
const IMPORTED = EVENTS / 10;
const IMPORTED_DAYS = 30;

/** A generator of its own, so that both engines get the same events (Park and Miller's, 1988). */
function randomNumbers(seed: number): (below: number) => number {
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

async function seed(
  sql: Sql,
  url: string,
  engine: Engine,
): Promise<{ rowsPerSecond: number; payloadBytes: number }> {
  await sql`INSERT INTO apps (public_id, name) VALUES ('bench', 'bench')`;
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'type' || n, 1, 'type ' || n FROM generate_series(1, ${TYPES}::integer) n`;
  const connections = [new CopyConnection({ url }, 'bench 1'), new CopyConnection({ url }, 'bench 2')];
  const random = randomNumbers(42);
  const newId = createEventIds();
  let n = 0;
  let payloadBytes = 0;
  const nextBatch = (): EventRow[] => {
    const events: EventRow[] = [];
    for (let i = 0; i < BATCH && n < EVENTS; i += 1, n += 1) {
      const at = START + Math.floor((n * DAYS * DAY_MS) / EVENTS);
      // One event in a thousand is of the last type.
      const type = random(1_000) === 0 ? TYPES : 1 + random(TYPES - 1);
      const text = payload(n, random);
      payloadBytes += text.length;
      events.push({ id: newId(at), appId: 1, typeId: type, createdAt: at, payload: text });
    }
    return events;
  };
  const started = performance.now();
  await Promise.all(
    connections.map(async (connection) => {
      while (n < EVENTS) await connection.copy(copyGroup(ENGINES[engine].writes, nextBatch()), COPY_COMMANDS);
    }),
  );
  const seconds = (performance.now() - started) / 1_000;
  await Promise.all(connections.map((connection) => connection.close()));
  return { rowsPerSecond: Math.round(EVENTS / seconds), payloadBytes: payloadBytes / EVENTS };
}

async function medianMs(work: () => Promise<unknown>): Promise<number> {
  for (let i = 0; i < 3; i += 1) await work();
  const times: number[] = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    const started = performance.now();
    await work();
    times.push(performance.now() - started);
  }
  return Number((times.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? Number.NaN).toFixed(2));
}

/** Medians in milliseconds; every page's total is checked against the number of events that went in. */
async function measureReads(sql: Sql): Promise<Record<string, number>> {
  const result: Record<string, number> = {};
  const types = [
    ['all types', null],
    ['common type', 1],
    ['one in 1,000', TYPES],
  ] as const;
  for (const [name, typeId] of types) {
    const scope = { appId: 1, typeId, from: null, until: null };
    for (const offset of [0, EVENTS / 2]) {
      const request = { scope, offset, limit: 100, order: 'asc', maxBytes: 1e9 } as const;
      const { total } = await readEventPage(sql, request);
      if (typeId === null && total !== EVENTS) throw new Error(`The total is ${total}, not ${EVENTS}.`);
      result[`page at ${offset}, ${name}`] = await medianMs(() => readEventPage(sql, request));
    }
  }
  for (const timezone of ['UTC', 'Europe/Berlin', 'Asia/Kathmandu']) {
    const request = { appId: 1, typeIds: null, from: START, until: END, timezone, buckets: 400 };
    const series = await readSeries(sql, request);
    const sum = series?.all.reduce((total, count) => total + count, 0) ?? 0;
    if (timezone === 'UTC' && sum !== EVENTS) throw new Error(`The series adds up to ${sum}, not ${EVENTS}.`);
    result[`series of a year, ${timezone}`] = await medianMs(() => readSeries(sql, request));
  }
  return result;
}

/** Before all else that runs on this machine, where that is asked for: this process and what serves its database. */
async function inRealTime<T>(sql: Sql, work: () => Promise<T>): Promise<T> {
  if (process.env.REALTIME !== '1') return await work();
  const servers = await sql<{ pid: number }[]>`
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`;
  const schedule = (...how: string[]): void => {
    for (const { pid } of [...servers, process]) execFileSync('chrt', ['-a', ...how, String(pid)]);
  };
  schedule('-r', '-p', '1');
  try {
    return await work();
  } finally {
    schedule('-o', '-p', '0');
  }
}

/** Lines as `tidemark import` reads them, of the days before all others. */
function* importLines(): Generator<Buffer> {
  const random = randomNumbers(7);
  for (let n = 0; n < IMPORTED; ) {
    let lines = '';
    for (let i = 0; i < BATCH && n < IMPORTED; i += 1, n += 1) {
      const at = START - IMPORTED_DAYS * DAY_MS + Math.floor((n * IMPORTED_DAYS * DAY_MS) / IMPORTED);
      lines += `{"type":"type ${1 + random(TYPES)}","createdAt":"${new Date(at).toISOString()}","payload":${payload(n, random)}}\n`;
    }
    yield Buffer.from(lines);
  }
}

/** Events a second, until they are stored and until reads of them are cheap. */
async function measureImport(sql: Sql, url: string, storage: Storage): Promise<Record<string, number>> {
  await sql`INSERT INTO apps (public_id, name) VALUES ('import', 'import')`;
  const options = { address: { url }, engine: storage.engine, appId: 2, keptFrom: 0, timeoutMs: 1_000 };
  const writer = new ImportWriter<ImportedEvent>(options);
  // Its connection is there from now on.
  await writer.write([]);
  const started = performance.now();
  const perSecond = (): number => Math.round((IMPORTED * 1_000) / (performance.now() - started));
  const { imported } = await inRealTime(sql, () =>
    importEvents({
      source: Readable.from(importLines()),
      sql,
      writer,
      app: { id: 2, appId: 'import' },
      maxTypes: TYPES,
      maxLineBytes: 1e6,
      now: Date.now,
      onRefused: ({ reason }) => {
        throw new Error(reason);
      },
      onBatch: () => undefined,
    }),
  );
  if (imported !== IMPORTED) throw new Error(`${imported} events were imported, not ${IMPORTED}.`);
  const stored = perSecond();
  await inRealTime(sql, () => storage.settleCounts(sql, Date.now()));
  await writer.close();
  return { stored, settled: perSecond() };
}

async function bytesPerEvent(sql: Sql, engine: string): Promise<number> {
  const [row] =
    engine === 'timescale'
      ? await sql<{ bytes: number }[]>`SELECT hypertable_size('events')::float8 AS bytes`
      : await sql<{ bytes: number }[]>`
          SELECT sum(pg_total_relation_size(relid))::float8 AS bytes FROM pg_partition_tree('events')`;
  return Number(((row?.bytes ?? 0) / EVENTS).toFixed(1));
}

async function measure(url: string): Promise<Record<string, unknown>> {
  const sql = connect({ url }, { connections: 1, name: 'tidemark bench' });
  const storage = await openStorage(sql);
  const { engine, description } = storage;
  await storage.migrate(sql);
  if (engine === 'postgres') await ensurePartitions(sql, START, END);
  else await applyPolicies(sql, { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0 });
  const { rowsPerSecond, payloadBytes } = await seed(sql, url, engine);
  if (engine === 'postgres') {
    await foldCounts(sql);
  } else {
    await mergeMarks(sql);
    await refreshStale(sql, END + 2 * DAY_MS);
  }
  for (const day of await unprofiledDays(sql, END + 2 * DAY_MS)) await profileDay(sql, day);
  await sql`VACUUM ANALYZE`;
  const result: Record<string, unknown> = {
    engine: description,
    events: EVENTS,
    payloadBytes: Number(payloadBytes.toFixed(1)),
    copyRowsPerSecond: rowsPerSecond,
    bytesPerEvent: await bytesPerEvent(sql, engine),
    medianMs: await inRealTime(sql, () => measureReads(sql)),
  };
  if (engine === 'timescale') {
    // A session of its own, as the policy's job has: with what applyPolicies has set.
    const job = connect({ url }, { connections: 1, name: 'tidemark bench' });
    await job`SELECT count(compress_chunk(chunk)) FROM show_chunks('events') AS chunk`;
    await job.end();
    await sql`VACUUM ANALYZE`;
    result.bytesPerEventCompressed = await bytesPerEvent(sql, engine);
    result.medianMsCompressed = await inRealTime(sql, () => measureReads(sql));
  }
  result.importPerSecond = await measureImport(sql, url, storage);
  await sql.end();
  return result;
}

const { POSTGRES_URL, TIMESCALE_URL } = process.env;
if (POSTGRES_URL === undefined || TIMESCALE_URL === undefined) {
  throw new Error('POSTGRES_URL and TIMESCALE_URL: name two empty databases.');
}
const results = {
  bench: 'engines',
  at: new Date().toISOString(),
  machine: { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version },
  priority:
    process.env.REALTIME === '1' ? 'real time for reads and import, loading beside other work' : 'ordinary',
  engines: [await measure(POSTGRES_URL), await measure(TIMESCALE_URL)],
};
await mkdir(new URL('../../bench/results/', import.meta.url), { recursive: true });
await writeFile(
  new URL('../../bench/results/engines.json', import.meta.url),
  `${JSON.stringify(results, null, 2)}\n`,
);
process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);
