/**
 * Real clients of producers, through an outage of the database and a kill of the server. The ledger: what a client was told is
 * stored is there from then on, and nothing is there twice, however often it was sent.
 */
import { Client, HttpConnection } from '@elastic/elasticsearch';
import { SeverityNumber } from '@opentelemetry/api-logs';
import { OTLPLogExporter as JsonExporter } from '@opentelemetry/exporter-logs-otlp-http';
import { OTLPLogExporter as ProtobufExporter } from '@opentelemetry/exporter-logs-otlp-proto';
import { BatchLogRecordProcessor, LoggerProvider, type LogRecordExporter } from '@opentelemetry/sdk-logs';
import { Analytics } from '@segment/analytics-node';
import { CloudEvent, HTTP } from 'cloudevents';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { FaultyInstallation } from './faulty-installation.ts';

vi.setConfig({ testTimeout: patient(240_000), hookTimeout: patient(90_000) });

/** Of each client in each phase. */
const EVENTS = 100;
const LONG = 120_000;

let world: FaultyInstallation;
let loggingToken: string;
beforeAll(async () => {
  world = await FaultyInstallation.make();
  ({ loggingToken } = await world.makeApp());
});
afterAll(() => world.remove());

/** An event that is sent again keeps its time: it is a part of the key. */
const TIME = new Date(Date.now() - 60_000);

interface Producer {
  /** The type of its events, which no other has. */
  readonly type: string;
  readonly route: string;
  /**
   * Sends events of these identities, of which some may have been sent before, and gives up as the client does.
   * @returns those that it was told are stored
   */
  readonly send: (ids: readonly string[]) => Promise<readonly string[]>;
  readonly close: () => Promise<void>;
}

const nothing = async (): Promise<void> => undefined;

async function post(path: string, body: string, headers: Record<string, string>): Promise<boolean> {
  const response = await fetch(`${world.url}${path}`, {
    method: 'POST',
    body,
    headers: { Authorization: `Bearer ${loggingToken}`, ...headers },
    signal: AbortSignal.timeout(10_000),
  }).catch(() => null);
  await response?.arrayBuffer().catch(() => null);
  if (response !== null && response.status >= 400 && response.status < 429)
    throw new Error(`${path} was answered ${response.status}.`);
  return response?.ok === true;
}

function lines(): Producer {
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    const body = ids.map((id) => JSON.stringify({ id, at: TIME })).join('\n');
    const path = '/v1/records?type=records&timeField=at&keyField=id';
    return (await post(path, body, { 'Content-Type': 'application/x-ndjson' })) ? ids : [];
  };
  return { type: 'records', route: '/v1/records', send, close: nothing };
}

function cloudEvents(): Producer {
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    const told: string[] = [];
    for (const id of ids) {
      const event = new CloudEvent({
        id,
        source: '/s',
        type: 'cloudevents',
        time: TIME.toISOString(),
        data: {},
      });
      const { headers, body } = HTTP.structured(event);
      if (!(await post('/v1/cloudevents', String(body), headers as Record<string, string>))) break;
      told.push(id);
    }
    return told;
  };
  return { type: 'cloudevents', route: '/v1/cloudevents', send, close: nothing };
}

/** The exporter sends a batch again by itself; one that it gives up comes again from us. */
function openTelemetry(type: string, Exporter: typeof JsonExporter | typeof ProtobufExporter): Producer {
  const exporter: LogRecordExporter = new Exporter({
    url: `${world.url}/v1/otlp/v1/logs`,
    headers: { Authorization: `Bearer ${loggingToken}` },
  });
  const told: string[] = [];
  const telling: LogRecordExporter = {
    export: (records, callback) =>
      exporter.export(records, (result) => {
        if (result.code === 0)
          told.push(...records.map(({ attributes }) => String(attributes['log.record.uid'])));
        callback(result);
      }),
    forceFlush: nothing,
    shutdown: () => exporter.shutdown(),
  };
  const provider = new LoggerProvider({ processors: [new BatchLogRecordProcessor({ exporter: telling })] });
  const logger = provider.getLogger('ledger');
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    for (const id of ids)
      logger.emit({
        eventName: type,
        timestamp: TIME,
        severityNumber: SeverityNumber.INFO,
        attributes: { 'log.record.uid': id },
      });
    await provider.forceFlush().catch(() => undefined);
    return told.splice(0);
  };
  return { type, route: '/v1/otlp/v1/logs', send, close: () => provider.shutdown() };
}

/** It runs in a thread of its own, and tells nobody what became of a record. */
function pinoTransport(): Producer {
  const transport = pino.transport({
    target: 'pino-opentelemetry-transport',
    options: {
      loggerName: 'ledger',
      serviceVersion: '1.0.0',
      resourceAttributes: { 'service.name': 'ledger' },
      logRecordProcessorOptions: {
        recordProcessorType: 'batch',
        processorConfig: { scheduledDelayMillis: 100 },
        exporterOptions: {
          protocol: 'http/protobuf',
          protobufExporterOptions: {
            url: `${world.url}/v1/otlp/v1/logs`,
            headers: { Authorization: `Bearer ${loggingToken}` },
          },
        },
      },
    },
  });
  const logger = pino({ base: null, timestamp: () => `,"time":${TIME.getTime()}` }, transport);
  const ended = new Promise<void>((resolve) => transport.on('close', () => resolve()));
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    for (const id of ids) logger.warn({ 'log.record.uid': id, 'event.name': 'pino' }, 'a line');
    await until(async () => (await missing('pino', ids)).length === 0, 'pino has delivered', 20_000).catch(
      () => undefined,
    );
    return [];
  };
  const close = async (): Promise<void> => {
    transport.end();
    await ended;
  };
  return { type: 'pino', route: '/v1/otlp/v1/logs', send, close };
}

function segment(): Producer {
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    const analytics = new Analytics({ host: world.url, writeKey: loggingToken });
    const told: string[] = [];
    for (const id of ids)
      analytics.track({ userId: 'u', event: 'segment', messageId: id, timestamp: TIME }, (error) => {
        if (error === undefined || error === null) told.push(id);
      });
    await analytics.closeAndFlush({ timeout: LONG });
    return told;
  };
  return { type: 'segment', route: '/v1/batch', send, close: nothing };
}

function bulkHelper(): Producer {
  const client = new Client({
    node: `${world.url}/v1/elasticsearch`,
    auth: { apiKey: loggingToken },
    Connection: HttpConnection,
  });
  const send = async (ids: readonly string[]): Promise<readonly string[]> => {
    const dropped = new Set<string>();
    const told = await client.helpers
      .bulk<{ id: string }>({
        datasource: ids.map((id) => ({ id, '@timestamp': TIME.toISOString() })),
        flushBytes: 2_000,
        concurrency: 2,
        onDocument: ({ id }) => ({ create: { _index: 'bulk', _id: id } }),
        onDrop: ({ document }) => dropped.add(document.id),
      })
      .catch(() => null);
    return told === null ? [] : ids.filter((id) => !dropped.has(id));
  };
  return { type: 'bulk', route: '/v1/elasticsearch/_bulk', send, close: () => client.close() };
}

/** Those of these identities that are not stored. */
async function missing(type: string, ids: readonly string[]): Promise<string[]> {
  const stored = await identities(type);
  return ids.filter((id) => !stored.has(id));
}

/** How often each identity of a type is stored. @throws in an outage */
async function identities(type: string): Promise<Map<string, number>> {
  const rows = await world.sql<{ id: string; times: number }[]>`
    SELECT id, count(*)::integer AS times
      FROM (SELECT coalesce(payload ->> 'messageId', payload ->> 'id', uid.value -> 'value' ->> 'stringValue') AS id
              FROM events
              JOIN event_types AS type ON type.id = events.type_id AND type.name = ${type}
              LEFT JOIN LATERAL json_array_elements(payload -> 'attributes') AS uid ON uid.value ->> 'key' = 'log.record.uid') AS identities
     GROUP BY id`;
  return new Map(rows.map(({ id, times }) => [id, times]));
}

/** Sends until all is stored. Whatever a client was told is stored must be there at once. */
async function deliver(producer: Producer, ids: readonly string[]): Promise<void> {
  let left = ids;
  await until(
    async () => {
      const told = new Set(await producer.send(left));
      let absent: string[] | null = null;
      const look = async (): Promise<boolean> => {
        absent = await missing(producer.type, ids).catch(() => null);
        return absent !== null;
      };
      await until(look, 'the database answers', LONG);
      await world.serving;
      left = absent ?? [];
      expect({ type: producer.type, lost: left.filter((id) => told.has(id)) }).toEqual({
        type: producer.type,
        lost: [],
      });
      return left.length === 0;
    },
    `all of ${producer.type} is stored`,
    LONG,
  );
}

test('what clients deliver through an outage of the database and a kill of the server is stored once', async () => {
  const producers = [
    lines(),
    cloudEvents(),
    openTelemetry('protobuf', ProtobufExporter),
    openTelemetry('json', JsonExporter),
    pinoTransport(),
    segment(),
    bulkHelper(),
  ];
  const phase = (name: string): Promise<unknown> =>
    Promise.all(
      producers.map((producer) =>
        deliver(
          producer,
          Array.from({ length: EVENTS }, (_, n) => `${producer.type} ${name} ${n}`),
        ),
      ),
    );
  await phase('quiet');

  await world.killDatabase();
  const throughOutage = phase('outage');
  throughOutage.catch(() => undefined); // It is awaited below.
  for (const route of new Set(producers.map(({ route }) => route)))
    await until(async () => (await world.unavailable(route)) > 0, `${route} is answered 503`, LONG);
  await world.startDatabase();
  await throughOutage;

  const throughKill = phase('kill');
  throughKill.catch(() => undefined);
  await world.killServer();
  await world.startServer();
  await throughKill;

  for (const { type } of producers) {
    const stored = await identities(type);
    expect({ type, stored: stored.size, twice: [...stored].filter(([, times]) => times > 1) }).toEqual({
      type,
      stored: 3 * EVENTS,
      twice: [],
    });
  }
  for (const { close } of producers) await close();
});
