/**
 * HTTP/1.1 (RFC 9112) over raw sockets, by case: what each transport makes of it. Where one deviates, the table says so, and
 * a build that no longer does fails the test: then the deviation goes from here and from docs/deployment.md.
 */
import { beforeAll, describe, expect, test } from 'vitest';
import { storedIds } from '../support/batch.ts';
import { HttpConnection } from '../support/http-client.ts';
import { CREATE_EVENT, sharedService, type TestService } from '../support/service.ts';

/**
 * The statuses of the answers, and whether the connection can be used afterwards: `closed`, `open`, or `then` and what a good
 * request is answered, because something of the first was left over. `silence`: more is waited for.
 */
type Outcome = string;

interface Case {
  readonly what: string;
  readonly bytes: (body: string) => string;
  readonly expected: Outcome;
  /** What the packaged uWebSockets.js and node:http do instead. */
  readonly deviations?: { readonly uws?: Outcome; readonly node?: Outcome };
  readonly isHead?: boolean;
}

const LIVE = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n';
const size = (body: string): string => body.length.toString(16);
const post = (lines: string, body: string, target = CREATE_EVENT): string =>
  `POST ${target} HTTP/1.1\r\nHost: x\r\n${lines}\r\n${body}`;
const plain = (lines: string, target?: string) => (body: string) =>
  post(`${lines}Content-Length: ${body.length}\r\n`, body, target);
const chunked =
  (chunks: (body: string) => string, coding = 'chunked') =>
  (body: string) =>
    post(`Transfer-Encoding: ${coding}\r\n`, chunks(body));
const get =
  (lines: string, start = 'GET /livez HTTP/1.1') =>
  () =>
    `${start}\r\n${lines}\r\n`;

const CASES: readonly Case[] = [
  { what: 'a body of known length', bytes: plain(''), expected: '201 open' },
  {
    what: 'a length with leading zeros',
    bytes: (body) => post(`Content-Length: 000${body.length}\r\n`, body),
    expected: '201 open',
  },
  {
    what: 'a length with a sign',
    bytes: (body) => post(`Content-Length: +${body.length}\r\n`, body),
    expected: '400 closed',
  },
  {
    what: 'a length twice in one line',
    bytes: (body) => post(`Content-Length: ${body.length}, ${body.length}\r\n`, body),
    expected: '400 closed',
  },
  {
    what: 'a chunked body',
    bytes: chunked((body) => `${size(body)}\r\n${body}\r\n0\r\n\r\n`),
    expected: '201 open',
  },
  {
    what: 'a coding in capitals',
    bytes: chunked((body) => `${size(body)}\r\n${body}\r\n0\r\n\r\n`, 'Chunked'),
    expected: '201 open',
  },
  {
    what: 'many chunks',
    bytes: chunked((body) => `${[...body].map((byte) => `1\r\n${byte}\r\n`).join('')}0\r\n\r\n`),
    expected: '201 open',
  },
  {
    what: 'chunk sizes in capitals, with leading zeros',
    bytes: chunked((body) => `000${size(body).toUpperCase()}\r\n${body}\r\n000\r\n\r\n`),
    expected: '201 open',
  },
  {
    what: 'a chunk extension',
    bytes: chunked((body) => `${size(body)};name=value\r\n${body}\r\n0\r\n\r\n`),
    expected: '201 open',
    deviations: { uws: '400 closed' },
  },
  {
    what: 'a chunk size of more than 64 bits',
    bytes: chunked((body) => `1${'0'.repeat(16)}${size(body)}\r\n${body}\r\n0\r\n\r\n`),
    expected: '400 closed',
  },
  {
    what: 'a chunk size with a prefix',
    bytes: chunked((body) => `0x${size(body)}\r\n${body}\r\n0\r\n\r\n`),
    expected: '400 closed',
  },
  {
    what: 'bare line feeds between chunks',
    bytes: chunked((body) => `${size(body)}\n${body}\n0\n\n`),
    expected: '400 closed',
    deviations: { uws: '201 then 405' },
  },
  {
    what: 'a chunk that is longer than it says',
    bytes: chunked((body) => `${(body.length - 1).toString(16)}\r\n${body}\r\n0\r\n\r\n`),
    expected: '400 closed',
    deviations: { uws: '400 then 505' },
  },
  {
    what: 'trailers',
    bytes: chunked((body) => `${size(body)}\r\n${body}\r\n0\r\nName: value\r\n\r\n`),
    expected: '201 open',
    deviations: { uws: '505 closed' },
  },
  {
    what: 'an absolute address',
    bytes: plain('', `http://x${CREATE_EVENT}`),
    expected: '201 open',
    deviations: { uws: '505 closed', node: '404 open' },
  },
  { what: 'Expect: 100-continue', bytes: plain('Expect: 100-continue\r\n'), expected: '201 open' },
  { what: 'Connection: close', bytes: plain('Connection: close\r\n'), expected: '201 closed' },
  { what: 'HEAD', bytes: get('Host: x\r\n', 'HEAD /livez HTTP/1.1'), expected: '200 open', isHead: true },
  {
    what: 'OPTIONS of a resource',
    bytes: get('Host: x\r\n', `OPTIONS ${CREATE_EVENT} HTTP/1.1`),
    expected: '405 open',
  },
  {
    what: 'OPTIONS *',
    bytes: get('Host: x\r\n', 'OPTIONS * HTTP/1.1'),
    expected: '404 open',
    deviations: { uws: '505 closed' },
  },
  {
    what: 'a method that nobody knows',
    bytes: get('Host: x\r\n', 'BREW /livez HTTP/1.1'),
    expected: '405 open',
    deviations: { node: '400 closed' },
  },
  {
    what: 'HTTP/1.0',
    bytes: get('Host: x\r\n', 'GET /livez HTTP/1.0'),
    expected: '200 closed',
    deviations: { uws: '505 closed' },
  },
  {
    what: 'HTTP/2.0',
    bytes: get('Host: x\r\n', 'GET /livez HTTP/2.0'),
    expected: '505 closed',
    deviations: { node: '200 closed' },
  },
  {
    what: 'two Hosts',
    bytes: get('Host: x\r\nHost: y\r\n'),
    expected: '400 closed',
    deviations: { uws: '200 open', node: '200 open' },
  },
  {
    what: 'an empty line before the request',
    bytes: () => `\r\n${LIVE}`,
    expected: '200 open',
    deviations: { uws: 'silence' },
  },
  {
    what: 'a folded header',
    bytes: get('Host: x\r\nName: one\r\n two\r\n'),
    expected: '400 closed',
    deviations: { uws: 'silence' },
  },
  {
    what: 'a header without a name',
    bytes: get('Host: x\r\n: value\r\n'),
    expected: '400 closed',
    deviations: { uws: '200 open' },
  },
  {
    what: 'a NUL in a header',
    bytes: get('Host: x\r\nName: a\0b\r\n'),
    expected: '400 closed',
    deviations: { uws: 'silence' },
  },
  {
    what: 'a hundred headers',
    bytes: get(`Host: x\r\n${'Name: value\r\n'.repeat(100)}`),
    expected: '200 open',
    deviations: { uws: '431 closed' },
  },
  {
    what: 'a header of 3 KiB',
    bytes: get(`Host: x\r\nName: ${'x'.repeat(3_072)}\r\n`),
    expected: '200 open',
  },
  {
    what: 'a header of 64 KiB',
    bytes: get(`Host: x\r\nName: ${'x'.repeat(65_536)}\r\n`),
    expected: '431 closed',
  },
  { what: 'two requests in one packet', bytes: () => LIVE + LIVE, expected: '200 200 open' },
];

/** What comes of it: a request that is sent afterwards tells whether the connection still stands. */
async function outcomeOf(
  port: number,
  { bytes, isHead }: Case,
  expected: Outcome,
  body: string,
): Promise<Outcome> {
  const connection = await HttpConnection.open(port);
  const statuses: number[] = [];
  await connection.write(bytes(body));
  if (expected === 'silence') {
    connection.end();
    return (await connection.ended()) === '' ? 'silence' : 'an answer';
  }
  try {
    const answers = expected.match(/^(\d{3} )+/)?.[0].length ?? 0;
    for (let left = answers; left > 0; left -= '200 '.length)
      statuses.push((await connection.response(isHead)).status);
    await connection.write(LIVE);
    statuses.push((await connection.response()).status);
    const last = statuses.pop();
    return `${statuses.join(' ')} ${last === 200 ? 'open' : `then ${last}`}`;
  } catch {
    return `${statuses.join(' ')} closed`.trim();
  } finally {
    connection.destroy();
  }
}

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let service: TestService;
  beforeAll(async () => {
    service = await sharedService({ transport });
  });

  test.each(CASES)('$what: $expected', async (one) => {
    const expected = one.deviations?.[transport] ?? one.expected;
    const actual = await outcomeOf(service.port, one, expected, service.body('{}'));
    expect(actual).toBe(expected);
  });

  test('a request is the same wherever it is cut into two packets', async () => {
    const body = service.body('{"cut":true}');
    const bytes = Buffer.from(chunked((text) => `${size(text)}\r\n${text}\r\n0\r\n\r\n`)(body));
    const stored = async (): Promise<number> => (await storedIds(service)).length;
    const before = await stored();
    const statuses = await Promise.all(
      Array.from({ length: bytes.length - 1 }, (_, index) => statusOfPieces(service.port, bytes, index + 1)),
    );
    const cuts = statuses.flatMap((status, index) => (status === 201 ? [] : [index + 1]));
    expect(await stored()).toBe(before + statuses.length - cuts.length);
    // The packaged uWebSockets.js answers 505 where a packet ends right after the method (and upstream #1776).
    const lineBytes = bytes.indexOf('\r\n') + 2;
    const isAllowed = (cut: number): boolean =>
      transport === 'uws' && cut < lineBytes && statuses[cut - 1] === 505;
    expect(cuts.filter((cut) => !isAllowed(cut))).toEqual([]);
    if (transport === 'uws') expect(cuts.length, 'then docs/deployment.md can forget it').toBeGreaterThan(0);
  });
});

/** Sends a request in two packets, the second after the server has read the first. */
async function statusOfPieces(port: number, bytes: Buffer, cut: number): Promise<number> {
  const connection = await HttpConnection.open(port);
  await connection.write(bytes.subarray(0, cut));
  for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
  await connection.write(bytes.subarray(cut));
  const { status } = await connection.response().finally(() => connection.destroy());
  return status;
}
