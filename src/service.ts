/** The service in one process: everything between a database and a listening port, started and stopped as two lists. */
import type { Logger } from 'pino';
import { createDashboard, type Dashboard } from './accounts/dashboard.ts';
import type { Secret } from './accounts/secret.ts';
import type { Config } from './config.ts';
import { type ChangedTable, listenForChanges } from './database/changes.ts';
import { breakConnections, connect, type DatabaseAddress, endPool, type Sql } from './database/connect.ts';
import { noteDeletedApps } from './database/deleted-apps.ts';
import type { EngineChoice } from './database/engine.ts';
import { Housekeeping } from './database/housekeeping.ts';
import type { LookupOutage } from './database/lookup-cache.ts';
import { postgresUpkeep } from './database/maintenance.ts';
import { timescaleUpkeep } from './database/timescale.ts';
import { healthRoutes } from './http/health.ts';
import { Rejection } from './http/rejection.ts';
import type { Route } from './http/route.ts';
import { createServer } from './http/server.ts';
import type { Availability } from './ingest/availability.ts';
import { BatchStore } from './ingest/batch-store.ts';
import { CommitBuffer } from './ingest/commit-buffer.ts';
import { createCreateEvent } from './ingest/create-event.ts';
import { createEventIds } from './ingest/event-id.ts';
import { EventTypes } from './ingest/event-types.ts';
import { LoggingTokens } from './ingest/logging-tokens.ts';
import { databaseIdentity } from './journal/identity.ts';
import { Journal, type JournalFigures } from './journal/journal.ts';
import { SlidingLog } from './limits/sliding-log.ts';
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
  /** For metrics. */
  figures(): ServiceFigures;
  /** Answers what is in flight, commits what waits, leaves the database. */
  stop(): Promise<void>;
}

export interface ServiceFigures {
  /** False while the database does not answer. */
  readonly databaseReachable: boolean;
  /** False while it takes no events. */
  readonly databaseWritable: boolean;
  /** Null without JOURNAL_DIR. */
  readonly journal: JournalFigures | null;
}

/** Connections for token and type look-ups: apart from reads, so that readers can not starve writers. */
const LOOKUP_CONNECTIONS = 2;

/** Longest wait for a look-up before its request is refused. */
const LOOKUP_PATIENCE_MS = 700;
/** Without a journal: how long the writing connections may stand still before what waits is refused. */
const STALL_MS = 700;

/**
 * Starts the service.
 * @throws StartupError where the address can not be listened on
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, address, log, clock = SYSTEM_CLOCK } = options;
  const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
  let stopping = false;
  let dashboard: Dashboard | null = null;

  const lookups = connect(address, { connections: LOOKUP_CONNECTIONS, name: 'tidemark look-ups' });
  const reads = connect(address, { connections: config.READ_CONNECTIONS, name: 'tidemark reads' });
  const upkeepSql = connect(address, { connections: 1, name: 'tidemark upkeep' });
  const upkeep =
    options.engine.engine === 'timescale'
      ? timescaleUpkeep(upkeepSql, config, clock.wall)
      : postgresUpkeep(upkeepSql, { retentionDays: config.RETENTION_DAYS, now: clock.wall });
  await upkeep.prepare();

  const journal = config.JOURNAL_DIR === '' ? null : await openJournal(options, upkeepSql);
  const pools = [lookups, reads, upkeepSql];
  const breakPools = (): void => {
    for (const pool of pools) breakConnections(pool);
    dashboard?.breakConnections();
  };
  const batchStore = new BatchStore({
    address,
    connections: config.COMMIT_CONNECTIONS,
    journal,
    settleReplay: (appIds) => noteDeletedApps(upkeepSql, appIds),
    onUnreachable: breakPools,
    log,
    now: clock.monotonic,
  });
  const { availability } = batchStore;
  const commitBuffer = new CommitBuffer({
    write: batchStore.write,
    lanes: config.COMMIT_CONNECTIONS,
    maxEvents: config.COMMIT_BUFFER_EVENTS,
    // With a journal no lane stands still for longer than that.
    ...(journal === null && { stall: { afterMs: STALL_MS, now: clock.monotonic } }),
  });
  const outage: LookupOutage = {
    isAway: () => !availability.reachable,
    patienceMs: LOOKUP_PATIENCE_MS,
    believesOld: journal !== null,
  };
  const loggingTokens = new LoggingTokens({ sql: lookups, cacheMs, now: clock.wall, outage });
  const eventTypes = new EventTypes({
    sql: lookups,
    maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
    cacheMs,
    now: clock.wall,
    outage,
  });
  const createEvent = createCreateEvent({
    loggingTokens,
    limiter: new SlidingLog({ limit: config.CREATE_LIMIT_PER_MINUTE, now: clock.monotonic }),
    eventTypes,
    commitBuffer,
    newEventId: createEventIds(),
    now: clock.wall,
  });

  const resourceTokens = new ResourceTokens({
    sql: lookups,
    cacheMs,
    now: clock.wall,
    outage: { ...outage, believesOld: false },
    onError: (error) => log.warn({ err: error }, "A resource token's last use could not be written"),
  });
  const apps = new Apps({
    sql: lookups,
    cacheMs,
    now: clock.wall,
    outage: { ...outage, believesOld: false },
  });
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
  const stopListening = await listenForChanges(lookups, (table) => {
    if (table !== null) return forget(table);
    loggingTokens.doubtAll();
    eventTypes.doubtAll();
    apps.dropAll();
    resourceTokens.dropAll();
  });
  const housekeeping = new Housekeeping({ upkeep, log, now: clock.wall });
  housekeeping.start();

  dashboard = await createDashboard({
    config,
    address,
    secret: options.secret,
    log,
    wall: clock.wall,
    monotonic: clock.monotonic,
    // The notification comes a moment after the commit; the answer to the person must not come before it.
    onChange: () => forget(null),
  });

  const server = await createServer({
    routes: [
      { method: 'POST', path: '/public/create_event', headers: [], handle: createEvent },
      ...[
        { method: 'GET', path: '/public/get_events', headers: ['authorization'], handle: getEvents } as const,
        ...dashboard.routes,
      ].map((route) => whileReachable(route, availability)),
      ...healthRoutes({
        sql: lookups,
        engine: options.engine.description,
        isStopping: () => stopping,
        isReachable: () => availability.reachable,
        journal,
      }),
    ],
    transport: config.HTTP_TRANSPORT,
    maxBodyBytes: config.MAX_BODY_BYTES,
    maxBodiesBytes: config.MAX_BODIES_BYTES,
    requestTimeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1_000,
    strictTransport: config.PUBLIC_URL.startsWith('https:'),
    log,
    now: clock.monotonic,
  });

  const figures = (): ServiceFigures => ({
    databaseReachable: availability.reachable,
    databaseWritable: availability.writable,
    journal: journal?.figures ?? null,
  });
  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    await commitBuffer.drain();
    await batchStore.stop();
    const isWell = availability.writable;
    if (!isWell) breakPools();
    await dashboard?.close();
    const housekept = housekeeping.stop();
    await (isWell ? housekept : withinASecond(housekept));
    // The database may be gone before us, or silent.
    await withinASecond(Promise.all([stopListening().catch(() => undefined), resourceTokens.idle()]));
    await Promise.all(pools.map(endPool));
  };

  batchStore.start();
  try {
    const port = await server.listen(config.HOST, config.PORT);
    return { port, transport: server.transport, setupPath: dashboard.setupPath, figures, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The journal of this process, which takes over what an earlier one has left. */
async function openJournal({ config, log }: ServiceOptions, sql: Sql): Promise<Journal> {
  const database = await databaseIdentity(sql);
  const { JOURNAL_DIR: folder, JOURNAL_MAX_BYTES: maxBytes } = config;
  const journal = await Journal.open({ folder, database, maxBytes, log });
  const { waitingEvents } = journal.figures;
  if (waitingEvents > 0) log.info({ waitingEvents }, 'Events wait in the journal: they are being stored');
  return journal;
}

const NO_DATABASE = new Rejection('unavailable', 'The database can not be reached; try again shortly.');

/** What needs the database is refused at once while that is known not to answer. The pages themselves do not need it. */
function whileReachable(route: Route, availability: Availability): Route {
  if (!/^[/](api|public)[/]/.test(route.path)) return route;
  return {
    ...route,
    handle: async (exchange) => (availability.reachable ? route.handle(exchange) : NO_DATABASE),
  };
}

async function withinASecond(work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const second = new Promise((resolve) => {
    timer = setTimeout(resolve, 1_000);
  });
  await Promise.race([work, second]);
  clearTimeout(timer);
}
