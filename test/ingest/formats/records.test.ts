/** Any JSON objects as events: what shippers send, and what they are answered. */
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import { storedIds } from '../../support/batch.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { startTestService, type TestService, withTestService } from '../../support/service.ts';

const LINES = { 'Content-Type': 'application/x-ndjson' };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    database: 'shared',
    config: { CREATE_LIMIT_PER_MINUTE: 0, MAX_BATCH_BYTES: 200_000, MAX_BODY_BYTES: 50_000 },
  });
});
afterAll(() => service.stop());

interface Counts {
  readonly success: boolean;
  readonly stored: number;
  readonly refused: number;
  readonly errors: readonly { readonly index: number; readonly details: string; readonly code: string }[];
}

function post(
  query: string,
  body: string | Buffer,
  headers: Readonly<Record<string, string | null>> = {},
): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: `/v1/records?${query}`,
    body,
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, ...headers },
  });
}

async function counts(response: Promise<HttpResponse>): Promise<Counts> {
  const { status, body } = await response;
  expect({ status, body }).toMatchObject({ status: 200 });
  return JSON.parse(body);
}

/** Payloads of a type, as text, in the order of their storage. */
async function payloads(type: string): Promise<string[]> {
  const rows = await service.sql<{ payload: string }[]>`
    SELECT event.payload::text AS payload FROM events AS event JOIN event_types AS type ON type.id = event.type_id
      JOIN apps AS app ON app.id = event.app_id WHERE type.name = ${type} AND app.public_id = ${service.app.appId} ORDER BY event.created_at, event.id`;
  return rows.map(({ payload }) => payload);
}

async function times(type: string): Promise<string[]> {
  const rows = await service.sql<{ time: Date }[]>`
    SELECT event.created_at AS time FROM events AS event JOIN event_types AS type ON type.id = event.type_id
      JOIN apps AS app ON app.id = event.app_id WHERE type.name = ${type} AND app.public_id = ${service.app.appId} ORDER BY event.created_at, event.id`;
  return rows.map(({ time }) => time.toISOString());
}

test('a record of a clock that is ahead is stored once, however often it is sent', async () => {
  const body = JSON.stringify({ t: Date.now() + 120_000, k: '1' });
  for (let repeat = 0; repeat < 3; repeat += 1)
    await counts(post('type=ahead&timeField=t&keyField=k', body, LINES));
  expect(await payloads('ahead')).toEqual([body]);
});

test('each record is a payload, in its own text, whatever form the body has', async () => {
  const records = ['{"n": 1e400, "n":-0}', '{ "é":"\\u0000" }', '{}'];
  const [a = '', b = '', c = ''] = records;
  const forms: [string, Record<string, string>][] = [
    [`[${records.join(' ,\n')}]`, {}],
    [`${a}\n${b}\r\n\n${c}\n`, LINES],
    [`${a}${b}  ${c}`, { 'Content-Type': 'application/json' }],
    [`${a}\n${b}\n${c}`, { 'Content-Type': 'text/plain' }],
  ];
  for (const [index, [body, headers]] of forms.entries()) {
    const type = `form ${index}`;
    expect(await counts(post(`type=${encodeURIComponent(type)}`, body, headers))).toEqual({
      success: true,
      stored: 3,
      refused: 0,
      errors: [],
    });
    expect((await payloads(type)).sort()).toEqual([...records].sort());
  }
});

test('the type comes from a field, which may be dotted, or else from the request', async () => {
  const body = [
    { kind: 'from a field' },
    { kind: null, n: 1 },
    { n: 2 },
    { kind: 30 },
    { kind: { a: 1 } },
    { kind: 'x'.repeat(201) },
  ]
    .map((record) => JSON.stringify(record))
    .join('\n');
  const { stored, refused: count, errors } = await counts(post('typeField=kind&type=fallback', body));
  expect({ stored, count, at: errors.map(({ index }) => index) }).toEqual({
    stored: 4,
    count: 2,
    at: [4, 5],
  });
  expect(await payloads('fallback')).toHaveLength(2);
  expect(await payloads('30')).toEqual(['{"kind":30}']);

  const nested = '[{"a":{"b.c":"deep"}},{"a":{"b":{"c":"deep"}}},{"a.b.c":"deep"},{"a":{"b":"c"}}]';
  const second = await counts(post('typeField=a.b.c', nested));
  expect(second.errors).toEqual([
    expect.objectContaining({
      index: 3,
      details: 'The field "a.b.c" is missing, and the request has no type.',
    }),
  ]);
  expect(await payloads('deep')).toHaveLength(3);
});

test('times are read as RFC 3339 or as Unix time in any of its units; a time to come is now', async () => {
  const at = '2026-01-31T08:30:00.123Z';
  const ms = Date.parse(at);
  const values = [
    ...[`"${at}"`, '"2026-01-31T09:30:00.123999+01:00"', `${ms / 1_000}`, `"${ms / 1_000}"`],
    ...[`${ms}`, `${ms}456`, `${ms}456789`, `"${ms}999999"`],
  ];
  const body = values.map((value) => `{"date":${value}}`).join('\n');
  expect(await counts(post('type=timed&timeField=date', body))).toMatchObject({ stored: values.length });
  expect(new Set(await times('timed'))).toEqual(new Set([at]));

  const before = Date.now();
  const later = `{"date":${before + 3_600_000}}{"date":null}{"other":1}{"date":""}`;
  expect(await counts(post('type=late&timeField=date', later))).toMatchObject({ stored: 4 });
  for (const time of await times('late')) expect(Math.abs(Date.parse(time) - before)).toBeLessThan(30_000);

  const wrong = ['"soon"', '-1', '{}', '1e30', '"1969-01-01T00:00:00Z"', 'true', '123456789012345678901'];
  const bad = await counts(
    post('type=timed&timeField=date', wrong.map((time) => `{"date":${time}}`).join('')),
  );
  expect(bad).toMatchObject({ stored: 0, refused: wrong.length });
});

test('a bad record does not affect its neighbors, and is counted', async () => {
  const body = '{"n":1}\n{"n":\n[1]\n"text"\n{"n":2}\n{"n":3} x\n';
  const result = await counts(post('type=neighbors', body, LINES));
  expect(result).toMatchObject({ success: false, stored: 2, refused: 4 });
  expect(result.errors.map(({ index }) => index)).toEqual([1, 2, 3, 5]);
  expect(await payloads('neighbors')).toEqual(['{"n":1}', '{"n":2}']);
  const large = `{"n":1}\n{"x":"${'x'.repeat(50_000)}"}\n`;
  expect((await counts(post('type=large', large, LINES))).errors).toMatchObject([
    { index: 1, code: 'PAYLOAD_TOO_LARGE' },
  ]);
  const deep = `${'{"a":'.repeat(1_001)}1${'}'.repeat(1_001)}`;
  expect(await counts(post('type=deep', deep))).toMatchObject({ stored: 0, refused: 1 });
  const { body: metrics } = await service.request({ path: '/metrics' });
  expect(metrics).toMatch(
    /tidemark_events_refused_total\{.*route="\/v1\/records",code="INVALID_REQUEST"\} \d/,
  );
  expect(metrics).toMatch(/route="\/v1\/records",code="PAYLOAD_TOO_LARGE"\} 1/);
});

describe('a whole request is refused', () => {
  test.each([
    ['', '{}', 'type and typeField'],
    ['type=', '{}', 'type and typeField'],
    ['type=a&type=b', '{}', 'more than once'],
    [`type=${'x'.repeat(201)}`, '{}', '200 characters'],
    ['type=a&keyField=id', '{}', 'timeField'],
    [`type=a&timeField=${'a.'.repeat(12)}a`, '{}', '10 dots'],
  ])('with 400 for the query %j', async (query, body, details) => {
    const answer = refused(await post(query, body), 400, 'INVALID_REQUEST', 'Invalid request parameters');
    expect(answer.details).toContain(details);
  });

  test.each([[''], [' \n'], ['[{}'], ['[{}]x'], ['[{},]'], ['\ufeff']])(
    'with 400 for the body %j',
    async (body) => {
      refused(await post('type=a', body), 400, 'INVALID_REQUEST', 'Invalid request body');
    },
  );

  test('with 401 without a token, before its body is looked at', async () => {
    for (const Authorization of [null, 'Bearer no', 'Basic eDp5']) {
      const response = await post('type=a', gzipSync('{'), { Authorization, 'Content-Encoding': 'gzip' });
      refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
      expect(response.headers['www-authenticate']).toBe('Bearer');
    }
  });
});

test('what may be stored later is 429 for the whole request, and nothing of it is stored', async () => {
  const config = { CREATE_LIMIT_PER_MINUTE: 0, NEW_TYPES_PER_MINUTE: 5 };
  await withTestService({ database: 'shared', config }, async (own) => {
    const send = (names: readonly string[]): Promise<HttpResponse> =>
      own.request({
        method: 'POST',
        path: '/v1/records?typeField=t',
        body: names.map((t) => JSON.stringify({ t })).join('\n'),
        headers: { Authorization: `Bearer ${own.app.loggingToken}` },
      });
    const many = await send(Array.from({ length: 9 }, (_, n) => `type ${n}`));
    refused(many, 429, 'RATE_LIMIT_EXCEEDED', 'Rate limit exceeded');
    expect(Number(many.headers['retry-after'])).toBeGreaterThan(0);
    expect(await storedIds(own)).toHaveLength(0);
    // A record that can never be stored does not hold up its neighbors.
    const { status, body } = await send(['type 0', 'x'.repeat(201), 'type 0']);
    expect({ status, ...JSON.parse(body) }).toMatchObject({ status: 200, stored: 2, refused: 1 });
  });
});

describe('an encoding', () => {
  const body = '{"n":1}\n'.repeat(20);
  test.each([
    ['gzip', gzipSync(body)],
    ['deflate', deflateSync(body)],
    ['deflate', deflateRawSync(body)],
    ['br', brotliCompressSync(body)],
  ])('%s is understood; cut off, or with data after its end, it is refused', async (encoding, bytes) => {
    const headers = { 'Content-Encoding': encoding };
    expect(await counts(post('type=encoded', bytes, headers))).toMatchObject({ stored: 20 });
    for (const broken of [bytes.subarray(0, -3), Buffer.concat([bytes, Buffer.from('x')]), Buffer.alloc(0)])
      refused(await post('type=encoded', broken, headers), 400, 'INVALID_REQUEST', 'Invalid request body');
    refused(
      await post('type=encoded', encodedBomb(encoding), headers),
      413,
      'PAYLOAD_TOO_LARGE',
      'Payload too large',
    );
  });

  test('that nobody knows is refused with the names of those that are', async () => {
    const response = await post('type=a', body, { 'Content-Encoding': 'compress' });
    expect(refused(response, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding').details).toContain(
      'gzip, deflate, br',
    );
  });
});

function encodedBomb(encoding: string): Buffer {
  const zeros = Buffer.alloc(20_000_000, ' ');
  if (encoding === 'br') return brotliCompressSync(zeros);
  return encoding === 'gzip' ? gzipSync(zeros) : deflateSync(zeros);
}
