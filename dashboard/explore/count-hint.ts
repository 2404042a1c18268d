/** Explains why a condition is searched for and not counted, and offers to count it. */
import type { VNode } from 'preact';
import type { DeclaredField, EventType } from '../../src/api-types/answers.ts';
import { dateTime } from '../format.ts';
import { html } from '../html.ts';
import { countersOf, pathKey, useDeclaredFields } from '../known-fields.ts';
import { now } from '../state.ts';
import type { View } from '../url.ts';
import { MissingOffer, onlyPath } from './missing.ts';

export interface CountHintProps {
  readonly appId: string;
  readonly view: View;
  readonly types: readonly EventType[];
  /** Where the chart begins. */
  readonly from: number;
  readonly zone: string;
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
}

export function CountHint({ appId, view, types, from, zone, isOwner }: CountHintProps): VNode | null {
  const path = pathOf(view);
  // With a breakdown by another field, the two are counted together.
  const filtered = onlyPath(view);
  const by =
    view.by === null || filtered === null || pathKey(view.by) === pathKey(filtered) ? null : filtered;
  const { data, reload } = useDeclaredFields(appId, path !== null, now.value);
  if (path === null || data === undefined) return null;
  const typeId = view.types.length === 1 ? (view.types[0] ?? null) : null;
  const counters = countersOf(data.fields, path, typeId, { by });
  const text = progressText(counters, { path, from, zone });
  if (text !== null) return html`<p class="hint" role="status">${text}</p>`;
  if (counters.length > 0 || !isOwner) return null;
  return html`<p><${MissingOffer} appId=${appId} view=${view} missing=${{ path, kind: 'value', by }} types=${types} onDone=${reload} /></p>`;
}

/** The one field whose counts would answer the view: that of its lines, or that of its only condition. */
function pathOf(view: View): string | null {
  const isMore = view.filters.length > 0 && onlyPath(view) === null;
  return isMore || view.text !== null ? null : (view.by ?? onlyPath(view));
}

/** Which part of the counts is missing; null if they are complete or do not exist. */
function progressText(
  counters: readonly DeclaredField[],
  { path, from, zone }: { readonly path: string; readonly from: number; readonly zone: string },
): string | null {
  const begun = counters.flatMap(({ completeFrom }) =>
    completeFrom === null ? [] : [Date.parse(completeFrom)],
  );
  if (counters.length === 0) return null;
  if (begun.length === 0) return `Counting ${path} begins in a moment.`;
  const since = Math.min(...begun);
  if (since <= from) return null;
  const until = dateTime(since, zone);
  return counters.some(({ backfill }) => backfill)
    ? `Earlier events are being counted by ${path}, back to ${until} so far: then this chart needs no search.`
    : `${path} is counted from ${until} on: a range after that needs no search.`;
}
