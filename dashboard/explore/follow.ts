/** One live feed for the chart and the list: both show committed events, or count new ones while paused. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { callText } from '../api.ts';
import { type EventRow, lacksPayloads, readEventPage, readNews } from '../event-rows.ts';
import { useLatest } from '../latest.ts';
import { countNews, isWanted, useLive } from '../live.ts';
import { isOpen, rangeText } from '../range.ts';
import { now } from '../state.ts';
import { chosenTypes } from '../url.ts';
import { eventsQuery, hasConditions, type ListScope, refreshInterval, type ViewAndChange } from '../view.ts';
import type { EventPages } from './event-pages.ts';

/** How soon after the last answer another one is asked for when events have arrived. */
const NEWS_MS = 1_000;
/** A live list restarts beyond this many rows, and a paused list reloads instead of buffering more. */
const MOST_ROWS = 2_000;
/** Pixels within which a page is at its top, where new rows move nothing that is read. */
const TOP = 80;
/** Delay before an arrival is searched for, so that a burst is one search. */
const SEARCH_MS = 1_000;
/** Arrivals are searched for as far back as this, and further where one of them is dated back. */
const LATE_MS = 60_000;
/** A list with arrivals that are dated back further is asked for again. */
const MOST_LATE_MS = 86_400_000;

export interface Follow {
  /** Events that are new and not in the list. */
  readonly held: number;
  /** Events that are new and not in the chart. */
  readonly fresh: number;
  readonly isLost: boolean;
  /** Inserts the waiting events into the list. */
  readonly show: () => void;
}

export interface FollowOptions {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly list: EventPages;
  /** Whether the chart is being asked for. */
  readonly loading: boolean;
  /** Where the feed goes on that tells what the chart lacks. */
  readonly feed: string | undefined;
  /** False while the app has no events. */
  readonly isOn: boolean;
  /** Types whose events are neither listed nor counted. */
  readonly unwanted: ReadonlySet<string>;
  /** Whether something of the list is being read, which must stay where it is. */
  readonly isRead: () => boolean;
  readonly reloadApp: () => void;
}

export function useFollow(options: FollowOptions): Follow {
  const { appId, viewed, list, loading, feed, isOn, unwanted } = options;
  const { view } = viewed;
  const [fresh, setFresh] = useState(0);
  const [hasNews, setNews] = useState(false);
  const held = useHeldEvents(options);
  // It begins where chart and list end: neither is asked for again.
  const start = useRef<string | null>(null);
  if (start.current === null && !loading && !list.loading)
    start.current = feed === undefined || list.feed === null ? '' : `${feed},${list.feed}`;
  const tell = useGathered((news) => {
    setNews(true);
    if (news !== null) setFresh((known) => known + countNews(news, chosenTypes(view), unwanted));
    held.tell(news);
  });
  const isLost = useLive(appId, isOn && start.current !== null && isOpen(view.range), tell, start);
  useEffect(() => setFresh(0), [now.value, rangeText(view.range), view.types.join()]);
  useRefresh(options, hasNews, () => setNews(false));
  return { held: held.held, fresh: view.live ? 0 : fresh, isLost, show: held.show };
}

/** Tells the first message at once, and those that follow within a second together: the page is drawn once for them. */
function useGathered(tell: (news: string | null) => void): (news: string | null) => void {
  const latest = useLatest(tell);
  const timer = useRef(0);
  const gathered = useRef<(string | null)[]>([]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const flush = (): void => {
    // Nobody looks at a hidden page: it is drawn once it is seen.
    const isDue = !document.hidden && gathered.current.length > 0;
    const news = isDue ? gathered.current.splice(0) : [];
    timer.current = isDue || document.hidden ? setTimeout(flush, NEWS_MS) : 0;
    // What is read again once is not read again for each message that says so.
    const last = news.lastIndexOf(null);
    for (const [index, one] of news.entries()) if (one !== null || index === last) latest.current(one);
  };
  return (news) => {
    gathered.current.push(news);
    if (timer.current === 0) flush();
  };
}

/** Asks for the chart again when events have arrived, and by the clock. */
function useRefresh(
  { viewed, loading, isOn, reloadApp }: FollowOptions,
  hasNews: boolean,
  seen: () => void,
): void {
  const { view, span } = viewed;
  useEffect(() => {
    const interval = refreshInterval(view, span);
    if (interval === null || loading || !isOn) return;
    const refresh = (): void => {
      if (document.hidden) return;
      seen();
      now.value = Date.now();
      // What it says of the app's last event is for a chart without any.
      if (!hasNews) reloadApp();
    };
    const timer = setTimeout(refresh, Math.max(0, now.value + (hasNews ? NEWS_MS : interval) - Date.now()));
    document.addEventListener('visibilitychange', refresh);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', refresh);
    };
  }, [view, span, loading, hasNews, isOn]);
}

interface HeldEvents {
  readonly held: number;
  readonly tell: (news: string | null) => void;
  readonly show: () => void;
}

/** New events are inserted while the page is scrolled to its top and no event is open; otherwise they wait. */
function useHeldEvents({ appId, viewed, list, isRead, unwanted }: FollowOptions): HeldEvents {
  const { view } = viewed;
  const [held, setHeld] = useState(0);
  /** The waiting events; null: more than are kept. */
  const waiting = useRef<readonly EventRow[] | null>([]);
  const rows = list.pages.reduce((sum, { events }) => sum + events.length, 0);
  const show = (): void => {
    if (waiting.current === null || rows > MOST_ROWS) list.renew();
    else if (waiting.current.length > 0) list.add(waiting.current);
    waiting.current = [];
    setHeld(0);
  };
  const take = (found: readonly EventRow[] | null, count: number): void => {
    const all = found === null || waiting.current === null ? null : [...found, ...waiting.current];
    waiting.current = all !== null && all.length > MOST_ROWS ? null : all;
    if (view.live && scrollY < TOP && !isRead()) show();
    else setHeld((known) => known + count);
  };
  const search = useArrivalSearch(appId, viewed, take);
  useEffect(() => {
    if (view.live && held > 0) show();
  }, [view.live]);
  useEffect(() => {
    waiting.current = [];
    setHeld(0);
  }, [rangeText(view.range), eventsQuery(view, { from: null, to: null }).toString(), list.scope.to]);
  return {
    held,
    tell: (news) => {
      // A bucket that is over gets no new events.
      if (list.scope.to !== null && list.scope.to < Date.now()) return;
      const found = news === null ? null : readNews(news);
      const shown = found && wanted(found, chosenTypes(view), unwanted, list.scope);
      if (hasConditions(view)) {
        const dated = shown?.map(({ createdAt }) => Date.parse(createdAt));
        if (news === null) take(null, 0);
        // The times of events that are not told one by one are unknown.
        else if (dated === undefined) search(null);
        else if (dated.length > 0) search(Math.min(...dated));
        return;
      }
      take(
        news === null || lacksPayloads(news) ? null : shown,
        news === null ? 0 : countNews(news, chosenTypes(view), unwanted),
      );
    },
    show: () => {
      show();
      scrollTo({ top: 0 });
    },
  };
}

/** Whether what arrives meets the conditions only the server can say: it is asked for the time of the arrivals alone. */
function useArrivalSearch(
  appId: string,
  { view }: ViewAndChange,
  take: (found: readonly EventRow[] | null, count: number) => void,
): (from: number | null) => void {
  const timer = useRef(0);
  /** Where the next search begins; null: nobody knows, and the list is asked for again. */
  const since = useRef<number | null>(Infinity);
  const known = useRef(new Set<string>());
  const latest = useLatest(take);
  const query = eventsQuery(view, { from: null, to: null }).toString();
  useEffect(() => {
    known.current = new Set();
    return () => {
      clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [query]);
  return (dated) => {
    const recent = Math.min(since.current ?? 0, Date.now() - LATE_MS);
    since.current = dated === null || since.current === null ? null : Math.min(recent, dated);
    if (timer.current !== 0) return;
    timer.current = setTimeout(async () => {
      timer.current = 0;
      const from = since.current;
      since.current = Infinity;
      if (from === null || Date.now() - from > MOST_LATE_MS) return latest.current(null, 0);
      const path = `/api/apps/${appId}/events?${eventsQuery(view, { from, to: null })}&order=desc&limit=200`;
      const events = await readArrivals(path).catch(() => null);
      const found = events?.filter(({ id }) => !known.current.has(id)) ?? null;
      for (const { id } of found ?? []) known.current.add(id);
      if (found === null || found.length > 0) latest.current(found, found?.length ?? 0);
    }, SEARCH_MS);
  };
}

/**
 * All pages of what has arrived: a burst is more than one page, and a slow search has none of its events on its first.
 * @returns null where they are more than a list takes, which then restarts
 */
export async function readArrivals(path: string): Promise<readonly EventRow[] | null> {
  const arrived: EventRow[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { events, next } = readEventPage(await callText('GET', path + query));
    arrived.push(...events);
    cursor = next;
  } while (cursor !== null && arrived.length <= MOST_ROWS);
  return cursor === null ? arrived : null;
}

const wanted = (
  events: readonly EventRow[],
  types: readonly string[],
  unwanted: ReadonlySet<string>,
  { from, to }: ListScope,
): readonly EventRow[] =>
  events.filter(({ typeId, createdAt }) => {
    const at = Date.parse(createdAt);
    return isWanted(typeId, types, unwanted) && at >= (from ?? at) && at < (to ?? Infinity);
  });
