/** Pages of events, newest first, each after the cursor of the previous one: new events do not shift them. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { callText, Problem } from '../api.ts';
import { type EventPage, type EventRow, readEventPage } from '../event-rows.ts';
import type { Span } from '../range.ts';
import { now } from '../state.ts';
import type { View } from '../url.ts';
import { scopeQuery } from '../view.ts';

/** The first page comes quickly; the next ones come before they are seen. */
const FIRST = 50;
const NEXT = 100;

export interface EventPages {
  readonly pages: readonly EventPage[];
  readonly loading: boolean;
  readonly problem: Problem | null;
  /** True where there is no older page. */
  readonly complete: boolean;
  readonly more: () => void;
  /** Puts events that have arrived where they belong. */
  readonly add: (events: readonly EventRow[]) => void;
  /** Asks for the newest again, and leaves what is shown in its place until they are here. */
  readonly renew: () => void;
}

const eventsPath = (appId: string, view: View, span: Span, limit: number): string =>
  `/api/apps/${appId}/events?${scopeQuery(view, span)}&order=desc&limit=${limit}`;

interface State extends Omit<EventPages, 'more' | 'add' | 'renew'> {
  /** What these pages are pages of. */
  readonly path: string;
}

export function useEventPages(appId: string, view: View, span: Span): EventPages {
  const path = eventsPath(appId, view, span, 0);
  const empty: State = { path, pages: [], loading: true, problem: null, complete: false };
  const [state, setState] = useState(empty);
  const aborter = useRef<AbortController | null>(null);
  /** Events that came since the last page was asked for. */
  const arrived = useRef<EventRow[]>([]);

  const load = async (from: readonly EventPage[], shown = from): Promise<void> => {
    aborter.current?.abort();
    const newest = new AbortController();
    const { signal } = newest;
    aborter.current = newest;
    arrived.current = [];
    setState({ ...empty, pages: shown });
    const cursor = from.at(-1)?.next ?? null;
    const after = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    try {
      const url = eventsPath(appId, view, span, from.length === 0 ? FIRST : NEXT);
      const page = readEventPage(await callText('GET', url + after, { signal }));
      if (signal.aborted) return;
      setState((known) => ({
        ...empty,
        // What has arrived meanwhile may be in the page, or not.
        pages: withNew([...(from.length === 0 ? [] : known.pages), page], arrived.current),
        loading: false,
        complete: page.next === null,
      }));
    } catch (error) {
      if (signal.aborted) return;
      const problem =
        error instanceof Problem
          ? error
          : new Problem('The events could not be read', { details: String(error) });
      setState((known) => ({ ...known, loading: false, problem }));
    }
  };
  useEffect(() => {
    void load([]);
    return () => aborter.current?.abort();
    // The same minute, and so the same path, may have newer events.
  }, [path, now.value]);

  const current = state.path === path ? state : empty;
  return {
    ...current,
    more: () => {
      if (!current.loading && !current.complete) void load(current.pages);
    },
    add: (events) => {
      arrived.current.push(...events);
      setState((known) => ({ ...known, pages: withNew(known.pages, events) }));
    },
    renew: () => void load([], current.pages),
  };
}

/** Rows of a page until the next ones get a page of their own. */
const FULL = 100;

/** Puts each event into the page that covers its time; an event older than all pages arrives with its own page. */
function withNew(pages: readonly EventPage[], events: readonly EventRow[]): readonly EventPage[] {
  const known = new Set(pages.flatMap((page) => page.events.map(({ id }) => id)));
  let rest = events.filter(({ id }) => !known.has(id)).map((event) => ({ ...event, isNew: true }));
  const [top] = pages;
  if (rest.length === 0 || top === undefined) return pages;
  const open = top.events.length < FULL ? pages : [{ events: [], next: null }, ...pages];
  return open.map((page, index) => {
    const oldest = page.events.at(-1) ?? open[index + 1]?.events[0];
    const isEnd = index === open.length - 1 && page.next === null;
    const isHere = (event: EventRow): boolean =>
      isEnd || oldest === undefined || keyOf(event) > keyOf(oldest);
    const here = rest.filter(isHere);
    rest = rest.filter((event) => !isHere(event));
    const all = [...here, ...page.events].sort((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1));
    return here.length === 0 ? page : { ...page, events: all };
  });
}

/** What the list is ordered by: times and identifiers have their fixed lengths. */
const keyOf = ({ createdAt, id }: EventRow): string => createdAt + id;
