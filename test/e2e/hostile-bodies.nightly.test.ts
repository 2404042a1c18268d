/** Bodies made to hurt, many at once, against a real server: an early refusal, and no memory is kept. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { residentMiB } from '../support/good-traffic.ts';
import { chunk, HttpConnection, requestBytes } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const AT_ONCE = 20;
const ROUNDS = 6;

const PATH = { method: 'POST', path: '/public/create_event' };
const nested = (levels: number): string => `{"payload":${'['.repeat(levels)}${']'.repeat(levels)}}`;
const millionKeys = `{"payload":{${Array.from({ length: 1_000_000 }, (_, index) => `"${index}":0`).join()}}}`;
const tooLarge = Buffer.alloc(4 * 1_048_576, ' ');
const inChunks = (body: Buffer): Buffer => {
  const chunks = Array.from({ length: body.length / 65_536 }, (_, index) =>
    chunk(body.subarray(index * 65_536, (index + 1) * 65_536)),
  );
  const head = requestBytes({ ...PATH, headers: { 'Transfer-Encoding': 'chunked' } });
  return Buffer.concat([head, ...chunks, chunk('')]);
};

const BODIES: readonly (readonly [string, number, Buffer])[] = [
  ['100,000 levels deep', 400, requestBytes({ ...PATH, body: nested(100_000) })],
  ['of 90,000 levels that never end', 400, requestBytes({ ...PATH, body: '{"payload":'.repeat(90_000) })],
  ['with a million keys', 413, requestBytes({ ...PATH, body: millionKeys })],
  ['over the limit, with a length', 413, requestBytes({ ...PATH, body: tooLarge })],
  ['over the limit, chunked', 413, inChunks(tooLarge)],
  [
    'of a single byte a chunk',
    400,
    Buffer.concat([
      requestBytes({ ...PATH, headers: { 'Transfer-Encoding': 'chunked' } }),
      ...Array.from({ length: 20_000 }, () => chunk('[')),
      chunk(''),
    ]),
  ],
];

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let installation: Installation;
  let server: ServerProcess;
  beforeAll(async () => {
    installation = await Installation.make();
    server = await installation.start({ LOG_LEVEL: 'fatal', HTTP_TRANSPORT: transport });
  });
  afterAll(() => installation.remove());

  const send = async (bytes: Buffer): Promise<number> => {
    const connection = await HttpConnection.open(server.port);
    try {
      await connection.write(bytes);
      return (await connection.response()).status;
    } finally {
      connection.destroy();
    }
  };

  test.each(BODIES)(
    'security 17: bodies %s are refused with %i, and memory stays flat',
    async (_, status, bytes) => {
      const round = async (): Promise<void> => {
        const statuses = await Promise.all(Array.from({ length: AT_ONCE }, () => send(bytes)));
        // Twenty at once may be more than all bodies may take together.
        for (const answered of statuses) expect([status, 503]).toContain(answered);
        expect(statuses).toContain(status);
      };
      await round();
      const before = residentMiB(server.pid);
      for (let index = 1; index < ROUNDS; index += 1) await round();
      expect(residentMiB(server.pid) - before).toBeLessThan(60);
    },
  );
});
