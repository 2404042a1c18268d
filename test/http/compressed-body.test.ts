/** Compressed bodies: what a decoder may hold is known from the first byte, and counted. */
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { windowBytes } from '../../src/http/compressed-body.ts';
import { answered, postBatch } from '../support/batch.ts';
import { withTestService } from '../support/service.ts';
import { refused } from './answers.ts';

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
