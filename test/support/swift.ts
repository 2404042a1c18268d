/** OpenStack Swift of Debian as a server of S3 (s3api), which checks signatures: four processes on loopback, with a folder of their own. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { swiftProgram } from './daemons.ts';
import { until } from './service.ts';

export const SWIFT_KEY_ID = 'test:tester';
export const SWIFT_SECRET = 'the-secret-of-the-tester';
export const SWIFT_REGION = 'eu-central-1';

export interface Swift {
  /** For AWS_ENDPOINT_URL. */
  readonly endpoint: string;
  stop(): Promise<void>;
}

const SERVERS = ['account', 'container', 'object'] as const;
const DEVICE = 'sdb1';

/** Swift keeps what belongs to an object in extended attributes, which the temporary folder's file system must have. */
export async function startSwift(): Promise<Swift> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-swift-'));
  const output: string[] = [];
  const children: ChildProcess[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(children.map(ended));
    await rm(folder, { recursive: true, force: true });
  };
  try {
    // A ring names the ports, so that the servers cannot choose them.
    const ports = await freePorts(SERVERS.length + 1);
    const [port = 0, ...ofServers] = ports;
    await writeSettings(folder, port, ofServers);
    for (const name of [...SERVERS, 'proxy'])
      children.push(start(name, join(folder, `${name}-server.conf`), output));
    const endpoint = `http://127.0.0.1:${port}`;
    const answers = async (): Promise<boolean> => {
      if (children.some(({ exitCode }) => exitCode !== null)) throw new Error('one of the servers has ended');
      const all = ofServers.map((one) => `http://127.0.0.1:${one}/healthcheck`);
      const statuses = await Promise.all([...all, `${endpoint}/healthcheck`].map(statusOf));
      return statuses.every((status) => status === 200);
    };
    await until(answers, 'Swift answers', 60_000);
    return { endpoint, stop };
  } catch (error) {
    await stop();
    throw new Error(`Swift does not start: ${output.join('').slice(-4_000)}`, { cause: error });
  }
}

async function statusOf(url: string): Promise<number> {
  try {
    return (await fetch(url)).status;
  } catch {
    // It does not listen yet.
    return 0;
  }
}

async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => (server.address() as AddressInfo).port); // TCP servers have one.
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}

async function writeSettings(folder: string, port: number, ports: readonly number[]): Promise<void> {
  await mkdir(join(folder, 'devices', DEVICE), { recursive: true });
  const common = (own: number): string => `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${own}
workers = 0
user = ${userInfo().username}
swift_dir = ${folder}
log_to_console = true
`;
  await writeFile(
    join(folder, 'swift.conf'),
    '[swift-hash]\nswift_hash_path_suffix = tests\nswift_hash_path_prefix = tests\n[storage-policy:0]\nname = only\ndefault = yes\n',
  );
  await writeFile(
    join(folder, 'proxy-server.conf'),
    `${common(port)}
[pipeline:main]
pipeline = catch_errors healthcheck cache listing_formats s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:s3api]
use = egg:swift#s3api
location = ${SWIFT_REGION}
# There is none: what it would keep is asked for again.
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:tempauth]
use = egg:swift#tempauth
user_${SWIFT_KEY_ID.replace(':', '_')} = ${SWIFT_SECRET} .admin
${['catch_errors', 'healthcheck', 'listing_formats', 'copy', 'slo', 'dlo'].map((name) => `[filter:${name}]\nuse = egg:swift#${name}\n`).join('')}`,
  );
  for (const [index, name] of SERVERS.entries()) {
    const own = ports[index] ?? 0;
    await writeFile(
      join(folder, `${name}-server.conf`),
      `${common(own)}devices = ${join(folder, 'devices')}
mount_check = false
disable_fallocate = true
[pipeline:main]
pipeline = healthcheck ${name}-server
[app:${name}-server]
use = egg:swift#${name}
[filter:healthcheck]
use = egg:swift#healthcheck
`,
    );
    const ring = join(folder, `${name}.builder`);
    for (const args of [
      ['create', '0', '1', '1'],
      ['add', `r1z1-127.0.0.1:${own}/${DEVICE}`, '1'],
      ['rebalance'],
    ])
      await promisify(execFile)(swiftProgram('swift-ring-builder'), [ring, ...args]);
  }
}

function start(name: string, settings: string, output: string[]): ChildProcess {
  const child = spawn(swiftProgram(`swift-${name}-server`), [settings], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => output.push(chunk.toString()));
  return child;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}
