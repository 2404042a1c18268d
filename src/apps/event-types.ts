/** Event types: the categories of an app's events. Created by users, or by the first event that names one. */

import { LRUCache } from 'lru-cache';
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { internalAppId } from '../accounts/people/members.ts';
import { createPublicId } from '../base/token-text.ts';
import { atMost } from '../cache/lookup-cache.ts';
import { type Refused, refused } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { lengthProblem } from './name.ts';
import { type RedactionRule, redactionColumn } from './redaction.ts';
import type { SchemaReference } from './type-schemas.ts';

export interface EventType {
  readonly typeId: string;
  readonly name: string;
  readonly createdAt: Date;
}

/** The event type that a producer names. */
export type TypeReference = { readonly typeId: string } | { readonly typeName: string };

export interface StoredType {
  readonly id: number;
  readonly publicId: string;
  readonly name: string;
  readonly appPublicId: string;
  /** What payloads are checked against; null: nothing. */
  readonly schema: SchemaReference | null;
  /** What is redacted of payloads; null: nothing. */
  readonly redaction: readonly RedactionRule[] | null;
}

/** What a SELECT of {@link StoredType}s takes, from the tables of {@link storedTypes}. */
export function typeColumns(sql: Sql | Transaction) {
  return sql`
    type.id, type.public_id AS "publicId", type.name, app.public_id AS "appPublicId",
    CASE WHEN schema.digest IS NOT NULL THEN json_build_object('digest', schema.digest, 'mode', schema.mode) END AS schema,
    ${redactionColumn(sql, 'type.id')} AS redaction`;
}

/** Types with their apps, and their schemas unless these are suspended. */
export function storedTypes(sql: Sql | Transaction) {
  return sql`
    event_types AS type JOIN apps AS app ON app.id = type.app_id
      LEFT JOIN type_schemas AS schema ON schema.type_id = type.id AND schema.suspended_at IS NULL`;
}

interface NewType extends Omit<NewTypes, 'apps'> {
  readonly appId: number;
  readonly name: string;
}

interface NewTypes {
  /** Names by the internal ids of their apps, without duplicates. */
  readonly apps: ReadonlyMap<number, readonly string[]>;
  /** MAX_EVENT_TYPES_PER_APP */
  readonly maxTypes: number;
  /** Avoids counting the app's types while it is known to be below the limit; absent: they are counted. */
  readonly counts?: TypeCounts;
  /** The creator; absent for a producer, which the audit log does not record. */
  readonly by?: Actor;
}

/**
 * Number of types of each app at the last count. Ids are assigned in ascending order, so an app cannot have gained more
 * types since then than ids were assigned to all apps. While that bound is below the limit, no count is needed, and the
 * limit stays exact.
 */
export class TypeCounts {
  readonly #counts = new LRUCache<number, TypeCount>(atMost(10_000));

  get(appId: number): TypeCount | null {
    return this.#counts.get(appId) ?? null;
  }

  set(appId: number, count: TypeCount): void {
    this.#counts.set(appId, count);
  }

  /** Call when the connection may lead to another database, which may assign the same ids again. */
  clear(): void {
    this.#counts.clear();
  }
}

interface TypeCount {
  readonly types: number;
  /** The id of the newest one. */
  readonly lastId: number;
}

/**
 * The problem of an event type's name, worded to follow the field's name ("must not be empty"); null if it is valid:
 * 1 to 200 code points, no NUL, no lone surrogate. Names are stored as given and compared exactly.
 */
export function eventTypeNameProblem(name: string): string | null {
  return lengthProblem(name) ?? (name.includes('\0') ? 'must not contain NUL' : null);
}

/**
 * The type of this name, created if the app has none. Concurrent calls in any process get the same type. The app's row
 * is locked only while a type is created.
 * @returns 'too-many' if the app has reached its limit
 * @throws Refused invalidBody; appNotFound if the app was deleted
 */
export async function getOrCreateEventType(sql: Sql, type: NewType): Promise<StoredType | 'too-many'> {
  const { appId, name, ...common } = type;
  checkEventTypeName(name);
  const apps = new Map([[appId, [name]]]);
  const found = (await findTypes(sql, apps)).get(appId)?.get(name);
  if (found !== undefined) return found;
  const created = await createInApp(sql, appId, { ...common, apps });
  return created.found.get(name) ?? created.made.get(name) ?? 'too-many';
}

/** What became of an app's names: the types by name, where names beyond the app's limit are missing. */
export type CreatedTypes = ReadonlyMap<string, StoredType> | 'locked' | Refused;

/**
 * The types of these names in several apps. Missing ones are created in one transaction, in the given order. It waits for no app:
 * one whose row another session has locked is 'locked', and none of its types is created.
 * @returns by app; a Refused invalidBody, or appNotFound if the app was deleted
 */
export async function getOrCreateEventTypes(
  sql: Sql,
  types: NewTypes,
): Promise<ReadonlyMap<number, CreatedTypes>> {
  const valid = new Map(types.apps);
  const outcomes = new Map<number, CreatedTypes>();
  for (const [appId, names] of types.apps) {
    const problem = names.map(eventTypeNameProblem).find((one) => one !== null) ?? null;
    if (problem === null) continue;
    valid.delete(appId);
    outcomes.set(appId, invalidName(problem));
  }
  for (const [appId, created] of await createUnlessFound(sql, { ...types, apps: valid }, 'skip')) {
    if (created === 'removed') outcomes.set(appId, appRemoved());
    else outcomes.set(appId, created === 'locked' ? created : new Map([...created.found, ...created.made]));
  }
  return outcomes;
}

async function createInApp(sql: Sql, appId: number, types: NewTypes): Promise<Created> {
  const created = (await createUnlessFound(sql, types)).get(appId);
  if (created === undefined || typeof created === 'string') throw appRemoved();
  return created;
}

function appRemoved(): Refused {
  return refused('appNotFound', 'the app has been removed');
}

/** The names of types, and their places among those of their app, in order of creation, from 0: numbers that never change, for colors. */
export async function numberTypes(
  sql: Sql,
  appId: number,
  typeIds: readonly string[],
): Promise<ReadonlyMap<string, { readonly number: number; readonly name: string }>> {
  if (typeIds.length === 0) return new Map();
  const rows = await sql<{ typeId: string; number: number; name: string }[]>`
    SELECT "typeId", number, name
      FROM (SELECT public_id AS "typeId", name, (row_number() OVER (ORDER BY id) - 1)::integer AS number
              FROM event_types WHERE app_id = ${appId}) numbered
     WHERE "typeId" = ANY(${[...typeIds]})`;
  return new Map(rows.map(({ typeId, ...type }) => [typeId, type]));
}

/** The names of types by their public ids. */
export async function typeNames(sql: Sql, typeIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const rows = await sql<{ typeId: string; name: string }[]>`
    SELECT public_id AS "typeId", name FROM event_types WHERE public_id = ANY(${[...typeIds]}::text[])`;
  return new Map(rows.map(({ typeId, name }) => [typeId, name]));
}

/**
 * Creates an event type.
 * @throws Refused invalidBody, appNotFound, eventTypeExists, tooManyEventTypes
 */
export async function createEventType(
  sql: Sql,
  type: { appId: string; name: string; maxTypes: number; by?: Actor },
): Promise<{ typeId: string; name: string }> {
  const { name, maxTypes, by = COMMAND_LINE } = type;
  checkEventTypeName(name);
  const appId = await internalAppId(sql, type.appId);
  const { found, made } = await createInApp(sql, appId, { apps: new Map([[appId, [name]]]), maxTypes, by });
  const existing = found.get(name);
  if (existing !== undefined) throw typeExists(existing);
  const created = made.get(name);
  if (created === undefined) throw refused('tooManyEventTypes', await tooManyTypes(sql, appId, maxTypes));
  return { typeId: created.publicId, name };
}

/** The refusal of a new type of an app that has as many as it may. @param maxTypes MAX_EVENT_TYPES_PER_APP */
export async function tooManyTypes(sql: Sql, appId: number, maxTypes: number): Promise<string> {
  const [own] = await sql<{ types: number }[]>`
    SELECT types FROM app_limits WHERE app_id = ${appId} AND types < ${maxTypes}`;
  const limit = own === undefined ? `${maxTypes} (MAX_EVENT_TYPES_PER_APP)` : `${own.types} (its own limit)`;
  return `the app has as many event types as it may have, ${limit}`;
}

/**
 * The types of these names, of which missing ones are created in one transaction, in the given order.
 * @returns public ids by name
 * @throws Refused invalidBody, appNotFound, tooManyEventTypes
 */
export async function createEventTypes(
  sql: Sql,
  types: { appId: number; names: readonly string[]; maxTypes: number; by: Actor },
): Promise<ReadonlyMap<string, string>> {
  const { appId, names, maxTypes, by } = types;
  for (const name of names) checkEventTypeName(name);
  const { found, made } = await createInApp(sql, appId, { apps: new Map([[appId, names]]), maxTypes, by });
  if (found.size + made.size < names.length)
    throw refused('tooManyEventTypes', await tooManyTypes(sql, appId, maxTypes));
  return new Map([...found, ...made].map(([name, { publicId }]) => [name, publicId]));
}

/**
 * Renames an event type. Its id and its events stay; a producer that goes on sending the old name makes a new type.
 * @returns false if the app has no such type
 * @throws Refused invalidBody, eventTypeExists
 */
export async function renameEventType(
  sql: Sql,
  change: { appId: number; typeId: string; name: string; by: Actor },
): Promise<boolean> {
  const { appId, typeId, name, by } = change;
  checkEventTypeName(name);
  return await sql.begin('isolation level read committed', async (tx) => {
    // As for a new type: two of one name meet here.
    await tx`SELECT FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    const [before] = await tx<{ id: number; name: string }[]>`
      SELECT id, name FROM event_types WHERE app_id = ${appId} AND public_id = ${typeId} FOR NO KEY UPDATE`;
    if (before === undefined) return false;
    if (before.name === name) return true;
    const existing = (await findTypes(tx, new Map([[appId, [name]]]))).get(appId)?.get(name);
    if (existing !== undefined) throw typeExists(existing);
    await tx`UPDATE event_types SET name = ${name} WHERE id = ${before.id}`;
    await writeAudit(tx, {
      appId,
      by,
      action: 'type.rename',
      details: { typeId, from: before.name, to: name },
    });
    return true;
  });
}

/** What charts do with a type, beside counting it. */
const DISPLAYS = {
  // With the others of a chart they are as many as one read takes.
  hidden: { most: 40, code: 'tooManyHiddenTypes', on: 'type.hide', off: 'type.show' },
  annotation: { most: 10, code: 'tooManyAnnotatingTypes', on: 'type.annotate', off: 'type.count' },
} as const;

/** `hidden`: charts leave the type out. `annotation`: they mark each of its events. */
export type TypeDisplay = keyof typeof DISPLAYS;

/**
 * Has charts leave a type out, or mark its events, or no longer. Its events are counted and listed as ever.
 * @returns false if the app has no such type
 * @throws Refused tooManyHiddenTypes, tooManyAnnotatingTypes
 */
export async function displayEventType(
  sql: Sql,
  change: { appId: number; typeId: string; display: TypeDisplay; isOn: boolean; by: Actor },
): Promise<boolean> {
  const { appId, typeId, display, isOn, by } = change;
  const { most, code, on, off } = DISPLAYS[display];
  return await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact.
    await tx`SELECT FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    const column = tx(display === 'hidden' ? 'hidden_at' : 'annotates_at');
    const [type] = await tx<{ id: number; name: string; isOn: boolean; taken: number }[]>`
      SELECT id, name, ${column} IS NOT NULL AS "isOn",
             (SELECT count(*)::integer FROM event_types WHERE app_id = ${appId} AND ${column} IS NOT NULL) AS taken
        FROM event_types WHERE app_id = ${appId} AND public_id = ${typeId} FOR NO KEY UPDATE`;
    if (type === undefined) return false;
    if (type.isOn === isOn) return true;
    if (isOn && type.taken >= most)
      throw refused(
        code,
        display === 'hidden'
          ? `an app may hide ${most} types: show one of them again`
          : `an app may show ${most} types as annotations: stop it for one of them`,
      );
    await tx`UPDATE event_types SET ${column} = ${isOn ? tx`now()` : null} WHERE id = ${type.id}`;
    await writeAudit(tx, { appId, by, action: isOn ? on : off, details: { typeId, name: type.name } });
    return true;
  });
}

/** The types that charts of an app leave out. */
export async function listHiddenTypes(
  sql: Sql | Transaction,
  appId: number,
): Promise<readonly { readonly id: number; readonly typeId: string }[]> {
  return await sql<{ id: number; typeId: string }[]>`
    SELECT id, public_id AS "typeId" FROM event_types WHERE app_id = ${appId} AND hidden_at IS NOT NULL ORDER BY id`;
}

/** The public ids of the types whose events charts mark. */
export async function listAnnotatingTypes(sql: Sql, appId: number): Promise<ReadonlySet<string>> {
  const rows = await sql<{ typeId: string }[]>`
    SELECT public_id AS "typeId" FROM event_types WHERE app_id = ${appId} AND annotates_at IS NOT NULL`;
  return new Set(rows.map(({ typeId }) => typeId));
}

/** Internal ids of the types of an app but for some. */
export async function listOtherTypes(
  sql: Sql,
  appId: number,
  exceptTypes: readonly number[],
): Promise<readonly number[]> {
  const rows = await sql<{ id: number }[]>`
    SELECT id FROM event_types WHERE app_id = ${appId} AND id <> ALL(${[...exceptTypes]}::integer[]) ORDER BY id`;
  return rows.map(({ id }) => id);
}

function typeExists({ publicId }: StoredType): Refused {
  return refused('eventTypeExists', `the app already has an event type with this name: ${publicId}`);
}

/**
 * The event types of an app, in order of creation.
 * @throws Refused appNotFound
 */
export async function listEventTypes(sql: Sql, appId: string): Promise<EventType[]> {
  return await listTypesOf(sql, await internalAppId(sql, appId));
}

/** The event types of an app by its internal id, in order of creation; empty where there is no such app. */
export async function listTypesOf(sql: Sql, appId: number): Promise<EventType[]> {
  return await sql<EventType[]>`
    SELECT public_id AS "typeId", name, created_at AS "createdAt"
      FROM event_types WHERE app_id = ${appId} ORDER BY event_types.id`;
}

/** The names of the types of apps, by the internal ids of both; apps without types are absent. 'too many': they have more than `most`. */
export async function listTypesOfApps(
  sql: Sql,
  appIds: readonly number[],
  most: number,
): Promise<ReadonlyMap<number, readonly { readonly id: number; readonly name: string }[]> | 'too many'> {
  const rows = await sql<{ appId: number; ids: number[]; names: string[] }[]>`
    SELECT app_id AS "appId", array_agg(id ORDER BY id) AS ids, array_agg(name ORDER BY id) AS names
      FROM (SELECT app_id, id, name FROM event_types WHERE app_id = ANY(${[...appIds]}) LIMIT ${most + 1}) AS types
     GROUP BY app_id`;
  if (rows.reduce((sum, { ids }) => sum + ids.length, 0) > most) return 'too many';
  return new Map(
    rows.map(({ appId, ids, names }) => [appId, ids.map((id, index) => ({ id, name: names[index] ?? '' }))]),
  );
}

/** The types of these names by name: those that there were, and those that were made. */
interface Created {
  readonly found: ReadonlyMap<string, StoredType>;
  readonly made: ReadonlyMap<string, StoredType>;
}

/**
 * Creates missing types of apps in one transaction.
 * @param lock 'skip': without waiting for apps whose row another session has locked
 * @returns by app; 'removed' if there is no such app
 */
async function createUnlessFound(
  sql: Sql,
  { apps, maxTypes, counts, by }: NewTypes,
  lock: 'wait' | 'skip' = 'wait',
): Promise<ReadonlyMap<number, Created | 'locked' | 'removed'>> {
  const ids = [...apps.keys()];
  // Read committed, whatever the role's default: the query after the lock must see what the previous holder created.
  const created = await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact, and two makers of one name meet here. It lets foreign keys to the app through. In order of
    // ids, so that two transactions of several apps do not wait for each other.
    const held = await tx<{ id: number; publicId: string }[]>`
      SELECT id, public_id AS "publicId" FROM apps WHERE id = ANY(${ids}::integer[]) ORDER BY id
         FOR NO KEY UPDATE ${lock === 'skip' ? tx`SKIP LOCKED` : tx``}`;
    const publicIds = new Map(held.map(({ id, publicId }) => [id, publicId]));
    const absent = ids.filter((id) => !publicIds.has(id));
    const locked = lock === 'wait' || absent.length === 0 ? [] : await existingApps(tx, absent);
    const made = await insertMissing(tx, { apps, publicIds, maxTypes, counts });
    if (by !== undefined)
      for (const { appId, publicId: typeId, name } of made)
        await writeAudit(tx, { appId, by, action: 'type.create', details: { typeId, name } });
    const outcomes = new Map<number, Created | 'locked' | 'removed'>();
    for (const id of absent) outcomes.set(id, locked.includes(id) ? 'locked' : 'removed');
    const madeOf = new Map<number, Map<string, StoredType>>(
      ids.filter((id) => publicIds.has(id)).map((id) => [id, new Map()]),
    );
    for (const { counted: _counted, appId, ...type } of made) madeOf.get(appId)?.set(type.name, type);
    // Types that were not made exist, or are too many.
    const others = [...madeOf].map(
      ([id, types]) => [id, (apps.get(id) ?? []).filter((name) => !types.has(name))] as const,
    );
    const found = await findTypes(tx, new Map(others));
    for (const [id, types] of madeOf) outcomes.set(id, { found: found.get(id) ?? new Map(), made: types });
    return { outcomes, made };
  });
  // Only after the commit.
  if (counts !== undefined) noteCounts(counts, created.made);
  return created.outcomes;
}

interface MadeType extends StoredType {
  readonly appId: number;
  /** Number of the app's types before, if they were counted. */
  readonly counted: number | null;
}

/** Inserts those of the types that there are not, in the given order and up to each app's limit. The apps are locked. */
async function insertMissing(
  tx: Transaction,
  types: {
    readonly apps: ReadonlyMap<number, readonly string[]>;
    /** Public ids of the locked apps. */
    readonly publicIds: ReadonlyMap<number, string>;
    readonly maxTypes: number;
    readonly counts: TypeCounts | undefined;
  },
): Promise<readonly MadeType[]> {
  const { apps, publicIds, maxTypes, counts } = types;
  const appIds = [...publicIds.keys()];
  const asked = appIds.flatMap((appId) => (apps.get(appId) ?? []).map((name) => ({ appId, name })));
  if (asked.length === 0) return [];
  const offsets = appIds.map((appId) => {
    const known = counts?.get(appId) ?? null;
    // Upper bound: the last count plus all ids assigned since. Without a count, assume that the limit is exceeded.
    return known === null ? maxTypes : known.types - known.lastId;
  });
  const rows = await tx<Omit<MadeType, 'appPublicId' | 'schema' | 'redaction'>[]>`
    WITH sequence AS (
      SELECT pg_get_serial_sequence('event_types', 'id')::regclass::oid AS id
    ), new AS (
      SELECT app_id, name, public_id, position,
             row_number() OVER (PARTITION BY app_id ORDER BY position) AS number,
             count(*) OVER (PARTITION BY app_id) AS missing
        FROM unnest(${asked.map(({ appId }) => appId)}::integer[], ${asked.map(({ name }) => name)}::text[],
                    ${asked.map(() => createPublicId('typ'))}::text[])
               WITH ORDINALITY AS asked (app_id, name, public_id, position)
       WHERE NOT EXISTS (SELECT FROM event_types AS type WHERE type.app_id = asked.app_id AND type.name = asked.name)
    ), before AS (
      -- Null, and the types are counted, where the role may not look at the sequence: only an INSERT needs no right.
      SELECT app_id,
             CASE WHEN least_count + missing
                       + CASE WHEN has_sequence_privilege(sequence.id, 'SELECT, USAGE')
                              THEN pg_sequence_last_value(sequence.id) END <= most THEN NULL
                  ELSE (SELECT count(*)::integer FROM event_types WHERE event_types.app_id = app.app_id)
             END AS counted, most
        FROM unnest(${appIds}::integer[], ${offsets}::bigint[]) AS app (app_id, least_count)
        JOIN new USING (app_id)
       CROSS JOIN LATERAL (
         SELECT least(${maxTypes}, (SELECT types FROM app_limits WHERE app_limits.app_id = app.app_id)) AS most) AS own, sequence
       WHERE number = 1
    ), made AS (
      INSERT INTO event_types (public_id, app_id, name)
      SELECT public_id, app_id, name FROM new JOIN before USING (app_id)
       WHERE counted IS NULL OR counted + number <= most
       ORDER BY position
      RETURNING id, public_id, app_id, name
    )
    SELECT id, public_id AS "publicId", app_id AS "appId", name, counted FROM made JOIN before USING (app_id)`;
  return rows.map((row) => ({
    ...row,
    appPublicId: publicIds.get(row.appId) ?? '',
    schema: null,
    redaction: null,
  }));
}

function noteCounts(counts: TypeCounts, made: readonly MadeType[]): void {
  const sums = new Map<number, TypeCount>();
  for (const { appId, id, counted } of made) {
    if (counted === null) continue;
    const { types, lastId } = sums.get(appId) ?? { types: counted, lastId: 0 };
    sums.set(appId, { types: types + 1, lastId: Math.max(lastId, id) });
  }
  for (const [appId, sum] of sums) counts.set(appId, sum);
}

async function existingApps(tx: Transaction, ids: readonly number[]): Promise<readonly number[]> {
  const rows = await tx<{ id: number }[]>`SELECT id FROM apps WHERE id = ANY(${[...ids]}::integer[])`;
  return rows.map(({ id }) => id);
}

/** The types of these names. @param names by app @returns those that there are, by app and name */
async function findTypes(
  sql: Sql | Transaction,
  names: ReadonlyMap<number, readonly string[]>,
): Promise<ReadonlyMap<number, ReadonlyMap<string, StoredType>>> {
  const asked = [...names].flatMap(([appId, some]) => some.map((name) => ({ appId, name })));
  if (asked.length === 0) return new Map();
  const rows = await sql<(StoredType & { appId: number })[]>`
    SELECT ${typeColumns(sql)}, type.app_id AS "appId"
      FROM unnest(${asked.map(({ appId }) => appId)}::integer[], ${asked.map(({ name }) => name)}::text[])
             AS asked (app_id, name)
      JOIN (${storedTypes(sql)}) ON type.app_id = asked.app_id AND type.name = asked.name`;
  const found = new Map<number, Map<string, StoredType>>();
  for (const { appId, ...type } of rows) {
    const ofApp = found.get(appId) ?? new Map<string, StoredType>();
    found.set(appId, ofApp.set(type.name, type));
  }
  return found;
}

function checkEventTypeName(name: string): void {
  const problem = eventTypeNameProblem(name);
  if (problem !== null) throw invalidName(problem);
}

function invalidName(problem: string): Refused {
  return refused('invalidBody', `the name ${problem}`);
}
