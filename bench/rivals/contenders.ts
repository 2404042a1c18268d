/** Starts the service and what it is compared with, each ready to be measured. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { loadUws } from '../../src/http/uws.ts';
import type { Findings } from '../findings.ts';
import type { LoadRequest } from '../load/load-job.ts';
import { type Contender, createRequest } from '../measure.ts';
import { cpuOf, cpuOfFamily } from '../servers/process-usage.ts';
import { Spawned } from '../servers/spawned.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

/** What the service listens with here: Nodes that uWebSockets.js has no binary for get node:http, and so does the floor. */
export async function transport(): Promise<'uWebSockets.js' | 'node:http'> {
  return await loadUws().then(
    () => 'uWebSockets.js' as const,
    () => 'node:http' as const,
  );
}

/** What a common event carries. */
export const SMALL_PAYLOAD_BYTES = 180;

export async function startFloor(
  bench: Workbench,
  app: BenchApp,
  bytes = SMALL_PAYLOAD_BYTES,
): Promise<Contender> {
  const { port, pid } = await bench.startContender('floor', { BENCH_TRANSPORT: await transport() });
  return { name: 'floor', port, pid, requests: [createRequest(app, bytes)] };
}

export async function startNaive(
  bench: Workbench,
  app: BenchApp,
  bytes = SMALL_PAYLOAD_BYTES,
): Promise<Contender> {
  const { port, pid } = await bench.startContender('naive');
  return { name: 'naive', port, pid, requests: [createRequest(app, bytes)] };
}

/** The service with its limits lifted, so that one app may send as much as it likes. */
export async function startLifted(bench: Workbench, app: BenchApp): Promise<Contender> {
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  return { name: 'tidemark', port, pid, requests: [createRequest(app, SMALL_PAYLOAD_BYTES)] };
}

/**
 * The service with its limits lifted, as so many processes on one port.
 * @param counts each is a service of its own
 * @returns those of more than one process only where there is a redis-server
 */
export async function startWorkers(
  bench: Workbench,
  counts: readonly number[],
  requests: readonly LoadRequest[],
  findings: Findings,
): Promise<Contender[]> {
  const redis = await startForgetfulRedis(bench);
  if (redis === null) findings.note('Skipped: more than one process, as there is no redis-server.');
  const contenders: Contender[] = [];
  for (const count of redis === null ? counts.filter((one) => one === 1) : counts) {
    const settings = { WORKERS: String(count), READ_CONNECTIONS: '1', REDIS_URL: redis?.url ?? '' };
    const { port, pid } = await bench.startService({ limits: 'lifted', settings });
    const name = count === 1 ? 'one process' : `${count} processes`;
    contenders.push({ name, port, pid, requests, serverCpu: () => cpuOfFamily(pid) });
  }
  return contenders;
}

export async function startInsertRival(bench: Workbench, app: BenchApp): Promise<Contender> {
  const { port, pid } = await bench.startContender('rival-insert');
  const requests = [createRequest(app, SMALL_PAYLOAD_BYTES)];
  return { name: 'INSERT every 5 ms', port, pid, requests };
}

export interface RedisRival extends Contender {
  readonly socket: string;
}

/** @returns null where there is no redis-server */
export async function startRedisRival(bench: Workbench, app: BenchApp): Promise<RedisRival | null> {
  const socket = join(bench.folder, 'redis.sock');
  const durable = ['--appendonly', 'yes', '--appendfsync', 'always'];
  const redis = await startRedis(bench, ['--port', '0', '--unixsocket', socket, ...durable]);
  if (redis === null) return null;
  const { port, pid } = await bench.startContender('rival-redis', { BENCH_REDIS: socket });
  const requests = [createRequest(app, SMALL_PAYLOAD_BYTES)];
  return { name: 'Redis XADD', port, pid, requests, socket, databaseCpu: () => cpuOf(redis.pid) };
}

/** @returns the server, which ends with the scenario; null where there is no redis-server */
async function startRedis(bench: Workbench, options: readonly string[]): Promise<Spawned | null> {
  const command = findProgram('redis-server');
  if (command === null) return null;
  const args = ['--dir', bench.folder, '--save', '', '--daemonize', 'no', ...options];
  return bench.keep(await Spawned.start({ command, args, env: {}, listens: /eady to accept connections/ }));
}

/** Redis as the limiter uses it, on a port of its own. @returns null where there is no redis-server */
export async function startForgetfulRedis(bench: Workbench): Promise<(Spawned & { url: string }) | null> {
  const port = await freePort();
  const address = ['--port', String(port), '--bind', '127.0.0.1'];
  const redis = await startRedis(bench, [...address, '--appendonly', 'no']);
  return redis && Object.assign(redis, { url: `redis://127.0.0.1:${port}` });
}

/** A free TCP port. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('There is no TCP port.');
  return address.port;
}

/** @returns its path; null where it is not installed */
export function findProgram(name: string): string | null {
  const folders = (process.env.PATH ?? '').split(':').filter((folder) => folder !== '');
  return (
    ['/usr/lib/postgresql/15/bin', ...folders].map((folder) => join(folder, name)).find(existsSync) ?? null
  );
}
