/**
 * The tools of docs/producers.md: those that no test can run here send what they send by their documentation, with address, path,
 * headers and format read from their configurations; and what the page says of each tool is what the tests do.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { HttpResponse } from '../support/http-client.ts';
import { sharedService, type TestService } from '../support/service.ts';
import { snippet } from '../support/snippets.ts';
import { ROOT, readPage, tableBelow } from './pages.ts';

const PAGE = readPage('docs/producers.md');

let service: TestService;
beforeAll(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
});

/** A configuration of the dashboard, for the service of the test. */
const configuration = (name: string): string =>
  snippet(name, { base: service.url, loggingToken: service.app.loggingToken });

/** One that only the page has, below this heading. */
function onPage(heading: string): string {
  const [, below = ''] = PAGE.split(`\n${heading}\n`);
  const text = /^```\w+\n([\s\S]*?)\n```$/m.exec(below)?.[1];
  if (text === undefined) throw new Error(`Nothing is below "${heading}".`);
  return text
    .replaceAll('https://events.example.com', service.url)
    .replaceAll('tdl_…', service.app.loggingToken);
}

const TIME = '2026-01-31T08:30:00.123Z';
const lines = (...records: readonly object[]): string =>
  records.map((record) => `${JSON.stringify(record)}\n`).join('');

interface Sent {
  /** The address, with the path. */
  readonly url: string;
  readonly method?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly isGzip: boolean;
}

async function send({ url, method = 'POST', headers, body, isGzip }: Sent): Promise<HttpResponse> {
  const { origin, pathname, search } = new URL(url);
  expect(origin).toBe(service.url);
  return await service.request({
    method,
    path: `${pathname}${search}`,
    body: isGzip ? gzipSync(body) : body,
    headers: { ...headers, ...(isGzip && { 'Content-Encoding': 'gzip' }) },
  });
}

/** Sends it, and again, as after a response that was lost. @returns the events of the type */
async function stored(type: string, sent: Sent): Promise<{ payload: unknown; time: string }[]> {
  for (let round = 0; round < 2; round += 1) {
    const response = await send(sent);
    expect({ status: response.status, body: response.body }).toEqual({
      status: 200,
      body: expect.not.stringContaining('"code":'),
    });
  }
  const rows = await service.sql<{ payload: unknown; time: Date }[]>`
    SELECT event.payload, event.created_at AS time FROM events AS event
      JOIN event_types AS type ON type.id = event.type_id JOIN apps ON apps.id = event.app_id
     WHERE type.name = ${type} AND apps.public_id = ${service.app.appId} ORDER BY event.payload::text`;
  return rows.map(({ payload, time }) => ({ payload, time: time.toISOString() }));
}

/** What a test reads of a configuration in YAML. */
type Yaml = Record<string, never>;

/** `Name value` of a header. */
function header(text: string): Record<string, string> {
  const [name = '', ...value] = text.split(/ +/);
  return { [name]: value.join(' ') };
}

test('Fluent Bit sends lines of events, as its filter makes them', async () => {
  const [output] = (parse(configuration('Fluent Bit')) as { pipeline: { outputs: Yaml[] } }).pipeline.outputs;
  const {
    name,
    host,
    port,
    tls,
    uri,
    format,
    json_date_key: dateKey,
    compress,
    header: token,
  } = output ?? {};
  expect({ name, format, tls }).toEqual({ name: 'http', format: 'json_lines', tls: 'off' });
  const event = {
    [String(dateKey)]: TIME,
    typeName: 'app.web',
    key: '1769848200-7-1',
    payload: { log: 'a line' },
  };
  const events = await stored('app.web', {
    url: `http://${host}:${port}${uri}`,
    // The type is that of the format.
    headers: { 'Content-Type': 'application/x-ndjson', ...header(String(token)) },
    body: lines(event),
    isGzip: compress === 'gzip',
  });
  expect(events).toEqual([{ payload: { log: 'a line' }, time: TIME }]);
});

test('Fluent Bit sends its records as they are', async () => {
  const text = onPage('### Records from Fluent Bit');
  const [, output = ''] = text.split('[OUTPUT]');
  const options = new Map(
    [...output.matchAll(/^ +(\w+) +(.+)$/gm)].map(([, name = '', value = '']) => [name.toLowerCase(), value]),
  );
  const record = { [options.get('json_date_key') ?? '']: TIME, log: 'a line' };
  const events = await stored('log', {
    url: `${service.url}${options.get('uri')}`,
    headers: { 'Content-Type': 'application/x-ndjson', ...header(options.get('header') ?? '') },
    body: lines(record),
    isGzip: options.get('compress') === 'gzip',
  });
  // Without a key each repetition is an event.
  expect(events).toEqual([record, record].map((payload) => ({ payload, time: TIME })));
});

test('Fluentd sends its records as lines', async () => {
  const text = onPage('### Records from Fluentd');
  const option = (name: string): string => new RegExp(`^ +${name} (.+)$`, 'm').exec(text)?.[1] ?? '';
  expect([option('@type'), option('time_type')]).toEqual(['http', 'unixtime_millis']);
  const record = { log: 'a line', [option('time_key')]: Date.parse(TIME) };
  const events = await stored('fluentd', {
    url: option('endpoint'),
    headers: {
      'Content-Type': option('content_type'),
      ...(JSON.parse(option('headers')) as Record<string, string>),
    },
    body: lines(record),
    isGzip: false,
  });
  expect(events).toEqual([record, record].map((payload) => ({ payload, time: TIME })));
});

function vector(text: string): Omit<Sent, 'body'> {
  const { sinks } = parse(text) as {
    sinks: Record<
      string,
      {
        readonly type: string;
        readonly uri: string;
        readonly method: string;
        readonly compression: string;
        readonly encoding: { readonly codec: string };
        readonly framing: { readonly method: string };
        readonly auth: { readonly strategy: string; readonly token: string };
        readonly request?: { readonly headers: Record<string, string> };
      }
    >;
  };
  const sink = sinks.tidemark;
  expect(sink).toMatchObject({
    ...{ type: 'http', method: 'post', encoding: { codec: 'json' }, auth: { strategy: 'bearer' } },
    framing: { method: 'newline_delimited' },
  });
  return {
    url: sink?.uri ?? '',
    // By default the type is that of the framing.
    headers: {
      'Content-Type': 'application/x-ndjson',
      ...sink?.request?.headers,
      Authorization: `Bearer ${sink?.auth.token}`,
    },
    isGzip: sink?.compression === 'gzip',
  };
}

test('Vector sends lines of events, as its transform makes them', async () => {
  const payload = { file: '/var/log/app/web.log', message: 'a line', timestamp: TIME };
  const event = {
    typeName: 'log line',
    createdAt: TIME,
    key: '0b9b4b8e-5b0f-4d3a-9a55-3a0a2f0f5a11',
    payload,
  };
  const events = await stored('log line', { ...vector(configuration('Vector')), body: lines(event) });
  expect(events).toEqual([{ payload, time: TIME }]);
});

test('Vector sends its events as they are', async () => {
  const record = { host: 'web-1', message: 'a line', timestamp: TIME };
  const text = onPage('### Records from Vector').replace('type=log&', 'type=vector&');
  const events = await stored('vector', { ...vector(text), body: lines(record) });
  expect(events).toEqual([record, record].map((payload) => ({ payload, time: TIME })));
});

test('Telegraf sends arrays of metrics', async () => {
  const text = configuration('Telegraf');
  const option = (name: string): string => new RegExp(`^ +${name} = "(.+)"$`, 'm').exec(text)?.[1] ?? '';
  expect(text).toMatch(/^\[\[inputs\.mem\]\]$/m);
  expect([option('data_format'), option('json_transformation'), option('json_timestamp_units')]).toEqual([
    ...['json', 'metrics', '1ms'],
  ]);
  const metric = {
    fields: { used_percent: 42.5 },
    name: 'mem',
    tags: { host: 'web-1' },
    timestamp: Date.parse(TIME),
  };
  const sent = {
    url: option('url'),
    method: option('method'),
    headers: { 'Content-Type': option('Content-Type'), Authorization: option('Authorization') },
    isGzip: option('content_encoding') === 'gzip',
  };
  await stored('mem', { ...sent, body: JSON.stringify([metric, metric]) });
  // The path of one metric gives the metric, and not an array.
  const events = await stored('mem', { ...sent, body: JSON.stringify(metric) });
  expect(events).toEqual(Array.from({ length: 6 }, () => ({ payload: metric, time: TIME })));
});

test('a collector of OpenTelemetry sends its records to the path of logs below its endpoint', async () => {
  const { exporters, service: of } = parse(configuration('OTel Collector')) as {
    exporters: { otlphttp: { endpoint: string; headers: Record<string, string> } };
    service: { pipelines: { logs: object } };
  };
  expect(of.pipelines.logs).toEqual({ receivers: ['otlp'], exporters: ['otlphttp'] });
  const record = {
    timeUnixNano: String(BigInt(Date.parse(TIME)) * 1_000_000n),
    eventName: 'collected',
    body: { stringValue: 'a line' },
    attributes: [{ key: 'log.record.uid', value: { stringValue: 'u1' } }],
  };
  const events = await stored('collected', {
    url: `${exporters.otlphttp.endpoint}/v1/logs`,
    headers: { 'Content-Type': 'application/json', ...exporters.otlphttp.headers },
    body: JSON.stringify({ resourceLogs: [{ scopeLogs: [{ logRecords: [record] }] }] }),
    isGzip: true,
  });
  expect(events.map(({ time }) => time)).toEqual([TIME]);
});

const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

test('Filebeat asks who is there, and sends documents with ids', async () => {
  const config = parse(configuration('Filebeat')) as {
    'output.elasticsearch': { hosts: string[]; username: string; password: string };
    processors: object[];
  };
  expect(config.processors).toEqual([{ add_id: null }]);
  const { hosts, username, password } = config['output.elasticsearch'];
  const [host = ''] = hosts;
  const headers = { Authorization: basic(username, password) };
  for (const path of ['', '/_license?human=false'])
    expect(
      (await send({ url: `${host}${path}`, method: 'GET', headers, body: '', isGzip: false })).status,
    ).toBe(200);
  const document = { '@timestamp': TIME, message: 'a line', agent: { type: 'filebeat' } };
  const events = await stored('filebeat-8.17.0', {
    url: `${host}/_bulk?filter_path=errors%2Citems.%2A.error%2Citems.%2A.status`,
    headers: { ...headers, 'Content-Type': 'application/x-ndjson' },
    body: lines({ create: { _index: 'filebeat-8.17.0', _id: 'i1' } }, document),
    isGzip: true,
  });
  expect(events).toEqual([{ payload: document, time: TIME }]);
});

test('Logstash asks who is there, and sends documents with ids', async () => {
  const text = configuration('Logstash');
  const option = (name: string): string =>
    new RegExp(`^ +${name} => (?:\\["(.+)"\\]|"(.+)"|(.+))$`, 'm').exec(text)?.slice(1).find(Boolean) ?? '';
  const url = `${option('hosts')}${option('path')}`;
  const headers = { Authorization: basic(option('user'), option('password')) };
  for (const [method, path] of [
    ['HEAD', '/'],
    ['GET', '/'],
    ['GET', '/_license'],
  ] as const) {
    const { status } = await service.request({ method, path: `${new URL(url).pathname}${path}`, headers });
    expect(status).toBe(200);
  }
  expect([option('data_stream'), option('manage_template'), option('document_id')]).toEqual([
    ...['false', 'false', '%{[@metadata][id]}'],
  ]);
  const document = { '@timestamp': TIME, '@version': '1', message: 'a line' };
  const events = await stored(option('index'), {
    url: `${url}/_bulk?filter_path=errors,items.*.error,items.*.status`,
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: lines({ [option('action')]: { _index: option('index'), _id: 'i1' } }, document),
    isGzip: true,
  });
  expect(events).toEqual([{ payload: document, time: TIME }]);
});

/** What a test that runs a tool has in it. */
const RUN: Readonly<Record<string, RegExp>> = {
  curl: /\bcurl\b|'bash'/,
  Node: /EventLogger|process\.execPath/,
  Python: /python3|'bash'/,
  rsyslog: /RSYSLOGD/,
  'syslog-ng': /SYSLOG_NG\b/,
  'CloudEvents SDK': /from 'cloudevents'|cloudevents\/spec/,
  'OpenTelemetry SDK': /@opentelemetry/,
  pino: /pino-opentelemetry-transport/,
  'winston, bunyan, log4js': /'winston'[\s\S]*'bunyan'[\s\S]*'log4js'/,
  'Python logging': /'Python logging'/,
  collectd: /COLLECTD/,
  Segment: /@segment/,
  'Elasticsearch client': /@elastic/,
  'Web pages': /launchBrowser/,
};
const BY_DOCUMENTATION: Readonly<Record<string, RegExp>> = {
  'Fluent Bit': /test\('Fluent Bit /,
  Fluentd: /test\('Fluentd /,
  Vector: /test\('Vector /,
  Telegraf: /test\('Telegraf /,
  'OpenTelemetry Collector': /test\('a collector of OpenTelemetry /,
  Filebeat: /test\('Filebeat /,
  Logstash: /test\('Logstash /,
  'Umami, Plausible': /Umami[\s\S]*Plausible/,
};

test('what the page says of each tool is what the tests do', () => {
  const rows = tableBelow(PAGE, '## Send events from …');
  expect(rows.map(([tool]) => tool).sort()).toEqual(
    [...Object.keys(RUN), ...Object.keys(BY_DOCUMENTATION)].sort(),
  );
  for (const [tool = '', , shown = ''] of rows) {
    const isRun = tool in RUN;
    expect(shown, tool).toMatch(isRun ? /^run\b/ : /^by documentation: /);
    const links = [...shown.matchAll(/\]\(\.\.\/([^)]+)\)/g)].map(([, path = '']) => path);
    expect(links.length, tool).toBeGreaterThan(0);
    for (const path of links)
      expect(readFileSync(join(ROOT, path), 'utf8'), `${tool}: ${path}`).toMatch(
        (isRun ? RUN[tool] : BY_DOCUMENTATION[tool]) ?? /^never$/,
      );
  }
});
