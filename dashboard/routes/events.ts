/** The events of the range, newest first, loaded as one scrolls. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { EventType } from '../answers.ts';
import { callText } from '../api.ts';
import { EventChunk } from '../components/event-chunk.ts';
import { EventSheet } from '../components/event-sheet.ts';
import { FirstEvent } from '../components/first-event.ts';
import { Icon } from '../components/icon.ts';
import { ProblemBox } from '../components/problem.ts';
import { RangePicker } from '../components/range-picker.ts';
import { TypeFilter, ZoneSelect } from '../components/view-controls.ts';
import { Skeleton } from '../components/waiting.ts';
import { readEventPage } from '../event-rows.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { type Range, resolveRange } from '../range.ts';
import { useResource } from '../resource.ts';
import { now } from '../state.ts';
import { useView, type ViewAndChange } from '../view.ts';
import type { TabProps } from './app.ts';
import { eventsPath, useEventPages } from './event-pages.ts';

/** How often a list that ends now looks whether there is more. */
const LOOK_MS = 10_000;

export function EventsPage({ appId, app }: TabProps): VNode {
  const viewed = useView();
  const { view, span, change } = viewed;
  const { pages, loading, problem, complete, more } = useEventPages(appId, view, span);
  const types = useResource<{ types: EventType[] }>(`/api/apps/${appId}/types`);
  const names = useMemo(
    () => new Map(types.data?.types.map(({ typeId, name }) => [typeId, name])),
    [types.data],
  );
  const count = pages.reduce((sum, { events }) => sum + events.length, 0);
  const newest = pages[0] === undefined ? undefined : (pages[0].events[0]?.id ?? null);
  const hasNewer = useNewer(appId, viewed, newest);
  const sentinel = useSentinel(more, [pages, loading]);
  const refresh = (): void => {
    scrollTo({ top: 0 });
    now.value = Date.now();
  };
  if (app.data?.firstEventAt === null) return html`<${FirstEvent} appId=${appId} app=${app} />`;

  return html`<section aria-label="Events">
    <div class="toolbar" role="group" aria-label="View">
      <${RangePicker} range=${view.range} span=${span} zone=${view.zone} onPick=${(range: Range) => change({ range, back: null })} />
      <${TypeFilter} appId=${appId} types=${view.types} onPick=${(picked: string[]) => change({ types: picked, hidden: [], solo: null })} />
      <span class="spacer"></span>
      <${ZoneSelect} zone=${view.zone} onPick=${(zone: string) => change({ zone })} />
      <button type="button" class=${hasNewer ? 'button primary' : 'button'} onClick=${refresh}><${Icon} name="reload" /><span class="text">${hasNewer ? 'Show newer' : 'Refresh'}</span></button>
    </div>
    <span class="sr-only" role="status">${hasNewer && 'There are newer events'}</span>
    ${
      count > 0 &&
      html`<div class="events" data-complete=${complete}>
        ${pages.map((page, index) => html`<${EventChunk} key=${page.events[0]?.id} appId=${appId} events=${page.events} before=${pages[index - 1]?.events.at(-1)} names=${names} viewed=${viewed} />`)}
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
    // Made anew after every page: an end that is still near is told again.
  }, dependencies);
  return place;
}

/** Whether a range that ends now has an event newer than the list's first. It says so rather than move the list. */
function useNewer(appId: string, { view }: ViewAndChange, newest: string | null | undefined): boolean {
  const [newer, setNewer] = useState<string | null>(null);
  const follows = view.live && view.range.kind !== 'between';
  useEffect(() => {
    if (!follows || newest === undefined) return;
    const look = async (): Promise<void> => {
      if (document.hidden) return;
      const span = resolveRange(view.range, Date.now(), view.zone);
      // A failure is no news: the next look tells, or the next thing that is asked for fails where it is seen.
      const text = await callText('GET', eventsPath(appId, view, span, 1)).catch(() => null);
      if (text !== null) setNewer(readEventPage(text).events[0]?.id ?? null);
    };
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, [follows, newest, view]);
  return follows && newest !== undefined && newer !== null && newer !== newest;
}
