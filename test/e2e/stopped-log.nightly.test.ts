/** The real service, with a reader of its log that stands still: a paused terminal, a stuck log driver. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { openSecret } from '../../src/apps/secret.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { Exposition } from '../support/exposition.ts';
import { request } from '../support/http-client.ts';
import { CREATE_EVENT, until } from '../support/service.ts';
import { StoppedReader } from '../support/stopped-reader.ts';
import { ServerProcess } from './server-process.ts';

const SECRET = 'the secret of the tests, 32 characters';

let database: TestDatabase;
let loggingToken: string;
beforeAll(async () => {
  database = await testDatabase('postgres18', { prepared: true });
  const secret = await openSecret({ configured: SECRET, dataDir: null });
  ({ loggingToken } = await createApp(database.sql, secret, { name: 'App' }));
});
afterAll(() => database.drop());

test('a service whose log is not read starts, answers events and stops; what fits is read later', async () => {
  const reader = new StoppedReader();
  reader.fill();
  const settings = { DATABASE_URL: database.url, SECRET, LOG_LEVEL: 'debug' };
  const server = await ServerProcess.start(settings, [], undefined, reader.writeFd);
  try {
    const event = JSON.stringify({ loggingToken, typeName: 'login', payload: {} });
    const signIn = JSON.stringify({ email: 'nobody@example.com', password: 'a wrong password' });
    for (let n = 0; n < 5; n++) {
      const failed = await request(server.port, { method: 'POST', path: '/api/session', body: signIn });
      expect([401, 429]).toContain(failed.status);
      const created = await request(server.port, { method: 'POST', path: CREATE_EVENT, body: event });
      expect(created.status).toBe(201);
    }
    const waitingBytes = async (): Promise<number> =>
      new Exposition((await request(server.port, { path: '/metrics' })).body).value(
        'tidemark_log_waiting_bytes',
      );
    expect(await waitingBytes()).toBeGreaterThan(100);

    let text = '';
    await until(async () => {
      text += reader.read();
      return (await waitingBytes()) === 0;
    }, 'the reader has the lines that waited');
    expect(text + reader.read()).toContain('"msg":"auth: sign-in failed"');

    reader.fill();
    const { code, stdout } = await server.end('SIGTERM');
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('Tidemark listens on') });
  } finally {
    server.signal('SIGKILL');
    reader.close();
  }
});
