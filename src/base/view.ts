/** The address of a view of the page Explore, which saved views have, and what boards, shares and digests read of it. */

import { parseRange, type Range } from './ranges.ts';

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

/** Null: the view is no ratio. */
export function parsePart(query: URLSearchParams): Part | null {
  const [, kind, value = ''] = /^(type|filter):(.+)$/s.exec(query.get('part') ?? '') ?? [];
  if (kind === undefined) return null;
  return kind === 'type' ? { type: value } : { filter: value };
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
  if (asksForHidden({ types: listOf(view, 'type'), hidden: listOf(view, 'hide') }))
    shown.append('hide', HIDDEN);
  const part = parsePart(view);
  if (part !== null) shown.set('part', partText('type' in part ? part : { filter: NOT_TOLD }));
  return shown.toString();
}
