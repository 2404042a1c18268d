/** The service in one process: everything between a database and a listening port, started and stopped as two lists. */
import type { Logger } from 'pino';
import type { Config } from './config.ts';
import { type ChangedTable, listenForChanges } from './database/changes.ts';
import { connect, type DatabaseAddress } from './database/connect.ts';
import { Housekeeping, prepareDays } from './database/housekeeping.ts';
import { healthRoutes } from './http/health.ts';
import { createServer } from './http/server.ts';
import { CommitBuffer } from './ingest/commit-buffer.ts';
import { createCreateEvent } from './ingest/create-event.ts';
import { createEventIds } from './ingest/event-id.ts';
import { EventTypes } from './ingest/event-types.ts';
import { EventWriter } from './ingest/event-writer.ts';
import { LoggingTokens } from './ingest/logging-tokens.ts';
import { SlidingLog } from './limits/sliding-log.ts';

export interface ServiceOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  /** Name and version of the database's engine, for people. */
  readonly engine: string;
  readonly log: Logger;
  readonly clock?: Clock;
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
  /** Answers what is in flight, commits what waits, leaves the database. */
  stop(): Promise<void>;
}

/** Connections for token and type look-ups: apart from reads, so that readers can not starve writers. */
const LOOKUP_CONNECTIONS = 2;

/**
 * Starts the service.
 * @throws StartupError where the address can not be listened on
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, address, log, clock = SYSTEM_CLOCK } = options;
  const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
  let stopping = false;

  const lookups = connect(address, { connections: LOOKUP_CONNECTIONS, name: 'tidemark look-ups' });
  const upkeep = connect(address, { connections: 1, name: 'tidemark upkeep' });
  await prepareDays(upkeep, clock.wall());

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
  const createEvent = createCreateEvent({
    loggingTokens,
    limiter: new SlidingLog({ limit: config.CREATE_LIMIT_PER_MINUTE, now: clock.monotonic }),
    eventTypes,
    commitBuffer,
    newEventId: createEventIds(),
    now: clock.wall,
  });

  const stopListening = await listenForChanges(lookups, (table: ChangedTable | null) => {
    if (table === null || table === 'apps' || table === 'logging_tokens') loggingTokens.dropAll();
    if (table === null || table === 'apps' || table === 'event_types') eventTypes.dropAll();
  });
  const housekeeping = new Housekeeping({
    sql: upkeep,
    retentionDays: config.RETENTION_DAYS,
    log,
    now: clock.wall,
  });
  housekeeping.start();

  const server = await createServer({
    routes: [
      { method: 'POST', path: '/public/create_event', headers: [], handle: createEvent },
      ...healthRoutes({ sql: lookups, engine: options.engine, isStopping: () => stopping }),
    ],
    transport: config.HTTP_TRANSPORT,
    maxBodyBytes: config.MAX_BODY_BYTES,
    maxBodiesBytes: config.MAX_BODIES_BYTES,
    requestTimeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1_000,
    log,
    now: clock.monotonic,
  });

  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    await commitBuffer.drain();
    await writer.close();
    await housekeeping.stop();
    await stopListening().catch(() => undefined); // The database may be gone before us.
    await Promise.all([lookups.end({ timeout: 2 }), upkeep.end({ timeout: 2 })]);
  };

  try {
    return { port: await server.listen(config.HOST, config.PORT), transport: server.transport, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
