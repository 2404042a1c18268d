/** The choice of what the chart's lines are: event types, or the values of a declared field. */
import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { DeclaredField, Series } from '../answers.ts';
import { count, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { countersOf, pathKey, useDeclaredFields } from '../known-fields.ts';
import type { View } from '../url.ts';
import { hasConditions, type ViewAndChange } from '../view.ts';
import type { EventPages } from './event-pages.ts';
import { foundBy } from './found.ts';

export interface BreakdownProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly series: Series;
  /** Whether the series is of an earlier view. */
  readonly isOld: boolean;
  /** The events that meet the view's conditions. */
  readonly list: EventPages;
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
}

/** An option that leads to another page. No path consists of a space alone. */
const MORE = ' ';

export function Breakdown({ appId, viewed, series, isOld, list, isOwner }: BreakdownProps): VNode {
  const { view, change } = viewed;
  const { route } = useLocation();
  const declared = useDeclaredFields(appId).data?.fields ?? [];
  const paths = pathsFor(declared, view);
  // What the lines are, which may not be what was asked for.
  const shown = (isOld ? view.by : series.by) ?? '';
  const pick = (event: Event): void => {
    const select = event.currentTarget as HTMLSelectElement; // The handler is on the select.
    const { value } = select;
    select.value = shown;
    if (value === MORE) route(`/apps/${appId}/fields`);
    else change({ by: value || null, hidden: [] });
  };
  return html`<label class="breakdown"><span>By</span><select aria-label="Break down by" value=${shown} onChange=${pick}>
      <option value="">event type</option>
      ${paths.map((path) => html`<option key=${path} value=${path}>${path}</option>`)}
      ${isOwner && html`<option value=${MORE}>another field…</option>`}
    </select></label>
    ${
      view.by !== null &&
      shown === '' &&
      html`<p class="hint" role="status">${refusalText(view, view.by, declared, series)}</p>
      ${hasConditions(view) && html`<${FoundValues} path=${view.by} list=${list} />`}`
    }`;
}

/** What counts do not tell, of the events that a search has found. */
function FoundValues({ path, list }: { readonly path: string; readonly list: EventPages }): VNode {
  const found = useMemo(() => foundBy(list, path), [list.pages, path]);
  return html`<div class="curve-legend">
    <p>${path} of ${list.complete ? 'all events' : `the ${count(list.pages.reduce((sum, { events }) => sum + events.length, 0))} newest events`} that meet the filter</p>
    <dl>${found.map(([value, events]) => html`<div key=${value}><dt>${value}</dt><dd>${count(events)}</dd></div>`)}</dl>
  </div>`;
}

/** The declared fields that may break this view down, each path once, and the one that does. */
function pathsFor(declared: readonly DeclaredField[], { types, by }: View): string[] {
  const fits = ({ kind, typeId }: DeclaredField): boolean =>
    kind === 'value' && (typeId === null || (types.length === 1 && types[0] === typeId));
  const paths = new Map(declared.filter(fits).map(({ path }) => [pathKey(path), path]));
  if (by !== null) paths.set(pathKey(by), by);
  return [...paths.values()];
}

/** Why the chart shows types although a field was asked for. */
function refusalText(
  view: View,
  by: string,
  declared: readonly DeclaredField[],
  { interval, timezone }: Series,
): string {
  const shown = `Not broken down by ${by}:`;
  if (hasConditions(view))
    return `${shown} with this filter the chart can only show event types. Remove the filter, or filter by ${by} alone.`;
  const counters = countersOf(declared, by, view.types[0] ?? null);
  const since = counters.flatMap(({ completeFrom }) =>
    completeFrom === null ? [] : [Date.parse(completeFrom)],
  );
  if (counters.length === 0) return `${shown} it is not a counted field of these events.`;
  if (since.length === 0) return `${shown} counting begins in a moment.`;
  const from = Math.min(...since);
  return from > interval.from
    ? `${shown} it is counted from ${dateTime(from, timezone)} on. Choose a range after that.`
    : `${shown} some events of this range are not counted yet.`;
}
