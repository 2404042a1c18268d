/** Newline-delimited events that are more than a batch: stored while they arrive, over both transports. */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EVENTS, postBatch } from '../support/batch.ts';
import { anyText, runs, sized } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { LONG_BATCH_LIMITS, type LongAnswer, LongBatch, type LongCounts } from '../support/long-batch.ts';
import { RunningClock, startTestService, type TestApp, type TestService, until } from '../support/service.ts';

const LINES = { 'Content-Type': 'application/x-ndjson' };
describe('lines that are more than a batch', () => {
  const clock = new RunningClock();
  let service: TestService;
  let types = 0;
  let type: string;
  beforeAll(async () => {
    service = await startTestService({ clock, config: LONG_BATCH_LIMITS });
  });
  afterAll(() => service.stop());

  /** A type of their own for the events of a test. */
  const newType = (): string => {
    types += 1;
    type = `long ${types}`;
    return type;
  };
  const line = (n: number, more = {}): string =>
    `${JSON.stringify({ typeName: type, payload: { n, filler: 'x'.repeat(80) }, ...more })}\n`;
  const linesOf = (count: number, from = 0): string =>
    Array.from({ length: count }, (_, at) => line(from + at)).join('');
  const stored = async (): Promise<number[]> => {
    const rows = await service.sql<{ n: number }[]>`
      SELECT (event.payload ->> 'n')::integer AS n FROM events AS event
        JOIN event_types AS type ON type.id = event.type_id WHERE type.name = ${type} ORDER BY 1`;
    return rows.map(({ n }) => n);
  };
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
  const countsOf = ({ body }: { readonly body: string }): LongCounts => JSON.parse(body);
  const open = (headers = {}, app: TestApp = service.app): LongBatch =>
    new LongBatch(service.port, app, headers);

  const metrics = async (): Promise<string> => (await service.request({ path: '/metrics' })).body;

  test('are stored, and counted, whether the body is announced, chunked or compressed', async () => {
    for (const how of ['announced', 'chunked', 'gzip'] as const) {
      newType();
      const body = linesOf(2_500);
      expect(body.length).toBeGreaterThan(3 * LONG_BATCH_LIMITS.MAX_BATCH_BYTES);
      let response: HttpResponse | LongAnswer;
      if (how === 'chunked') {
        const batch = open();
        for (let at = 0; at < body.length; at += 10_001) await batch.send(body.slice(at, at + 10_001));
        response = await batch.end();
      } else if (how === 'gzip') {
        response = await postBatch(service, gzipSync(body), { ...LINES, 'Content-Encoding': 'gzip' });
      } else {
        response = await postBatch(service, body, LINES);
      }
      expect([how, response.status, countsOf(response)]).toEqual([
        how,
        200,
        { success: true, stored: 2_500, refused: 0, errors: [] },
      ]);
      expect(await stored()).toEqual(upTo(2_500));
    }
  });

  test('that are compressed without Content-Encoding are told to be so, and not refused one by one', async () => {
    newType();
    const { status, body } = await postBatch(service, gzipSync(linesOf(2_500), { level: 0 }), LINES);
    expect([status, JSON.parse(body)]).toMatchObject([
      400,
      { details: expect.stringContaining('looks like gzip'), stored: 0, refused: 0, resumeAt: 0 },
    ]);
  });

  test('are told of in a line each where the client asks for it', async () => {
    newType();
    const batch = open({ Accept: 'application/x-ndjson' });
    await batch.send(linesOf(1_000));
    await batch.send(`{"typeName":\n${line(0, { payload: 7 })}${linesOf(999, 1_000)}`);
    await until(() => batch.received.split('\n').length > 900, 'results arrive before the body has ended');
    await batch.send(linesOf(100, 1_999));
    const { status, body, isWhole, headers } = await batch.end();
    expect([status, isWhole, headers['content-type']]).toEqual([200, true, 'application/x-ndjson']);
    const results = body
      .trimEnd()
      .split('\n')
      .map((text) => JSON.parse(text));
    expect(results).toHaveLength(2_101);
    expect(results.flatMap(({ code, details }, index) => (code ? [[index, code, details]] : []))).toEqual([
      [1_000, 'INVALID_REQUEST', expect.stringMatching(/^The line is not valid JSON: .* at column \d+[.]$/)],
      [1_001, 'INVALID_REQUEST', 'The field "payload" must be a JSON object.'],
    ]);
    expect(await stored()).toEqual(upTo(2_099));
  });

  test('that are not valid are refused one by one: bad JSON, bad UTF-8, too long; blank ones are skipped', async () => {
    newType();
    const bad = Buffer.concat([Buffer.from('{"typeName":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}\n')]);
    const long = line(0, { payload: { x: 'é'.repeat(15_000) } });
    const whole = [
      ...[linesOf(1_500), 'nonsense\n\r\n  \n', bad, linesOf(1, 1_500), long, linesOf(500, 1_501)],
      line(2_001).trimEnd(),
    ].map((part) => Buffer.from(part));
    const response = await postBatch(service, Buffer.concat(whole), LINES);
    expect(response.status).toBe(207);
    expect(countsOf(response)).toMatchObject({ success: false, stored: 2_002, refused: 3 });
    expect(countsOf(response).errors.map(({ index, code, details }) => [index, code, details])).toEqual([
      [1_500, 'INVALID_REQUEST', expect.stringMatching(/^The line is not valid JSON: .* at column \d+[.]$/)],
      [1_501, 'INVALID_REQUEST', 'The line is not valid UTF-8: 0xFF at line 1504, byte 14.'],
      [1_503, 'PAYLOAD_TOO_LARGE', 'An event may have at most 20000 bytes.'],
    ]);
    expect(await stored()).toEqual(upTo(2_002));
  });

  test('of any number in a small body are counted as well; Idempotency-Key and atomic=true keep the limits of a batch', async () => {
    const many = `{"typeId":"${service.type.typeId}","payload":{}}\n`.repeat(1_001);
    const own = await startTestService({
      database: service.database,
      config: { COMMIT_BUFFER_EVENTS: 1_000 },
    });
    try {
      const send = (path: string, headers = {}): Promise<HttpResponse> =>
        own.request({
          method: 'POST',
          path,
          body: many,
          headers: { ...LINES, Authorization: `Bearer ${service.app.loggingToken}`, ...headers },
        });
      const response = await send(EVENTS);
      expect([response.status, countsOf(response)]).toEqual([
        200,
        { success: true, stored: 1_001, refused: 0, errors: [] },
      ]);
      expect((await send(`${EVENTS}?atomic=true`)).status).toBe(400);
      expect((await send(EVENTS, { 'Idempotency-Key': 'a' })).status).toBe(400);
    } finally {
      await own.stop();
    }
  });

  test('that are more than MAX_STREAM_BYTES are stored up to there, and the rest is refused with 413', async () => {
    newType();
    const batch = open();
    const size = line(10_000).length;
    for (let at = 0; at * size < 3_200_000; at += 100) await batch.send(linesOf(100, 10_000 + at));
    const response = await batch.described();
    const counts = countsOf(response);
    expect([response.status, counts.code]).toEqual([413, 'PAYLOAD_TOO_LARGE']);
    expect(counts.details).toContain('3000000');
    expect(counts.resumeAt).toBe(counts.stored);
    expect(await stored()).toHaveLength(counts.stored);
    expect(counts.stored).toBeGreaterThan(10_000);
    const announced = await postBatch(service, 'x'.repeat(3_000_001), LINES);
    expect(announced.status).toBe(413);
    const bomb = gzipSync(Buffer.alloc(40_000_000, ' '), { level: 9 });
    expect((await postBatch(service, bomb, { ...LINES, 'Content-Encoding': 'gzip' })).status).toBe(413);
  });

  test('of a client that disconnects stay stored as far as they were committed, and keys make a repeat exact', async () => {
    newType();
    const createdAt = new Date(Date.now() - 60_000).toISOString();
    const keyed = (count: number, from = 0): string =>
      Array.from({ length: count }, (_, at) => line(from + at, { createdAt, key: `k${from + at}` })).join('');
    const batch = open();
    await batch.send(keyed(2_000));
    await until(async () => (await stored()).length >= 1_000, 'some are committed');
    batch.cut();
    const response = await postBatch(service, keyed(3_000), LINES);
    expect(countsOf(response)).toMatchObject({ stored: 3_000, refused: 0 });
    expect(await stored()).toEqual(upTo(3_000));
    await until(async () => /^tidemark_request_body_bytes 0$/m.test(await metrics()), 'its memory is free');
  });

  test('that arrive too slowly are refused, with how many are stored', async () => {
    newType();
    const batch = open();
    await batch.send(linesOf(1_200));
    await until(async () => (await stored()).length === 1_200, 'what has arrived is committed');
    let response: LongAnswer | null = null;
    void batch.described().then((answer) => {
      response = answer;
    });
    await until(() => {
      clock.advance(1_000);
      return response !== null;
    }, 'it is answered');
    response = await batch.described();
    expect([response.status, countsOf(response).details]).toEqual([
      400,
      expect.stringContaining('did not arrive in time'),
    ]);
    expect(countsOf(response)).toMatchObject({ stored: 1_200, refused: 0, resumeAt: 1_200 });
    expect(await stored()).toHaveLength(1_200);
  });

  test('count for the rate limit as the batches that they stand for', async () => {
    const own = await startTestService({
      database: service.database,
      config: { ...LONG_BATCH_LIMITS, CREATE_LIMIT_PER_MINUTE: 3 },
    });
    newType();
    try {
      const app = service.app;
      const batch = new LongBatch(own.port, app);
      // Each 100,000 bytes count once.
      for (let at = 0; at < 5_000; at += 500) await batch.send(linesOf(500, at));
      const response = await batch.described();
      const counts = countsOf(response);
      expect([response.status, counts.code]).toEqual([429, 'RATE_LIMIT_EXCEEDED']);
      expect(Number(response.headers['retry-after'])).toBeGreaterThan(0);
      expect(response.headers['ratelimit-remaining']).toBe('0');
      expect(counts.resumeAt).toBe(counts.stored);
      expect(await stored()).toHaveLength(counts.stored);
      expect(counts.stored).toBeGreaterThan(500);
    } finally {
      await own.stop();
    }
  });

  test('in the middle of a stop are answered with how many are stored, and the stop waits for no more', async () => {
    const own = await startTestService({ database: service.database, config: LONG_BATCH_LIMITS });
    newType();
    const counting = new LongBatch(own.port, service.app);
    await counting.send(linesOf(1_200));
    const telling = new LongBatch(own.port, service.app, { Accept: 'application/x-ndjson' });
    await telling.send(linesOf(1_300, 1_200));
    await until(async () => (await stored()).length === 2_500, 'both are committed');
    await until(() => telling.received !== '', 'results have arrived');
    const stopping = own.stop();
    const [counted, told] = await Promise.all([counting.described(), telling.described()]);
    await stopping;
    expect([counted.status, countsOf(counted)]).toEqual([
      503,
      expect.objectContaining({ code: 'UNAVAILABLE', stored: 1_200, resumeAt: 1_200 }),
    ]);
    expect(Number(counted.headers['retry-after'])).toBeGreaterThan(0);
    const lines = told.body.trimEnd().split('\n');
    expect([told.status, told.isWhole, lines.length]).toEqual([200, true, 1_301]);
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({
      code: 'UNAVAILABLE',
      stored: 1_300,
      resumeAt: 1_300,
      retryAfterSeconds: 1,
    });
  });

  test('are refused before they are read where the token is wrong', async () => {
    const batch = open({ Authorization: 'Bearer no' });
    for (let at = 0; at < 20; at += 1) await batch.send('x'.repeat(20_000));
    expect((await batch.described()).status).toBe(401);
  });

  test('may be anything in any pieces: no 500, every line has its result, in order', async () => {
    newType();
    const odd = fc.oneof(
      fc.constantFrom('{', '[]', 'null', '{"payload":{}}', '\ufeff{}', ' ', '\r', '"\\ud800"', '{"key":"a"}'),
      fc.json(),
      anyText({ maxLength: 40 }),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: odd }), {
          minLength: 1,
          maxLength: 60,
        }),
        fc.array(fc.nat(120_000), { maxLength: 6 }),
        fc.uint8Array({ maxLength: 30 }),
        async (mixed, cuts, junk) => {
          const lines = mixed.flatMap((text) => (text === null ? line(0).trimEnd() : text.split('\n')));
          const filler = line(0).repeat(1_000);
          const body = Buffer.concat([
            Buffer.from(filler),
            Buffer.from(lines.join('\n')),
            Buffer.from('\n'),
            junk,
          ]);
          const batch = open({ Accept: 'application/x-ndjson' });
          const bounds = [
            0,
            ...cuts.map((cut) => Math.min(cut, body.length)).sort((a, b) => a - b),
            body.length,
          ];
          for (const [at, end] of bounds.slice(1).entries()) {
            const piece = body.subarray(bounds[at], end);
            if (piece.length > 0) await batch.send(piece);
          }
          const { status, isWhole, body: text } = await batch.end();
          expect([status, isWhole]).toEqual([200, true]);
          const sent = [...lines, ...Buffer.from(junk).toString('latin1').split('\n')];
          const expected = 1_000 + sent.filter((one) => /[^ \t\r]/.test(one)).length;
          const results = text.trimEnd().split('\n');
          expect(results).toHaveLength(expected);
          expect(text).not.toContain('INTERNAL_ERROR');
          for (const [index, one] of lines.filter((one) => /[^ \t\r]/.test(one)).entries())
            if (one === line(0).trimEnd()) expect(results[1_000 + index]).toContain('"eventId"');
        },
      ),
      runs(sized(2, 4)),
    );
  });
});
