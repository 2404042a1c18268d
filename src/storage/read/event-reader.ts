/** Reads of events and counts with the connections of a pool. */

import {
  type AppSpan,
  type AppStats,
  readAppSpan,
  readAppStats,
  readDayCounts,
  readTypeActivity,
} from '../counts/app-stats.ts';
import type { BucketsProblem } from '../counts/buckets.ts';
import { type Counters, type CountersRequest, readCounters } from '../counts/counters.ts';
import {
  type FieldSeries,
  type FieldSeriesRequest,
  readFilteredSeries,
  readFilteredTypes,
  readValueSeries,
} from '../counts/field-series.ts';
import type { Interval } from '../counts/intervals.ts';
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
  readSummaryWindows,
  type SummaryRequest,
  type SummarySeries,
  type SummaryWindows,
  type SummaryWindowsRequest,
} from '../counts/summary-series.ts';
import { readTypeStats, type TypeStats } from '../counts/type-stats.ts';
import {
  type NoWindows,
  readFirstWindow,
  readRecentValues,
  readWindows,
  type WindowRequest,
  type WindowSums,
} from '../counts/windows.ts';
import { isUnavailable, type Sql, type Transaction } from '../database/connect.ts';
import type { FieldFilter, NotCounted } from '../fields/field-scope.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { encodeFeedCursor, type FeedSnapshot, feedCursorOf, readFeed, readSnapshotText } from './arrivals.ts';
import { type LineReader, openCountedLines, openLines } from './event-lines.ts';
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
import { inOneSnapshot } from './snapshot.ts';

/** Reads of events and counts. All reject where the database fails. Ids of apps and types are internal ones. */
export interface EventReader {
  /** A page at an offset, and the exact total. */
  page(request: PageRequest): Promise<EventPage>;
  /** A page from a cursor, in either order. */
  list(request: EventListRequest): Promise<EventList>;
  /** A page of the events that pass a filter; if counts of fields do not answer it, it must be searched for. */
  filteredList(request: EventListRequest, filter: FieldFilter): Promise<EventList | NotCounted>;
  /** A search for events whose payload passes a filter. It holds no connection between its steps. */
  search(request: ScanRequest, filter: RowFilter | null): EventSearch;
  /** Events as lines of JSON, part by part. It holds no connection between two of them. */
  lines(request: ScanRequest, filter: RowFilter | null): LineReader;
  /** Lines of the events that pass a filter, through the counts of a field as far as these answer it. */
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
  /** A filtered series by type. */
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
  /** Statistics, or events, of sliding windows, and by the values of another path. */
  summaryWindows(request: SummaryWindowsRequest): Promise<SummaryWindows | NoWindows>;
  /** Sums over sliding windows, in the order of the requests, in one snapshot; in a cluster in one for each app. */
  windows(requests: readonly WindowRequest[]): Promise<readonly (WindowSums | NoWindows)[]>;
  /**
   * Running counts at instants, in the order of the requests, in one snapshot; in a cluster in one for each app. 'too many' where
   * they would take too many counts by the minute.
   */
  counters(requests: readonly CountersRequest[]): Promise<readonly Counters[] | 'too many'>;
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
  /** How many events an app has of each UTC day of an interval of whole days, by its first millisecond; days without events are left out. */
  dayCounts(appId: number, interval: Interval): Promise<ReadonlyMap<number, number>>;
  /** The stats of each type of an app, by public id; types without events are left out. */
  typeStats(appId: number): Promise<ReadonlyMap<string, TypeStats>>;
  /** Events of each of the last 24 hours, of the types that have some, by public id. */
  typeActivity(appId: number, now: number): Promise<ReadonlyMap<string, readonly number[]>>;
  /**
   * Several reads of an app in one snapshot, on one connection; in a cluster each in one of its own.
   * @param read gets what its other statements go to, and the reader
   */
  together<T>(appId: number, read: (sql: Sql, events: EventReader) => Promise<T>): Promise<T>;
  /** Changes whenever anything is committed where an app is. */
  snapshotText(appId: number): Promise<string>;
  /**
   * Where a live feed begins that tells all that a later read of the app lacks, as the id of a message.
   * @param at now, in milliseconds since 1970
   */
  feedCursor(appId: number, at: number): Promise<string>;
  /** Reads of the live feed, in one snapshot. */
  feed<T>(appId: number, read: (snapshot: FeedSnapshot) => Promise<T>): Promise<T>;
}

/** Which connections lead to what is read of an app. */
export interface ReadRoutes {
  /** The pool, or the snapshot, that has the events of all apps; null in a cluster, where each app is on a node. */
  readonly together: Sql | null;
  /** Where the events of an app and their counts are. */
  at(appId: number): Promise<Sql>;
  /** Reads what is counted of an app's fields. @param read may be called several times */
  counted<T>(appId: number, read: (sql: Sql) => Promise<T>): Promise<T | NotCounted>;
  /** As {@link at}, with what a snapshot says of the table that the app is in. */
  feedAt(
    appId: number,
  ): Promise<{ readonly sql: Sql; readonly placeOf?: (tx: Transaction) => Promise<number> }>;
}

/** On one server everything is in one place. */
export function oneServerRoutes(sql: Sql): ReadRoutes {
  return {
    together: sql,
    at: async () => sql,
    counted: (_, read) => read(sql),
    feedAt: async () => ({ sql }),
  };
}

/** Readers need not know the engine: views of the schema hide what differs. @param sql knows the types of all apps */
export function createReader(sql: Sql, routes = oneServerRoutes(sql)): EventReader {
  const { at, counted, together } = routes;
  const lines = (request: ScanRequest, filter: RowFilter | null): LineReader => {
    const opened = once(async () => openLines(await at(request.appId), request, filter));
    return { next: async () => (await opened()).next() };
  };
  const reader: EventReader = {
    page: async (request) => readEventPage(await at(request.scope.appId), request),
    list: async (request) => readEventList(await at(request.appId), request),
    filteredList: (request, filter) =>
      counted(request.appId, (own) => readFilteredList(own, request, filter)),
    search: (request, filter) => {
      const opened = once(async () => openSearch(await at(request.appId), request, filter));
      return {
        step: async (mostRows) => (await opened()).step(mostRows),
        visit: async (...asked) => (await opened()).visit(...asked),
      };
    },
    lines,
    filteredLines: (request, filter) => openCountedLines(sql, reader, request, filter),
    event: async (appId, eventId) => readEvent(await at(appId), appId, eventId),
    series: async (request) => readSeries(await at(request.appId), request),
    frame: async (request) => readFrame(await at(request.appId), request),
    filteredSeries: (request, filter) =>
      counted(request.appId, (own) => readFilteredSeries(own, request, filter)),
    filteredTypes: (request, filter) =>
      counted(request.appId, (own) => readFilteredTypes(own, request, filter)),
    valueSeries: (request, path, only) =>
      counted(request.appId, (own) => readValueSeries(own, request, path, only)),
    numberSeries: (request, path) => counted(request.appId, (own) => readNumberSeries(own, request, path)),
    summarySeries: (request) => counted(request.appId, (own) => readSummarySeries(own, request)),
    summaryWindows: (request) => counted(request.appId, (own) => readSummaryWindows(own, request)),
    windows: (requests) =>
      together === null ? readWindowsOfApps(requests, routes) : readWindows(together, requests),
    counters: async (requests) => {
      if (together !== null) return await readCounters(together, requests);
      const found: Counters[] = [];
      for (const request of requests) {
        const own = await readCounters(await at(request.appId), [request]);
        if (own === 'too many') return own;
        found.push(...own);
      }
      return found;
    },
    firstWindow: async (appId, windowMs) => readFirstWindow(await at(appId), appId, windowMs),
    recentValues: (of, until) => counted(of.appId, (own) => readRecentValues(own, of, until)),
    appStats: (appIds, when) =>
      together === null ? readStatsOfApps(appIds, when, routes) : readAppStats(together, appIds, when),
    appSpan: async (appId) => readAppSpan(await at(appId), appId),
    dayCounts: async (appId, interval) => readDayCounts(await at(appId), appId, interval),
    typeStats: async (appId) => readTypeStats(await at(appId), appId),
    typeActivity: async (appId, now) => readTypeActivity(await at(appId), appId, now),
    together: (appId, read) =>
      together === null
        ? read(sql, reader)
        : inOneSnapshot(together, (snapshot) => read(snapshot, createReader(snapshot)), appId),
    snapshotText: async (appId) => readSnapshotText(await at(appId)),
    feedCursor: async (appId, when) => {
      const { sql: own, placeOf } = await routes.feedAt(appId);
      if (placeOf === undefined) return encodeFeedCursor(feedCursorOf(await readSnapshotText(own), when));
      return await readFeed(own, appId, async (feed) => encodeFeedCursor(feed.cursor(when)), placeOf);
    },
    feed: async (appId, read) => {
      const { sql: own, placeOf } = await routes.feedAt(appId);
      return await readFeed(own, appId, read, placeOf);
    },
  };
  return reader;
}

/** Windows of each app where it is: those that need no field in one snapshot. */
async function readWindowsOfApps(
  requests: readonly WindowRequest[],
  { at, counted }: ReadRoutes,
): Promise<readonly (WindowSums | NoWindows)[]> {
  const found = new Map<WindowRequest, WindowSums | NoWindows>();
  for (const appId of new Set(requests.map((request) => request.appId))) {
    const own = requests.filter((request) => request.appId === appId);
    const plain = own.filter(({ filter, by }) => filter === null && by === null);
    const ofFields = own.filter((request) => !plain.includes(request));
    const sums = plain.length === 0 ? [] : await readWindows(await at(appId), plain);
    plain.forEach((request, index) => {
      found.set(request, sums[index] ?? 'not counted');
    });
    const more = ofFields.length === 0 ? [] : await counted(appId, (sql) => readWindows(sql, ofFields));
    ofFields.forEach((request, index) => {
      found.set(request, typeof more === 'string' ? more : (more[index] ?? 'not counted'));
    });
  }
  return requests.map((request) => found.get(request) ?? 'not counted');
}

/** The stats of each app whose node answers, each of a moment of its own. */
async function readStatsOfApps(
  appIds: readonly number[],
  when: { readonly timezone: string; readonly now: number },
  { at }: ReadRoutes,
): Promise<Map<number, AppStats>> {
  const parts = await Promise.all(
    appIds.map(async (appId) => {
      try {
        return [...(await readAppStats(await at(appId), [appId], when))];
      } catch (error) {
        if (!isUnavailable(error)) throw error;
        return [];
      }
    }),
  );
  return new Map(parts.flat());
}

/** Opens something at its first use; a failure is tried again at the next. */
function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | null = null;
  return () => {
    opened ??= open().catch((error: unknown) => {
      opened = null;
      throw error;
    });
    return opened;
  };
}
