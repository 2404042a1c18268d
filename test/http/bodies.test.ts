/** How bodies arrive: cut, chunked, too large, too many, too late, never; over both transports. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { anyText, runs, sized } from '../support/fuzz.ts';
import { chunk, HttpConnection, type HttpResponse, request, requestBytes } from '../support/http-client.ts';
import {
  CREATE_EVENT,
  startTestService,
  TestClock,
  type TestService,
  until,
  withTestService,
} from '../support/service.ts';
import { created, invalidBody, refused } from './answers.ts';

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ transport, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterAll(() => service.stop());

  const postRaw = (
    body: string | Buffer,
    headers: Record<string, string | null> = {},
  ): Promise<HttpResponse> => request(service.port, { method: 'POST', path: CREATE_EVENT, body, headers });

  const storedPayload = async (eventId: string): Promise<string | undefined> => {
    const [row] = await service.sql<{ text: string }[]>`
      SELECT payload::text AS text FROM events WHERE id = ${eventId}`;
    return row?.text;
  };

  describe('size:', () => {
    const tooLarge = (response: HttpResponse): void => {
      refused(response, 413, 'PAYLOAD_TOO_LARGE', 'Payload too large');
    };
    const bodyOf = (bytes: number): string => {
      const empty = service.body('{"a":""}').length;
      return service.body(`{"a":"${'x'.repeat(bytes - empty)}"}`);
    };
    const chunkedHead = requestBytes({
      method: 'POST',
      path: CREATE_EVENT,
      headers: { 'Transfer-Encoding': 'chunked' },
    });
    const open = async (work: (connection: HttpConnection) => Promise<void>): Promise<void> => {
      const connection = await HttpConnection.open(service.port);
      try {
        await work(connection);
      } finally {
        connection.destroy();
      }
    };
    /** The connection is as good as new. */
    const expectUsable = async (connection: HttpConnection): Promise<void> => {
      await connection.send({ method: 'POST', path: CREATE_EVENT, body: service.body('{}') });
      created(await connection.response());
    };

    test('a body of exactly the limit is stored', async () => {
      created(await postRaw(bodyOf(1_048_576)));
    });

    test('a chunked body of exactly the limit is stored', async () => {
      await open(async (connection) => {
        const body = Buffer.from(bodyOf(1_048_576));
        await connection.write(chunkedHead);
        for (let from = 0; from < body.length; from += 100_000) {
          await connection.write(chunk(body.subarray(from, from + 100_000)));
        }
        await connection.write(chunk(''));
        created(await connection.response());
      });
    });

    test('security 17: a body of one byte more is refused with 413', async () => {
      tooLarge(await postRaw(bodyOf(1_048_577)));
    });

    test('security 17: a chunked body of one byte more is refused with 413, and the connection stays usable', async () => {
      await open(async (connection) => {
        const body = Buffer.from(bodyOf(1_048_577));
        await connection.write(chunkedHead);
        for (let from = 0; from < body.length; from += 100_000) {
          await connection.write(chunk(body.subarray(from, from + 100_000)));
        }
        await connection.write(chunk(''));
        tooLarge(await connection.response());
        await expectUsable(connection);
      });
    });

    test('a body is refused by its Content-Length, and the connection stays usable after it has arrived', async () => {
      await open(async (connection) => {
        const body = Buffer.alloc(8 * 1_048_576, ' ');
        const head = requestBytes({
          method: 'POST',
          path: CREATE_EVENT,
          headers: { 'Content-Length': String(body.length) },
        });
        await connection.write(head);
        await connection.write(body.subarray(0, 1_000));
        tooLarge(await connection.response());
        await connection.write(body.subarray(1_000));
        await expectUsable(connection);
      });
    });

    test.each([
      ['with a length', { 'Content-Length': String(1_000 * 1_048_576) }, (bytes: Buffer) => bytes],
      ['chunked', { 'Transfer-Encoding': 'chunked' }, chunk],
    ])(
      'security 17: a client that never stops sending, %s, reads 413 and is cut off',
      async (_, headers, framed) => {
        await open(async (connection) => {
          await connection.write(requestBytes({ method: 'POST', path: CREATE_EVENT, headers }));
          const piece = framed(Buffer.alloc(256 * 1_024, ' '));
          for (let sent = 0; sent < 64 * 1_048_576 && !connection.isOver; sent += piece.length) {
            await connection.write(piece);
          }
          tooLarge(await connection.response());
          await connection.ended();
        });
      },
    );
  });

  test('a body cut into any pieces, with a length or chunked, is stored as it was sent', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyText({ maxLength: 60 }),
        fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 12 }),
        fc.boolean(),
        async (text, cuts, isChunked) => {
          const payload = JSON.stringify({ text });
          const body = Buffer.from(service.body(payload));
          const bounds = [
            0,
            ...cuts.map((cut) => Math.min(cut, body.length)).sort((a, b) => a - b),
            body.length,
          ];
          const pieces = bounds
            .slice(1)
            .map((end, index) => body.subarray(bounds[index], end))
            .filter((piece) => piece.length > 0);
          const headers: Record<string, string> = isChunked
            ? { 'Transfer-Encoding': 'chunked' }
            : { 'Content-Length': String(body.length) };
          const connection = await HttpConnection.open(service.port);
          try {
            await connection.write(requestBytes({ method: 'POST', path: CREATE_EVENT, headers }));
            await connection.writePieces(isChunked ? [...pieces.map(chunk), chunk('')] : pieces);
            const { eventId } = created(await connection.response());
            expect(await storedPayload(eventId)).toBe(payload);
          } finally {
            connection.destroy();
          }
        },
      ),
      runs(sized(20, 60)),
    );
  });

  test('a chunked body is stored wherever its framing is cut', async () => {
    const framed = Buffer.concat([chunk(service.body('{"a":"\u{1f30a}"}')), chunk('')]);
    for (let size = 1; size <= 9; size += 4) {
      const connection = await HttpConnection.open(service.port);
      const pieces = Array.from({ length: Math.ceil(framed.length / size) }, (_, index) =>
        framed.subarray(index * size, (index + 1) * size),
      );
      await connection.write(
        requestBytes({ method: 'POST', path: CREATE_EVENT, headers: { 'Transfer-Encoding': 'chunked' } }),
      );
      await connection.writePieces(pieces);
      const { eventId } = created(await connection.response());
      expect(await storedPayload(eventId)).toBe('{"a":"\u{1f30a}"}');
      connection.destroy();
    }
  });

  test('many requests on one connection are answered one by one', async () => {
    const connection = await HttpConnection.open(service.port);
    for (let index = 0; index < 20; index += 1) {
      await connection.send({ method: 'POST', path: CREATE_EVENT, body: service.body(`{"n":${index}}`) });
      const { eventId } = created(await connection.response());
      expect(await storedPayload(eventId)).toBe(`{"n":${index}}`);
    }
    connection.destroy();
  });

  test('a client that disconnects in the middle of its body stores nothing and affects no other', async () => {
    const [before] = await service.sql<[{ count: number }]>`SELECT count(*)::int FROM events`;
    for (let index = 0; index < 20; index += 1) {
      const connection = await HttpConnection.open(service.port);
      const whole = requestBytes({ method: 'POST', path: CREATE_EVENT, body: service.body('{"half":1}') });
      await connection.write(whole.subarray(0, whole.length - 5));
      if (index % 2 === 0) connection.reset();
      else connection.destroy();
    }
    created(await service.post());
    const [after] = await service.sql<[{ count: number }]>`SELECT count(*)::int FROM events`;
    expect(after.count).toBe(before.count + 1);
  });

  test('a client that disconnects before its response affects no other', async () => {
    for (let index = 0; index < 20; index += 1) {
      const connection = await HttpConnection.open(service.port);
      await connection.send({ method: 'POST', path: CREATE_EVENT, body: service.body('{"gone":1}') });
      connection.reset();
    }
    created(await service.post());
  });

  describe('all bodies in memory together', () => {
    let other: TestService;
    let large: string;
    beforeAll(async () => {
      const config = { MAX_BODIES_BYTES: 65_536, MAX_BODY_BYTES: 50_000 };
      other = await startTestService({ transport, database: 'shared', config });
      large = other.body(`{"a":"${'x'.repeat(40_000)}"}`);
    });
    afterAll(() => other.stop());

    const post = (body = large, headers = {}): Promise<HttpResponse> =>
      other.request({ method: 'POST', path: CREATE_EVENT, body, headers });
    const refusedForNow = (response: HttpResponse): void => {
      refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
      expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    };

    test('security 17: have a ceiling: beyond it a request is refused with 503, and below it again taken', async () => {
      created(await post());
      const waiting = await HttpConnection.open(other.port);
      await other.sql.begin(async (tx) => {
        await tx`LOCK TABLE events IN SHARE MODE`;
        // This one has come in full, and waits for its commit: it is not cut for others.
        await waiting.send({ method: 'POST', path: CREATE_EVENT, body: large });
        await until(async () => (await post()).status === 503, 'the ceiling is reached');
        refusedForNow(await post());
      });
      created(await waiting.response());
      created(await post());
      waiting.destroy();
    });

    test('security 17: an unfinished body is cut for the next one', async () => {
      const holder = await HttpConnection.open(other.port);
      const bytes = requestBytes({ method: 'POST', path: CREATE_EVENT, body: large });
      await holder.write(bytes.subarray(0, -1));
      await until(async () => {
        created(await post());
        return holder.isOver;
      }, 'the unfinished body is cut');
      refusedForNow(await holder.response());
      await holder.ended();
    });

    test('are released after every kind of response', async () => {
      for (let round = 0; round < 5; round += 1) {
        expect((await post(large.replace('"typeId"', '"typeless"'))).status).toBe(400);
        expect((await post(large.replace('tdl_', 'tdl-'))).status).toBe(401);
        expect((await post('x'.repeat(60_000))).status).toBe(413);
        expect((await post(large, { 'Content-Encoding': 'gzip' })).status).toBe(415);
        created(await post());
      }
    });
  });

  test('security 19: a body that does not arrive in time is refused with 400 on a connection that is then closed, and delays none that is in time', async () => {
    const clock = new TestClock();
    await withTestService({ transport, clock, database: 'shared' }, async (other) => {
      const bytes = requestBytes({ method: 'POST', path: CREATE_EVENT, body: other.body('{}') });
      const late = await HttpConnection.open(other.port);
      await late.write(bytes.subarray(0, -1));
      // Answers are in order of arrival: when the other one's is here, the server has seen the first.
      created(await other.post());
      clock.advance(4_000);
      const early = await HttpConnection.open(other.port);
      await early.write(bytes.subarray(0, -1));
      created(await other.post());
      clock.advance(4_000);
      expect(invalidBody(await late.response())).toContain('time');
      await late.ended();
      await early.write(bytes.subarray(-1));
      created(await early.response());
      early.destroy();
    });
  });
});
