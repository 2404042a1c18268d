/**
 * Events and their counts: the one interface that the rest of the code uses. Only this folder has SQL on them, and only
 * here engines have names. Each engine is a folder (postgres/, timescale/) that implements {@link StorageEngine}.
 */
import type pg from 'pg';
import { type FeedSnapshot, readFeed, readSnapshotText } from './arrivals.ts';
import { beginExport, type Export } from './backup/export.ts';
import { beginRestore, type Restore, type RestoreOptions } from './backup/restore.ts';
import type { Sql } from './connect.ts';
import { openCountedLines } from './counted-lines.ts';
import {
  type AppSpan,
  type AppStats,
  readAppSpan,
  readAppStats,
  readTypeActivity,
} from './counts/app-stats.ts';
import type { BucketsProblem } from './counts/buckets.ts';
import {
  type FieldSeries,
  type FieldSeriesRequest,
  readFilteredSeries,
  readValueSeries,
} from './counts/field-series.ts';
import type { Interval } from './counts/intervals.ts';
import { type NumberSeries, readNumberSeries } from './counts/number-series.ts';
import { type RecountedDay, recount } from './counts/recount.ts';
import { readSeries, type Series, type SeriesRequest } from './counts/series.ts';
import { readTypeStats, type TypeStats } from './counts/type-stats.ts';
import { type DatabaseFacts, readDatabaseFacts } from './database-facts.ts';
import { chooseEngine, type Engine } from './engine.ts';
import { ENGINES } from './engines.ts';
import { type LineReader, openLines } from './event-lines.ts';
import {
  type EventList,
  type EventListRequest,
  readEvent,
  readEventList,
  readFilteredList,
  type SingleEvent,
} from './event-list.ts';
import { type EventPage, type PageRequest, readEventPage } from './event-page.ts';
import type { RowFilter, ScanRequest } from './event-scan.ts';
import { type EventSearch, openSearch } from './event-search.ts';
import type { FieldFilter } from './fields/field-scope.ts';
import type { MaintenanceTasks } from './maintenance/loop.ts';
import { migrate } from './migrate.ts';
import type { MaintenancePools, StorageSettings } from './storage-engine.ts';

export type {
  Arrivals,
  FeedSnapshot,
  MinuteCounts,
  NewCount,
  NewEvent,
} from './arrivals.ts';
export { MAX_CURSOR_AGE_MS, sumCounts } from './arrivals.ts';
export type { RowSection, SequenceValue } from './backup/catalog.ts';
export type { Export } from './backup/export.ts';
export type { Restore } from './backup/restore.ts';
export type { AppSpan, AppStats } from './counts/app-stats.ts';
export type { BucketsProblem, WidthName } from './counts/buckets.ts';
export { WIDTHS } from './counts/buckets.ts';
export type { CountDifference } from './counts/differences.ts';
export type { FieldLine, FieldSeries } from './counts/field-series.ts';
export { DAY_MS, MINUTE_MS } from './counts/levels.ts';
export type { NumberSeries, NumberStats } from './counts/number-series.ts';
export type { RecountedDay } from './counts/recount.ts';
export type { Series, SeriesRequest, TypeSeries } from './counts/series.ts';
export { isTimezone } from './counts/timezone.ts';
export type { TypeStats } from './counts/type-stats.ts';
export type { DatabaseFacts } from './database-facts.ts';
export { hasSchema } from './database-facts.ts';
export { markAppDeleted } from './deleted-apps.ts';
export type { Engine } from './engine.ts';
export type { EventLines, LineReader } from './event-lines.ts';
export type { Cursor, EventList, SingleEvent } from './event-list.ts';
export { decodeCursor, encodeCursor } from './event-list.ts';
export type { EventPage, Order, PageRequest, StoredEvent } from './event-page.ts';
export type { Position, RowFilter, ScanRequest, Suspicion, TextTest } from './event-scan.ts';
export type { EventSearch, SearchStep } from './event-search.ts';
export type { FeedCursor } from './feed-cursor.ts';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor.ts';
export type { FieldKind } from './fields/declared-fields.ts';
export { DeclaredFields, namesOf } from './fields/declared-fields.ts';
export type { FieldFilter } from './fields/field-scope.ts';
export { readEventsLeft } from './fields/progress.ts';
export { OTHER, scalarValue, valueOfString } from './fields/value-text.ts';
export type { MaintenanceTasks } from './maintenance/loop.ts';
export type { MaintenancePools, StorageSettings } from './storage-engine.ts';

/** What the storage of one database does, whatever its engine. Operations take the pool whose connections they use. */
export interface Storage {
  readonly engine: Engine;
  /** Names and versions of the engine, for people. */
  readonly description: string;
  /** A line for the log where a better engine is available and not used. */
  readonly note: string | null;
  /** Brings the schema to this release's. @returns the names of the files that were applied */
  migrate(sql: Sql): Promise<{ applied: string[] }>;
  /** Reads with the connections of a pool. */
  reader(sql: Sql): EventReader;
  /**
   * What has to be done from time to time.
   * @param now milliseconds since 1970
   */
  maintenance(pools: MaintenancePools, settings: StorageSettings, now: () => number): MaintenanceTasks;
  /**
   * Brings what was just stored into the counts, so that its first reads are as cheap as all others. Totals are exact
   * before, during and after.
   * @param sql a pool of one connection
   * @param now milliseconds since 1970
   */
  settleCounts(sql: Sql, now: number): Promise<void>;
  /** The same while more is being stored; does nothing where that would make writers wait. */
  settleBesideWriters(sql: Sql, now: number): Promise<void>;
  /** Takes a snapshot of everything that a backup holds. @param client a connection for this alone */
  beginExport(client: pg.Client): Promise<Export>;
  /** Prepares an unused database for the rows of a backup. @throws OperatorError where it does not fit or has been used */
  beginRestore(options: Omit<RestoreOptions, 'engine'>): Promise<Restore>;
  /** Facts for the doctor. */
  facts(sql: Sql): Promise<DatabaseFacts>;
  /**
   * Rebuilds the counts of the UTC days that an interval touches from their rows, while readers and writers go on. Days
   * before the retention boundary are left out.
   * @param sql a pool of one connection
   * @param onDay called after each day
   */
  recount(
    sql: Sql,
    interval: Interval,
    onDay: (day: RecountedDay) => void,
  ): Promise<{ readonly leftOut: number }>;
}

/** Reads of events and counts. All reject where the database fails. Ids of apps and types are internal ones. */
export interface EventReader {
  /** A page at an offset, and the exact total. */
  page(request: PageRequest): Promise<EventPage>;
  /** A page from a cursor, in either order. */
  list(request: EventListRequest): Promise<EventList>;
  /** The same of events that pass a filter; null if counts of fields do not answer it, so that it must be searched for. */
  filteredList(request: EventListRequest, filter: FieldFilter): Promise<EventList | null>;
  /** A search for events whose payload passes a filter. It holds no connection between its steps. */
  search(request: ScanRequest, filter: RowFilter): EventSearch;
  /** Events as lines of JSON, part by part. It holds no connection between two of them. */
  lines(request: ScanRequest, filter: RowFilter | null): LineReader;
  /** The same of events that pass a filter, through the counts of a field as far as these answer it. */
  filteredLines(request: ScanRequest, filter: FieldFilter): LineReader;
  /** One event; null where the app has no such event that can be read. */
  event(appId: number, eventId: string): Promise<SingleEvent | null>;
  /** Counts by bucket and type; what is wrong where there would be too many buckets, or finer ones than are kept. */
  series(request: SeriesRequest): Promise<Series | BucketsProblem>;
  /** The events that pass a filter by bucket. */
  filteredSeries(
    request: FieldSeriesRequest,
    filter: FieldFilter,
  ): Promise<FieldSeries | BucketsProblem | 'not counted'>;
  /** Counts by bucket and value of a declared field. */
  valueSeries(
    request: FieldSeriesRequest,
    path: readonly string[],
  ): Promise<FieldSeries | BucketsProblem | 'not counted'>;
  /** Statistics of the numbers of a declared field by bucket. */
  numberSeries(
    request: SeriesRequest,
    path: readonly string[],
  ): Promise<NumberSeries | BucketsProblem | 'not counted'>;
  /** The stats of apps, by id. */
  appStats(
    appIds: readonly number[],
    at: { readonly timezone: string; readonly now: number },
  ): Promise<ReadonlyMap<number, AppStats>>;
  /** How many events an app has, and from when to when. */
  appSpan(appId: number): Promise<AppSpan>;
  /** The stats of each type of an app, by public id; types without events are left out. */
  typeStats(appId: number): Promise<ReadonlyMap<string, TypeStats>>;
  /** Events of each of the last 24 hours, of the types that have some, by public id. */
  typeActivity(appId: number, now: number): Promise<ReadonlyMap<string, readonly number[]>>;
  /** Changes whenever anything is committed. */
  snapshotText(): Promise<string>;
  /** Reads of the live feed, in one snapshot. */
  feed<T>(appId: number, read: (snapshot: FeedSnapshot) => Promise<T>): Promise<T>;
}

/**
 * Opens the storage of a database, whose engine it detects. In an empty database that can have TimescaleDB it creates the
 * extension.
 * @throws OperatorError where the database was migrated for another engine
 */
export async function openStorage(sql: Sql): Promise<Storage> {
  const { engine: name, description, note } = await chooseEngine(sql);
  const engine = ENGINES[name];
  return {
    engine: name,
    description,
    note,
    migrate: (pool) => migrate(pool, name),
    reader: createReader,
    maintenance: engine.maintenance,
    settleCounts: engine.settleCounts,
    settleBesideWriters: async (pool, now) => {
      if (engine.settlesBesideWriters) await engine.settleCounts(pool, now);
    },
    beginExport: (client) => beginExport(client, engine),
    beginRestore: (options) => beginRestore({ ...options, engine }),
    facts: (pool) => readDatabaseFacts(pool, engine, description),
    recount: (pool, interval, onDay) => recount(pool, engine, interval, onDay),
  };
}

/** Readers need not know the engine: views of the schema hide what differs. */
function createReader(sql: Sql): EventReader {
  return {
    page: (request) => readEventPage(sql, request),
    list: (request) => readEventList(sql, request),
    filteredList: (request, filter) => readFilteredList(sql, request, filter),
    search: (request, filter) => openSearch(sql, request, filter),
    lines: (request, filter) => openLines(sql, request, filter),
    filteredLines: (request, filter) => openCountedLines(sql, request, filter),
    event: (appId, eventId) => readEvent(sql, appId, eventId),
    series: (request) => readSeries(sql, request),
    filteredSeries: (request, filter) => readFilteredSeries(sql, request, filter),
    valueSeries: (request, path) => readValueSeries(sql, request, path),
    numberSeries: (request, path) => readNumberSeries(sql, request, path),
    appStats: (appIds, at) => readAppStats(sql, appIds, at),
    appSpan: (appId) => readAppSpan(sql, appId),
    typeStats: (appId) => readTypeStats(sql, appId),
    typeActivity: (appId, now) => readTypeActivity(sql, appId, now),
    snapshotText: () => readSnapshotText(sql),
    feed: (appId, read) => readFeed(sql, appId, read),
  };
}
