/** The events of the view, newest first, loaded while scrolling. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Series } from '../../src/api-types/answers.ts';
import { allOf, linesOf } from '../charts/series-data.ts';
import { CopyButton } from '../components/copy.ts';
import { EventChunk, type RowStyle } from '../components/event-chunk.ts';
import { Icon } from '../components/icon.ts';
import type { OnFilter } from '../components/json-tree.ts';
import { Popover } from '../components/popover.ts';
import { ProblemBox } from '../components/problem.ts';
import { Skeleton } from '../components/waiting.ts';
import { compact, count, counted, dateTime, spanText } from '../format.ts';
import { html } from '../html.ts';
import { useLatest } from '../latest.ts';
import { type Bucket, chosenTypes, type View } from '../url.ts';
import {
  asksForHidden,
  boxFilters,
  eventsQuery,
  hasConditions,
  listed,
  type ViewAndChange,
  withHidden,
} from '../view.ts';
import { ColumnHeads, ColumnPicker, columnsOf, tracks, useLayout } from './columns.ts';
import type { EventPages } from './event-pages.ts';
import { fieldsOf } from './fields.ts';
import { LongerRanges } from './longer-ranges.ts';
import { linesOfEvents, useRowSelection } from './row-selection.ts';
import { type Scan, searchedOf } from './scan.ts';

export interface EventListProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly list: EventPages;
  readonly scan: Scan;
  /** The counts of the same range; undefined while they are not known. */
  readonly series: Series | undefined;
  readonly names: ReadonlyMap<string, string>;
  readonly mayErase: boolean;
  /** The bucket that the pointer rests on. */
  readonly peek: Bucket | null;
  /** Events that wait. */
  readonly held: number;
  readonly onShow: () => void;
  readonly onFilter: OnFilter;
}

export function EventList(props: EventListProps): VNode {
  const { appId, viewed, list, scan, peek, held, onShow } = props;
  const { pages, loading, problem, complete, more } = list;
  const { change } = viewed;
  const view = listed(viewed.view);
  // What is counted is not of the box.
  const series =
    props.series !== undefined && viewed.view.values !== null
      ? { ...props.series, isFiltered: false }
      : props.series;
  const shown = pages.reduce((sum, { events }) => sum + events.length, 0);
  const style = useRowStyle(props);
  const rows = useRef<HTMLDivElement>(null);
  const [layout, setLayout] = useLayout(appId);
  const selection = useRowSelection(rows, pages);
  const sentinel = useSentinel(more, [pages, loading]);
  const bucket = view.at ?? peek;
  return html`<section class="event-list" aria-label="Events">
    <header class="list-head">
      <h2>Events</h2>
      ${selection.events.length > 0 && html`<p role="status">${counted(selection.events.length, 'event')} selected</p><${CopyButton} text=${() => linesOfEvents(selection.events, props.names)} label="Copy as JSON">Copy<//><button class="button" onClick=${selection.clear}>Clear</button>`}
      <p class="muted"><${Amount} list=${list} scan=${scan} series=${series} view=${view} bucket=${bucket} /></p>
      ${bucket !== null && html`<span class="chip"><span class="chip-name">${spanText(bucket.from, bucket.to, view.zone)}</span>${view.at !== null && html`<button class="chip-remove" aria-label="Show the events of the whole range" onClick=${() => change({ at: null })}><${Icon} name="close" /></button>`}</span>`}
      ${boxFilters(viewed.view).map((filter) => html`<span key=${filter} class="chip"><span class="chip-name">${filter}</span></span>`)}
      <span class="spacer"></span>
      ${series?.hidden != null && html`<button class="button" onClick=${() => change(withHidden(view))}>${asksForHidden(view) ? 'Leave out' : 'Show'} hidden types</button>`}
      ${props.mayErase && view.range.kind === 'all' && view.filters.length > 0 && view.text === null && view.types.length === 0 && bucket === null && html`<a class="button" href=${`/apps/${appId}/settings?${new URLSearchParams({ erase: view.filters.join('\n') })}`}>Erase them…</a>`}
      <${Exports} appId=${appId} view=${view} list=${list} columns=${style.columns} />
      <${ColumnPicker} appId=${appId} viewed=${viewed} columns=${style.columns} pages=${pages} layout=${layout} onLayout=${setLayout} />
    </header>
    ${hasConditions(view) && series?.isFiltered !== true && !(list.complete && bucket === null) && html`<${SearchProgress} list=${list} scan=${scan} series=${series} view=${view} />`}
    ${
      // What is wrong with both is said once.
      problem === null && html`<${ProblemBox} problem=${scan.problem} retry=${scan.goOn} />`
    }
    <div class="held">${held > 0 && html`<button class="button primary" onClick=${onShow}>${counted(held, 'new event')}</button>`}</div>
    ${
      shown > 0 &&
      html`<div class="events" ref=${rows} data-complete=${complete} data-wraps=${layout.wraps} style=${{ '--names': namesWidth(style.names), '--cells': tracks(style.columns, layout) }}>
        ${style.columns.length > 0 && html`<${ColumnHeads} appId=${appId} viewed=${viewed} columns=${style.columns} layout=${layout} onLayout=${setLayout} />`}
        ${pages.map(({ events }, index) => html`<${EventChunk} key=${events.at(-1)?.id ?? index} events=${events} before=${pages[index - 1]?.events.at(-1)} selected=${selection.ids} style=${style} isFar=${index > 5} />`)}
      </div>`
    }
    ${
      // The chart says that a range has no events.
      shown === 0 &&
      complete &&
      (hasConditions(view)
        ? html`<div class="empty"><h2>No events meet the filter</h2><p>Choose a longer range, another period, or fewer conditions.</p>${series?.isFiltered !== true && html`<${LongerRanges} ...${viewed} />`}</div>`
        : html`<p class="hint end">Choose a longer range, or another period.</p>`)
    }
    <${ProblemBox} problem=${problem} retry=${more} />
    ${loading && html`<${Skeleton} class="rows" lines=${shown === 0 ? 14 : 3} />`}
    <div ref=${sentinel}></div>
    ${complete && shown > 0 && html`<p class="hint end" role="status">That’s every event in this range.</p>`}
  </section>`;
}

/** Fields of a type that are columns, where none were chosen. */
const USUAL_COLUMNS = 4;

/** Characters beyond which a name is wider than its column usually is. */
const LONG_NAME = 22;

/** The width of the column of types: more where there are long names and the window is wide. */
function namesWidth(names: ReadonlyMap<string, string>): string {
  return [...names.values()].some((name) => name.length > LONG_NAME) ? 'clamp(13rem, 25vw, 22rem)' : '13rem';
}

/** One object until a value changes: rows are rendered again for a new one. */
function useRowStyle({ appId, viewed, list, series, names, onFilter }: EventListProps): RowStyle {
  const { view } = viewed;
  const latest = useLatest(viewed);
  const [only, second] = chosenTypes(view);
  const hasRows = list.pages.length > 0;
  // Only fields of the first page: rows that are loaded later, or arrive, move no column.
  const usual = useMemo(
    () =>
      only === undefined || second !== undefined
        ? []
        : fieldsOf(list.pages.slice(0, 1))
            .slice(0, USUAL_COLUMNS)
            .map(({ path }) => path),
    [only, second, hasRows],
  );
  const columns = columnsOf(appId, view, usual);
  const colors =
    series === undefined ? [] : linesOf(series, view).map(({ key, color }) => [key, color] as const);
  const by = series?.by ?? null;
  return useMemo(
    () => ({
      appId,
      names,
      by,
      colors: new Map(colors),
      columns,
      viewed: {
        ...viewed,
        change: (...changes: Parameters<ViewAndChange['change']>) => latest.current.change(...changes),
      },
      onFilter,
    }),
    [appId, names, by, JSON.stringify(colors), columns.join('\n'), view, onFilter],
  );
}

/** Files of all events that the list is of, loaded or not: the server sends them. */
function Exports({
  appId,
  view,
  list,
  columns,
}: {
  readonly appId: string;
  readonly view: View;
  readonly list: EventPages;
  readonly columns: readonly string[];
}): VNode {
  const query = eventsQuery(view, list.scope);
  query.set('timezone', view.zone);
  const path = (format: string): string => `/api/apps/${appId}/export?${query}&format=${format}`;
  const lines = path('ndjson');
  for (const column of columns) query.append('column', column);
  const [form, setForm] = useState<Readonly<Record<string, string>>>({});
  for (const [name, value] of Object.entries(form)) query.set(name, value);
  const chosen = (name: string, value: string) => (event: Event) => {
    const { checked } = event.currentTarget as HTMLInputElement; // The handler is on the box.
    const { [name]: _, ...others } = form;
    setForm(checked ? { ...others, [name]: value } : others);
  };
  return html`<${Popover} atEnd label="Export the events" text="Export">
    ${() => html`<div class="options">
      <label>Columns of the CSV file are separated by<select value=${form.separator ?? 'comma'} onChange=${(event: Event) => setForm({ ...form, separator: (event.currentTarget as HTMLSelectElement).value })}>
        ${['comma', 'semicolon', 'tab'].map((name) => html`<option key=${name}>${name}</option>`)}
      </select></label>
      <label class="check"><input type="checkbox" checked=${'bom' in form} onChange=${chosen('bom', 'true')} />Byte order mark, for Excel</label>
      <label class="check"><input type="checkbox" checked=${'texts' in form} onChange=${chosen('texts', 'quoted')} />Texts like 00123 stay texts, for spreadsheets</label>
      <div class="row-actions">
        <a class="button" download href=${lines}>As NDJSON</a>
        <a class="button" download href=${path('csv')}>As CSV</a>
      </div>
    </div>`}
  <//>`;
}

interface AmountProps {
  readonly list: EventPages;
  readonly scan: Scan;
  readonly series: Series | undefined;
  readonly view: View;
  readonly bucket: Bucket | null;
}

/** How many events there are, also of those that are not loaded. */
function Amount({ list, scan, series, view, bucket }: AmountProps): VNode | null {
  if (hasConditions(view) && series?.isFiltered !== true) {
    const listed = list.pages.reduce((sum, { events }) => sum + events.length, 0);
    const found = bucket === null && scan.found !== null ? scan.found.total : listed;
    if (found === 0 && !list.complete && (scan.isRunning || list.loading)) return null;
    return html`<span>${count(found)} found${list.complete ? '' : ' so far'}</span>`;
  }
  if (series === undefined) return null;
  const total = allOf(series, asksForHidden(view)).all.reduce(
    (sum, value, index) => (isWithin(series.starts[index] ?? 0, series, bucket) ? sum + value : sum),
    0,
  );
  return html`<span>${counted(total, 'event')}</span>`;
}

const isWithin = (start: number, { interval }: Series, bucket: Bucket | null): boolean =>
  bucket === null || (Math.max(start, interval.from) >= bucket.from && start < bucket.to);

interface ProgressProps {
  readonly list: EventPages;
  readonly scan: Scan;
  readonly series: Series | undefined;
  readonly view: View;
}

/** How far a search has come, and a way to stop it. */
function SearchProgress({ list, scan, series, view }: ProgressProps): VNode {
  const { looked, all, until } =
    series === undefined
      ? { looked: 0, all: 0, until: null }
      : searchedOf(series, list, { found: scan.found, withHidden: asksForHidden(view) });
  const about =
    all === 0 ? '' : `, about ${compact(Math.round(looked))} of ${compact(Math.round(all))} events`;
  const text = until === null ? 'Searching' : `Searched back to ${dateTime(until, view.zone)}${about}`;
  const stop = (): void => {
    scan.stop();
    list.stop();
  };
  const goOn = (): void => {
    scan.goOn();
    if (list.stopped) list.resume();
  };
  return html`<div class="search-progress">
    <progress max="1" value=${until === null || all === 0 ? undefined : looked / all} aria-label="Progress of the search"></progress>
    <span class="muted" role="status">${text}</span>
    ${scan.isStopped ? html`<button class="button" onClick=${goOn}>Search the whole range</button>` : html`<button class="button" onClick=${stop}>Stop</button>`}
  </div>`;
}

/** Calls when the end of the list comes near. */
function useSentinel(reached: () => void, dependencies: readonly unknown[]) {
  const place = useRef<HTMLDivElement>(null);
  const latest = useLatest(reached);
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
