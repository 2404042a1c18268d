/** The fields of an app's payloads, for completion: those that the server knows, and those of the events at hand. */
import type { EventPage } from '../event-rows.ts';
import { pathText } from '../filter-text.ts';
import { pathKey, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { children } from '../raw-json.ts';

export interface KnownField {
  /** In the grammar of filters. */
  readonly path: string;
  /** As JSON, the most frequent first. */
  readonly values: readonly string[];
  /** What is counted of it, where it is declared. */
  readonly counted?: 'counted' | 'numbers counted' | undefined;
}

/** Enough to learn the shape of payloads from. */
const EVENTS = 200;
const DEPTH = 5;
const MEMBERS = 50;
const VALUES = 20;
const LONGEST_VALUE = 80;

/** The fields that the server knows, those with counts first; without them, completion uses only the loaded events. */
export function useServerFields(appId: string, isWanted: boolean): readonly KnownField[] {
  const declared = useDeclaredFields(appId, isWanted).data?.fields ?? [];
  const seen = useCatalog(appId, isWanted).data?.fields ?? [];
  return [
    ...declared.map(
      ({ path, kind, by }): KnownField => ({
        path,
        values: [],
        ...(by === null &&
          kind !== 'distinct' && { counted: kind === 'value' ? 'counted' : 'numbers counted' }),
      }),
    ),
    ...seen.map(({ path, examples }) => ({ path, values: examples })),
  ];
}

/** The fields of events, the most frequent first. */
export function fieldsOf(pages: readonly EventPage[]): KnownField[] {
  const found = new Map<string, { count: number; values: Map<string, number> }>();
  const events = pages.flatMap((page) => page.events).slice(0, EVENTS);
  for (const { payload } of events) {
    for (const { path, spelling } of scalarsOf(payload)) {
      const field = found.get(path) ?? { count: 0, values: new Map<string, number>() };
      found.set(path, field);
      field.count += 1;
      if (spelling.length > LONGEST_VALUE) continue;
      field.values.set(spelling, (field.values.get(spelling) ?? 0) + 1);
    }
  }
  const most = (a: [string, number], b: [string, number]): number => b[1] - a[1];
  return [...found]
    .sort(([, a], [, b]) => b.count - a.count)
    .map(([path, { values }]) => ({
      path,
      values: [...values]
        .sort(most)
        .slice(0, VALUES)
        .map(([value]) => value),
    }));
}

/** Each field once, with the values of all: the server lists a field of two types twice. Those with counts come first. */
export function mergeFields(all: readonly KnownField[]): KnownField[] {
  const fields = new Map<string, KnownField>();
  for (const { path, values, counted } of all) {
    const key = pathKey(path);
    const known: KnownField = fields.get(key) ?? { path, values: [] };
    fields.set(key, {
      path: known.path,
      values: [...new Set([...known.values, ...values])],
      counted: [known.counted, counted].sort()[0],
    });
  }
  return [...fields.values()].sort(
    (a, b) => Number(b.counted !== undefined) - Number(a.counted !== undefined),
  );
}

/** Every scalar of a payload with its path; elements of arrays have the path of the array. */
function scalarsOf(payload: string): { path: string; spelling: string }[] {
  const found: { path: string; spelling: string }[] = [];
  const visit = (at: number, end: number, names: readonly string[]): void => {
    const first = payload[at];
    if (first !== '{' && first !== '[') {
      if (names.length > 0) found.push({ path: pathText(names), spelling: payload.slice(at, end) });
      return;
    }
    if (names.length >= DEPTH) return;
    for (const { key, start, end } of children(payload, at, MEMBERS).items)
      visit(start, end, key === null ? names : [...names, JSON.parse(key) as string]);
  };
  visit(payload.search(/\S/), payload.length, []);
  return found;
}

/** What a payload has at a path, in its own spelling; several where an array is on the way. */
export const valuesAt = (payload: string, path: string): string[] =>
  scalarsOf(payload)
    .filter((scalar) => scalar.path === path)
    .map(({ spelling }) => spelling);
