/** The chart with its numbers, legend and controls, and their placeholders. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Annotation, EventType, Series } from '../../src/api-types/answers.ts';
import { MOST_BUCKETS, WIDTH_MINUTES, WIDTHS, type WidthName } from '../../src/base/widths.ts';
import Chart, { chartName } from '../charts/chart.ts';
import type { Drawing, LegendLine, Range as Pair } from '../charts/drawing.ts';
import type { Edges } from '../charts/gestures.ts';
import { Legend } from '../charts/legend.ts';
import { countedPart, isPartial, linesOf, OTHER, summaryOf } from '../charts/series-data.ts';
import { stackDrawing } from '../charts/stack.ts';
import { ChartTable } from '../charts/table.ts';
import { ProblemBox } from '../components/problem.ts';
import { average, bucketName, count, counted, date, dateTime, spanText } from '../format.ts';
import { html } from '../html.ts';
import { HOUR, isOpen, MINUTE, type Range, rangeText, resolveRange, type Span } from '../range.ts';
import type { Resource } from '../resource.ts';
import { ChartAlert } from '../routes/delivery/new-alert.ts';
import { now } from '../state.ts';
import { type Bucket, HIDDEN, MODES, type Mode, type View } from '../url.ts';
import { boxFilters, hasConditions, type ViewAndChange, withHidden } from '../view.ts';
import { AllLines, useLineCount } from './all-lines.ts';
import { AnnotationList, marksOf, NewAnnotation, useAnnotations } from './annotations.ts';
import { Breakdown, totalOf } from './breakdown.ts';
import { ByProducer } from './by-producer.ts';
import { ChartMenu } from './chart-menu.ts';
import { CountHint } from './count-hint.ts';
import { CrossTable } from './cross-table.ts';
import { DIFFERENT, Explain } from './explain.ts';
import { comparedText, Figures } from './figures.ts';
import { LongerRanges } from './longer-ranges.ts';
import { MeasurePicker } from './measure-picker.ts';
import { fromRows, useMeasured } from './measured.ts';
import { MissingOffer } from './missing.ts';
import { pickingOf } from './picking.ts';
import type { Found, Scan } from './scan.ts';
import { useSecond } from './segment.ts';

export interface ChartCardProps {
  readonly appId: string;
  readonly name: string;
  readonly series: Resource<Series>;
  readonly types: readonly EventType[];
  /** What counts do not answer. */
  readonly scan: Scan;
  readonly viewed: ViewAndChange;
  readonly lastEventAt: string | null;
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
  /** Whether the reader may annotate the chart. */
  readonly mayChange: boolean;
  /** The pointer rests on a bucket; null: no more. */
  readonly onPeek: (bucket: Bucket | null) => void;
  /** Asks again for all that the page shows. */
  readonly onRetry: () => void;
}

export function ChartCard(props: ChartCardProps): VNode {
  const { series, viewed, onRetry } = props;
  const { data, isStale, loading } = series;
  // The frame around the page reports an app that does not exist.
  const problem = series.problem?.code === 'APP_NOT_FOUND' ? null : series.problem;
  const old = isStale || problem !== null;
  const { interval, timezone } = data ?? {};
  // Loading a range again, as it is live, is no wait.
  const isWaiting = loading && (data === undefined || old);
  return html`<div class=${isWaiting ? 'card chart-card loading' : 'card chart-card'} aria-busy=${loading}>
    <${ProblemBox} problem=${problem} retry=${onRetry} />
    ${problem !== null && interval !== undefined && html`<p class="hint" role="status">Not up to date: these are the numbers of ${spanText(interval.from, interval.until, timezone ?? 'UTC')}.</p>`}
    ${data === undefined ? series.problem === null && html`<${ChartSkeleton} />` : html`<div class=${old ? `stale ${problem === null ? '' : 'failed'}` : ''}><${ChartBody} ...${props} series=${data} isOld=${old} viewed=${viewed} /></div>`}
  </div>`;
}

const NO_ANNOTATIONS: readonly Annotation[] = [];

interface BodyProps extends Omit<ChartCardProps, 'series'> {
  readonly series: Series;
  /** Whether these are the numbers of an earlier view. */
  readonly isOld: boolean;
}

function ChartBody({
  appId,
  name,
  types,
  scan,
  viewed: asked,
  lastEventAt,
  isOwner,
  mayChange,
  onPeek,
  onRetry,
  isOld,
  ...given
}: BodyProps): VNode {
  const { change } = asked;
  const [focus, setFocus] = useState<string | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const second = useSecond(appId, asked, scan.series ?? given.series);
  const isRatio = asked.view.measure?.kind === 'ratio';
  const measured = useMeasured({
    appId,
    viewed: asked,
    series: isRatio ? second.series : given.series,
    types,
  });
  const { state, note, missing } = measured;
  const isOfEvents = asked.view.measure === null;
  const series = isOfEvents ? second.series : measured.series;
  const found = isOfEvents ? scan.found : null;
  const noted = note ?? (isOfEvents || isRatio ? second.note : null);
  const viewed = series.isScanned === true ? withoutRunning(asked) : asked;
  const { view } = viewed;
  const { counts, isEmpty } = useMemo(
    () => countsOf(series, view, found?.counts ?? null),
    [series, view.mode, found?.counts, view.hidden.join('\n')],
  );
  const drawing = measured.drawing ?? counts;
  const toPeek = usePeek(series, onPeek);
  // Its own, not yet the view's while another zone's answer is on its way: labels and numbers belong together.
  const { timezone: zone } = series;
  const annotations = useAnnotations(appId, series);
  const marks = annotations.data?.annotations ?? NO_ANNOTATIONS;
  const shownMarks = useMemo(
    () => marksOf(marks, given.series.marks, series.end),
    [marks, given.series.marks, series.end],
  );
  /** The bucket to annotate; null: none in particular. */
  const [annotating, setAnnotating] = useState<Bucket | null | false>(false);
  const [alerting, setAlerting] = useState(false);
  const [listing, setListing] = useState(false);
  const [explaining, setExplaining] = useState(false);
  const [crossing, setCrossing] = useState(false);
  const [producing, setProducing] = useState(false);
  const offer =
    missing !== null && isOwner
      ? html`<${MissingOffer} appId=${appId} view=${view} missing=${missing} types=${types} onDone=${onRetry} />`
      : null;
  const whole = wholeOf(viewed);
  const { compared } = drawing;
  const comparedTo =
    compared === null ? '' : comparedText(view.compare, { timezone: series.timezone, compared });
  // What the lines are by, which may not be what was asked for.
  const { by } = drawing;
  const picking = pickingOf(view, by);
  const pick = (key: string, isExcluded: boolean): void => {
    if (key === OTHER) setListing(true);
    else if (key === HIDDEN) change(withHidden(view));
    else if (!isExcluded) change(picking.with(picking.picked.includes(key) ? null : key));
    else change(picking.without(key));
  };
  const lineCount = useLineCount(appId, viewed, series);
  const { measure } = view;
  const isAccumulable = measure === null || (measure.kind === 'stat' && measure.stat === 'sum');
  const title = chartName(drawing, zone) + (found === null ? '' : ', before the filter');
  const { at, values } = view;
  const picked = at === null ? null : pickedIn(series, at);
  const { levels } = drawing;
  const filters = boxFilters(view);
  // Where the view has picked some, or the chart is by something else, the number would be of others.
  const numberOfLines = picking.picked.length === 0 && by === series.by ? lineCount : null;
  return html`<div class="chart-layout">
    <div class="chart-head">
      <${Figures} drawing=${drawing} comparedTo=${comparedTo} isLoading=${state === 'loading'} found=${found} isRunning=${scan.isRunning} />
      <div class="chart-controls">
        ${whole !== null && html`<button class="button" title="Compare with the rest of the range" onClick=${() => setExplaining(true)}>${values === null ? 'What changed?' : DIFFERENT}</button>`}
        <${MeasurePicker} appId=${appId} viewed=${viewed} types=${types} rows=${totalOf(series)} />
        <${Controls} viewed=${viewed} series=${series} isAccumulable=${isAccumulable} />
        <${ChartMenu} name=${name} drawing=${drawing} viewed=${viewed} canvas=${canvas} onAnnotate=${mayChange ? () => setAnnotating(view.at) : null} onAlert=${() => setAlerting(true)} />
      </div>
    </div>
    <div class="chart-main">
      <div class="chart-place">
        <${Chart}
          canvas=${canvas} drawing=${drawing} annotations=${shownMarks} zone=${zone} focus=${drawing.legend.some(({ key, shown }) => shown && key === focus) ? focus : null} scale=${view.scale} picked=${picked} levels=${levels ?? null} pickedHeights=${levels && values ? levels.heights(values) : undefined}
          onPoint=${toPeek}
          onPick=${(index: number | null) => {
            onPeek(null);
            change({
              at: index === null || index === picked?.[0] ? null : bucketAt(series, index),
              values: null,
            });
          }}
          onBox=${([first, last]: Pair, rows: Pair, isDrawn: boolean) => {
            onPeek(null);
            if (levels === undefined) return;
            const box = {
              at: { ...bucketAt(series, first), to: bucketAt(series, last).to },
              values: levels.interval(...rows),
            };
            const isSame = JSON.stringify([at, values]) === JSON.stringify(Object.values(box));
            change(isSame ? { at: null } : box);
            setExplaining(isDrawn);
          }}
          onAnnotate=${
            mayChange
              ? (index: number) => {
                  onPeek(null);
                  setAnnotating(bucketAt(series, index));
                }
              : null
          }
          onZoom=${(first: number, last: number) => change(zoomed(view, bucketAt(series, first).from, bucketAt(series, last).to))}
          onMoved=${(edges: Edges) => change(moved(view, series, edges))}
          onLeaveZoom=${() => view.back !== null && change({ range: view.back, back: null })}
        />
        ${state === 'unread' && html`<div class="nothing" role="status"><p><b>${note}</b></p><div class="row-actions">${offer}${!isRatio && html`<button class="button" onClick=${() => setCrossing(true)}>Read anyway</button>`}<button class="button" onClick=${() => change({ measure: null })}>Show numbers of events</button></div></div>`}
        ${state !== 'unread' && isEmpty && html`<${NothingHere} lastEventAt=${lastEventAt} viewed=${viewed} />`}
      </div>
      ${filters.length > 0 && html`<p role="status"><b>${filters.join(' and ')}</b> <button class="button quiet" onClick=${() => at && change(zoomed(view, at.from, at.to))}>Zoom in</button><button class="button quiet" onClick=${() => change({ at: null })}>Clear the box</button></p>`}
      <${AnnotationList} appId=${appId} annotations=${shownMarks} zone=${zone} mayChange=${mayChange} onDone=${annotations.reload} />
      ${noted !== null && state !== 'unread' && html`<p class="hint" role="status">${noted}</p>`}
      ${second.scan.isStopped && html`<p><button class="button" onClick=${second.scan.goOn}>Read all of them</button></p>`}
      ${state !== 'unread' && offer && html`<p>${offer}</p>`}
      ${state !== 'unread' && view.by !== null && missing !== null && !drawing.isApart && html`<p><button class="button" onClick=${() => setCrossing(true)}>Read the events by ${view.by}</button></p>`}
      ${!isOld && view.width !== null && view.width !== series.bucket && html`<p class="hint" role="status">Bars per ${bucketName(view.width)} would be more than ${count(MOST_BUCKETS)}, or finer than counts are kept: shown per ${bucketName(series.bucket)}.</p>`}
      <${Notes} drawing=${drawing} found=${found} zone=${zone} comparedTo=${comparedTo} isAllTime=${view.range.kind === 'all'} />
      ${(found !== null || series.isScanned) && html`<${CountHint} appId=${appId} view=${view} types=${types} from=${series.interval.from} zone=${zone} isOwner=${isOwner} />`}
    </div>
    <div class="chart-side">
      <${Breakdown} appId=${appId} viewed=${viewed} series=${series} isOld=${isOld} scan=${scan} onProducers=${() => setProducing(true)} />
      <${Legend} drawing=${{ ...drawing, legend: named(drawing.legend, series, types) }} comparedTo=${comparedTo} isUnfiltered=${found !== null} picked=${picking.picked} onPick=${pick} onToggle=${(key: string) => change(toggled(drawing.legend, key), true)} onFocus=${setFocus} />
      ${drawing.isApart && html`<div class="row-actions"><button class="button quiet" onClick=${() => setListing(true)}>${numberOfLines === '1' ? 'The only' : `All${numberOfLines === null ? '' : ` ${numberOfLines}`}`} ${by === null ? 'type' : 'value'}${numberOfLines === '1' ? '' : 's'} →</button>${view.measure?.kind !== 'ratio' && html`<button class="button quiet" onClick=${() => setCrossing(true)}>Table by fields…</button>`}</div>`}
    </div>
    ${crossing && html`<${CrossTable} appId=${appId} viewed=${viewed} offer=${offer} onClose=${() => setCrossing(false)} />`}
    ${producing && html`<${ByProducer} appId=${appId} viewed=${viewed} onClose=${() => setProducing(false)} />`}
    ${listing && html`<${AllLines} appId=${appId} viewed=${viewed} scan=${scan} second=${second.scan} by=${by} picked=${picking.picked} without=${picking.with} onPick=${pick} onClose=${() => setListing(false)} />`}
    ${explaining && whole !== null && html`<${Explain} appId=${appId} viewed=${viewed} part=${at ?? viewed.span} whole=${whole} filters=${filters} onClose=${() => setExplaining(false)} />`}
    ${annotating !== false && html`<${NewAnnotation} appId=${appId} picked=${annotating} zone=${view.zone} onDone=${annotations.reload} onClose=${() => setAnnotating(false)} />`}
    ${alerting && html`<${ChartAlert} appId=${appId} view=${view} types=${types} drawing=${drawing} onDone=${annotations.reload} onClose=${() => setAlerting(false)} />`}
    ${view.table && html`<${ChartTable} key=${rangeText(view.range)} name=${title} drawing=${drawing} zone=${zone} />`}
  </div>`;
}

/** The range that a bar or a zoom is a part of; null: it shows all there is. */
function wholeOf({ view, span }: ViewAndChange): Span | null {
  if (view.at !== null) return span;
  if (view.back === null) return null;
  const whole = resolveRange(view.back, now.value, view.zone);
  const from = span.from ?? -Infinity;
  const isPart = (whole.from ?? -Infinity) <= from && whole.to >= span.to;
  return isPart && ((whole.from ?? -Infinity) < from || whole.to > span.to) ? whole : null;
}

/** The numbers of events, and whether there are any. @param found where a filter leaves events out, they are not compared: it would be with others */
function countsOf(
  series: Series,
  view: View,
  found: readonly number[] | null,
): { readonly counts: Drawing; readonly isEmpty: boolean } {
  const lines = linesOf(found === null ? series : { ...series, compared: null }, view);
  return {
    counts: stackDrawing(series, lines, view.mode, found),
    isEmpty: summaryOf(lines, 0).total === 0,
  };
}

/** The only type that is hidden has its name. */
function named(lines: readonly LegendLine[], { hidden }: Series, types: readonly EventType[]): LegendLine[] {
  const [only, second] = hidden?.typeIds ?? [];
  const name = second === undefined && types.find(({ typeId }) => typeId === only)?.name;
  return lines.map((line) => (line.key === HIDDEN && name ? { ...line, name: `${name} (hidden)` } : line));
}

/** What draws a line or leaves it out; the last one cannot be left out. */
function toggled(lines: readonly LegendLine[], key: string): Pick<View, 'hidden'> {
  const shown = lines.filter((line) => line.shown).map((line) => line.key);
  const next = shown.includes(key) ? shown.filter((other) => other !== key) : [...shown, key];
  const hidden = lines.map((line) => line.key).filter((other) => next.includes(other) === (other === HIDDEN));
  return { hidden: next.length === 0 ? [] : hidden };
}

/** What is before the range has not been read. */
const withoutRunning = (asked: ViewAndChange): ViewAndChange =>
  asked.view.mode === 'running' ? { ...asked, view: { ...asked.view, mode: 'accumulated' } } : asked;

/** The bucket as an interval: the part of it that is counted. */
function bucketAt(series: Series, index: number): Bucket {
  return countedPart(series, index);
}

/** First and last of the buckets that an interval has. */
function pickedIn({ starts, end }: Series, { from, to }: Bucket): Pair | null {
  const first = starts.findLastIndex((start) => start <= from);
  const last = starts.findLastIndex((start) => start < to);
  return first < 0 || from >= end ? null : [first, Math.max(first, last)];
}

/** A zoom that ends with the present stays live. */
function zoomed(view: View, from: number, to: number): Partial<View> {
  const range: Range =
    isOpen(view.range) && to >= Date.now() ? { kind: 'since', from } : { kind: 'between', from, to };
  return { range, back: view.back ?? view.range };
}

/** The range that fingers have moved the chart to, in whole minutes and not beyond the present. */
function moved(view: View, { starts, end }: Series, { from, to }: Edges): Partial<View> {
  const first = starts[0] ?? end;
  const at = (share: number): number => Math.round((first + share * (end - first)) / MINUTE) * MINUTE;
  const last = Math.min(at(to), Math.max(end, Date.now()));
  return zoomed(view, Math.min(at(from), last - MINUTE), last);
}

/** How long a pointer rests on a bar before the list shows only its events. */
const PEEK_MS = 250;

function usePeek(series: Series, onPeek: (bucket: Bucket | null) => void): (index: number | null) => void {
  const timer = useRef(0);
  const last = useRef<number | null>(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (index) => {
    if (index === last.current) return;
    last.current = index;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onPeek(index === null ? null : bucketAt(series, index)), PEEK_MS);
  };
}

const MODE_NAMES: Record<Mode, string> = {
  histogram: 'Histogram',
  accumulated: 'Accumulated',
  running: 'Total so far',
};

interface ControlsProps {
  readonly viewed: ViewAndChange;
  readonly series: Series;
  /** Whether what is shown adds up. */
  readonly isAccumulable: boolean;
}

function Controls({ viewed: { view, change }, series, isAccumulable }: ControlsProps): VNode {
  const { from, until } = series.interval;
  const minutes = (until - from) / MINUTE;
  const isOffered = (width: WidthName): boolean =>
    width === view.width ||
    (minutes >= WIDTH_MINUTES[width] && minutes / WIDTH_MINUTES[width] < MOST_BUCKETS);
  return html`${
    isAccumulable &&
    html`<fieldset class="segmented">
    <legend class="sr-only">Chart</legend>
    ${MODES.map(
      (mode) =>
        html`<label key=${mode}><input type="radio" name="mode" value=${mode} checked=${view.mode === mode} onChange=${() => change({ mode })} /><span>${MODE_NAMES[mode]}</span></label>`,
    )}
  </fieldset>`
  }
  <select aria-label="Width of a bar" title="Width of a bar" value=${view.width ?? ''} onChange=${(event: Event) => change({ width: WIDTHS.find((width) => width === (event.currentTarget as HTMLSelectElement).value) ?? null })}>
    <option value="">${view.width === null ? `Per ${bucketName(series.bucket)} (auto)` : 'Automatic'}</option>
    ${WIDTHS.filter(isOffered).map((width) => html`<option key=${width} value=${width}>Per ${bucketName(width)}</option>`)}
  </select>`;
}

interface NotesProps {
  readonly drawing: Drawing;
  readonly found: Found | null;
  readonly zone: string;
  readonly comparedTo: string;
  readonly isAllTime: boolean;
}

/** Notes about the chart's data that are not obvious. */
function Notes({ drawing, found, zone, comparedTo, isAllTime }: NotesProps): VNode {
  const { series, stack, text, isDotted } = drawing;
  const { countsOnlyBefore, interval, starts } = series;
  const mode = stack?.mode;
  const hasParts = [0, starts.length - 1].some((index) => isPartial(series, index, Date.now()));
  const key = [
    isDotted && `Dotted line: ${comparedTo}.`,
    mode === 'histogram' && hasParts && 'Striped bars are incomplete.',
  ].filter(Boolean);
  return html`${key.length > 0 && html`<p class="hint">${key.join(' ')}</p>`}
  ${mode === 'accumulated' && html`<p class="hint">Counted from 0 at the beginning of this interval.</p>`}
  ${mode === 'running' && html`<p class="hint">All until then, from ${text(stack?.base ?? 0)} at the beginning of this interval.</p>`}
  ${series.seconds !== undefined && html`<p class="hint">${searchText(series.seconds, series, isAllTime)}</p>`}
  ${found !== null && html`<p class="hint">${foundText(found, interval.from, zone, mode)}</p>`}
  ${countsOnlyBefore !== null && interval.from < countsOnlyBefore && html`<p class="hint">Before ${date(countsOnlyBefore, zone)} only counts are kept: the events themselves were removed.</p>`}`;
}

/** How a search went that is over. */
function searchText(seconds: number, { looked = 0, searchedBy }: Series, isAllTime: boolean): string {
  if (searchedBy == null || searchedBy === 'scan') return fromRows(looked, seconds);
  const range = isAllTime ? 'all of time' : 'the whole range';
  return `Searched ${range} in ${average(seconds)} s: lists of words named ${counted(looked, 'event')} to read.`;
}

function foundText({ total, until }: Found, from: number, zone: string, mode?: Mode): string {
  const back = until > from ? `, back to ${dateTime(until, zone)}` : '';
  const [what, more] =
    mode === 'histogram'
      ? ['faint bars are', ` The solid bars are the ${counted(total, 'event')} found so far${back}.`]
      : ['chart shows', ''];
  return `The ${what} all events, before the filter: conditions on fields are searched for, not counted.${more}`;
}

interface NothingProps {
  readonly lastEventAt: string | null;
  readonly viewed: ViewAndChange;
}

function NothingHere({ lastEventAt, viewed }: NothingProps): VNode {
  const { view, change } = viewed;
  const last = lastEventAt === null ? null : Date.parse(lastEventAt);
  return html`<div class="nothing">
    <p><b>${hasConditions(view) ? 'No events of this range meet the filter' : 'No events in this range'}</b></p>
    ${view.types.length > 0 && html`<button class="button" onClick=${() => change({ types: [] })}>Show all types</button>`}
    ${
      hasConditions(view)
        ? html`<${LongerRanges} ...${viewed} />`
        : last !== null &&
          html`<button class="button" onClick=${() => change({ range: { kind: 'between', from: last - 12 * HOUR, to: last + 12 * HOUR }, back: null })}>Go to the last event</button>`
    }
  </div>`;
}

/** As large as the chart, so that nothing moves when it appears. */
function ChartSkeleton(): VNode {
  return html`<div class="chart-layout" role="status" aria-label="Loading the chart">
    <div class="chart-head"><div class="figures-row skeleton"><span></span><span></span></div><div class="chart-controls skeleton"><span></span></div></div>
    <div class="chart-main">
      <div class="chart-place skeleton"><span class="chart-block"></span></div>
    </div>
    <div class="chart-side skeleton">${[0, 1, 2, 3, 4].map((line) => html`<span key=${line}></span>`)}</div>
  </div>`;
}
