/** How batches arrive: as a document or as lines, plain or as gzip, cut, too large, broken; over both transports. */
import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answered, EVENTS, postBatch, storedIds } from '../support/batch.ts';
import { runs, sized } from '../support/fuzz.ts';
import { chunk, HttpConnection, type HttpResponse, requestBytes } from '../support/http-client.ts';
import {
  sharedService,
  startTestService,
  type TestService,
  until,
  withTestService,
} from '../support/service.ts';
import { expectCommonHeaders, invalidBody, refused } from './answers.ts';

const GZIP = { 'Content-Encoding': 'gzip' };
const LIMIT = 200_000;

describe('over HTTP,', () => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({
      database: 'shared',
      config: {
        CREATE_LIMIT_PER_MINUTE: 0,
        MAX_BATCH_BYTES: LIMIT,
        MAX_BODIES_BYTES: 4 * LIMIT,
        MAX_BODY_BYTES: 50_000,
      },
    });
  });
  afterAll(() => service.stop());

  const event = (payload: unknown = {}): string => JSON.stringify({ typeId: service.type.typeId, payload });
  const documentOf = (...events: readonly string[]): string => `{"events":[${events.join(',')}]}`;
  /** A document of exactly this many bytes, of which gzip makes little. */
  const documentOfBytes = (bytes: number): string => {
    const text = documentOf(event());
    return text.replace('}]}', `}]${' '.repeat(bytes - text.length)}}`);
  };
  const tooLarge = (response: HttpResponse): void => {
    expect(refused(response, 413, 'PAYLOAD_TOO_LARGE', 'Payload too large').details).toContain(String(LIMIT));
  };

  test('an answer has the headers of every answer, and of a limited route', async () => {
    const response = await postBatch(await sharedService(), [{ typeName: 'a', payload: {} }]);
    expectCommonHeaders(response);
    expect(response.headers['ratelimit-limit']).toBe('1000');
    expect(response.headers['content-length']).toBe(String(Buffer.byteLength(response.body)));
  });

  test('a time under another name than createdAt is ignored, as any other field is', async () => {
    const others = ['timestamp', 'created_at', 'createdat', 'time'];
    const events = others.map((name) => ({ typeName: 'a', payload: {}, [name]: '2020-01-31T08:30:00Z' }));
    const { results } = JSON.parse((await postBatch(service, events)).body);
    const before2021 = results.filter(({ timestamp }: { timestamp: string }) => timestamp < '2021');
    expect([results.length, before2021]).toEqual([others.length, []]);
  });

  test('the path only allows POST', async () => {
    const response = await service.request({ path: EVENTS });
    refused(response, 405, 'METHOD_NOT_ALLOWED', 'Method not allowed');
    expect(response.headers.allow).toBe('POST');
  });

  test.each([
    ['', /JSON object/],
    ['7', /JSON object/],
    ['[]', /no events/],
    ['[{}', /not valid JSON/],
    ['[{}]]', /not valid JSON/],
    ['{', /not valid JSON/],
    ['{"events":[{}', /not valid JSON/],
    ['{"events":{}}', /"events" must be an array/],
    ['{}', /"events" is missing/],
    ['{"events":[]}', /no events/],
  ])('the body %j is refused whole with 400', async (body, details) => {
    expect(invalidBody(await postBatch(service, body))).toMatch(details);
  });

  test('a body that is not UTF-8 is refused whole with 400, plain and as gzip', async () => {
    const body = Buffer.concat([Buffer.from('{"events":['), Buffer.from([0xff]), Buffer.from(']}')]);
    expect(invalidBody(await postBatch(service, body))).toContain('UTF-8');
    expect(invalidBody(await postBatch(service, gzipSync(body), GZIP))).toContain('UTF-8');
  });

  test.each(['application/x-ndjson', 'application/jsonl; charset=utf-8', 'Application/NDJSON'])(
    'lines are events with the Content-Type %s',
    async (type) => {
      const body = `${event({ n: 1 })}\r\n\n{"typeId":\n  ${event({ n: 2 })} \n`;
      const { stored, results } = answered(await postBatch(service, body, { 'Content-Type': type }));
      expect([stored, results.map(({ details }) => details)]).toEqual([
        2,
        [undefined, 'The line is not valid JSON: it ends too early at column 11.', undefined],
      ]);
    },
  );

  test('without such a Content-Type lines are not valid JSON', async () => {
    const body = `${event()}\n${event()}`;
    expect(invalidBody(await postBatch(service, body, { 'Content-Type': 'text/plain' }))).toContain('JSON');
  });

  describe('gzip', () => {
    test('is taken in any pieces, with a length or chunked, of one member or several', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.nat(2_000), { maxLength: 6 }),
          fc.array(fc.nat(2_000), { maxLength: 3 }),
          fc.boolean(),
          fc.constantFrom('gzip', 'GZIP', 'x-gzip'),
          async (cuts, members, isChunked, encoding) => {
            const payload = `{"text": "${randomBytes(600).toString('hex')}", "wave": "\u{1f30a}"}`;
            const text = Buffer.from(documentOf(`{"typeId":"${service.type.typeId}","payload":${payload}}`));
            const body = Buffer.concat(sliced(text, members).map((part) => gzipSync(part)));
            const pieces = sliced(body, cuts).filter((piece) => piece.length > 0);
            const connection = await HttpConnection.open(service.port);
            try {
              await connection.write(
                requestBytes({
                  method: 'POST',
                  path: EVENTS,
                  headers: {
                    Authorization: `Bearer ${service.app.loggingToken}`,
                    'Content-Encoding': encoding,
                    ...(isChunked
                      ? { 'Transfer-Encoding': 'chunked' }
                      : { 'Content-Length': String(body.length) }),
                  },
                }),
              );
              await connection.writePieces(isChunked ? [...pieces.map(chunk), chunk('')] : pieces);
              const { results } = answered(await connection.response());
              const [row] = await service.sql<[{ text: string }]>`
                SELECT payload::text AS text FROM events WHERE id = ${results[0]?.eventId ?? ''}`;
              expect(row.text).toBe(payload);
            } finally {
              connection.destroy();
            }
          },
        ),
        runs(sized(15, 40)),
      );
    });

    const good = (): Buffer => gzipSync(documentOf(event({ x: 'y'.repeat(1_000) })));
    test.each([
      ['cut off', () => good().subarray(0, -9)],
      ['cut off in its checksum', () => good().subarray(0, -1)],
      ['corrupt', () => good().fill(0x55, 20, 40)],
      ['of a wrong checksum', () => flipped(good(), -6)],
      ['no gzip at all', () => Buffer.from(documentOf(event()))],
      ['empty', () => Buffer.alloc(0)],
      ['followed by zeros', () => Buffer.concat([good(), Buffer.alloc(10)])],
      ['followed by garbage', () => Buffer.concat([good(), Buffer.from('garbage')])],
      ['followed by a member that is cut off', () => Buffer.concat([good(), good().subarray(0, 15)])],
      ['inflated twice', () => gzipSync(good())],
    ])('that is %s is refused with 400, and nothing is stored', async (_, body) => {
      const before = await storedIds(service);
      invalidBody(await postBatch(service, body(), GZIP));
      expect(await storedIds(service)).toEqual(before);
    });

    test('is refused on other routes, and other encodings on this one, with 415', async () => {
      const headers = { 'Content-Encoding': 'compress' };
      refused(
        await postBatch(service, good(), headers),
        415,
        'UNSUPPORTED_ENCODING',
        'Unsupported content encoding',
      );
      const single = await service.request({
        method: 'POST',
        path: '/public/create_event',
        body: gzipSync(service.body('{}')),
        headers: GZIP,
      });
      refused(single, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding');
    });
  });

  test('a body of exactly the limit is stored, one of a byte more is refused with 413: plain and as gzip', async () => {
    expect(answered(await postBatch(service, documentOfBytes(LIMIT))).stored).toBe(1);
    expect(answered(await postBatch(service, gzipSync(documentOfBytes(LIMIT)), GZIP)).stored).toBe(1);
    tooLarge(await postBatch(service, documentOfBytes(LIMIT + 1)));
    tooLarge(await postBatch(service, gzipSync(documentOfBytes(LIMIT + 1)), GZIP));
  });

  test('a body that gzip enlarges is still stored up to the limit', async () => {
    const noise = Array.from({ length: 5 }, () => event({ x: randomBytes(19_000).toString('base64') }));
    const body = gzipSync(documentOf(...noise), { level: 0 });
    expect(answered(await postBatch(service, body, GZIP)).stored).toBe(5);
  });

  test('an event that exceeds the limit of single events is refused at its index', async () => {
    const { results } = answered(
      await postBatch(service, documentOf(event(), event({ x: 'x'.repeat(50_000) }), event())),
    );
    expect(results.map(({ code }) => code)).toEqual([undefined, 'PAYLOAD_TOO_LARGE', undefined]);
  });

  test('a bomb is refused with 413 when the limit is reached, in flat memory, and the connection stays usable', async () => {
    const bomb = gzipSync(Buffer.alloc(150_000_000, ' '));
    expect(bomb.length).toBeLessThan(LIMIT);
    const before = process.memoryUsage();
    let most = 0;
    const watch = setInterval(() => {
      const { rss } = process.memoryUsage();
      most = Math.max(most, rss - before.rss);
    }, 1);
    const connection = await HttpConnection.open(service.port);
    try {
      for (let round = 0; round < 5; round += 1) {
        await connection.send({
          method: 'POST',
          path: EVENTS,
          body: bomb,
          headers: { Authorization: `Bearer ${service.app.loggingToken}`, ...GZIP },
        });
        tooLarge(await connection.response());
      }
      const good = { method: 'POST', path: EVENTS, body: documentOf(event()) };
      await connection.send({ ...good, headers: { Authorization: `Bearer ${service.app.loggingToken}` } });
      expect(answered(await connection.response()).stored).toBe(1);
    } finally {
      clearInterval(watch);
      connection.destroy();
    }
    expect(most).toBeLessThan(60_000_000);
  });

  test('compressed bodies count towards the limit of all bodies, and are released', async () => {
    const config = { MAX_BODIES_BYTES: 140_000, MAX_BATCH_BYTES: 100_000, CREATE_LIMIT_PER_MINUTE: 0 };
    await withTestService({ database: 'shared', config }, async (own) => {
      const noise = { typeName: 'a', payload: { x: randomBytes(36_000).toString('base64') } };
      const body = gzipSync(JSON.stringify({ events: [noise] }));
      const send = (): Promise<HttpResponse> => postBatch(own, body, GZIP);
      for (let round = 0; round < 10; round += 1) expect(answered(await send()).stored).toBe(1);
      const held = await HttpConnection.open(own.port);
      const headers = { Authorization: `Bearer ${own.app.loggingToken}`, ...GZIP };
      await held.write(requestBytes({ method: 'POST', path: EVENTS, body, headers }).subarray(0, -10));
      // Until all of it is inflated; otherwise the two could meet, and the wrong one be cut.
      for (let round = 0; round < 20; round += 1)
        answered(await postBatch(own, [{ typeName: 'a', payload: {} }]));
      // What holds its room without an end makes way for the next.
      await until(async () => {
        expect((await send()).status).toBe(200);
        return held.isOver;
      }, 'the body that does not end is cut');
      refused(await held.response(), 503, 'UNAVAILABLE', 'Service unavailable');
      // What is refused gives its room back too.
      for (let round = 0; round < 5; round += 1) {
        expect((await postBatch(own, body.subarray(0, -20), GZIP)).status).toBe(400);
        expect((await postBatch(own, body, { ...GZIP, Authorization: 'Bearer no' })).status).toBe(401);
        expect((await postBatch(own, gzipSync(Buffer.alloc(200_000, ' ')), GZIP)).status).toBe(413);
      }
      expect(answered(await send()).stored).toBe(1);
    });
  });
});

/** With one byte changed, counted from the end. */
function flipped(bytes: Buffer, index: number): Buffer {
  const at = bytes.length + index;
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  return bytes;
}

/** Cuts bytes at these places, in their order. */
function sliced(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const bounds = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
  return bounds.slice(1).map((end, index) => bytes.subarray(bounds[index], end));
}
