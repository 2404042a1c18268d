/** ndjson, cloudevents, otlp, segment: what a whole event costs that arrives in another format, beside the same event in a batch. */
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import type { LoadReport, LoadRequest } from '../load/load-job.ts';
import { answersOf, checkStatuses, closedRound } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

/** Of a request. */
const EVENTS = 1_000;
const CONNECTIONS = 2;
const TYPE = 'order placed';

/** A way to send the same events: the same types and times, the same payloads in the table. */
interface Way {
  readonly name: string;
  readonly request: (app: BenchApp) => LoadRequest;
}

interface Event {
  readonly createdAt: string | null;
  /** JSON text. */
  readonly payload: string;
}

const orders = (n: number): string =>
  JSON.stringify({
    orderId: 1_000_000 + n,
    customerId: `c_${(n * 7_919) % 50_000}`,
    items: [{ sku: `SKU-${n % 2_000}`, quantity: 1 + (n % 4) }],
    total: (n % 50_000) / 100,
    note: 'x'.repeat(60),
  });

function eventsOf(make: (n: number) => Event): Event[] {
  return Array.from({ length: EVENTS }, (_, n) => make(n));
}

function post(app: BenchApp, path: string, type: string, body: string): LoadRequest {
  const headers = { Authorization: `Bearer ${app.loggingToken}`, 'Content-Type': type };
  return { method: 'POST', path, headers, body };
}

/** The API's own form of an event. */
function ownForm({ createdAt, payload }: Event): string {
  const time = createdAt === null ? '' : `"createdAt":"${createdAt}",`;
  return `{"typeName":"${TYPE}",${time}"payload":${payload}}`;
}

/** What the others are measured against. */
function batch(events: readonly Event[]): Way {
  const body = `{"events":[${events.map(ownForm).join(',')}]}`;
  return { name: BATCH, request: (app) => post(app, '/v1/events', 'application/json', body) };
}

const BATCH = 'batch';
const LINES = 'application/x-ndjson';

function ndjsonWays(): Way[] {
  const events = eventsOf((n) => ({ createdAt: null, payload: orders(n) }));
  const lines = events.map((event) => `${ownForm(event)}\n`).join('');
  const records = events.map(({ payload }) => `${payload}\n`).join('');
  const actions = events.map(({ payload }) => `{"create":{"_index":"${TYPE}"}}\n${payload}\n`).join('');
  const type = encodeURIComponent(TYPE);
  return [
    batch(events),
    { name: 'lines', request: (app) => post(app, '/v1/events', LINES, lines) },
    { name: 'records', request: (app) => post(app, `/v1/records?type=${type}`, LINES, records) },
    { name: 'bulk', request: (app) => post(app, '/v1/elasticsearch/_bulk', LINES, actions) },
  ];
}

function cloudEventWays(): Way[] {
  const events = eventsOf((n) => {
    const head = `"specversion":"1.0","id":"order-${n}","source":"https://shop.example.com/orders","type":"${TYPE}"`;
    return { createdAt: null, payload: `{${head},"datacontenttype":"application/json","data":${orders(n)}}` };
  });
  const body = `[${events.map(({ payload }) => payload).join(',')}]`;
  const type = 'application/cloudevents-batch+json';
  return [
    batch(events),
    { name: 'batched CloudEvents', request: (app) => post(app, '/v1/cloudevents', type, body) },
  ];
}

/** Nanoseconds of a time before the run: it must not be in the future. */
const NANOSECONDS = BigInt(Date.now() - 60_000) * 1_000_000n;
const SERVICE = 'checkout';
const SCOPE = 'bench';

interface Log {
  readonly body: string;
  readonly attributes: readonly (readonly [string, string])[];
}

function logOf(n: number): Log {
  return {
    body: `order ${n} was placed ${'x'.repeat(60)}`,
    attributes: [
      ['order.id', String(1_000_000 + n)],
      ['customer.id', `c_${(n * 7_919) % 50_000}`],
      ['http.request.method', 'POST'],
    ],
  };
}

/** Of a time before the run, as all messages of a batch have it; it is the time of the events beside them, too. */
const SENT_AT = new Date(Date.now() - 1_000).toISOString();

function segmentWays(): Way[] {
  const events = eventsOf((n) => {
    const head = `"type":"track","event":"${TYPE}","timestamp":"${SENT_AT}","userId":"u_${(n * 7_919) % 50_000}"`;
    const context =
      '"context":{"library":{"name":"@segment/analytics-node","version":"3.1.0"}},"integrations":{}';
    return { createdAt: SENT_AT, payload: `{${head},"properties":${orders(n)},${context}}` };
  });
  const body = `{"batch":[${events.map(({ payload }) => payload).join(',')}],"sentAt":"${SENT_AT}"}`;
  return [
    batch(events),
    { name: 'messages of Segment', request: (app) => post(app, '/v1/batch', 'application/json', body) },
  ];
}

const text = (value: string): string => `{"stringValue":${JSON.stringify(value)}}`;
const keyValue = ([key, value]: readonly [string, string]): string =>
  `{"key":"${key}","value":${text(value)}}`;
const RESOURCE = `{"attributes":[${keyValue(['service.name', SERVICE])}]}`;

function logText(log: Log): string {
  const attributes = log.attributes.map(keyValue).join(',');
  const head = `"timeUnixNano":"${NANOSECONDS}","severityNumber":9,"severityText":"INFO","eventName":"${TYPE}"`;
  return `${head},"body":${text(log.body)},"attributes":[${attributes}]`;
}

function otlpWays(): Way[] {
  const logs = Array.from({ length: EVENTS }, (_, n) => logOf(n));
  const origin = `"resource":${RESOURCE},"scope":{"name":"${SCOPE}"}`;
  const createdAt = new Date(Number(NANOSECONDS / 1_000_000n)).toISOString();
  const events = logs.map((log) => ({ createdAt, payload: `{${logText(log)},${origin}}` }));
  const records = logs.map((log) => `{${logText(log)}}`).join(',');
  const json = `{"resourceLogs":[{"resource":${RESOURCE},"scopeLogs":[{"scope":{"name":"${SCOPE}"},"logRecords":[${records}]}]}]}`;
  const protobuf = Buffer.from(exportRequest(logs)).toString('base64');
  const path = '/v1/otlp/v1/logs';
  return [
    batch(events),
    { name: 'OTLP in JSON', request: (app) => post(app, path, 'application/json', json) },
    {
      name: 'OTLP in Protobuf',
      request: (app) => ({ ...post(app, path, 'application/x-protobuf', protobuf), base64: true }),
    },
  ];
}

/** An ExportLogsServiceRequest. */
function exportRequest(logs: readonly Log[]): Uint8Array {
  const writer = new BinaryWriter();
  const message = (field: number, write: () => void): void => {
    writer.tag(field, 2).fork();
    write();
    writer.join();
  };
  const string = (field: number, value: string): BinaryWriter => writer.tag(field, 2).string(value);
  const pair = (field: number, [key, value]: readonly [string, string]): void =>
    message(field, () => {
      string(1, key);
      message(2, () => string(1, value));
    });
  message(1, () => {
    message(1, () => pair(1, ['service.name', SERVICE]));
    message(2, () => {
      message(1, () => string(1, SCOPE));
      for (const log of logs)
        message(2, () => {
          writer.tag(1, 1).fixed64(NANOSECONDS);
          writer.tag(2, 0).int32(9);
          string(3, 'INFO');
          message(5, () => string(1, log.body));
          for (const attribute of log.attributes) pair(6, attribute);
          string(12, TYPE);
        });
    });
  });
  return writer.finish();
}

interface Cost {
  readonly serverMicros: number;
  readonly databaseMicros: number;
  readonly micros: number;
}

async function measure(
  bench: Workbench,
  findings: Findings,
  options: RunOptions,
  ways: readonly Way[],
): Promise<void> {
  findings.note(
    `Requests of ${EVENTS.toLocaleString('en-GB')} events, ${CONNECTIONS} connections, limits lifted. Each way stores the same types, times and payload texts; in rounds of changing order.`,
  );
  const { rounds, seconds } = byLength(options, {
    full: { rounds: 9, seconds: 1.5 },
    quick: { rounds: 5, seconds: 1 },
    smoke: { rounds: 1, seconds: 0.5 },
  });
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const generator = bench.startGenerator();
  const apps = new Map<Way, BenchApp>();
  for (const way of ways) apps.set(way, await bench.makeApp(way.name));
  const costs = new Map<string, Cost[]>(ways.map(({ name }) => [name, []]));
  const reports: LoadReport[] = [];
  // The first round warms up.
  for (let round = -1; round < rounds; round += 1) {
    for (const way of round % 2 === 0 ? ways : ways.toReversed()) {
      const app = apps.get(way);
      if (app === undefined) throw new Error('Each way has an app.');
      const contender = { name: way.name, port, pid, requests: [way.request(app)] };
      const found = await closedRound(bench, generator, contender, { connections: CONNECTIONS, seconds });
      reports.push(found.report);
      const expected = answersOf(found.report, /^200$/) * EVENTS;
      const [stored] = await bench.sql<{ rows: number; payloads: number }[]>`
        SELECT count(*)::float8 AS rows, count(DISTINCT payload::text)::float8 AS payloads FROM events WHERE app_id = ${app.id}`;
      findings.checkAll(
        'every event of an answered request is in the table, each payload in its own text',
        stored?.rows === expected && stored.payloads === EVENTS,
      );
      if (round >= 0) costs.get(way.name)?.push(costOf(found));
    }
    await bench.sql`TRUNCATE events`;
  }
  addFigures(findings, costs);
  checkStatuses(findings, 'requests', reports, [200]);
}

function costOf(round: { readonly serverMicros: number; readonly databaseMicros: number }): Cost {
  const [serverMicros, databaseMicros] = [round.serverMicros / EVENTS, round.databaseMicros / EVENTS];
  return { serverMicros, databaseMicros, micros: serverMicros + databaseMicros };
}

function addFigures(findings: Findings, costs: ReadonlyMap<string, readonly Cost[]>): void {
  const of = (name: string, key: keyof Cost): number[] => (costs.get(name) ?? []).map((cost) => cost[key]);
  for (const name of costs.keys()) {
    findings.figure(`${name}: server CPU`, 'µs/event', of(name, 'serverMicros'));
    findings.figure(`${name}: database CPU`, 'µs/event', of(name, 'databaseMicros'));
  }
  for (const name of costs.keys()) {
    if (name === BATCH) continue;
    findings.ratio(`CPU of an event, ${name} to batch`, pairwise(of(name, 'micros'), of(BATCH, 'micros')));
    findings.ratio(
      `CPU of the server alone, ${name} to batch`,
      pairwise(of(name, 'serverMicros'), of(BATCH, 'serverMicros')),
    );
  }
}

function scenario(name: string, about: string, ways: () => Way[]): Scenario {
  return { name, about, run: (bench, findings, options) => measure(bench, findings, options, ways()) };
}

export const FORMATS: readonly Scenario[] = [
  scenario(
    'ndjson',
    'CPU of an event as a line, as a record and as a document, beside the same event in a batch.',
    ndjsonWays,
  ),
  scenario('cloudevents', 'CPU of a CloudEvent beside the same event in a batch.', cloudEventWays),
  scenario(
    'otlp',
    'CPU of a log record of OpenTelemetry, in JSON and in Protobuf, beside the same event in a batch.',
    otlpWays,
  ),
  scenario(
    'segment',
    "CPU of a message of Segment's libraries beside the same event in a batch.",
    segmentWays,
  ),
];
