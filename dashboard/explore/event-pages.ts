/** Pages of events, newest first, each after the cursor of the previous one: new events do not shift them. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { asProblem, callText, type Problem } from '../api.ts';
import { type EventPage, type EventRow, readEventPage } from '../event-rows.ts';
import { rangeText } from '../range.ts';
import { sentEarly, useAgain } from '../resource.ts';
import type { View } from '../url.ts';
import { eventsQuery, type ListScope, listPath, picks } from '../view.ts';

export interface EventPages {
  readonly pages: readonly EventPage[];
  readonly loading: boolean;
  readonly problem: Problem | null;
  /** True where there is no older page. */
  readonly complete: boolean;
  /** True where a search was stopped. */
  readonly stopped: boolean;
  /** Where the live feed goes on that tells what they lack; null: not known. */
  readonly feed: string | null;
  /** What the pages are pages of; the start is that of now. */
  readonly scope: ListScope;
  readonly more: () => void;
  readonly stop: () => void;
  /** Goes on with a search that was stopped, or begins it anew where it may lack the newest. */
  readonly resume: () => void;
  /** Puts events that have arrived where they belong. */
  readonly add: (events: readonly EventRow[]) => void;
  /**
   * Asks for the newest again, and leaves what is shown in its place until they are here. A search that goes on comes to its end
   * before, and one that was stopped waits to be resumed.
   */
  readonly renew: () => void;
}

type State = Pick<EventPages, 'pages' | 'loading' | 'problem' | 'complete' | 'stopped' | 'feed'> & {
  /** What these pages are pages of. */
  readonly key: string;
};

export function useEventPages(appId: string, view: View, scope: ListScope): EventPages {
  // A relative range begins a little later each minute, and is the same for all that.
  const range = scope.to === null ? `${rangeText(view.range)} ${view.zone}` : `${scope.from} ${scope.to}`;
  const key = [appId, range, eventsQuery(view, { from: null, to: null })].join(' ');
  const empty: State = {
    key,
    pages: [],
    loading: true,
    problem: null,
    complete: false,
    stopped: false,
    feed: null,
  };
  const [state, setState] = useState(empty);
  const aborter = useRef<AbortController | null>(null);
  /** Events that came since the last page was asked for. */
  const arrived = useRef<EventRow[]>([]);
  /** Whether the newest are to be asked for again, once nothing else is. */
  const isOutdated = useRef(false);

  const load = async (from: readonly EventPage[], shown = from): Promise<void> => {
    aborter.current?.abort();
    const newest = new AbortController();
    const { signal } = newest;
    aborter.current = newest;
    arrived.current = [];
    if (from.length === 0) isOutdated.current = false;
    setState({ ...empty, pages: shown });
    const cursor = from.at(-1)?.next ?? null;
    const path = listPath(appId, view, scope, cursor);
    try {
      const page = readEventPage(await (sentEarly<string>(path) ?? callText('GET', path, { signal })));
      if (signal.aborted) return;
      setState((known) => ({
        ...empty,
        // What has arrived meanwhile may be in the page, or not.
        pages: withNew([...(from.length === 0 ? [] : known.pages), page], arrived.current),
        loading: false,
        complete: page.next === null,
        feed: page.feed,
      }));
    } catch (error) {
      if (signal.aborted) return;
      const problem = asProblem(error, 'The events could not be read');
      setState((known) => ({ ...known, loading: false, problem }));
    }
  };
  useEffect(() => {
    void load([]);
    return () => aborter.current?.abort();
    // A range may have newer events when it is picked again.
  }, [key, picks.value]);

  const current = state.key === key ? state : empty;
  const renew = (): void => void load([], current.pages);
  useEffect(() => {
    if (isOutdated.current && !current.loading && !current.stopped) renew();
  }, [current.loading, current.stopped]);
  useAgain(current.problem, () => void load(current.pages));
  return {
    ...current,
    pages: since(current.pages, scope.from),
    scope,
    more: () => {
      if (!current.loading && !current.complete && !current.stopped) void load(current.pages);
    },
    stop: () => {
      aborter.current?.abort();
      setState((known) => ({ ...known, loading: false, stopped: true }));
    },
    resume: () => (isOutdated.current ? renew() : void load(current.pages)),
    add: (events) => {
      arrived.current.push(...events);
      setState((known) => ({ ...known, pages: withNew(known.pages, events) }));
    },
    renew: () => {
      if (current.loading || current.stopped) isOutdated.current = true;
      else renew();
    },
  };
}

/** Removes the events that a relative range has moved past. */
function since(pages: readonly EventPage[], from: number | null): readonly EventPage[] {
  const oldest = pages.at(-1)?.events.at(-1);
  const isPast = (event: EventRow | undefined): boolean =>
    from !== null && event !== undefined && Date.parse(event.createdAt) < from;
  if (!isPast(oldest)) return pages;
  return pages.map((page) =>
    isPast(page.events.at(-1)) ? { ...page, events: page.events.filter((event) => !isPast(event)) } : page,
  );
}

/** Rows of a page beyond which arrivals get pages of their own: a page is shown or removed as one. */
const FULL = 100;

/** Puts each event into the page that covers its time; an event older than all pages arrives with its own page. */
function withNew(pages: readonly EventPage[], events: readonly EventRow[]): readonly EventPage[] {
  if (events.length === 0) return pages;
  const known = new Set(pages.flatMap((page) => page.events.map(({ id }) => id)));
  let rest = events.filter(({ id }) => !known.has(id)).map((event) => ({ ...event, isNew: true }));
  const [top] = pages;
  if (rest.length === 0 || top === undefined) return pages;
  return pages.flatMap((page, index) => {
    const oldest = page.events.at(-1) ?? pages[index + 1]?.events[0];
    const isEnd = index === pages.length - 1 && page.next === null;
    const isHere = (event: EventRow): boolean =>
      isEnd || oldest === undefined || keyOf(event) > keyOf(oldest);
    const here = rest.filter(isHere);
    if (here.length === 0) return [page];
    rest = rest.filter((event) => !isHere(event));
    return inPages({
      ...page,
      events: [...here, ...page.events].sort((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1)),
    });
  });
}

/** A page whose newest rows are moved into pages of their own where it has too many. */
function inPages(page: EventPage): readonly EventPage[] {
  const { events } = page;
  const excess = events.length - FULL;
  if (excess <= 0) return [page];
  const newer: EventPage = { events: events.slice(0, excess), next: null, searchedUntil: null, feed: null };
  return [...inPages(newer), { ...page, events: events.slice(excess) }];
}

/** What the list is ordered by: times and identifiers have their fixed lengths. */
const keyOf = ({ createdAt, id }: EventRow): string => createdAt + id;

/** Until when everything newer has been looked at; null: nothing yet. */
export function searchedUntil({ pages, complete, scope }: EventPages): number | null {
  if (complete) return scope.from ?? 0;
  const last = pages.at(-1);
  const oldest = last?.events.at(-1);
  return last?.searchedUntil ?? (oldest === undefined ? null : Date.parse(oldest.createdAt));
}
