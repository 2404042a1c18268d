/** One app's events: a chart and the list below it share one view and one address. */
import type { VNode } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Series } from '../../src/api-types/answers.ts';
import type { TabProps } from '../app-tab.ts';
import { EventSheet } from '../components/event-sheet.ts';
import { FirstEvent } from '../components/first-event.ts';
import { Icon } from '../components/icon.ts';
import type { OnFilter } from '../components/json-tree.ts';
import { LiveButton } from '../components/live-button.ts';
import { RangePicker } from '../components/range-picker.ts';
import { totalOf } from '../explore/breakdown.ts';
import { ChartCard } from '../explore/chart-card.ts';
import { EventList } from '../explore/event-list.ts';
import { type EventPages, useEventPages } from '../explore/event-pages.ts';
import { useFacets } from '../explore/facets.ts';
import { FilterBar } from '../explore/filter-bar.ts';
import { useFollow } from '../explore/follow.ts';
import { SavedViews } from '../explore/saved-views.ts';
import { useScan } from '../explore/scan.ts';
import { secondOf } from '../explore/segment.ts';
import { useTypes } from '../explore/type-names.ts';
import { withCondition } from '../filter-text.ts';
import { rangeLabel, spanText } from '../format.ts';
import { html } from '../html.ts';
import { useLatest } from '../latest.ts';
import { opened } from '../places.ts';
import { rangeText, wider } from '../range.ts';
import { useResource } from '../resource.ts';
import { notify, now } from '../state.ts';
import { type Bucket, misread, type View, viewSearch } from '../url.ts';
import {
  asksForHidden,
  listed,
  listScope,
  scopeQuery,
  seriesPath,
  useView,
  type ViewAndChange,
} from '../view.ts';

export { BoardsPage } from './boards.ts';
export { DeliveryPage } from './delivery.ts';
export { OverviewPage } from './overview.ts';
export { SharedPage } from './shared.ts';

export function ExplorePage({ appId, app }: TabProps): VNode {
  const viewed = useView();
  const { view, span, change } = viewed;
  const isEmpty = app.data?.firstEventAt === null;
  const [peek, setPeek] = useState<Bucket | null>(null);
  const series = useResource<Series>(isEmpty ? null : seriesPath(appId, view, span), {
    scope: `series ${appId}`,
    version: now.value,
    // A relative range is the same a minute later.
    meaning: [rangeText(view.range), view.zone, scopeQuery(view, { from: null, to: null }), view.by].join(
      ' ',
    ),
  });
  const part = view.at ?? peek;
  const listing = useMemo(() => listed(view), [view]);
  const searched = useEventPages(appId, listing, listScope(view, span, part));
  const scan = useScan(appId, viewed, series, part === null ? searched : null);
  // The two look for the same events: where one has found them all, the other has nothing to look for.
  const list = part === null ? foundBy(searched, scan.series) : searched;
  const shown = scan.series ?? (series.isStale ? undefined : series.data);
  useArrival(isEmpty);
  const ignored = useMisread(view);
  useCanonicalAddress(viewed);
  const hidden = series.data?.hidden?.typeIds ?? NONE;
  const ratio = view.measure?.kind === 'ratio' ? view.measure.part : null;
  const named = useMemo(
    () => [
      ...list.pages.flatMap(({ events }) => events.map(({ typeId }) => typeId)),
      ...[...view.types, ...(view.other?.types ?? [])].map((type) => type.replace(/^-/, '')),
      ...(ratio !== null && 'type' in ratio ? [ratio.type] : hidden),
    ],
    [list.pages, view, hidden],
  );
  const { types, reload } = useTypes(appId, named);
  const unwanted = useMemo(
    () =>
      new Set([
        ...view.types.flatMap((type) => (type.startsWith('-') ? type.slice(1) : [])),
        ...(asksForHidden(view) ? [] : hidden),
      ]),
    [hidden, view],
  );
  const live = useFollow({
    appId,
    viewed: { ...viewed, view: listing },
    list,
    loading: series.loading,
    feed: series.data?.feed,
    isOn: !isEmpty,
    unwanted,
    isRead: () => peek !== null || opened.rows + opened.dialogs > 0,
    reloadApp: app.reload,
  });
  const names = useMemo(() => new Map(types.map(({ typeId, name }) => [typeId, name])), [types]);
  const onFilter = useFilter(viewed);
  const facets = useFacets({ appId, viewed });
  const mayChange = app.data?.may.includes('change') ?? false;
  const rows = series.data === undefined ? 0 : totalOf(series.data);
  const retry = (): void => {
    for (const one of [app, series, { reload }]) one.reload();
    list.renew();
  };
  if (isEmpty) return html`<${FirstEvent} appId=${appId} app=${app} />`;

  return html`<section class="explore" aria-label="Explore">
    <div class="toolbar controls" role="group" aria-label="View">
      <${RangePicker} ...${viewed} />
      <${Back} viewed=${viewed} />
      <${LiveButton} viewed=${viewed} fresh=${live.fresh} isLost=${live.isLost} />
      <${SavedViews} appId=${appId} view=${viewed.view} mayChange=${mayChange} />
    </div>
    <div class="filter-place">${facets.button}<${FilterBar} appId=${appId} viewed=${viewed} types=${types} unwanted=${unwanted} pages=${list.pages} rows=${rows} /></div>
    ${view.compare === 'segment' && html`<div class="second-filter"><span class="hint">Compared with</span><${FilterBar} label="Second filter" appId=${appId} viewed=${secondOf(viewed)} types=${types} unwanted=${unwanted} pages=${list.pages} rows=${rows} /><button class="button" onClick=${() => change({ compare: 'previous', other: undefined })}>The period before</button></div>`}
    ${ignored.length > 0 && html`<p class="hint" role="status">Not understood in this address, and left out: <b>${ignored.join(', ')}</b>. This is ${rangeLabel(view.range, view.zone)}.</p>`}
    <p class="print-only">${spanText(span.from ?? series.data?.interval.from ?? span.to, span.to, view.zone)} (${view.zone.replaceAll('_', ' ')})${shown?.by && `, by ${shown.by}`}</p>
    <div class=${facets.rail === false ? 'explore-body' : 'explore-body with-rail'}>${facets.rail}<div class="explore-main">
    <${ChartCard} appId=${appId} name=${app.data?.name ?? ''} series=${series} types=${types} scan=${scan} viewed=${viewed} lastEventAt=${app.data?.lastEventAt ?? null} isOwner=${app.data?.may.includes('own') ?? false} mayChange=${mayChange} onPeek=${setPeek} onRetry=${retry} />
    ${
      // Below the chart, whose height is known then: nothing is pushed down. What fails with the chart is told once.
      (series.data !== undefined || (series.problem !== null && list.problem === null)) &&
      html`<${EventList} appId=${appId} viewed=${viewed} list=${list} scan=${scan} series=${shown} names=${names} mayErase=${app.data?.may.includes('own') ?? false} peek=${peek} held=${live.held} onShow=${live.show} onFilter=${onFilter} />`
    }
    </div></div>
    ${facets.sheet}
    ${view.event !== null && html`<${Sheet} appId=${appId} viewed=${viewed} list=${list} names=${names} onFilter=${onFilter} />`}
  </section>`;
}

const NONE: readonly string[] = [];

/** A list that has as many events as a chart has counted to the end. */
function foundBy(list: EventPages, counted: Series | null): EventPages {
  if (counted === null || list.complete || list.problem !== null) return list;
  const listed = list.pages.reduce((sum, { events }) => sum + events.length, 0);
  const total = [...counted.all, ...(counted.hidden?.counts ?? [])].reduce((sum, count) => sum + count, 0);
  return listed < total ? list : { ...list, loading: false, complete: true };
}

/** Says that an app that was empty has its first event. */
function useArrival(isEmpty: boolean): void {
  const wasEmpty = useRef(false);
  useEffect(() => {
    if (wasEmpty.current && !isEmpty) {
      now.value = Date.now();
      notify('The first event has arrived');
    }
    wasEmpty.current = isEmpty;
  }, [isEmpty]);
}

/** What the address said that is not understood, until the view is changed: the address is completed without it. */
function useMisread(view: View): readonly string[] {
  const shown = viewSearch({ ...view, event: null });
  const [found, setFound] = useState({ shown: '', ignored: [] as readonly string[] });
  const ignored = misread(location.search);
  useEffect(() => {
    if (ignored.length > 0) setFound({ shown, ignored });
  }, [ignored.join()]);
  return found.shown === shown ? found.ignored : [];
}

/** Completes the address with the reader's time zone, so that a shared link shows the same interval. */
function useCanonicalAddress({ view, change }: ViewAndChange): void {
  useEffect(() => {
    const query = new URLSearchParams(location.search);
    if (query.get('tz') !== view.zone || !(query.has('range') || query.has('from'))) change({}, true);
  }, [view]);
}

/** One function for every render, so that rows stay as they are. */
function useFilter(viewed: ViewAndChange): OnFilter {
  const latest = useLatest(viewed);
  return useCallback((path, value, not, isAll) => {
    const { view, change } = latest.current;
    const filters = withCondition(isAll ? [] : view.filters, path, value, not);
    change({
      ...{ filters, at: null, event: null },
      ...(isAll && { range: { kind: 'all' }, types: [], text: null, back: view.back ?? view.range }),
    });
    scrollTo({ top: 0 });
  }, []);
}

function Back({ viewed: { view, span, change } }: { readonly viewed: ViewAndChange }): VNode {
  const { from, to } = span;
  const { back } = view;
  if (back !== null)
    return html`<button class="button zoom-back" title=${`Back to ${rangeLabel(back, view.zone)}`} onClick=${() => change({ range: back, back: null })}><${Icon} name="zoomOut" />Back</button>`;
  return html`<button class="button zoom-out" disabled=${from === null} title="Show twice as much" onClick=${() => from !== null && change({ range: wider({ from, to }, Date.now()), back: view.range })}>
    <${Icon} name="zoomOut" /><span class="sr-only">Zoom out</span>
  </button>`;
}

interface SheetProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly list: EventPages;
  readonly names: ReadonlyMap<string, string>;
  readonly onFilter: OnFilter;
}

function Sheet({ appId, viewed, list, names, onFilter }: SheetProps): VNode {
  const id = viewed.view.event ?? '';
  const ids = list.pages.flatMap(({ events }) => events.map((event) => event.id));
  const index = ids.indexOf(id);
  const beside = (step: number): string | null => (index < 0 ? null : (ids[index + step] ?? null));
  return html`<${EventSheet} appId=${appId} eventId=${id} names=${names} viewed=${viewed} newer=${beside(-1)} older=${beside(1)} onFilter=${onFilter} />`;
}
