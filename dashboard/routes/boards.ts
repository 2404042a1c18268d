/** Boards of an app: saved views on one page with one range and filter, whose charts are of one snapshot. */
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type {
  Board,
  BoardChart,
  BoardData,
  BoardList,
  SavedViewList,
  Series,
  TypedConditions,
} from '../../src/api-types/answers.ts';
import { mergedList } from '../../src/base/merged-list.ts';
import { OWN_RANGES } from '../../src/base/view.ts';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import type { TabProps } from '../app-tab.ts';
import Chart from '../charts/chart.ts';
import { curveDrawing, ratioCurve, statCurve } from '../charts/curve.ts';
import type { Drawing, LegendLine } from '../charts/drawing.ts';
import type { heatDrawing } from '../charts/heatmap.ts';
import { Strengths } from '../charts/legend.ts';
import { countedPart, linesOf } from '../charts/series-data.ts';
import { stackDrawing } from '../charts/stack.ts';
import { Confirm, FormDialog } from '../components/confirm.ts';
import { WeeklyMail } from '../components/digest.ts';
import { Field } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { LiveButton } from '../components/live-button.ts';
import { RangePicker } from '../components/range-picker.ts';
import { ShareDialog } from '../components/share.ts';
import { Waiting } from '../components/waiting.ts';
import { marksOf } from '../explore/annotations.ts';
import { datesOf } from '../explore/figures.ts';
import { useHeatmap } from '../explore/measured.ts';
import { typedConditionsPath } from '../filter-text.ts';
import { changeText, localTimes, rangeName } from '../format.ts';
import { html } from '../html.ts';
import { useLive } from '../live.ts';
import { HISTOGRAM, measureLabel } from '../measure.ts';
import { isoText, type Range, rangeText, resolveRange } from '../range.ts';
import { useAction, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { isDistribution, parseView, type View, viewSearch } from '../url.ts';
import {
  asksForHidden,
  refreshInterval,
  setCompared,
  TOP_LINES,
  useView,
  type ViewAndChange,
  viewsPath,
} from '../view.ts';

/** Bars of a chart that is one of several. */
const BARS = 60;
const MOST_VIEWS = 12;
/** How soon after an answer another one is asked for when events have arrived. */
const NEWS_MS = 1_000;
/** Lines that a card names. */
const NAMED_LINES = 5;
const nothing = (): void => undefined;

const boardsPath = (appId: string): string => `/api/apps/${appId}/boards`;

export function BoardsPage({ appId, app }: TabProps): VNode {
  const { path, query, route } = useAddress();
  const boards = useResource<BoardList>(boardsPath(appId));
  const { view: given, span: givenSpan, change } = useView();
  const all = boards.data?.boards ?? [];
  const board = all.find(({ boardId }) => boardId === query.board) ?? all[0];
  const isChosen = Boolean(query.range || query.from);
  const agreed = isChosen || !board ? null : agreedRange(board, given.zone);
  // Without a range that is chosen, or that all views have, each has its own.
  const hasOwn = !isChosen && agreed === null;
  const view = { ...given, range: agreed ?? given.range };
  const span = hasOwn
    ? { ...givenSpan, from: null }
    : agreed === null
      ? givenSpan
      : resolveRange(agreed, now.value, view.zone);
  const mayChange = app.data?.may.includes('change') ?? false;
  const [editing, setEditing] = useState<Board | 'new' | null>(null);
  const hrefOf = (boardId: string, changes: Partial<View> | null = {}): string => {
    const search = new URLSearchParams(viewSearch({ ...view, ...changes }));
    if (changes === null || !(isChosen || changes.range))
      for (const name of ['range', 'from', 'to', 'back']) search.delete(name);
    return `${path}?${search}&board=${boardId}`;
  };
  const viewed: ViewAndChange = {
    view,
    span,
    change: (changes) => {
      // It moves the present where a range is picked.
      change(changes, true);
      route(hrefOf(board?.boardId ?? '', changes), true);
    },
  };
  return html`<section class="boards" aria-label="Boards">
    <div class="board-bar">
      ${all.map((one) => html`<a key=${one.boardId} class="button" href=${hrefOf(one.boardId)} aria-current=${one === board ? 'page' : undefined}>${one.name}</a>`)}
      ${mayChange && html`<button class="button" onClick=${() => setEditing('new')}><${Icon} name="plus" />New board</button>`}
      ${mayChange && board && html`<button class="button" onClick=${() => setEditing(board)}>Change board</button>`}
    </div>
    <${Waiting} for=${boards} lines=${6} />
    ${boards.data && board === undefined && html`<p class="hint">A board shows two to twelve saved views on one page, with one filter.</p>`}
    ${board && html`<${BoardView} key=${board.boardId} appId=${appId} board=${board} viewed=${viewed} hasOwn=${hasOwn} home=${isChosen ? hrefOf(board.boardId, null) : ''} mayChange=${mayChange} />`}
    ${editing && html`<${EditBoard} appId=${appId} board=${editing === 'new' ? null : editing} onDone=${boards.reload} onClose=${() => setEditing(null)} />`}
  </section>`;
}

/** The range of its views, where all have the same. */
function agreedRange({ views }: Board, zone: string): Range | null {
  const [range, ...others] = views.map(({ search }) => parseView(search, zone).range);
  const isSame = others.every((other) => range && rangeText(other) === rangeText(range));
  return (isSame && range) || null;
}

interface BoardProps {
  readonly appId: string;
  readonly board: Board;
  readonly viewed: ViewAndChange;
  /** Whether each chart has the range of its view. */
  readonly hasOwn: boolean;
  /** Where they have; empty: here. */
  readonly home: string;
  readonly mayChange: boolean;
}

function BoardView({ appId, board, viewed, hasOwn, home, mayChange }: BoardProps): VNode {
  const { view, change } = viewed;
  const root = useRef<HTMLDivElement>(null);
  const [sharing, setSharing] = useState(false);
  const data = useResource<BoardData>(dataPath(appId, board, viewed, hasOwn), {
    scope: `board ${board.boardId}`,
    version: [now.value, ...board.views.map(({ viewId }) => viewId)].join(' '),
    meaning: [hasOwn || rangeText(view.range), view.zone, ...view.filters].join(' '),
  });
  const isLost = useFollowed(appId, viewed, data.loading);
  // The order that was just chosen, until the answer has it: the views are those of the last answer, whoever has changed them.
  const [moved, setMoved] = useState<Moved | null>(null);
  const present = data.data?.charts.map(({ viewId }) => viewId) ?? [];
  const order = moved === null ? present : mergedList(moved.basedOn, moved.viewIds, present);
  /** What is to be saved: a move while another one is being saved follows it. */
  const unsaved = useRef<Moved | null>(null);
  const save = useAction(async () => {
    try {
      for (let body = unsaved.current; body !== null; body = unsaved.current) {
        unsaved.current = null;
        await call('PATCH', `${boardsPath(appId)}/${board.boardId}`, { body });
      }
    } finally {
      unsaved.current = null;
      data.reload();
    }
  });
  useEffect(() => {
    if (!save.busy) setMoved(null);
  }, [data.data]);
  const dragged = useRef('');
  const move = (viewId: string, to: number): void => {
    const others = order.filter((one) => one !== viewId);
    if (viewId === '' || to < 0 || to > others.length) return;
    const next = { basedOn: present, viewIds: [...others.slice(0, to), viewId, ...others.slice(to)] };
    setMoved(next);
    unsaved.current = next;
    void save.run();
  };
  const charts = order.flatMap((viewId) => data.data?.charts.find((chart) => chart.viewId === viewId) ?? []);
  return html`<div class="board" ref=${root}>
    <h1 class="board-title">${board.name}</h1>
    <div class="board-bar">
      <${RangePicker} ...${viewed} label=${hasOwn ? rangeName(OWN_RANGES, '') : undefined} />
      ${home && html`<a class="button" href=${home}>The views’ ranges</a>`}
      <${BoardFilter} filters=${view.filters} onChange=${(filters: readonly string[]) => change({ filters })} />
      <${LiveButton} viewed=${viewed} fresh=${0} isLost=${isLost} />
      <button class="button" onClick=${() => root.current?.requestFullscreen()}>Full screen</button>
      ${mayChange && html`<button class="button" onClick=${() => setSharing(true)}>Share…</button>`}
      ${sharing && html`<${ShareDialog} appId=${appId} of=${['boardId', board.boardId]} name=${board.name} range=${view.range} hasOwn=${hasOwn} zone=${view.zone} filters=${view.filters} onClose=${() => setSharing(false)} />`}
    </div>
    <${Waiting} for=${data} lines=${12} />
    ${save.problem && html`<p class="hint" role="alert">The order was not saved: ${save.problem.details}</p>`}
    <ol class="board-charts" style=${{ '--columns': columnsOf(charts.length) }}>${charts.map(
      (chart, index) => html`<li
        key=${chart.viewId}
        class="card board-chart"
        onDragOver=${(event: Event) => event.preventDefault()}
        onDrop=${() => move(dragged.current, index)}
      >
        <div class="board-head">
          ${
            mayChange &&
            html`<button class="icon-button board-handle" draggable aria-label=${`Move ${chart.name}: drag, or press the arrow keys`} title="Drag, or press the arrow keys"
            onDragStart=${() => {
              dragged.current = chart.viewId;
            }}
            onKeyDown=${(event: KeyboardEvent) => {
              const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
              if (step === undefined) return;
              event.preventDefault();
              move(chart.viewId, index + step);
            }}><${Icon} name="options" /></button>`
          }
          <h2><a href=${`/apps/${appId}${openedSearch(chart, view)}`}>${chart.name}</a></h2>
        </div>
        <${BoardTile} chart=${chart} data=${data.data} zone=${view.zone} onZoom=${(from: number, to: number) => change({ range: { kind: 'between', from, to }, back: hasOwn ? null : (view.back ?? view.range) })} onLeaveZoom=${() => view.back !== null && change({ range: view.back, back: null })} />
      </li>`,
    )}</ol>
    ${data.data && html`<div class="board-mail"><${WeeklyMail} of=${`${appId}/boards/${board.boardId}`} /></div>`}
  </div>`;
}

/** Views in an order of the user's, and those that were shown before. */
interface Moved {
  readonly basedOn: readonly string[];
  readonly viewIds: readonly string[];
}

/** The address of a saved view in the board's range, or its own, and the board's zone, with its filter too. */
function openedSearch({ search, range }: BoardChart, { zone, filters, live, ...view }: View): string {
  const own = parseView(search, zone);
  return viewSearch({
    ...own,
    ...(range === null && { range: view.range }),
    zone,
    live,
    filters: [...new Set([...own.filters, ...filters])],
  });
}

function dataPath(appId: string, { boardId }: Board, { view, span }: ViewAndChange, hasOwn: boolean): string {
  const query = new URLSearchParams(
    hasOwn ? { ranges: OWN_RANGES, timezone: view.zone } : { to: isoText(span.to), timezone: view.zone },
  );
  if (span.from !== null) query.set('from', isoText(span.from));
  setCompared(query, { ...view, compare: 'previous' }, span);
  query.set('buckets', String(BARS));
  query.set('lines', String(TOP_LINES));
  for (const filter of view.filters) query.append('filter', filter);
  return `${boardsPath(appId)}/${boardId}/data?${query}`;
}

/** One feed for all charts: they are asked for again when events have arrived, and by the clock. */
function useFollowed(appId: string, { view, span }: ViewAndChange, loading: boolean): boolean {
  const [hasNews, setNews] = useState(false);
  const interval = refreshInterval(view, span);
  const isLost = useLive(appId, interval !== null, () => setNews(true));
  useEffect(() => {
    if (interval === null || loading) return;
    const refresh = (): void => {
      if (document.hidden) return;
      setNews(false);
      now.value = Date.now();
    };
    const timer = setTimeout(refresh, Math.max(0, now.value + (hasNews ? NEWS_MS : interval) - Date.now()));
    return () => clearTimeout(timer);
  }, [interval, loading, hasNews, now.value]);
  return isLost;
}

interface FilterProps {
  readonly filters: readonly string[];
  readonly onChange: (filters: readonly string[]) => void;
}

/** The conditions that all charts have. */
function BoardFilter({ filters, onChange }: FilterProps): VNode {
  const [text, setText] = useState('');
  const [mistake, setMistake] = useState('');
  const add = useAction(async () => {
    const read = await call<TypedConditions>('GET', typedConditionsPath(text));
    setMistake(read.mistake ?? '');
    if (read.conditions === null) return;
    onChange([...new Set([...filters, ...read.conditions])]);
    setText('');
  });
  const submit = (event: Event): void => {
    event.preventDefault();
    add.run();
  };
  return html`<form class="board-filter" onSubmit=${submit}>
    ${filters.map((filter) => html`<button key=${filter} type="button" class="button" aria-label=${`Remove the filter ${filter}`} onClick=${() => onChange(filters.filter((one) => one !== filter))}>${filter}<${Icon} name="close" /></button>`)}
    <input type="text" aria-label="Filter all charts" placeholder="Filter: country:DE" autocomplete="off" title=${mistake} aria-invalid=${mistake === '' ? undefined : 'true'} value=${text} onInput=${(event: InputEvent) => setText((event.currentTarget as HTMLInputElement).value)} />
  </form>`;
}

/** As many as make rows of about the shape of a screen. */
const columnsOf = (charts: number): number => (charts <= 3 ? charts : Math.ceil(Math.sqrt(charts)));

/** Charts that are only looked at. One that is alone has its name elsewhere. */
export function ShownCharts({ charts, zone }: Pick<BoardData, 'charts'> & Pick<View, 'zone'>): VNode {
  return html`<ol class="board-charts" style=${{ '--columns': columnsOf(charts.length) }}>${charts.map(
    (chart) => html`<li key=${chart.viewId} class="card board-chart">
      ${charts.length > 1 && html`<h2>${chart.name}</h2>`}
      <${BoardTile} chart=${chart} zone=${zone} onZoom=${nothing} onLeaveZoom=${nothing} />
    </li>`,
  )}</ol>`;
}

interface TileProps {
  readonly chart: BoardChart;
  /** What its marks are from; a share has none. */
  readonly data?: BoardData;
  readonly zone: string;
  readonly onZoom: (from: number, to: number) => void;
  readonly onLeaveZoom: () => void;
}

function BoardTile({ chart, data, zone, onZoom, onLeaveZoom }: TileProps): VNode {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { series, problem, range } = chart;
  const own = useMemo(() => parseView(chart.search, zone), [chart.search, zone]);
  const isHeat = isDistribution(own.measure) && chart.numbers !== null;
  const heatmap = useHeatmap(isHeat);
  const heat = heatmap.data?.heatDrawing;
  const shown = useMemo(() => {
    if (series === null || (isHeat && heat === undefined)) return null;
    return {
      drawing: measuredIn(chart, series, own, heat) ?? stackDrawing(series, linesOf(series, own), own.mode),
      marks: data === undefined ? [] : marksOf(data.annotations, data.marks, series.end),
    };
  }, [chart, own, data, heat]);
  if (series !== null && shown === null) return html`<${Waiting} for=${heatmap} lines=${6} />`;
  if (series === null || shown === null)
    return html`<p class="hint" role="status">${localTimes(problem ?? 'There is nothing to show.', zone)}</p>`;
  const { drawing, marks } = shown;
  const { label, overall, before, text, stack } = drawing;
  const changed = before === null ? '' : changeText(overall ?? 0, before);
  return html`<div>
      <p class="board-figure"><b>${overall === null ? '–' : text(overall)}</b>${
        label === null
          ? html` ${stack?.mode === 'running' && html`<small>in this range</small>`}${
              before !== null &&
              html` <small title=${`${text(before)} then`}>${changed} ${changed.startsWith('from') ? 'in' : 'vs'} ${series.compared && datesOf(series.compared, series.timezone)}</small>`
            }`
          : html` <small>${label}</small>`
      }</p>
      ${range !== null && html`<p class="hint">${rangeName(range, series.timezone)}</p>`}
      ${problem !== null && html`<p class="hint" role="status">${localTimes(problem, zone)}</p>`}
    </div>
    <${Chart} canvas=${canvas} drawing=${drawing} annotations=${marks} zone=${series.timezone} focus=${null} scale=${own.scale} picked=${null} onPoint=${nothing} onPick=${nothing} onMoved=${nothing} onAnnotate=${null} onLeaveZoom=${onLeaveZoom}
      onZoom=${(first: number, last: number) => onZoom(countedPart(series, first).from, countedPart(series, last).to)} />
    <${TileLegend} lines=${drawing.legend.filter((line) => line.shown)} />
    <${Strengths} of=${drawing.strengths} />`;
}

/** The names of the colors: the first lines, and how many more there are. */
function TileLegend({ lines }: { readonly lines: readonly LegendLine[] }): VNode | null {
  if (lines.length < 2) return null;
  const more = lines.length - NAMED_LINES;
  return html`<ul class="board-legend">
    ${lines.slice(0, NAMED_LINES).map(({ key, name, color, value, exact }) => html`<li key=${key} title=${name}><i class=${`swatch c${color}`}></i><span>${name}</span> <strong>${exact ?? value}</strong></li>`)}
    ${more > 0 && html`<li class="muted">and ${more} more</li>`}
  </ul>`;
}

/** What a view draws in place of numbers of events; null: these. */
function measuredIn(
  { part, partType, numbers }: BoardChart,
  series: Series,
  { measure, by, hidden, mode, ...view }: View,
  heat: typeof heatDrawing | undefined,
): Drawing | null {
  if (measure?.kind === 'ratio' && part !== null) {
    const asked = measure.part;
    const name = 'type' in asked ? (partType ?? asked.type) : asked.filter;
    const names = { part: name, whole: wholeOf(series) };
    return curveDrawing(series, ratioCurve(series, part, asksForHidden({ ...view, hidden }), names));
  }
  if (measure?.kind !== 'stat' || numbers === null) return null;
  const { stat, of } = measure;
  const name = `${measureLabel(stat)} of ${of}`;
  if (stat === HISTOGRAM) return heat?.(series, numbers, name) ?? null;
  return curveDrawing(series, statCurve(series, numbers, null, { stat, by, hidden, mode, name }));
}

/** What a ratio is of, as far as its counts say so. */
function wholeOf({ lines: [only, second], other, isFiltered }: Series): string {
  const whole = only !== undefined && second === undefined && other === null ? only.name : 'all';
  return isFiltered ? `${whole}, filtered` : whole;
}

interface EditProps {
  readonly appId: string;
  /** Null: a new one. */
  readonly board: Board | null;
  /** Views that a new one begins with. */
  readonly first?: readonly string[];
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function EditBoard({ appId, board, first = [], onDone, onClose }: EditProps): VNode {
  const views = useResource<SavedViewList>(viewsPath(appId));
  const [chosen, setChosen] = useState(board?.views.map(({ viewId }) => viewId) ?? first);
  const [removing, setRemoving] = useState(false);
  const path = board === null ? boardsPath(appId) : `${boardsPath(appId)}/${board.boardId}`;
  if (removing)
    return html`<${Confirm} title="Remove the board" path=${path} said="The board was removed" onDone=${onDone} onClose=${onClose}><b>${board?.name}</b> is removed for all members of the app. Its views stay.<//>`;
  const all = views.data?.views ?? [];
  return html`<${FormDialog} title=${board === null ? 'New board' : 'Change the board'} submit="Save" method=${board === null ? 'POST' : 'PATCH'} path=${path} body=${({ name }: Record<string, string>) => ({ name, viewIds: chosen, ...(board && { basedOn: board.views.map(({ viewId }) => viewId) }) })} said="The board was saved" onDone=${onDone} onClose=${onClose}>
    <${Field} label="Name" name="name" maxlength="200" value=${board?.name} placeholder="Every morning" />
    <fieldset class="board-views"><legend>Two to twelve saved views</legend>
      ${views.data && all.length < 2 && html`<p class="hint">Save views on the page Explore first.</p>`}
      ${all.map(({ viewId, name }) => {
        const isChosen = chosen.includes(viewId);
        return html`<label key=${viewId} class="check"><input type="checkbox" checked=${isChosen} disabled=${!isChosen && chosen.length >= MOST_VIEWS} onChange=${() => setChosen(isChosen ? chosen.filter((one) => one !== viewId) : [...chosen, viewId])} /><span>${name}</span></label>`;
      })}
    </fieldset>
    ${board && html`<div class="row-actions"><button class="button quiet" onClick=${() => setRemoving(true)}>Remove the board…</button></div>`}
  <//>`;
}
