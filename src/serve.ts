/** `tidemark serve`: startup in order, and shutdown in reverse order. */
import { existsSync } from 'node:fs';
import { isAbsolute, relative } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import type { Logger } from 'pino';
import { checkFingerprint, openSecret, type Secret } from './apps/secret.ts';
import { onStopSignal, StopRequest } from './cli/stop-request.ts';
import { isWorker, serveAsWorker } from './cluster/worker.ts';
import { Workers } from './cluster/workers.ts';
import { type Config, localOrigin } from './config.ts';
import { OperatorError } from './errors.ts';
import { checkTransport } from './http/server.ts';
import { listenError, listenProblem } from './http/transport.ts';
import { commandPrefix, isContainerImage, settingsPrefix } from './process/container.ts';
import { createLog } from './process/log.ts';
import { standardOutput } from './process/log-output.ts';
import { ownCommandLine } from './process/own-command.ts';
import { acceptsEvents, Supervisor } from './process/systemd.ts';
import { migrating } from './service/migrating.ts';
import { connectionsOf, type Service, startService } from './service.ts';
import { connect, type DatabaseAddress, type Sql } from './storage/database/connect.ts';
import { openDatabase } from './storage/database/open.ts';
import { openStorage, type Storage } from './storage/storage.ts';

/** The service: this process itself, or its workers. */
type Server = Pick<Service, 'port' | 'transport' | 'setupPath' | 'stop'>;

/** Runs the service until SIGTERM, SIGINT or SIGHUP. Sets the process's exit code. */
export async function serve(config: Config): Promise<void> {
  // V8 lets the heap grow to several times of what lives before it collects: 425 MB under large bodies. With this it is
  // 220 MB, and small events lose nothing that could be measured.
  setFlagsFromString('--heap-growing-percent=30');
  // V8 may decide by chance that the objects of a batch live long, and allocate them in the old space for as long as the process
  // lives: about one start in four then took 1.8 times the CPU for a batch.
  setFlagsFromString('--no-allocation-site-pretenuring');
  if (isWorker()) {
    await serveAsWorker(config);
    return;
  }
  const log = createLog(config.LOG_LEVEL);
  const supervisor = new Supervisor({ environment: process.env, log });
  const stopRequest = new StopRequest();
  stopRequest.onFault(log);
  let server: Server | null = null;
  const exit = (): never => {
    if (server instanceof Workers) server.kill();
    process.exit(1);
  };
  onStopSignal((signal) => stopRequest.request(signal), exit);
  // Armed by the first signal, also during the start.
  const disarm = endInTime(stopRequest.reason, config, log, exit);
  try {
    await checkTransport(config.HTTP_TRANSPORT);
    await checkPortOfNew(config);
    await checkArchive(config);
    const database = await openDatabase(config, log, { supervise: true, mayMake: true });
    try {
      const { address } = database;
      const { storage, secret, hasApps } = await prepare(config, address, log, supervisor);
      log.info({ engine: storage.description }, 'Starting');
      server =
        config.WORKERS > 1
          ? await Workers.start({ config, address, log })
          : await startService({ config, address, storage, secret, log, commandLine: ownCommandLine() });
      announce(config, server, storage.description, hasApps);
      const { port } = server;
      supervisor.ready((timeoutMs) => acceptsEvents(localOrigin(config.HOST, port), timeoutMs));
      await stopRequest.reason;
      supervisor.stopping();
      await server.stop();
    } finally {
      await database.close();
    }
    log.info('Stopped');
  } finally {
    disarm();
  }
}

/**
 * Ends the process with exit code 1 if it has not ended within the timeout after a stop request.
 * @param exit ends this process and its children
 * @returns disarms the timeout; call it at the end. A running timeout then only ends a process that hangs
 */
function endInTime(reason: Promise<string>, config: Config, log: Logger, exit: () => void): () => void {
  let deadline: NodeJS.Timeout | null = null;
  let isOver = false;
  void reason.then((why) => {
    if (isOver) return;
    log.info({ reason: why }, 'Stopping');
    deadline = setTimeout(() => {
      log.fatal('shutdown: SHUTDOWN_TIMEOUT_SECONDS exceeded, exiting with unanswered requests');
      exit();
    }, config.SHUTDOWN_TIMEOUT_SECONDS * 1_000);
  });
  return () => {
    isOver = true;
    deadline?.unref();
  };
}

/**
 * A new service finds out that its port is taken before it makes a database. One that has data finds out when it listens.
 * @throws OperatorError if the port is not available
 */
async function checkPortOfNew(config: Config): Promise<void> {
  if (config.PORT === 0 || config.DATABASE_URL !== '' || existsSync(config.DATA_DIR)) return;
  const code = await listenProblem(config.HOST, config.PORT);
  if (code !== null) throw listenError(config.HOST, config.PORT, code);
}

/** @throws OperatorError where ARCHIVE_URL cannot be written and read back: days would be missing from it unnoticed */
async function checkArchive(config: Config): Promise<void> {
  if (config.ARCHIVE_URL === '') return;
  const { openArchiveStore, probeArchive } = await import('./archive/store.ts');
  await probeArchive(openArchiveStore(config));
}

/** Prepares the database and collects what the start needs to know of it. */
async function prepare(
  config: Config,
  address: DatabaseAddress,
  log: Logger,
  supervisor: Supervisor,
): Promise<{ storage: Storage; secret: Secret; hasApps: boolean }> {
  const sql = connect(address, { connections: 1, name: 'tidemark start' });
  try {
    const storage = await openStorage(sql);
    if (storage.note !== null) log.info(storage.note);
    const { applied } = await migrating(
      {
        ...{ config, address, storage, log },
        extend: (ms) => supervisor.extend(ms),
        now: () => performance.now(),
      },
      sql,
    );
    if (applied.length > 0) log.info({ migrations: applied.length }, 'schema: migrations applied');
    for (const name of applied) log.debug({ migration: name }, 'schema: migration applied');
    const secret = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
    await checkFingerprint(sql, secret, log);
    if (config.WORKERS > 1) await checkConnections(config, sql);
    const [installation] = await sql<{ hasApps: boolean }[]>`SELECT EXISTS (SELECT FROM apps) AS "hasApps"`;
    return { storage, secret, hasApps: installation?.hasApps ?? false };
  } finally {
    // An open connection would keep the process alive after a failed start.
    await sql.end();
  }
}

/**
 * Checked at start: connections open on demand, so a shortage would only show under load, as refused requests.
 * @throws OperatorError if the database allows fewer connections than the workers may use
 */
async function checkConnections(config: Config, sql: Sql): Promise<void> {
  const needed = config.WORKERS * connectionsOf(config);
  const [row] = await sql<{ allowed: number }[]>`
    SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS allowed`;
  if (row === undefined || needed <= row.allowed) return;
  throw new OperatorError(
    `WORKERS: ${config.WORKERS} processes use up to ${needed} connections and the database allows ${row.allowed}: raise ` +
      'its max_connections, or lower WORKERS, READ_CONNECTIONS or COMMIT_CONNECTIONS',
  );
}

/** Prints the address and the next steps for the operator. */
function announce(config: Config, server: Server, engine: string, hasApps: boolean): void {
  const host = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST;
  const inImage = isContainerImage();
  const place = config.DATABASE_URL === '' ? `, embedded in ${shortPath(config.DATA_DIR)}` : '';
  const transport = server.transport === 'uws' ? 'uWebSockets.js' : 'node:http';
  const processes = config.WORKERS > 1 ? ` in ${config.WORKERS} processes` : '';
  const next = hasApps ? 'app list' : 'app create --name "My app"';
  // The port of the container is the published one in docker-compose.yml.
  const local = ['0.0.0.0', '[::]'].includes(host) ? 'localhost' : host;
  const base = config.PUBLIC_URL === '' ? `http://${local}:${server.port}` : config.PUBLIC_URL;
  const address = inImage ? base : `http://${host}:${server.port}`;
  const dashboard =
    server.setupPath === null
      ? `  Dashboard: ${base}\n\n`
      : `  Create the first account within 7 days:\n    ${base}${server.setupPath}\n\n`;
  standardOutput(1).write(
    `\n  Tidemark listens on ${address}\n  ${engine}${place}; ${transport}${processes}\n\n${dashboard}` +
      `  Next, in another terminal:\n    ${inImage ? '' : settingsPrefix(config, server.port)}${commandPrefix(process.env)} ${next}\n\n`,
  );
}

function shortPath(path: string): string {
  const fromHere = relative(process.cwd(), path);
  return isAbsolute(fromHere) || fromHere.startsWith('..') ? path : fromHere;
}
