/** The choice of what the chart's lines are: event types, or the values of a declared field. */
import type { VNode } from 'preact';
import { useLocation } from 'preact-iso/router';
import type { DeclaredField, Series } from '../../src/api-types/answers.ts';
import { html } from '../html.ts';
import { pathKey, useDeclaredFields } from '../known-fields.ts';
import type { View } from '../url.ts';
import { hasConditions, type ViewAndChange } from '../view.ts';
import type { Scan } from './scan.ts';

export interface BreakdownProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly series: Series;
  /** Whether the series is of an earlier view. */
  readonly isOld: boolean;
  readonly scan: Scan;
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
}

/** An option that leads to another page. No path consists of a space alone. */
const MORE = ' ';

export function Breakdown({ appId, viewed, series, isOld, scan, isOwner }: BreakdownProps): VNode {
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
      (shown === '' || scan.notBy !== null) &&
      html`<p class="hint" role="status">${scan.notBy ?? `Not broken down by ${view.by} yet: it is not counted for these events, so these are read first.`}</p>
      ${scan.isStopped && !hasConditions(view) && html`<button type="button" class="button" onClick=${scan.goOn}>Read all of them</button>`}`
    }`;
}

/** The declared fields that may break this view down, each path once, and the one that does. */
function pathsFor(declared: readonly DeclaredField[], { types, by }: View): string[] {
  const fits = ({ kind, typeId }: DeclaredField): boolean =>
    kind === 'value' && (typeId === null || (types.length === 1 && types[0] === typeId));
  const paths = new Map(declared.filter(fits).map(({ path }) => [pathKey(path), path]));
  if (by !== null) paths.set(pathKey(by), by);
  return [...paths.values()];
}
