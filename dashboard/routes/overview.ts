/** What an app does, at a glance: four numbers with their change, the week by hour, what moved most, and what fell silent. */
import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Annotation, DeclaredField, EventType, Series } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { changeText } from '../charts/legend.ts';
import { type Line, linesOf, OTHER, summaryOf } from '../charts/series-data.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { FirstEvent } from '../components/first-event.ts';
import { Waiting } from '../components/waiting.ts';
import { equals, valueText } from '../filter-text.ts';
import { average, count, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { countedPaths, useDeclaredFields } from '../known-fields.ts';
import { DAY, HOUR, isoText, MINUTE, parseRange, resolveRange } from '../range.ts';
import { type Resource, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { type View, viewSearch } from '../url.ts';
import { seriesPath, useView } from '../view.ts';
import type { TabProps } from './app.ts';

/** Hours of a week, and one that has begun. */
const BARS = 170;
const MOST_LINES = 100;
const MOST_FIELDS = 6;
const MOST_MOVED = 8;
const MOST_ANNOTATIONS = 5;
/** Events that a type has missed before it is called silent: by chance that happens once in a thousand times. */
const MISSED = 7;

export function OverviewPage({ appId, app }: TabProps): VNode {
  const { view } = useView();
  const isEmpty = app.data?.firstEventAt === null;
  const week = useSeries(isEmpty ? null : appId, viewOf(view, '7d', BARS), MOST_LINES);
  if (isEmpty) return html`<${FirstEvent} appId=${appId} app=${app} />`;
  return html`<section class="overview" aria-label="Overview">
    <${Waiting} for=${week} lines=${10} />
    ${
      week.data &&
      html`<${Numbers} appId=${appId} view=${view} week=${week.data} />
        <a class="card overview-chart" href=${`/apps/${appId}${viewSearch(viewOf(view, '7d'))}`}>
          <h2>Last 7 days, by hour</h2>
          <${Sparkline} counts=${week.data.all} label="Last 7 days, by hour" />
        </a>
        <div class="overview-cards">
          <${Moved} appId=${appId} view=${view} week=${week.data} />
          <${Silent} appId=${appId} view=${view} week=${week.data} />
          <${Latest} appId=${appId} view=${view} />
        </div>`
    }
  </section>`;
}

/** A view of a range, with nothing else chosen, compared with the time before. */
const viewOf = (view: View, range: string, detail: number | null = null): View => ({
  ...view,
  range: parseRange(range) ?? view.range,
  ...{ types: [], filters: [], text: null, by: null, measure: null, hidden: [], at: null, back: null },
  ...{ compare: 'previous', mode: 'histogram', detail, event: null, columns: null },
});

function useSeries(appId: string | null, view: View, lines: number): Resource<Series> {
  // To the minute: a page that is rendered again asks for nothing.
  const end = Math.floor(now.value / MINUTE) * MINUTE;
  const span = resolveRange(view.range, end, view.zone);
  return useResource<Series>(appId === null ? null : seriesPath(appId, view, span, lines));
}

interface PartProps {
  readonly appId: string;
  readonly view: View;
  readonly week: Series;
}

function Numbers({ appId, view, week }: PartProps): VNode {
  const hour = useSeries(appId, viewOf(view, '1h', 1), 1).data;
  const day = useSeries(appId, viewOf(view, '24h', 1), 1).data;
  const active = ({ total }: { readonly total: number }): boolean => total > 0;
  const types = linesOf(week, view).filter(({ key }) => key !== OTHER);
  const before = types.filter(({ compared }) => compared !== null && active(compared)).length;
  const isWhole = week.other === null;
  return html`<dl class="overview-numbers">
    <${Figure} name="Last hour" series=${hour} before="the hour before" />
    <${Figure} name="Last 24 hours" series=${day} before="the 24 hours before" />
    <${Figure} name="Last 7 days" series=${week} before="the week before" />
    <div class="card"><dt>Types that sent in 7 days</dt><dd>${count(types.filter(active).length)}${!isWhole && '+'}</dd>${isWhole && html`<small>${count(before)} of them in the week before</small>`}</div>
  </dl>`;
}

interface FigureProps {
  readonly name: string;
  readonly series: Series | undefined;
  readonly before: string;
}

function Figure({ name, series, before }: FigureProps): VNode {
  const { total, compared } =
    series === undefined
      ? { total: null, compared: null }
      : summaryOf(linesOf(series, { hidden: [] }), series.starts.length);
  return html`<div class="card"><dt>${name}</dt><dd>${total === null ? '…' : count(total)}</dd>
    <small>${total !== null && compared !== null && html`<b>${changeText(total, compared)}</b> vs ${count(compared)} in ${before}`}</small></div>`;
}

interface Mover {
  readonly line: Line;
  /** Null: an event type. */
  readonly path: string | null;
  readonly weight: number;
}

/** Types and values whose number differs most from that of the week before, for their size. */
function Moved({ appId, view, week }: PartProps): VNode {
  const fields = useDeclaredFields(appId).data?.fields;
  const values = useValueSeries(appId, viewOf(view, '7d', 28), fields);
  const movers = useMemo(
    () =>
      [{ path: null, series: week }, ...(values.data ?? [])]
        .flatMap(({ path, series }) =>
          linesOf({ ...series, hidden: null }, { hidden: [] }).map((line) => ({
            line,
            path,
            weight: weightOf(line),
          })),
        )
        .filter(({ line, weight }) => line.key !== OTHER && weight > 2)
        .sort((a, b) => b.weight - a.weight)
        .slice(0, MOST_MOVED),
    [week, values.data],
  );
  return html`<section class="card overview-card"><h2>Moved most since last week</h2>
    ${values.data !== undefined && movers.length === 0 && html`<p class="hint">Nothing moved more than by chance.</p>`}
    <ul>${movers.map(
      (mover) => html`<li key=${`${mover.path} ${mover.line.key}`} class="overview-mover">
        <a href=${`/apps/${appId}${viewSearch(filteredBy(viewOf(view, '7d'), mover))}`}>${mover.path !== null && `${mover.path}: `}${mover.line.name}</a>
        <${Sparkline} counts=${mover.line.counts} label=${mover.line.name} />
        <span>${count(mover.line.total)}</span>
        <b>${changeText(mover.line.total, mover.line.compared?.total ?? 0)}</b>
      </li>`,
    )}</ul>
  </section>`;
}

/** By how many standard deviations of a count the two weeks differ. */
const weightOf = ({ total, compared }: Line): number =>
  compared === null ? 0 : Math.abs(total - compared.total) / Math.sqrt(total + compared.total + 1);

function filteredBy(view: View, { line, path }: Mover): View {
  if (path === null) return { ...view, types: [line.key] };
  const condition = equals(path, valueText(line.key));
  return { ...view, by: path, filters: condition === null ? [] : [condition] };
}

interface OfField {
  readonly path: string;
  readonly series: Series;
}

function useValueSeries(
  appId: string,
  view: View,
  fields: readonly DeclaredField[] | undefined,
): Resource<OfField[]> {
  const end = Math.floor(now.value / MINUTE) * MINUTE;
  const span = resolveRange(view.range, end, view.zone);
  const paths = fields === undefined ? null : countedPaths(fields).slice(0, MOST_FIELDS);
  const key = `moved ${appId} ${paths?.join()} ${end}`;
  return useResource<OfField[]>(paths === null ? null : key, {
    scope: `moved ${appId}`,
    load: async (signal) => {
      const all = await Promise.all(
        (paths ?? []).map(async (path) => ({
          path,
          series: await call<Series>('GET', seriesPath(appId, { ...view, by: path }, span, MOST_LINES), {
            signal,
          }),
        })),
      );
      // One whose counts do not reach back so far is answered by type.
      return all.filter(({ series }) => series.by !== null);
    },
  });
}

/** Types that have sent nothing for longer than is usual for them. */
function Silent({ appId, view, week }: PartProps): VNode {
  const types = useResource<{ types: readonly EventType[] }>(
    `/api/apps/${appId}/types?sort=events&limit=${MOST_LINES}`,
  );
  const { until } = week.interval;
  const lines = new Map(linesOf(week, view).map((line) => [line.key, line]));
  const silent = (types.data?.types ?? []).flatMap(({ typeId, name, lastEventAt }) => {
    const line = lines.get(typeId);
    if (line === undefined || line.compared === null || lastEventAt === null) return [];
    const last = Date.parse(lastEventAt);
    const hours = (until - last) / HOUR;
    // At the same hours of the week before: nights are no silence.
    const missed = line.compared.counts.reduce(
      (sum, events, index) => sum + ((week.starts[index] ?? 0) >= last ? events : 0),
      0,
    );
    return hours < 1 || missed < MISSED ? [] : [{ typeId, name, hours, perHour: missed / hours, missed }];
  });
  silent.sort((a, b) => b.missed - a.missed);
  return html`<section class="card overview-card"><h2>Silent types</h2>
    ${types.data !== undefined && silent.length === 0 && html`<p class="hint">Every type sends as it usually does.</p>`}
    <ul>${silent
      .slice(0, MOST_MOVED)
      .map(
        ({ typeId, name, hours, perHour }) =>
          html`<li key=${typeId}><a href=${`/apps/${appId}${viewSearch({ ...viewOf(view, '7d'), types: [typeId] })}`}>${name}</a>: none for ${hours < 48 ? `${average(hours)} h` : `${average(hours / 24)} days`}, usually ${usual(perHour)}</li>`,
      )}</ul>
  </section>`;
}

const usual = (perHour: number): string =>
  perHour >= 1 ? `${average(perHour)} an hour` : `${average(perHour * 24)} a day`;

function Latest({ appId, view }: Omit<PartProps, 'week'>): VNode {
  const from = Math.floor(now.value / DAY) * DAY - 90 * DAY;
  const found = useResource<{ annotations: readonly Annotation[] }>(
    `/api/apps/${appId}/annotations?from=${encodeURIComponent(isoText(from))}`,
  ).data?.annotations;
  return html`<section class="card overview-card"><h2>Latest annotations</h2>
    ${found?.length === 0 && html`<p class="hint">None in the last 90 days. In Explore, the chart’s options have “Annotate”.</p>`}
    <ul>${found?.slice(0, MOST_ANNOTATIONS).map(({ annotationId, at, text }) => html`<li key=${annotationId}><time class="muted" datetime=${at}>${dateTime(Date.parse(at), view.zone)}</time> ${text}</li>`)}</ul>
  </section>`;
}
