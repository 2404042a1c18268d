/** What differs between the engines: each has a folder with one of these. */
import type pg from 'pg';
import type { Config } from '../config.ts';
import type { CoarseLevelName } from './backup/catalog.ts';
import type { Sql } from './connect.ts';
import type { Interval } from './counts/intervals.ts';
import type { AppRemoval } from './deleted-apps.ts';
import type { Engine } from './engine.ts';
import type { MaintenanceTasks } from './maintenance/loop.ts';
import type { EngineWrites } from './write/engine-writes.ts';

export type StorageSettings = Pick<Config, 'CHUNK_HOURS' | 'COMPRESS_AFTER_DAYS' | 'RETENTION_DAYS'>;

export interface StorageEngine {
  readonly name: Engine;
  /** @param sql a pool of one connection, so that session locks are held by what works */
  maintenance(sql: Sql, settings: StorageSettings, now: () => number): MaintenanceTasks;
  readonly removal: AppRemoval;
  /** How rows and what they change in the counts are written. */
  readonly writes: EngineWrites;
  /** Makes room for events of an interval, where the engine does not do so when they come. */
  ensureRoom(sql: Sql, interval: Interval): Promise<void>;
  /**
   * Brings what is committed into the counts. Totals are exact before, during and after: it only makes them cheap.
   * @param sql a pool of one connection
   * @param now milliseconds since 1970
   */
  settleCounts(sql: Sql, now: number): Promise<void>;
  /** Whether {@link settleCounts} and writers of the same events do not wait for each other. */
  readonly settlesBesideWriters: boolean;
  /**
   * Rebuilds the counts of a UTC day from its rows, while readers and writers go on.
   * @param sql a pool of one connection
   * @param day its midnight, milliseconds since 1970; left alone where it is before the retention boundary
   */
  recountDay(sql: Sql, day: number): Promise<void>;
  /** How much is left to settle that maintenance should have settled: deltas, or marks of stale buckets. */
  unsettled(sql: Sql): Promise<number>;
  /** SELECT of `start, finish`: the intervals of the partitions or chunks of events. */
  readonly eventIntervals: string;
  /**
   * Tables of which an export locks each in SHARE UPDATE EXCLUSIVE mode before its snapshot, so that nothing rewrites
   * them without regard to it. Writers do not wait for these locks.
   */
  tablesToExport(client: pg.Client): Promise<readonly string[]>;
  /**
   * Adds counts that have outlived their rows, in a restore's transaction.
   * @param copyTo copies the counts into a table and returns their number
   */
  addCounts(
    client: pg.Client,
    level: CoarseLevelName,
    copyTo: (table: string) => Promise<number>,
  ): Promise<number>;
}
