/** Reads of events and counts with the connections of a pool. */

import {
  type AppSpan,
  type AppStats,
  readAppSpan,
  readAppStats,
  readTypeActivity,
} from '../counts/app-stats.ts';
import type { BucketsProblem } from '../counts/buckets.ts';
import {
  type FieldSeries,
  type FieldSeriesRequest,
  readFilteredSeries,
  readFilteredTypes,
  readValueSeries,
} from '../counts/field-series.ts';
import {
  readFrame,
  readSeries,
  type Series,
  type SeriesFrame,
  type SeriesRequest,
} from '../counts/series.ts';
import {
  type NumberSeries,
  readNumberSeries,
  readSummarySeries,
  type SummaryRequest,
  type SummarySeries,
} from '../counts/summary-series.ts';
import { readTypeStats, type TypeStats } from '../counts/type-stats.ts';
import {
  readFirstWindow,
  readRecentValues,
  readWindows,
  type WindowRequest,
  type WindowSums,
} from '../counts/windows.ts';
import type { Sql } from '../database/connect.ts';
import type { FieldFilter, NotCounted } from '../fields/field-scope.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { type FeedSnapshot, readFeed, readSnapshotText } from './arrivals.ts';
import { openCountedLines } from './counted-lines.ts';
import { type LineReader, openLines } from './event-lines.ts';
import {
  type EventList,
  type EventListRequest,
  readEvent,
  readEventList,
  readFilteredList,
  type SingleEvent,
} from './event-list.ts';
import { readEventPage } from './event-page.ts';
import type { ScanRequest } from './event-scan.ts';
import { type EventSearch, openSearch } from './event-search.ts';
import type { EventPage, PageRequest } from './page-request.ts';

/** Reads of events and counts. All reject where the database fails. Ids of apps and types are internal ones. */
export interface EventReader {
  /** A page at an offset, and the exact total. */
  page(request: PageRequest): Promise<EventPage>;
  /** A page from a cursor, in either order. */
  list(request: EventListRequest): Promise<EventList>;
  /** The same of events that pass a filter; if counts of fields do not answer it, it must be searched for. */
  filteredList(request: EventListRequest, filter: FieldFilter): Promise<EventList | NotCounted>;
  /** A search for events whose payload passes a filter. It holds no connection between its steps. */
  search(request: ScanRequest, filter: RowFilter | null): EventSearch;
  /** Events as lines of JSON, part by part. It holds no connection between two of them. */
  lines(request: ScanRequest, filter: RowFilter | null): LineReader;
  /** The same of events that pass a filter, through the counts of a field as far as these answer it. */
  filteredLines(request: ScanRequest, filter: FieldFilter): LineReader;
  /** One event; null where the app has no such event that can be read. */
  event(appId: number, eventId: string): Promise<SingleEvent | null>;
  /** Counts by bucket and type; what is wrong where there would be too many buckets, or finer ones than are kept. */
  series(request: SeriesRequest): Promise<Series | BucketsProblem>;
  /** The buckets of such a series, without its counts. */
  frame(request: SeriesRequest): Promise<SeriesFrame | BucketsProblem>;
  /** The events that pass a filter by bucket. */
  filteredSeries(
    request: FieldSeriesRequest,
    filter: FieldFilter,
  ): Promise<FieldSeries | BucketsProblem | NotCounted>;
  /** The same by type. */
  filteredTypes(
    request: FieldSeriesRequest,
    filter: FieldFilter,
  ): Promise<FieldSeries | BucketsProblem | NotCounted>;
  /** Counts by bucket and value of a declared field; of the events that pass a filter on the same field, where one is given. */
  valueSeries(
    request: FieldSeriesRequest,
    path: readonly string[],
    only?: FieldFilter | null,
  ): Promise<FieldSeries | BucketsProblem | NotCounted>;
  /** Statistics of the numbers of a declared field by bucket. */
  numberSeries(
    request: SeriesRequest,
    path: readonly string[],
  ): Promise<NumberSeries | BucketsProblem | NotCounted>;
  /** Statistics, or events, by bucket, and by the values of another path. */
  summarySeries(request: SummaryRequest): Promise<SummarySeries | BucketsProblem | NotCounted>;
  /** Sums over sliding windows, in the order of the requests, in one snapshot; in a cluster in one for each app. */
  windows(requests: readonly WindowRequest[]): Promise<readonly (WindowSums | NotCounted)[]>;
  /** The end of the first window of a length whose minutes are all kept. */
  firstWindow(appId: number, windowMs: number): Promise<number>;
  /** The values of a declared field that events had in the seven days before an instant. */
  recentValues(
    of: Pick<WindowRequest, 'appId' | 'typeIds'> & { readonly by: readonly string[] },
    until: number,
  ): Promise<ReadonlySet<string> | NotCounted>;
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
  /** Changes whenever anything is committed where an app is. */
  snapshotText(appId: number): Promise<string>;
  /** Reads of the live feed, in one snapshot. */
  feed<T>(appId: number, read: (snapshot: FeedSnapshot) => Promise<T>): Promise<T>;
}

/** Readers of one server need not know the engine: views of the schema hide what differs. */
export function createReader(sql: Sql): EventReader {
  const reader: EventReader = {
    page: (request) => readEventPage(sql, request),
    list: (request) => readEventList(sql, request),
    filteredList: (request, filter) => readFilteredList(sql, request, filter),
    search: (request, filter) => openSearch(sql, request, filter),
    lines: (request, filter) => openLines(sql, request, filter),
    filteredLines: (request, filter) => openCountedLines(sql, reader, request, filter),
    event: (appId, eventId) => readEvent(sql, appId, eventId),
    series: (request) => readSeries(sql, request),
    frame: (request) => readFrame(sql, request),
    filteredSeries: (request, filter) => readFilteredSeries(sql, request, filter),
    filteredTypes: (request, filter) => readFilteredTypes(sql, request, filter),
    valueSeries: (request, path, only) => readValueSeries(sql, request, path, only),
    numberSeries: (request, path) => readNumberSeries(sql, request, path),
    summarySeries: (request) => readSummarySeries(sql, request),
    windows: (requests) => readWindows(sql, requests),
    firstWindow: (_appId, windowMs) => readFirstWindow(sql, windowMs),
    recentValues: (of, until) => readRecentValues(sql, of, until),
    appStats: (appIds, at) => readAppStats(sql, appIds, at),
    appSpan: (appId) => readAppSpan(sql, appId),
    typeStats: (appId) => readTypeStats(sql, appId),
    typeActivity: (appId, now) => readTypeActivity(sql, appId, now),
    snapshotText: () => readSnapshotText(sql),
    feed: (appId, read) => readFeed(sql, appId, read),
  };
  return reader;
}
