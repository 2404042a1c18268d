/** The part of Elasticsearch that shippers use, from its own client and by hand. */
import { Client, HttpConnection } from '@elastic/elasticsearch';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { HttpResponse } from '../../support/http-client.ts';
import { startTestService, type TestService, withTestService } from '../../support/service.ts';

const PREFIX = '/v1/elasticsearch';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    database: 'shared',
    config: { CREATE_LIMIT_PER_MINUTE: 0, NEW_TYPES_PER_MINUTE: 50 },
  });
  for (const name of ['single', 'typed', 'lined']) await service.newType(service.app, name);
});
afterAll(() => service.stop());

function request(
  method: string,
  path: string,
  body?: string | Buffer,
  headers: Readonly<Record<string, string | null>> = {},
): Promise<HttpResponse> {
  return service.request({
    method,
    path: `${PREFIX}${path}`,
    ...(body !== undefined && { body }),
    headers: {
      Authorization: `ApiKey ${service.app.loggingToken}`,
      ...(body !== undefined && { 'Content-Type': 'application/x-ndjson' }),
      ...headers,
    },
  });
}

const lines = (...values: readonly unknown[]): string =>
  values.map((value) => `${typeof value === 'string' ? value : JSON.stringify(value)}\n`).join('');

interface BulkItem {
  readonly _index: string;
  readonly _id?: string;
  readonly status: number;
  readonly result?: string;
  readonly error?: { readonly reason: string };
}

async function bulk(body: string, path = '/_bulk'): Promise<BulkItem[]> {
  const response = await request('POST', path, body);
  expect({ status: response.status, product: response.headers['x-elastic-product'] }).toEqual({
    status: 200,
    product: 'Elasticsearch',
  });
  const { errors, items } = JSON.parse(response.body) as {
    errors: boolean;
    items: Record<string, BulkItem>[];
  };
  const flat = items.flatMap((item) => Object.values(item));
  expect(errors).toBe(flat.some(({ error }) => error !== undefined));
  return flat;
}

async function stored(type: string): Promise<{ payload: string; time: Date }[]> {
  return await service.sql<{ payload: string; time: Date }[]>`
    SELECT event.payload::text AS payload, event.created_at AS time FROM events AS event
      JOIN event_types AS type ON type.id = event.type_id JOIN apps AS app ON app.id = event.app_id
     WHERE type.name = ${type} AND app.public_id = ${service.app.appId} ORDER BY event.created_at, event.id`;
}

test("Elasticsearch's client delivers with its bulk helper, and repeats nothing that is stored", async () => {
  const client = new Client({
    node: `${service.url}${PREFIX}`,
    auth: { apiKey: service.app.loggingToken },
    compression: true,
    // The default one takes no path.
    Connection: HttpConnection,
  });
  try {
    expect((await client.info()).version.number).toMatch(/^8\./);
    const documents = Array.from({ length: 500 }, (_, n) => ({
      n,
      '@timestamp': '2026-01-31T08:30:00.123Z',
    }));
    for (let round = 0; round < 2; round += 1) {
      const told = await client.helpers.bulk({
        datasource: documents,
        flushBytes: 5_000,
        onDocument: ({ n }) => ({ create: { _index: 'helper', _id: `d${n}` } }),
      });
      expect(told).toMatchObject({ total: 500, failed: 0, successful: 500 });
    }
    expect(await stored('helper')).toHaveLength(500);
  } finally {
    await client.close();
  }
});

test('a document is a payload in its own text, its index the type without the date of its period', async () => {
  const document = '{"@timestamp":"2026-01-31T08:30:00.123456Z","n":1e400, "n":-0}';
  const items = await bulk(
    lines({ index: { _index: 'logs-2026.01.31', _id: 'a' } }, document, '', { create: {} }, '{}'),
    '/logs/_bulk',
  );
  expect(items).toMatchObject([
    { _index: 'logs-2026.01.31', _id: 'a', status: 201, result: 'created' },
    { _index: 'logs', status: 201 },
  ]);
  const [old] = await stored('logs');
  expect({ ...old, time: old?.time.toISOString() }).toEqual({
    payload: document,
    time: '2026-01-31T08:30:00.123Z',
  });
});

test('a document that is sent again is not stored again, if it has an id and a time', async () => {
  const body = lines({ create: { _index: 'again', _id: '1' } }, { '@timestamp': 1_769_848_200_000 });
  expect(await bulk(body)).toMatchObject([{ status: 201, result: 'created' }]);
  expect(await bulk(body)).toMatchObject([{ status: 200, result: 'noop' }]);
  expect(await stored('again')).toHaveLength(1);
});

test('items that are not valid are refused by themselves', async () => {
  const items = await bulk(
    lines(
      ...[{ index: { _index: 'mixed' } }, '{"n":'],
      ...[{ index: { _index: 'mixed' } }, [1]],
      ...[{ index: {} }, {}],
      ...[{ index: { _index: 'x'.repeat(201) } }, {}],
      ...[{ index: { _index: 'mixed' } }, { '@timestamp': 'soon' }],
      ...[{ update: { _index: 'mixed', _id: '1' } }, { doc: {} }],
      { delete: { _index: 'mixed', _id: '1' } },
      ...[{ index: { _index: 'mixed' } }, { n: 1 }],
    ),
  );
  expect(items.map(({ status }) => status)).toEqual([400, 400, 400, 400, 400, 400, 400, 201]);
  expect(await stored('mixed')).toHaveLength(1);
});

test('a document of a clock that is ahead is stored once, however often it is sent', async () => {
  const body = lines({ create: { _index: 'ahead', _id: '1' } }, { '@timestamp': Date.now() + 120_000 });
  expect(await bulk(body)).toMatchObject([{ status: 201, result: 'created' }]);
  for (let repeat = 0; repeat < 2; repeat += 1)
    expect(await bulk(body)).toMatchObject([{ status: 200, result: 'noop' }]);
  expect(await stored('ahead')).toHaveLength(1);
});

test('an empty _id is none: the answer has the id of the event', async () => {
  const [item] = await bulk(lines({ create: { _index: 'no id', _id: '' } }, { n: 1 }));
  expect([item?._id, item?.status]).toEqual([expect.stringMatching(/^[\da-f]{8}-/), 201]);
});

test('indexes that are made by period, or rolled over, are one type', async () => {
  const periods = ['2026-01-31', '2026.01.31', '20260131', '2026013108', '2026-w05', '2026.05', '202601'];
  const more = ['2026-01-31.08', '2026.01.31-000001', '000001', '2026.01.31.08', '2026.53', '2026_w05'];
  const joined = ['2026_01_31', '2026_01_31_08', '2026_01', '20260131', '20260131-08', '2026-01-31T08'];
  const names = [
    ...[...periods, ...more].map((period) => `web-${period}`),
    ...joined.map((period) => `web_${period}`),
  ];
  await bulk(
    lines(...[...names, '.ds-web-2026.01.31-000001'].flatMap((_index) => [{ create: { _index } }, {}])),
  );
  expect(await stored('web')).toHaveLength(names.length + 1);
  for (const name of [
    'order-123456',
    'order-1234',
    'web-2026.13.45',
    'web_2026_54',
    'web2026_01_31',
    'web-v05',
  ]) {
    await bulk(lines({ create: { _index: name } }, {}));
    expect(await stored(name), name).toHaveLength(1);
  }
});

test('documents that all have keys are refused whole where one may be stored later', async () => {
  const many = Array.from({ length: 80 }, (_, n) => [
    { create: { _index: `keyed ${n}`, _id: String(n) } },
    { '@timestamp': 1_769_848_200_000 },
  ]).flat();
  const app = await service.newApp();
  const { status } = await service.request({
    method: 'POST',
    path: `${PREFIX}/_bulk`,
    body: lines(...many),
    headers: { Authorization: `ApiKey ${app.loggingToken}`, 'Content-Type': 'application/x-ndjson' },
  });
  expect(status).toBe(429);
  expect(await stored('keyed 0')).toHaveLength(0);
});

test('what may be stored later has the status that clients repeat', async () => {
  const many = Array.from({ length: 80 }, (_, n) => [{ index: { _index: `type ${n}` } }, {}]).flat();
  const statuses = new Set((await bulk(lines(...many))).map(({ status }) => status));
  expect([...statuses].sort()).toEqual([201, 429]);
});

test('a request that may be repeated is refused in plain text, because rsyslog drops what is refused in JSON', async () => {
  await withTestService({ database: 'shared', config: { CREATE_LIMIT_PER_MINUTE: 1 } }, async (limited) => {
    const send = (): Promise<HttpResponse> =>
      limited.request({
        method: 'POST',
        path: `${PREFIX}/_bulk`,
        body: lines({ index: { _index: 'limited' } }, {}),
        headers: {
          Authorization: `ApiKey ${limited.app.loggingToken}`,
          'Content-Type': 'application/x-ndjson',
        },
      });
    expect((await send()).status).toBe(200);
    const { status, headers, body } = await send();
    expect({ status, type: headers['content-type'], body }).toEqual({
      status: 429,
      type: 'text/plain',
      body: expect.stringMatching(/^Not stored yet: /),
    });
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });
});

test.each([
  ['', 'no events'],
  ['{"index":{"_index":"a"}}', 'no document'],
  ['[]\n{}', 'action'],
  ['{"put":{}}\n{}', 'action'],
  ['{"index":1}\n{}', 'action'],
  ['not JSON\n{}', 'action'],
])('the body %j is refused whole', async (body, reason) => {
  const response = await request('POST', '/_bulk', body);
  expect(response.status).toBe(400);
  expect(JSON.parse(response.body)).toEqual({
    error: { type: 'document_parsing_exception', reason: expect.stringContaining(reason) },
    status: 400,
  });
});

test.each([
  ['GET', ''],
  ['GET', '/'],
  ['HEAD', '/'],
  ['GET', '/_license'],
  ['GET', '/_xpack'],
  ['GET', '/_cluster/health'],
  ['HEAD', '/_index_template/filebeat-8.11.0'],
  ['PUT', '/_index_template/filebeat-8.11.0'],
  ['GET', '/_ilm/policy/filebeat'],
  ['HEAD', '/my-index'],
])('%s %s of a handshake is answered, with the token alone', async (method, path) => {
  const body = method === 'PUT' ? '{}' : undefined;
  const { status, headers } = await request(method, path, body);
  expect({ status, product: headers['x-elastic-product'] }).toEqual({
    status: 200,
    product: 'Elasticsearch',
  });
  expect((await request(method, path, body, { Authorization: null })).status).toBe(401);
});

test.each([
  ['GET', '/_search', 404],
  ['POST', '/my-index/_search', 404],
  ['GET', '/_nodes', 404],
  ['PUT', '/_cluster/settings', 404],
  ['DELETE', '/my-index', 405],
  ['GET', '/my-index/_doc/1', 405],
])(
  'what is not offered is refused as Elasticsearch does, and says what is: %s %s',
  async (method, path, status) => {
    const response = await request(method, path, method === 'PUT' ? '{}' : undefined);
    expect([response.status, response.headers['x-elastic-product'], JSON.parse(response.body)]).toEqual([
      ...[status, 'Elasticsearch'],
      {
        error: { type: expect.stringMatching(/_exception$/), reason: expect.stringContaining('POST _bulk') },
        status,
      },
    ]);
  },
);

test('a refused token of a handshake has the form of Elasticsearch', async () => {
  const { status, headers, body } = await request('GET', '/', undefined, { Authorization: 'ApiKey no' });
  expect([status, headers['x-elastic-product'], JSON.parse(body).error.type]).toEqual([
    401,
    'Elasticsearch',
    'security_exception',
  ]);
});

test('one document a request is stored, by the client too; a repeat with an id stores nothing', async () => {
  const at = { '@timestamp': '2026-01-31T08:30:00.123Z' };
  for (const [method, path, status] of [
    ['POST', '/single/_doc', 201],
    ['PUT', '/single/_doc/a', 201],
    ['POST', '/single/_doc/a', 200],
    ['PUT', '/single/_create/b', 201],
    ['POST', '/single-2026.01.31/_create/c', 201],
    ['PUT', '/single/_create/d%2Fe%20%25', 201],
    ['PUT', '/single/_doc/d%2fe%20%25', 200],
  ] as const) {
    const response = await request(method, path, JSON.stringify({ ...at, path }));
    expect([path, response.status, JSON.parse(response.body)]).toMatchObject([
      path,
      status,
      { result: status === 201 ? 'created' : 'noop', _index: path.split('/')[1], _version: 1 },
    ]);
  }
  expect(await stored('single')).toHaveLength(5);
  const client = new Client({
    node: `${service.url}${PREFIX}`,
    auth: { apiKey: service.app.loggingToken },
    Connection: HttpConnection,
  });
  const told = await client.index({ index: 'single', id: 'd', document: at });
  expect(told).toMatchObject({ _id: 'd', result: 'created' });
  await expect(client.search({ index: 'single' })).rejects.toMatchObject({
    meta: { body: { error: { reason: expect.stringContaining('answers no searches') } } },
  });
  await client.close();
  for (const [body, reason] of [
    ['{', 'not valid JSON'],
    ['[]', 'JSON object'],
    ['{"@timestamp":"soon"}', '@timestamp'],
  ] as const) {
    const response = await request('POST', '/single/_doc', body);
    expect([response.status, JSON.parse(response.body)]).toMatchObject([
      400,
      { error: { type: 'document_parsing_exception', reason: expect.stringContaining(reason) }, status: 400 },
    ]);
  }
});

test('an action of which nobody knows what it stores ends the request; what was sent in other bytes is answered in UTF-8', async () => {
  const two = `${JSON.stringify({ index: { _index: 'one' }, create: { _index: 'other' } })}\n{}\n`;
  const refused = await request('POST', '/_bulk', two);
  expect([refused.status, JSON.parse(refused.body).error.reason]).toEqual([
    400,
    'Line 1: an action must be an object with one of index, create, update, delete.',
  ]);
  const broken = Buffer.from(`${JSON.stringify({ index: { _index: 'é', _id: 'ü' } })}\n{}\n`, 'latin1');
  const { items } = JSON.parse((await request('POST', '/_bulk', broken)).body);
  expect(items).toMatchObject([{ index: { _index: '\ufffd', _id: '\ufffd', status: 400 } }]);
});

test('a bulk may have a type in its path, a pipeline and other parameters', async () => {
  const body = lines({ index: {} }, { n: 1 });
  for (const path of [
    '/typed/doc/_bulk',
    '/typed/_bulk?pipeline=p&refresh=true',
    '/_bulk?pipeline=p&filter_path=a',
  ])
    await bulk(
      path.startsWith('/typed') ? body : lines({ index: { _index: 'typed', _type: 'doc' } }, {}),
      path,
    );
  expect(await stored('typed')).toHaveLength(3);
});

test('refused items and actions name their line, and a name that is no text is refused', async () => {
  const items = await bulk(
    lines(
      { index: { _index: 'lined' } },
      {},
      '',
      { index: { _index: 'lined' } },
      '{"a":',
      { index: { _index: {} } },
      {},
      {
        index: { _index: 'lined', _id: [] },
      },
      {},
    ),
  );
  expect(items.map(({ status, error }) => [status, error?.reason ?? ''])).toEqual([
    [201, ''],
    [400, 'Line 5: The document is not a JSON object.'],
    [400, expect.stringMatching(/^Line 7: The field "_index" must be/)],
    [400, expect.stringMatching(/^Line 9: The field "_id" must be/)],
  ]);
  const { body } = await request(
    'POST',
    '/_bulk',
    lines({ index: { _index: 'lined' } }, {}, { nothing: {} }, {}),
  );
  expect(JSON.parse(body).error.reason).toMatch(/^Line 3: an action must be/);
});

test('the token is an API key, alone or encoded, a bearer token, or a password', async () => {
  const { loggingToken } = service.app;
  const base64 = (text: string): string => Buffer.from(text).toString('base64');
  const good = [
    `ApiKey ${base64(`id:${loggingToken}`)}`,
    `Bearer ${loggingToken}`,
    `Basic ${base64(`elastic:${loggingToken}`)}`,
    `Basic ${base64(`${loggingToken}:`)}`,
  ];
  const body = lines({ index: { _index: 'tokens' } }, {});
  for (const Authorization of good)
    expect((await request('POST', '/_bulk', body, { Authorization })).status).toBe(200);
  for (const Authorization of [null, 'ApiKey no', `Basic ${base64('a:b')}`]) {
    const response = await request('PUT', '/_bulk', '{', { Authorization });
    expect({ status: response.status, type: JSON.parse(response.body).error.type }).toEqual({
      status: 401,
      type: 'security_exception',
    });
  }
});
