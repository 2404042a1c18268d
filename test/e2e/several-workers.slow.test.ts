/** Several real processes, on one port or on several, over one database and one Redis. */
import { describe, expect, test, vi } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { connectionsOf } from '../../src/service.ts';
import { type Outcome, tidemarkProcess } from '../support/command-line.ts';
import { atNight, first, isLong } from '../support/fuzz.ts';
import { request } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { until } from '../support/service.ts';
import { isAlive, type ServerProcess } from './server-process.ts';
import { FLAWLESS, linesOf, pidsOf, Servers } from './servers.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const servers = new Servers();

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

describe('a start with workers that fails prints one line, and its exit code says whether a retry may succeed:', () => {
  const serve = (more: Record<string, string>): Promise<Outcome> =>
    tidemarkProcess(['serve'], servers.settings({ WORKERS: '2', PORT: '0', ...more }));

  test('without Redis, whose limits are common to all', async () => {
    expect(oneLine(await serve({ REDIS_URL: '' }), NEEDS_A_CHANGE)).toMatch(/WORKERS.*REDIS_URL/);
  });

  test.runIf(REDIS_SERVER !== undefined && isLong)('other workers have the port', async () => {
    const server = await servers.start({ WORKERS: '2', LOG_LEVEL: 'fatal' });
    expect(oneLine(await serve({ PORT: String(server.port) }), MAY_PASS)).toMatch('in use');
  });

  test.skipIf(REDIS_SERVER === undefined)('more of them than the database has connections for', async () => {
    expect(oneLine(await serve({ WORKERS: '60' }), NEEDS_A_CHANGE)).toMatch(
      new RegExp(
        `WORKERS: 60 processes use up to ${60 * connectionsOf(readConfig({}))} connections.*max_connections`,
      ),
    );
  });
});

describe.skipIf(REDIS_SERVER === undefined)('workers on one port:', () => {
  describe.each(first(['uws', 'node'] as const))('over %s,', (transport) => {
    test('all of them serve, their logs name them, and SIGTERM drains them all under load', async () => {
      const server = await servers.start({ WORKERS: '2', HTTP_TRANSPORT: transport });
      await until(async () => (await processesOf(server.port, 20)) === 2, 'both have answered');
      expect(new Set(linesOf(server).flatMap(({ worker }) => worker ?? []))).toEqual(new Set([1, 2]));
      const ledger = servers.ledger('drained', () => server.port);
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
      expect(await ledger.compare(servers.database.sql)).toEqual(FLAWLESS);
    });
  });

  atNight('a stop does not wait for a worker that has just died for longer than for the others', async () => {
    const server = await servers.start({ WORKERS: '3', LOG_LEVEL: 'debug' });
    await until(() => pidsOf(server).length === 3, 'three serve');
    const workers = pidsOf(server);
    // All of it reaches the primary at once: it stops before it has seen its worker's end.
    server.signal('SIGSTOP');
    process.kill(workers[1] ?? 0, 'SIGKILL');
    server.signal('SIGTERM');
    server.signal('SIGCONT');
    // Not by a second signal, which ends it at once where it comes after the first has been taken.
    const { code, stderr } = await server.ended;
    // Not all of them have drained.
    expect(code).toBe(1);
    expect(stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'))).toEqual([]);
    expect(workers.filter(isAlive)).toEqual([]);
    // Two workers, and the primary.
    expect(linesOf(server).filter(({ msg }) => msg === 'Stopped').length).toBe(3);
  });
});

atNight('two servers on one database without Redis each say that limits are per process', async () => {
  const without = { REDIS_URL: '' };
  const neighbors = (server: ServerProcess): number =>
    linesOf(server).filter(({ msg }) => msg.includes('limits are per process')).length;
  const first = await servers.start(without);
  await until(() => linesOf(first).length > 0, 'the first one logs');
  expect(neighbors(first)).toBe(0);
  const second = await servers.start(without);
  await until(() => neighbors(first) === 1 && neighbors(second) === 1, 'both have said so');
});
