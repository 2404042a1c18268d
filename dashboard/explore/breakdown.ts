/** The choice of what the chart's lines are: event types, or the values of a declared field. */
import type { VNode } from 'preact';
import { useLocation } from 'preact-iso/router';
import type { DeclaredField, Series } from '../answers.ts';
import { dateTime } from '../format.ts';
import { html } from '../html.ts';
import { countersOf, pathKey, useDeclaredFields } from '../known-fields.ts';
import type { View } from '../url.ts';
import { hasConditions, type ViewAndChange } from '../view.ts';

export interface BreakdownProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly series: Series;
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
}

/** An option that leads to another page. No path consists of a space alone. */
const MORE = ' ';

export function Breakdown({ appId, viewed, series, isOwner }: BreakdownProps): VNode {
  const { view, change } = viewed;
  const { route } = useLocation();
  const declared = useDeclaredFields(appId).data?.fields ?? [];
  const paths = pathsFor(declared, view);
  const pick = (event: Event): void => {
    const select = event.currentTarget as HTMLSelectElement; // The handler is on the select.
    if (select.value === MORE) {
      select.value = view.by ?? '';
      route(`/apps/${appId}/fields`);
    } else change({ by: select.value || null, hidden: [], solo: null });
  };
  return html`<label class="breakdown"><span>By</span><select aria-label="Break down by" value=${view.by ?? ''} onChange=${pick}>
      <option value="">event type</option>
      ${paths.map((path) => html`<option key=${path} value=${path}>${path}</option>`)}
      ${isOwner && html`<option value=${MORE}>another field…</option>`}
    </select></label>
    ${view.by !== null && series.by === null && html`<p class="hint" role="status">${refusalText(view, view.by, declared, series)}</p>`}`;
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
  const shown = 'This chart is by event type:';
  if (hasConditions(view))
    return `${shown} the values of a field are not counted together with conditions on payloads.`;
  if (view.types.length > 1)
    return `${shown} the values of a field are counted for all types or for one, not for ${view.types.length}.`;
  const counters = countersOf(declared, by, view.types[0] ?? null);
  const since = counters.flatMap(({ completeFrom }) =>
    completeFrom === null ? [] : [Date.parse(completeFrom)],
  );
  if (counters.length === 0) return `${shown} ${by} is not a counted field of these events.`;
  if (since.length === 0) return `${shown} counting ${by} begins in a moment.`;
  const from = Math.min(...since);
  return from > interval.from
    ? `${shown} ${by} is counted from ${dateTime(from, timezone)} on. Choose a range after that.`
    : `${shown} some events of this range are not counted by ${by} yet.`;
}
