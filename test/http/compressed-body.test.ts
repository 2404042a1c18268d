/** Compressed bodies: what a decoder may hold is known from the first byte, and counted. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as zlib from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { windowBytes } from '../../src/http/compressed-body.ts';
import { ZstdFrames } from '../../src/http/zstd-frames.ts';
import { answered, postBatch } from '../support/batch.ts';
import { withTestService } from '../support/service.ts';
import { hasZstdNode, mistakenCuts, ZSTD_NODE } from '../support/zstd-cuts.ts';
import { refused } from './answers.ts';

const { brotliCompressSync, constants, gzipSync } = zlib;

function brotli(text: string, windowLog: number): Buffer {
  return brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_LGWIN]: windowLog } });
}

test('the window of Brotli is read from its first byte', () => {
  const text = 'some text that is compressed '.repeat(1_000);
  for (let log = constants.BROTLI_MIN_WINDOW_BITS; log <= constants.BROTLI_MAX_WINDOW_BITS; log += 1)
    expect(windowBytes('br', brotli(text, log)[0] ?? 0), `2^${log}`).toBe(2 ** log);
});

test('a window counts towards the memory of all bodies while the body is decompressed', async () => {
  const config = { MAX_BODIES_BYTES: 2_097_152, CREATE_LIMIT_PER_MINUTE: 0 };
  await withTestService({ config, database: 'shared' }, async (service) => {
    const events = JSON.stringify({ events: [{ typeName: 'a', payload: { x: 'y'.repeat(100_000) } }] });
    const br = { 'Content-Encoding': 'br' };
    for (let round = 0; round < 10; round += 1)
      expect(answered(await postBatch(service, brotli(events, 20), br)).stored).toBe(1);
    const response = await postBatch(service, brotli(events, 22), br);
    expect(refused(response, 413, 'PAYLOAD_TOO_LARGE', 'Payload too large').details).toContain('window');
    const gzip = { 'Content-Encoding': 'gzip' };
    expect(answered(await postBatch(service, gzipSync(events), gzip)).stored).toBe(1);
    const { body } = await service.request({ path: '/metrics' });
    expect(body).toMatch(/^tidemark_request_body_bytes(?:\{[^}]*\})? 0$/m);
  });
});

/** What the types of the oldest supported Node lack. */
const { zstdCompressSync } = zlib as unknown as { zstdCompressSync?: (bytes: string | Buffer) => Buffer };

test.runIf(zstdCompressSync !== undefined)(
  'Zstandard is taken where Node has it, within the limits',
  async () => {
    const compress = zstdCompressSync as NonNullable<typeof zstdCompressSync>;
    const zstd = { 'Content-Encoding': 'zstd' };
    const config = { CREATE_LIMIT_PER_MINUTE: 0, MAX_BATCH_BYTES: 1_000_000, MAX_STREAM_BYTES: 4_000_000 };
    await withTestService({ config, database: 'shared' }, async (service) => {
      const line = `{"typeName":"a","payload":{"x":"${'é'.repeat(100)}"}}\n`;
      const events = JSON.stringify({ events: [JSON.parse(line)] });
      expect(answered(await postBatch(service, compress(events), zstd)).stored).toBe(1);
      const lines = { ...zstd, 'Content-Type': 'application/x-ndjson' };
      const long = await postBatch(service, compress(line.repeat(10_000)), lines);
      expect(JSON.parse(long.body)).toMatchObject({ stored: 10_000, refused: 0 });
      expect((await postBatch(service, compress(Buffer.alloc(50_000_000, ' ')), zstd)).status).toBe(413);
      expect((await postBatch(service, compress(Buffer.alloc(50_000_000, ' ')), lines)).status).toBe(413);
      for (const cut of [-1, -3, -5])
        expect((await postBatch(service, compress(events).subarray(0, cut), zstd)).status).toBe(400);
      expect((await postBatch(service, Buffer.from(events), zstd)).status).toBe(400);
    });
  },
);

test.runIf(zstdCompressSync === undefined)(
  'Zstandard is refused where Node lacks it, with what is taken instead',
  async () => {
    await withTestService({ database: 'shared' }, async (service) => {
      const response = await postBatch(service, Buffer.from('x'), { 'Content-Encoding': 'zstd' });
      expect(
        refused(response, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding').details,
      ).toContain('gzip');
    });
  },
);

test.runIf(zstdCompressSync !== undefined)('a body in Zstandard that is cut off is refused', async () => {
  expect(await mistakenCuts()).toEqual([]);
});

test.runIf(zstdCompressSync === undefined && hasZstdNode)(
  'a body in Zstandard that is cut off is refused by a Node that has it',
  async () => {
    const program = fileURLToPath(new URL('../support/zstd-cuts.ts', import.meta.url));
    const { stdout } = await promisify(execFile)(ZSTD_NODE, [program]);
    expect(JSON.parse(stdout)).toEqual([]);
  },
);

/** A block: raw, or one byte that is repeated so often. */
function zstdBlock(bytes: number, isRle: boolean, isLast: boolean): Buffer {
  const header = Buffer.alloc(3);
  header.writeUIntLE(Number(isLast) + 2 * Number(isRle) + 8 * bytes, 0, 3);
  return Buffer.concat([header, Buffer.alloc(isRle ? 1 : bytes, 0x28)]);
}

function magic(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

/** Frames whose content has every form of the header; the content is full of the first byte of a frame. */
const ZSTD_FRAME = fc.oneof(
  fc
    .record({
      sizeFlag: fc.nat(3),
      isSingle: fc.boolean(),
      hasChecksum: fc.boolean(),
      dictionary: fc.nat(3),
      blocks: fc.array(fc.tuple(fc.nat(300), fc.boolean()), { minLength: 1, maxLength: 4 }),
    })
    .map(({ sizeFlag, isSingle, hasChecksum, dictionary, blocks }) => {
      const descriptor = (sizeFlag << 6) + 32 * Number(isSingle) + 4 * Number(hasChecksum) + dictionary;
      const header = [0, 1, 2, 4][dictionary] as number; // Of four.
      const size = ([isSingle ? 1 : 0, 2, 4, 8] as const)[sizeFlag] as number; // Of four.
      return Buffer.concat([
        magic(0xfd2fb528),
        Buffer.from([descriptor]),
        Buffer.alloc((isSingle ? 0 : 1) + header + size, 0x28),
        ...blocks.map(([bytes, isRle], at) => zstdBlock(bytes, isRle, at === blocks.length - 1)),
        Buffer.alloc(hasChecksum ? 4 : 0, 0x28),
      ]);
    }),
  fc.tuple(fc.nat(15), fc.nat(100)).map(([kind, bytes]) => {
    return Buffer.concat([magic(0x184d2a50 + kind), magic(bytes), Buffer.alloc(bytes, 0x28)]);
  }),
);

test('the ends of frames of Zstandard are found, however they are cut into chunks', () => {
  fc.assert(
    fc.property(
      fc.array(ZSTD_FRAME, { minLength: 1, maxLength: 3 }),
      fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }),
      (frames, lengths) => {
        const ends = new Set<number>();
        let length = 0;
        for (const frame of frames) {
          length += frame.length;
          ends.add(length);
        }
        const bytes = Buffer.concat(frames);
        const followed = new ZstdFrames();
        expect(followed.isAtEnd).toBe(false);
        for (let at = 0, round = 0; at < bytes.length; round += 1) {
          const next = Math.min(bytes.length, at + (lengths[round % lengths.length] ?? 1));
          followed.push(bytes.subarray(at, next));
          at = next;
          expect(followed.isAtEnd).toBe(ends.has(at));
        }
      },
    ),
  );
});

test('what is no frame of Zstandard never ends', () => {
  const followed = new ZstdFrames();
  followed.push(Buffer.from('no frame at all'));
  expect(followed.isAtEnd).toBe(false);
});
