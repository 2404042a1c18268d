/** An app's time series: what is shown, how it is chosen, and what stands there while there is nothing. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Series } from '../answers.ts';
import Chart, { chartName } from '../charts/chart.ts';
import { Legend } from '../charts/legend.ts';
import {
  bucketEnd,
  type Line,
  linesOf,
  type Stack,
  type Summary,
  stackOf,
  summaryOf,
} from '../charts/series-data.ts';
import { ChartTable } from '../charts/table.ts';
import { bucketLength } from '../charts/time-axis.ts';
import { FirstEvent } from '../components/first-event.ts';
import { Icon } from '../components/icon.ts';
import { LiveButton } from '../components/live-button.ts';
import { ProblemBox } from '../components/problem.ts';
import { RangePicker } from '../components/range-picker.ts';
import { TypeFilter, ZoneSelect } from '../components/view-controls.ts';
import { average, bucketName, bucketSpan, count, date } from '../format.ts';
import { html } from '../html.ts';
import { countNews, useLive } from '../live.ts';
import { HOUR, type Range, rangeText, wider } from '../range.ts';
import { useResource } from '../resource.ts';
import { notify, now } from '../state.ts';
import { DETAILS, type View } from '../url.ts';
import { refreshInterval, seriesPath, useView, type ViewAndChange } from '../view.ts';
import type { TabProps } from './app.ts';

export function ChartPage({ appId, app }: TabProps): VNode {
  const viewed = useView();
  const { view, span, change } = viewed;
  const isEmpty = app.data?.firstEventAt === null;
  const path = seriesPath(appId, view, span);
  const series = useResource<Series>(isEmpty ? null : path, { scope: `series ${appId}`, version: now.value });
  useArrival(isEmpty);
  useCanonicalAddress(viewed);
  const live = useFollow(appId, viewed, series.loading, isEmpty ? null : () => app.reload());
  if (isEmpty) return html`<${FirstEvent} appId=${appId} app=${app} />`;

  // The frame around this page reports an app that does not exist.
  const problem = series.problem?.code === 'APP_NOT_FOUND' ? null : series.problem;
  const zoomTo = (range: Range): void => change({ range, back: view.back ?? view.range });
  return html`<section aria-label="Time series">
    <${Toolbar} appId=${appId} viewed=${viewed} live=${live} />
    <${ProblemBox} problem=${problem} retry=${series.reload} />
    <div class=${`card chart-card ${series.loading ? 'loading' : ''}`} aria-busy=${series.loading}>
      ${
        series.data === undefined
          ? html`<${ChartSkeleton} waiting=${series.problem === null} />`
          : html`<${ChartBody} series=${series.data} viewed=${viewed} lastEventAt=${app.data?.lastEventAt ?? null} zoomTo=${zoomTo} />`
      }
    </div>
  </section>`;
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

/** Makes the address complete: what it leaves out is this reader's own zone, and would be another one's elsewhere. */
function useCanonicalAddress({ view, change }: ViewAndChange): void {
  useEffect(() => {
    const query = new URLSearchParams(location.search);
    if (query.get('tz') !== view.zone || !(query.has('range') || query.has('from'))) change({}, true);
  }, [view]);
}

/** How soon after the last answer another one is asked for when events have arrived. */
const NEWS_MS = 1_000;

interface Live {
  readonly fresh: number;
  readonly isLost: boolean;
}

/** Asks again when events have arrived, and by the clock; while paused it counts what is new. */
function useFollow(
  appId: string,
  { view, span }: ViewAndChange,
  loading: boolean,
  alsoReload: (() => void) | null,
): Live {
  const [fresh, setFresh] = useState(0);
  const [hasNews, setNews] = useState(false);
  const isLost = useLive(appId, alsoReload !== null && view.range.kind !== 'between', (news) => {
    setNews(true);
    if (news !== null) setFresh((known) => known + countNews(news, view.types));
  });
  useEffect(() => setFresh(0), [now.value, rangeText(view.range), view.types.join()]);
  useEffect(() => {
    const interval = refreshInterval(view, span);
    if (interval === null || loading) return;
    const refresh = (): void => {
      if (document.hidden) return;
      setNews(false);
      now.value = Date.now();
      alsoReload?.();
    };
    const timer = setTimeout(refresh, Math.max(0, now.value + (hasNews ? NEWS_MS : interval) - Date.now()));
    document.addEventListener('visibilitychange', refresh);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', refresh);
    };
  }, [view, span, loading, hasNews]);
  return { fresh: view.live ? 0 : fresh, isLost };
}

interface ToolbarProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly live: Live;
}

function Toolbar({ appId, viewed, live }: ToolbarProps): VNode {
  const { view, span, change } = viewed;
  const { from, to } = span;
  const leaveZoom = (): void => {
    if (view.back !== null) change({ range: view.back, back: null });
    else if (from !== null) change({ range: wider({ from, to }) });
  };
  return html`<div class="toolbar" role="group" aria-label="View">
    <${RangePicker} range=${view.range} span=${span} zone=${view.zone} onPick=${(range: Range) => change({ range, back: null })} />
    <button type="button" class="button" disabled=${view.back === null && from === null} onClick=${leaveZoom} title=${view.back ? 'Back to where the zoom began' : 'Show twice as much'}>
      <${Icon} name="zoomOut" />${view.back ? 'Back' : html`<span class="sr-only">Zoom out</span>`}
    </button>
    <fieldset class="segmented">
      <legend class="sr-only">Chart</legend>
      ${(['histogram', 'accumulated'] as const).map(
        (mode) =>
          html`<label><input type="radio" name="mode" value=${mode} checked=${view.mode === mode} onChange=${() => change({ mode })} /><span>${mode === 'histogram' ? 'Histogram' : 'Accumulated'}</span></label>`,
      )}
    </fieldset>
    <${TypeFilter} appId=${appId} types=${view.types} onPick=${(types: string[]) => change({ types, hidden: [], solo: null })} />
    <span class="spacer"></span>
    <${DetailSelect} view=${view} change=${change} />
    <${ZoneSelect} zone=${view.zone} onPick=${(zone: string) => change({ zone })} />
    <${LiveButton} viewed=${viewed} ...${live} />
  </div>`;
}

function DetailSelect({ view, change }: Pick<ViewAndChange, 'view' | 'change'>): VNode {
  return html`<select class="detail" aria-label="Most bars" title="Most bars" value=${view.detail ?? ''} onChange=${(event: Event) => change({ detail: Number((event.currentTarget as HTMLSelectElement).value) || null })}>
    <option value="">Auto</option>
    ${DETAILS.map((most) => html`<option value=${most}>≤ ${count(most)}</option>`)}
  </select>`;
}

interface BodyProps {
  readonly series: Series;
  readonly viewed: ViewAndChange;
  readonly lastEventAt: string | null;
  readonly zoomTo: (range: Range) => void;
}

function ChartBody({ series, viewed, lastEventAt, zoomTo }: BodyProps): VNode {
  const { view, span, change } = viewed;
  const [focus, setFocus] = useState<string | null>(null);
  const { lines, stack, summary } = useMemo(
    () => shownOf(series, view),
    [series, view.mode, view.solo, view.hidden.join('\n')],
  );
  // Its own, not yet the view's while another zone's answer is on its way: labels and numbers belong together.
  const { starts, timezone: zone } = series;
  const name = chartName(series, stack, zone);
  const leaveZoom = (): void => {
    if (view.back !== null) change({ range: view.back, back: null });
  };
  const toggle = (key: string): void => {
    // Out of a solo, a click means "this one too"; the last line that is shown stays.
    const shown = lines.filter((line) => line.shown).map((line) => line.key);
    const next = shown.includes(key) ? shown.filter((other) => other !== key) : [...shown, key];
    const hidden = lines.map((line) => line.key).filter((other) => !next.includes(other));
    change({ hidden: next.length === 0 ? [] : hidden, solo: null }, true);
  };
  return html`<div class="chart-layout">
    <div class="chart-main">
      <${Figures} series=${series} summary=${summary} zone=${zone} />
      <div class="chart-place">
        <${Chart}
          series=${series} stack=${stack} zone=${zone} focus=${focus}
          onZoom=${(first: number, last: number) => zoomTo({ kind: 'between', from: starts[first] ?? 0, to: bucketEnd(series, last) })}
          onLeaveZoom=${leaveZoom}
        />
        ${summary.total === 0 && html`<${NothingHere} lastEventAt=${lastEventAt} filtered=${view.types.length > 0} change=${change} />`}
      </div>
      ${series.countsOnlyBefore !== null && (starts[0] ?? 0) < series.countsOnlyBefore && html`<p class="hint">Before ${date(series.countsOnlyBefore, zone)} only counts are kept: the events themselves were removed.</p>`}
    </div>
    <div class="chart-side">
      <${Legend} lines=${lines} solo=${view.solo} onToggle=${toggle} onFocus=${setFocus} onSolo=${(key: string) => change({ solo: view.solo === key ? null : key }, true)} />
      <div class="row-actions">
        <button type="button" class="button" aria-expanded=${view.table ? 'true' : 'false'} onClick=${() => change({ table: !view.table }, true)}>${view.table ? 'Hide the table' : 'Show as a table'}</button>
      </div>
    </div>
    ${view.table && html`<${ChartTable} key=${rangeText(view.range)} name=${name} series=${series} stack=${stack} zone=${zone} span=${span} />`}
  </div>`;
}

interface Shown {
  readonly lines: Line[];
  readonly stack: Stack;
  readonly summary: Summary;
}

function shownOf(series: Series, view: View): Shown {
  const lines = linesOf(series, view);
  return { lines, stack: stackOf(lines, view.mode), summary: summaryOf(lines, series.starts.length) };
}

interface FiguresProps {
  readonly series: Series;
  readonly summary: Summary;
  readonly zone: string;
}

function Figures({ series, summary, zone }: FiguresProps): VNode {
  const { total, peak, peakCount } = summary;
  const per = bucketName(series.bucket);
  const elapsed = Math.max(1, Math.min(series.end, Date.now()) - (series.starts[0] ?? 0));
  const buckets = Math.max(1, elapsed / bucketLength(series.bucket));
  return html`<dl class="figures-row">
    <div><dt>In this range</dt><dd>${count(total)}</dd></div>
    <div><dt>Average per ${per}</dt><dd>${average(total / buckets)}</dd></div>
    <div class="peak"><dt>Peak ${per}</dt><dd>${count(peakCount)}${peak >= 0 && html` <small>${bucketSpan(series.starts[peak] ?? 0, bucketEnd(series, peak), series.bucket, zone)}</small>`}</dd></div>
  </dl>`;
}

interface NothingProps {
  readonly lastEventAt: string | null;
  readonly filtered: boolean;
  readonly change: ViewAndChange['change'];
}

function NothingHere({ lastEventAt, filtered, change }: NothingProps): VNode {
  const last = lastEventAt === null ? null : Date.parse(lastEventAt);
  return html`<div class="nothing">
    <p><b>No events in this range</b></p>
    ${filtered && html`<button type="button" class="button" onClick=${() => change({ types: [] })}>Show all types</button>`}
    ${
      last !== null &&
      html`<button type="button" class="button" onClick=${() => change({ range: { kind: 'between', from: last - 12 * HOUR, to: last + 12 * HOUR }, back: null })}>Go to the last event</button>`
    }
  </div>`;
}

/** Of the chart's own size, so that nothing moves when it comes. */
function ChartSkeleton({ waiting }: { readonly waiting: boolean }): VNode {
  return html`<div class="chart-layout" role="status" aria-label=${waiting ? 'Loading the chart' : 'No chart'}>
    <div class="chart-main">
      <div class=${`figures-row ${waiting ? 'skeleton' : ''}`}>${waiting && html`<span></span><span></span>`}</div>
      <div class=${`chart-place plot ${waiting ? 'skeleton' : ''}`}>${waiting && html`<span class="block"></span>`}</div>
    </div>
    <div class=${`chart-side ${waiting ? 'skeleton' : ''}`}>${waiting && [0, 1, 2, 3, 4].map((line) => html`<span key=${line}></span>`)}</div>
  </div>`;
}
