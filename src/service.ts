/** The service in one process: everything between a database and a listening port, started and stopped as two lists. */
import type { Logger } from 'pino';
import { createDashboard } from './accounts/dashboard.ts';
import type { Secret } from './accounts/secret.ts';
import type { Config } from './config.ts';
import { type ChangedTable, listenForChanges } from './database/changes.ts';
import { connect, type DatabaseAddress } from './database/connect.ts';
import type { EngineChoice } from './database/engine.ts';
import { Housekeeping } from './database/housekeeping.ts';
import { postgresUpkeep } from './database/maintenance.ts';
import { timescaleUpkeep } from './database/timescale.ts';
import { healthRoutes } from './http/health.ts';
import { metricsRoute } from './http/metrics-route.ts';
import { createServer } from './http/server.ts';
import { CommitBuffer } from './ingest/commit-buffer.ts';
import { BATCH_HEADERS, createCreateBatch } from './ingest/create-batch.ts';
import { createCreateEvent } from './ingest/create-event.ts';
import { createEventIds } from './ingest/event-id.ts';
import { EventTypes } from './ingest/event-types.ts';
import { EventWriter } from './ingest/event-writer.ts';
import { IDEMPOTENCY_KEY } from './ingest/idempotency-key.ts';
import { KeyedLane } from './ingest/keyed-lane.ts';
import { KeyedWriter } from './ingest/keyed-writer.ts';
import { findRepeated } from './ingest/known-keys.ts';
import { LoggingTokens } from './ingest/logging-tokens.ts';
import { ReadableFrom } from './ingest/readable-from.ts';
import { StageTimes } from './ingest/stage-times.ts';
import { SlidingLog } from './limits/sliding-log.ts';
import { Metrics } from './metrics.ts';
import { registerProcessMetrics } from './process-metrics.ts';
import { Apps } from './read/apps.ts';
import { createGetEvents } from './read/get-events.ts';
import { ResourceTokens } from './read/resource-tokens.ts';
import { registerServiceMetrics } from './service-metrics.ts';

export interface ServiceOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  readonly engine: EngineChoice;
  /** What logging tokens are sealed under. */
  readonly secret: Secret;
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
  /** The path of the one-time link to the first account; null where there is no need of one. */
  readonly setupPath: string | null;
  /** Answers what is in flight, commits what waits, leaves the database. */
  stop(): Promise<void>;
}

/** Connections for token and type look-ups: apart from reads, so that readers can not starve writers. */
const LOOKUP_CONNECTIONS = 2;

/** Events that one batch may have. */
const MAX_BATCH_EVENTS = 10_000;

/** Keyed requests wait apart from the others, and batches apart from single events, each with the buffer's ceilings. */
function openKeyedLane(
  { config, address, log }: ServiceOptions,
  clock: Clock,
  name: string,
): { readonly lane: KeyedLane; readonly close: () => Promise<void> } {
  const writer = new KeyedWriter({ address, name, log, now: clock.monotonic });
  const lane = new KeyedLane({
    write: (requests) => writer.write(requests),
    maxEvents: config.COMMIT_BUFFER_EVENTS,
    maxBytes: config.COMMIT_BUFFER_BYTES,
  });
  const close = async (): Promise<void> => {
    await lane.drain();
    await writer.close();
  };
  return { lane, close };
}

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
  const upkeepSql = connect(address, { connections: 1, name: 'tidemark upkeep' });
  const upkeep =
    options.engine.engine === 'timescale'
      ? timescaleUpkeep(upkeepSql, config, clock.wall)
      : postgresUpkeep(upkeepSql, { retentionDays: config.RETENTION_DAYS, now: clock.wall });
  await upkeep.prepare();

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
    maxBytes: config.COMMIT_BUFFER_BYTES,
  });
  const keyedEvents = openKeyedLane(options, clock, 'tidemark keyed events');
  const keyedBatches = openKeyedLane(options, clock, 'tidemark keyed batches');
  const loggingTokens = new LoggingTokens({ sql: lookups, cacheMs, now: clock.wall });
  const eventTypes = new EventTypes({
    sql: lookups,
    maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
    cacheMs,
    now: clock.wall,
  });
  const stageTimes = new StageTimes(clock.monotonic);
  const newEventId = createEventIds();
  const createLimiter = new SlidingLog({ limit: config.CREATE_LIMIT_PER_MINUTE, now: clock.monotonic });
  const createEvent = createCreateEvent({
    loggingTokens,
    limiter: createLimiter,
    eventTypes,
    commitBuffer,
    keyedLane: keyedEvents.lane,
    newEventId,
    stageTimes,
    now: clock.wall,
  });
  const createBatch = createCreateBatch({
    loggingTokens,
    limiter: createLimiter,
    findRepeated: (appId, request) => findRepeated(lookups, appId, request, clock.wall()),
    eventTypes,
    readableFrom: new ReadableFrom({
      sql: lookups,
      retentionDays: config.RETENTION_DAYS,
      cacheMs,
      now: clock.wall,
    }),
    commitBuffer,
    keyedLane: keyedBatches.lane,
    newEventId,
    now: clock.wall,
    // What can never fit is refused for its size, and not for now.
    maxBytes: Math.min(config.MAX_BATCH_BYTES, config.MAX_BODIES_BYTES),
    limits: {
      maxEvents: Math.min(MAX_BATCH_EVENTS, config.COMMIT_BUFFER_EVENTS),
      maxEventBytes: config.MAX_BODY_BYTES,
    },
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
    limiter: new SlidingLog({ limit: config.READ_LIMIT_PER_MINUTE, now: clock.monotonic }),
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
  const housekeeping = new Housekeeping({ upkeep, log, now: clock.wall });
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
  });

  const metrics = new Metrics();
  const server = await createServer({
    routes: [
      {
        method: 'POST',
        path: '/public/create_event',
        headers: [IDEMPOTENCY_KEY],
        handle: createEvent,
      },
      { method: 'POST', path: '/v1/events', headers: BATCH_HEADERS, handle: createBatch },
      { method: 'GET', path: '/public/get_events', headers: ['authorization'], handle: getEvents },
      ...healthRoutes({ sql: lookups, engine: options.engine.description, isStopping: () => stopping }),
      metricsRoute({
        metrics,
        token: config.METRICS_TOKEN,
        publicUrl: config.PUBLIC_URL,
        trustedProxies: config.TRUST_PROXY,
      }),
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
  registerServiceMetrics(metrics, {
    server,
    stageTimes,
    commitBuffer,
    writer,
    housekeeping,
    caches: {
      logging_tokens: loggingTokens,
      event_types: eventTypes,
      resource_tokens: resourceTokens,
      apps,
    },
    engine: options.engine.description,
  });
  const endProcessMetrics = registerProcessMetrics(metrics);

  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    endProcessMetrics();
    await commitBuffer.drain();
    await writer.close();
    await keyedEvents.close();
    await keyedBatches.close();
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
    const port = await server.listen(config.HOST, config.PORT);
    return { port, transport: server.transport, setupPath: dashboard.setupPath, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
