/** The events of the range, newest first, loaded as one scrolls. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { EventType } from '../answers.ts';
import { EventChunk } from '../components/event-chunk.ts';
import { EventSheet } from '../components/event-sheet.ts';
import { FirstEvent } from '../components/first-event.ts';
import { LiveButton } from '../components/live-button.ts';
import { ProblemBox } from '../components/problem.ts';
import { RangePicker } from '../components/range-picker.ts';
import { TypeFilter, ZoneSelect } from '../components/view-controls.ts';
import { Skeleton } from '../components/waiting.ts';
import { type EventRow, readNews } from '../event-rows.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { countNews, useLive } from '../live.ts';
import { type Range, rangeText } from '../range.ts';
import { useResource } from '../resource.ts';
import { now } from '../state.ts';
import { useView, type ViewAndChange } from '../view.ts';
import type { TabProps } from './app.ts';
import { type EventPages, useEventPages } from './event-pages.ts';

/** A live list restarts beyond this many rows, and a paused list reloads instead of buffering more. */
const MOST_ROWS = 2_000;
/** Pixels within which a list is at its top, where new rows move nothing that is read. */
const TOP = 80;
/** Delay before the app's stats are reloaded after new events. */
const FIGURES_MS = 2_000;

export function EventsPage({ appId, app }: TabProps): VNode {
  const viewed = useView();
  const { view, span, change } = viewed;
  const list = useEventPages(appId, view, span);
  const { pages, loading, problem, complete, more } = list;
  const types = useResource<{ types: EventType[] }>(`/api/apps/${appId}/types`);
  const names = useMemo(
    () => new Map(types.data?.types.map(({ typeId, name }) => [typeId, name])),
    [types.data],
  );
  const count = pages.reduce((sum, { events }) => sum + events.length, 0);
  const live = useFollow(appId, viewed, list, count, () => app.reload());
  const sentinel = useSentinel(more, [pages, loading]);
  if (app.data?.firstEventAt === null) return html`<${FirstEvent} appId=${appId} app=${app} />`;

  return html`<section aria-label="Events">
    <div class="toolbar" role="group" aria-label="View">
      <${RangePicker} range=${view.range} span=${span} zone=${view.zone} onPick=${(range: Range) => change({ range, back: null })} />
      <${TypeFilter} appId=${appId} types=${view.types} onPick=${(picked: string[]) => change({ types: picked, hidden: [], solo: null })} />
      <span class="spacer"></span>
      <${ZoneSelect} zone=${view.zone} onPick=${(zone: string) => change({ zone })} />
      <${LiveButton} viewed=${viewed} ...${live} />
    </div>
    <div class="held">${live.fresh > 0 && html`<button type="button" class="button primary" onClick=${live.show}>${counted(live.fresh, 'new event')}</button>`}</div>
    ${
      count > 0 &&
      html`<div class="events" data-complete=${complete}>
        ${pages.map((page, index) => html`<${EventChunk} key=${page.events.at(-1)?.id} appId=${appId} events=${page.events} before=${pages[index - 1]?.events.at(-1)} names=${names} viewed=${viewed} />`)}
      </div>`
    }
    ${count === 0 && complete && html`<div class="empty"><h2>No events in this range</h2><p>Choose a longer range, another period, or all types.</p></div>`}
    <${ProblemBox} problem=${problem} retry=${more} />
    ${loading && html`<${Skeleton} class="rows" lines=${count === 0 ? 14 : 3} />`}
    <div ref=${sentinel}></div>
    ${complete && count > 0 && html`<p class="hint end" role="status">${counted(count, 'event')}: these are all of the range.</p>`}
    ${view.event !== null && html`<${EventSheet} key=${view.event} appId=${appId} eventId=${view.event} names=${names} viewed=${viewed} />`}
  </section>`;
}

/** Calls when the end of the list comes near. */
function useSentinel(reached: () => void, dependencies: readonly unknown[]) {
  const place = useRef<HTMLDivElement>(null);
  const latest = useRef(reached);
  latest.current = reached;
  useEffect(() => {
    if (place.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some(({ isIntersecting }) => isIntersecting)) latest.current();
      },
      { rootMargin: '0px 0px 1200px' },
    );
    observer.observe(place.current);
    return () => observer.disconnect();
    // Recreated after every page, so that it reports an end that is still visible.
  }, dependencies);
  return place;
}

interface Live {
  /** Events that are new and not in the list. */
  readonly fresh: number;
  readonly isLost: boolean;
  /** Puts them there. */
  readonly show: () => void;
}

/** New events are inserted while the list is at its top and no event is open; otherwise they wait, so the list does not move. */
function useFollow(
  appId: string,
  { view }: ViewAndChange,
  { add, renew }: EventPages,
  rows: number,
  reloadFigures: () => void,
): Live {
  const [fresh, setFresh] = useState(0);
  const [isStale, setStale] = useState(false);
  /** What waits; null: more than is known here. */
  const held = useRef<readonly EventRow[] | null>([]);
  const show = (): void => {
    if (held.current === null || rows > MOST_ROWS) renew();
    else add(held.current);
    held.current = [];
    setFresh(0);
  };
  const isLost = useLive(appId, view.range.kind !== 'between', (news) => {
    const found = news === null ? null : readNews(news);
    const all =
      found === null || held.current === null ? null : [...wanted(found, view.types), ...held.current];
    held.current = all !== null && all.length > MOST_ROWS ? null : all;
    setStale(true);
    if (
      view.live &&
      scrollY < TOP &&
      document.querySelector('.event[data-open="true"], dialog[open]') === null
    )
      show();
    else if (news !== null) setFresh((known) => known + countNews(news, view.types));
  });
  useEffect(() => {
    if (view.live && fresh > 0) show();
  }, [view.live]);
  useEffect(() => {
    held.current = [];
    setFresh(0);
  }, [now.value, rangeText(view.range), view.types.join()]);
  useEffect(() => {
    if (!isStale) return;
    const timer = setTimeout(() => {
      setStale(false);
      reloadFigures();
    }, FIGURES_MS);
    return () => clearTimeout(timer);
  }, [isStale]);
  return {
    fresh,
    isLost,
    show: () => {
      show();
      scrollTo({ top: 0 });
    },
  };
}

const wanted = (events: readonly EventRow[], types: readonly string[]): readonly EventRow[] =>
  events.filter(({ typeId }) => types.length === 0 || types.includes(typeId));
