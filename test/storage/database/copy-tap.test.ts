/** The tap below the pool's client: rows of a COPY come together, and everything else passes as it was. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CopyTap, HEAD_BYTES } from '../../../src/storage/database/copy-tap.ts';
import { copyRows, RowBuffer } from '../../../src/storage/read/copied-rows.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { runs, sized } from '../../support/fuzz.ts';

interface Message {
  readonly type: string;
  readonly content: Uint8Array;
}

function bytesOf({ type, content }: Message): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.write(type, 'latin1');
  head.writeUInt32BE(HEAD_BYTES - 1 + content.length, 1);
  return Buffer.concat([head, content]);
}

/** The messages of a stream, which must be whole. */
function messagesIn(stream: Buffer): Message[] {
  const messages: Message[] = [];
  for (let at = 0; at < stream.length; ) {
    const end = at + 1 + stream.readUInt32BE(at + 1);
    expect(end).toBeLessThanOrEqual(stream.length);
    const type = stream.toString('latin1', at, at + 1);
    messages.push({ type, content: stream.subarray(at + HEAD_BYTES, end) });
    at = end;
  }
  return messages;
}

const message: fc.Arbitrary<Message> = fc.record({
  type: fc.constantFrom('d', 'd', 'd', 'D', 'c', 'Z', 'N'),
  content: fc.uint8Array({ maxLength: 12 }),
});

test('messages pass unchanged, and those of rows as the content of messages, however the stream is cut', () => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 12 }), fc.array(fc.nat(7)), (messages, lengths) => {
      const sent = Buffer.concat(messages.map(bytesOf));
      const delivered: Buffer[] = [];
      // Rows are valid during the call, everything else for as long as its listener keeps it.
      const tap = new CopyTap((bytes) => {
        delivered.push(bytes.toString('latin1', 0, 1) === 'd' ? Buffer.from(bytes) : bytes);
      });
      let at = 0;
      for (const length of [...lengths, sent.length]) {
        const chunk = Buffer.from(sent.subarray(at, at + length));
        tap.receive(chunk);
        chunk.fill(0);
        at += length;
      }
      const unwrapped = messagesIn(Buffer.concat(delivered)).map((one) =>
        one.type === 'd' ? Buffer.from(one.content) : bytesOf(one),
      );
      expect(Buffer.concat(unwrapped).equals(sent)).toBe(true);
    }),
    runs(sized(700, 2_000)),
  );
});

describe('rows that are copied', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(() => database.drop());

  const copied = (payload: string, most: number, timeoutMs = 0) =>
    database.sql.begin(async (tx) => {
      await tx.unsafe(`SET LOCAL statement_timeout = ${timeoutMs}`);
      const query = `SELECT lpad(n::text, 32, '0')::uuid, to_timestamp(n + 0.123), n, ${payload} FROM generate_series(1, 300) n`;
      const { rows, isWhole } = await copyRows(tx, query, { most, buffer: new RowBuffer() });
      const seen: { id: string; at: number; typeId: number; payload: string | null }[] = [];
      while (rows.next())
        seen.push({
          id: rows.id,
          at: rows.at,
          typeId: rows.typeId,
          payload: rows.hasPayload ? rows.payload : null,
        });
      expect(rows.length).toBe(seen.length);
      expect(rows.last).toEqual(seen.length === 0 ? null : { at: seen.at(-1)?.at, id: seen.at(-1)?.id });
      return { seen, isWhole };
    });
  const expected = (payloadOf: (n: number) => string | null) =>
    Array.from({ length: 300 }, (_, i) => ({
      id: `00000000-0000-0000-0000-${String(i + 1).padStart(12, '0')}`,
      at: (i + 1) * 1_000 + 123,
      typeId: i + 1,
      payload: payloadOf(i + 1),
    }));

  test('have their fields, also where there is no payload or an empty one', async () => {
    const { seen, isWhole } = await copied(`CASE n % 3 WHEN 0 THEN 'ü' || n WHEN 1 THEN '' END`, 1_000_000);
    expect(isWhole).toBe(true);
    expect(seen).toEqual(expected((n) => [`ü${n}`, '', null][n % 3] ?? null));
  });
});
