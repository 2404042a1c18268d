/** GET /api/apps/:appId/explanation: what is different in a part of a range, by the values whose share differs most from the rest of it. */
import { isDeepStrictEqual } from 'node:util';
import type { Difference, Explanation } from '../../api-types/answers.ts';
import { listCountedPaths } from '../../apps/fields.ts';
import { sum } from '../../base/sum.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import { Query } from '../../http/query.ts';
import type { Route } from '../../http/route.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { spellPath } from '../fields/payload-paths.ts';
import { nameOf } from '../fields/shown-value.ts';
import { newestOf, type ValueScope, valuesByCounts, valuesOf } from '../fields/values-read.ts';
import { fieldFilterOf } from '../filter/counted-values.ts';
import { FILTER, filterOf } from '../filter/filter-query.ts';
import { checkScope, EXCEPT_TYPES, findScopedTypes, instant, SCOPE } from '../scope-query.ts';
import { intervalOf } from './chart-query.ts';
import type { ChartRouteOptions } from './series-columns.ts';
import { readLines } from './series-lines.ts';

/** Fields that are looked through, and differences that are shown. */
const MOST_FIELDS = 12;
const MOST_DIFFERENCES = 12;
/** Standard deviations up to which a difference may be chance. */
const CHANCE = 3;
/** Values of a field, and types, that are told apart. */
const MOST_VALUES = 100;

const EXPLAIN_QUERY = new Query(
  {
    ...SCOPE,
    ...EXCEPT_TYPES,
    ...FILTER,
    partFrom: { ...instant('The start of the part that is explained.'), required: true },
    partTo: { ...instant('Its end, exclusive.'), required: true },
    partFilter: {
      ...FILTER.filter,
      description: 'Only events whose payload meets this condition are the part.',
    },
  },
  (query) => {
    const { partFrom, partTo } = query;
    if (partFrom !== null && partTo !== null && partFrom >= partTo) return 'partFrom must be before partTo.';
    return checkScope(query);
  },
);

/** Events by key, of an interval: of a type its public id, of a value its one text. */
interface Counted {
  readonly names: ReadonlyMap<string, string>;
  readonly events: ReadonlyMap<string, number>;
  readonly total: number;
  readonly exact: boolean;
}

interface Asked extends ValueScope {
  /** Null: types are told apart. */
  readonly path: readonly string[] | null;
  readonly hasConditions: boolean;
  readonly field: FieldFilter | null;
}

/** Counts are of one snapshot. Fields that these do not answer beside a filter are compared by samples of the newest events. */
export function explainRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn(
    '/api/apps/:appId/explanation',
    'read',
    async ({ app, exchange, sql, events, pass }) => {
      const query = EXPLAIN_QUERY.parse(exchange.query);
      if (query instanceof Rejection) return query;
      const types = await findScopedTypes(sql, app.id, query);
      if (types instanceof Rejection) return types;
      const { typeIds, exceptTypes, exceptIds } = types;
      const { filter, partFilter } = query;
      // The field that chooses the part would differ most.
      const paths = (await listCountedPaths(sql, app.id))
        .filter((path) => !partFilter.some((one) => isDeepStrictEqual(one.path, path)))
        .slice(0, MOST_FIELDS);
      const whole = intervalOf(query, options.now());
      const part = { from: query.partFrom, until: query.partTo ?? whole.until };
      const scopes = [[part, [...filter, ...partFilter]] as const, [whole, filter] as const].map(
        ([span, conditions]) => {
          const given = { ...query, filter: conditions };
          const meets = { rows: filterOf(given), field: fieldFilterOf(given) };
          return { ...meets, appId: app.id, typeIds, exceptTypes, ...span };
        },
      );
      const kinds = [...(typeIds?.length === 1 ? [] : [null]), ...paths];
      const counted = await events.together(app.id, (_, reader) =>
        Promise.all(
          kinds.map((path) =>
            Promise.all(
              scopes.map(({ rows, ...scope }) =>
                countedOf(reader, { ...scope, path, hasConditions: rows !== null }),
              ),
            ),
          ),
        ),
      );
      // A sample is of all fields, and read once.
      const samples = scopes.map(({ rows, field, ...scope }) => {
        let newest: ReturnType<typeof newestOf> | undefined;
        return async (path: readonly string[] | null) => {
          newest ??= newestOf(options, { events, pass }, scope, { rows, field });
          if (path === null) return ofTypes(await newest, exceptIds);
          return ofValues(await valuesOf(await newest, path, { limit: MOST_VALUES, exceptIds }));
        };
      });
      const differences: Difference[] = [];
      let isSample = false;
      for (const [index, path] of kinds.entries()) {
        const sets: Counted[] = [];
        for (const [which, known] of (counted[index] ?? []).entries()) {
          // Types of a sample have no names but those of the counts that it is compared with.
          const isNamed = path !== null || counted[index]?.[1] != null;
          const set = known ?? (isNamed ? await samples[which]?.(path) : undefined);
          if (set !== undefined) sets.push(set);
        }
        const [inPart, inWhole] = sets;
        if (inPart === undefined || inWhole === undefined) continue;
        isSample ||= !inPart.exact || !inWhole.exact;
        differences.push(...differencesOf(path, inPart, inWhole));
      }
      return done<Explanation>({
        differences: differences
          .toSorted(
            (a, b) =>
              Math.abs(b.partShare - b.restShare) - Math.abs(a.partShare - a.restShare) ||
              b.partShare - a.partShare,
          )
          .slice(0, MOST_DIFFERENCES),
        isSample,
        fields: paths.length,
      });
    },
  );
}

/** What counts say of an interval; null where they do not answer it. */
async function countedOf(events: EventReader, asked: Asked): Promise<Counted | null> {
  const { path, field, hasConditions, ...scope } = asked;
  const { until } = scope;
  if (until === null || (hasConditions && field === null)) return null;
  if (path !== null) {
    if (hasConditions && !isDeepStrictEqual(field?.path, path)) return null;
    const counts = await valuesByCounts(events, { ...scope, now: until }, path, {
      field,
      limit: MOST_VALUES,
    });
    return counts && ofValues(counts);
  }
  const request = {
    ...scope,
    until,
    timezone: 'UTC',
    buckets: 1,
    exactEnds: 'both',
    withBefore: false,
  } as const;
  const series = await readLines(
    events,
    { ...request, topTypes: MOST_VALUES },
    { by: 'type', filter: field },
  );
  if (typeof series === 'string') return null;
  const lines = series.lines.map(({ type, counts }) => ({ ...type, events: sum(counts) }));
  return {
    names: new Map(lines.map(({ typeId = '', name = '' }) => [typeId, name])),
    events: new Map(lines.map(({ typeId = '', events: count }) => [typeId, count])),
    total: sum(series.all.counts),
    exact: true,
  };
}

/** The types of a sample, by their ids. */
function ofTypes(
  { events, isWhole }: Awaited<ReturnType<typeof newestOf>>,
  exceptIds: ReadonlySet<string>,
): Counted {
  const counts = new Map<string, number>();
  for (const { typeId } of events)
    if (!exceptIds.has(typeId)) counts.set(typeId, (counts.get(typeId) ?? 0) + 1);
  return { names: new Map(), events: counts, total: sum([...counts.values()]), exact: isWhole };
}

function ofValues(counts: Awaited<ReturnType<typeof valuesOf>>): Counted {
  const { values, otherEvents, exact } = counts;
  return {
    names: new Map(values.map(([value]) => [value, nameOf(value)])),
    events: new Map(values),
    total: sum(values.map(([, events]) => events)) + otherEvents,
    exact,
  };
}

function differencesOf(path: readonly string[] | null, inPart: Counted, inWhole: Counted): Difference[] {
  // The rest is known where both are: a sample of the whole stands for it.
  const isExact = inPart.exact && inWhole.exact;
  const rest = isExact ? inWhole.total - inPart.total : inWhole.total;
  if (inPart.total === 0 || rest <= 0) return [];
  const names = new Map([...inWhole.names, ...inPart.names]);
  return [...names].flatMap(([key, name]) => {
    const own = inPart.events.get(key) ?? 0;
    const inRest = Math.max(0, (inWhole.events.get(key) ?? 0) - (isExact ? own : 0));
    const [partShare, restShare] = [own / inPart.total, inRest / rest];
    const one = { path: path && spellPath(path), key, name, inPart: own, inRest, partShare, restShare };
    return deviations(one, inPart.total, rest) > CHANCE ? [one] : [];
  });
}

/** By how many standard deviations two shares of one population would differ so much. @param part @param rest how many events each is of */
function deviations(
  { partShare, restShare, inPart, inRest }: Difference,
  part: number,
  rest: number,
): number {
  const share = (inPart + inRest) / (part + rest);
  return Math.abs(partShare - restShare) / Math.sqrt(share * (1 - share) * (1 / part + 1 / rest) || 1);
}
