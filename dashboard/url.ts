/** The whole state of a view ⇄ the query of its address: reload, back and a shared link show the same. */
import {
  type ChartView,
  isDistribution,
  listOf,
  oneOf,
  parseChartView,
  rangeIn,
  rangeOf,
  SCALES,
  type Scale,
  searchedText,
} from '../src/base/view.ts';
import { writeMeasure } from './measure.ts';
import { type Compare, isoText, parseRange, type Range, rangeText, type Span } from './range.ts';
import { isZone } from './time-zone.ts';

export {
  asksForHidden,
  chosenTypes,
  HIDDEN,
  isDistribution,
  MODES,
  type Mode,
  type Scale,
} from '../src/base/view.ts';

const COMPARES: readonly Compare[] = ['previous', 'week', 'month', 'year', 'segment', 'none'];

/** Which events of a range are meant. */
export type Segment = Pick<ChartView, 'types' | 'filters' | 'text'>;

/** Where an interval of numbers begins, and where it ends, exclusive; null: it does not. */
export type Values = readonly [from: number | null, until: number | null];

/** Buckets of the chart, whose events are listed. */
export type Bucket = Span & { readonly from: number };

export interface View extends ChartView {
  readonly range: Range;
  /** Where a zoom or a step in time came from, for the button that returns to it. */
  readonly back: Range | null;
  /** The buckets whose events are listed. */
  readonly at: Bucket | null;
  /** With a bucket, of a distribution: only the events whose number is from the first up to the second; null: any. */
  readonly values: Values | null;
  readonly scale: Scale;
  readonly compare: Compare;
  /** What `segment` compares with, in the same range; absent with the others. */
  readonly other?: Segment | undefined;
  /** IANA time zone of everything that is shown. */
  readonly zone: string;
  /** Whether a relative range follows the clock. */
  readonly live: boolean;
  /** The most buckets that are wanted; null: as many as the window shows well. */
  readonly detail: number | null;
  /** Whether the numbers are shown as a table too. */
  readonly table: boolean;
  /** Paths of payloads that are columns of the list; null: those that were chosen last. */
  readonly columns: readonly string[] | null;
  /** The one event that is open. */
  readonly event: string | null;
  /** The event whose row stands out: that whose neighbors are listed. */
  readonly mark: string | null;
}

export const DETAILS = [100, 250, 500, 1000];
/** All events. */
export const NO_SEGMENT: Segment = { types: [], filters: [], text: null };

/**
 * Reads a view. Missing and invalid parameters have their defaults: an old or mistyped link still shows something.
 * @param search the query, with or without its question mark
 */
export function parseView(search: string, ownZone: string): View {
  const query = new URLSearchParams(search);
  const text = (name: string): string => query.get(name) ?? '';
  const at = parseRange(text('at'));
  const zone = text('tz');
  const detail = Number(text('buckets'));
  const compare = oneOf(COMPARES, text('compare'));
  const chart = parseChartView(query);
  const bucket = at?.kind === 'between' ? { from: at.from, to: at.to } : null;
  return {
    ...chart,
    range: rangeOf(query),
    back: parseRange(text('back')),
    at: bucket,
    values: bucket !== null && isDistribution(chart.measure) ? parseValues(text('values')) : null,
    scale: oneOf(SCALES, text('scale')),
    compare,
    other:
      compare === 'segment'
        ? { types: listOf(query, 'type2'), filters: listOf(query, 'filter2'), text: searchedText(query, '2') }
        : undefined,
    zone: zone !== '' && isZone(zone) ? zone : ownZone,
    live: text('refresh') !== 'off',
    detail: DETAILS.includes(detail) ? detail : null,
    table: text('table') === '1',
    columns: query.has('column') ? listOf(query, 'column') : null,
    event: text('event') || null,
    mark: text('mark') || null,
  };
}

/** Reads `900~1200`, `900~` or `~1200`; null: it is none of these. */
function parseValues(text: string): Values | null {
  const [from = null, until = null, ...more] = text
    .split('~')
    .map((end) => (end === '' ? null : Number(end)));
  const isOne = more.length === 0 && [from, until].every((end) => end === null || Number.isFinite(end));
  return isOne && (from ?? until) !== null && (from ?? -Infinity) < (until ?? Infinity)
    ? [from, until]
    : null;
}

/** What an address says that is not understood, as it is spelled: the view has a default in its place. */
export function misread(search: string): string[] {
  const query = new URLSearchParams(search);
  const view = parseView(search, '');
  const has = (name: string): boolean => (query.get(name) ?? '') !== '';
  const isRange = ['from', 'to'].some(has)
    ? parseRange(`${query.get('from') ?? ''}~${query.get('to') ?? ''}`) !== null
    : !has('range') || rangeIn(query) !== null;
  const understood: Readonly<Record<string, boolean>> = {
    range: isRange || !has('range'),
    from: isRange || !has('from'),
    to: isRange || !has('to'),
    at: view.at !== null,
    values: view.values !== null,
    tz: view.zone !== '',
    // A view has one text.
    q: view.text?.[0] === 'q',
    stat: view.measure !== null,
    part: view.measure !== null,
    mode: view.mode === query.get('mode'),
    scale: view.scale === query.get('scale'),
    compare: view.compare === query.get('compare'),
    width: view.width !== null,
    buckets: view.detail !== null,
  };
  return Object.entries(understood).flatMap(([name, is]) =>
    has(name) && !is ? [`${name}=${query.get(name)}`] : [],
  );
}

/** The query of a view, with its question mark; range and zone are always in it, the rest where it is no default. */
export function viewSearch(view: View): string {
  const query = new URLSearchParams();
  const { range } = view;
  if (range.kind === 'between') {
    query.set('from', isoText(range.from));
    query.set('to', isoText(range.to));
  } else if (range.kind === 'since') {
    query.set('from', isoText(range.from));
  } else {
    query.set('range', rangeText(range));
  }
  query.set('tz', view.zone);
  for (const type of view.types) query.append('type', type);
  for (const filter of view.filters) query.append('filter', filter);
  if (view.text !== null) query.set(...view.text);
  if (view.at !== null) {
    query.set('at', rangeText({ kind: 'between', ...view.at }));
    if (view.values !== null && isDistribution(view.measure)) query.set('values', view.values.join('~'));
  }
  if (view.by !== null) query.set('by', view.by);
  writeMeasure(view.measure, query);
  if (view.mode !== 'histogram') query.set('mode', view.mode);
  if (view.scale !== 'linear') query.set('scale', view.scale);
  if (view.compare !== 'previous') query.set('compare', view.compare);
  const { types = [], filters = [], text = null } = (view.compare === 'segment' && view.other) || {};
  for (const type of types) query.append('type2', type);
  for (const filter of filters) query.append('filter2', filter);
  if (text !== null) query.set(`${text[0]}2`, text[1]);
  for (const key of view.hidden) query.append('hide', key);
  if (!view.live) query.set('refresh', 'off');
  if (view.width !== null) query.set('width', view.width);
  if (view.detail !== null) query.set('buckets', String(view.detail));
  if (view.table) query.set('table', '1');
  // An empty parameter means no columns.
  if (view.columns !== null)
    for (const column of view.columns.length === 0 ? [''] : view.columns) query.append('column', column);
  if (view.event !== null) query.set('event', view.event);
  if (view.mark !== null) query.set('mark', view.mark);
  if (view.back !== null) query.set('back', rangeText(view.back));
  // Readable in the address bar; none of these has a meaning in a query.
  return `?${query.toString().replaceAll('%3A', ':').replaceAll('%2F', '/').replaceAll('%7E', '~')}`;
}

/** A path of this origin to go on to after signing in; anything else is the list of apps. */
export function safeNext(next: string | null, origin: string): string {
  const path = next?.startsWith('/') ? localPath(next, origin) : null;
  // Resolved twice: a path whose dots are gone may name another host, as `/..//evil.example` does.
  const again = path === null ? null : localPath(path, origin);
  // The sign-in page would redirect to itself.
  return path === null || again !== path || path.startsWith('/sign-in') ? '/' : path;
}

/** Path and query of an address as the browser resolves it; null where they lead to another origin. */
function localPath(address: string, origin: string): string | null {
  if (!URL.canParse(address, origin)) return null;
  const url = new URL(address, origin);
  return url.origin === origin ? url.pathname + url.search : null;
}
