/** GET /v1/apps/metrics: the counts of the apps that a resource token may read, as counters for Prometheus. */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { listAppsOf } from '../../apps/apps.ts';
import { listTypesOf } from '../../apps/event-types.ts';
import { type FieldProgress, listFieldProgress } from '../../apps/fields.ts';
import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { matchesTag } from '../../http/assets.ts';
import type { Outcome } from '../../http/exchange.ts';
import { READS } from '../../http/operation.ts';
import { Invalid, invalidParameters, type Parameter, Query, texts } from '../../http/query.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Declaration, Route } from '../../http/route.ts';
import { EXPOSITION_TYPE, headOf, lineOf, type Sample, wellFormed } from '../../metrics/metrics.ts';
import type { FieldKind } from '../../storage/fields/payload-values.ts';
import { spellPath } from '../fields/payload-paths.ts';
import { shownValue } from '../fields/shown-value.ts';
import { valuesByCounts } from '../fields/values-read.ts';
import { DECLARE, whyNotCounted } from '../fields/why-not-counted.ts';
import { pathOf } from '../filter/filter-query.ts';
import type { ResourceTokenRoutesOptions } from '../resource-token-routes.ts';

/** Samples of one scrape. A scraper keeps each as a series of its own for months. */
export const MOST_SAMPLES = 10_000;
/** Values of a field: one with more names single things, and would be a series for each. */
const MOST_VALUES = 1_000;
export const MOST_APPS = 100;
const MOST_FIELDS = 4;

const TOO_MANY_SAMPLES = new Rejection(
  'invalidParameters',
  `There would be more than ${MOST_SAMPLES.toLocaleString('en-US')} samples: choose apps by appId, types by typeName, or fewer fields.`,
);
const CUT_SHORT = new Rejection(
  'unavailable',
  'The service is busy: the metrics could not be read to their end; try again shortly.',
);

const QUERY = new Query({
  appId: texts('Only this app. May be given several times; absent: all apps of the token.', {
    most: MOST_APPS,
  }),
  typeName: texts('Only events of the type of this name. May be given several times.', { most: 50 }),
  value: paths(
    `Also count the events of each value of this declared field, which may have ${MOST_VALUES.toLocaleString('en-US')} values.`,
  ),
  number: paths('Also count and sum the numbers of this declared field.'),
});

export const APP_METRICS: Declaration = {
  method: 'GET',
  path: '/v1/apps/metrics',
  headers: ['authorization', 'if-none-match'],
  operation: {
    id: 'getAppMetrics',
    ...READS,
    summary: 'Read the counts of apps as counters, in the text format of Prometheus.',
    description:
      'All events ever counted, by app and type: counters that retention does not lower. An app that cannot be read any more has no samples.',
    query: QUERY,
    headers: {
      'If-None-Match': {
        description: 'The ETag of an earlier answer: where nothing has changed since, the answer is 304.',
        schema: { type: 'string' },
      },
    },
    answers: {
      200: {
        description: 'The counters.',
        content: { [EXPOSITION_TYPE]: { schema: { type: 'string' } } },
        headers: {
          ETag: { description: 'Changes with any of the samples.', schema: { type: 'string' } },
        },
      },
      304: { description: 'Nothing has changed since the ETag.', content: {} },
    },
    refusals: ['accessDenied', 'appNotFound'],
    refusalProperties: { 400: DECLARE },
  },
};

/** The paths of fields, each spelled as in a filter. */
function paths(description: string): Parameter<readonly (readonly string[])[]> {
  const sent = texts(`${description} May be given ${MOST_FIELDS} times.`, { most: MOST_FIELDS });
  return {
    ...sent,
    convert: (value) => {
      const parsed = new Map<string, readonly string[]>();
      // The schema lets nothing but texts through.
      for (const text of (value as readonly string[] | undefined) ?? []) {
        const path = pathOf(text);
        if (path instanceof Invalid) return path;
        // A path may be spelled in several ways.
        parsed.set(spellPath(path), path);
      }
      return [...parsed.values()];
    },
  };
}

interface AppOfToken {
  readonly id: number;
  readonly appId: string;
  readonly name: string;
}

/** What was read of all apps, by the name of the metric. */
interface Samples {
  readonly apps: Sample[];
  readonly events: Sample[];
  readonly values: Sample[];
  readonly numbers: Sample[];
  readonly sums: Sample[];
}

type Asked = Exclude<ReturnType<typeof QUERY.parse>, Rejection>;

export function prometheusRoute({
  access,
  slots,
  now,
}: ResourceTokenRoutesOptions & { readonly now: () => number }): Route {
  return {
    ...APP_METRICS,
    handle: async (exchange) => {
      const token = await access.admit(exchange);
      if (token instanceof Rejection) return token;
      const unknown = QUERY.unknown(exchange.query);
      if (unknown !== null) return unknown;
      const query = QUERY.parse(exchange.query);
      if (query instanceof Rejection) return query;
      const apps = await chosenApps(token, query.appId);
      if (apps instanceof Rejection) return apps;
      const turn = { kind: 'token', turns: token.holder, waiter: exchange } as const;
      const samples = await slots.run(turn, (place) => samplesOf(place, apps, query, now));
      if (samples instanceof Rejection) return samples;
      const text = await textOf(samples, new TimeSlice(token.holder));
      return answer(text, exchange.header('if-none-match'));
    },
  };

  /** Internal ids by public ones. */
  async function chosenApps(
    token: ResourceToken,
    chosen: readonly string[],
  ): Promise<ReadonlyMap<string, number> | Rejection> {
    if (chosen.length === 0) return token.apps;
    const apps = new Map<string, number>();
    for (const appId of chosen) {
      const id = await access.app(token, appId);
      if (id instanceof Rejection) return id;
      apps.set(appId, id);
    }
    return apps;
  }
}

/** App by app: other accounts' reads come in between. Each app is read in snapshots of its own. */
async function samplesOf(
  place: ReadPlace,
  apps: ReadonlyMap<string, number>,
  query: Asked,
  now: () => number,
): Promise<Samples | Rejection> {
  const samples: Samples = { apps: [], events: [], values: [], numbers: [], sums: [] };
  const declared = new Map<string, Rejection | null>();
  for (const { appId, name } of await listAppsOf(place.sql, [...apps.values()])) {
    const app = { id: apps.get(appId) ?? 0, appId, name }; // One of those that were asked for.
    samples.apps.push({ labels: { app: app.appId, name: app.name }, value: 1 });
    await addEvents(samples, place, app, query.typeName);
    const isAsked = query.value.length + query.number.length > 0;
    const fields = isAsked ? await listFieldProgress(place.sql, app.id) : [];
    for (const [kind, asked] of [
      ['value', query.value],
      ['number', query.number],
    ] as const) {
      for (const path of asked) {
        const field = `${kind} ${spellPath(path)}`;
        if (!isDeclared(fields, kind, path)) {
          if (!declared.has(field)) declared.set(field, await reasonOf(place, app, kind, path));
          continue;
        }
        declared.set(field, null);
        const problem = await (kind === 'value' ? addValues : addNumbers)(samples, place, app, path, now);
        if (problem !== null) return problem;
      }
    }
    const count = Object.values(samples).reduce((sum, of: readonly Sample[]) => sum + of.length, 0);
    if (count > MOST_SAMPLES) return TOO_MANY_SAMPLES;
    if (!(await place.pass())) return CUT_SHORT;
  }
  // A field that none of the apps has declared is a mistake; one that some have is counted for these.
  return [...declared.values()].find((problem) => problem !== null) ?? samples;
}

async function addEvents(
  { events: samples }: Samples,
  { sql, events }: ReadPlace,
  app: AppOfToken,
  only: readonly string[],
): Promise<void> {
  const [types, stats] = await Promise.all([listTypesOf(sql, app.id), events.typeStats(app.id)]);
  const wanted = new Set(only);
  for (const { typeId, name } of types) {
    if (wanted.size > 0 && !wanted.has(name)) continue;
    // A counter that begins with zero shows its first event as an increase.
    samples.push({ labels: { app: app.appId, type: name }, value: stats.get(typeId)?.count ?? 0 });
  }
}

/** Whether one of the fields counts this path in all events of its app. */
function isDeclared(fields: readonly FieldProgress[], kind: FieldKind, path: readonly string[]): boolean {
  return fields.some(
    (field) =>
      field.kind === kind &&
      field.by === null &&
      field.typeName === null &&
      isDeepStrictEqual(field.path, path),
  );
}

async function reasonOf(
  { sql }: ReadPlace,
  app: AppOfToken,
  kind: 'value' | 'number',
  path: readonly string[],
): Promise<Rejection | null> {
  return await whyNotCounted(sql, { app, param: kind, path, kind, by: null, typeIds: null, from: null });
}

async function addValues(
  { values: samples }: Samples,
  place: ReadPlace,
  app: AppOfToken,
  path: readonly string[],
  now: () => number,
): Promise<Rejection | null> {
  const scope = { appId: app.id, typeIds: null, exceptTypes: [], from: null, until: null, now: now() };
  const limit = MOST_VALUES + 1;
  const counted = await valuesByCounts(place.events, scope, path, { field: null, limit });
  const field = spellPath(path);
  if (counted === null) return (await reasonOf(place, app, 'value', path)) ?? CUT_SHORT;
  if (counted.values.length > MOST_VALUES)
    return invalidParameters(
      `${field} has more than ${MOST_VALUES.toLocaleString('en-US')} values in ${app.appId}: too many to be series of their own.`,
      'value',
    );
  // A text and a number that read the same are one series, and so are texts that are the same in UTF-8, which has no half characters.
  const sums = new Map<string, number>();
  for (const [value, count] of counted.values) {
    const shown = shownValue(value);
    const label = wellFormed(typeof shown === 'string' ? shown : JSON.stringify(shown));
    sums.set(label, (sums.get(label) ?? 0) + count);
  }
  for (const [value, sum] of sums) samples.push({ labels: { app: app.appId, field, value }, value: sum });
  return null;
}

async function addNumbers(
  { numbers, sums }: Samples,
  place: ReadPlace,
  app: AppOfToken,
  path: readonly string[],
  now: () => number,
): Promise<Rejection | null> {
  const request = { appId: app.id, typeIds: null, from: null, until: now() + 1, timezone: 'UTC' } as const;
  const question = { kind: 'number', of: path, by: null, filter: null, stats: ['sum'] } as const;
  const counted = await place.events.summarySeries({ ...request, question, buckets: 12, exactEnds: 'start' });
  if (typeof counted === 'string') return (await reasonOf(place, app, 'number', path)) ?? CUT_SHORT;
  const labels = { app: app.appId, field: spellPath(path) };
  const overall = counted.lines[0]?.overall;
  numbers.push({ labels, value: overall?.count ?? 0 });
  sums.push({ labels, value: overall !== undefined && 'sum' in overall ? Number(overall.sum) : 0 });
  return null;
}

interface Metric {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly help: string;
  readonly of: keyof Samples;
}

const METRICS: readonly Metric[] = [
  {
    ...{ name: 'tidemark_app_info', type: 'gauge', of: 'apps' },
    help: 'The names of the apps, by their ids.',
  },
  {
    ...{ name: 'tidemark_events_total', type: 'counter', of: 'events' },
    help: 'Events ever stored, by app and type.',
  },
  {
    ...{ name: 'tidemark_value_events_total', type: 'counter', of: 'values' },
    help: 'Events ever stored, by the value of a declared field.',
  },
  {
    ...{ name: 'tidemark_numbers_total', type: 'counter', of: 'numbers' },
    help: 'Numbers ever stored in a declared field.',
  },
  // A sum falls where numbers are negative.
  { ...{ name: 'tidemark_numbers_sum', type: 'gauge', of: 'sums' }, help: 'Their sum.' },
];

/** The samples in the format of Prometheus, in slices: there may be ten thousand. */
async function textOf(samples: Samples, slices: TimeSlice): Promise<string> {
  let text = '';
  for (const { name, type, of, help } of METRICS) {
    if (samples[of].length > 0) text += headOf(name, type, help);
    for (const { labels, value } of samples[of]) {
      text += lineOf(name, labels, value);
      if (slices.isOverAfterStep) await slices.next();
    }
  }
  return text;
}

function answer(body: string, known: string): Outcome {
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  const headers = { ETag: tag };
  if (known !== '' && matchesTag(known, tag))
    return { status: 304, body: '', contentType: EXPOSITION_TYPE, headers };
  return { status: 200, body, contentType: EXPOSITION_TYPE, headers };
}
