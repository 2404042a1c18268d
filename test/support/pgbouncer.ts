/** PgBouncer in front of a test's database, in a folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './cluster.ts';

const PROGRAM = ['/usr/sbin/pgbouncer', '/usr/local/bin/pgbouncer'].find((path) => existsSync(path));

export const hasPgBouncer = PROGRAM !== undefined;

export interface PgBouncer {
  /** A DATABASE_URL that leads through it. */
  readonly url: string;
  stop(): Promise<void>;
}

/**
 * Starts PgBouncer in front of a database.
 * @param url     the database, by TCP and with a password
 * @param options.mode    session, transaction or statement
 * @param options.lenient whether it ignores the session parameters that a client asks for at its start
 */
export async function startPgBouncer(
  url: string,
  options: { readonly mode: string; readonly lenient: boolean },
): Promise<PgBouncer> {
  const { hostname, port, username, password, pathname } = new URL(url);
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-pgbouncer-'));
  const listen = await freePort();
  const database = pathname.slice(1);
  const lines = [
    '[databases]',
    `${database} = host=${hostname} port=${port} user=${username} password=${password}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${listen}`,
    'unix_socket_dir =',
    'auth_type = any',
    `pool_mode = ${options.mode}`,
    'max_client_conn = 200',
    'default_pool_size = 60',
    ...(options.lenient
      ? [
          'ignore_startup_parameters = extra_float_digits,options,plan_cache_mode,synchronous_commit,jit,max_parallel_workers_per_gather',
        ]
      : []),
  ];
  await writeFile(join(folder, 'pgbouncer.ini'), `${lines.join('\n')}\n`, { mode: 0o644 });
  await chmod(folder, 0o755);
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn(PROGRAM ?? '', ['-q', ...user, join(folder, 'pgbouncer.ini')], { stdio: 'ignore' });
  await answers(child, listen);
  return {
    url: `postgres://${username}@127.0.0.1:${listen}/${database}`,
    stop: async () => {
      if (child.exitCode === null && child.kill('SIGKILL')) await once(child, 'exit');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Waits until it takes connections. */
async function answers(child: ChildProcess, port: number): Promise<void> {
  while (child.exitCode === null) {
    const socket = dial(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return;
    } catch {
      // Not yet.
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`pgbouncer ended with ${child.exitCode}`);
}
