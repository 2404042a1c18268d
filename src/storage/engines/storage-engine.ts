/** The interface of a storage engine: what differs between engines. */
import type pg from 'pg';
import type { Config } from '../../config.ts';
import type { CoarseLevelName } from '../backup/catalog.ts';
import type { EngineExport } from '../backup/export.ts';
import type { Interval } from '../counts/intervals.ts';
import type { Level } from '../counts/levels.ts';
import type { CountingEngine } from '../counts/recount.ts';
import type { Sql, Transaction, Transactions } from '../database/connect.ts';
import type { Database, DatabaseEngine } from '../database/database.ts';
import type { Engine } from '../database/engine.ts';
import type { Nodes } from '../database/nodes.ts';
import type { DayMoves } from '../maintenance/days-away.ts';
import type { AppRemoval } from '../maintenance/deleted-apps.ts';
import type { ErasureSlice } from '../maintenance/erasing.ts';
import type { MaintenanceTasks } from '../maintenance/loop.ts';
import type { StrayRows } from '../maintenance/stray-rows.ts';
import type { ReadRoutes } from '../read/event-reader.ts';
import type { EngineWrites } from '../write/engine-writes.ts';

export type StorageSettings = Pick<
  Config,
  'CHUNK_HOURS' | 'COMPRESS_AFTER_DAYS' | 'RETENTION_DAYS' | 'CONSUMER_REACH_HOURS'
>;

export interface MaintenancePools {
  /** A pool of one connection, so that the session that works holds the session locks. */
  readonly sql: Sql;
  /** For tasks that take long. */
  readonly slow: Sql;
}

export interface CompressionFacts {
  /** Jobs of policies that the service has not made. */
  readonly policies: readonly string[];
  /** The newest chunks of events that are compressed, with their ends in milliseconds since 1970. */
  readonly chunks: readonly { readonly name: string; readonly end: number }[];
}

export interface StorageEngine extends CountingEngine, EngineExport, DatabaseEngine {
  readonly name: Engine;
  /** The nodes of a cluster; absent for engines of one server. */
  nodesOf?(database: Database): Nodes;
  /**
   * In a cluster, which table on the node of a transaction has the rows of an app; 0 if it is another node's. Absent: there is one
   * table, and its place is 0.
   */
  placeOf?(tx: Transaction, appId: number): Promise<number>;
  /** The end of the newest interval whose rows do not tell their transactions; null: all do. Absent: all do. */
  compressedUntil?(tx: Transaction): Promise<string | null>;
  /** Where each app is read, with a pool. */
  routes(sql: Sql): ReadRoutes;
  /** @param judged the same, by which time passes for what is destroyed */
  maintenance(
    pools: MaintenancePools,
    settings: StorageSettings,
    now: () => number,
    judged?: () => number,
  ): MaintenanceTasks;
  readonly removal: AppRemoval;
  /**
   * Removes events of an app, or replaces their payloads, and changes their counts in the same transaction: no snapshot has the one
   * without the other. Counts of declared fields are read from rows until they are computed again.
   * @returns how many there were
   */
  erase(sql: Sql, slice: ErasureSlice): Promise<number>;
  /** Takes the rows of archived days away, and brings them back. */
  readonly days: DayMoves;
  /**
   * Runs work where the counts of an app's declared fields are, if that is a part of a cluster. Absent: they are where events are.
   * @returns null where the app has no fields
   */
  atFields?<T>(sql: Sql, appId: number, work: (shards: Transactions) => Promise<T>): Promise<T | null>;
  /** Writes rows and their changes to the counts. */
  readonly writes: EngineWrites;
  /**
   * Has the other nodes of a cluster refuse writes, or take them again: writers send events to them directly. Absent: there are none.
   * @returns the pools of these nodes
   */
  closeNodes?(sql: Sql, isClosed: boolean): Promise<readonly Sql[]>;
  /** Creates partitions for events of an interval, if the engine does not create them on insert. */
  createPartitions(sql: Sql, interval: Interval): Promise<void>;
  /**
   * Settles the counts of committed events. Totals are exact before, during and after; it only makes them cheap to read.
   * @param sql a pool of one connection
   */
  settleCounts(sql: Sql, now: number): Promise<void>;
  /** Whether {@link settleCounts} can run concurrently with writers of the same events without blocking. */
  readonly settlesBesideWriters: boolean;
  /** The counts of a level, of all types and apps, for buckets that are settled: those before the retention boundary. */
  materializedCounts(level: Level): string;
  /** Who compresses, for the doctor. Absent: nobody can. */
  readCompression?(sql: Sql): Promise<CompressionFacts>;
  /** Where rows lie that were written without the library of the engine. Absent: it has none. */
  readonly strayRows?: StrayRows;
  /** Number of deltas, or of marks of stale buckets, that maintenance should have settled. */
  pending(sql: Sql): Promise<number>;
  /** A statement that begins the transaction of a restore, if it needs one. */
  readonly restoreSettings?: string;
  /**
   * Adds counts that outlive their rows, in the transaction of a restore.
   * @param copyTo copies the counts into a table and returns their number
   */
  addCounts(
    client: pg.Client,
    level: CoarseLevelName,
    copyTo: (table: string) => Promise<number>,
  ): Promise<number>;
}
