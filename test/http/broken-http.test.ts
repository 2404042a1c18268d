/** What is not HTTP as it should be: refused, answered with the contract's body where the transport lets us, closed. */
import { beforeAll, describe, expect, test } from 'vitest';
import { storedIds } from '../support/batch.ts';
import { HttpConnection, type HttpResponse } from '../support/http-client.ts';
import { CREATE_EVENT, sharedService, type TestService } from '../support/service.ts';
import { created, refused } from './answers.ts';

let service: TestService;
const exchange = async (bytes: string): Promise<HttpResponse> => {
  const connection = await HttpConnection.open(service.port);
  await connection.write(bytes);
  const response = await connection.response();
  await connection.ended();
  return response;
};
const post = (lines: string, body: string): string =>
  `POST ${CREATE_EVENT} HTTP/1.1\r\nHost: x\r\n${lines}\r\n${body}`;

/** Broken requests, by what is wrong with them. */
const BROKEN: readonly (readonly [string, (body: string) => string])[] = [
  ['no HTTP at all', () => 'hello\r\n\r\n'],
  ['a TLS hello', () => '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'],
  ['no Host', (body) => `POST ${CREATE_EVENT} HTTP/1.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`],
  ['a header without a colon', (body) => post(`Bad header\r\nContent-Length: ${body.length}\r\n`, body)],
  ['a space before the colon', (body) => post(`Content-Length : ${body.length}\r\n`, body)],
  ['a Content-Length that is no number', (body) => post('Content-Length: abc\r\n', body)],
  ['a negative Content-Length', (body) => post('Content-Length: -1\r\n', body)],
  [
    'two different Content-Lengths',
    (body) => post(`Content-Length: ${body.length}\r\nContent-Length: 5\r\n`, body),
  ],
  [
    'Content-Length with Transfer-Encoding',
    (body) =>
      post(
        `Content-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n`,
        `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
      ),
  ],
  ...['gzip, chunked', 'chunked, gzip', 'xchunked', 'identity'].map(
    (coding) =>
      [
        `the Transfer-Encoding "${coding}"`,
        (body: string) =>
          post(`Transfer-Encoding: ${coding}\r\n`, `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`),
      ] as const,
  ),
  [
    'a Transfer-Encoding behind an empty one',
    (body) =>
      post(`Transfer-Encoding:\r\nTransfer-Encoding: gzip\r\nContent-Length: ${body.length}\r\n`, body),
  ],
  ['a chunk size that is no number', () => post('Transfer-Encoding: chunked\r\n', 'zz\r\n{}\r\n0\r\n\r\n')],
];

/**
 * What the packaged uWebSockets.js does not refuse: of two lengths, and of two codings where the first is empty, it takes
 * the first; and where it finds no end of a head it waits for more, until the connection's idle time is over.
 */
const PASSED_BY_UWS = new Set([
  'two different Content-Lengths',
  'a Transfer-Encoding behind an empty one',
  'no HTTP at all',
  'a header without a colon',
  'a space before the colon',
]);

/** Requests whose end someone in front may see elsewhere. Their bodies are good chunks, as a transport may take them. */
const UNFRAMED: readonly (readonly [string, (chunks: string) => string])[] = [
  ...['gzip', 'gzip, chunked', 'chunked, gzip', 'xchunked', ', chunked', 'identity', 'chunked, chunked'].map(
    (coding) =>
      [
        `POST with Transfer-Encoding: ${coding}`,
        (chunks: string) => post(`Transfer-Encoding: ${coding}\r\n`, chunks),
      ] as const,
  ),
  [
    'POST with two Transfer-Encodings',
    (chunks) => post('Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n', chunks),
  ],
  [
    'GET with Transfer-Encoding: gzip',
    (chunks) => `GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n${chunks}`,
  ],
  [
    'GET of nothing with Transfer-Encoding: gzip',
    (chunks) => `GET /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n${chunks}`,
  ],
  [
    'DELETE with Transfer-Encoding: gzip',
    (chunks) => `DELETE /api/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n${chunks}`,
  ],
];

describe.each(['uws', 'node'] as const)('security 18: over %s,', (transport) => {
  beforeAll(async () => {
    service = await sharedService({ transport });
  });

  const chunked = (body: string): string => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const stored = async (): Promise<number> => (await storedIds(service)).length;

  test.each(UNFRAMED)('of a %s and what follows in the same packet nothing is executed', async (_, make) => {
    const body = service.body('{"smuggled":1}');
    const next = post(`Content-Length: ${body.length}\r\n`, body);
    const connection = await HttpConnection.open(service.port);
    await connection.write(make(chunked(body)) + next + next);
    // Closed with a refusal or without a word, but never with the answer to what followed.
    const received = await connection.ended();
    expect(received).toMatch(/^(HTTP\/1\.1 400 |$)/);
    expect(received.match(/HTTP\/1\.1 (?!400)/)).toBeNull();
    expect(await stored()).toBe(0);
  });

  test.each(UNFRAMED)('a %s alone is refused with 400 and closed', async (_, make) => {
    const connection = await HttpConnection.open(service.port);
    await connection.write(make(chunked(service.body('{"smuggled":1}'))));
    expect(await connection.ended()).toMatch(/^HTTP\/1\.1 400 /);
    expect(await stored()).toBe(0);
  });
});

describe('over node,', () => {
  beforeAll(async () => {
    service = await sharedService({ transport: 'node' });
  });

  test.each(BROKEN)(
    'security 18: a request with %s is refused with 400 and closed, and stores nothing',
    async (_, make) => {
      const response = await exchange(make(service.body('{"smuggled":1}')));
      refused(response, 400, 'INVALID_REQUEST', 'Invalid request parameters');
      const rows = await storedIds(service);
      expect(rows.length).toBe(0);
    },
  );

  test('a head of more than 16 KiB is refused with 431 and closed', async () => {
    const response = await exchange(`GET /livez HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`);
    refused(response, 431, 'INVALID_REQUEST', 'Invalid request parameters');
  });

  test('pipelined requests get their responses in order', async () => {
    const connection = await HttpConnection.open(service.port);
    const body = service.body('{}');
    await connection.write(
      post(`Content-Length: ${body.length}\r\n`, body) +
        'GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /nope HTTP/1.1\r\nHost: x\r\n\r\n',
    );
    created(await connection.response());
    expect((await connection.response()).status).toBe(200);
    expect((await connection.response()).status).toBe(404);
    connection.destroy();
    await service.sql`TRUNCATE events`;
  });

  test('garbage after a valid request does not turn its response into a refusal', async () => {
    const connection = await HttpConnection.open(service.port);
    const body = service.body('{}');
    await connection.write(`${post(`Content-Length: ${body.length}\r\n`, body)}garbage\r\n\r\n`);
    created(await connection.response());
    refused(await connection.response(), 400, 'INVALID_REQUEST', 'Invalid request parameters');
    await connection.ended();
    await service.sql`TRUNCATE events`;
  });
});

describe('over uws,', () => {
  beforeAll(async () => {
    service = await sharedService({ transport: 'uws' });
  });

  test.each(BROKEN.filter(([what]) => !PASSED_BY_UWS.has(what)))(
    'security 18: a request with %s is refused and closed, and stores nothing',
    async (_, make) => {
      const connection = await HttpConnection.open(service.port);
      await connection.write(make(service.body('{"smuggled":1}')));
      expect(await connection.ended()).toMatch(/^HTTP\/1\.1 (400|505) /);
      expect((await storedIds(service)).length).toBe(0);
    },
  );

  // docs/deployment.md says which proxies refuse them.
  test.each(['two different Content-Lengths', 'a Transfer-Encoding behind an empty one'])(
    'a request with %s is taken by its first one, which the documentation says',
    async (what) => {
      const make = BROKEN.find(([name]) => name === what)?.[1];
      const connection = await HttpConnection.open(service.port);
      await connection.write(make?.(service.body('{}')) ?? '');
      created(await connection.response());
      connection.destroy();
      await service.sql`TRUNCATE events`;
    },
  );
});
