/** Compressed bodies: what a decoder may hold is known from the first byte, and counted. */
import * as zlib from 'node:zlib';
import { expect, test } from 'vitest';
import { windowBytes } from '../../src/http/compressed-body.ts';
import { answered, postBatch } from '../support/batch.ts';
import { withTestService } from '../support/service.ts';
import { refused } from './answers.ts';

const { brotliCompressSync, constants, gzipSync } = zlib;

function brotli(text: string, windowLog: number): Buffer {
  return brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_LGWIN]: windowLog } });
}

test('the window of Brotli is read from its first byte', () => {
  const text = 'some text that is compressed '.repeat(100_000);
  for (let log = constants.BROTLI_MIN_WINDOW_BITS; log <= constants.BROTLI_MAX_WINDOW_BITS; log += 1)
    expect(windowBytes('br', brotli(text, log)[0] ?? 0), `2^${log}`).toBe(2 ** log);
});

test('a window counts towards the memory of all bodies while the body is decompressed', async () => {
  const config = { MAX_BODIES_BYTES: 2_097_152, CREATE_LIMIT_PER_MINUTE: 0 };
  await withTestService({ config }, async (service) => {
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
    await withTestService({ config }, async (service) => {
      const line = `{"typeName":"a","payload":{"x":"${'é'.repeat(100)}"}}\n`;
      const events = JSON.stringify({ events: [JSON.parse(line)] });
      expect(answered(await postBatch(service, compress(events), zstd)).stored).toBe(1);
      const lines = { ...zstd, 'Content-Type': 'application/x-ndjson' };
      const long = await postBatch(service, compress(line.repeat(10_000)), lines);
      expect(JSON.parse(long.body)).toMatchObject({ stored: 10_000, refused: 0 });
      expect((await postBatch(service, compress(Buffer.alloc(50_000_000, ' ')), zstd)).status).toBe(413);
      expect((await postBatch(service, compress(Buffer.alloc(50_000_000, ' ')), lines)).status).toBe(413);
      expect((await postBatch(service, compress(events).subarray(0, -5), zstd)).status).toBe(400);
      expect((await postBatch(service, Buffer.from(events), zstd)).status).toBe(400);
    });
  },
);

test.runIf(zstdCompressSync === undefined)(
  'Zstandard is refused where Node lacks it, with what is taken instead',
  async () => {
    await withTestService({}, async (service) => {
      const response = await postBatch(service, Buffer.from('x'), { 'Content-Encoding': 'zstd' });
      expect(
        refused(response, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding').details,
      ).toContain('gzip');
    });
  },
);
