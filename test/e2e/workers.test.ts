/** Several real processes, on one port or on several, over one database and one Redis. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { readConfig } from '../../src/config.ts';
import { connectionsOf } from '../../src/service.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { HttpConnection, request } from '../support/http-client.ts';
import { Ledger } from '../support/ledger.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { CREATE_EVENT, testSecret, until } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 });

const SECRET = 'the secret of the tests, 32 characters';
const FLAWLESS = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

let redis: TestRedis;
let database: TestDatabase;
let loggingToken: string;
let appId: string;
const servers: ServerProcess[] = [];

beforeAll(async () => {
  // Whichever test comes first must not be the one whose standard error shows the build.
  await tidemark(['--build-only']);
  if (REDIS_SERVER !== undefined) redis = await TestRedis.start();
});
afterAll(() => redis?.remove());
beforeEach(async () => {
  database = await testDatabase();
  ({ appId, loggingToken } = await createApp(database.sql, await testSecret(), { name: 'Workers' }));
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.end('SIGTERM');
  await database.drop();
});

/** No limit, and a Redis that may be slow, unless a test says otherwise: the machine is busy with other tests. */
const settings = (more: Record<string, string> = {}): Record<string, string> => ({
  DATABASE_URL: database.url,
  SECRET,
  CREATE_LIMIT_PER_MINUTE: '0',
  REDIS_URL: redis?.url ?? '',
  REDIS_TIMEOUT_MS: '5000',
  ...more,
});

const start = async (more: Record<string, string> = {}): Promise<ServerProcess> => {
  const server = await ServerProcess.start(settings(more));
  servers.push(server);
  return server;
};

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly worker?: number;
  readonly pid?: number;
}

const linesOf = ({ stderr }: ServerProcess): Line[] =>
  stderr
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line): Line => JSON.parse(line));

/** Process ids of the workers, those of earlier ones before their successors'. */
const pidsOf = (server: ServerProcess): number[] =>
  linesOf(server).flatMap(({ msg, pid }) => (msg === 'Serving' && pid !== undefined ? [pid] : []));

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const post = (port: number, fields: object = {}): Promise<{ status: number }> =>
  request(port, {
    method: 'POST',
    path: CREATE_EVENT,
    body: JSON.stringify({ loggingToken, typeName: 'posted', payload: {}, ...fields }),
  });

/** The processes that answer on a port: each has a beginning of request ids of its own. */
async function processesOf(port: number, connections: number): Promise<number> {
  const answers = await Promise.all(
    Array.from({ length: connections }, () => request(port, { method: 'GET', path: '/livez' })),
  );
  return new Set(answers.map(({ headers }) => headers['x-request-id']?.slice(0, 8))).size;
}

/** Exit codes of a start that was refused: it may pass, or somebody must change something first. */
const MAY_PASS = 1;
const NEEDS_A_CHANGE = 78;

function oneLine({ code, stdout, stderr }: Outcome, expected: number): string {
  const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
  expect({ code, stdout, lines: lines.length }, stderr).toEqual({ code: expected, stdout: '', lines: 1 });
  return lines[0] ?? '';
}

describe('a start with workers that can not be is one clear line, and an exit code that says whether it may pass:', () => {
  const serve = (more: Record<string, string>): Promise<Outcome> =>
    tidemark(['serve'], settings({ WORKERS: '2', PORT: '0', ...more }));

  test('without Redis, whose limits are common to all', async () => {
    expect(oneLine(await serve({ REDIS_URL: '' }), NEEDS_A_CHANGE)).toMatch(/WORKERS.*REDIS_URL/);
  });

  test('the address of Redis is none, and its password is not shown', async () => {
    const outcome = await serve({ REDIS_URL: 'http://:hidden-password@localhost' });
    expect(oneLine(outcome, NEEDS_A_CHANGE)).toContain('REDIS_URL');
    expect(outcome.stderr).not.toContain('hidden-password');
  });

  test.skipIf(REDIS_SERVER === undefined)('the port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = String(typeof address === 'object' ? address?.port : 0);
    try {
      expect(oneLine(await serve({ PORT: port }), MAY_PASS)).toMatch(new RegExp(`${port}.*in use.*PORT`));
    } finally {
      other.close();
    }
  });

  test.skipIf(REDIS_SERVER === undefined)('other workers have the port', async () => {
    const server = await start({ WORKERS: '2', LOG_LEVEL: 'fatal' });
    expect(oneLine(await serve({ PORT: String(server.port) }), MAY_PASS)).toMatch('in use');
  });

  test.skipIf(REDIS_SERVER === undefined)('more of them than the database has connections for', async () => {
    expect(oneLine(await serve({ WORKERS: '60' }), NEEDS_A_CHANGE)).toMatch(
      new RegExp(
        `WORKERS: 60 processes use up to ${60 * connectionsOf(readConfig({}))} connections.*max_connections`,
      ),
    );
  });

  test.skipIf(REDIS_SERVER === undefined)('the database has no connections left for them', async () => {
    const { sql } = database;
    const role = `few_${process.pid}`;
    await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'few' CONNECTION LIMIT 2`);
    await sql.unsafe(`GRANT tidemark TO ${role}`);
    await sql.unsafe(`ALTER ROLE ${role} SET role = tidemark`);
    const url = new URL(database.url);
    url.username = role;
    url.password = 'few';
    try {
      expect(oneLine(await serve({ DATABASE_URL: url.href }), MAY_PASS)).toMatch(/too many connections/);
    } finally {
      await sql.unsafe(`DROP ROLE ${role}`);
    }
  });
});

describe.skipIf(REDIS_SERVER === undefined)('workers on one port:', () => {
  describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
    test('all of them serve, their logs name them, and SIGTERM drains them all under load', async () => {
      const server = await start({ WORKERS: '2', HTTP_TRANSPORT: transport });
      await until(async () => (await processesOf(server.port, 20)) === 2, 'both have answered');
      expect(new Set(linesOf(server).flatMap(({ worker }) => worker ?? []))).toEqual(new Set([1, 2]));
      const ledger = new Ledger({ loggingToken, typeName: 'drained', port: () => server.port });
      ledger.start(16);
      await until(() => ledger.acknowledged > 200, 'there is load');
      const workers = pidsOf(server);
      const answered = ledger.stop();
      // As Ctrl-C does: the signal reaches every process.
      for (const pid of workers) process.kill(pid, 'SIGINT');
      const { code } = await server.end('SIGINT');
      await answered;
      expect(code).toBe(0);
      expect(workers.filter(isAlive)).toEqual([]);
      expect(ledger.unanswered).toBe(0);
      expect(await ledger.compare(database.sql)).toEqual(FLAWLESS);
    });
  });

  test('a rolling restart under load loses and doubles nothing, and so does kill -9 of each', async () => {
    const server = await start({ WORKERS: '3' });
    await until(() => pidsOf(server).length === 3, 'three serve');
    const ledger = new Ledger({ loggingToken, typeName: 'rolled', port: () => server.port });
    ledger.start(24);
    const progress = async (events: number): Promise<void> => {
      const goal = ledger.acknowledged + events;
      await until(() => ledger.acknowledged >= goal, `${events} more events are acknowledged`, 30_000);
    };
    await progress(300);
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      for (const pid of pidsOf(server).slice(-3)) {
        const before = pidsOf(server).length;
        process.kill(pid, signal);
        await until(() => pidsOf(server).length > before, `another serves after ${signal}`, 30_000);
        await progress(100);
      }
    }
    await ledger.stop();
    expect(pidsOf(server).length).toBe(9);
    expect([...ledger.statuses.keys()].filter((status) => status !== 201)).toEqual([]);
    expect(await ledger.compare(database.sql)).toEqual(FLAWLESS);
    const replaced = linesOf(server).filter(({ msg }) => msg.startsWith('A worker has ended'));
    expect(replaced.map(({ level }) => level)).toEqual(['info', 'info', 'info', 'warn', 'warn', 'warn']);
  });

  test('a worker that keeps ending is started again less and less often', async () => {
    const server = await start({ WORKERS: '2' });
    for (let round = 0; round < 4; round += 1) {
      const before = pidsOf(server).length;
      process.kill(pidsOf(server).at(-1) ?? 0, 'SIGKILL');
      await until(() => pidsOf(server).length > before, 'another serves', 30_000);
    }
    const waits = server.stderr.match(/(?<="inMs":)\d+/g)?.map(Number);
    expect(waits).toEqual([100, 200, 400, 800]);
  });

  test('a stop waits for a worker that can not be told, because it has just died, no longer than for the others', async () => {
    const server = await start({ WORKERS: '3', LOG_LEVEL: 'debug' });
    await until(() => pidsOf(server).length === 3, 'three serve');
    const workers = pidsOf(server);
    // All of it reaches the primary at once: it stops before it has seen its worker's end.
    server.signal('SIGSTOP');
    process.kill(workers[1] ?? 0, 'SIGKILL');
    server.signal('SIGTERM');
    server.signal('SIGCONT');
    const { code, stderr } = await server.end('SIGTERM');
    // Not all of them have drained.
    expect(code).toBe(1);
    expect(stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'))).toEqual([]);
    expect(workers.filter(isAlive)).toEqual([]);
    // Two workers, and the primary.
    expect(linesOf(server).filter(({ msg }) => msg === 'Stopped').length).toBe(3);
  });

  test('when the primary is killed its workers drain and end, and the port is free', async () => {
    const server = await start({ WORKERS: '2' });
    await until(() => pidsOf(server).length === 2, 'both serve');
    const workers = pidsOf(server);
    const connection = await HttpConnection.open(server.port);
    await connection.send({ path: '/livez' });
    expect((await connection.response()).status).toBe(200);
    await server.end('SIGKILL');
    await until(() => !workers.some(isAlive), 'they have ended');
    expect(linesOf(server).filter(({ msg }) => msg === 'Stopped').length).toBe(2);
    await expect(HttpConnection.open(server.port)).rejects.toThrow();
  });
});

describe.skipIf(REDIS_SERVER === undefined)('three servers on one database and one Redis:', () => {
  const three = async (more: Record<string, string> = {}): Promise<ServerProcess[]> =>
    Promise.all([1, 2, 3].map(() => start({ CREATE_LIMIT_PER_MINUTE: '1000', ...more })));

  test('of 1,001 posts at once exactly 1,000 are accepted', async () => {
    const [first, ...others] = await three();
    const ports = [first, ...others].map((server) => server?.port ?? 0);
    const answers = await Promise.all(
      Array.from({ length: 1_001 }, (_, index) => post(ports[index % 3] ?? 0)),
    );
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses.filter((status) => status === 201).length).toBe(1_000);
    expect(statuses.at(-1)).toBe(429);
    const [row] = await database.sql`SELECT count(*)::int AS events FROM events`;
    expect(row?.events).toBe(1_000);
  });

  test('security 25: Redis paused, killed and started again in the middle: every post is answered, and limits are shared again', async () => {
    const all = await three({ CREATE_LIMIT_PER_MINUTE: '1000000', REDIS_TIMEOUT_MS: '200' });
    const SHARED = 'Limits are shared through Redis';
    const AWAY = 'Redis is away: until it is back, limits are per process';
    const isLast = (message: string): boolean =>
      all.every(
        (server) =>
          linesOf(server)
            .filter(({ msg }) => msg === SHARED || msg === AWAY)
            .at(-1)?.msg === message,
      );
    await until(() => isLast(SHARED), 'limits are shared');
    const ledgers = all.map(
      ({ port }, index) => new Ledger({ loggingToken, typeName: `redis ${index}`, port: () => port }),
    );
    for (const ledger of ledgers) ledger.start(8);
    const progress = async (): Promise<void> => {
      const goals = ledgers.map(({ acknowledged }) => acknowledged + 50);
      await until(
        () => ledgers.every((ledger, index) => ledger.acknowledged >= (goals[index] ?? 0)),
        'posts go on',
      );
    };
    await progress();
    await redis.pause();
    await until(() => isLast(AWAY), 'each says that Redis is away');
    await progress();
    await redis.resume();
    await until(() => isLast(SHARED), 'limits are shared after the pause');
    await redis.kill();
    await until(() => isLast(AWAY), 'each says that Redis is away');
    await progress();
    await redis.run();
    await until(() => isLast(SHARED), 'limits are shared after the restart');
    await progress();
    await Promise.all(ledgers.map((ledger) => ledger.stop()));
    for (const ledger of ledgers) {
      expect([...ledger.statuses.keys()]).toEqual([201]);
      expect(ledger.unanswered).toBe(0);
    }
    const [row] = await database.sql`SELECT count(*)::int AS events FROM events`;
    expect(row?.events).toBe(ledgers.reduce((sum, { acknowledged }) => sum + acknowledged, 0));
  });

  test('a token that is revoked or rotated by the command line is refused by all of them within a second', async () => {
    const all = await three();
    const env = settings();
    const run = async (...args: string[]): Promise<Record<string, string>> => {
      const { code, stdout, stderr } = await tidemark([...args, '--json'], env);
      if (code !== 0) throw new Error(stderr);
      return JSON.parse(stdout);
    };
    const { tokenId = '', resourceToken } = await run('token', 'create', '--name', 'T', '--app', appId);
    const read = ({ port }: ServerProcess): Promise<{ status: number }> =>
      request(port, {
        method: 'GET',
        path: `/public/get_events?appId=${appId}`,
        headers: { Authorization: `Bearer ${resourceToken}` },
      });
    for (const server of all) {
      expect((await read(server)).status).toBe(200);
      expect((await post(server.port)).status).toBe(201);
    }
    await run('token', 'revoke', tokenId);
    const everywhere = async (
      status: number,
      ask: (server: ServerProcess) => Promise<{ status: number }>,
    ): Promise<boolean> => (await Promise.all(all.map(ask))).every((answer) => answer.status === status);
    await until(() => everywhere(401, read), 'the resource token is refused everywhere', 1_000);
    await run('app', 'rotate-token', '--app', appId, '--grace', '0');
    await until(
      () => everywhere(401, ({ port }) => post(port)),
      'the logging token is refused everywhere',
      1_000,
    );
  });
});

test('two servers on one database without Redis each say that limits are per process', async () => {
  const without = { REDIS_URL: '' };
  const neighbours = (server: ServerProcess): number =>
    linesOf(server).filter(({ msg }) => msg.includes('limits are per process')).length;
  const first = await start(without);
  await until(() => linesOf(first).length > 0, 'the first one logs');
  expect(neighbours(first)).toBe(0);
  const second = await start(without);
  await until(() => neighbours(first) === 1 && neighbours(second) === 1, 'both have said so');
});
