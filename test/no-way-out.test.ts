/** Every client of ours on a machine without a way to its server: what fails is what was asked for, and nothing else. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Mailer } from '../src/accounts/mail/mail.ts';
import { RedisConnection } from '../src/limits/redis-connection.ts';
import { isUnavailable } from '../src/storage/database/connect.ts';
import { openCopyClient } from '../src/storage/database/copy-client.ts';
import { CopyConnection } from '../src/storage/database/copy-connection.ts';
import { until } from './support/service.ts';
import { type ConnectError, failConnects } from './support/unroutable.ts';

const CODES: readonly ConnectError[] = ['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL', 'EMFILE'];

let port = 0;
let restore: () => void = () => undefined;
let faults: unknown[] = [];
const note = (error: unknown): unknown => faults.push(error);

beforeEach(async () => {
  // A port that is nobody's: only what `connect` itself says can fail.
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
  server.close();
  faults = [];
  process.on('uncaughtException', note).on('unhandledRejection', note);
});

afterEach(async () => {
  restore();
  // What is reported a turn later is reported by now.
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
  process.off('uncaughtException', note).off('unhandledRejection', note);
  expect(faults).toEqual([]);
});

describe.each(CODES)('where connect() fails at once with %s,', (code) => {
  beforeEach(() => {
    restore = failConnects(code, port);
  });

  const url = (): string => `postgres://u@127.0.0.1:${port}/d`;

  test('a connection for COPY fails as an outage', async () => {
    const failure: unknown = await openCopyClient({ url: url() }, 'test').catch((error: unknown) => error);
    expect(isUnavailable(failure)).toBe(true);
  });

  test("the writer's connection fails as one that was lost before anything was sent", async () => {
    const connection = new CopyConnection({ url: url() }, 'test');
    for (let attempt = 0; attempt < 2; attempt += 1)
      await expect(connection.query('SELECT 1', [])).rejects.toMatchObject({ name: 'Error', sent: false });
    await connection.close();
  });

  test('the connection to Redis is lost, and goes on being made', async () => {
    const reasons: string[] = [];
    const connection = new RedisConnection({
      url: `redis://127.0.0.1:${port}`,
      onReady: () => undefined,
      onLost: (reason) => reasons.push(reason),
    });
    await until(() => reasons.length > 2, 'it was tried again');
    connection.close();
    expect(reasons[0]).toContain(code);
  });

  test('a mail is not sent, and the log says so', async () => {
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => lines.push(line) });
    const mailer = new Mailer({ url: `smtp://127.0.0.1:${port}`, from: 'a@example.com', log });
    mailer.send({ to: 'b@example.com', subject: 'x', text: 'x' });
    await mailer.close();
    expect(lines.join('')).toContain('mail: delivery failed');
  });
});
