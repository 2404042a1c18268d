/** The parameters that say which events of an app are meant. */

import { listHiddenTypes, listOtherTypes } from '../apps/event-types.ts';
import { endsBefore, type Range } from '../base/ranges.ts';
import { Rejection } from '../errors.ts';
import {
  Invalid,
  invalidParameters,
  texts as listOf,
  oneOf,
  type Parameter,
  type Schema,
  text,
} from '../http/query.ts';
import { isTimezone } from '../storage/counts/timezone.ts';
import type { Sql } from '../storage/database/connect.ts';
import { parseBound } from './iso-date.ts';

/** As many types as a chart can show apart, and then some. */
export const MAX_TYPES = 50;
/** As many as an app may hide. */
export const MAX_EXCEPT_TYPES = 40;
export const EARLIEST = Date.UTC(1970, 0, 1);
export const LATEST = Date.UTC(9999, 0, 1);

/** The instant nearest to another at which there may be events. */
export const withinYears = (at: number): number => Math.min(Math.max(at, EARLIEST), LATEST);

/** Whether there can be events of a range. */
export function hasEvents(range: Range | null): range is Range {
  if (range === null) return false;
  if (range.kind === 'since') return range.from >= EARLIEST && range.from < LATEST;
  return range.kind !== 'between' || (range.from >= EARLIEST && range.to <= LATEST);
}

function noType(sent: string): Rejection {
  return new Rejection(
    'eventTypeNotFound',
    `The app has no event type with the id or name ${JSON.stringify(sent)}.`,
  );
}

const INSTANT: Schema = { examples: ['2026-01-31', '2026-01-31T08:30:00.123Z', '2026-01-31T10:30:00+02:00'] };

/** An instant, in milliseconds since 1970; null where it is absent. A date alone is its first millisecond, in UTC. */
export function instant(description: string): Parameter<number | null> {
  return text(description, {
    schema: INSTANT,
    convert: (sent) => {
      const bound = parseBound(sent, 'start');
      return typeof bound === 'string' ? new Invalid(bound) : withinYears(bound);
    },
  });
}

/** The parameters of a scope, for a {@link Query}; {@link checkScope} belongs to them. */
export const SCOPE = {
  typeId: listOf('Only events of this type. May be given several times, also together with `typeName`.', {
    most: MAX_TYPES,
  }),
  typeName: listOf('Only events of the type of this name. May be given several times.', { most: MAX_TYPES }),
  type: listOf('Another name of `typeName`.', { most: MAX_TYPES }),
  from: instant(
    'From this instant on, inclusive. ISO 8601, to the millisecond; without an offset it is UTC.',
  ),
  to: instant('Up to this instant, exclusive. ISO 8601, to the millisecond; without an offset it is UTC.'),
} as const;

/** A time zone; null where it is absent. */
export function timezone(description: string): Parameter<string | null> {
  return text(description, {
    schema: { examples: ['Europe/Berlin'] },
    convert: (zone) =>
      isTimezone(zone) ? zone : new Invalid('must be an IANA time zone, such as Europe/Berlin'),
  });
}

/** The types that a scope without a choice of types leaves out. */
export const EXCEPT_TYPES = {
  exceptTypeId: listOf(
    'Leaves out events of this type. May be given several times, but not together with `typeId` or `typeName`.',
    { most: MAX_EXCEPT_TYPES },
  ),
  hidden: oneOf(
    '`exclude` leaves out events of the types that are hidden in the dashboard, unless `typeId` or `typeName` choose types.',
    ['include', 'exclude'],
    'include',
  ),
} as const;

export interface ScopedTypes {
  /** Internal ids; null: all types but `exceptTypes`. */
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes: readonly number[];
  /** Public ids of `exceptTypes`. */
  readonly exceptIds: ReadonlySet<string>;
}

/** The types of a scope, and those that it leaves out. @param appId internal id */
export async function findScopedTypes(
  sql: Sql,
  appId: number,
  query: Parameters<typeof findTypes>[2] & {
    readonly hidden: 'include' | 'exclude';
    readonly exceptTypeId: readonly string[];
  },
): Promise<ScopedTypes | Rejection> {
  const typeIds = await findTypes(sql, appId, query);
  if (typeIds instanceof Rejection) return typeIds;
  const except = await findExceptTypes(sql, appId, typeIds, query.exceptTypeId);
  if (except instanceof Rejection) return except;
  const hidden = typeIds === null && query.hidden === 'exclude' ? await listHiddenTypes(sql, appId) : [];
  return {
    typeIds,
    exceptTypes: [...new Set([...except, ...hidden.map(({ id }) => id)])],
    exceptIds: new Set([...query.exceptTypeId, ...hidden.map(({ typeId }) => typeId)]),
  };
}

/**
 * The internal ids of the types that a scope leaves out by name.
 * @param typeIds the types that it chooses; null: none
 */
export async function findExceptTypes(
  sql: Sql,
  appId: number,
  typeIds: readonly number[] | null,
  exceptTypeId: readonly string[],
): Promise<readonly number[] | Rejection> {
  if (exceptTypeId.length === 0) return [];
  if (typeIds !== null)
    return invalidParameters('exceptTypeId cannot be combined with typeId or typeName.', 'exceptTypeId');
  return (await findTypes(sql, appId, { typeId: exceptTypeId, typeName: [] })) ?? [];
}

/**
 * The types of a scope as a list, for counts from which those of a type cannot be taken away again.
 * @param appId internal id
 * @returns null where it is all types of the app
 */
export async function findTypesLeft(
  sql: Sql,
  appId: number,
  query: Parameters<typeof findScopedTypes>[2],
): Promise<readonly number[] | null | Rejection> {
  const types = await findScopedTypes(sql, appId, query);
  if (types instanceof Rejection) return types;
  const { typeIds, exceptTypes } = types;
  return exceptTypes.length === 0 ? typeIds : await listOtherTypes(sql, appId, exceptTypes);
}

export function checkScope({ from, to }: { from: number | null; to: number | null }): string | null {
  return from !== null && to !== null && from >= to ? `from must be before to${endsBefore(from, to)}.` : null;
}

/**
 * The internal ids of the types that a scope names, each once.
 * @param appId internal id
 * @returns null where it names none, which means all
 */
export async function findTypes(
  sql: Sql,
  appId: number,
  {
    typeId,
    ...named
  }: {
    readonly typeId: readonly string[];
    readonly typeName: readonly string[];
    readonly type?: readonly string[];
  },
): Promise<readonly number[] | null | Rejection> {
  const typeName = [...new Set([...named.typeName, ...(named.type ?? [])])];
  if (typeId.length + typeName.length === 0) return null;
  const impossible = impossibleOf(typeId, typeName);
  if (impossible !== null) return impossible;
  const rows = await sql<{ id: number; publicId: string; name: string }[]>`
    SELECT id, public_id AS "publicId", name FROM event_types
     WHERE app_id = ${appId} AND (public_id = ANY(${[...typeId]}) OR name = ANY(${[...typeName]}))`;
  const [ids, names] = [new Set(rows.map((row) => row.publicId)), new Set(rows.map((row) => row.name))];
  const missing = typeId.find((id) => !ids.has(id)) ?? typeName.find((name) => !names.has(name));
  return missing === undefined ? rows.map(({ id }) => id) : noType(missing);
}

/** What no type of an app can be; null: nothing is. */
function impossibleOf(typeId: readonly string[], typeName: readonly string[]): Rejection | null {
  if (typeId.length + typeName.length > MAX_TYPES)
    return invalidParameters(`typeId and typeName may be given at most ${MAX_TYPES} times together.`);
  // No text column takes NUL.
  const impossible = [...typeId, ...typeName].find((sent) => sent.includes('\0'));
  return impossible === undefined ? null : noType(impossible);
}

export interface ChartType {
  readonly id: number;
  readonly typeId: string;
  readonly name: string;
}

export interface ChartTypes {
  /** Internal ids of the types that are chosen; null: none are, which means all. */
  readonly typeIds: readonly number[] | null;
  /** Types that charts leave out. */
  readonly hidden: readonly ChartType[];
  /** Types whose events charts mark. */
  readonly annotating: readonly ChartType[];
}

/** The types that a chart has to know of, in one statement. @param appId internal id */
export async function findChartTypes(
  sql: Sql,
  appId: number,
  chosen: readonly string[],
): Promise<ChartTypes | Rejection> {
  const impossible = impossibleOf(chosen, []);
  if (impossible !== null) return impossible;
  const rows = await sql<(ChartType & { isHidden: boolean; isAnnotating: boolean })[]>`
    SELECT id, public_id AS "typeId", name, hidden_at IS NOT NULL AS "isHidden", annotates_at IS NOT NULL AS "isAnnotating"
      FROM event_types
     WHERE app_id = ${appId} AND (public_id = ANY(${[...chosen]}) OR hidden_at IS NOT NULL OR annotates_at IS NOT NULL)
     ORDER BY id`;
  const known = new Map(rows.map((row) => [row.typeId, row.id]));
  const missing = chosen.find((typeId) => !known.has(typeId));
  if (missing !== undefined) return noType(missing);
  return {
    typeIds:
      chosen.length === 0 ? null : rows.filter(({ typeId }) => chosen.includes(typeId)).map(({ id }) => id),
    hidden: rows.filter(({ isHidden }) => isHidden),
    annotating: rows.filter(({ isAnnotating }) => isAnnotating),
  };
}
