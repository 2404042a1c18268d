/** Pages of events, newest first, each behind the last one's cursor: what arrives meanwhile shifts nothing. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { callText, Problem } from '../api.ts';
import { type EventPage, readEventPage } from '../event-rows.ts';
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
}

export const eventsPath = (appId: string, view: View, span: Span, limit: number): string =>
  `/api/apps/${appId}/events?${scopeQuery(view, span)}&limit=${limit}`;

interface State extends Omit<EventPages, 'more'> {
  /** What these pages are pages of. */
  readonly path: string;
}

export function useEventPages(appId: string, view: View, span: Span): EventPages {
  const path = eventsPath(appId, view, span, 0);
  const empty: State = { path, pages: [], loading: true, problem: null, complete: false };
  const [state, setState] = useState(empty);
  const aborter = useRef<AbortController | null>(null);

  const load = async (pages: readonly EventPage[]): Promise<void> => {
    aborter.current?.abort();
    const newest = new AbortController();
    const { signal } = newest;
    aborter.current = newest;
    setState({ ...empty, pages });
    const cursor = pages.at(-1)?.next ?? null;
    const before = cursor === null ? '' : `&before=${encodeURIComponent(cursor)}`;
    try {
      const url = eventsPath(appId, view, span, pages.length === 0 ? FIRST : NEXT);
      const page = readEventPage(await callText('GET', url + before, { signal }));
      if (!signal.aborted)
        setState({ ...empty, pages: [...pages, page], loading: false, complete: page.next === null });
    } catch (error) {
      if (signal.aborted) return;
      const problem =
        error instanceof Problem
          ? error
          : new Problem('The events could not be read', { details: String(error) });
      setState({ ...empty, pages, loading: false, problem });
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
  };
}
