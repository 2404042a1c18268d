/** The view of an app's page, read from the address, and a function that changes it. */
import { useMemo } from 'preact/hooks';
import { useAddress } from './address.ts';
import { HISTOGRAM, type Part, type ShownStat } from './measure.ts';
import { comparedSpan, HOUR, isOpen, isoText, MINUTE, resolveRange, type Span } from './range.ts';
import { signal } from './signal.ts';
import { now } from './state.ts';
import { ownZone } from './time-zone.ts';
import { asksForHidden, type Bucket, chosenTypes, HIDDEN, parseView, type View, viewSearch } from './url.ts';

export { asksForHidden } from './url.ts';

/** Incremented each time a range is picked, so that picking the same range reloads it. */
export const picks = signal(0);

export interface ViewAndChange {
  readonly view: View;
  /** The range as instants, now. */
  readonly span: Span;
  /** Goes to a changed view; with `replace`, without a step in the history. */
  readonly change: (changes: Partial<View>, replace?: boolean) => void;
}

export function useView(): ViewAndChange {
  const location = useAddress();
  const search = location.url.split('?')[1] ?? '';
  const view = useMemo(() => parseView(search, ownZone()), [search]);
  const span = useMemo(() => resolveRange(view.range, now.value, view.zone), [view, now.value]);
  return {
    view,
    span,
    change: (changes, replace = false) => {
      // Picking a relative range again moves its end to the present.
      if (changes.range !== undefined) {
        now.value = Date.now();
        picks.value += 1;
      }
      // A bucket is one of the range's.
      const kept = changes.range === undefined ? view : { ...view, at: null };
      location.route(location.path + viewSearch({ ...kept, ...changes }), replace);
    },
  };
}

/** Path of the saved views of an app. */
export const viewsPath = (appId: string): string => `/api/apps/${appId}/views`;

/** Event types that the server is asked for at once, by their number of events or by their ids. */
export const MOST_TYPES = 100;
export const BUSIEST_TYPES = `sort=events&limit=${MOST_TYPES}`;

/** Path of event types of an app. @param query which; without it the busiest ones, first the one with the most events */
export const typesPath = (appId: string, query = BUSIEST_TYPES): string =>
  `/api/apps/${appId}/types?${query}`;

/** The most bars that stay legible in windows up to this width, in CSS pixels. */
const BUCKETS: readonly (readonly [width: number, buckets: number])[] = [
  [640, 62],
  [2_000, 100],
  [Infinity, 200],
];

/** Lines beside a chart, each with a color of its own. */
export const TOP_LINES = 12;

/** The request for a view's series; the same for the early request and for the page's own. */
export function seriesPath(appId: string, view: View, span: Span, lines = TOP_LINES): string {
  const query = scopeQuery(view, span);
  query.set('timezone', view.zone);
  if (view.by !== null) query.set('by', view.by);
  setBuckets(query, view);
  query.set('lines', String(lines));
  setCompared(query, view, span);
  return `/api/apps/${appId}/series?${query}`;
}

/** What a view is compared with. */
export function setCompared(
  query: URLSearchParams,
  { compare, range, zone }: Pick<View, 'compare' | 'range' | 'zone'>,
  span: Span,
): void {
  const compared = comparedSpan(compare, range, span, now.value, zone);
  if (compared?.from == null) return;
  query.set('compareFrom', isoText(compared.from));
  query.set('compareTo', isoText(compared.to));
}

/** The request for the events that a ratio is of, in the buckets of the view's own series. */
export function partPath(appId: string, view: View, span: Span, part: Part): string {
  const scope =
    'type' in part ? { types: [part.type] } : { filters: [...new Set([...view.filters, part.filter])] };
  return seriesPath(appId, { ...view, ...scope, by: null }, span);
}

/** The request for a part of the same chart, counted from rows; the parts after the first have its buckets. */
export function scanPath(
  appId: string,
  view: View,
  part: { readonly scope: Span; readonly width: string | undefined; readonly cursor: string | null },
): string {
  const query = scopeQuery(view, part.scope);
  query.set('timezone', view.zone);
  if (view.by !== null) query.set('by', view.by);
  if (part.width === undefined) setBuckets(query, view);
  else query.set('width', part.width);
  if (part.cursor !== null) query.set('cursor', part.cursor);
  return `/api/apps/${appId}/scan?${query}`;
}

/** Which statistics of a field are asked for, and of how many lines. */
export interface NumbersAsked {
  readonly of: string;
  readonly stat: ShownStat;
  /** The lines: a path, event types (`type`), or none. */
  readonly by: string | null;
  readonly isByType: boolean;
  readonly lines?: number;
  /** Whether what a sum had before the range is asked for. */
  readonly before?: boolean;
}

/** The request for the statistics of a field in the same buckets, of the events that meet the view's conditions. */
export function numbersPath(appId: string, view: View, span: Span, asked: NumbersAsked): string {
  const query = eventsQuery(view, span);
  query.set('of', asked.of);
  if (asked.stat === 'distinct' || asked.stat === HISTOGRAM) query.set('stat', asked.stat);
  if (asked.by !== null) query.set('by', asked.by);
  else if (asked.isByType) query.set('byType', 'true');
  query.set('lines', String(asked.lines ?? TOP_LINES));
  query.set('timezone', view.zone);
  setBuckets(query, view);
  if (asked.before) query.set('before', 'true');
  return `/api/apps/${appId}/numbers?${query}`;
}

export const bucketsOf = (view: View): number | undefined =>
  view.detail ?? BUCKETS.find(([width]) => innerWidth < width)?.[1];

/** The width of a bar that was chosen, or how many there may be. */
function setBuckets(query: URLSearchParams, view: View): void {
  if (view.width === null) query.set('buckets', String(bucketsOf(view)));
  else query.set('width', view.width);
}

/** Times, types and conditions of a view, as requests have them. @param to null: to the present, whenever it is asked */
export function scopeQuery(
  view: View,
  { from, to }: { readonly from: number | null; readonly to: number | null },
): URLSearchParams {
  const query = new URLSearchParams();
  if (from !== null) query.set('from', isoText(from));
  if (to !== null) query.set('to', isoText(to));
  // Types that are chosen say more than those that are left out.
  const chosen = chosenTypes(view);
  for (const type of chosen) query.append('typeId', type);
  for (const type of chosen.length > 0 ? [] : view.types) query.append('exceptTypeId', type.slice(1));
  for (const filter of view.filters) query.append('filter', filter);
  if (view.text !== null) query.set(...view.text);
  return query;
}

/** Shows the types that are hidden in list and chart, or leaves them out again. */
export function withHidden(view: View): Partial<View> {
  const hidden = view.hidden.filter((key) => key !== HIDDEN);
  return { hidden: asksForHidden(view) ? hidden : [...hidden, HIDDEN] };
}

/** The conditions of a box that is drawn on a distribution. */
export const boxFilters = ({ measure, values }: View): string[] =>
  measure?.kind === 'stat' && values !== null
    ? ['>=', '<'].flatMap((sign, end) =>
        values[end] === null ? [] : [`${measure.of} ${sign} ${values[end]}`],
      )
    : [];

/** The view whose events are listed: those of the box, where there is one. */
export const listed = (view: View): View =>
  view.values === null ? view : { ...view, values: null, filters: [...view.filters, ...boxFilters(view)] };

/** The request for the events of a view, as files or as a list. */
export function eventsQuery(view: View, span: ListScope): URLSearchParams {
  const query = scopeQuery(view, span);
  if (!asksForHidden(view)) query.set('hidden', 'exclude');
  return query;
}

export interface ListScope {
  readonly from: number | null;
  /** Null: to the present, whenever that is. */
  readonly to: number | null;
}

/** The events that a view lists. @param bucket only those of this one; null: all of the range */
export function listScope(view: View, span: Span, bucket: Bucket | null): ListScope {
  if (bucket !== null) return { from: bucket.from, to: bucket.to };
  return { from: span.from, to: isOpen(view.range) ? null : span.to };
}

/** The first page comes quickly; the next ones come before they are seen. */
const FIRST = 50;
const NEXT = 100;

/** The request for a page of the list, newest first. @param cursor null: the first one */
export function listPath(appId: string, view: View, scope: ListScope, cursor: string | null = null): string {
  const query = eventsQuery(view, scope);
  query.set('order', 'desc');
  query.set('limit', String(cursor === null ? FIRST : NEXT));
  if (cursor !== null) query.set('cursor', cursor);
  return `/api/apps/${appId}/events?${query}`;
}

/** Whether a view has conditions on payloads. */
export const hasConditions = ({ filters, text }: View): boolean => filters.length > 0 || text !== null;

/** Delay before a live view reloads; null if it does not. */
export function refreshInterval(view: View, { from, to }: Span): number | null {
  if (!view.live || !isOpen(view.range)) return null;
  return from !== null && to - from <= 3 * HOUR
    ? 10_000
    : from !== null && to - from <= 48 * HOUR
      ? 30_000
      : MINUTE;
}
