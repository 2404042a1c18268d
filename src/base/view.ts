/** The address of a view of the page Explore, which saved views have, and what boards, shares and digests read of it. */

import { HISTOGRAM, SHOWN_STATS, type ShownStat } from './measures.ts';
import { parseRange, type Range } from './ranges.ts';
import { WIDTHS, type WidthName } from './widths.ts';

/** In place of a range: each view of a board has its own. */
export const OWN_RANGES = 'views';

const DEFAULT_RANGE: Range = { kind: 'last', amount: 24, unit: 'h' };

/** The range of a view; null where its address has none that is understood. */
export const rangeIn = (query: URLSearchParams): Range | null =>
  parseRange(`${query.get('from') ?? ''}~${query.get('to') ?? ''}`) ?? parseRange(query.get('range') ?? '');

/** The range of a view, which has one whatever its address says. */
export const rangeOf = (query: URLSearchParams): Range => rangeIn(query) ?? DEFAULT_RANGE;

/** Counts of each bucket; their sum from 0 at the range's beginning; or that on top of everything before the range. */
export type Mode = 'histogram' | 'accumulated' | 'running';
export const MODES: readonly Mode[] = ['histogram', 'accumulated', 'running'];

/** The vertical axis: linear, logarithmic, or cut off above what most buckets have. */
export type Scale = 'linear' | 'log' | 'clipped';
export const SCALES: readonly Scale[] = ['linear', 'log', 'clipped'];

/** Key of the types that are hidden, among the values of `hide`: there it says that they are shown, in chart and list. */
export const HIDDEN = 'hidden';

/** Which events a ratio is of: those of a type, or those of the view that meet a condition. */
export type Part = { readonly type: string } | { readonly filter: string };

/** What a view shows in place of numbers of events: a ratio of two counts, or a statistic of a field. */
export type Measure =
  | { readonly kind: 'ratio'; readonly part: Part }
  /** @prop of the path of the field */
  | { readonly kind: 'stat'; readonly of: string; readonly stat: ShownStat };

/** A text of payloads as the API asks for it: alone (`word`), or inside longer words too (`q`). */
export type SearchedText = readonly [name: 'word' | 'q', text: string];

/** What the chart of a view asks, but for the time. */
export interface ChartView {
  /** Only these event types are asked for, or, with a sign before each, all but these; none: the top types and the rest. */
  readonly types: readonly string[];
  /** Conditions on payloads, in the grammar of the API's `filter`. */
  readonly filters: readonly string[];
  /** Text that payloads contain. */
  readonly text: SearchedText | null;
  /** The path of the field whose values are the lines; null: event types are. */
  readonly by: string | null;
  /** The measure that is drawn; null: numbers of events. */
  readonly measure: Measure | null;
  readonly mode: Mode;
  /** Lines that are not drawn. The numbers and the list include them. */
  readonly hidden: readonly string[];
  /** The width of a bar; null: one of which there are as many as the window shows well. */
  readonly width: WidthName | null;
}

/** Reads a view. Missing and invalid parameters have their defaults: an old or mistyped link still shows something. */
export function parseChartView(query: URLSearchParams): ChartView {
  return {
    types: listOf(query, 'type'),
    filters: listOf(query, 'filter'),
    text: searchedText(query),
    by: query.get('by') || null,
    measure: parseMeasure(query),
    mode: oneOf(MODES, query.get('mode')),
    hidden: listOf(query, 'hide'),
    width: WIDTHS.find((width) => width === query.get('width')) ?? null,
  };
}

/** @param end of the parameters' names: those of the segment that is compared with end with 2 */
export function searchedText(query: URLSearchParams, end = ''): SearchedText | null {
  const name = query.get(`word${end}`) ? 'word' : 'q';
  const text = query.get(name + end);
  return text ? [name, text] : null;
}

function parseMeasure(query: URLSearchParams): Measure | null {
  const [, kind, value = ''] = /^(type|filter):(.+)$/s.exec(query.get('part') ?? '') ?? [];
  if (kind !== undefined)
    return { kind: 'ratio', part: kind === 'type' ? { type: value } : { filter: value } };
  const stat = SHOWN_STATS.find((one) => one === query.get('stat'));
  const of = query.get('of') ?? '';
  return stat === undefined || of === '' ? null : { kind: 'stat', of, stat };
}

/** Whether a view shows how the numbers of a field are distributed. */
export const isDistribution = (measure: Measure | null): boolean =>
  measure?.kind === 'stat' && measure.stat === HISTOGRAM;

/** One of a list, of which the first is the default. */
export function oneOf<T extends string>(known: readonly T[], text: string | null): T {
  return known.find((value) => value === text) ?? (known[0] as T); // None of the lists is empty.
}

export const partText = (part: Part): string =>
  'type' in part ? `type:${part.type}` : `filter:${part.filter}`;

/** The types that a view chooses: not those that it leaves out. */
export const chosenTypes = ({ types }: { readonly types: readonly string[] }): string[] =>
  types.filter((type) => !type.startsWith('-'));

/** Every value of a name, each once. */
export const listOf = (query: URLSearchParams, name: string): string[] => [
  ...new Set(query.getAll(name).filter((value) => value !== '')),
];

/** Whether a view asks for the events of types that are hidden, too; where it chooses types, these are what is asked for. */
export const asksForHidden = (view: {
  readonly types: readonly string[];
  readonly hidden: readonly string[];
}): boolean => chosenTypes(view).length > 0 || view.hidden.includes(HIDDEN);

/** In place of a condition that is not told. */
const NOT_TOLD = '…';

/**
 * What strangers get of a view's address: what its chart is drawn by, and nothing else, whatever a view may have in later
 * releases. Its types, its conditions, its columns, what it is compared with and the event that is open stay its members'.
 * @param lines keys of the lines of the chart, which they see
 */
export function shownToStrangers(search: string, lines: readonly string[]): string {
  const view = new URLSearchParams(search);
  const shown = new URLSearchParams();
  const keep = (name: string, isAllowed: (value: string) => boolean): void => {
    for (const value of listOf(view, name)) if (isAllowed(value)) shown.append(name, value);
  };
  keep('mode', (value) => MODES.some((mode) => mode === value));
  keep('scale', (value) => SCALES.some((scale) => scale === value));
  // Fields, as the chart names them.
  for (const name of ['by', 'of', 'stat']) keep(name, () => true);
  keep('hide', (key) => lines.includes(key));
  if (asksForHidden(parseChartView(view))) shown.append('hide', HIDDEN);
  const measure = parseMeasure(view);
  if (measure?.kind === 'ratio')
    shown.set('part', partText('type' in measure.part ? measure.part : { filter: NOT_TOLD }));
  return shown.toString();
}
