/** Everything between a writing request and the database or the journal, opened and closed together. */

import type { KeyObject } from 'node:crypto';
import type { AppAccounts } from '../apps/app-accounts.ts';
import { BrowserKeys } from '../apps/browser-key-lookup.ts';
import { EventTypes } from '../apps/event-type-lookup.ts';
import { LoggingTokens } from '../apps/logging-token-lookup.ts';
import type { LookupOutage } from '../cache/lookup-cache.ts';
import type { Config } from '../config.ts';
import type { Route } from '../http/route.ts';
import type { DayLimiter } from '../limits/day-counts.ts';
import type { Limiter } from '../limits/limiter.ts';
import type { Availability } from '../storage/database/availability.ts';
import type { ChangedTable } from '../storage/database/changes.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { ServerWatch } from '../storage/database/server-watch.ts';
import { areKeysLocked } from '../storage/maintenance/expired-keys.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import type { BrowserLimits } from './browser/create-browser-events.ts';
import { browserRoutes } from './browser/routes.ts';
import { type CreateBatchSteps, createCreateBatch } from './create-batch.ts';
import { type CreateEventSteps, createCreateEvent } from './create-event.ts';
import { CREATE_BATCH, CREATE_EVENT } from './declarations.ts';
import { createEventIds } from './event-id.ts';
import { FirstTimes } from './first-times.ts';
import { EVENTS_FORMAT } from './formats/events.ts';
import { formatRoutes } from './formats/routes.ts';
import { repeatedFinder } from './idempotency-store.ts';
import { PayloadChecks } from './payload-checks.ts';
import { DurableWriter, type DurableWriterOptions } from './queue/durable-writer.ts';
import { WriteQueues } from './queue/write-queues.ts';
import { RefusedEvents } from './refused-events.ts';
import { RetentionBoundary } from './retention-boundary.ts';
import { StageTimes } from './stage-times.ts';
import { TokenScreen } from './token-screen.ts';

export interface WritePathOptions
  extends Pick<DurableWriterOptions, 'nodes' | 'engine' | 'journal' | 'log' | 'wall'> {
  readonly accounts: AppAccounts;
  readonly config: Config;
  /** For lookups of tokens, types and keys. */
  readonly lookups: Sql;
  /** For lookups of types and keys where the events of an app are. */
  readonly lookupsAt: (appId: number) => Promise<Sql>;
  readonly limiter: Limiter;
  /** Key of the digests that take the place of redacted values. */
  readonly redactionKey: KeyObject;
  /** Bytes of payloads on a UTC day, by the app's internal id. */
  readonly byteLimiter: DayLimiter;
  readonly browserLimits: BrowserLimits;
  /** Called with each acknowledged event. */
  readonly onStored: (event: AcceptedEvent) => void;
  /** Called with the app and the code of each event that is refused by itself. */
  readonly onRefused: (appId: number, code: string) => void;
  readonly onRefusedUnread: CreateEventSteps['onRefusedUnread'];
  /** Watches the connections to the database. */
  readonly watch: ServerWatch;
  /** Milliseconds since 1970, by which keys and retention end. */
  readonly judged: () => number;
  readonly isBehind: () => boolean;
  readonly monotonic: () => number;
}

/** Connections for events of past days: while one waits for a locked day, the other continues. */
export const PAST_CONNECTIONS = 2;
/**
 * Connections beside COMMIT_CONNECTIONS: those of past days, three for idempotent requests, one for the replay of the journal and
 * one for the availability probe.
 */
export const WRITE_PATH_CONNECTIONS = PAST_CONNECTIONS + 5;

/** Without a response for so long, the lookups of a suspect database are refused. */
const LOOKUP_TIMEOUT_MS = 700;
/** Without a journal: after so long without the end of a commit, waiting events are refused. */
const STALL_MS = 700;
const MAX_BATCH_EVENTS = 10_000;

/** Tables whose rows are cached with event types. */
const OF_TYPES: ReadonlySet<ChangedTable> = new Set([
  'apps',
  'app_limits',
  'event_types',
  'redaction_rules',
  'type_schemas',
]);

export class WritePath {
  readonly routes: readonly Route[];
  /** Whether the database can be reached and takes writes. */
  readonly availability: Availability;
  /** How lookups behave during an outage of the database. */
  readonly outage: LookupOutage;
  readonly store: DurableWriter;
  readonly queues: WriteQueues;
  readonly stageTimes: StageTimes;
  readonly loggingTokens: LoggingTokens;
  readonly browserKeys: BrowserKeys;
  readonly eventTypes: EventTypes;
  readonly refusedEvents: RefusedEvents;
  readonly firstTimes = new FirstTimes();
  readonly payloadChecks: PayloadChecks;
  readonly #retention: RetentionBoundary;

  constructor(options: WritePathOptions) {
    const { accounts, config, engine, journal, watch, log, monotonic, wall } = options;
    this.refusedEvents = new RefusedEvents(options.onRefused);
    this.store = new DurableWriter({
      engine,
      nodes: options.nodes,
      connections: config.COMMIT_CONNECTIONS,
      pastConnections: PAST_CONNECTIONS,
      areKeysLocked: () => areKeysLocked(options.lookups),
      journal,
      watch,
      log,
      now: monotonic,
      wall,
    });
    this.availability = this.store.availability;
    this.outage = {
      isUnreachable: () => !this.availability.reachable,
      isSuspect: () => this.availability.suspect,
      timeoutMs: LOOKUP_TIMEOUT_MS,
      serveStale: false,
    };
    this.queues = openQueues(options, this.store);
    this.stageTimes = new StageTimes(monotonic);
    const memory = lookupOptions(options, this.outage);
    this.loggingTokens = new LoggingTokens({ ...memory, accounts });
    this.browserKeys = new BrowserKeys({ ...memory, accounts });
    this.eventTypes = new EventTypes({
      ...memory,
      epoch: () => watch.epoch,
      holderOf: (appId) => accounts.holderOf(appId),
      reach: options.lookupsAt,
      maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
      ownLimitOf: (appId) => accounts.limits.of(appId, 'types'),
      newTypesPerMinute: config.NEW_TYPES_PER_MINUTE,
      monotonic,
    });
    this.payloadChecks = new PayloadChecks({ ...memory, monotonic, accounts, ...limitsOf(config), log });
    this.#retention = new RetentionBoundary({
      ...memory,
      retentionDays: config.RETENTION_DAYS,
      judged: options.judged,
      isBehind: options.isBehind,
    });
    this.routes = this.#openRoutes(options);
  }

  #openRoutes(options: WritePathOptions): readonly Route[] {
    const { accounts, byteLimiter, config, limiter, redactionKey, watch, wall, monotonic } = options;
    const steps = {
      accounts,
      loggingTokens: this.loggingTokens,
      limiter,
      byteLimiter,
      redactionKey,
      eventTypes: this.eventTypes,
      payloadChecks: this.payloadChecks,
      findRepeated: repeatedFinder({
        reach: options.lookupsAt,
        outage: this.outage,
        keyTable: this.store.keyTable,
        now: options.judged,
      }),
      epoch: () => watch.epoch,
      queues: this.queues,
      newEventId: createEventIds(),
      retentionBoundary: this.#retention,
      firstTimes: this.firstTimes,
      now: wall,
    };
    const createEvent = createCreateEvent({
      ...steps,
      tokenScreen: new TokenScreen(this.loggingTokens, monotonic),
      stageTimes: this.stageTimes,
      onRefusedUnread: options.onRefusedUnread,
    });
    const batchSteps: CreateBatchSteps = {
      ...steps,
      refusedEvents: this.refusedEvents,
      // A body that exceeds the room of all bodies can never be received: 413, not 503.
      maxBytes: Math.min(config.MAX_BATCH_BYTES, config.MAX_BODIES_BYTES),
      maxStreamBytes: config.MAX_STREAM_BYTES,
      limits: {
        maxEvents: Math.min(MAX_BATCH_EVENTS, config.COMMIT_BUFFER_EVENTS),
        maxEventBytes: config.MAX_BODY_BYTES,
      },
    };
    return [
      { ...CREATE_EVENT, handle: createEvent },
      { ...CREATE_BATCH, handle: createCreateBatch(batchSteps, EVENTS_FORMAT) },
      ...formatRoutes(batchSteps, config.CREATE_LIMIT_PER_MINUTE),
      ...browserRoutes({
        ...batchSteps,
        browserKeys: this.browserKeys,
        browserLimits: options.browserLimits,
      }),
    ];
  }

  /** False while another session has the table of idempotency keys locked: requests with one are refused. */
  get acceptsIdempotencyKeys(): boolean {
    return this.store.keyTable.acceptsIdempotencyKeys;
  }

  start(): void {
    this.store.start();
  }

  /** Drops cached tokens and types. @param table the table that has changed; null: any may have */
  forget(table: ChangedTable | null): void {
    const isOfApps = table === null || table === 'apps' || table === 'app_limits';
    if (isOfApps || table === 'logging_tokens') this.loggingTokens.dropAll();
    if (isOfApps || table === 'browser_keys') this.browserKeys.dropAll();
    if (table === null || OF_TYPES.has(table)) this.eventTypes.dropAll();
    if (table === null || table === 'retention_rules') this.#retention.dropAll();
    if (table === null || table === 'type_schemas') this.payloadChecks.forget();
  }

  /** Invalidates cached tokens and types: they are served stale only while the database is unavailable. */
  invalidate(): void {
    this.loggingTokens.invalidateAll();
    this.browserKeys.invalidateAll();
    this.eventTypes.invalidateAll();
    this.#retention.invalidate();
  }

  /** Commits the waiting events, and closes. Call it when no request is in progress. */
  async stop(): Promise<void> {
    await this.queues.drain();
    await this.payloadChecks.close();
    await this.store.stop();
  }
}

/** What the queues need of a write path. */
export interface QueueOptions
  extends Pick<WritePathOptions, 'accounts' | 'nodes' | 'journal' | 'monotonic' | 'onStored'> {
  readonly config: QueueConfig;
}

type QueueConfig = Pick<Config, 'COMMIT_CONNECTIONS' | 'COMMIT_BUFFER_EVENTS' | 'COMMIT_BUFFER_BYTES'>;

/** Opens the queues of a store. */
export function openQueues(
  options: QueueOptions,
  store: Pick<DurableWriter, 'writersAt' | 'past' | 'counts' | 'availability' | 'takesEvents'>,
): WriteQueues {
  const { accounts, config, nodes, journal, monotonic, onStored } = options;
  const stall = {
    afterMs: STALL_MS,
    now: monotonic,
    isSuspect: () => store.availability.suspect || !store.takesEvents,
  };
  return new WriteQueues({
    nodes,
    writersAt: (node) => store.writersAt(node),
    refusalOf: (time) => store.past.refusalOf(time),
    holderOf: (appId) => accounts.holderOf(appId),
    onStored,
    connections: config.COMMIT_CONNECTIONS,
    pastConnections: PAST_CONNECTIONS,
    ...limitsOf(config),
    largest: MAX_BATCH_EVENTS,
    phases: store.counts.phases,
    // With a journal no commit takes longer than that.
    ...(journal === null && { stall }),
  });
}

/** Limits of each queue, and of the events whose payloads wait for their check. */
function limitsOf(config: QueueConfig): { readonly maxEvents: number; readonly maxBytes: number } {
  return { maxEvents: config.COMMIT_BUFFER_EVENTS, maxBytes: config.COMMIT_BUFFER_BYTES };
}

/** How the caches of the write path look values up. */
function lookupOptions({ config, lookups, journal, wall, judged }: WritePathOptions, outage: LookupOutage) {
  const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
  // With a journal producers continue with cached tokens and types during an outage.
  return { sql: lookups, cacheMs, now: wall, judged, outage: { ...outage, serveStale: journal !== null } };
}
