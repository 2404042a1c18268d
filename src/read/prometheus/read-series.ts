/** The series that selectors choose among the apps of a resource token, and their samples, which are read from the counts. */
import { listAppsOf } from '../../apps/apps.ts';
import { listTypesOfApps } from '../../apps/event-types.ts';
import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { inSlices, TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Counters, CountersRequest } from '../../storage/counts/counters.ts';
import { type Labels, MOST_COMPUTED, type Series, type Wanted, withoutName } from './evaluate.ts';
import { MOST_APPS, MOST_SAMPLES } from './metrics-route.ts';
import { type Matcher, type Selector, Unsupported } from './parse.ts';

/** The metrics that there are, with the labels of each beside its name. */
export const METRICS = {
  tidemark_events_total: {
    type: 'counter',
    help: 'Events ever stored, by app and type.',
    labels: ['app', 'type'],
  },
  tidemark_app_info: {
    type: 'gauge',
    help: 'The names of the apps, by their ids.',
    labels: ['app', 'name'],
  },
} as const;
export type MetricName = keyof typeof METRICS;
export const METRIC_NAMES: readonly MetricName[] = ['tidemark_events_total', 'tidemark_app_info'];

/** Counts that a query reads, and times at which it looks for them. */
const MOST_COUNTS = 1_000_000;
/** Instants of a query, those of several steps at the same one each: what lies between two pauses grows with them. */
const MOST_INSTANTS = 100_000;
/** Names of types that a query looks through, and how often it compares a name with a matcher. */
const MOST_NAMES = 200_000;
const MOST_COMPARISONS = 1_000_000;
/** Outcomes of regular expressions that are kept for the same name in another app. */
const MOST_KEPT = 100_000;
/** Time in milliseconds that the regular expressions of a query may take, in slices. */
const PATTERNS_MS = 500;
/** How long a sample stands for what comes after it, as Prometheus has it. */
const LOOKBACK_MS = 5 * MINUTE_MS;

/** A series without its samples. */
export interface Found {
  readonly labels: Labels;
  readonly app: number;
  /** Internal id, or 0 of all types together; null: of a metric that is always 1. */
  readonly type: number | null;
}

/** Which series: {@link Wanted}, without their times. */
interface Choice extends Pick<Wanted, 'ofAllTypes'> {
  readonly selector: Pick<Selector, 'matchers'>;
}

/** Compares names with matchers, in slices of time. */
class Names {
  readonly #slices: TimeSlice;
  readonly #known = new Map<Matcher, Map<string, boolean>>();
  #comparisons = 0;
  #kept = 0;
  #spent = 0;

  constructor(token: ResourceToken) {
    this.#slices = new TimeSlice(token.holder);
  }

  /** Whether a label of this value passes. @throws {Unsupported} where that takes too long */
  async pass(matchers: readonly Matcher[], label: string, value: string): Promise<boolean> {
    for (const matcher of matchers) {
      if (matcher.label !== label) continue;
      this.#comparisons += 1;
      if (this.#comparisons > MOST_COMPARISONS)
        throw new Unsupported(
          'The query compares too many names: use fewer selectors, or choose apps by app="…".',
        );
      if (this.#slices.isOverAfterStep) await this.#slices.next();
      if (!(matcher.isPattern ? this.#match(matcher, value) : matcher.passes(value))) return false;
    }
    return true;
  }

  #match(matcher: Matcher, value: string): boolean {
    const known = this.#known.get(matcher) ?? new Map<string, boolean>();
    this.#known.set(matcher, known);
    const before = known.get(value);
    if (before !== undefined) return before;
    const began = performance.now();
    const passed = matcher.passes(value);
    this.#spent += performance.now() - began;
    if (this.#spent > PATTERNS_MS)
      throw new Unsupported('The regular expressions take too long: use shorter ones, or names.');
    if (this.#kept < MOST_KEPT) {
      this.#kept += 1;
      known.set(value, passed);
    }
    return passed;
  }
}

/** The apps of a token that a selector leaves, by public id. */
export async function appsOf(
  token: ResourceToken,
  matchers: readonly Matcher[],
  names = new Names(token),
): Promise<ReadonlyMap<string, number>> {
  const apps = new Map<string, number>();
  for (const [appId, id] of [...token.apps].sort(([a], [b]) => (a < b ? -1 : 1)))
    if (await names.pass(matchers, 'app', appId)) apps.set(appId, id);
  return apps;
}

type TypesOfApp = readonly { readonly id: number; readonly name: string }[];
const NO_TYPES: ReadonlyMap<number, TypesOfApp> = new Map();

/** The series of each selector. @throws {Unsupported} where there are too many */
export async function findSeries(
  { sql }: Pick<ReadPlace, 'sql'>,
  token: ResourceToken,
  wanted: readonly Choice[],
): Promise<readonly (readonly Found[])[]> {
  const names = new Names(token);
  const typesOf = new Map<number, TypesOfApp>();
  let known = 0;
  const found: Found[][] = [];
  let series = 0;
  for (const { selector, ofAllTypes } of wanted) {
    const { matchers } = selector;
    const own: Found[] = [];
    found.push(own);
    const add = (one: Found): void => {
      series += 1;
      if (series > MOST_SAMPLES)
        throw new Unsupported(
          `A query reads at most ${MOST_SAMPLES.toLocaleString('en-US')} series: choose apps by app="…", or types by type="…".`,
        );
      own.push(one);
    };
    for (const metric of METRIC_NAMES) {
      const { labels } = METRICS[metric];
      if (!(await names.pass(matchers, '__name__', metric))) continue;
      // A label that the metric does not have is the empty text.
      const others = matchers.filter(
        ({ label }) => label !== '__name__' && !labels.some((one) => one === label),
      );
      if (!others.every(({ passes }) => passes(''))) continue;
      const apps = await appsOf(token, matchers, names);
      if (apps.size > MOST_APPS)
        throw new Unsupported(`A query reads at most ${MOST_APPS} apps: choose some by app="…".`);
      const ids = [...apps.values()];
      if (metric === 'tidemark_app_info') {
        for (const { appId, name } of await listAppsOf(sql, ids))
          if (await names.pass(matchers, 'name', name))
            add({
              labels: { __name__: metric, app: appId, name },
              app: apps.get(appId) ?? 0,
              type: null,
            });
      } else if (ofAllTypes && !matchers.some(({ label }) => label === 'type')) {
        for (const [app, id] of apps) add({ labels: { __name__: metric, app }, app: id, type: 0 });
      } else {
        const missing = ids.filter((id) => !typesOf.has(id));
        const types =
          missing.length === 0 ? NO_TYPES : await listTypesOfApps(sql, missing, MOST_NAMES - known);
        if (types === 'too many')
          throw new Unsupported(
            `A query looks through at most ${MOST_NAMES.toLocaleString('en-US')} types: choose apps by app="…".`,
          );
        for (const id of missing) {
          const ofApp = types.get(id) ?? [];
          typesOf.set(id, ofApp);
          known += ofApp.length;
        }
        for (const [app, id] of apps)
          for (const type of typesOf.get(id) ?? [])
            if (await names.pass(matchers, 'type', type.name))
              add({ labels: { __name__: metric, app, type: type.name }, app: id, type: type.id });
      }
    }
  }
  return found;
}

/** The samples of selectors at steps. */
export interface Samples {
  readonly series: ReadonlyMap<Selector, readonly Series[]>;
  /** What a reader must know of them, as sentences. */
  readonly warnings: readonly string[];
}

/**
 * Reads the samples of selectors, all in one snapshot.
 * @param times of the steps, in milliseconds since 1970, ascending
 * @param now   milliseconds since 1970
 * @throws {Unsupported} where that would be too many
 */
export async function readSamples(
  place: ReadPlace,
  token: ResourceToken,
  wanted: readonly Wanted[],
  { times, now }: { readonly times: readonly number[]; readonly now: number },
): Promise<Samples> {
  const found = await findSeries(place, token, wanted);
  if (found.flat().length * times.length > MOST_COMPUTED) throw tooLarge();
  const slices = new TimeSlice(token.holder);
  const latest = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  const asked = new Map<number, Asked>();
  wanted.forEach(({ selector }, index) => {
    for (const { app, type } of found[index] ?? []) {
      if (type === null) continue;
      const own = asked.get(app) ?? { types: new Set(), shifts: new Set() };
      asked.set(app, own);
      own.types.add(type);
      for (const shift of shiftsOf(selector)) own.shifts.add(shift);
    }
  });
  // Apps of the same selectors, as all of them are in most queries, are asked at the same instants.
  const known = new Map<string, Instants>();
  let [instants, counts] = [0, 0];
  const requests: (CountersRequest & { readonly at: Instants })[] = [];
  for (const [appId, { types, shifts }] of asked) {
    const key = [...shifts].sort((a, b) => a - b).join();
    let at = known.get(key);
    if (at === undefined) {
      instants += shifts.size * times.length;
      if (instants > MOST_INSTANTS) throw tooLarge();
      at = await inSlices(instantsOf(times, latest, shifts), slices);
      known.set(key, at);
    }
    counts += types.size * at.sorted.length;
    if (counts > MOST_COUNTS) throw tooLarge();
    requests.push({ appId, typeIds: [...types], instants: at.sorted, at });
  }
  const counters = await place.events.counters(requests);
  if (counters === 'too many')
    throw new Unsupported(
      'The times of the query need too many counts by the minute: choose a start, a step and ranges that are multiples of 15m, fewer types, or a shorter time.',
    );
  const ofApps = new Map(requests.map(({ appId, at }, index) => [appId, { at, counters: counters[index] }]));
  const warnings = new Set<string>();
  const series = new Map<Selector, Series[]>();
  for (const [index, { selector }] of wanted.entries()) {
    const columns: Series[] = [];
    series.set(selector, columns);
    for (const one of found[index] ?? []) {
      columns.push({
        labels: selector.window === null ? one.labels : withoutName(one.labels),
        values: valuesOf(one, ofApps.get(one.app), selector, { times, latest, warnings }),
      });
      if (slices.isOver) await slices.next();
    }
  }
  return { series, warnings: [...warnings] };
}

interface Asked {
  readonly types: Set<number>;
  readonly shifts: Set<number>;
}

/** How long before a step a selector needs a count, in milliseconds. */
function shiftsOf({ offsetMs, window }: Selector): readonly number[] {
  return window === null ? [offsetMs] : [offsetMs, offsetMs + window.ms];
}

/** The instants that steps need counts at. */
export interface Instants {
  /** Ascending, each once. */
  readonly sorted: readonly number[];
  /** The place in `sorted` of each step's instant, by shift. */
  readonly places: ReadonlyMap<number, Uint32Array>;
}

/** Steps between two pauses: some 50 µs. */
const STEPS_AT_ONCE = 4_096;

/** @param times ascending @param latest a whole minute */
export function* instantsOf(
  times: readonly number[],
  latest: number,
  shifts: ReadonlySet<number>,
): Generator<undefined, Instants> {
  const ofShifts = new Map<number, Float64Array>();
  let sorted: Float64Array = new Float64Array(0);
  for (const shift of shifts) {
    // Counts are those of whole minutes: steps within one share its instant.
    const own = new Float64Array(times.length);
    for (let index = 0; index < own.length; index += 1) {
      const minute = Math.floor(((times[index] ?? 0) - shift) / MINUTE_MS) * MINUTE_MS;
      own[index] = Math.max(0, Math.min(minute, latest));
    }
    ofShifts.set(shift, own);
    yield;
    sorted = yield* merged(sorted, own);
  }
  const places = new Map<number, Uint32Array>();
  for (const [shift, own] of ofShifts) {
    const ofShift = new Uint32Array(own.length);
    places.set(shift, ofShift);
    let place = 0;
    for (let index = 0; index < own.length; index += 1) {
      const instant = own[index] ?? 0;
      while ((sorted[place] ?? instant) < instant) place += 1;
      ofShift[index] = place;
    }
    yield;
  }
  return { sorted: [...sorted], places };
}

/** The numbers of two ascending lists, ascending, each once. */
function* merged(left: Float64Array, right: Float64Array): Generator<undefined, Float64Array> {
  const all = new Float64Array(left.length + right.length);
  let length = 0;
  let l = 0;
  for (let r = 0; l < left.length || r < right.length; ) {
    const a = l < left.length ? (left[l] ?? 0) : Number.POSITIVE_INFINITY;
    const b = r < right.length ? (right[r] ?? 0) : Number.POSITIVE_INFINITY;
    if (a <= b) l += 1;
    else r += 1;
    const next = a <= b ? a : b;
    if (length === 0 || all[length - 1] !== next) {
      all[length] = next;
      length += 1;
    }
    if ((l + r) % STEPS_AT_ONCE === 0) yield;
  }
  return all.subarray(0, length);
}

function tooLarge(): Unsupported {
  return new Unsupported('The query is too large: choose fewer series, a longer step, or a shorter time.');
}

function valuesOf(
  { type }: Found,
  of: { readonly at: Instants; readonly counters: Counters | undefined } | undefined,
  selector: Selector,
  steps: { readonly times: readonly number[]; readonly latest: number; readonly warnings: Set<string> },
): (number | null)[] {
  const { times, latest, warnings } = steps;
  const { offsetMs, window } = selector;
  const isKnown = (step: number): boolean => isFresh(step - offsetMs, latest);
  if (type === null) return times.map((step) => (window === null && isKnown(step) ? 1 : null));
  const counts = of?.counters?.counts.get(type);
  if (of?.counters === undefined || counts === undefined) return times.map(() => null);
  const { times: counted, quarterHoursBefore } = of.counters;
  const [untils = new Uint32Array(), froms = untils] = shiftsOf(selector).map((shift) =>
    of.at.places.get(shift),
  );
  return times.map((step, index) => {
    const until = untils[index] ?? 0;
    const from = froms[index] ?? 0;
    if (window === null) return isKnown(step) ? (counts[until] ?? 0) : null;
    const end = counted[until] ?? 0;
    const begin = counted[from] ?? 0;
    if (begin >= end) {
      if (quarterHoursBefore !== null && end < quarterHoursBefore)
        warnings.add(
          `Before ${new Date(quarterHoursBefore).toISOString()} events are counted by the quarter-hour: ranges shorter than 15m have gaps there.`,
        );
      return null;
    }
    const growth = (counts[until] ?? 0) - (counts[from] ?? 0);
    return window.of === 'increase' ? growth : (growth * 1_000) / (end - begin);
  });
}

function isFresh(at: number, latest: number): boolean {
  return at <= latest + LOOKBACK_MS;
}
