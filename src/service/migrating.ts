/** A start that brings the schema to this release, which may take long: it answers, and tells the log and the supervisor. */
import { createServer, type Server } from 'node:http';
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import type { Config } from '../config.ts';
import { Rejection } from '../errors.ts';
import { readRelease } from '../process/version.ts';
import { connect, type DatabaseAddress, type Sql } from '../storage/database/connect.ts';
import type { Storage } from '../storage/storage.ts';

export interface MigratingOptions {
  readonly config: Pick<Config, 'HOST' | 'PORT'>;
  readonly address: DatabaseAddress;
  readonly storage: Pick<Storage, 'migrate' | 'migrationState'>;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Asks the supervisor for so much time more, in milliseconds. */
  readonly extend: (ms: number) => void;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

const ROUND_MS = 500;
/** Between two lines of the log, and two requests for more time. */
const TOLD_EACH_MS = 10_000;
/** The supervisor's patience after each round: what hangs without a round is ended. */
const EXTENDED_BY_MS = 60_000;

/**
 * Brings the schema to this release. While it does, GET /livez is 200, and everything else 503 with what the start waits for.
 * @param sql a pool of one connection
 */
export async function migrating(options: MigratingOptions, sql: Sql): Promise<{ applied: string[] }> {
  const { storage, address, log, extend, now } = options;
  const [own] = await sql<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
  const pid = own?.pid ?? 0;
  // What is wrong with the database is said by the migration itself.
  let state = await storage.migrationState(sql, pid).catch(() => null);
  if (state === null) return await storage.migrate(sql);
  const watch = connect(address, { connections: 1, name: 'tidemark start watch' });
  const server = await listen(options.config, () => state ?? 'starting', log);
  let toldAt = Number.NEGATIVE_INFINITY;
  let told = '';
  const rounds = new Rounds({
    work: async () => {
      state = await storage.migrationState(watch, pid);
      if (state === null) return;
      const isNewHolder = state.includes('waits') && !told.includes('waits');
      if (!isNewHolder && now() - toldAt < TOLD_EACH_MS) return;
      [toldAt, told] = [now(), state];
      log.info(`schema: ${state}`);
      extend(EXTENDED_BY_MS);
    },
    pauseMs: () => ROUND_MS,
    onFailure: (error, isFirst) => {
      if (isFirst) log.warn({ err: error }, 'schema: the state of the migration is not known');
    },
  });
  rounds.start();
  try {
    return await storage.migrate(sql);
  } finally {
    await rounds.stop();
    await watch.end({ timeout: 1 });
    // The port is free for the service once its last connection is gone.
    server?.closeAllConnections();
    await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  }
}

/** @returns null where the port is not free: the service then says so, once it listens itself */
async function listen(
  { HOST, PORT }: MigratingOptions['config'],
  state: () => string,
  log: MigratingOptions['log'],
): Promise<Server | null> {
  // Nobody knows a port that is chosen for the moment.
  if (PORT === 0) return null;
  const live = JSON.stringify({ success: true, status: 'live', ...readRelease() });
  const server = createServer((request, response) => {
    const isLive = request.url?.split('?', 1)[0] === '/livez';
    const refusal = new Rejection('unavailable', `The service is starting: ${state()}.`);
    response
      .writeHead(isLive ? 200 : refusal.status, {
        ...{ 'Content-Type': 'application/json', 'Cache-Control': 'no-store', Connection: 'close' },
        ...(!isLive && refusal.headers),
      })
      .end(request.method === 'HEAD' ? undefined : isLive ? live : refusal.body);
  });
  return await new Promise((resolve) => {
    server.on('error', (error) => {
      log.warn({ err: error }, 'schema: the migration cannot be watched at the port of the service');
      resolve(null);
    });
    server.listen({ host: HOST, port: PORT }, () => resolve(server));
  });
}
