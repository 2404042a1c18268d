/** Opens and closes the write path: its routes, queues, caches and writers. */
import type { Logger } from 'pino';
import { EventTypes } from '../apps/event-type-lookup.ts';
import { LoggingTokens } from '../apps/logging-token-lookup.ts';
import type { Config } from '../config.ts';
import type { Route } from '../http/route.ts';
import type { Limiter } from '../limits/limiter.ts';
import type { Availability } from '../storage/availability.ts';
import type { ChangedTable } from '../storage/changes.ts';
import type { DatabaseAddress, Sql } from '../storage/connect.ts';
import type { ServerWatch } from '../storage/connections/server-watch.ts';
import { answerInTime, type LookupOutage, LookupUnavailable } from '../storage/lookup-cache.ts';
import type { Engine } from '../storage/storage.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import { KeyedWriter } from '../storage/write/keyed-writer.ts';
import { CommitBuffer } from './commit-buffer.ts';
import { createCreateBatch } from './create-batch.ts';
import { createCreateEvent } from './create-event.ts';
import { CREATE_BATCH, CREATE_EVENT } from './declarations.ts';
import { DurableWriter } from './durable-writer.ts';
import { createEventIds } from './event-id.ts';
import { findRepeated } from './idempotency-store.ts';
import { IdempotentQueue } from './idempotent-queue.ts';
import type { Journal } from './journal/journal.ts';
import { RetentionBoundary } from './retention-boundary.ts';
import { StageTimes } from './stage-times.ts';
import { TokenScreen } from './token-screen.ts';

export interface WritePathOptions {
  readonly config: Config;
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  /** For lookups of tokens, types and keys. */
  readonly lookups: Sql;
  readonly limiter: Limiter;
  /** Null without JOURNAL_DIR: then events are refused during an outage. */
  readonly journal: Journal | null;
  /** Looks after the connections to the database. */
  readonly watch: ServerWatch;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly wall: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
}

/** Connections beside COMMIT_CONNECTIONS: two of keyed requests, the replay's, and one that asks whether it is there. */
export const WRITE_PATH_CONNECTIONS = 4;

/** Timeout of a lookup, after which its request is refused. */
const LOOKUP_TIMEOUT_MS = 700;
/** Without a journal: timeout of commits after which waiting events are refused. */
const STALL_TIMEOUT_MS = 700;
/** Limit of events in one batch. */
const MAX_BATCH_EVENTS = 10_000;

export class WritePath {
  readonly routes: readonly Route[];
  /** Whether the database is reachable and accepts writes. */
  readonly availability: Availability;
  /** The behavior of lookups during an outage. */
  readonly outage: LookupOutage;
  readonly store: DurableWriter;
  readonly commitBuffer: CommitBuffer;
  readonly stageTimes: StageTimes;
  readonly loggingTokens: LoggingTokens;
  readonly eventTypes: EventTypes;
  /** Queues of keyed single events and of keyed batches, each with the limits of the commit buffer. */
  readonly #keyedQueues: readonly IdempotentQueue[];
  readonly #keyedWriters: readonly KeyedWriter[];

  constructor(options: WritePathOptions) {
    const { config, address, engine, lookups, journal, log, wall, monotonic } = options;
    const cacheMs = config.TOKEN_CACHE_SECONDS * 1_000;
    const retentionDays = config.RETENTION_DAYS;
    const limits = { maxEvents: config.COMMIT_BUFFER_EVENTS, maxBytes: config.COMMIT_BUFFER_BYTES };
    this.store = new DurableWriter({
      address,
      engine,
      connections: config.COMMIT_CONNECTIONS,
      journal,
      watch: options.watch,
      log,
      now: monotonic,
    });
    this.availability = this.store.availability;
    this.outage = {
      isAway: () => !this.availability.reachable,
      timeoutMs: LOOKUP_TIMEOUT_MS,
      serveStale: false,
    };
    this.commitBuffer = new CommitBuffer({
      write: this.store.write,
      lanes: config.COMMIT_CONNECTIONS,
      ...limits,
      // With a journal the timeouts of the writer are shorter.
      ...(journal === null && {
        stall: { afterMs: STALL_TIMEOUT_MS, now: monotonic, isSuspect: () => this.availability.suspect },
      }),
    });
    this.#keyedWriters = ['tidemark keyed events', 'tidemark keyed batches'].map(
      (name) => new KeyedWriter({ address, engine, name, log, now: monotonic }),
    );
    const [keyedEvents, keyedBatches] = this.#keyedWriters.map(
      (writer) =>
        new IdempotentQueue({
          // Not to the journal: without the table of keys a repeated request is not recognized.
          write: async (requests) =>
            this.availability.writable ? await writer.write(requests) : requests.map(() => UNAVAILABLE),
          ...limits,
        }),
    ) as [IdempotentQueue, IdempotentQueue]; // One per writer.
    this.#keyedQueues = [keyedEvents, keyedBatches];
    this.stageTimes = new StageTimes(monotonic);

    // With a journal, known producers continue with stale lookups during an outage.
    const outage = { ...this.outage, serveStale: journal !== null };
    const memory = { sql: lookups, cacheMs, now: wall, outage };
    this.loggingTokens = new LoggingTokens(memory);
    this.eventTypes = new EventTypes({
      ...memory,
      maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
      newTypesPerMinute: config.NEW_TYPES_PER_MINUTE,
      monotonic,
    });
    const queues = { keyedEvents, keyedBatches };
    this.routes = this.#createRoutes(options, queues, new RetentionBoundary({ ...memory, retentionDays }));
  }

  /** Events that were acknowledged: committed, or in the journal. */
  get acknowledged(): number {
    return this.#keyedQueues.reduce((sum, { stored }) => sum + stored, this.commitBuffer.stored);
  }

  /** Events that wait for their commit, or are being committed. */
  get depth(): number {
    return this.#keyedQueues.reduce((sum, { depth }) => sum + depth, this.commitBuffer.depth);
  }

  start(): void {
    this.store.start();
  }

  /** Drops cached tokens and types. @param table the table that has changed; null: any may have changed */
  forget(table: ChangedTable | null): void {
    if (table === null || table === 'apps' || table === 'logging_tokens') this.loggingTokens.dropAll();
    if (table === null || table === 'apps' || table === 'event_types') this.eventTypes.dropAll();
  }

  /** Makes cached tokens and types stale: they are looked up again, and only served during an outage. */
  invalidate(): void {
    this.loggingTokens.invalidateAll();
    this.eventTypes.invalidateAll();
  }

  /** Commits waiting events, and closes. Call when no request is pending. */
  async stop(): Promise<void> {
    await Promise.all([this.commitBuffer.drain(), ...this.#keyedQueues.map((queue) => queue.drain())]);
    await Promise.all([this.store.stop(), ...this.#keyedWriters.map((writer) => writer.close())]);
  }

  #createRoutes(
    { config, lookups, limiter, monotonic, wall }: WritePathOptions,
    { keyedEvents, keyedBatches }: { keyedEvents: IdempotentQueue; keyedBatches: IdempotentQueue },
    retentionBoundary: RetentionBoundary,
  ): readonly Route[] {
    const steps = {
      loggingTokens: this.loggingTokens,
      limiter,
      eventTypes: this.eventTypes,
      commitBuffer: this.commitBuffer,
      newEventId: createEventIds(),
      now: wall,
    };
    const createEvent = createCreateEvent({
      ...steps,
      tokenScreen: new TokenScreen(this.loggingTokens, monotonic),
      idempotentQueue: keyedEvents,
      stageTimes: this.stageTimes,
    });
    const createBatch = createCreateBatch({
      ...steps,
      idempotentQueue: keyedBatches,
      findRepeated: async (appId, request) => {
        if (this.outage.isAway()) throw new LookupUnavailable('The database is away');
        return await answerInTime(findRepeated(lookups, appId, request, wall()), LOOKUP_TIMEOUT_MS);
      },
      retentionBoundary,
      // A batch that can never fit is refused as too large, not as temporarily unavailable.
      maxBytes: Math.min(config.MAX_BATCH_BYTES, config.MAX_BODIES_BYTES),
      limits: {
        maxEvents: Math.min(MAX_BATCH_EVENTS, config.COMMIT_BUFFER_EVENTS),
        maxEventBytes: config.MAX_BODY_BYTES,
      },
    });
    return [
      { ...CREATE_EVENT, handle: createEvent },
      { ...CREATE_BATCH, handle: createBatch },
    ];
  }
}
