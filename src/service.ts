/** The service in one process: everything between a database and a listening port, started and stopped as two lists. */
import type { Logger } from 'pino';
import { PublicIds } from './apps/public-ids.ts';
import { ResourceTokens } from './apps/resource-token-lookup.ts';
import type { Secret } from './apps/secret.ts';
import { statsOfAllWorkers } from './cluster/worker-stats.ts';
import type { Config } from './config.ts';
import { createDashboard, DASHBOARD_CONNECTIONS, type Dashboard } from './dashboard.ts';
import { Rejection } from './errors.ts';
import { healthRoutes } from './http/health.ts';
import type { Route } from './http/route.ts';
import { createServer } from './http/server.ts';
import { databaseIdentity } from './ingest/journal/identity.ts';
import { Journal, type JournalStats } from './ingest/journal/journal.ts';
import { WRITE_PATH_CONNECTIONS, WritePath } from './ingest/write-path.ts';
import { openLimits } from './limits/open-limits.ts';
import { Metrics } from './metrics/metrics.ts';
import { registerProcessMetrics } from './metrics/process-metrics.ts';
import { metricsRoute } from './metrics-route.ts';
import { createGetEvents } from './read/get-events.ts';
import { ReadSlots } from './read/read-slots.ts';
import { registerServiceMetrics } from './service-metrics.ts';
import type { Availability } from './storage/availability.ts';
import { type ChangedTable, listenForChanges } from './storage/changes.ts';
import { breakConnections, connect, type DatabaseAddress, endPool, type Sql } from './storage/connect.ts';
import { answerInTime } from './storage/lookup-cache.ts';
import { MAINTENANCE_NAME, MaintenanceLeader, prepareAlone } from './storage/maintenance/leader.ts';
import { MaintenanceLoop } from './storage/maintenance/loop.ts';
import { markDeletedApps, type Storage } from './storage/storage.ts';

export interface ServiceOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  readonly storage: Storage;
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

const SYSTEM_CLOCK: Clock = { wall: () => Date.now(), monotonic: () => performance.now() };

export interface Service {
  readonly port: number;
  readonly transport: 'uws' | 'node';
  /** The path of the one-time link to the first account; null where there is no need of one. */
  readonly setupPath: string | null;
  /** For metrics. */
  stats(): ServiceStats;
  /** Answers what is in flight, commits what waits, leaves the database. */
  stop(): Promise<void>;
}

export interface ServiceStats {
  /** False while the database does not answer. */
  readonly databaseReachable: boolean;
  /** False while it takes no events. */
  readonly databaseWritable: boolean;
  /** Null without JOURNAL_DIR. */
  readonly journal: JournalStats | null;
}

/** Connections for the look-ups of writers: apart from all of readers', so that readers can not starve writers. */
const LOOKUP_CONNECTIONS = 2;

/** One each: what listens for changes, lookups of readers, maintenance, and its work that takes long. */
const SINGLE_CONNECTIONS = 4;

/** Most connections to the database that one process uses. */
export function connectionsOf(config: Pick<Config, 'READ_CONNECTIONS' | 'COMMIT_CONNECTIONS'>): number {
  const pools = LOOKUP_CONNECTIONS + config.READ_CONNECTIONS + DASHBOARD_CONNECTIONS;
  return pools + SINGLE_CONNECTIONS + config.COMMIT_CONNECTIONS + WRITE_PATH_CONNECTIONS;
}

const SETTLE_TIMEOUT_MS = 2_000;

const NEIGHBOR =
  'Another process serves from this database and REDIS_URL is not set: limits are per process, so an app has its ' +
  'limit once in each';

/** Reads that may wait for a connection: at 5 ms a page, the last of them waits for a second or two. */
const MAX_WAITING_READS = 1_000;

/**
 * Starts the service.
 * @throws OperatorError where the address can not be listened on
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  // What a start that fails has opened would keep the process.
  const opened: (() => unknown)[] = [];
  try {
    return await start(options, opened);
  } catch (error) {
    for (const close of opened.reverse()) await close();
    throw error;
  }
}

/** @param opened takes what is to be closed, in the opposite order, where the start fails */
async function start(options: ServiceOptions, opened: (() => unknown)[]): Promise<Service> {
  const { config, address, storage, log, worker, clock = SYSTEM_CLOCK } = options;
  const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
  let stopping = false;
  let dashboard: Dashboard | null = null;

  const lookups = connect(address, { connections: LOOKUP_CONNECTIONS, name: 'tidemark look-ups' });
  const reads = connect(address, { connections: config.READ_CONNECTIONS, name: 'tidemark reads' });
  const readerLookups = connect(address, { connections: 1, name: 'tidemark look-ups of readers' });
  const upkeepSql = connect(address, { connections: 1, name: MAINTENANCE_NAME });
  const slowUpkeepSql = connect(address, { connections: 1, name: 'tidemark slow upkeep' });
  const pools = [lookups, reads, readerLookups, upkeepSql, slowUpkeepSql];
  opened.push(() => Promise.all(pools.map(endPool)));
  const breakPools = (): void => {
    for (const pool of pools) breakConnections(pool);
    dashboard?.breakConnections();
  };
  const tasks = storage.maintenance({ sql: upkeepSql, slow: slowUpkeepSql }, config, clock.wall);
  await prepareAlone(upkeepSql, tasks.prepare);

  const journal = config.JOURNAL_DIR === '' ? null : await openJournal(options, upkeepSql);
  opened.push(() => journal?.close());
  const limits = await openLimits({ config, sql: lookups, log, now: clock.monotonic });
  opened.push(() => limits.stop());
  const writePath = new WritePath({
    config,
    address,
    engine: storage.engine,
    lookups,
    limiter: limits.create,
    journal,
    // In time: whether the database takes events waits for it.
    settleReplay: (appIds) => answerInTime(markDeletedApps(lookups, appIds), SETTLE_TIMEOUT_MS),
    onUnreachable: breakPools,
    log,
    wall: clock.wall,
    monotonic: clock.monotonic,
  });
  const { availability, outage } = writePath;

  const resourceTokens = new ResourceTokens({
    sql: readerLookups,
    cacheMs,
    now: clock.wall,
    outage,
    onError: (error) => log.warn({ err: error }, "A resource token's last use could not be written"),
  });
  const apps = new PublicIds({ sql: readerLookups, cacheMs, now: clock.wall, outage });
  const getEvents = createGetEvents({
    events: storage.reader(reads),
    slots: new ReadSlots(config.READ_CONNECTIONS, MAX_WAITING_READS),
    resourceTokens,
    limiter: limits.read,
    apps,
    maxPageBytes: config.MAX_PAGE_BYTES,
  });

  const forget = (table: ChangedTable | null): void => {
    writePath.forget(table);
    if (table === null || table === 'apps' || table === 'event_types') apps.dropAll();
    if (table !== 'logging_tokens' && table !== 'event_types') resourceTokens.dropAll();
  };
  const stopListening = await listenForChanges(lookups, (table) => {
    if (table !== null) return forget(table);
    writePath.invalidate();
    apps.dropAll();
    resourceTokens.dropAll();
  });
  const maintenanceLeader = new MaintenanceLeader({
    sql: upkeepSql,
    onNeighbor: () => {
      if (config.REDIS_URL === '') log.warn(NEIGHBOR);
    },
  });
  const takeTurn = (): Promise<boolean> => maintenanceLeader.take();
  const housekeeping = new MaintenanceLoop({ tasks, takeTurn, log, now: clock.wall });
  housekeeping.start();
  opened.push(() => housekeeping.stop());

  dashboard = await createDashboard({
    config,
    address,
    storage,
    secret: options.secret,
    log,
    wall: clock.wall,
    monotonic: clock.monotonic,
    // The notification comes a moment after the commit; the answer to the person must not come before it.
    onChange: () => forget(null),
    offersSetup: options.offersSetup ?? true,
  });

  opened.push(() => dashboard?.close());
  const metrics = new Metrics(worker === undefined ? {} : { worker: String(worker) });
  const ownStats = (): Promise<string> => metrics.text();
  const server = await createServer({
    routes: [
      ...writePath.routes,
      ...[
        { method: 'GET', path: '/public/get_events', headers: ['authorization'], handle: getEvents } as const,
        ...dashboard.routes,
      ].map((route) => whileReachable(route, availability)),
      ...healthRoutes({
        sql: lookups,
        engine: storage.description,
        isStopping: () => stopping,
        isReachable: () => availability.reachable,
        journal,
      }),
      metricsRoute({
        stats: worker === undefined ? ownStats : statsOfAllWorkers(ownStats),
        token: config.METRICS_TOKEN,
        publicUrl: config.PUBLIC_URL,
        trustedProxies: config.TRUST_PROXY,
      }),
    ],
    transport: config.HTTP_TRANSPORT,
    maxBodyBytes: config.MAX_BODY_BYTES,
    maxBodiesBytes: config.MAX_BODIES_BYTES,
    requestTimeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1_000,
    trustedProxies: config.TRUST_PROXY,
    strictTransport: config.PUBLIC_URL.startsWith('https:'),
    log,
    now: clock.monotonic,
  });
  registerServiceMetrics(metrics, {
    server,
    writePath,
    journal,
    limits: limits.stats,
    signIns: dashboard.signIns,
    housekeeping,
    caches: {
      logging_tokens: writePath.loggingTokens,
      event_types: writePath.eventTypes,
      resource_tokens: resourceTokens,
      apps,
    },
    engine: storage.description,
  });
  const endProcessMetrics = registerProcessMetrics(metrics);

  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    endProcessMetrics();
    limits.stop();
    await writePath.stop();
    const isWell = availability.writable;
    if (!isWell) breakPools();
    await dashboard?.close();
    const housekept = housekeeping.stop();
    await (isWell ? housekept : withinASecond(housekept));
    // The database may be gone before us, or silent.
    await withinASecond(Promise.all([stopListening().catch(() => undefined), resourceTokens.idle()]));
    await Promise.all(pools.map(endPool));
  };

  writePath.start();
  try {
    const port = await server.listen(config.HOST, config.PORT, options.sharesPort);
    return {
      port,
      transport: server.transport,
      setupPath: dashboard.setupPath,
      stats: () => ({
        databaseReachable: availability.reachable,
        databaseWritable: availability.writable,
        journal: journal?.stats ?? null,
      }),
      stop,
    };
  } catch (error) {
    opened.length = 0;
    await stop();
    throw error;
  }
}

/** The journal of this process, which takes over what an earlier one has left. */
async function openJournal({ config, log }: ServiceOptions, sql: Sql): Promise<Journal> {
  const database = await databaseIdentity(sql);
  const { JOURNAL_DIR: folder, JOURNAL_MAX_BYTES: maxBytes } = config;
  const journal = await Journal.open({ folder, database, maxBytes, log });
  const { waitingEvents } = journal.stats;
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
