/** batches: POST /v1/events beside a bare COPY of the same rows, and single events beside a stream of batches. */
import { createEventIds } from '../../src/ingest/event-id.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadReport, LoadRequest } from '../load/load-job.ts';
import { answersOf, type Contender, checkStatuses, closedRound, createRequest } from '../measure.ts';
import { BareCopy, copyText } from '../rivals/bare-copy.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { cpuOf } from '../servers/process-usage.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addLatency } from './limits.ts';

/** Of a batch, and of a COPY. */
const EVENTS = 10_000;
const TYPES = 20;
/** In a round of bare COPY: about a second's. */
const COPIES = 8;

const PAYLOADS = Array.from({ length: EVENTS }, (_, n) =>
  JSON.stringify({
    orderId: 1_000_000 + n,
    customerId: `c_${(n * 7_919) % 50_000}`,
    status: ['placed', 'paid', 'packed', 'shipped'][n % 4],
    source: ['web', 'ios', 'android', 'partner'][n % 4],
    items: [{ sku: `SKU-${n % 2_000}`, quantity: 1 + (n % 4) }],
    total: (n % 50_000) / 100,
    note: 'x'.repeat(60),
  }),
);

const WAYS = [
  { name: 'batches, one at a time', connections: 1 },
  { name: 'batches, two at a time', connections: 2 },
  { name: 'gzip, two at a time', connections: 2, gzip: true },
] as const;

/** What one round of one way came to. */
interface Run {
  readonly rowsPerSecond: number;
  /** CPU in microseconds a row. */
  readonly serverMicros: number;
  readonly databaseMicros: number;
  /** Milliseconds, since the round began. */
  readonly loopLate: number;
  readonly loopMostLate: number;
}

interface TypedApp extends BenchApp {
  /** Public ids, and internal ones. */
  readonly typeIds: readonly string[];
  readonly internalTypeIds: readonly number[];
}

async function makeTypedApp(bench: Workbench, name: string): Promise<TypedApp> {
  const app = await bench.makeApp(name);
  for (let n = 1; n < TYPES; n += 1) await bench.installation.makeType(app.appId, `type ${n}`);
  const types = await bench.sql<{ id: number; publicId: string }[]>`
    SELECT id, public_id AS "publicId" FROM event_types WHERE app_id = ${app.id} ORDER BY id`;
  return {
    ...app,
    typeIds: types.map(({ publicId }) => publicId),
    internalTypeIds: types.map(({ id }) => id),
  };
}

function batchRequest({ loggingToken, typeIds }: TypedApp): LoadRequest {
  const events = PAYLOADS.map((payload, n) => `{"typeId":"${typeIds[n % TYPES]}","payload":${payload}}`);
  return {
    method: 'POST',
    path: '/v1/events',
    headers: { Authorization: `Bearer ${loggingToken}` },
    body: `{"events":[${events.join(',')}]}`,
  };
}

async function copyRound(bench: Workbench, copy: BareCopy, app: TypedApp): Promise<Run> {
  const newId = createEventIds();
  const createdAt = Date.now();
  const rows = (payload: string, n: number) => ({
    id: newId(createdAt),
    appId: app.id,
    typeId: app.internalTypeIds[n % TYPES] ?? 0,
    createdAt,
    payload,
  });
  // Made before the clock starts, as the bodies of the batches are.
  const texts = Array.from({ length: COPIES }, () => copyText(PAYLOADS.map(rows)));
  const before = { script: cpuOf(process.pid), database: bench.databaseCpu() };
  const startedAt = performance.now();
  for (const text of texts) await copy.copy(text);
  const seconds = (performance.now() - startedAt) / 1_000;
  const perRow = 1_000 / (COPIES * EVENTS);
  return {
    rowsPerSecond: (COPIES * EVENTS) / seconds,
    serverMicros: (cpuOf(process.pid) - before.script) * perRow,
    databaseMicros: (bench.databaseCpu() - before.database) * perRow,
    loopLate: Number.NaN,
    loopMostLate: Number.NaN,
  };
}

async function rowsOf({ sql }: Workbench, app: BenchApp): Promise<number> {
  const [row] = await sql<{ rows: number }[]>`
    SELECT count(*)::float8 AS rows FROM events WHERE app_id = ${app.id}`;
  return row?.rows ?? Number.NaN;
}

class Rounds {
  readonly #bench: Workbench;
  readonly #findings: Findings;
  readonly #generator: LoadGenerator;
  readonly #service: Contender;
  readonly #app: TypedApp;
  readonly reports: LoadReport[] = [];

  constructor(
    bench: Workbench,
    findings: Findings,
    parts: { generator: LoadGenerator; service: Contender; app: TypedApp },
  ) {
    this.#bench = bench;
    this.#findings = findings;
    this.#generator = parts.generator;
    this.#service = parts.service;
    this.#app = parts.app;
  }

  /** One round of batches, whose rows are counted afterwards. */
  async batches(
    { connections, gzip }: (typeof WAYS)[number] & { gzip?: true },
    seconds: number,
  ): Promise<Run> {
    const before = await rowsOf(this.#bench, this.#app);
    const requests = [{ ...batchRequest(this.#app), ...(gzip && { gzip }) }];
    const contender = { ...this.#service, requests };
    const round = await closedRound(this.#bench, this.#generator, contender, { connections, seconds });
    this.reports.push(round.report);
    const stored = (await rowsOf(this.#bench, this.#app)) - before;
    this.#findings.checkAll(
      'each batch that was answered is in the table, whole, and nothing else',
      stored === answersOf(round.report, /^200$/) * EVENTS,
    );
    return {
      rowsPerSecond: round.accepted * EVENTS,
      serverMicros: round.serverMicros / EVENTS,
      databaseMicros: round.databaseMicros / EVENTS,
      loopLate: round.account?.eventLoopLateMs ?? Number.NaN,
      loopMostLate: round.account?.eventLoopMostLateMs ?? Number.NaN,
    };
  }
}

/** Latencies of single events, one after the other, alone and beside two streams of batches. */
async function runSingles(
  bench: Workbench,
  app: TypedApp,
  port: number,
  { rounds, seconds }: { rounds: number; seconds: number },
): Promise<{ alone: LoadReport[]; beside: LoadReport[]; batches: LoadReport[] }> {
  const [singles, batches] = [bench.startGenerator(), bench.startGenerator()];
  const single = { kind: 'closed', port, connections: 1, requests: [createRequest(app, 200)] } as const;
  const stream = { kind: 'closed', port, connections: 2, requests: [batchRequest(app)] } as const;
  const found = { alone: [] as LoadReport[], beside: [] as LoadReport[], batches: [] as LoadReport[] };
  for (let round = 0; round < rounds; round += 1) {
    found.alone.push(await singles.run({ ...single, seconds }));
    const [beside, streamed] = await Promise.all([
      singles.run({ ...single, seconds }),
      batches.run({ ...stream, seconds }),
    ]);
    found.beside.push(beside);
    found.batches.push(streamed);
  }
  return found;
}

function addRuns(findings: Findings, name: string, runs: readonly Run[]): void {
  const of = (key: keyof Run): number[] => runs.map((run) => run[key]);
  findings.figure(`${name}: rows`, '/s', of('rowsPerSecond'));
  findings.figure(`${name}: ${name === COPY ? 'script' : 'server'} CPU`, 'µs/row', of('serverMicros'));
  findings.figure(`${name}: database CPU`, 'µs/row', of('databaseMicros'));
  if (name === COPY) return;
  findings.figure(`${name}: event loop late, p99`, 'ms', of('loopLate'));
  findings.figure(`${name}: event loop late, most`, 'ms', of('loopMostLate'));
}

const COPY = 'bare COPY';

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(`Batches of ${EVENTS.toLocaleString('en-GB')} events of ${TYPES} types, limits lifted.`);
  findings.note(
    'Bare COPY: the same rows into the same table by a script on one connection, made beforehand, without counts.',
  );
  const length = byLength(options, {
    full: { rounds: 7, seconds: 2 },
    quick: { rounds: 3, seconds: 1 },
    smoke: { rounds: 1, seconds: 1 },
  });
  const [app, copied] = [await makeTypedApp(bench, 'batches'), await makeTypedApp(bench, 'copied')];
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const service = { name: 'tidemark', port, pid, requests: [] };
  const copy = bench.keep(await BareCopy.open(bench.connection));
  const rounds = new Rounds(bench, findings, { generator: bench.startGenerator(), service, app });
  const runs = new Map<string, Run[]>([COPY, ...WAYS.map(({ name }) => name)].map((name) => [name, []]));
  // The first round warms up.
  for (let round = -1; round < length.rounds; round += 1) {
    const kept = (name: string, found: Run): unknown => round >= 0 && runs.get(name)?.push(found);
    kept(COPY, await copyRound(bench, copy, copied));
    for (const way of WAYS) kept(way.name, await rounds.batches(way, length.seconds));
    await bench.sql`TRUNCATE events`;
  }
  const rates = (name: string): number[] => runs.get(name)?.map(({ rowsPerSecond }) => rowsPerSecond) ?? [];
  for (const [name, found] of runs) addRuns(findings, name, found);
  for (const { name } of WAYS) findings.ratio(`${name}, to bare COPY`, pairwise(rates(name), rates(COPY)));
  const singles = await runSingles(bench, app, port, length);
  addLatency(findings, 'a single event, alone', singles.alone);
  addLatency(findings, 'a single event, beside batches', singles.beside);
  checkStatuses(findings, 'batches', [...rounds.reports, ...singles.batches], [200]);
  checkStatuses(findings, 'single events', [...singles.alone, ...singles.beside], [201]);
}

export const BATCHES: Scenario = {
  name: 'batches',
  about:
    'Batches of 10,000 events beside a bare COPY of the same rows; single events beside a stream of batches.',
  run,
};
