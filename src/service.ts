/** The service in one process: everything between a database and a listening port, started by one list and stopped by the same list, backward. */

import { uptime } from 'node:os';
import type { Logger } from 'pino';
import { AuditOutput } from './accounts/log/audit-output.ts';
import { Mailer } from './accounts/mail/mail.ts';
import { AppAccounts } from './apps/app-accounts.ts';
import { ManagementTokens } from './apps/management-tokens.ts';
import { PublicIds } from './apps/public-ids.ts';
import { ResourceTokens } from './apps/resource-token-lookup.ts';
import type { Secret } from './apps/secret.ts';
import { Shares } from './apps/shares.ts';
import { Usage } from './apps/usage.ts';
import { ArchivedGroups } from './archive/archived-groups.ts';
import { ArchiveRounds } from './archive/rounds.ts';
import { openArchiveStore } from './archive/store.ts';
import { withTimeout } from './base/timeout.ts';
import { Window } from './base/window.ts';
import type { LookupOutage } from './cache/lookup-cache.ts';
import type { Config } from './config.ts';
import { configRoutes, configSchemaRoute, MANAGEMENT_LIMIT_PER_MINUTE } from './configuration/routes.ts';
import { AlertRounds } from './delivery/alerts/rounds.ts';
import { type ConsumerRouteStats, consumerRoutes } from './delivery/consumer-routes.ts';
import { DigestRounds } from './delivery/digest/rounds.ts';
import { Outbox } from './delivery/outbox.ts';
import { Poster } from './delivery/signed-post.ts';
import { WebhookWorker } from './delivery/webhook-worker.ts';
import { applyLedger } from './erasure/erase.ts';
import { ErasureWorker } from './erasure/worker.ts';
import { healthRoutes } from './http/health.ts';
import { metricsRoute } from './http/metrics-route.ts';
import { ReadSlots } from './http/read-slots.ts';
import type { Route } from './http/route.ts';
import { API_PATH, createServer, type HttpServer } from './http/server.ts';
import { createAnnotationRoute } from './ingest/create-annotation.ts';
import { REFUSALS_BELOW } from './ingest/formats/routes.ts';
import { Journal, type JournalStats } from './ingest/journal/journal.ts';
import { WRITE_PATH_CONNECTIONS, WritePath } from './ingest/write-path.ts';
import { type Limits, openLimits } from './limits/open-limits.ts';
import { Metrics } from './metrics/metrics.ts';
import { registerProcessMetrics } from './metrics/process-metrics.ts';
import { statsOfAllWorkers } from './metrics/worker-stats.ts';
import { OwnCommand } from './process/own-command.ts';
import { readRelease } from './process/version.ts';
import { annotationsRead } from './read/annotations/annotations-read.ts';
import type { ReadCall } from './read/app-read.ts';
import { seriesRead } from './read/charts/series-rows.ts';
import { eventRead, eventsRead } from './read/events/events-read.ts';
import { createGetEvents, GET_EVENTS } from './read/events/get-events.ts';
import { exportRead } from './read/export/export-read.ts';
import { Exports, QUERIES } from './read/export/exports.ts';
import { fieldsRead } from './read/fields/fields-read.ts';
import { valuesRead } from './read/fields/values-read.ts';
import type { LiveFeeds } from './read/live/live-feeds.ts';
import { liveRead } from './read/live/live-read.ts';
import { mcpRoute } from './read/mcp/mcp-route.ts';
import { prometheusRoute } from './read/prometheus/metrics-route.ts';
import { prometheusApiRoutes } from './read/prometheus/query-routes.ts';
import { QueryBudget } from './read/query/query-budget.ts';
import { type QueryReadOptions, queryRead } from './read/query/query-read.ts';
import { ResourceTokenAccess } from './read/resource-token-access.ts';
import { resourceTokenRoutes } from './read/resource-token-routes.ts';
import { typesRead } from './read/types-read.ts';
import { descriptionRoute } from './service/api-description.ts';
import { createDashboard, DASHBOARD_CONNECTIONS, type Dashboard } from './service/dashboard.ts';
import { Opened } from './service/opened.ts';
import { registerServiceMetrics } from './service/service-metrics.ts';
import type { Availability } from './storage/database/availability.ts';
import { type ChangedTable, listenForChanges } from './storage/database/changes.ts';
import { connect, type DatabaseAddress, endPool, type Sql } from './storage/database/connect.ts';
import type { Database } from './storage/database/database.ts';
import { type Installation, readInstallation } from './storage/database/installation-id.ts';
import type { Nodes } from './storage/database/nodes.ts';
import type { PoolKind } from './storage/database/pools.ts';
import { ServerWatch } from './storage/database/server-watch.ts';
import { ConsumerStore } from './storage/feed/consumers.ts';
import { readWantedDays } from './storage/maintenance/days-away.ts';
import { MAINTENANCE_NAME, MaintenanceLeader, prepareAlone } from './storage/maintenance/leader.ts';
import { MaintenanceLoop, type MaintenanceTasks } from './storage/maintenance/loop.ts';
import { SnapshotWatch } from './storage/maintenance/oldest-snapshot.ts';
import { databaseClock, TimeJudge } from './storage/maintenance/time-judge.ts';
import type { Storage } from './storage/storage.ts';

export interface ServiceOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  readonly storage: Storage;
  /** What logging tokens are sealed under. */
  readonly secret: Secret;
  readonly log: Logger;
  readonly clock?: Clock;
  /** Program and first arguments of the command line, for work in processes of its own; absent: it is done in this one. */
  readonly commandLine?: readonly string[];
  /** The number of this worker, from 1 on, where several serve on one port. */
  readonly worker?: number;
  /** Whether others of ours listen on the port too; by default none may. */
  readonly sharesPort?: boolean;
  /** Whether to make the link to the first account, where there is need of one; by default so. */
  readonly offersSetup?: boolean;
}

/** Once its connections are watched. */
type WatchedOptions = Omit<ServiceOptions, 'clock'> & {
  readonly database: Database;
  readonly clock: JudgedClock;
};

/** Time as an argument: tests move it. */
export interface Clock {
  /** Milliseconds since the epoch: the wall clock. */
  readonly wall: () => number;
  /** Milliseconds that never go back, for windows and deadlines. */
  readonly monotonic: () => number;
  /** Milliseconds that also pass while the machine sleeps. Absent: it never does. */
  readonly uptime?: () => number;
  /** Whether the database has a clock of its own; by default it is this one. */
  readonly asksDatabase?: boolean;
}

/** The clock of a running service. */
interface JudgedClock extends Clock {
  /** By which time passes for what is destroyed, hidden or given up. */
  readonly judged: () => number;
  /** Whether the clocks have gone back to before what was ended by them. */
  readonly isBehind: () => boolean;
}

const SYSTEM_CLOCK: Clock = {
  wall: () => Date.now(),
  monotonic: () => performance.now(),
  uptime: () => 1_000 * uptime(),
  asksDatabase: true,
};

export interface Service {
  readonly port: number;
  readonly transport: 'uws' | 'node';
  /** The path of the one-time link to the first account; null where there is no need of one. */
  readonly setupPath: string | null;
  /** For tests, which wait for states that metrics tell others. */
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

/** Connections for the lookups of writers: apart from those of all readers, so that readers cannot starve writers. */
const LOOKUP_CONNECTIONS = 2;

/** Connections of webhooks, alerts and their messages: apart from those of reads, whose turns they must not take. */
const DELIVERY_CONNECTIONS = 3;

/** One each: change notifications, lookups of readers, maintenance, maintenance that takes long, and a fresh one now and then. */
const SINGLE_CONNECTIONS = 5;

/** Most connections to the database that one process uses. */
export function connectionsOf(config: Pick<Config, 'READ_CONNECTIONS' | 'COMMIT_CONNECTIONS'>): number {
  const pools = LOOKUP_CONNECTIONS + config.READ_CONNECTIONS + DASHBOARD_CONNECTIONS + DELIVERY_CONNECTIONS;
  return pools + SINGLE_CONNECTIONS + config.COMMIT_CONNECTIONS + WRITE_PATH_CONNECTIONS;
}

const OTHER_PROCESS =
  'Another process serves from this database and REDIS_URL is not set: limits are per process, so an app has its ' +
  'limit once in each';

/** At three quarters of the time for a stop the database is waited for no longer. */
const LEAVING_MS_PER_SECOND = 750;
/** How long a round of maintenance may go on during a stop: it can be interrupted anywhere. */
const MAINTENANCE_STOP_MS = 5_000;

/** Reads that may wait for a connection: at 5 ms a page, the last of them waits for a second or two. */
const MAX_WAITING_READS = 1_000;
/** Payload bytes after which a page for an agent ends: it shows the beginnings of 20 payloads. */
const AGENT_PAGE_BYTES = 262_144;

/**
 * Starts the service.
 * @throws OperatorError where the address cannot be listened on
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const opened = new Opened();
  try {
    return await start(options, opened);
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/** @param opened takes the way to close each part, as soon as that part is open */
async function start(given: ServiceOptions, opened: Opened): Promise<Service> {
  const { config, log } = given;
  // What is made below; until then nothing is remembered that could be wrong.
  let caches: Caches | null = null;
  let journal: Journal | null = null;
  let usage: Usage | null = null;
  const watch = new ServerWatch(given.address, {
    log,
    engine: given.storage.engine,
    onMoved: () => {
      if (caches !== null) forget(caches, null);
      usage?.forget();
    },
    onForeign: (isForeign) => {
      if (journal !== null) journal.wrongDatabase = isForeign;
    },
  });
  opened.push(() => watch.stop());
  const source = given.clock ?? SYSTEM_CLOCK;
  const archived =
    config.ARCHIVE_URL === '' ? null : new ArchivedGroups({ store: openArchiveStore(config), log });
  watch.database.archive = archived;
  opened.push(() => archived?.close());
  const pools = openPools(watch.database, config);
  opened.push(() => pools.end());
  const judge = new TimeJudge({
    ...{ wall: source.wall, elapsed: source.monotonic, uptime: source.uptime, log },
    database: source.asksDatabase === true ? databaseClock(pools.lookups) : null,
  });
  await judge.start();
  opened.push(() => withTimeout(judge.stop(), timeoutOf(watch, 1_000), undefined));
  const clock = {
    wall: judge.wall,
    monotonic: source.monotonic,
    judged: judge.now,
    isBehind: judge.isBehind,
  };
  const options = { ...given, database: watch.database, clock };
  const maintenancePools = { sql: pools.maintenance, slow: pools.slowMaintenance };
  const tasks = options.storage.maintenance(maintenancePools, config, clock.wall, judge.now);
  await prepareAlone(pools.maintenance, async () => {
    await tasks.prepare();
    await eraseAgain(options, pools.maintenance);
  });
  const installation = await readInstallation(pools.maintenance);
  watch.start();
  journal = config.JOURNAL_DIR === '' ? null : await openJournal(options, installation);
  opened.push(() => journal?.close());
  const accounts = new AppAccounts();
  const limits = await openLimits({
    ...{ config, sql: pools.lookups, log, ofApps: accounts.limits },
    now: clock.monotonic,
    wall: clock.wall,
  });
  opened.push(() => limits.stop());

  usage = openUsage(options, pools.reads);
  const counted = usage;
  opened.push(() => withTimeout(counted.stop(), 1_000, undefined));
  const nodes = options.storage.nodesOf(watch.database);
  await nodes.ready().catch(() => undefined); // It is read again soon; until then the coordinator takes all events.
  const writePath = openWritePath(options, { accounts, pools, limits, journal, watch, nodes, usage });
  const { availability } = writePath;
  const reads = openReads(options, { pools, limits, outage: writePath.outage });
  const known = { writePath, ...reads };
  caches = known;
  await followChanges(known, { pools, watch, opened });
  const maintenance = startMaintenance(options, pools.maintenance, tasks);
  opened.push(() =>
    withTimeout(
      maintenance.stop(),
      timeoutOf(watch, availability.writable ? MAINTENANCE_STOP_MS : 1_000),
      undefined,
    ),
  );
  const erasures = openErasures(options, pools.deliveries, maintenance);
  opened.push(() => withTimeout(erasures.stop(), timeoutOf(watch, 2_000), undefined));
  const deliveries = openDeliveries(options, pools.deliveries, maintenance);
  opened.push(() => withTimeout(deliveries.stop(), timeoutOf(watch, 2_000), undefined));
  const dashboard = await openDashboard(options, opened, {
    installation,
    limits,
    usage: counted,
    caches: known,
    reads,
  });
  opened.push(() => {
    if (!availability.writable) watch.breakSilent();
  });
  writePath.start();
  opened.push(() => writePath.stop());
  return await serve(options, opened, {
    ...{
      pools,
      accounts,
      journal,
      limits,
      writePath,
      maintenance,
      dashboard,
      watch,
      nodes,
      usage,
      deliveries,
      archived,
      judge,
    },
    ...reads,
  });
}

function openDashboard(
  options: WatchedOptions,
  opened: Opened,
  parts: {
    readonly installation: Installation;
    readonly limits: Limits;
    readonly usage: Usage;
    readonly caches: Caches;
    readonly reads: Reads;
  },
): Promise<Dashboard> {
  const { clock } = options;
  return createDashboard(
    {
      ...options,
      generation: `${parts.installation.identity} ${parts.installation.generation}`,
      wall: clock.wall,
      judged: clock.judged,
      monotonic: clock.monotonic,
      // The notification comes a moment after the commit; the response to the user must not come before it.
      onChange: () => forget(parts.caches, null),
      writeUsage: () => parts.usage.write(),
      offersSetup: options.offersSetup ?? true,
      share: parts.limits.share,
      exports: parts.reads.exports,
      slots: parts.reads.slots,
      shares: parts.reads.shares,
      queries: parts.reads.queries,
    },
    opened,
  );
}

/** Once the service has left the database, there is nothing to wait for. @param ms how long to wait otherwise */
function timeoutOf(watch: ServerWatch, ms: number): number {
  return watch.isDisconnecting ? 0 : ms;
}

/** Forgets what other processes change, as soon as they do. */
async function followChanges(
  caches: Caches,
  { pools, watch, opened }: { pools: Pools; watch: ServerWatch; opened: Opened },
): Promise<void> {
  const stopListening = await listenForChanges(pools.listener, (table) => {
    if (table === null) invalidate(caches);
    else forget(caches, table);
  });
  // The database may be gone before the service is, or silent.
  opened.push(() =>
    withTimeout(
      Promise.all([stopListening().catch(() => undefined), caches.resourceTokens.idle()]),
      timeoutOf(watch, 1_000),
      undefined,
    ),
  );
}

/** Everything that routes and metrics are made of. */
interface Parts extends Reads {
  readonly pools: Pools;
  readonly accounts: AppAccounts;
  readonly journal: Journal | null;
  readonly limits: Limits;
  readonly writePath: WritePath;
  readonly maintenance: MaintenanceLoop;
  readonly deliveries: Deliveries;
  readonly dashboard: Dashboard;
  readonly watch: ServerWatch;
  readonly nodes: Nodes;
  readonly usage: Usage;
  /** Null if there is no archive. */
  readonly archived: ArchivedGroups | null;
  readonly judge: TimeJudge;
}

/** Listens: the last part of a start, and what stops first. */
async function serve(options: WatchedOptions, opened: Opened, parts: Parts): Promise<Service> {
  const { config, log, worker, clock } = options;
  const { journal, dashboard, writePath, watch } = parts;
  const { availability } = writePath;
  let stopping = false;
  const metrics = new Metrics(worker === undefined ? {} : { worker: String(worker) });
  const server = await createServer({
    routes: routesOf(options, parts, metrics, () => stopping),
    notFoundPage: dashboard.notFoundPage,
    refusalsBelow: REFUSALS_BELOW,
    onSettled: parts.usage.settled,
    transport: config.HTTP_TRANSPORT,
    maxBodyBytes: config.MAX_BODY_BYTES,
    maxBodiesBytes: config.MAX_BODIES_BYTES,
    requestTimeoutMs: config.REQUEST_TIMEOUT_SECONDS * 1_000,
    trustedProxies: config.TRUST_PROXY,
    strictTransport: config.PUBLIC_URL.startsWith('https:'),
    log,
    now: clock.monotonic,
  });
  registerMetrics(metrics, server, parts, options);
  opened.push(registerProcessMetrics(metrics));
  opened.push(() => server.stop());
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
    stop: async () => {
      stopping = true;
      watch.shortenTimeouts();
      // What the database still keeps waiting is refused, so that the stop ends in time and every request has a response.
      const late = setTimeout(() => {
        log.warn(
          { requests: server.pendingRequests(), events: writePath.queues.depth },
          'shutdown: leaving the database, refusing what waits for it',
        );
        watch.disconnect();
      }, config.SHUTDOWN_TIMEOUT_SECONDS * LEAVING_MS_PER_SECOND);
      await opened.close().finally(() => clearTimeout(late));
    },
  };
}

function registerMetrics(
  metrics: Metrics,
  server: HttpServer,
  parts: Parts,
  { config, storage }: ServiceOptions,
): void {
  const { journal, dashboard, writePath, watch } = parts;
  const { DATA_DIR, JOURNAL_DIR } = config;
  registerServiceMetrics(metrics, {
    ...{ server, writePath, journal, watch },
    folders: { DATA_DIR, ...(JOURNAL_DIR !== '' && { JOURNAL_DIR }) },
    limits: parts.limits.stats,
    signIns: dashboard.signIns,
    maintenance: parts.maintenance,
    consumers: parts.consumerStats,
    webhooks: parts.deliveries.webhooks.stats,
    alerts: parts.deliveries.alerts.stats,
    outbox: parts.deliveries.outbox.stats,
    audit: parts.deliveries.audit.stats,
    archive: parts.deliveries.archive.stats,
    archived: parts.archived,
    exports: parts.exports,
    queries: parts.queries,
    reads: parts.slots.stats,
    usage: parts.usage,
    caches: {
      logging_tokens: writePath.loggingTokens,
      browser_keys: writePath.browserKeys,
      event_types: writePath.eventTypes,
      schemas: writePath.payloadChecks,
      resource_tokens: parts.resourceTokens,
      apps: parts.publicIds,
      shares: parts.shares,
    },
    firstTimes: writePath.firstTimes,
    lookups: {
      ...writePath.loggingTokens.queues,
      ...writePath.browserKeys.queues,
      ...writePath.eventTypes.queues,
      ...writePath.payloadChecks.queues,
      ...parts.resourceTokens.queues,
      ...parts.publicIds.queues,
      ...parts.shares.queues,
    },
    engine: storage.description,
    nodes: parts.nodes,
    judge: parts.judge,
  });
}

function routesOf(
  { config, storage, secret, database, worker, clock }: WatchedOptions,
  parts: Parts,
  metrics: Metrics,
  isStopping: () => boolean,
): Route[] {
  const { pools, accounts, journal, limits, dashboard, writePath, getEvents, readRoutes, nodes } = parts;
  const { availability } = writePath;
  const ownStats = async (): Promise<string> => metrics.text();
  const annotate = createAnnotationRoute({
    loggingTokens: writePath.loggingTokens,
    limiter: limits.create,
    accounts,
    sql: pools.lookups,
    now: clock.wall,
  });
  const needDatabase = [
    annotate,
    { ...GET_EVENTS, handle: getEvents },
    ...readRoutes(dashboard.feeds),
    ...parts.consumerRoutes,
    ...configRoutes({
      ...{ config, secret, onChange: () => forget(parts, null) },
      tokens: new ManagementTokens({ sql: pools.readerLookups, now: clock.judged }),
      limiter: new Window<number>({ limit: MANAGEMENT_LIMIT_PER_MINUTE, now: clock.monotonic }),
      storage,
      sql: pools.reads,
      open: () => connect(database, { connections: 1, name: 'tidemark configuration', kind: 'maintenance' }),
      close: (sql) => endPool(sql).then(() => undefined),
    }),
    ...dashboard.routes,
  ];
  return [
    ...writePath.routes,
    ...needDatabase.map((route) => whileReachable(route, availability)),
    ...healthRoutes({
      release: readRelease(),
      sql: pools.lookups,
      engine: storage.description,
      isStopping,
      isReachable: () => availability.reachable,
      takesEvents: () => writePath.store.takesEvents,
      closedDays: () =>
        writePath.store.past.closedDays('blocked') + writePath.store.past.closedDays('no-partition'),
      acceptsIdempotencyKeys: () => writePath.acceptsIdempotencyKeys,
      problem: () => availability.problem,
      nodesAway: () => nodes.unreachable,
      clocks: () => parts.judge.doubt,
      journal,
    }),
    configSchemaRoute(),
    descriptionRoute({
      version: readRelease().version,
      ...(config.PUBLIC_URL !== '' && { url: config.PUBLIC_URL }),
    }),
    metricsRoute({
      stats: worker === undefined ? ownStats : statsOfAllWorkers(() => metrics.text()),
      token: config.METRICS_TOKEN,
      publicUrl: config.PUBLIC_URL,
      trustedProxies: config.TRUST_PROXY,
    }),
  ];
}

interface Pools {
  readonly lookups: Sql;
  readonly reads: Sql;
  readonly readerLookups: Sql;
  readonly deliveries: Sql;
  readonly maintenance: Sql;
  readonly slowMaintenance: Sql;
  /** Its own connection is never made: the client makes one for notifications. */
  readonly listener: Sql;
  end(): Promise<unknown>;
}

function openPools(database: Database, config: Config): Pools {
  const one = (name: string, kind: PoolKind): Sql => connect(database, { connections: 1, name, kind });
  const pools = {
    lookups: connect(database, {
      connections: LOOKUP_CONNECTIONS,
      name: 'tidemark lookups',
      kind: 'lookups',
    }),
    reads: connect(database, { connections: config.READ_CONNECTIONS, name: 'tidemark reads', kind: 'reads' }),
    deliveries: connect(database, {
      connections: DELIVERY_CONNECTIONS,
      name: 'tidemark deliveries',
      kind: 'deliveries',
    }),
    readerLookups: one('tidemark lookups of readers', 'lookups'),
    maintenance: one(MAINTENANCE_NAME, 'maintenance'),
    slowMaintenance: one('tidemark slow maintenance', 'slow maintenance'),
    listener: one('tidemark listener', 'listen'),
  };
  return { ...pools, end: () => Promise.all(Object.values(pools).map(endPool)) };
}

function openWritePath(
  { config, storage, secret, log, clock }: WatchedOptions,
  parts: Pick<Parts, 'pools' | 'limits' | 'journal' | 'watch' | 'nodes' | 'usage'> & {
    readonly accounts: AppAccounts;
  },
): WritePath {
  const { lookups } = parts.pools;
  return new WritePath({
    accounts: parts.accounts,
    config,
    engine: storage.writes,
    nodes: parts.nodes,
    lookups,
    lookupsAt: (appId) => storage.poolOfApp(lookups, appId),
    limiter: parts.limits.create,
    byteLimiter: parts.limits.createBytes,
    redactionKey: secret.redactionKey,
    browserLimits: { ofKeys: parts.limits.browserKey, ofNetworks: parts.limits.browserNetwork },
    onStored: parts.usage.stored,
    onRefused: parts.usage.refused,
    onRefusedUnread: parts.usage.refusedUnread,
    journal: parts.journal,
    watch: parts.watch,
    log,
    wall: clock.wall,
    judged: clock.judged,
    isBehind: clock.isBehind,
    monotonic: clock.monotonic,
  });
}

function openUsage({ log, clock }: WatchedOptions, sql: Sql): Usage {
  const usage = new Usage({ sql, log, now: clock.wall, judged: clock.judged });
  usage.start();
  return usage;
}

interface Reads {
  readonly resourceTokens: ResourceTokens;
  readonly publicIds: PublicIds;
  readonly shares: Shares;
  readonly exports: Exports;
  /** What queries share, with tokens and in the dashboard. */
  readonly queries: Omit<QueryReadOptions, 'mayRead'>;
  /** The turns of all reads. */
  readonly slots: ReadSlots;
  readonly getEvents: Route['handle'];
  readonly consumerRoutes: readonly Route[];
  readonly consumerStats: ConsumerRouteStats;
  /** Routes of /v1 for resource tokens. */
  readonly readRoutes: (feeds: LiveFeeds) => readonly Route[];
}

function openReads(
  { config, storage, log, clock }: WatchedOptions,
  { pools, limits, outage }: { pools: Pools; limits: Limits; outage: LookupOutage },
): Reads {
  const memory = {
    sql: pools.readerLookups,
    cacheMs: config.TOKEN_CACHE_SECONDS * 1_000,
    now: clock.wall,
    judged: clock.judged,
    outage,
  };
  const resourceTokens = new ResourceTokens({
    ...memory,
    onError: (error) => log.warn({ err: error }, "A resource token's last use could not be written"),
  });
  const publicIds = new PublicIds(memory);
  const shares = new Shares(memory);
  const access = new ResourceTokenAccess({
    resourceTokens,
    limiter: limits.read,
    limiterOfAccounts: limits.readOfAccount,
    apps: publicIds,
  });
  const exports = new Exports(log);
  const queries = {
    queries: new Exports(log, undefined, QUERIES),
    budget: new QueryBudget({ ofHolder: limits.query, ofAccount: limits.queryOfAccount }),
    stats: { counted: 0, scanned: 0, events: 0, truncated: 0 },
    log,
    now: clock.wall,
    monotonic: clock.monotonic,
  };
  const slots = new ReadSlots({
    places: config.READ_CONNECTIONS,
    maxWaiting: MAX_WAITING_READS,
    sql: pools.reads,
    reader: storage.reader,
  });
  const common = {
    access,
    exports,
    mayRead: ({ exchange, app }: ReadCall) => access.mayStillRead(exchange, app.appId),
    slots,
    maxPageBytes: config.MAX_PAGE_BYTES,
    monotonic: clock.monotonic,
  };
  const consumerStats = { leasedEvents: 0, acknowledgments: 0 };
  return {
    resourceTokens,
    publicIds,
    shares,
    exports,
    queries,
    slots,
    getEvents: createGetEvents({ ...common, apps: publicIds }),
    consumerStats,
    consumerRoutes: consumerRoutes({ ...common, engine: storage.engine, stats: consumerStats }),
    readRoutes: (feeds) => {
      const asked = [
        eventRead(),
        typesRead(),
        fieldsRead({ ...common, sql: pools.readerLookups }),
        valuesRead({ ...common, now: clock.wall }),
        seriesRead(clock.wall),
        queryRead({ ...common, ...queries }),
      ];
      const agents = { ...common, publicUrl: config.PUBLIC_URL, version: readRelease().version };
      return [
        prometheusRoute({ ...common, now: clock.wall }),
        ...prometheusApiRoutes({ ...common, now: clock.wall }),
        // An agent gets the beginning of each payload in a list.
        mcpRoute({ ...agents, reads: [...asked, eventsRead({ ...common, maxPageBytes: AGENT_PAGE_BYTES })] }),
        ...resourceTokenRoutes(common, [
          ...asked,
          eventsRead(common),
          exportRead(common),
          annotationsRead(),
          liveRead(feeds),
        ]),
      ];
    },
  };
}

interface Caches extends Pick<Reads, 'resourceTokens' | 'publicIds' | 'shares'> {
  readonly writePath: WritePath;
}

/** Tables that nothing cached of resource tokens depends on. */
const NOT_OF_TOKENS: ReadonlySet<ChangedTable> = new Set([
  'app_limits',
  'app_members',
  'declared_fields',
  'event_types',
  'logging_tokens',
  'redaction_rules',
  'retention_rules',
  'shares',
  'type_schemas',
]);
/** Tables on which it depends who may see a share. */
const OF_SHARES: ReadonlySet<ChangedTable> = new Set([
  'apps',
  'app_members',
  'group_grants',
  'shares',
  'users',
]);

/** Drops what is cached of a table that has changed. @param table null: any table may have */
function forget({ writePath, resourceTokens, publicIds, shares }: Caches, table: ChangedTable | null): void {
  writePath.forget(table);
  if (table === null || table === 'apps' || table === 'event_types') publicIds.dropAll();
  if (table === null || !NOT_OF_TOKENS.has(table)) resourceTokens.dropAll();
  if (table === null || OF_SHARES.has(table)) shares.dropAll();
}

/** Changes may have been missed: writers check again, and serve stale only while the database is away. */
function invalidate({ writePath, resourceTokens, publicIds, shares }: Caches): void {
  writePath.invalidate();
  publicIds.dropAll();
  resourceTokens.dropAll();
  shares.dropAll();
}

function startMaintenance(
  { config, log, clock }: WatchedOptions,
  sql: Sql,
  tasks: MaintenanceTasks,
): MaintenanceLoop {
  const leader = new MaintenanceLeader({
    sql,
    onOtherProcess: () => {
      if (config.REDIS_URL === '') log.warn(OTHER_PROCESS);
    },
    onTakenOver: () => log.warn('maintenance: taken over from a process that has stood still'),
  });
  const snapshots = new SnapshotWatch(sql, log, clock.wall);
  const loop = new MaintenanceLoop({ tasks, snapshots, leader, log, now: clock.wall });
  loop.start();
  return loop;
}

/** Erases again what was erased before this database was restored, before anything is read. */
async function eraseAgain({ config, storage, secret, log, clock }: WatchedOptions, sql: Sql): Promise<void> {
  const warn = (message: string): void => log.warn(message);
  const applied = await applyLedger({ sql, storage, secret, config, now: clock.wall, log: { warn } });
  if (applied > 0) log.warn({ erasures: applied }, 'erasure: the database was restored, erased again');
}

function openErasures(
  { config, storage, secret, database, log, commandLine, clock }: WatchedOptions,
  sql: Sql,
  maintenance: MaintenanceLoop,
): ErasureWorker {
  const worker = new ErasureWorker({
    ...{ sql, storage, secret, config, log, now: clock.wall },
    command: commandLine === undefined ? null : new OwnCommand(commandLine, config),
    open: () => connect(database, { connections: 1, name: 'tidemark erasures', kind: 'slow maintenance' }),
    close: (opened) => endPool(opened).then(() => undefined),
    isLeader: () => maintenance.isOurTurn,
  });
  worker.start();
  return worker;
}

/** What goes out, while this process does the maintenance. */
interface Deliveries {
  readonly webhooks: WebhookWorker;
  readonly alerts: AlertRounds;
  readonly outbox: Outbox;
  readonly audit: AuditOutput;
  readonly archive: ArchiveRounds;
  stop(): Promise<void>;
}

function openDeliveries(
  { config, storage, secret, log, clock }: WatchedOptions,
  sql: Sql,
  maintenance: MaintenanceLoop,
): Deliveries {
  const poster = new Poster({ allowPrivate: config.WEBHOOK_ALLOW_PRIVATE, now: clock.wall });
  const { SMTP_URL: url, MAIL_FROM: from, PUBLIC_URL: publicUrl } = config;
  const mailer = url === '' ? null : new Mailer({ url, from, log });
  const { wall: now, judged } = clock;
  const common = { sql, secret, log, poster, now, judged, isLeader: () => maintenance.isOurTurn };
  const webhooks = new WebhookWorker({
    ...common,
    store: new ConsumerStore(storage.engine, sql),
    publicIdOf: async (appId) => {
      const [app] = await sql<
        { publicId: string }[]
      >`SELECT public_id AS "publicId" FROM apps WHERE id = ${appId}`;
      return app?.publicId ?? null;
    },
  });
  const alerts = new AlertRounds({ ...common, storage });
  // By a clock that is wrong they would be passed for good.
  const digests = new DigestRounds({
    ...common,
    now: judged,
    storage,
    publicUrl,
    sendsMail: mailer !== null,
  });
  const outbox = new Outbox({ ...common, monotonic: clock.monotonic, storage, mailer, publicUrl });
  const audit = new AuditOutput({ ...common, target: config.AUDIT_LOG });
  const archive = new ArchiveRounds({
    ...common,
    config,
    areDaysWanted: async () => (await readWantedDays(sql)).length > 0,
  });
  const parts = [webhooks, alerts, digests, outbox, audit, archive];
  for (const part of parts) part.start();
  maintenance.onRound = () => webhooks.runSoon();
  const stop = async (): Promise<void> => {
    await Promise.all(parts.map((part) => part.stop()));
    await mailer?.close();
  };
  return { webhooks, alerts, outbox, audit, archive, stop };
}

/** The journal of this process, which takes over what an earlier one has left. */
async function openJournal({ config, log }: ServiceOptions, installation: Installation): Promise<Journal> {
  const { JOURNAL_DIR: folder, JOURNAL_MAX_BYTES: maxBytes } = config;
  const journal = await Journal.open({ folder, installation, maxBytes, log });
  const { waitingEvents } = journal.stats;
  if (waitingEvents > 0) log.info({ waitingEvents }, 'journal: storing waiting events');
  return journal;
}

/** What needs the database is refused at once while that is known not to answer. The pages themselves do not need it. */
function whileReachable(route: Route, availability: Availability): Route {
  if (!API_PATH.test(route.path)) return route;
  return {
    ...route,
    handle: async (exchange) => (availability.reachable ? route.handle(exchange) : availability.refusal),
  };
}
