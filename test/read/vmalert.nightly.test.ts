/** Rules of vmalert over the counts: an alert that fires, and a series that is recorded, from now on and of the past. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { snappyUncompress } from 'hyparquet';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { postBatch } from '../support/batch.ts';
import { freePort } from '../support/cluster.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const VMALERT = spawnSync('vmalert', ['-version']).error === undefined;
if (!VMALERT) process.stderr.write('\nSkipped: rules of vmalert: not in PATH (Debian: victoria-metrics).\n');

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const FAILED = 'payment failed';

/** A sample that was written: the labels of its series, sorted, its time in milliseconds, and its value. */
type Written = readonly [series: string, at: number, value: number];

interface Alert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

describe.skipIf(!VMALERT)('vmalert', () => {
  let service: TestService;
  let token: string;
  let folder: string;
  let receiver: string;
  const alerts: Alert[] = [];
  const written: Written[] = [];
  const server = createServer((request, answer) => {
    buffer(request).then(
      (body) => {
        if (request.url === '/api/v2/alerts') alerts.push(...(JSON.parse(body.toString()) as Alert[]));
        else if (request.url === '/api/v1/write') written.push(...samplesOf(body));
        answer.end();
      },
      () => answer.destroy(),
    );
  });
  /** The beginning of this hour. */
  const hour = Math.floor(Date.now() / HOUR) * HOUR;

  beforeAll(async () => {
    service = await startTestService({ config: { READ_LIMIT_PER_MINUTE: 0 } });
    const asked = { name: 'vmalert', appIds: [service.app.appId], expiresInSeconds: null };
    token = (await createResourceToken(service.sql, asked)).resourceToken;
    folder = await mkdtemp(join(tmpdir(), 'tidemark-vmalert-'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    receiver = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
    const at = (typeName: string, times: number, ms: number): object[] =>
      Array.from({ length: times }, () => ({ typeName, payload: {}, createdAt: new Date(ms).toISOString() }));
    const events = [
      ...at(FAILED, 12, Date.now() - 2 * MINUTE),
      ...at('order placed', 3, Date.now() - 2 * MINUTE),
      ...at(FAILED, 4, hour - 5 * HOUR + MINUTE),
      ...at(FAILED, 7, hour - 4 * HOUR - MINUTE),
    ];
    expect((await postBatch(service, events)).status).toBe(200);
  });
  afterAll(async () => {
    server.close();
    await service?.stop();
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
  });

  /** Starts it with rules. @returns what ends it, and waits for it */
  async function start(rules: object, options: readonly string[]): Promise<() => Promise<void>> {
    const file = join(folder, 'rules.yml');
    // JSON is YAML.
    await writeFile(file, JSON.stringify({ groups: [rules] }));
    const child = spawn(
      'vmalert',
      [
        `-rule=${file}`,
        `-datasource.url=${service.url}`,
        `-datasource.bearerToken=${token}`,
        `-notifier.url=${receiver}`,
        `-remoteWrite.url=${receiver}`,
        `-httpListenAddr=127.0.0.1:${await freePort()}`,
        '-loggerLevel=ERROR',
        ...options,
      ],
      { stdio: 'ignore' },
    );
    const ended = once(child, 'exit');
    return async () => {
      child.kill();
      await ended;
    };
  }

  test('fires an alert, and records a series', async () => {
    const ended = await start(
      {
        name: 'payments',
        rules: [
          {
            alert: 'PaymentsFail',
            expr: `sum by (app, type) (increase(tidemark_events_total{type="${FAILED}"}[1h])) > 10`,
            labels: { severity: 'page' },
            annotations: { summary: '{{ $value }} of {{ $labels.type }}' },
          },
          { record: 'type:events:increase1h', expr: 'sum by (type) (increase(tidemark_events_total[1h]))' },
        ],
      },
      ['-evaluationInterval=1s'],
    );
    try {
      await until(() => alerts.length > 0, 'the alert fires', 60_000);
      await until(() => written.some(([series]) => series.includes('increase1h')), 'it is recorded', 60_000);
    } finally {
      await ended();
    }
    expect(alerts[0]).toMatchObject({
      labels: { alertname: 'PaymentsFail', app: service.app.appId, type: FAILED, severity: 'page' },
      annotations: { summary: `12 of ${FAILED}` },
    });
    const recorded = new Map(written.map(([series, , value]) => [series, value]));
    const increase = (type: string): string => JSON.stringify({ __name__: 'type:events:increase1h', type });
    expect([recorded.get(increase(FAILED)), recorded.get(increase('order placed'))]).toEqual([12, 3]);
  });

  test('records the past', async () => {
    written.length = 0;
    const ended = await start(
      {
        name: 'hours',
        rules: [
          {
            record: 'events:increase1h',
            expr: `sum(increase(tidemark_events_total{type="${FAILED}"}[1h]))`,
          },
        ],
      },
      [
        '-datasource.queryStep=1h',
        `-replay.timeFrom=${new Date(hour - 6 * HOUR).toISOString()}`,
        `-replay.timeTo=${new Date(hour - 3 * HOUR).toISOString()}`,
      ],
    );
    try {
      await until(() => written.length >= 4, 'the past is recorded', 60_000);
    } finally {
      await ended();
    }
    expect(written.map(([, at, value]) => [(at - hour) / HOUR, value])).toEqual([
      [-6, 0],
      [-5, 0],
      [-4, 11],
      [-3, 0],
    ]);
  });
});

/** The samples of a request of Prometheus' remote write: Snappy around messages of Protocol Buffers. */
function samplesOf(body: Buffer): Written[] {
  const length = new BinaryReader(body).uint32();
  const plain = new Uint8Array(length);
  snappyUncompress(body, plain);
  return fieldsOf(plain, (field, reader) => (field === 1 ? seriesOf(reader.bytes()) : null)).flat();
}

function seriesOf(message: Uint8Array): Written[] {
  const labels: [string, string][] = [];
  const samples: { value: number; at: number }[] = [];
  fieldsOf(message, (field, reader) => {
    if (field === 1) {
      const [name = '', value = ''] = fieldsOf(reader.bytes(), (_, label) => label.string());
      labels.push([name, value]);
    } else if (field === 2) {
      // A field of 0 is not sent.
      const sample = { value: 0, at: 0 };
      fieldsOf(reader.bytes(), (of, part) => {
        if (of === 1) sample.value = part.double();
        else sample.at = Number(part.int64());
        return true;
      });
      samples.push(sample);
    } else {
      return null;
    }
    return true;
  });
  const series = JSON.stringify(Object.fromEntries(labels.sort()));
  return samples.map(({ at, value }) => [series, at, value]);
}

/** What is read of the fields of a message; null skips one. */
function fieldsOf<T>(message: Uint8Array, read: (field: number, reader: BinaryReader) => T | null): T[] {
  const reader = new BinaryReader(message);
  const all: T[] = [];
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    const value = read(field, reader);
    if (value === null) reader.skip(wireType);
    else all.push(value);
  }
  return all;
}
