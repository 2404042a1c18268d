/** The service in one process: everything between a database and a listening port, started and stopped as two lists. */
import type { Logger } from 'pino';
import { createDashboard, DASHBOARD_CONNECTIONS } from './accounts/dashboard.ts';
import type { Secret } from './accounts/secret.ts';
import type { Config } from './config.ts';
import { type ChangedTable, listenForChanges } from './database/changes.ts';
import { connect, type DatabaseAddress } from './database/connect.ts';
import type { EngineChoice } from './database/engine.ts';
import { Housekeeping } from './database/housekeeping.ts';
import { postgresUpkeep } from './database/maintenance.ts';
import { timescaleUpkeep } from './database/timescale.ts';
import { prepareAlone, UPKEEP_NAME, UpkeepTurn } from './database/upkeep-turn.ts';
import { healthRoutes } from './http/health.ts';
import { createServer } from './http/server.ts';
import { CommitBuffer } from './ingest/commit-buffer.ts';
import { createCreateEvent } from './ingest/create-event.ts';
import { createEventIds } from './ingest/event-id.ts';
import { EventTypes } from './ingest/event-types.ts';
import { EventWriter } from './ingest/event-writer.ts';
import { LoggingTokens } from './ingest/logging-tokens.ts';
import { openLimits } from './limits/open-limits.ts';
import type { SharedLimitsFigures } from './limits/redis-sliding-log.ts';
import { Apps } from './read/apps.ts';
import { createGetEvents } from './read/get-events.ts';
import { ResourceTokens } from './read/resource-tokens.ts';

export interface ServiceOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  readonly engine: EngineChoice;
  /** What logging tokens are sealed under. */
  readonly secret: Secret;
  readonly log: Logger;
  readonly clock?: Clock;
  /** The number of this worker, from 1 on, where several serve on one port. */
  readonly worker?: number;
  /** Whether others of ours listen on the port too; by default none may. */
  readonly sharesPort?: boolean;
  /** Whether to make the link to the first account, where there is need of one; by default so. */
  readonly offersSetup?: boolean;
}

/** Time as an argument: tests move it. */
export interface Clock {
  /** Milliseconds since the epoch, as people see it. */
  readonly wall: () => number;
  /** Milliseconds that never go back, for windows and deadlines. */
  readonly monotonic: () => number;
}

export const SYSTEM_CLOCK: Clock = { wall: () => Date.now(), monotonic: () => performance.now() };

export interface Service {
  readonly port: number;
  readonly transport: 'uws' | 'node';
  /** The path of the one-time link to the first account; null where there is no need of one. */
  readonly setupPath: string | null;
  /** How the limits fare with Redis. */
  readonly limits: () => SharedLimitsFigures;
  /** Answers what is in flight, commits what waits, leaves the database. */
  stop(): Promise<void>;
}

/** Connections for token and type look-ups: apart from reads, so that readers can not starve writers. */
const LOOKUP_CONNECTIONS = 2;

/** Most connections to the database that one process uses: those of its pools, one that listens, one for the upkeep. */
export function connectionsOf(config: Pick<Config, 'READ_CONNECTIONS' | 'COMMIT_CONNECTIONS'>): number {
  return LOOKUP_CONNECTIONS + config.READ_CONNECTIONS + config.COMMIT_CONNECTIONS + DASHBOARD_CONNECTIONS + 2;
}

const NEIGHBOUR =
  'Another process serves from this database and REDIS_URL is not set: limits are per process, so an app has its ' +
  'limit once in each';

/**
 * Starts the service.
 * @throws StartupError where the address can not be listened on
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, address, log, clock = SYSTEM_CLOCK } = options;
  const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
  let stopping = false;

  const lookups = connect(address, { connections: LOOKUP_CONNECTIONS, name: 'tidemark look-ups' });
  const reads = connect(address, { connections: config.READ_CONNECTIONS, name: 'tidemark reads' });
  const upkeepSql = connect(address, { connections: 1, name: UPKEEP_NAME });
  const upkeep =
    options.engine.engine === 'timescale'
      ? timescaleUpkeep(upkeepSql, config, clock.wall)
      : postgresUpkeep(upkeepSql, { retentionDays: config.RETENTION_DAYS, now: clock.wall });
  await prepareAlone(upkeepSql, upkeep.prepare);

  const writer = new EventWriter({
    address,
    connections: config.COMMIT_CONNECTIONS,
    log,
    now: clock.monotonic,
  });
  const commitBuffer = new CommitBuffer({
    write: (batch) => writer.write(batch),
    lanes: config.COMMIT_CONNECTIONS,
    maxEvents: config.COMMIT_BUFFER_EVENTS,
  });
  const loggingTokens = new LoggingTokens({ sql: lookups, cacheMs, now: clock.wall });
  const eventTypes = new EventTypes({
    sql: lookups,
    maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
    cacheMs,
    now: clock.wall,
  });
  const limits = await openLimits({ config, sql: lookups, log, now: clock.monotonic });
  const createEvent = createCreateEvent({
    loggingTokens,
    limiter: limits.create,
    eventTypes,
    commitBuffer,
    newEventId: createEventIds(),
    now: clock.wall,
  });

  const resourceTokens = new ResourceTokens({
    sql: lookups,
    cacheMs,
    now: clock.wall,
    onError: (error) => log.warn({ err: error }, "A resource token's last use could not be written"),
  });
  const apps = new Apps({ sql: lookups, cacheMs, now: clock.wall });
  const getEvents = createGetEvents({
    sql: reads,
    resourceTokens,
    limiter: limits.read,
    apps,
    maxPageBytes: config.MAX_PAGE_BYTES,
  });

  const forget = (table: ChangedTable | null): void => {
    if (table === null || table === 'apps' || table === 'logging_tokens') loggingTokens.dropAll();
    if (table === null || table === 'apps' || table === 'event_types') {
      eventTypes.dropAll();
      apps.dropAll();
    }
    if (table !== 'logging_tokens' && table !== 'event_types') resourceTokens.dropAll();
  };
  const stopListening = await listenForChanges(lookups, forget);
  const upkeepTurn = new UpkeepTurn({
    sql: upkeepSql,
    onNeighbour: () => {
      if (config.REDIS_URL === '') log.warn(NEIGHBOUR);
    },
  });
  const takeTurn = (): Promise<boolean> => upkeepTurn.take();
  const housekeeping = new Housekeeping({ upkeep, takeTurn, log, now: clock.wall });
  housekeeping.start();

  const dashboard = await createDashboard({
    config,
    address,
    secret: options.secret,
    log,
    wall: clock.wall,
    monotonic: clock.monotonic,
    // The notification comes a moment after the commit; the answer to the person must not come before it.
    onChange: () => forget(null),
    offersSetup: options.offersSetup ?? true,
  });

  const server = await createServer({
    routes: [
      { method: 'POST', path: '/public/create_event', headers: [], handle: createEvent },
      { method: 'GET', path: '/public/get_events', headers: ['authorization'], handle: getEvents },
      ...healthRoutes({ sql: lookups, engine: options.engine.description, isStopping: () => stopping }),
      ...dashboard.routes,
    ],
    transport: config.HTTP_TRANSPORT,
    maxBodyBytes: config.MAX_BODY_BYTES,
    maxBodiesBytes: config.MAX_BODIES_BYTES,
    requestTimeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1_000,
    strictTransport: config.PUBLIC_URL.startsWith('https:'),
    log,
    now: clock.monotonic,
  });

  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    limits.stop();
    await commitBuffer.drain();
    await writer.close();
    await dashboard.close();
    await housekeeping.stop();
    await stopListening().catch(() => undefined); // The database may be gone before us.
    await resourceTokens.idle();
    await Promise.all([
      lookups.end({ timeout: 2 }),
      reads.end({ timeout: 2 }),
      upkeepSql.end({ timeout: 2 }),
    ]);
  };

  try {
    const port = await server.listen(config.HOST, config.PORT, options.sharesPort);
    return {
      port,
      transport: server.transport,
      setupPath: dashboard.setupPath,
      limits: limits.figures,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
