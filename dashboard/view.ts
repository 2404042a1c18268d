/** The view of an app's page as its address has it, and the way to change it. */
import { useMemo } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import { HOUR, isoText, MINUTE, resolveRange, type Span } from './range.ts';
import { now } from './state.ts';
import { ownZone } from './time-zone.ts';
import { parseView, type View, viewSearch } from './url.ts';

export interface ViewAndChange {
  readonly view: View;
  /** The range as instants, now. */
  readonly span: Span;
  /** Goes to a changed view; with `replace`, without a step in the history. */
  readonly change: (changes: Partial<View>, replace?: boolean) => void;
}

export function useView(): ViewAndChange {
  const location = useLocation();
  const search = location.url.split('?')[1] ?? '';
  const view = useMemo(() => parseView(search, ownZone()), [search]);
  const span = useMemo(() => resolveRange(view.range, now.value, view.zone), [view, now.value]);
  return {
    view,
    span,
    change: (changes, replace = false) => {
      // A range that is picked again means the time at which it is picked.
      if (changes.range !== undefined) now.value = Date.now();
      location.route(location.path + viewSearch({ ...view, ...changes }), replace);
    },
  };
}

/** The most distinguishable bars for windows up to this width, in CSS pixels. */
const BUCKETS: readonly (readonly [width: number, buckets: number])[] = [
  [640, 100],
  [1_440, 200],
  [Infinity, 400],
];

/** The request for a view's series; the same for the early request and for the page's own. */
export function seriesPath(appId: string, view: View, span: Span): string {
  const query = scopeQuery(view, span);
  query.set('timezone', view.zone);
  query.set('buckets', String(view.detail ?? BUCKETS.find(([width]) => innerWidth < width)?.[1]));
  return `/api/apps/${appId}/series?${query}`;
}

/** `from`, `to` and `typeId` of a view. */
export function scopeQuery(view: View, { from, to }: Span): URLSearchParams {
  const query = new URLSearchParams({ to: isoText(to) });
  if (from !== null) query.set('from', isoText(from));
  for (const type of view.types) query.append('typeId', type);
  return query;
}

/** How long until a live view asks again; null where it does not. */
export function refreshInterval(view: View, { from, to }: Span): number | null {
  if (!view.live || view.range.kind === 'between') return null;
  return from !== null && to - from <= 3 * HOUR
    ? 10_000
    : from !== null && to - from <= 48 * HOUR
      ? 30_000
      : MINUTE;
}
