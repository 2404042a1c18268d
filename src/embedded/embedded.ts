import { spawn } from 'node:child_process';
import { lstat, realpath } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { OperatorError } from '../errors.ts';
import { platformPackage, STATE_FOLDER, usableBinaries } from './binaries.ts';
import {
  checkVersion,
  clusterOwner,
  createCluster,
  DATABASE,
  explained,
  findCluster,
  openDataFolder,
  writeSettings,
} from './cluster.ts';
import { isRunning, PostmasterStart, readPostmaster, stopPostmaster } from './postmaster.ts';
import { socketFolder } from './socket.ts';
import { CLEAN_ENVIRONMENT, isRoot, unprivilegedUser } from './user.ts';

/** Name of the session that keeps the embedded PostgreSQL running; it writes nothing. */
export const HOLDER_NAME = 'tidemark holder';

/** A running embedded PostgreSQL that this process uses. */
export interface EmbeddedPostgres {
  /** Connection parameters: host is the folder of the Unix socket. There is no password. */
  readonly connection: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly database: string;
  };
  /**
   * Releases it. The last user stops PostgreSQL (fast shutdown) and waits for its exit. Close all connections first: the
   * shutdown ends them.
   */
  close(): Promise<void>;
}

export interface EmbeddedOptions {
  /** DATA_DIR; created if it does not exist. */
  readonly dataDir: string;
  readonly log: { info(message: string): void; warn(message: string): void };
  /** Whether to restart PostgreSQL when it dies. */
  readonly supervise?: boolean;
  /** Whether to make a missing data folder and cluster; default: true. */
  readonly mayMake?: boolean;
}

/** Every process that uses the folder holds this session lock in share mode; exclusive mode means no others. Keys: 'tide', 1. */
const HOLDER_LOCK = '1953064037, 1';

const POLL_MS = 50;
/** After this time the wait is logged and polling slows down: PostgreSQL logs every refused connection. */
const SLOW_POLL_AFTER_MS = 5_000;
const SLOW_POLL_MS = 500;
/** Timeout while PostgreSQL does not respond. */
const SILENCE_TIMEOUT_MS = 60_000;
/** Timeout while it reports that it is starting or stopping: replaying gigabytes of write-ahead log takes minutes. */
const RECOVERY_TIMEOUT_MS = 15 * 60_000;
/** Timeout for the processes of a killed PostgreSQL, which prevent a new start; two seconds are normal. */
const LEFTOVERS_TIMEOUT_MS = 20_000;
const BACK_OFF_MS = { first: 100, most: 5_000 };
/** After a user that ended without closing: a supervisor that starts it again finds PostgreSQL running. */
const SUCCESSION_MS = 2_000;
/** Timeout for the sessions that such a user leaves: its workers commit what they have accepted. */
const SESSIONS_TIMEOUT_MS = 5_000;

/**
 * Opens the PostgreSQL of a data folder: creates it on first use, starts it unless it is running, and shares it with every
 * other process that opens the same folder. Processes may open and close it in any order.
 * @throws OperatorError for failures that the operator can fix; without `mayMake` also where there is no database
 */
export async function openEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const { mayMake = true } = options;
  const path = resolve(options.dataDir);
  if (!mayMake && (await lstat(path).catch(() => null)) === null) throw noDatabase(path);
  const dataDir = await openDataFolder(path);
  if (!mayMake && (await findCluster(dataDir)) === undefined) throw noDatabase(path);
  const share = new Share(dataDir, options);
  try {
    await share.take(mayMake);
  } catch (error) {
    share.giveUp();
    throw explained(error, dataDir);
  }
  return share;
}

/** Whether a data folder has a cluster. Makes nothing. */
export async function hasCluster(dataDir: string): Promise<boolean> {
  const folder = await realpath(dataDir).catch(() => null);
  return folder !== null && (await findCluster(folder)) !== undefined;
}

/** What a command says that needs data and finds none: it may have been called in another folder than the service. */
export function noDatabase(dataDir: string): OperatorError {
  return new OperatorError(
    `There is no Tidemark database in ${dataDir}: name it with DATA_DIR or DATABASE_URL (only serve, migrate and restore make one)`,
  );
}

/**
 * Stops the PostgreSQL of a folder unless somebody uses it. The guard of a user calls this once that has ended without closing.
 * The one who starts PostgreSQL again meanwhile keeps it, and one who comes while it stops starts it anew.
 */
export async function stopUnused(dataDir: string): Promise<void> {
  const log = { info: () => undefined, warn: () => undefined };
  await delay(SUCCESSION_MS);
  for (;;) {
    const cluster = await findCluster(dataDir);
    const attempt = cluster === undefined ? undefined : await tryToHold(cluster);
    if (attempt === undefined || attempt.state === 'absent') return;
    if (attempt.state === 'held') {
      await sessionsEnd(attempt.holder.client);
      await leave(attempt.holder, log);
      return;
    }
    // It is starting or stopping.
    await delay(SLOW_POLL_MS);
  }
}

/** Waits until no other client has a session, for as long as that may take. */
async function sessionsEnd(client: pg.Client): Promise<void> {
  const others =
    "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
  for (let waited = 0; waited < SESSIONS_TIMEOUT_MS; waited += SLOW_POLL_MS) {
    const { rowCount } = await client.query(others).catch(() => ({ rowCount: 0 }));
    if (rowCount === 0) return;
    await delay(SLOW_POLL_MS);
  }
}

/**
 * Starts a shell that waits for the end of this process, which alone has the other end of its pipe. If that closes without a word
 * (after kill -9, a fault, process.exit), the shell becomes a process that stops PostgreSQL unless others use it. It has
 * a session of its own, so that signals to this process's group do not reach it.
 * @returns the pipe: a word dismisses the shell
 */
function startGuard(dataDir: string, log: EmbeddedOptions['log']): Socket {
  const program = `import(${JSON.stringify(import.meta.url)}).then((it) => it.stopUnused(process.argv[1]))`;
  const stopping = [process.execPath, '--input-type=module', '-e', program, dataDir];
  const shell = spawn('/bin/sh', ['-c', 'read -r word || exec "$@"', 'tidemark-guard', ...stopping], {
    cwd: '/',
    env: CLEAN_ENVIRONMENT,
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  shell.on('error', (error) =>
    log.warn(`PostgreSQL in ${dataDir} would outlive this process: ${error.message}`),
  );
  // Neither the shell nor its pipe, which is a socket, keeps this process alive.
  shell.unref();
  const pipe = shell.stdin as Socket;
  pipe.on('error', () => undefined);
  pipe.unref();
  return pipe;
}

/** A session that holds the lock. */
interface Holder {
  readonly client: pg.Client;
  /** Resolves when the session ends, for any reason. */
  readonly ended: Promise<unknown>;
  readonly cluster: string;
  readonly connection: EmbeddedPostgres['connection'];
}

/** The result of an attempt to become a holder. */
type Attempt =
  | { readonly state: 'held'; readonly holder: Holder }
  /** PostgreSQL is not running. */
  | { readonly state: 'absent' }
  /** It is running and not ready; talking: it reports so itself. */
  | { readonly state: 'busy'; readonly talking: boolean };

/** This process's use of the PostgreSQL of a folder. */
class Share implements EmbeddedPostgres {
  readonly #dataDir: string;
  readonly #options: EmbeddedOptions;
  readonly #closing = new AbortController();
  #holder: Holder | undefined;
  #connection: EmbeddedPostgres['connection'] | undefined;
  #recovery: Promise<void> = Promise.resolve();
  #closed: Promise<void> | undefined;
  #guard: Socket | undefined;

  constructor(dataDir: string, options: EmbeddedOptions) {
    this.#dataDir = dataDir;
    this.#options = options;
  }

  get connection(): EmbeddedPostgres['connection'] {
    if (this.#connection === undefined) throw new Error('the embedded PostgreSQL is not open');
    return this.#connection;
  }

  /**
   * Joins PostgreSQL, and watches the session that holds the lock.
   * @param mayMake whether to create a missing cluster
   */
  async take(mayMake: boolean): Promise<void> {
    const use = (): void => {
      this.#guard ??= startGuard(this.#dataDir, this.#options.log);
    };
    const holder = await joinPostgres(this.#dataDir, this.#options.log, this.#closing.signal, mayMake, use);
    use();
    this.#holder = holder;
    this.#connection = holder.connection;
    void holder.ended.then(() => {
      if (this.#holder === holder) this.#lost();
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#close().finally(() => this.#guard?.end('released\n'));
    return this.#closed;
  }

  /** Leaves a PostgreSQL that was started in vain to the guard. */
  giveUp(): void {
    this.#guard?.destroy();
  }

  #lost(): void {
    this.#holder = undefined;
    if (this.#options.supervise !== true || this.#closing.signal.aborted) return;
    this.#options.log.warn(`PostgreSQL in ${this.#dataDir} went away: starting it again`);
    this.#recovery = this.#recover();
  }

  async #recover(): Promise<void> {
    const { log } = this.#options;
    let known = '';
    for (
      let pause = BACK_OFF_MS.first;
      !this.#closing.signal.aborted;
      pause = Math.min(2 * pause, BACK_OFF_MS.most)
    ) {
      try {
        // Do not create an empty cluster if the folder vanished while the server ran.
        await this.take(false);
        log.info(`PostgreSQL in ${this.#dataDir} is back`);
        return;
      } catch (error) {
        if (this.#closing.signal.aborted) return;
        const message = error instanceof Error ? error.message : String(error);
        if (message !== known) log.warn(`PostgreSQL in ${this.#dataDir} does not start: ${message}`);
        known = message;
      }
      await pauseUnless(this.#closing.signal, pause);
    }
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    await this.#recovery;
    const holder = this.#holder;
    this.#holder = undefined;
    if (holder !== undefined && (await leave(holder, this.#options.log))) return;
    // The session was lost, but PostgreSQL may be running: only the session was ended, or another process restarted it.
    // If the folder is missing or damaged, there is nothing to stop.
    const cluster = await findCluster(this.#dataDir).catch(() => undefined);
    const attempt = cluster === undefined ? undefined : await tryToHold(cluster);
    if (attempt?.state === 'held') await leave(attempt.holder, this.#options.log);
  }
}

/**
 * Acquires the lock; creates and starts PostgreSQL if needed.
 * @param onStart called before PostgreSQL is started
 */
async function joinPostgres(
  dataDir: string,
  log: EmbeddedOptions['log'],
  closing: AbortSignal,
  mayMake: boolean,
  onStart: () => void,
): Promise<Holder> {
  const began = Date.now();
  let lastSign = began;
  let announced = false;
  let leftoversSince: number | undefined;
  let start: PostmasterStart | undefined;
  for (;;) {
    // Wait for a PostgreSQL that this process has started: without a holder no one would stop it.
    if (start === undefined) closing.throwIfAborted();
    const cluster = await findCluster(dataDir);
    if (cluster === undefined && !mayMake)
      throw new OperatorError(`the database in ${dataDir} is gone: bring it back`);
    const attempt: Attempt = cluster === undefined ? { state: 'absent' } : await tryToHold(cluster);
    if (attempt.state === 'held') {
      await start?.succeeded();
      return attempt.holder;
    }
    if (start !== undefined && !start.alive) {
      const failure = await start.failure();
      start = undefined;
      leftoversSince ??= Date.now();
      if (
        failure !== undefined &&
        !(failure.isRetryable && Date.now() - leftoversSince < LEFTOVERS_TIMEOUT_MS)
      ) {
        const isOpen = failure.reason.includes('invalid permissions');
        const advice = isOpen ? `: chmod 700 ${cluster}` : '';
        throw new OperatorError(
          `PostgreSQL does not start: ${failure.reason}${advice} (its log: ${failure.log})`,
          { isRetryable: !isOpen },
        );
      }
    } else if (attempt.state === 'absent' && start === undefined) {
      onStart();
      start = await begin(dataDir, cluster, log);
    }
    if (attempt.state === 'busy' && attempt.talking) lastSign = Date.now();
    const isSlow = Date.now() - began > SLOW_POLL_AFTER_MS;
    if (isSlow && !announced)
      log.info(`waiting for PostgreSQL in ${dataDir}, which is still starting or stopping`);
    announced ||= isSlow;
    if (Date.now() - lastSign > SILENCE_TIMEOUT_MS || Date.now() - began > RECOVERY_TIMEOUT_MS) {
      throw new OperatorError(
        `PostgreSQL in ${dataDir} does not accept connections: see ${join(dataDir, 'postgres', 'log')}`,
        { isRetryable: true },
      );
    }
    await delay(isSlow ? SLOW_POLL_MS : POLL_MS);
  }
}

/** Creates the cluster if it is missing, and begins to start it. */
async function begin(
  dataDir: string,
  found: string | undefined,
  log: EmbeddedOptions['log'],
): Promise<PostmasterStart | undefined> {
  const source = await platformPackage();
  const user =
    found !== undefined ? await clusterOwner(found) : isRoot() ? await unprivilegedUser() : undefined;
  const binaries = await usableBinaries(source, user, user === undefined ? dataDir : STATE_FOLDER);
  if (found === undefined) {
    log.info(`making a new PostgreSQL ${binaries.major} data folder in ${dataDir}`);
    await createCluster(dataDir, binaries, user);
    const made = await findCluster(dataDir);
    if (made !== undefined && dirname(made) !== dataDir) {
      log.info(`the data is in ${made}, because the user that runs PostgreSQL cannot reach ${dataDir}`);
    }
    // Another process may have created it first: use the one that exists.
    return undefined;
  }
  await checkVersion(found, binaries);
  await writeSettings(found, user);
  const folder = await socketFolder(dataDir, found, user);
  return PostmasterStart.begin({ dataDir, cluster: found, socketFolder: folder, binaries, user });
}

async function tryToHold(cluster: string): Promise<Attempt> {
  const postmaster = await readPostmaster(cluster);
  if (postmaster === undefined) return { state: 'absent' };
  const unreachable = async (): Promise<Attempt> =>
    (await isRunning(postmaster.pid, cluster)) ? { state: 'busy', talking: false } : { state: 'absent' };
  if (postmaster.socketFolder === '') return unreachable();

  const connection = {
    host: postmaster.socketFolder,
    port: postmaster.port,
    user: DATABASE,
    database: DATABASE,
  };
  const client = new pg.Client({
    ...connection,
    // Set explicitly, so that no PG* variable of the environment is used.
    ssl: false,
    application_name: HOLDER_NAME,
    options: '-c idle_session_timeout=0 -c statement_timeout=0 -c lock_timeout=0',
    connectionTimeoutMillis: 5_000,
  });
  // Without a listener an error would end the process; 'end' follows and is handled.
  client.on('error', () => undefined);
  const ended = new Promise((done) => {
    client.once('end', done);
  });
  try {
    await client.connect();
    await client.query(`SELECT pg_advisory_lock_shared(${HOLDER_LOCK})`);
    return { state: 'held', holder: { client, ended, cluster, connection } };
  } catch (error) {
    await client.end().catch(() => undefined);
    const code = (error as { code?: string }).code ?? '';
    if (code === 'ENOENT' || code === 'ECONNREFUSED') return unreachable();
    if (code === 'EACCES' || /^(3D|28)/.test(code)) {
      throw new OperatorError(`PostgreSQL in ${cluster} cannot be used: ${(error as Error).message}`);
    }
    // Starting or stopping (57P03), stopped during the wait for the lock (57P01), or the connection broke.
    return { state: 'busy', talking: code.startsWith('57P') };
  }
}

/**
 * Releases the lock, and stops PostgreSQL if no other process holds it. Of several processes that close at once, the last
 * one sees that there is no other. A process that waits for the lock meanwhile loses its connection and starts PostgreSQL again.
 * @returns false if the session was lost
 */
async function leave({ client, cluster }: Holder, log: EmbeddedOptions['log']): Promise<boolean> {
  try {
    await client.query(`SELECT pg_advisory_unlock_shared(${HOLDER_LOCK})`);
    const { rows } = await client.query<{ alone: boolean }>(
      `SELECT pg_try_advisory_lock(${HOLDER_LOCK}) AS alone`,
    );
    if (rows[0]?.alone === true && !(await stopPostmaster(cluster))) {
      log.warn(`PostgreSQL in ${cluster} goes on running: its process is not to be seen from here`);
    }
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}

function pauseUnless(signal: AbortSignal, milliseconds: number): Promise<void> {
  return delay(milliseconds, undefined, { signal }).catch(() => undefined);
}
