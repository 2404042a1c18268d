/** Server and database are killed under load; what was acknowledged is there, once, and nothing else is. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { LAUNCHER } from '../support/command-line.ts';
import { first } from '../support/fuzz.ts';
import { HttpConnection } from '../support/http-client.ts';
import { Ledger } from '../support/ledger.ts';
import { patient } from '../support/patience.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { until } from '../support/service.ts';
import { childrenOf, Installation, isAlive, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(90_000), hookTimeout: patient(60_000) });

const PRODUCERS = 32;
const FLAWLESS = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

let installation: Installation;
let server: ServerProcess;
let loggingToken: string;

beforeAll(async () => {
  installation = await Installation.make();
  server = await installation.start({ LOG_LEVEL: 'fatal' });
  ({ loggingToken } = await installation.makeApp());
});

afterAll(() => installation.remove());

test('security 22: kill -9 of the server, of PostgreSQL and of both loses nothing acknowledged and stores nothing twice', async () => {
  let isUp = true;
  const ledger = new Ledger({ loggingToken, typeName: 'killed', port: () => (isUp ? server.port : null) });
  /** So many more acknowledged: whatever was broken works again. */
  const progress = async (events: number): Promise<void> => {
    const goal = ledger.acknowledged + events;
    await until(() => ledger.acknowledged >= goal, `${events} more events are acknowledged`, 30_000);
  };
  const restart = async (): Promise<void> => {
    isUp = false;
    await server.end('SIGKILL');
    server = await installation.start({ LOG_LEVEL: 'fatal' });
    isUp = true;
  };
  ledger.start(PRODUCERS);
  await progress(500);
  await restart();
  await progress(500);
  await installation.killPostgres();
  await progress(500);
  await installation.killAllOfPostgres();
  await progress(500);
  await installation.killPostgres();
  await restart();
  await progress(500);
  await ledger.stop();
  expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  expect(await installation.compare(ledger)).toEqual(FLAWLESS);
});

test('security 26: SIGTERM under load: every request in flight is answered, what was acknowledged is there, the exit code is 0', async () => {
  server = await installation.start({ LOG_LEVEL: 'fatal' });
  const ledger = new Ledger({ loggingToken, typeName: 'stopped', port: () => server.port });
  ledger.start(PRODUCERS);
  await until(() => ledger.acknowledged > 500 && ledger.inFlight > PRODUCERS / 2, 'there is load');
  const answered = ledger.stop();
  const { code, stderr } = await server.end('SIGTERM');
  await answered;
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(ledger.unanswered).toBe(0);
  expect(await installation.compare(ledger)).toEqual(FLAWLESS);
});

test.each(first(['SIGTERM', 'SIGINT', 'SIGHUP'] as const))(
  'security 26: %s to the process group of npm start under load, which npm passes on: all are answered, and PostgreSQL ends',
  async (signal) => {
    for (let round = 0; round < 3; round += 1) {
      let output = '';
      const npm: ChildProcess = spawn('npm', ['start'], {
        cwd: dirname(LAUNCHER),
        env: { PATH: process.env.PATH ?? '', PORT: '0', LOG_LEVEL: 'info', ...installation.settings },
        detached: true,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      for (const stream of [npm.stdout, npm.stderr]) stream?.on('data', (text: Buffer) => (output += text));
      const ended = once(npm, 'close');
      await until(() => /listens on/.test(output), 'it listens', 60_000);
      const port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(output)?.[1]);
      const ledger = new Ledger({ loggingToken, typeName: `${signal} ${round}`, port: () => port });
      ledger.start(PRODUCERS);
      const goal = ledger.acknowledged + 100;
      await until(() => ledger.acknowledged > goal && ledger.inFlight > PRODUCERS / 2, 'there is load');
      const answered = ledger.stop();
      process.kill(-(npm.pid ?? Number.NaN), signal);
      await answered;
      await ended;
      expect(output).toContain('"msg":"Stopped"');
      expect(await installation.postmaster()).toBeUndefined();
      expect(ledger.unanswered).toBe(0);
      expect(await installation.compare(ledger)).toEqual(FLAWLESS);
    }
  },
);

test.each(REDIS_SERVER === undefined ? ['1'] : ['1', '2'])(
  'PostgreSQL does not outlive kill -9 of the service, WORKERS=%s',
  async (workers) => {
    const redis = workers === '1' ? null : await TestRedis.start();
    try {
      const settings = { LOG_LEVEL: 'fatal', WORKERS: workers, REDIS_URL: redis?.url ?? '' };
      const killed = await installation.start(settings);
      const postmaster = (await installation.postmaster()) ?? 0;
      const children = childrenOf(killed.pid);
      await killed.end('SIGKILL');
      await until(() => !isAlive(postmaster), 'PostgreSQL has ended', 60_000);
      await until(() => !children.some(isAlive), 'workers and guard have ended', 60_000);
    } finally {
      await redis?.remove();
    }
  },
);

test('a second signal ends the service once the first is two seconds old, and PostgreSQL ends too', async () => {
  server = await installation.start({ LOG_LEVEL: 'fatal' });
  const postmaster = (await installation.postmaster()) ?? 0;
  const unfinished = await HttpConnection.open(server.port);
  await unfinished.write('POST /public/create_event HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{');
  let isOver = false;
  const end = server.ended.finally(() => {
    isOver = true;
  });
  await until(() => {
    server.signal('SIGTERM');
    return isOver;
  }, 'it has ended');
  expect(await end).toMatchObject({ code: 1 });
  await until(() => !isAlive(postmaster), 'PostgreSQL has ended', 60_000);
});
