/** A redis-server for a test, in a folder and on a port of its own, which goes when the test run ends however it ends. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from './cluster.ts';
import { REDIS_SERVER } from './redis-server.ts';
import { until } from './service.ts';

/** As for PostgreSQL: when the pipe from us ends, so does Redis, whatever it was told before. */
const GUARD = `
cd "$2" || exit 1
"$1" --port "$3" --bind 127.0.0.1 --dir "$2" --pidfile "$2/pid" --save '' --appendonly no --daemonize no $4 >"$2/log" 2>&1 </dev/null &
read -r forever
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
rm -f "$2/pid"`;

export class TestRedis {
  readonly #folder: string;
  readonly #options: string;
  readonly port: number;
  #guard: ChildProcess | null = null;

  private constructor(folder: string, port: number, options: string) {
    this.#folder = folder;
    this.#options = options;
    this.port = port;
  }

  /** @param options further ones of redis-server, such as `--cluster-enabled yes` */
  static async start(options = ''): Promise<TestRedis> {
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-redis-'));
    const redis = new TestRedis(folder, await freePort(), options);
    await redis.run();
    return redis;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts it, empty, on the port that it had. */
  async run(): Promise<void> {
    if (REDIS_SERVER === undefined) throw new Error('redis-server is not installed.');
    const args = ['-c', GUARD, 'sh', REDIS_SERVER, this.#folder, String(this.port), this.#options];
    this.#guard = spawn('/bin/sh', args, { detached: true, stdio: ['pipe', 'ignore', 'inherit'] });
    await until(async () => (await this.cli('ping').catch(() => '')) === 'PONG', 'Redis answers');
  }

  /** What redis-cli prints. */
  async cli(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)('redis-cli', ['-p', String(this.port), ...args]);
    return stdout.trim();
  }

  async pid(): Promise<number> {
    return Number.parseInt(await readFile(join(this.#folder, 'pid'), 'utf8'), 10);
  }

  /** SIGSTOP: it answers nothing, and its connections stay. */
  async pause(): Promise<void> {
    process.kill(await this.pid(), 'SIGSTOP');
  }

  async resume(): Promise<void> {
    process.kill(await this.pid(), 'SIGCONT');
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    if (this.#guard === null) return;
    const ended = once(this.#guard, 'exit');
    this.#guard.stdin?.end();
    await ended;
    this.#guard = null;
  }

  async remove(): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** A Redis Cluster of three nodes without replicas. */
export async function startRedisCluster(): Promise<{ urls: string[]; remove(): Promise<void> }> {
  const nodes = await Promise.all(
    [1, 2, 3].map(async () => {
      const bus = await freePort();
      return await TestRedis.start(`--cluster-enabled yes --cluster-port ${bus} --cluster-node-timeout 2000`);
    }),
  );
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  await nodes[0]?.cli('--cluster', 'create', ...addresses, '--cluster-yes');
  for (const node of nodes)
    await until(
      async () => (await node.cli('cluster', 'info')).includes('cluster_state:ok'),
      'the cluster is up',
    );
  return {
    urls: nodes.map(({ url }) => url),
    remove: async () => {
      await Promise.all(nodes.map((node) => node.remove()));
    },
  };
}
