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

type Case = readonly [
  what: string,
  bytes: (body: string) => string,
  expected: Outcome,
  /** What the packaged uWebSockets.js and node:http do instead. */
  deviations?: { readonly uws?: Outcome; readonly node?: Outcome },
];

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
  ['a body of known length', plain(''), '201 open'],
  ['a length with leading zeros', (body) => post(`Content-Length: 000${body.length}\r\n`, body), '201 open'],
  ['a length with a sign', (body) => post(`Content-Length: +${body.length}\r\n`, body), '400 closed'],
  [
    'a length twice in one line',
    (body) => post(`Content-Length: ${body.length}, ${body.length}\r\n`, body),
    '400 closed',
  ],
  ['a chunked body', chunked((body) => `${size(body)}\r\n${body}\r\n0\r\n\r\n`), '201 open'],
  ['a coding in capitals', chunked((body) => `${size(body)}\r\n${body}\r\n0\r\n\r\n`, 'Chunked'), '201 open'],
  [
    'many chunks',
    chunked((body) => `${[...body].map((byte) => `1\r\n${byte}\r\n`).join('')}0\r\n\r\n`),
    '201 open',
  ],
  [
    'chunk sizes in capitals, with leading zeros',
    chunked((body) => `000${size(body).toUpperCase()}\r\n${body}\r\n000\r\n\r\n`),
    '201 open',
  ],
  [
    'a chunk extension',
    chunked((body) => `${size(body)};name=value\r\n${body}\r\n0\r\n\r\n`),
    '201 open',
    { uws: '400 closed' },
  ],
  [
    'a chunk size of more than 64 bits',
    chunked((body) => `1${'0'.repeat(16)}${size(body)}\r\n${body}\r\n0\r\n\r\n`),
    '400 closed',
  ],
  ['a chunk size with a prefix', chunked((body) => `0x${size(body)}\r\n${body}\r\n0\r\n\r\n`), '400 closed'],
  [
    'bare line feeds between chunks',
    chunked((body) => `${size(body)}\n${body}\n0\n\n`),
    '400 closed',
    { uws: '201 then 405' },
  ],
  [
    'a chunk that is longer than it says',
    chunked((body) => `${(body.length - 1).toString(16)}\r\n${body}\r\n0\r\n\r\n`),
    '400 closed',
    { uws: '400 then 505' },
  ],
  [
    'trailers',
    chunked((body) => `${size(body)}\r\n${body}\r\n0\r\nName: value\r\n\r\n`),
    '201 open',
    { uws: '505 closed' },
  ],
  [
    'an absolute address',
    plain('', `http://x${CREATE_EVENT}`),
    '201 open',
    { uws: '505 closed', node: '404 open' },
  ],
  ['Expect: 100-continue', plain('Expect: 100-continue\r\n'), '201 open'],
  ['Connection: close', plain('Connection: close\r\n'), '201 closed'],
  ['HEAD', get('Host: x\r\n', 'HEAD /livez HTTP/1.1'), '200 open'],
  ['OPTIONS of a resource', get('Host: x\r\n', `OPTIONS ${CREATE_EVENT} HTTP/1.1`), '405 open'],
  ['OPTIONS *', get('Host: x\r\n', 'OPTIONS * HTTP/1.1'), '404 open', { uws: '505 closed' }],
  [
    'a method that nobody knows',
    get('Host: x\r\n', 'BREW /livez HTTP/1.1'),
    '405 open',
    { node: '400 closed' },
  ],
  ['HTTP/1.0', get('Host: x\r\n', 'GET /livez HTTP/1.0'), '200 closed', { uws: '505 closed' }],
  ['HTTP/2.0', get('Host: x\r\n', 'GET /livez HTTP/2.0'), '505 closed', { node: '200 closed' }],
  ['two Hosts', get('Host: x\r\nHost: y\r\n'), '400 closed', { uws: '200 open', node: '200 open' }],
  ['an empty line before the request', () => `\r\n${LIVE}`, '200 open', { uws: 'silence' }],
  ['a folded header', get('Host: x\r\nName: one\r\n two\r\n'), '400 closed', { uws: 'silence' }],
  ['a header without a name', get('Host: x\r\n: value\r\n'), '400 closed', { uws: '200 open' }],
  ['a NUL in a header', get('Host: x\r\nName: a\0b\r\n'), '400 closed', { uws: 'silence' }],
  [
    'a hundred headers',
    get(`Host: x\r\n${'Name: value\r\n'.repeat(100)}`),
    '200 open',
    { uws: '431 closed' },
  ],
  ['a header of 3 KiB', get(`Host: x\r\nName: ${'x'.repeat(3_072)}\r\n`), '200 open'],
  ['a header of 64 KiB', get(`Host: x\r\nName: ${'x'.repeat(65_536)}\r\n`), '431 closed'],
  ['two requests in one packet', () => LIVE + LIVE, '200 200 open'],
];

/** What comes of it: a request that is sent afterwards tells whether the connection still stands. */
async function outcomeOf(
  port: number,
  [what, bytes]: Case,
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
      statuses.push((await connection.response(what === 'HEAD')).status);
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

  test.each(CASES.map((one) => ({ what: one[0], one })))('$what', async ({ one }) => {
    const [, , usual, deviations] = one;
    const expected = deviations?.[transport] ?? usual;
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
