/** Several real processes that are killed, restarted and cut off from Redis under load. */
import { describe, expect, test, vi } from 'vitest';
import { tidemark } from '../support/command-line.ts';
import { atNight, sized } from '../support/fuzz.ts';
import { HttpConnection, request } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { until } from '../support/service.ts';
import { isAlive, type ServerProcess } from './server-process.ts';
import { FLAWLESS, linesOf, pidsOf, Servers } from './servers.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const servers = new Servers();

describe.skipIf(REDIS_SERVER === undefined)('workers on one port:', () => {
  test('a rolling restart under load loses and doubles nothing, and so does kill -9 of each', async () => {
    const workers = sized(2, 3);
    const server = await servers.start({ WORKERS: String(workers) });
    await until(() => pidsOf(server).length === workers, 'all serve');
    const ledger = servers.ledger('rolled', () => server.port);
    ledger.start(24);
    const progress = async (events: number): Promise<void> => {
      const goal = ledger.acknowledged + events;
      await until(() => ledger.acknowledged >= goal, `${events} more events are acknowledged`, 30_000);
    };
    await progress(300);
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      for (const pid of pidsOf(server).slice(-workers)) {
        const before = pidsOf(server).length;
        process.kill(pid, signal);
        await until(() => pidsOf(server).length > before, `another serves after ${signal}`, 30_000);
        await progress(100);
      }
    }
    await ledger.stop();
    expect(pidsOf(server).length).toBe(3 * workers);
    expect([...ledger.statuses.keys()].filter((status) => status !== 201)).toEqual([]);
    expect(await ledger.compare(servers.database.sql)).toEqual(FLAWLESS);
    const replaced = linesOf(server).filter(({ msg }) => msg.startsWith('worker: ended'));
    const levels = ['info', 'warn'].flatMap((level) => Array.from({ length: workers }, () => level));
    expect(replaced.map(({ level }) => level)).toEqual(levels);
  });

  atNight('a worker that keeps ending is started again less and less often', async () => {
    const server = await servers.start({ WORKERS: '2' });
    await until(() => pidsOf(server).length === 2, 'both serve');
    for (let round = 0; round < 4; round += 1) {
      const before = pidsOf(server).length;
      process.kill(pidsOf(server).at(-1) ?? 0, 'SIGKILL');
      await until(() => pidsOf(server).length > before, 'another serves', 30_000);
    }
    const waits = server.stderr.match(/(?<="inMs":)\d+/g)?.map(Number);
    expect(waits).toEqual([100, 200, 400, 800]);
  });

  test('when the primary is killed its workers drain and end, and the port is free', async () => {
    const server = await servers.start({ WORKERS: '2' });
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
  atNight(
    'of 45 passwords tried at once for one account few more are checked than by one of them',
    async () => {
      const ports = (await servers.startThree()).map(({ port }) => port);
      const body = JSON.stringify({ email: 'owner@example.com', password: 'a guess of this password' });
      const answers = await Promise.all(
        Array.from({ length: 45 }, (_, index) =>
          request(ports[index % 3] ?? 0, { method: 'POST', path: '/api/session', body }),
        ),
      );
      const statuses = answers.map(({ status }) => status);
      expect(new Set(statuses)).toEqual(new Set([401, 429]));
      const checked = statuses.filter((status) => status === 401).length;
      // Five, and one more after each wait: of 1, 2, 4, 8 and 16 s, in which even a slow machine has accepted all. Alone each checks five.
      expect(checked).toBeGreaterThanOrEqual(5);
      expect(checked).toBeLessThan(10);
    },
  );

  test('a token that is revoked or rotated by the command line is refused by all of them', async () => {
    const all = await servers.startThree();
    const env = servers.settings();
    const run = async (...args: string[]): Promise<Record<string, string>> => {
      const { code, stdout, stderr } = await tidemark([...args, '--json'], env);
      if (code !== 0) throw new Error(stderr);
      return JSON.parse(stdout);
    };
    const { tokenId = '', resourceToken } = await run(
      'token',
      'create',
      '--name',
      'T',
      '--app',
      servers.appId,
    );
    const read = ({ port }: ServerProcess): Promise<{ status: number }> =>
      request(port, {
        method: 'GET',
        path: `/public/get_events?appId=${servers.appId}`,
        headers: { Authorization: `Bearer ${resourceToken}` },
      });
    for (const server of all) {
      expect((await read(server)).status).toBe(200);
      expect((await servers.post(server.port)).status).toBe(201);
    }
    await run('token', 'revoke', tokenId);
    const everywhere = async (
      status: number,
      ask: (server: ServerProcess) => Promise<{ status: number }>,
    ): Promise<boolean> => (await Promise.all(all.map(ask))).every((answer) => answer.status === status);
    await until(() => everywhere(401, read), 'the resource token is refused everywhere');
    await run('app', 'rotate-token', '--app', servers.appId, '--grace', '0');
    await until(
      () => everywhere(401, ({ port }) => servers.post(port)),
      'the logging token is refused everywhere',
    );
  });

  test('security 25: Redis paused, killed and started again in the middle: every post is answered, and limits are shared again', async () => {
    const all = await servers.startThree({ CREATE_LIMIT_PER_MINUTE: '1000000', REDIS_TIMEOUT_MS: '200' });
    const SHARED = 'limits: shared through Redis';
    const AWAY = 'limits: Redis unavailable, limiting per process';
    const isLast = (message: string): boolean =>
      all.every(
        (server) =>
          linesOf(server)
            .filter(({ msg }) => msg === SHARED || msg === AWAY)
            .at(-1)?.msg === message,
      );
    await until(() => isLast(SHARED), 'limits are shared');
    const ledgers = all.map(({ port }, index) => servers.ledger(`redis ${index}`, () => port));
    for (const ledger of ledgers) ledger.start(8);
    const progress = async (): Promise<void> => {
      const goals = ledgers.map(({ acknowledged }) => acknowledged + 50);
      await until(
        () => ledgers.every((ledger, index) => ledger.acknowledged >= (goals[index] ?? 0)),
        'posts go on',
      );
    };
    await progress();
    await servers.redis.pause();
    await until(() => isLast(AWAY), 'each says that Redis is away');
    await progress();
    await servers.redis.resume();
    await until(() => isLast(SHARED), 'limits are shared after the pause');
    await servers.redis.kill();
    await until(() => isLast(AWAY), 'each says that Redis is away');
    await progress();
    await servers.redis.run();
    await until(() => isLast(SHARED), 'limits are shared after the restart');
    await progress();
    await Promise.all(ledgers.map((ledger) => ledger.stop()));
    for (const ledger of ledgers) {
      expect([...ledger.statuses.keys()]).toEqual([201]);
      expect(ledger.unanswered).toBe(0);
    }
    const [row] = await servers.database.sql`SELECT count(*)::int AS events FROM events`;
    expect(row?.events).toBe(ledgers.reduce((sum, { acknowledged }) => sum + acknowledged, 0));
  });
});
