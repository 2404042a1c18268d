/** A PostgreSQL cluster for one run of the tests, in a folder of its own, which goes when the run ends however it ends. */
import { spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { appendFile, chown, mkdtemp, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { freemem, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CLEAN_ENVIRONMENT, canReach, run, type SystemUser } from '../../src/embedded/user.ts';
import { connect, type DatabaseAddress, isUnavailable } from '../../src/storage/database/connect.ts';

/** How tests reach a cluster. Serialisable: it travels from the global setup to the workers. */
export interface ClusterAddress {
  /** Folder of the Unix socket, where nobody is asked for a password; null for a server that we have not started. */
  readonly socket: string | null;
  /** Name or address for TCP. */
  readonly host: string;
  /** Of the socket's name, and of TCP, where the password is asked for. */
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

export interface Cluster {
  readonly address: ClusterAddress;
  stop(): Promise<void>;
}

export const USER = 'tidemark';

/**
 * PostgreSQL is the child of a shell whose standard input is a pipe from us: when that ends, because we stop the cluster
 * or because we were killed, the shell stops PostgreSQL and removes the folder.
 */
const GUARD = `
"$1" -D "$2/data" -k "$2" -p "$3" -c listen_addresses=127.0.0.1 -c max_connections=600 \
  -c timezone=UTC $4 >"$2/log" 2>&1 </dev/null &
read -r forever
kill -INT $!
wait $!
rm -rf "$2"`;

/**
 * A cluster that goes with the run needs no durable files: without waiting for the disk, databases are made and dropped in a
 * third of the time.
 */
const WITHOUT_DISK = '\nfsync = off\nfull_page_writes = off\nmax_wal_size = 1GB\n';

/** Of initdb, for the locale that every build of PostgreSQL 17 and newer has. */
export const BUILTIN_LOCALE = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];

/** The password of a new cluster. */
export function newPassword(): string {
  return randomBytes(16).toString('hex');
}

/**
 * Makes and starts a cluster.
 * @param bin      folder of initdb and postgres
 * @param locale   initdb's options for the locale, which differ between versions
 * @param user     who runs it, where this process is root
 * @param options  further options of postgres, such as `-c name=value`, without blanks in them
 * @param password of {@link USER}
 */
export async function startCluster(
  bin: string,
  locale: readonly string[],
  user: SystemUser | undefined,
  options = '',
  password = newPassword(),
): Promise<Cluster> {
  const folder = await temporaryFolder(user);
  try {
    await initialise(bin, folder, locale, password, user);
    await appendFile(join(folder, 'data', 'postgresql.conf'), WITHOUT_DISK);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  return await runCluster(bin, folder, { user: USER, password }, user, options);
}

/** Runs the cluster whose files are in the folder `data` of a folder. */
export async function runCluster(
  bin: string,
  folder: string,
  login: Pick<ClusterAddress, 'user' | 'password'>,
  user: SystemUser | undefined,
  options = '',
): Promise<Cluster> {
  const port = await freePort();
  const guard = spawn('/bin/sh', ['-c', GUARD, 'sh', join(bin, 'postgres'), folder, String(port), options], {
    cwd: '/',
    env: CLEAN_ENVIRONMENT,
    // A session of its own: Ctrl-C reaches the tests alone, which end the pipe.
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
    ...user,
  });
  const stop = async (): Promise<void> => {
    if (guard.exitCode !== null) return;
    guard.stdin.end();
    await once(guard, 'exit');
  };
  const address = { socket: folder, host: '127.0.0.1', port, user: login.user, password: login.password };
  try {
    await untilReady(address);
  } catch (error) {
    const log = await readFile(join(folder, 'log'), 'utf8').catch(() => '');
    await stop();
    throw new Error(`PostgreSQL of ${bin} does not start: ${log}`, { cause: error });
  }
  return { address, stop };
}

export async function initialise(
  bin: string,
  folder: string,
  locale: readonly string[],
  password: string,
  user: SystemUser | undefined,
): Promise<void> {
  const passwordFile = join(folder, 'password');
  await writeFile(passwordFile, password, { mode: 0o600 });
  if (user !== undefined) await chown(passwordFile, user.uid, user.gid);
  const access = [
    '--auth-local=trust',
    '--auth-host=scram-sha-256',
    `--username=${USER}`,
    `--pwfile=${passwordFile}`,
  ];
  const options = ['-D', join(folder, 'data'), '--encoding=UTF8', ...locale, ...access, '--no-sync'];
  const outcome = await run(join(bin, 'initdb'), options, { user });
  if (outcome.code !== 0) throw new Error(`initdb of ${bin} failed: ${outcome.stderr}`);
}

/** Memory as a folder, where a database is made and dropped with a fifth less of PostgreSQL's time than on a disk. */
const MEMORY = '/dev/shm';
/** What the clusters of a run need at most. */
const ROOM_BYTES = 6 * 2 ** 30;

/**
 * In memory where there is room for it, else in the system's temporary folder, or /tmp where the user cannot get there or the socket's
 * path would be too long.
 */
export async function temporaryFolder(user: SystemUser | undefined): Promise<string> {
  const memory = await statfs(MEMORY).catch(() => null);
  const isRoomy = memory !== null && Math.min(memory.bavail * memory.bsize, freemem()) > ROOM_BYTES;
  const usable = tmpdir().length <= 60 && (user === undefined || (await canReach(tmpdir(), user)));
  const parent = isRoomy ? MEMORY : usable ? tmpdir() : '/tmp';
  const folder = await mkdtemp(join(parent, 'tidemark-test-'));
  if (user !== undefined) await chown(folder, user.uid, user.gid);
  return folder;
}

/**
 * A free port below those that the system gives to connections: none takes it before a server listens there, nor while that
 * server is away.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000);
    const isFree = await new Promise<boolean>((resolve) => {
      const probe = createServer();
      probe.on('error', () => resolve(false));
      probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** How to connect to one of a cluster's databases. */
export function addressOf(cluster: ClusterAddress, database: string): DatabaseAddress {
  const { socket, port, user } = cluster;
  return socket === null ? { url: urlOf(cluster, database) } : { host: socket, port, user, database };
}

/** The same for another user or database of the server. */
export function addressWith(
  address: DatabaseAddress,
  { user, password, database }: { user?: string; password?: string; database?: string },
): DatabaseAddress {
  if (!('url' in address)) return { ...address, ...(user && { user }), ...(database && { database }) };
  const url = new URL(address.url);
  if (user !== undefined) [url.username, url.password] = [user, password ?? ''];
  if (database !== undefined) url.pathname = `/${database}`;
  return { url: url.href };
}

/** The same by TCP and with a password: a DATABASE_URL. */
export function urlOf({ host, port, user, password }: ClusterAddress, database: string): string {
  return `postgres://${user}:${password}@${host}:${port}/${database}`;
}

export async function untilReady(cluster: ClusterAddress): Promise<void> {
  const sql = connect(addressOf(cluster, 'postgres'), { connections: 1, name: 'test setup' });
  try {
    for (let attempt = 0; ; attempt++) {
      try {
        await sql`SELECT 1`;
        return;
      } catch (error) {
        if (!isUnavailable(error) || attempt === 200) throw error;
      }
      await delay(50);
    }
  } finally {
    await sql.end();
  }
}
