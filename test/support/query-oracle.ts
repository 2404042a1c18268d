/** What a query must answer, computed from the events themselves by other means than the service's: JSON.parse, sets, sorted lists. */

export interface OracleEvent {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** With numbers of up to nine digits before and two after the point. */
  readonly payload: Readonly<Record<string, unknown>>;
}

export interface OracleQuestion {
  readonly by?: readonly string[];
  readonly stats?: readonly ('count' | { readonly of: string; readonly stat: string })[];
  /** Where each bucket starts, ascending. */
  readonly starts?: readonly number[];
}

type Scalar = string | number | boolean | null;

export interface OracleGroup {
  /** Path → value; null: all other events. */
  readonly by: Readonly<Record<string, Scalar>> | null;
  readonly count: number;
  /** Path → statistic → value. Quantiles are the number at the rank. */
  readonly of: Readonly<Record<string, Readonly<Record<string, number | null>>>>;
  /** Start → events. */
  readonly buckets: ReadonlyMap<number, number>;
}

/** All scalars that a path leads to, through arrays. */
function scalarsAt(value: unknown, names: readonly string[]): Scalar[] {
  if (Array.isArray(value)) return value.flatMap((item) => scalarsAt(item, names));
  const [name, ...rest] = names;
  if (name === undefined) return typeof value === 'object' && value !== null ? [] : [value as Scalar];
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return [];
  return scalarsAt((value as Record<string, unknown>)[name], rest);
}

/** The one value at a path; undefined where there is none, several or one that is too long. */
function valueAt(event: OracleEvent, path: string): Scalar | undefined {
  const values = [...new Set(scalarsAt(event.payload, path.split('.')))];
  const [only] = values;
  if (values.length !== 1 || (typeof only === 'string' && only.length > 200)) return undefined;
  return only;
}

export function answerTo(
  events: readonly OracleEvent[],
  { by = [], stats = ['count'], starts = [] }: OracleQuestion,
): OracleGroup[] {
  const groups = new Map<string, { by: Record<string, Scalar> | null; events: OracleEvent[] }>();
  for (const event of events) {
    const named = by.flatMap((path) => {
      const value = valueAt(event, path);
      return value === undefined ? [] : [[path, value] as const];
    });
    const own = by.length > 0 && named.length === 0 ? null : Object.fromEntries(named);
    const key = JSON.stringify(own);
    const group = groups.get(key) ?? { by: own, events: [] };
    groups.set(key, group);
    group.events.push(event);
  }
  return [...groups.values()].map((group) => ({
    by: group.by,
    count: group.events.length,
    of: statisticsOf(group.events, stats),
    buckets: bucketsOf(group.events, starts),
  }));
}

function statisticsOf(
  events: readonly OracleEvent[],
  stats: NonNullable<OracleQuestion['stats']>,
): Record<string, Record<string, number | null>> {
  const of: Record<string, Record<string, number | null>> = {};
  for (const one of stats) {
    if (one === 'count') continue;
    const values = events.map((event) => scalarsAt(event.payload, one.of.split('.')));
    const numbers = values
      .map((all) => all.filter((value) => typeof value === 'number'))
      .flatMap((all) => (all.length === 1 ? all : []))
      .sort((a, b) => a - b);
    of[one.of] = { ...of[one.of], [one.stat]: statistic(one.stat, numbers, values) };
  }
  return of;
}

function statistic(
  stat: string,
  numbers: readonly number[],
  values: readonly (readonly Scalar[])[],
): number | null {
  if (stat === 'distinct') return new Set(values.flat().map((value) => JSON.stringify(value))).size;
  // In hundredths a double is exact.
  const sum = numbers.reduce((total, number) => total + Math.round(number * 100), 0) / 100;
  if (stat === 'sum') return sum;
  if (stat === 'count') return numbers.length;
  if (numbers.length === 0) return null;
  if (stat === 'avg') return sum / numbers.length;
  if (stat === 'min') return numbers[0] ?? null;
  if (stat === 'max') return numbers.at(-1) ?? null;
  if (stat === 'stddev') {
    const mean = sum / numbers.length;
    const squares = numbers.reduce((total, number) => total + (number - mean) ** 2, 0);
    return numbers.length < 2 ? null : Math.sqrt(squares / (numbers.length - 1));
  }
  return numbers[Math.ceil((Number(stat.slice(1)) / 100) * numbers.length) - 1] ?? null;
}

function bucketsOf(events: readonly OracleEvent[], starts: readonly number[]): Map<number, number> {
  const buckets = new Map<number, number>();
  if (starts.length === 0) return buckets;
  for (const { at } of events) {
    const start = starts.findLast((one) => one <= at) ?? Number.NaN;
    buckets.set(start, (buckets.get(start) ?? 0) + 1);
  }
  return buckets;
}
