/** Event types: the categories inside an app. Made by people, or by the first event that names one. */
import { LRUCache } from 'lru-cache';
import { AccountError, appNotFound } from '../accounts/account-error.ts';
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/audit.ts';
import { lengthProblem } from '../accounts/name.ts';
import type { Sql, Transaction } from '../storage/connect.ts';
import { createPublicId } from '../token-text.ts';

/** An event type as a list shows it. */
export interface EventType {
  readonly typeId: string;
  readonly name: string;
  readonly createdAt: Date;
}

/** An event's type as a producer names it. */
export type TypeReference = { readonly typeId: string } | { readonly typeName: string };

export interface StoredType {
  /** Internal id. */
  readonly id: number;
  readonly publicId: string;
}

interface NewType extends Omit<NewTypes, 'names'> {
  readonly name: string;
}

interface NewTypes {
  /** Internal id of the app. */
  readonly appId: number;
  /** Each once. */
  readonly names: readonly string[];
  /** MAX_EVENT_TYPES_PER_APP */
  readonly maxTypes: number;
  /** Spares the count of the app's types where it is known that there are fewer; absent: they are counted. */
  readonly counts?: TypeCounts;
  /** Who makes it; absent: a producer, by the first event, of which the audit log does not tell. */
  readonly by?: Actor;
}

/**
 * How many types apps had when they were last counted. Ids are given in order, and an app's types are made one after the
 * other: it can not have got more types since then than ids were given, to whichever app. While that is below the limit
 * nothing has to be counted, so the thousandth type costs as much as the first, and the limit stays exact.
 */
export class TypeCounts {
  readonly #counts = new LRUCache<number, TypeCount>({ max: 10_000 });

  get(appId: number): TypeCount | null {
    return this.#counts.get(appId) ?? null;
  }

  set(appId: number, count: TypeCount): void {
    this.#counts.set(appId, count);
  }

  /** To be called where the database may have become another one, which gives the same ids again. */
  clear(): void {
    this.#counts.clear();
  }
}

interface TypeCount {
  readonly types: number;
  /** The last one of them. */
  readonly lastId: number;
}

/**
 * What is wrong with the name of an event type, to be read after the field's name ("must not be empty"); null for a good
 * one: 1 to 200 code points, no NUL, no lone surrogate. Names are kept as given and compared exactly.
 */
export function eventTypeNameProblem(name: string): string | null {
  return lengthProblem(name) ?? (name.includes('\0') ? 'must not contain NUL' : null);
}

/**
 * The type of this name, made if the app has none. Any number of calls at once, in any process, get the same type. The
 * app's row is locked only while a type is made.
 * @returns 'too-many' where the app has as many types as it may have
 * @throws AccountError INVALID_NAME; APP_NOT_FOUND where the app is gone
 */
export async function getOrCreateEventType(sql: Sql, type: NewType): Promise<StoredType | 'too-many'> {
  const { name, ...common } = type;
  checkEventTypeName(name);
  const found = await findTypes(sql, type.appId, [name]);
  const types = found.size > 0 ? found : await getOrCreateEventTypes(sql, { ...common, names: [name] });
  return types.get(name) ?? 'too-many';
}

/**
 * The types of these names, those that the app lacks made in one transaction, in their order.
 * @returns by name; what is missing did not fit into the app
 * @throws AccountError INVALID_NAME; APP_NOT_FOUND where the app is gone
 */
export async function getOrCreateEventTypes(
  sql: Sql,
  types: NewTypes,
): Promise<ReadonlyMap<string, StoredType>> {
  for (const name of types.names) checkEventTypeName(name);
  const { found, made } = await createUnlessFound(sql, types);
  return new Map([...found, ...made]);
}

/**
 * Makes an event type.
 * @param type.appId public id of the app
 * @throws AccountError INVALID_NAME, APP_NOT_FOUND, EVENT_TYPE_EXISTS, TOO_MANY_EVENT_TYPES
 */
export async function createEventType(
  sql: Sql,
  type: { appId: string; name: string; maxTypes: number; by?: Actor },
): Promise<{ typeId: string; name: string }> {
  const { name, maxTypes, by = COMMAND_LINE } = type;
  checkEventTypeName(name);
  const { found, made } = await createUnlessFound(sql, {
    appId: await internalAppId(sql, type.appId),
    names: [name],
    maxTypes,
    by,
  });
  const existing = found.get(name);
  if (existing !== undefined)
    throw new AccountError(
      'EVENT_TYPE_EXISTS',
      `the app already has an event type of this name: ${existing.publicId}`,
    );
  const created = made.get(name);
  if (created === undefined)
    throw new AccountError(
      'TOO_MANY_EVENT_TYPES',
      `the app has as many event types as it may have, ${maxTypes} (MAX_EVENT_TYPES_PER_APP)`,
    );
  return { typeId: created.publicId, name };
}

/**
 * The event types of an app, in the order in which they were made.
 * @param appId public id of the app
 * @throws AccountError APP_NOT_FOUND
 */
export async function listEventTypes(sql: Sql, appId: string): Promise<EventType[]> {
  const id = await internalAppId(sql, appId);
  return [
    ...(await sql<EventType[]>`
      SELECT public_id AS "typeId", name, created_at AS "createdAt"
        FROM event_types WHERE app_id = ${id} ORDER BY event_types.id`),
  ];
}

/** @returns the types that were there, and those that were made; both by name */
async function createUnlessFound(
  sql: Sql,
  types: NewTypes,
): Promise<{ found: ReadonlyMap<string, StoredType>; made: ReadonlyMap<string, StoredType> }> {
  const { appId, names, maxTypes, counts, by } = types;
  const known = counts?.get(appId) ?? null;
  // Added to the last id that was given: the most types that there can be. Too many where nothing is known.
  const offset = known === null ? maxTypes : known.types - known.lastId;
  // Read committed, whatever the role's default: the look after the lock must see what its last holder made.
  const outcome = await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact, and two makers of one name meet here. It lets foreign keys to the app through.
    const [app] = await tx`SELECT 1 FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    if (app === undefined) throw new AccountError('APP_NOT_FOUND', 'the app has been removed');
    const found = await findTypes(tx, appId, names);
    const missing = names.filter((name) => !found.has(name));
    const publicIds = missing.map(() => createPublicId('typ'));
    const rows = await tx<(StoredType & { name: string; counted: number | null })[]>`
      WITH sequence AS (
        SELECT pg_get_serial_sequence('event_types', 'id')::regclass::oid AS id
      ), before AS (
        -- Null, and the types are counted, where the role may not look at the sequence: only an INSERT needs no right.
        SELECT CASE WHEN ${offset}::bigint + ${missing.length}::int
                         + CASE WHEN has_sequence_privilege(id, 'SELECT, USAGE')
                                THEN pg_sequence_last_value(id) END <= ${maxTypes} THEN NULL
                    ELSE (SELECT count(*)::int FROM event_types WHERE app_id = ${appId})
               END AS counted
          FROM sequence
      ), made AS (
        INSERT INTO event_types (public_id, app_id, name)
        SELECT new.public_id, ${appId}, new.name
          FROM unnest(${publicIds}::text[], ${missing}::text[]) WITH ORDINALITY AS new (public_id, name, position), before
         WHERE counted IS NULL OR counted + position <= ${maxTypes}
         ORDER BY position
        RETURNING id, public_id, name
      )
      SELECT id, public_id AS "publicId", name, counted FROM made, before`;
    if (by !== undefined)
      for (const { publicId: typeId, name } of rows)
        await writeAudit(tx, { appId, by, action: 'type.create', details: { typeId, name } });
    return { found, rows };
  });
  const { found, rows } = outcome;
  const counted = rows[0]?.counted ?? null;
  const lastId = rows.reduce((last, { id }) => Math.max(last, id), 0);
  // Once it is committed.
  if (counted !== null) counts?.set(appId, { types: counted + rows.length, lastId });
  return { found, made: new Map(rows.map(({ id, publicId, name }) => [name, { id, publicId }])) };
}

async function findTypes(
  sql: Sql | Transaction,
  appId: number,
  names: readonly string[],
): Promise<ReadonlyMap<string, StoredType>> {
  const rows = await sql<(StoredType & { name: string })[]>`
    SELECT id, public_id AS "publicId", name FROM event_types
     WHERE app_id = ${appId} AND name = ANY(${names as string[]}::text[])`;
  return new Map(rows.map(({ id, publicId, name }) => [name, { id, publicId }]));
}

async function internalAppId(sql: Sql, appId: string): Promise<number> {
  const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  if (app === undefined) throw appNotFound(appId);
  return app.id;
}

function checkEventTypeName(name: string): void {
  const problem = eventTypeNameProblem(name);
  if (problem !== null) throw new AccountError('INVALID_NAME', `the name ${problem}`);
}
