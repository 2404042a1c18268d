/** Log records of OpenTelemetry, from its own exporters and as hostile bytes. */
import { BinaryReader, BinaryWriter } from '@bufbuild/protobuf/wire';
import { type LogRecord, SeverityNumber } from '@opentelemetry/api-logs';
import { OTLPLogExporter as JsonExporter } from '@opentelemetry/exporter-logs-otlp-http';
import { OTLPLogExporter as ProtobufExporter } from '@opentelemetry/exporter-logs-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { LoggerProvider, SimpleLogRecordProcessor } from '@opentelemetry/sdk-logs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { logRecords as jsonRecords } from '../../../src/ingest/formats/otlp/json.ts';
import { runs, sized } from '../../support/fuzz.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';

const PATH = '/v1/otlp/v1/logs';
const PROTOBUF = 'application/x-protobuf';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 0, MAX_BODY_BYTES: 50_000 } });
});
afterAll(() => service.stop());

function post(
  body: string | Buffer | Uint8Array,
  type: string,
  headers: Record<string, string | null> = {},
  query = '',
): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: `${PATH}${query}`,
    body: Buffer.from(body as Uint8Array),
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, 'Content-Type': type, ...headers },
  });
}

async function stored(type: string) {
  return await service.sql<{ payload: Record<string, unknown>; time: Date; id: string }[]>`
    SELECT event.payload, event.created_at AS time, event.id FROM events AS event
      JOIN event_types AS type ON type.id = event.type_id WHERE type.name = ${type} ORDER BY event.created_at, event.id`;
}

const RECORD: LogRecord = {
  eventName: 'placeholder',
  timestamp: [1_769_848_200, 123_456_789],
  observedTimestamp: [1_769_848_201, 5],
  severityNumber: SeverityNumber.WARN2,
  severityText: 'warning',
  body: {
    text: 'a "quoted" é \u0001',
    list: [1, 2.5, true, 'x'],
    nested: { deep: new Uint8Array([1, 255]) },
  },
  attributes: { 'user.id': 42, big: -9007199254740991, ratio: 0.25, ok: false, tags: ['a', 'b'] },
};

describe.each([
  ['Protobuf', ProtobufExporter, 'none'],
  ['Protobuf', ProtobufExporter, 'gzip'],
  ['JSON', JsonExporter, 'none'],
  ['JSON', JsonExporter, 'gzip'],
] as const)('the exporter by %s', (name, Exporter, compression) => {
  test(`with compression ${compression} stores a record with all it has`, async () => {
    const eventName = `${name} ${compression}`;
    const exporter = new Exporter({
      url: `${service.url}${PATH}`,
      headers: { Authorization: `Bearer ${service.app.loggingToken}` },
      compression: compression as never,
    });
    const provider = new LoggerProvider({
      resource: resourceFromAttributes({ 'service.name': 'shop' }),
      processors: [new SimpleLogRecordProcessor({ exporter })],
    });
    provider.getLogger('a scope', '1.2.3').emit({ ...RECORD, eventName });
    await provider.shutdown();
    await until(async () => (await stored(eventName)).length === 1, 'the record is stored');
    const [row] = await stored(eventName);
    expect(row?.time.toISOString()).toBe('2026-01-31T08:30:00.123Z');
    const string = (value: string): object => ({ stringValue: value });
    expect(row?.payload).toMatchObject({
      timeUnixNano: '1769848200123456789',
      observedTimeUnixNano: '1769848201000000005',
      severityNumber: 14,
      severityText: 'warning',
      eventName,
      resource: { attributes: [{ key: 'service.name', value: string('shop') }] },
      scope: { name: 'a scope', version: '1.2.3' },
    });
    const { body, attributes } = (row?.payload ?? {}) as {
      body: { kvlistValue: { values: unknown[] } };
      attributes: { key: string; value: unknown }[];
    };
    expect(body.kvlistValue.values[0]).toEqual({ key: 'text', value: string('a "quoted" é \u0001') });
    expect(attributes.find(({ key }) => key === 'ratio')?.value).toEqual({ doubleValue: 0.25 });
    expect(attributes.find(({ key }) => key === 'tags')?.value).toEqual({
      arrayValue: { values: [string('a'), string('b')] },
    });
  });
});

/** A request of one resource and scope with these records. */
function request(...records: readonly Uint8Array[]): Uint8Array {
  const scopeLogs = new BinaryWriter();
  for (const record of records) scopeLogs.tag(2, 2).bytes(record);
  const resourceLogs = new BinaryWriter().tag(2, 2).bytes(scopeLogs.finish()).finish();
  return new BinaryWriter().tag(1, 2).bytes(resourceLogs).finish();
}

function logRecord(name: string, body?: Uint8Array): Uint8Array {
  const writer = new BinaryWriter().tag(12, 2).string(name);
  return (body === undefined ? writer : writer.tag(5, 2).bytes(body)).finish();
}

/** An AnyValue in so many arrays. */
function nestedValue(levels: number): Uint8Array {
  let value = new BinaryWriter().tag(1, 2).string('x').finish();
  for (let level = 0; level < levels; level += 1) {
    const array = new BinaryWriter().tag(1, 2).bytes(value).finish();
    value = new BinaryWriter().tag(5, 2).bytes(array).finish();
  }
  return value;
}

/** The fields of a message: its last value by number. */
function fields(bytes: Buffer): Map<number, number | Uint8Array> {
  const reader = new BinaryReader(bytes);
  const found = new Map<number, number | Uint8Array>();
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    found.set(field, type === 2 ? reader.bytes() : reader.uint32());
  }
  return found;
}

const bytesOf = ({ body }: HttpResponse): Buffer => Buffer.from(body, 'utf8');

test('the type is the event name, else an attribute, else the severity', async () => {
  const record = (fields: object): object => ({ resourceLogs: [{ scopeLogs: [{ logRecords: [fields] }] }] });
  const named = (key: string, value: string): object => ({
    attributes: [{ key, value: { stringValue: value } }],
  });
  const cases: [string, object, string][] = [
    ['by field', { eventName: 'by field', ...named('event.name', 'other') }, ''],
    ['by attribute', named('event.name', 'by attribute'), ''],
    ['by my attribute', named('kind', 'by my attribute'), '?typeAttribute=kind'],
    ['404', { attributes: [{ key: 'event.name', value: { intValue: '404' } }] }, ''],
    ['true', { attributes: [{ key: 'event.name', value: { boolValue: true } }] }, ''],
    ['ERROR', { severityNumber: 17, severityText: 'Err' }, ''],
    ['WARN', { severityNumber: 'SEVERITY_NUMBER_WARN2' }, ''],
    ['FATAL', { severity_number: 'SEVERITY_NUMBER_FATAL' }, ''],
    [
      'SEVERITY_NUMBER_HIGH',
      { severityNumber: 'SEVERITY_NUMBER_HIGH', severityText: 'SEVERITY_NUMBER_HIGH' },
      '',
    ],
    ['custom', { severityText: 'custom' }, ''],
    ['LOG', {}, ''],
  ];
  for (const [type, fields, query] of cases) {
    const { status, body } = await post(JSON.stringify(record(fields)), 'application/json', {}, query);
    expect({ status, body, count: (await stored(type)).length }).toEqual({
      status: 200,
      body: '{}',
      count: 1,
    });
  }
});

/** JSON of objects and arrays whose members come in any order, some of them twice. */
function objectText(members: readonly (readonly [string, string])[], space: string): string {
  return `{${space}${members.map(([name, json]) => `${JSON.stringify(name)}${space}:${json}`).join(`,${space}`)}}`;
}

const SPACE = fc.constantFrom('', ' ', '\n\t');
const OTHER = fc.constantFrom('null', '7', '"x"', '{"a":[{}]}', '[]', '[1]', '{}');

function anyObject(members: Readonly<Record<string, fc.Arbitrary<string>>>): fc.Arbitrary<string> {
  const member = fc.oneof(
    ...Object.entries(members).map(([name, json]) => fc.tuple(fc.constant(name), json)),
    fc.tuple(fc.constantFrom('other', 'resource\n', ''), OTHER),
  );
  return fc.tuple(fc.array(member, { maxLength: 4 }), SPACE).map(([all, space]) => objectText(all, space));
}

function anyArray(element: fc.Arbitrary<string>): fc.Arbitrary<string> {
  const elements = fc.array(fc.oneof({ arbitrary: element, weight: 8 }, OTHER), { maxLength: 3 });
  return fc.oneof(
    { arbitrary: fc.tuple(elements, SPACE).map(([all, space]) => `[${all.join(`${space},`)}]`), weight: 8 },
    OTHER,
  );
}

const REQUEST = anyObject({
  resourceLogs: anyArray(
    anyObject({
      resource: OTHER,
      schemaUrl: OTHER,
      scopeLogs: anyArray(
        anyObject({
          scope: OTHER,
          schemaUrl: OTHER,
          logRecords: anyArray(
            anyObject({
              eventName: fc.constantFrom('"a"', '"b \\u00e9"'),
              timeUnixNano: fc.constantFrom('"1769848200123456789"', '1769848200123456789', '"0"', '"x"'),
            }),
          ),
        }),
      ),
    }),
  ),
});

/** The same by JSON.parse. */
function recordsByParse(text: string): unknown[] {
  const array = (value: unknown): Record<string, unknown>[] =>
    Array.isArray(value) ? value.map((one) => (one ?? {}) as Record<string, unknown>) : [];
  const given = (value: unknown, name: string): object =>
    value === null || value === undefined ? {} : { [name]: value };
  return array(JSON.parse(text).resourceLogs).flatMap((resource) =>
    array(resource.scopeLogs).flatMap((scope) =>
      (Array.isArray(scope.logRecords) ? scope.logRecords : []).map((record: unknown) => {
        if (typeof record !== 'object' || record === null || Array.isArray(record)) return 'no object';
        const { eventName = '', timeUnixNano = 0 } = record as { eventName?: string; timeUnixNano?: string };
        const payload = {
          ...record,
          ...given(resource.resource, 'resource'),
          ...given(resource.schemaUrl, 'resourceSchemaUrl'),
          ...given(scope.scope, 'scope'),
          ...given(scope.schemaUrl, 'scopeSchemaUrl'),
        };
        if (timeUnixNano === 'x') return 'no time';
        return { eventName, time: Math.floor(Number(timeUnixNano) / 1e6), payload };
      }),
    ),
  );
}

function recordsByText(text: string, maxRecords = 1_000): unknown[] {
  const onRecord = (count: number): Rejection | null =>
    count > maxRecords ? new Rejection('invalidBody', 'too many') : null;
  return [...jsonRecords({ text, damage: null }, { wanted: new Set(), onRecord })].flatMap((one) => {
    if (one === undefined || typeof one === 'string') return one;
    if (one instanceof Rejection) return one.details.includes('JSON object') ? 'no object' : 'no time';
    if ('unread' in one) return [];
    // Nothing of it is read: the same as no records.
    if ('body' in one) return one.body.details === 'too many' ? 'too many' : [];
    const { record, origin } = one;
    const members = [record.members, origin].filter((text) => text !== '').join();
    return { eventName: record.eventName, time: record.time, payload: JSON.parse(`{${members}}`) };
  });
}

test('in JSON the members may come in any order, and of the same name the last one counts', () => {
  fc.assert(
    fc.property(REQUEST, (text) => {
      expect(recordsByText(text)).toEqual(recordsByParse(text));
    }),
    runs(sized(125, 500)),
  );
});

test('what is not JSON to its end, and more records than are read, end the records', () => {
  const whole = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{}]}]}]}';
  expect(recordsByText(whole)).toHaveLength(2);
  for (let end = 0; end < whole.length; end += 1)
    expect(recordsByText(whole.slice(0, end))).toEqual(['not JSON']);
  for (const text of [`${whole}x`, whole.replace('[{}', '[{},]'), whole.replace(':', ''), '[]', '7'])
    expect(recordsByText(text)).toEqual(['not JSON']);
  expect(recordsByText(whole, 1)).toEqual(['too many']);
  const long = `{"x":"${'y'.repeat(1_000_000)}",${whole.slice(1)}`;
  expect(recordsByText(long).slice(-2)).toHaveLength(2);
  expect(recordsByText(long)).toContain(undefined);
});

test('records that are not valid are told by partial success, and the others are stored', async () => {
  const records = [logRecord('partial'), logRecord('x'.repeat(201)), logRecord('partial', nestedValue(101))];
  const large = logRecord('partial', new BinaryWriter().tag(1, 2).string('x'.repeat(50_000)).finish());
  const response = await post(request(...records, large), PROTOBUF);
  expect({ status: response.status, type: response.headers['content-type'] }).toEqual({
    status: 200,
    type: PROTOBUF,
  });
  const partial = fields(Buffer.from(fields(bytesOf(response)).get(1) as Uint8Array));
  expect(partial.get(1)).toBe(3);
  expect(Buffer.from(partial.get(2) as Uint8Array).toString()).toContain('200 characters');
  expect(await stored('partial')).toHaveLength(1);

  const json = { resourceLogs: [{ scopeLogs: [{ logRecords: [7, { eventName: 'partial JSON' }] }] }] };
  const told = await post(JSON.stringify(json), 'application/json');
  expect(JSON.parse(told.body)).toEqual({
    partialSuccess: { rejectedLogRecords: '1', errorMessage: expect.stringContaining('JSON object') },
  });
});

test('an empty request is a success', async () => {
  for (const [body, type] of [
    ['', PROTOBUF],
    ['{}', 'application/json'],
    [request(), PROTOBUF],
  ] as const)
    expect((await post(body, type)).status).toBe(200);
});

test('refusals are a Status in the form of the request', async () => {
  const none = await post(request(logRecord('a')), PROTOBUF, { Authorization: null });
  expect({
    status: none.status,
    type: none.headers['content-type'],
    code: fields(bytesOf(none)).get(1),
  }).toEqual({
    status: 401,
    type: PROTOBUF,
    code: 16,
  });
  const broken = await post('{', 'application/json');
  expect({ status: broken.status, body: JSON.parse(broken.body) }).toEqual({
    status: 400,
    body: { code: 3, message: expect.any(String) },
  });
  expect((await post('x', 'text/plain')).status).toBe(415);
  for (const signal of ['traces', 'metrics']) {
    const { status, body } = await service.request({
      method: 'POST',
      path: `/v1/otlp/v1/${signal}`,
      body: '{}',
    });
    expect({ status, ...JSON.parse(body) }).toEqual({
      ...{ status: 404, code: 5 },
      message: expect.stringContaining('POST /v1/otlp/v1/logs'),
    });
  }
  for (const [method, path, code] of [
    ['POST', '/v1/otlp/v1development/profiles', 5],
    ['POST', '/v1/otlp', 5],
    ['GET', '/v1/otlp/v1/logs', 12],
  ] as const) {
    const headers = { 'Content-Type': PROTOBUF };
    const told = await service.request({ method, path, headers, ...(method === 'POST' && { body: 'x' }) });
    expect([path, told.headers['content-type'], told.body]).toEqual([
      ...[path, PROTOBUF],
      expect.stringContaining('POST /v1/otlp/v1/logs'),
    ]);
    expect(told.body.charCodeAt(1)).toBe(code);
  }
});

test('what repeats the text of a resource beyond the memory of bodies is refused', async () => {
  const attribute = (value: string): object => ({ key: 'a', value: { stringValue: value } });
  const resource = { attributes: [attribute('x'.repeat(20_000))] };
  const logRecords = Array.from({ length: 2_000 }, () => ({ eventName: 'repeated' }));
  const body = JSON.stringify({ resourceLogs: [{ resource, scopeLogs: [{ logRecords }] }] });
  expect((await post(body, 'application/json')).status).toBe(413);
  expect(await stored('repeated')).toHaveLength(0);
});

describe('hostile Protobuf is refused or skipped, at the cost of its bytes:', () => {
  const groups = Buffer.alloc(100_000, 0x0b);
  const unknown = Buffer.concat([
    Buffer.alloc(200_000, Buffer.from([0x78, 0x01])),
    request(logRecord('unknown')),
  ]);
  test.each<[string, Uint8Array, number]>([
    ['groups in groups', groups, 400],
    ['a length beyond the end', Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), 400],
    ['a length beyond what encloses it', Buffer.from([0x0a, 0x02, 0x12, 0x7f, ...Buffer.alloc(200)]), 400],
    ['a varint without end', Buffer.alloc(50, 0xff), 400],
    ['the field 0', Buffer.from([0x00, 0x00]), 400],
    ['many unknown fields', unknown, 200],
    ['values in values', request(logRecord('deep', nestedValue(3_000))), 200],
    ['text that is not UTF-8', request(Buffer.from([0x62, 0x02, 0xff, 0xfe])), 200],
    ['empty resources', Buffer.alloc(100_000, Buffer.from([0x0a, 0x00])), 200],
  ])('%s', async (_, body, status) => {
    expect((await post(body, PROTOBUF)).status).toBe(status);
  });

  test('any bytes, and messages with bytes changed', async () => {
    const good = Buffer.from(request(logRecord('fuzz', nestedValue(3)), logRecord('fuzz 2')));
    const changed = fc
      .array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 })
      .map((changes) => {
        const bytes = Buffer.from(good);
        for (const [at, byte] of changes) bytes[at] = byte;
        return bytes;
      });
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.uint8Array({ maxLength: 40 }), changed), async (bytes) => {
        expect([200, 400]).toContain((await post(bytes, PROTOBUF)).status);
      }),
      runs(sized(37, 150)),
    );
  });
});

describe('what is not of logs is told:', () => {
  const bytes = (...fields: readonly [number, number, string][]): Uint8Array => {
    const writer = new BinaryWriter();
    for (const [field, type, value] of fields) writer.tag(field, type).string(value);
    return writer.finish();
  };
  const metric = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    const line = /tidemark_events_refused_total\{[^}]*otlp[^}]*\} (\d+)/.exec(body);
    return Number(line?.[1] ?? 0);
  };

  test.each([
    ['spans', { resourceSpans: [{ scopeSpans: [{ spans: [{ name: 'x' }] }] }] }, 'resourceSpans'],
    ['a list of another product', { logs: [{ message: 'x' }] }, 'logs'],
    ['a record alone', { eventName: 'alone', body: { stringValue: 'x' } }, 'eventName'],
    ['no array', { resourceLogs: { scopeLogs: [] } }, 'must be an array'],
    ['no object', { resourceLogs: ['x'] }, 'must have objects'],
  ])('JSON with %s is refused', async (_, body, message) => {
    const { status, body: told } = await post(JSON.stringify(body), 'application/json');
    expect([status, JSON.parse(told)]).toEqual([400, { code: 3, message: expect.stringContaining(message) }]);
  });

  test('known names around unknown ones are told with no record rejected, and counted as a refusal', async () => {
    const before = await metric();
    const body = { resourceLogs: [{ resource: {}, instrumentationLibraryLogs: [{ logs: [{}] }] }] };
    const good = { scopeLogs: [{ logRecords: [{ eventName: 'beside unknown' }] }] };
    const { status, body: told } = await post(
      JSON.stringify({ resourceLogs: [...body.resourceLogs, good] }),
      'application/json',
    );
    expect([status, JSON.parse(told)]).toEqual([
      200,
      {
        partialSuccess: {
          rejectedLogRecords: '0',
          errorMessage: expect.stringContaining('instrumentationLibraryLogs'),
        },
      },
    ]);
    expect(await stored('beside unknown')).toHaveLength(1);
    expect(await metric()).toBe(before + 1);
  });

  test('a span or a metric in Protobuf is rejected, and another message is refused', async () => {
    for (const record of [bytes([1, 2, 'trace id'], [5, 2, 'name']), bytes([1, 2, 'metric'], [5, 2, ''])]) {
      const response = await post(request(record, logRecord('beside a span')), PROTOBUF);
      expect([response.status, response.body]).toEqual([200, expect.stringContaining('no LogRecord')]);
    }
    expect(await stored('beside a span')).toHaveLength(2);
    expect((await post(bytes([2, 2, 'x'], [9, 2, 'y']), PROTOBUF)).status).toBe(400);
    const other = new BinaryWriter()
      .tag(1, 2)
      .bytes(bytes([1, 2, ''], [1_000, 2, 'x']))
      .finish();
    const told = await post(other, PROTOBUF);
    expect([told.status, told.body]).toEqual([200, expect.stringContaining('no log records')]);
  });

  test('names of fields are read as the names of OTLP are', async () => {
    const record = { event_name: 'snake', time_unix_nano: '1769848200123456789', severity_number: 9 };
    const body = {
      resource_logs: [{ resource: { a: 1 }, schema_url: 'u', scope_logs: [{ log_records: [record] }] }],
    };
    expect((await post(JSON.stringify(body), 'application/json')).body).toBe('{}');
    const [row] = await stored('snake');
    expect(row?.time.toISOString()).toBe('2026-01-31T08:30:00.123Z');
    expect(row?.payload).toEqual({ ...record, resource: { a: 1 }, resourceSchemaUrl: 'u' });
  });

  test.each([
    ['"abc"'],
    ['-1'],
    ['"2026-01-01T00:00:00Z"'],
    ['176984820012345678901'],
    ['{"low":1,"high":2}'],
    ['[]'],
    ['1.5'],
    ['true'],
  ])('the time %s is refused alone, and never becomes now', async (time) => {
    const name = `time ${time}`;
    const at = (field: string): string => `{"eventName":${JSON.stringify(name)},"${field}":${time}}`;
    const body = `{"resourceLogs":[{"scopeLogs":[{"logRecords":[${at('timeUnixNano')},${at('observedTimeUnixNano')},{"eventName":${JSON.stringify(name)}}]}]}]}`;
    expect(JSON.parse((await post(body, 'application/json')).body)).toEqual({
      partialSuccess: { rejectedLogRecords: '2', errorMessage: expect.stringContaining('timeUnixNano') },
    });
    expect(await stored(name)).toHaveLength(1);
  });

  test.each([
    ['a number', { intValue: '7' }, [3, 0, '7']],
    ['a number that is a double', { doubleValue: 1.5 }, [4, 1, 1.5]],
    ['true', { bool_value: true }, [2, 0, '1']],
  ] as const)('a record whose uid is %s is stored once', async (what, value, [field, type, number]) => {
    const name = `uid is ${what}`;
    const key = 'log.record.uid';
    const fields = { eventName: name, timeUnixNano: '1769848200123456789', attributes: [{ key, value }] };
    const json = JSON.stringify({ resourceLogs: [{ scopeLogs: [{ logRecords: [fields] }] }] });
    const any = new BinaryWriter().tag(field, type);
    const held = (type === 1 ? any.double(number) : any.int64(number)).finish();
    const attribute = new BinaryWriter().tag(1, 2).string(key).tag(2, 2).bytes(held).finish();
    const record = new BinaryWriter().tag(1, 1).fixed64('1769848200123456789').tag(12, 2).string(name);
    const message = request(record.tag(6, 2).bytes(attribute).finish());
    for (let time = 0; time < 2; time += 1) {
      expect((await post(json, 'application/json')).body).toBe('{}');
      expect((await post(message, PROTOBUF)).status).toBe(200);
    }
    expect(await stored(name)).toHaveLength(1);
  });

  test.each([
    ['a list', { arrayValue: { values: [] } }],
    ['a number that has lost digits', { intValue: 2 ** 60 }],
  ])('a record whose uid is %s is refused', async (_, value) => {
    const record = { timeUnixNano: '1769848200123456789', attributes: [{ key: 'log.record.uid', value }] };
    const body = { resourceLogs: [{ scopeLogs: [{ logRecords: [record] }] }] };
    expect(JSON.parse((await post(JSON.stringify(body), 'application/json')).body)).toEqual({
      partialSuccess: { rejectedLogRecords: '1', errorMessage: expect.stringContaining('log.record.uid') },
    });
  });
});
