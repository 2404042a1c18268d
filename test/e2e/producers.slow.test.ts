/** Real clients of producers, through a kill of the server and one of PostgreSQL: what they delivered is there, once. */

import { createServer } from 'node:net';
import { Client, HttpConnection } from '@elastic/elasticsearch';
import { SeverityNumber } from '@opentelemetry/api-logs';
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-proto';
import { BatchLogRecordProcessor, LoggerProvider } from '@opentelemetry/sdk-logs';
import { Analytics } from '@segment/analytics-node';
import { CloudEvent, HTTP } from 'cloudevents';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { connect } from '../../src/storage/connect.ts';
import { openEmbedded } from '../../src/storage/embedded/embedded.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 });

let installation: Installation;
let server: ServerProcess;
let loggingToken: string;
/** Clients go on with the address that they have. */
let PORT: string;

beforeAll(async () => {
  installation = await Installation.make();
  PORT = String(await portOfOurOwn());
  server = await installation.start({ LOG_LEVEL: 'fatal', PORT });
  ({ loggingToken } = await installation.makeApp());
});
afterAll(() => installation.remove());

/** A free port that the system gives to no connection: clients that connect while nothing listens must not take it. */
async function portOfOurOwn(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(10_000 * Math.random());
    const isFree = await new Promise<boolean>((resolve) => {
      const probe = createServer();
      probe.on('error', () => resolve(false));
      probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** Sends until it is acknowledged, as a shipper does; the id of an event is told once it is. */
async function deliver(path: string, body: string, headers: Record<string, string>): Promise<void> {
  const Authorization = `Bearer ${loggingToken}`;
  await until(
    async () => {
      const response = await fetch(`http://127.0.0.1:${server.port}${path}`, {
        method: 'POST',
        body,
        headers: { Authorization, ...headers },
        signal: AbortSignal.timeout(5_000),
      }).catch(() => null);
      await response?.arrayBuffer().catch(() => null);
      if (response !== null && response.status >= 400 && response.status < 429)
        throw new Error(`${path} was answered ${response.status}.`);
      return response?.ok === true;
    },
    `${path} is acknowledged`,
    60_000,
  );
}

test('what clients deliver through kills of the server and of PostgreSQL is stored once', async () => {
  const delivered = { records: 0, cloudevents: 0 };
  let isOver = false;
  const time = new Date(Date.now() - 60_000).toISOString();
  const ship = async (): Promise<void> => {
    while (!isOver) {
      const from = delivered.records;
      const lines = Array.from({ length: 20 }, (_, index) => `{"id":"r${from + index}","at":"${time}"}`);
      await deliver('/v1/records?type=records&timeField=at&keyField=id', lines.join('\n'), {
        'Content-Type': 'application/x-ndjson',
      });
      delivered.records += lines.length;
    }
  };
  const emit = async (): Promise<void> => {
    while (!isOver) {
      const event = new CloudEvent({
        id: String(delivered.cloudevents),
        source: '/s',
        type: 'cloudevents',
        time,
        data: {},
      });
      const { headers, body } = HTTP.structured(event);
      await deliver('/v1/cloudevents', String(body), headers as Record<string, string>);
      delivered.cloudevents += 1;
    }
  };
  const sending = [ship(), emit()];
  const progress = async (): Promise<void> => {
    const { records, cloudevents } = delivered;
    await until(
      () => delivered.records > records + 200 && delivered.cloudevents > cloudevents + 20,
      'both senders go on',
      60_000,
    );
  };
  await progress();
  await server.end('SIGKILL');
  server = await installation.start({ LOG_LEVEL: 'fatal', PORT });
  await progress();
  await installation.killAllOfPostgres();
  await progress();
  isOver = true;
  await Promise.all(sending);
  await exportedLogs();
  await segmentMessages();
  await bulkDocuments();
  expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  expect(await storedOnce()).toEqual({ ...delivered, logs: 200, segment: 100, bulk: 1_000 });
});

/** The exporter's own retries carry its records over a restart. */
async function exportedLogs(): Promise<void> {
  const exporter = new OTLPLogExporter({
    url: `http://127.0.0.1:${PORT}/v1/otlp/v1/logs`,
    headers: { Authorization: `Bearer ${loggingToken}` },
    timeoutMillis: 60_000,
  });
  const provider = new LoggerProvider({
    processors: [new BatchLogRecordProcessor({ exporter, exportTimeoutMillis: 60_000 })],
  });
  const logger = provider.getLogger('ledger');
  await server.end('SIGTERM');
  for (let index = 0; index < 200; index += 1)
    logger.emit({
      eventName: 'logs',
      severityNumber: SeverityNumber.INFO,
      attributes: { 'log.record.uid': `l${index}` },
    });
  const flushed = provider.forceFlush();
  server = await installation.start({ LOG_LEVEL: 'fatal', PORT });
  await flushed;
  await provider.shutdown();
}

async function segmentMessages(): Promise<void> {
  const analytics = new Analytics({
    host: `http://127.0.0.1:${PORT}`,
    writeKey: loggingToken,
    maxRetries: 30,
  });
  await server.end('SIGTERM');
  for (let index = 0; index < 100; index += 1)
    analytics.track({ userId: 'u', event: 'segment', messageId: `s${index}` });
  const flushed = analytics.closeAndFlush({ timeout: 60_000 });
  server = await installation.start({ LOG_LEVEL: 'fatal', PORT });
  await flushed;
}

/** The helper gives up when nobody listens; whoever then sends everything again stores nothing twice. */
async function bulkDocuments(): Promise<void> {
  const client = new Client({
    node: `http://127.0.0.1:${PORT}/v1/elasticsearch`,
    auth: { apiKey: loggingToken },
    Connection: HttpConnection,
  });
  const documents = Array.from({ length: 1_000 }, (_, n) => ({
    id: `b${n}`,
    '@timestamp': '2026-01-31T08:30:00.123Z',
  }));
  let restarted: Promise<void> | null = null;
  const restart = async (): Promise<void> => {
    await server.end('SIGKILL');
    server = await installation.start({ LOG_LEVEL: 'fatal', PORT });
  };
  async function* source(): AsyncGenerator<(typeof documents)[number]> {
    for (const [n, document] of documents.entries()) {
      if (n === 500) restarted ??= restart();
      yield document;
    }
  }
  await until(
    async () => {
      const told = await client.helpers
        .bulk({
          datasource: source(),
          flushBytes: 5_000,
          concurrency: 1,
          onDocument: ({ id }) => ({ create: { _index: 'bulk', _id: id } }),
        })
        .catch(() => null);
      return told?.successful === documents.length;
    },
    'all documents are stored',
    60_000,
  );
  await restarted;
  await client.close();
}

/** Events by type, each counted once for its own identity; fails where one is stored twice. */
async function storedOnce(): Promise<Record<string, number>> {
  const quiet = { info: () => undefined, warn: () => undefined };
  const embedded = await openEmbedded({ dataDir: installation.dataDir, log: quiet });
  const sql = connect(embedded.connection, { connections: 1, name: 'ledger' });
  try {
    const rows = await sql<{ name: string; stored: number; identities: number }[]>`
      SELECT type.name, count(*)::int AS stored,
             count(DISTINCT coalesce(payload ->> 'messageId', payload ->> 'id', payload ->> 'attributes'))::int AS identities
        FROM events JOIN event_types AS type ON type.id = events.type_id GROUP BY type.name`;
    for (const { name, stored, identities } of rows)
      expect({ name, stored }).toEqual({ name, stored: identities });
    return Object.fromEntries(rows.map(({ name, identities }) => [name, identities]));
  } finally {
    await sql.end();
    await embedded.close();
  }
}
