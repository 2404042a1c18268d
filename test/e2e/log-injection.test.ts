/** Nothing that a client sends makes a second line of the log, or reaches a terminal as a command. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { HttpConnection, type HttpRequest, requestBytes } from '../support/http-client.ts';
import { testSecret, until } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

/** An end of line in every spelling, then a line that would be believed, in red, and what clears a terminal. */
const HOSTILE =
  '\r\n\n\u000b\u000c\u0085\u2028\u2029{"level":"fatal","msg":"forged"}\u001b[31m\u001b]0;title\u0007\u009b2J\u007f\b';
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const RAW = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029]/;

describe('over HTTP,', () => {
  let database: TestDatabase;
  let server: ServerProcess;
  let app: { appId: string; loggingToken: string };

  beforeAll(async () => {
    database = await testDatabase();
    app = await createApp(database.sql, await testSecret(), { name: 'Log' });
    server = await ServerProcess.start({
      DATABASE_URL: database.url,
      SECRET: 'the secret of the tests, 32 characters',
      LOG_LEVEL: 'trace',
      ALLOW_SIGNUP: 'open',
    });
  });
  afterAll(async () => {
    await server.end('SIGTERM');
    await database.drop();
  });

  /** Whatever it is answered. */
  const send = async (bytes: Buffer): Promise<void> => {
    const connection = await HttpConnection.open(server.port);
    await connection.write(bytes);
    await connection.response();
    connection.destroy();
  };
  const post = (path: string, body: unknown, headers: Record<string, string> = {}): HttpRequest => ({
    method: 'POST',
    path,
    headers: { 'Content-Type': 'application/json', Origin: `http://127.0.0.1:${server.port}`, ...headers },
    body: JSON.stringify(body),
  });

  test('security 13: line ends and escape sequences in whatever a client sends stay inside their line of the log', async () => {
    // The worst case: a fault of the database whose message is what the client sent.
    await database.sql.unsafe(`
      CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION USING MESSAGE = to_jsonb(NEW) ->> TG_ARGV[0], ERRCODE = 'XX000'; END $$;
      CREATE TRIGGER tell BEFORE INSERT ON event_types FOR EACH ROW EXECUTE FUNCTION tell('name');
      CREATE TRIGGER tell BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION tell('payload')`);
    const { loggingToken, appId } = app;
    const credentials = { email: `a@b.c${HOSTILE}`, password: `correct horse battery${HOSTILE}` };
    const percent = encodeURIComponent(HOSTILE);
    const requests: HttpRequest[] = [
      post('/public/create_event', { loggingToken, typeName: HOSTILE, payload: {} }),
      post('/public/create_event', {
        loggingToken: HOSTILE,
        typeId: HOSTILE,
        payload: { [HOSTILE]: HOSTILE },
      }),
      post('/public/create_event', { loggingToken, typeId: HOSTILE, payload: HOSTILE }),
      post(
        '/v1/events',
        {
          events: [
            { typeName: HOSTILE, payload: {}, createdAt: HOSTILE },
            { typeName: HOSTILE, payload: {} },
          ],
        },
        { Authorization: `Bearer ${loggingToken}` },
      ),
      post('/api/users', credentials),
      post('/api/session', credentials),
      post('/api/password-resets', { email: credentials.email }),
      post('/api/apps', { name: HOSTILE }),
      { path: `/api/apps/${percent}` },
      { path: `/${percent}?${percent}=${percent}` },
      {
        path: `/public/get_events?appId=${appId}${percent}&from=${percent}`,
        headers: { Authorization: `Bearer ${percent}` },
      },
    ];
    for (const request of requests) await send(requestBytes(request));
    // By the byte: in the path, in names and values of headers, and as the whole request.
    const raw = Buffer.from(HOSTILE);
    const inHead = Buffer.concat([
      Buffer.from('GET /a'),
      raw,
      Buffer.from(' HTTP/1.1\r\nHost: a\r\nX-Request-Id: '),
      raw,
      Buffer.from('\r\nCookie: tidemark_session='),
      raw,
      Buffer.from('\r\nX-Forwarded-For: '),
      raw,
      Buffer.from('\r\n\r\n'),
    ]);
    // Such a thing may stay without an answer: what comes after it shows that it was read.
    for (const bytes of [inHead, raw]) {
      const connection = await HttpConnection.open(server.port);
      await connection.write(bytes);
      await send(requestBytes({ path: '/livez' }));
      connection.destroy();
    }
    await until(() => server.stderr.includes('forged'), 'the log has what the database was asked for');
    const lines = server.stderr
      .replace('tidemark: building\n', '')
      .split('\n')
      .filter((line) => line !== '');
    const messages = lines.map((line): { level: string; msg: string } => JSON.parse(line));
    expect(messages.filter(({ msg }) => msg === 'forged')).toEqual([]);
    expect(lines.filter((line) => RAW.test(line))).toEqual([]);
    expect(messages.filter(({ level }) => level === 'fatal')).toEqual([]);
  });
});
