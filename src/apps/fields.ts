/** Declared fields of payloads: paths whose values an app's events are counted by. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { lockApp } from '../accounts/people/members.ts';
import type { DeclaredField } from '../api-types/answers.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { byOf, namesOf } from '../storage/fields/declared-fields.ts';
import type { FieldKind } from '../storage/fields/payload-values.ts';
import { beginFieldsWithoutPast, hasEvents, readEventsLeft } from '../storage/fields/progress.ts';

/** Declarations that an app may have; a pair is one. */
export const MAX_FIELDS = 32;

/** How the numbers of a field are shown. */
export interface NumberFormat {
  /** Such as `ms`; null: none. */
  readonly unit: string | null;
  /** Digits after the decimal point; null: as many as a number needs. */
  readonly decimals: number | null;
}

export interface Field extends Omit<DeclaredField<Date>, 'path' | 'by' | 'eventsLeft'> {
  /** Names that lead to the value, from the payload's top on. */
  readonly path: readonly string[];
  /** Names of another path, by whose values it is counted apart; null: none. */
  readonly by: readonly string[] | null;
}

/** A short text that begins and ends with a visible character. */
const UNIT = /^[^\p{C}\s](?:[^\p{C}]{0,10}[^\p{C}\s])?$/u;
const MOST_DECIMALS = 6;

/** What is wrong with how numbers are to be shown; null: nothing. */
export function formatProblem({
  kind,
  unit = null,
  decimals = null,
}: { readonly kind: FieldKind } & { readonly [K in keyof NumberFormat]?: NumberFormat[K] | undefined }):
  | readonly [name: keyof NumberFormat, problem: string]
  | null {
  if (kind !== 'number' && (unit !== null || decimals !== null))
    return [unit === null ? 'decimals' : 'unit', 'is of fields of the kind number alone'];
  if (unit !== null && !UNIT.test(unit))
    return ['unit', 'must be 1 to 12 visible characters, such as €, ms or MB'];
  const isCount =
    decimals === null || (Number.isInteger(decimals) && decimals >= 0 && decimals <= MOST_DECIMALS);
  return isCount ? null : ['decimals', `must be a whole number from 0 to ${MOST_DECIMALS}`];
}

export interface FieldReference {
  readonly appId: number;
  readonly path: readonly string[];
  readonly kind: FieldKind;
  /** Another path, by whose values it is counted apart; absent or null: none. */
  readonly by?: readonly string[] | null;
  /** The name of a type; null: events of all types. */
  readonly typeName: string | null;
}

interface StoredField extends Omit<Field, 'path' | 'by'> {
  readonly id: number;
  readonly path: string;
  readonly by: string;
}

/**
 * Declares a field. From now on its values are counted; with `backfill` those of earlier events, too, in the background.
 * Declaring a field again with `backfill` begins to count the earlier events, and with a unit or decimals changes these. An app without events has none: its field is complete
 * at once.
 * @param field.beginsLater whether maintenance begins the counts, because the call is part of a longer transaction
 * @throws Refused appNotFound, eventTypeNotFound, fieldExists, tooManyFields
 */
export async function declareField(
  sql: Sql,
  field: FieldReference & {
    readonly backfill: boolean;
    /** Absent: as it is, at first null. */
    readonly unit?: string | null | undefined;
    readonly decimals?: number | null | undefined;
    readonly actor?: Actor;
    readonly beginsLater?: boolean;
  },
): Promise<Field> {
  const { appId, kind, backfill, actor = COMMAND_LINE } = field;
  const path = JSON.stringify(field.path);
  // What is dated back until counting begins is counted, too.
  const hasPast = await hasEvents(sql, appId);
  const declared = await sql.begin('isolation level read committed', async (tx) => {
    await lockApp(tx, appId);
    const typeId = await typeIdOf(tx, field);
    const details = detailsOf(field);
    const known = await findField(tx, field);
    if (known !== undefined) {
      const isShownAnew = field.unit !== undefined || field.decimals !== undefined;
      if (!backfill && !isShownAnew) throw refused('fieldExists', 'the app has declared this field already');
      const { unit = known.unit, decimals = known.decimals } = field;
      await tx`
        UPDATE declared_fields SET backfill = backfill OR ${backfill}, unit = ${unit}, decimals = ${decimals}
         WHERE id = ${known.id}`;
      if (backfill) await writeAudit(tx, { appId, by: actor, action: 'field.backfill', details });
      if (isShownAnew)
        await writeAudit(tx, { appId, by: actor, action: 'field.unit', details: { ...details, unit } });
      return shown({ ...known, unit, decimals, backfill: known.backfill || backfill });
    }
    if (
      (await countRows(tx, tx`declared_fields WHERE app_id = ${appId} AND removed_at IS NULL`)) >= MAX_FIELDS
    )
      throw refused('tooManyFields', `an app may have ${MAX_FIELDS} fields: remove one that is not needed`);
    await tx`
      INSERT INTO declared_fields (app_id, type_id, path, kind, by_path, backfill, unit, decimals)
      VALUES (${appId}, ${typeId}, ${path}, ${kind}, ${storedBy(field)}, ${backfill || !hasPast},
              ${field.unit ?? null}, ${field.decimals ?? null})`;
    await writeAudit(tx, { appId, by: actor, action: 'field.add', details });
    const made = await findField(tx, field);
    if (made === undefined) throw new Error('A field was inserted and is not there.');
    return shown({ ...made, backfill });
  });
  if (hasPast || declared.completeFrom !== null || field.beginsLater === true) return declared;
  await beginFieldsWithoutPast(sql, appId);
  const begun = await sql.begin((tx) => findField(tx, field));
  return begun === undefined ? declared : shown({ ...begun, backfill: begun.backfill && backfill });
}

/** The fields of an app, in order of declaration. */
export async function listFields(sql: Sql, appId: number): Promise<Field[]> {
  return (await readFields(sql, appId)).map(shown);
}

async function readFields(sql: Sql, appId: number): Promise<StoredField[]> {
  return await sql<StoredField[]>`${selectFields(sql)} WHERE field.app_id = ${appId} ORDER BY field.id`;
}

/** How the numbers at a path are shown: as the first of its declarations that says so. */
export async function readNumberFormat(
  sql: Sql | Transaction,
  appId: number,
  path: readonly string[],
): Promise<NumberFormat | null> {
  const [format] = await sql<NumberFormat[]>`
    SELECT unit, decimals FROM declared_fields
     WHERE app_id = ${appId} AND path = ${JSON.stringify(path)} AND kind = 'number' AND removed_at IS NULL
       AND (unit IS NOT NULL OR decimals IS NOT NULL)
     ORDER BY id LIMIT 1`;
  return format ?? null;
}

export interface FieldProgress extends Field {
  /** Events that the backfill has yet to count: those before `completeFrom`. 0 without a backfill; null before it begins. */
  readonly eventsLeft: number | null;
}

/** The paths whose values are counted, each once, in order of declaration: of all types, or of one. */
export async function listCountedPaths(sql: Sql, appId: number): Promise<(readonly string[])[]> {
  const rows = await readFields(sql, appId);
  const counted = rows
    .map(shown)
    .filter(({ kind, by, completeFrom }) => kind === 'value' && by === null && completeFrom !== null);
  return [...new Map(counted.map(({ path }) => [JSON.stringify(path), path])).values()];
}

/** The fields with what is left of their backfills. */
export async function listFieldProgress(sql: Sql, appId: number): Promise<FieldProgress[]> {
  // In this order: of a backfill that ends meanwhile nothing is left, rather than something without a backfill.
  const left = await readEventsLeft(sql, appId);
  const rows = await readFields(sql, appId);
  return rows.map((row) => {
    const eventsLeft = left.get(row.id) ?? (row.completeFrom === null ? null : 0);
    return { ...shown(row), eventsLeft: row.backfill ? eventsLeft : 0 };
  });
}

/**
 * Removes a field. Its counts can no longer be read, and are deleted in the background.
 * @throws Refused appNotFound, eventTypeNotFound, fieldNotFound
 */
export async function removeField(
  sql: Sql,
  field: FieldReference & { readonly actor?: Actor },
): Promise<Field> {
  const { appId, actor = COMMAND_LINE } = field;
  return await sql.begin('isolation level read committed', async (tx) => {
    await lockApp(tx, appId);
    await typeIdOf(tx, field);
    const known = await findField(tx, field);
    if (known === undefined) throw refused('fieldNotFound', 'the app has not declared this field');
    await tx`UPDATE declared_fields SET removed_at = now() WHERE id = ${known.id}`;
    const details = detailsOf(field);
    await writeAudit(tx, { appId, by: actor, action: 'field.remove', details });
    return shown(known);
  });
}

/** The other path as the database has it. */
function storedBy({ by = null }: Pick<FieldReference, 'by'>): string {
  return by === null ? '' : JSON.stringify(by);
}

/** What the audit log says of a field. */
function detailsOf({ path, kind, by = null, typeName }: FieldReference): Record<string, string | null> {
  return { path: JSON.stringify(path), kind, ...(by !== null && { by: JSON.stringify(by) }), type: typeName };
}

async function typeIdOf(tx: Transaction, { appId, typeName }: FieldReference): Promise<number | null> {
  if (typeName === null) return null;
  const isText = !typeName.includes('\0');
  const [type] = isText
    ? await tx<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${appId} AND name = ${typeName}`
    : [];
  if (type === undefined)
    throw refused('eventTypeNotFound', `the app has no event type ${JSON.stringify(typeName)}`);
  return type.id;
}

async function findField(
  tx: Transaction,
  { appId, path, kind, by = null, typeName }: FieldReference,
): Promise<StoredField | undefined> {
  const [field] = await tx<StoredField[]>`
    ${selectFields(tx)}
     WHERE field.app_id = ${appId} AND field.path = ${JSON.stringify(path)} AND field.kind = ${kind}
       AND field.by_path = ${storedBy({ by })}
       AND type.name IS NOT DISTINCT FROM ${typeName}`;
  return field;
}

function selectFields(sql: Sql | Transaction) {
  return sql`
    SELECT field.id, field.path, field.kind, field.by_path AS by, field.created_at AS "createdAt", field.complete_from AS "completeFrom",
           field.backfill, field.unit, field.decimals, field.known_values AS values, field.full_since AS "otherSince",
           type.public_id AS "typeId", type.name AS "typeName"
      FROM (SELECT * FROM declared_fields WHERE removed_at IS NULL) AS field
      LEFT JOIN event_types AS type ON type.id = field.type_id`;
}

function shown({ id: _, path, by, ...field }: StoredField): Field {
  return { ...field, path: namesOf(path), by: byOf(by) };
}
