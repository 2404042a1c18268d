/** Starts the service and what it is compared with, each ready to be measured. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { loadUws } from '../src/http/uws.ts';
import { type Contender, createRequest } from './measure.ts';
import { cpuOf } from './process-usage.ts';
import { Spawned } from './spawned.ts';
import type { BenchApp, Workbench } from './workbench.ts';

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
export async function startRedis(bench: Workbench, options: readonly string[]): Promise<Spawned | null> {
  const command = findProgram('redis-server');
  if (command === null) return null;
  const args = ['--dir', bench.folder, '--save', '', '--daemonize', 'no', ...options];
  return bench.keep(await Spawned.start({ command, args, env: {}, listens: /eady to accept connections/ }));
}

/** @returns its path; null where it is not installed */
export function findProgram(name: string): string | null {
  const folders = (process.env.PATH ?? '').split(':').filter((folder) => folder !== '');
  return (
    ['/usr/lib/postgresql/15/bin', ...folders].map((folder) => join(folder, name)).find(existsSync) ?? null
  );
}
