/** How the real process starts, refuses to start, and stops. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../support/cluster.ts';
import { build, LAUNCHER, type Outcome, tidemarkProcess } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { HttpConnection, request } from '../support/http-client.ts';
import { CREATE_EVENT, until } from '../support/service.ts';
import { Installation, ServerProcess } from './server-process.ts';

const SECRET = 'the secret of the tests, 32 characters';

let database: TestDatabase;
let installation: Installation;
beforeAll(async () => {
  database = await testDatabase();
  installation = await Installation.make();
  // Whichever test comes first must not be the one whose standard error shows the build.
  build();
});
afterAll(async () => {
  await installation.remove();
  await database.drop();
});

/** Exit codes of a start that was refused: it may pass, or somebody must change something first. */
const MAY_PASS = 1;
const NEEDS_A_CHANGE = 78;

/** The one line for people; log lines are JSON, and the launcher says when it builds. */
function oneLine({ code, stdout, stderr }: Outcome, expected = NEEDS_A_CHANGE): string {
  const isForPeople = (line: string): boolean =>
    line !== '' && !line.startsWith('{') && line !== 'tidemark: building';
  const lines = stderr.split('\n').filter(isForPeople);
  expect({ code, stdout, lines: lines.length }).toEqual({ code: expected, stdout: '', lines: 1 });
  expect(stderr).not.toMatch(/^\s+at /m);
  expect(lines[0]).toMatch(/^tidemark: ./);
  return lines[0] ?? '';
}

const serve = (settings: Record<string, string>): Promise<Outcome> =>
  tidemarkProcess(['serve'], {
    PORT: '0',
    DATA_DIR: join(installation.folder, 'unused'),
    SECRET,
    ...settings,
  });

describe('a start that fails prints one line, and its exit code says whether a retry may succeed:', () => {
  test('the port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = String(typeof address === 'object' ? address?.port : 0);
    try {
      expect(oneLine(await serve({ DATABASE_URL: database.url, PORT: port }), MAY_PASS)).toMatch(
        new RegExp(`${port}.*in use.*PORT`),
      );
    } finally {
      other.close();
    }
  });

  test('another tidemark has the port', async () => {
    const server = await ServerProcess.start({ DATABASE_URL: database.url, SECRET, LOG_LEVEL: 'fatal' });
    try {
      const outcome = await serve({ DATABASE_URL: database.url, PORT: String(server.port) });
      expect(oneLine(outcome, MAY_PASS)).toMatch('in use');
    } finally {
      await server.end('SIGTERM');
    }
  });

  test('HOST is no address of this machine', async () => {
    expect(oneLine(await serve({ DATABASE_URL: database.url, HOST: '192.0.2.1' }))).toContain('HOST');
  });

  test('DATABASE_URL leads nowhere, and its password is not shown', async () => {
    const outcome = await serve({ DATABASE_URL: 'postgres://u:hidden-password@127.0.0.1:1/x' });
    expect(oneLine(outcome, MAY_PASS)).toMatch(/127\.0\.0\.1:1.*DATABASE_URL/);
    expect(outcome.stderr).not.toContain('hidden-password');
  });

  // Root has rights everywhere, but for the folders of the system itself.
  test.skipIf(process.platform !== 'linux')(
    'DATA_DIR is a folder where nobody may write [needs /proc]',
    async () => {
      expect(oneLine(await serve({ DATA_DIR: '/proc/tidemark' }))).toContain('/proc/tidemark');
      expect(oneLine(await serve({ DATA_DIR: '/proc/tidemark/data' }))).toContain('/proc/tidemark/data');
    },
  );

  test.skipIf(process.platform !== 'linux')('JOURNAL_DIR cannot be created [needs /proc]', async () => {
    for (const folder of ['/proc/tidemark', '/proc/tidemark/journal'])
      expect(oneLine(await serve({ DATABASE_URL: database.url, JOURNAL_DIR: folder }))).toContain(
        `JOURNAL_DIR: the folder ${folder}/writer-1 cannot be created (ENOENT)`,
      );
  });

  test('JOURNAL_DIR is a file, or below one', async () => {
    const path = join(installation.folder, 'no-journal');
    await writeFile(path, '');
    for (const folder of [path, join(path, 'journal')])
      expect(oneLine(await serve({ DATABASE_URL: database.url, JOURNAL_DIR: folder }))).toContain(
        `JOURNAL_DIR: the folder ${folder}/writer-1 cannot be created`,
      );
  });

  test.skipIf(process.getuid?.() === 0)('DATA_DIR is a folder without rights [not as root]', async () => {
    const path = join(installation.folder, 'closed');
    await mkdir(path);
    await chmod(path, 0o500);
    expect(oneLine(await serve({ DATA_DIR: join(path, 'data') }))).toContain(path);
  });

  test.each([
    ['PORT', '70000'],
    ['DATABASE_URL', 'mysql://x'],
    ['SECRET', 'short'],
  ])('%s is %s', async (name, value) => {
    expect(oneLine(await serve({ [name]: value }))).toContain(`${name}:`);
  });

  test('PGPASSWORD_FILE cannot be read, or is empty', async () => {
    const url = new URL(database.url);
    url.password = '';
    const missing = join(installation.folder, 'no-password');
    const settings = { DATABASE_URL: url.href, PGPASSWORD_FILE: missing };
    expect(oneLine(await serve(settings))).toMatch(
      /PGPASSWORD_FILE: .*no-password cannot be read \(ENOENT\)/,
    );
    await writeFile(missing, '\n');
    expect(oneLine(await serve(settings))).toMatch(/PGPASSWORD_FILE: .* is empty/);
  });

  test('with --hold one that a restart cannot cure waits for SIGTERM, and one that may pass ends', async () => {
    const start = (settings: Record<string, string>): ChildProcess => {
      const env = {
        PATH: process.env.PATH ?? '',
        DATA_DIR: join(installation.folder, 'unused'),
        ...settings,
      };
      return spawn(process.execPath, [LAUNCHER, 'serve', '--hold'], {
        env,
        stdio: ['ignore', 'ignore', 'pipe'],
      });
    };
    const refused = start({ DATABASE_URL: database.url, PORT: 'http' });
    let stderr = '';
    refused.stderr?.on('data', (text: Buffer) => {
      stderr += text;
    });
    await until(() => stderr.includes('waiting for SIGTERM'), 'it says that it waits');
    expect(stderr).toContain('tidemark: PORT:');
    expect(refused.exitCode).toBeNull();
    refused.kill('SIGTERM');
    expect(await once(refused, 'exit')).toEqual([NEEDS_A_CHANGE, null]);

    const passing = start({ DATABASE_URL: 'postgres://u@127.0.0.1:1/x', PORT: '0' });
    expect(await once(passing, 'exit')).toEqual([MAY_PASS, null]);
  });
});

describe('a start that does not end', () => {
  test('is ended by SIGTERM, within the time of a stop and with a line in the log', async () => {
    const blocked = await testDatabase('postgres18', { empty: true });
    const server = ServerProcess.begin({
      DATABASE_URL: blocked.url,
      SECRET,
      DATA_DIR: join(installation.folder, 'unused'),
      SHUTDOWN_TIMEOUT_SECONDS: '1',
    });
    try {
      await blocked.sql.begin(async (tx) => {
        // What its first migration waits for.
        await tx`CREATE TABLE apps ()`;
        await until(async () => {
          const waiting =
            await blocked.sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
          return waiting.length > 0;
        }, 'it waits');
        const { code, stderr } = await server.end('SIGTERM');
        expect(code).toBe(1);
        expect(stderr).toMatch(/"reason":"SIGTERM","msg":"Stopping"/);
        expect(stderr).toContain('shutdown: SHUTDOWN_TIMEOUT_SECONDS exceeded');
      });
    } finally {
      await blocked.drop();
    }
  });
});

describe.skipIf(process.platform !== 'linux')(
  'a service whose output cannot be written [needs /dev/full]',
  () => {
    const settings = (): Record<string, string> => ({
      DATABASE_URL: database.url,
      SECRET,
      LOG_LEVEL: 'trace',
    });

    test('serves without its log', async () => {
      const server = await ServerProcess.start(settings(), ['sh', '-c', 'exec "$@" 2>/dev/full', 'sh']);
      for (let round = 0; round < 3; round += 1)
        expect((await request(server.port, { path: '/readyz' })).status).toBe(200);
      expect((await request(server.port, { method: 'POST', path: CREATE_EVENT, body: '{' })).status).toBe(
        400,
      );
      expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
    });

    test('serves without its announcement', async () => {
      const port = await freePort();
      const server = ServerProcess.begin({ ...settings(), PORT: String(port) }, [
        'sh',
        '-c',
        'exec "$@" >/dev/full',
        'sh',
      ]);
      // From another address: a connection from 127.0.0.1 to a port without a listener may connect to itself.
      const isReady = async (): Promise<boolean> => {
        const connection = await HttpConnection.open(port, '127.0.0.2').catch(() => null);
        if (connection === null) return false;
        await connection.send({ path: '/readyz' });
        const response = await connection.response().catch(() => null);
        connection.destroy();
        return response?.status === 200;
      };
      await until(isReady, 'it serves', 30_000);
      expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
    });

    test('is none where a command cannot print its answer', async () => {
      const { code } = await new Promise<{ code: number | null }>((resolve) => {
        const command = 'exec "$0" "$1" app list >/dev/full';
        const child = spawn('sh', ['-c', command, process.execPath, LAUNCHER], {
          env: { PATH: process.env.PATH ?? '', ...settings() },
          stdio: 'ignore',
        });
        child.on('exit', (ended) => resolve({ code: ended }));
      });
      expect(code).toBe(1);
    });
  },
);

test('a rejection that nobody handles stops the service in order, with its stack in the log and exit code 1', async () => {
  const words = join(installation.folder, 'planted');
  await writeFile(words, 'nothing rejection');
  const planted = fileURLToPath(new URL('../support/planted-faults.mjs', import.meta.url));
  const server = await ServerProcess.start({
    DATABASE_URL: database.url,
    SECRET,
    LOG_LEVEL: 'info',
    NODE_OPTIONS: `--import=${planted}`,
    PLANTED_FAULTS: words,
  });
  const { code, stderr } = await server.end('SIGUSR2');
  expect(code).toBe(1);
  const lines = stderr.split('\n').filter((line) => line.startsWith('{'));
  const fatal = lines.map((line) => JSON.parse(line)).filter(({ level }) => level === 'fatal');
  expect(fatal).toMatchObject([
    { err: { message: 'the planted fault', stack: expect.stringMatching(/\.mjs:\d+/) } },
  ]);
  expect(lines.at(-1)).toContain('"Stopped"');
});

describe('on an embedded PostgreSQL', () => {
  test('a second start on the same folder finds its data, whatever the transport', async () => {
    let server = await installation.start({ LOG_LEVEL: 'fatal', HTTP_TRANSPORT: 'uws' });
    const { loggingToken } = await installation.makeApp();
    const post = async (): Promise<{ typeId: string }> => {
      const body = JSON.stringify({ loggingToken, typeName: 'kept', payload: {} });
      const response = await request(server.port, { method: 'POST', path: CREATE_EVENT, body });
      expect(response.status).toBe(201);
      return JSON.parse(response.body);
    };
    const first = await post();
    expect(await server.end('SIGTERM')).toMatchObject({ code: 0, stderr: '' });
    expect(await installation.postmaster()).toBeUndefined();
    server = await installation.start({ LOG_LEVEL: 'fatal', HTTP_TRANSPORT: 'node' });
    expect((await post()).typeId).toBe(first.typeId);
    expect(await server.end('SIGINT')).toMatchObject({ code: 0, stderr: '' });
  });

  test('a start whose port is in use leaves no PostgreSQL behind', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = String(typeof address === 'object' ? address?.port : 0);
    oneLine(await tidemarkProcess(['serve'], { ...installation.settings, PORT: port }), MAY_PASS);
    other.close();
    expect(await installation.postmaster()).toBeUndefined();
  });
});

test('a first start says in one line how many migrations it has applied, and not which', async () => {
  const empty = await testDatabase('postgres18', { empty: true });
  try {
    const started = await ServerProcess.start({
      DATABASE_URL: empty.url,
      DATA_DIR: join(installation.folder, 'first'),
      SECRET,
    });
    const { stdout, stderr } = await started.end('SIGTERM');
    const lines = (stdout + stderr).split('\n').filter((line) => line.includes('migration'));
    expect(lines).toEqual([expect.stringMatching(/"migrations":\d+,"msg":"schema: migrations applied"/)]);
  } finally {
    await empty.drop();
  }
});
