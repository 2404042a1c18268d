/** The series that selectors choose among the apps of a resource token, and their samples, which are read from the counts. */
import { listAppsOf } from '../../apps/apps.ts';
import { listTypesOfApps } from '../../apps/event-types.ts';
import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Counters } from '../../storage/storage.ts';
import { MOST_APPS, MOST_SAMPLES } from '../prometheus-route.ts';
import { type Labels, type Series, type Wanted, withoutName } from './evaluate.ts';
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

/** Selectors at steps: each reads two counts at a step. */
const MOST_STEPS = 100_000;
/** Counts that a query reads. */
const MOST_COUNTS = 1_000_000;
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

/** Matches names with matchers, in slices of time. */
class Names {
  readonly #slices: TimeSlice;
  readonly #known = new Map<Matcher, Map<string, boolean>>();
  #spent = 0;

  constructor(token: ResourceToken) {
    this.#slices = new TimeSlice(token.holder);
  }

  /** Whether a label of this value passes. Each value is matched once. */
  async pass(matchers: readonly Matcher[], label: string, value: string): Promise<boolean> {
    for (const matcher of matchers) {
      if (matcher.label !== label) continue;
      const known = this.#known.get(matcher) ?? new Map<string, boolean>();
      this.#known.set(matcher, known);
      let passes = known.get(value);
      if (passes === undefined) {
        const began = performance.now();
        passes = matcher.passes(value);
        this.#spent += performance.now() - began;
        known.set(value, passes);
        if (this.#spent > PATTERNS_MS)
          throw new Unsupported('The regular expressions take too long: use shorter ones, or names.');
        if (this.#slices.isOver) await this.#slices.next();
      }
      if (!passes) return false;
    }
    return true;
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

/** The series of each selector. @throws {Unsupported} where there are too many */
export async function findSeries(
  { sql }: Pick<ReadPlace, 'sql'>,
  token: ResourceToken,
  wanted: readonly Choice[],
): Promise<readonly (readonly Found[])[]> {
  const names = new Names(token);
  const known: Map<number, TypesOfApp> = new Map();
  const found: Found[][] = [];
  for (const { selector, ofAllTypes } of wanted) {
    const { matchers } = selector;
    const own: Found[] = [];
    found.push(own);
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
            own.push({
              labels: { __name__: metric, app: appId, name },
              app: apps.get(appId) ?? 0,
              type: null,
            });
      } else if (ofAllTypes && !matchers.some(({ label }) => label === 'type')) {
        for (const [app, id] of apps) own.push({ labels: { __name__: metric, app }, app: id, type: 0 });
      } else {
        const missing = ids.filter((id) => !known.has(id));
        const types =
          missing.length === 0 ? new Map<number, TypesOfApp>() : await listTypesOfApps(sql, missing);
        for (const id of missing) known.set(id, types.get(id) ?? []);
        for (const [app, id] of apps)
          for (const type of known.get(id) ?? [])
            if (await names.pass(matchers, 'type', type.name))
              own.push({ labels: { __name__: metric, app, type: type.name }, app: id, type: type.id });
      }
    }
    if (found.reduce((sum, { length }) => sum + length, 0) > MOST_SAMPLES)
      throw new Unsupported(
        `A query reads at most ${MOST_SAMPLES.toLocaleString('en-US')} series: choose apps by app="…", or types by type="…".`,
      );
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
  if (wanted.length * times.length > MOST_STEPS) throw tooLarge();
  const found = await findSeries(place, token, wanted);
  const latest = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  const instantOf = (at: number): number => Math.max(0, Math.min(at, latest));
  const asked = new Map<number, { readonly types: Set<number>; readonly instants: Set<number> }>();
  wanted.forEach(({ selector: { offsetMs, window } }, index) => {
    for (const { app, type } of found[index] ?? []) {
      if (type === null) continue;
      const own = asked.get(app) ?? { types: new Set(), instants: new Set() };
      asked.set(app, own);
      own.types.add(type);
    }
    for (const app of new Set((found[index] ?? []).map((one) => one.app)))
      for (const time of times) {
        const { instants } = asked.get(app) ?? {};
        instants?.add(instantOf(time - offsetMs));
        if (window !== null) instants?.add(instantOf(time - offsetMs - window.ms));
      }
  });
  const counts = [...asked.values()].reduce(
    (sum, { types, instants }) => sum + types.size * instants.size,
    0,
  );
  if (counts > MOST_COUNTS) throw tooLarge();
  const requests = [...asked].map(([appId, { types, instants }]) => ({
    appId,
    typeIds: [...types],
    instants: [...instants].sort((a, b) => a - b),
  }));
  const counters = await place.events.counters(requests);
  if (counters === 'too many')
    throw new Unsupported(
      'The times of the query need too many counts by the minute: choose a start, a step and ranges that are multiples of 15m, fewer types, or a shorter time.',
    );
  const ofApps = new Map(
    requests.map(({ appId, instants }, index) => [appId, new Lookup(instants, counters[index])]),
  );
  const warnings = new Set<string>();
  const series = new Map(
    wanted.map(({ selector }, index) => [
      selector,
      (found[index] ?? []).map((one) => ({
        labels: selector.window === null ? one.labels : withoutName(one.labels),
        values: valuesOf(one, ofApps.get(one.app), selector, { times, latest, instantOf, warnings }),
      })),
    ]),
  );
  return { series, warnings: [...warnings] };
}

function tooLarge(): Unsupported {
  return new Unsupported('The query is too large: choose fewer series, a longer step, or a shorter time.');
}

/** The counters of an app by instant. */
class Lookup {
  readonly #index: ReadonlyMap<number, number>;
  readonly #counters: Counters | undefined;

  constructor(instants: readonly number[], counters: Counters | undefined) {
    this.#index = new Map(instants.map((instant, index) => [instant, index]));
    this.#counters = counters;
  }

  /** The instant that is counted up to, and the count. */
  at(instant: number, type: number): { readonly time: number; readonly count: number } {
    const index = this.#index.get(instant) ?? 0;
    return { time: this.#counters?.times[index] ?? 0, count: this.#counters?.counts.get(type)?.[index] ?? 0 };
  }

  get quarterHoursBefore(): number | null {
    return this.#counters?.quarterHoursBefore ?? null;
  }
}

function valuesOf(
  { type }: Found,
  counters: Lookup | undefined,
  { offsetMs, window }: Selector,
  steps: {
    readonly times: readonly number[];
    readonly latest: number;
    readonly instantOf: (at: number) => number;
    readonly warnings: Set<string>;
  },
): (number | null)[] {
  const { times, latest, instantOf, warnings } = steps;
  return times.map((step) => {
    const at = step - offsetMs;
    if (type === null || counters === undefined)
      return window === null ? (isFresh(at, latest) ? 1 : null) : null;
    const until = counters.at(instantOf(at), type);
    if (window === null) return isFresh(at, latest) ? until.count : null;
    const from = counters.at(instantOf(at - window.ms), type);
    if (from.time >= until.time) {
      const before = counters.quarterHoursBefore;
      if (before !== null && until.time < before)
        warnings.add(
          `Before ${new Date(before).toISOString()} events are counted by the quarter-hour: ranges shorter than 15m have gaps there.`,
        );
      return null;
    }
    const growth = until.count - from.count;
    return window.of === 'increase' ? growth : (growth * 1_000) / (until.time - from.time);
  });
}

function isFresh(at: number, latest: number): boolean {
  return at <= latest + LOOKBACK_MS;
}
