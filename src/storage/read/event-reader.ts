/** Reads of events and counts with the connections of a pool. */

import { grouped } from '../../base/grouped.ts';
import {
  type AppStats,
  readAppSpan,
  readAppStats,
  readDayCounts,
  readTypeActivity,
} from '../counts/app-stats.ts';
import { type Counters, type CountersRequest, readCounters } from '../counts/counters.ts';
import {
  type FieldSeriesRequest,
  readFilteredSeries,
  readFilteredTypes,
  readValueSeries,
} from '../counts/field-series.ts';
import type { Interval } from '../counts/intervals.ts';
import { readFrame, readSeries, type SeriesRequest } from '../counts/series.ts';
import {
  readSummarySeries,
  readSummaryWindows,
  type SummaryRequest,
  type SummaryWindowsRequest,
} from '../counts/summary-series.ts';
import { readTypeStats } from '../counts/type-stats.ts';
import {
  type NoWindows,
  readFirstWindow,
  readRecentValues,
  readWindows,
  type WindowRequest,
  type WindowSums,
} from '../counts/windows.ts';
import { isUnavailable, type Sql, type Transaction, type Transactions } from '../database/connect.ts';
import type { FieldFilter, NotCounted } from '../fields/field-scope.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { encodeFeedCursor, type FeedSnapshot, readFeed, readSnapshotText } from './arrivals.ts';
import { type LineReader, openCountedLines, openLines } from './event-lines.ts';
import { type EventListRequest, readEvent, readEventList, readFilteredList } from './event-list.ts';
import { readEventPage } from './event-page.ts';
import type { ScanRequest } from './event-scan.ts';
import { type EventSearch, openSearch } from './event-search.ts';
import type { PageRequest } from './page-request.ts';
import { inOneSnapshot } from './snapshot.ts';

/** Which connections lead to what is read of an app. */
export interface ReadRoutes {
  /** The pool, or the snapshot, that has the events of all apps; null in a cluster, where each app is on a node. */
  readonly together: Sql | null;
  /** Where the events of an app and their counts are. */
  at(appId: number): Promise<Sql>;
  /** Reads what is counted of an app's fields. @param read may be called several times */
  counted<T>(appId: number, read: (sql: Transactions) => Promise<T>): Promise<T | NotCounted>;
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

/** Reads of events and counts. All reject where the database fails. Ids of apps and types are internal ones. */
export type EventReader = ReturnType<typeof readsOf> & {
  /**
   * Several reads of an app in one snapshot, on one connection; in a cluster each in one of its own.
   * @param read gets what its other statements go to, and the reader
   */
  together<T>(appId: number, read: (sql: Sql, events: EventReader) => Promise<T>): Promise<T>;
};

/** Readers need not know the engine: views of the schema hide what differs. @param sql knows the types of all apps */
export function createReader(sql: Sql, routes = oneServerRoutes(sql)): EventReader {
  const { together } = routes;
  const reader: EventReader = {
    ...readsOf(sql, routes),
    together: (appId, read) =>
      together === null
        ? read(sql, reader)
        : inOneSnapshot(together, (snapshot) => read(snapshot, createReader(snapshot)), appId),
  };
  return reader;
}

function readsOf(sql: Sql, routes: ReadRoutes) {
  const { at, counted, together } = routes;
  /** How many events an app has, and from when to when. */
  const appSpan = async (appId: number) => readAppSpan(await at(appId), appId);
  /** A page of the events that pass a filter; if counts of fields do not answer it, it must be searched for. */
  const filteredList = (request: EventListRequest, filter: FieldFilter) =>
    counted(request.appId, (own) => readFilteredList(own, request, filter));
  /** Events as lines of JSON, part by part. It holds no connection between two of them. */
  const lines = (request: ScanRequest, filter: RowFilter | null): LineReader => {
    const opened = once(async () => openLines(await at(request.appId), request, filter));
    return { isSearch: filter !== null, next: async () => (await opened()).next() };
  };
  return {
    appSpan,
    filteredList,
    lines,
    /** A page at an offset, and the exact total. */
    page: async (request: PageRequest) => readEventPage(await at(request.scope.appId), request),
    /** A page from a cursor, in either order. */
    list: async (request: EventListRequest) => readEventList(await at(request.appId), request),
    /** A search for events whose payload passes a filter. It holds no connection between its steps. */
    search: (request: ScanRequest, filter: RowFilter | null): EventSearch => {
      const opened = once(async () => openSearch(await at(request.appId), request, filter));
      return {
        step: async (mostRows) => (await opened()).step(mostRows),
        visit: async (...asked) => (await opened()).visit(...asked),
      };
    },
    /** Lines of the events that pass a filter, through the counts of a field as far as these answer it. */
    filteredLines: (request: ScanRequest, filter: FieldFilter) =>
      openCountedLines(sql, { appSpan, filteredList, lines }, request, filter),
    /** One event; null where the app has no such event that can be read. */
    event: async (appId: number, eventId: string) => readEvent(await at(appId), appId, eventId),
    /** Counts by bucket and type; what is wrong where there would be too many buckets, or finer ones than are kept. */
    series: async (request: SeriesRequest) => readSeries(await at(request.appId), request),
    /** The buckets of such a series, without its counts. */
    frame: async (request: SeriesRequest) => readFrame(await at(request.appId), request),
    /** The events that pass a filter by bucket. */
    filteredSeries: (request: FieldSeriesRequest, filter: FieldFilter) =>
      counted(request.appId, (own) => readFilteredSeries(own, request, filter)),
    filteredTypes: (request: FieldSeriesRequest, filter: FieldFilter) =>
      counted(request.appId, (own) => readFilteredTypes(own, request, filter)),
    /** Counts by bucket and value of a declared field; of the events that pass a filter on the same field, where one is given. */
    valueSeries: (request: FieldSeriesRequest, path: readonly string[], only?: FieldFilter | null) =>
      counted(request.appId, (own) => readValueSeries(own, request, path, only)),
    /** Statistics, or events, by bucket, and by the values of another path. */
    summarySeries: (request: SummaryRequest) =>
      counted(request.appId, (own) => readSummarySeries(own, request)),
    /** Statistics, or events, of sliding windows, and by the values of another path. */
    summaryWindows: (request: SummaryWindowsRequest) =>
      counted(request.appId, (own) => readSummaryWindows(own, request)),
    /** Sums over sliding windows, in the order of the requests, in one snapshot; in a cluster in one for each app. */
    windows: (requests: readonly WindowRequest[]) =>
      together === null ? readWindowsOfApps(requests, routes) : readWindows(together, requests),
    /**
     * Running counts at instants, in the order of the requests, in one snapshot; in a cluster in one for each app. 'too many' where
     * they would take too many counts by the minute.
     */
    counters: async (requests: readonly CountersRequest[]): Promise<readonly Counters[] | 'too many'> => {
      if (together !== null) return await readCounters(together, requests);
      const found: Counters[] = [];
      for (const request of requests) {
        const own = await readCounters(await at(request.appId), [request]);
        if (own === 'too many') return own;
        found.push(...own);
      }
      return found;
    },
    /** The end of the first window of a length whose minutes are all kept. */
    firstWindow: async (appId: number, windowMs: number) => readFirstWindow(await at(appId), appId, windowMs),
    /** The values of a declared field that events had in the seven days before an instant. */
    recentValues: (of: Parameters<typeof readRecentValues>[1], until: number) =>
      counted(of.appId, (own) => readRecentValues(own, of, until)),
    /** The stats of apps, by id. */
    appStats: (
      appIds: readonly number[],
      when: { readonly timezone: string; readonly now: number },
    ): Promise<ReadonlyMap<number, AppStats>> =>
      together === null ? readStatsOfApps(appIds, when, routes) : readAppStats(together, appIds, when),
    /** How many events an app has of each UTC day of an interval of whole days, by its first millisecond; days without events are left out. */
    dayCounts: async (appId: number, interval: Interval) => readDayCounts(await at(appId), appId, interval),
    /** The stats of each type of an app, by public id; types without events are left out. */
    typeStats: async (appId: number) => readTypeStats(await at(appId), appId),
    /** Events of each of the last 24 hours, of the types that have some, by public id. */
    typeActivity: async (appId: number, now: number) => readTypeActivity(await at(appId), appId, now),
    /** Changes whenever anything is committed where an app is. */
    snapshotText: async (appId: number) => readSnapshotText(await at(appId)),
    /**
     * Where a live feed begins that tells all that a later read of the app lacks, as the id of a message.
     * @param when now, in milliseconds since 1970
     */
    feedCursor: async (appId: number, when: number): Promise<string> => {
      const reading = sql.pool.database.part(FeedCursors).byApp;
      // The chart and the list of a page ask at the same time: a snapshot that was begun before either is read has less than both.
      const begun = reading.get(appId);
      const shared = begun === undefined ? null : await begun.catch(() => null);
      if (shared !== null) return shared;
      const read = async (feed: FeedSnapshot) =>
        encodeFeedCursor({ ...feed.cursor(when), total: await feed.total() });
      const own = routes
        .feedAt(appId)
        .then((at) => readFeed(at.sql, appId, read, at.placeOf))
        .finally(() => reading.delete(appId));
      reading.set(appId, own);
      return await own;
    },
    /** Reads of the live feed, in one snapshot. */
    feed: async <T>(appId: number, read: (snapshot: FeedSnapshot) => Promise<T>) => {
      const { sql: own, placeOf } = await routes.feedAt(appId);
      return await readFeed(own, appId, read, placeOf);
    },
  };
}

/** Cursors of a database that are being read, by the app. */
class FeedCursors {
  readonly byApp = new Map<number, Promise<string>>();
}

/** Windows of each app where it is: those that need no field in one snapshot. */
async function readWindowsOfApps(
  requests: readonly WindowRequest[],
  { at, counted }: ReadRoutes,
): Promise<readonly (WindowSums | NoWindows)[]> {
  const found = new Map<WindowRequest, WindowSums | NoWindows>();
  for (const [appId, own] of grouped(requests, (request) => request.appId)) {
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
