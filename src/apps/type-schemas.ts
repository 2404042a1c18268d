/** The JSON Schemas that owners attach to event types. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { SchemaSummary } from '../api-types/answers.ts';
import { type Refused, refused } from '../errors.ts';
import { readSchemaText, type SchemaProver } from '../schema/schema-text.ts';
import type { Violation } from '../schema/schema-thread.ts';
import type { Sql } from '../storage/database/connect.ts';

/** What becomes of an event whose payload does not meet the schema: it is counted, or refused. */
export const SCHEMA_MODES = ['warn', 'refuse'] as const;
export type SchemaMode = (typeof SCHEMA_MODES)[number];

/** What the write path knows of a type's schema. */
export interface SchemaReference {
  readonly digest: string;
  readonly mode: SchemaMode;
}

/** What the checks of a schema have found since it was set. */
export interface TypeSchemaSummary extends SchemaSummary<Date> {
  readonly typeName: string;
}

/** A schema, with what its checks have found. */
export interface TypeSchema extends TypeSchemaSummary {
  readonly schema: object;
}

/** How long a suspended schema stays suspended if the same text is set again. Another text is checked at once. */
export const SUSPENDED_MINUTES = 10;

export interface TypeOfApp {
  readonly appId: string;
  readonly typeId: string;
}

/**
 * Attaches a schema to a type, in place of an earlier one. What was found with that is forgotten. A suspension of the same text
 * goes on until it is {@link SUSPENDED_MINUTES} old.
 * @throws Refused invalidBody, unavailable, appNotFound, eventTypeNotFound
 */
export async function setTypeSchema(
  sql: Sql,
  prover: Pick<SchemaProver, 'prove'>,
  type: TypeOfApp & { schema: unknown; mode: SchemaMode; by?: Actor },
): Promise<TypeSchema> {
  const { mode, by = COMMAND_LINE } = type;
  const known = await findType(sql, type);
  const read = readSchemaText(type.schema);
  if (typeof read === 'string') throw refused('invalidBody', `the schema ${read}`);
  // By account: one with twenty apps must not take the places of twenty.
  const problem = await prover.prove(read, by === 'command line' ? type.appId : String(by.userId));
  if (problem === 'busy')
    throw refused('unavailable', 'a schema of the account is being compiled, or too many of others');
  if (problem !== null) throw refused('invalidBody', `the schema ${problem}`);
  await sql.begin(async (tx) => {
    // The type may have gone with its app.
    const isStill = tx`
      type_schemas.digest = excluded.digest AND type_schemas.suspended_at > now() - make_interval(mins => ${SUSPENDED_MINUTES})`;
    const rows = await tx`
      INSERT INTO type_schemas (type_id, mode, schema, digest)
      SELECT id, ${mode}, ${read.text}, ${read.digest} FROM event_types WHERE id = ${known.id}
      ON CONFLICT (type_id) DO UPDATE
        SET mode = excluded.mode, schema = excluded.schema, digest = excluded.digest, set_at = now(),
            suspended_at = CASE WHEN ${isStill} THEN type_schemas.suspended_at END,
            suspended_reason = CASE WHEN ${isStill} THEN type_schemas.suspended_reason END, checked = 0, violations = 0, unchecked = 0, last_violation_at = NULL,
            last_path = NULL, last_message = NULL
      RETURNING 1`;
    if (rows.length === 0) throw typeNotFound(type);
    await writeAudit(tx, {
      appId: known.appId,
      by,
      action: 'type.schema-set',
      details: { typeId: type.typeId, mode },
    });
  });
  return await showTypeSchema(sql, type);
}

/** @throws Refused appNotFound, eventTypeNotFound, schemaNotFound */
export async function showTypeSchema(sql: Sql, type: TypeOfApp): Promise<TypeSchema> {
  const { id } = await findType(sql, type);
  const [row] = await sql<(StoredSchema & { readonly schema: string })[]>`
    SELECT ${summaryColumns(sql)}, schema
      FROM type_schemas JOIN event_types ON event_types.id = type_id WHERE type_id = ${id}`;
  if (row === undefined)
    throw refused('schemaNotFound', `the event type ${JSON.stringify(type.typeId)} has no schema`);
  const { schema, ...summary } = row;
  return { ...summaryOf(summary), schema: JSON.parse(schema) as object };
}

/** The schemas of an app's types without their texts, in order of types. */
export async function listTypeSchemas(sql: Sql, appId: string): Promise<TypeSchemaSummary[]> {
  const rows = await sql<StoredSchema[]>`
    SELECT ${summaryColumns(sql)}
      FROM type_schemas JOIN event_types ON event_types.id = type_id
     WHERE app_id = (SELECT id FROM apps WHERE public_id = ${appId})
     ORDER BY type_id`;
  return rows.map(summaryOf);
}

interface StoredSchema extends Omit<TypeSchemaSummary, 'lastViolation'> {
  readonly path: string | null;
  readonly message: string | null;
  readonly at: Date | null;
}

function summaryColumns(sql: Sql) {
  return sql`
    public_id AS "typeId", name AS "typeName", mode, set_at AS "setAt", suspended_at AS "suspendedAt",
    suspended_reason AS "suspendedReason", checked::float8, violations::float8, unchecked::float8,
    last_path AS path, last_message AS message, last_violation_at AS at`;
}

function summaryOf({ path, message, at, ...rest }: StoredSchema): TypeSchemaSummary {
  return { ...rest, lastViolation: at === null ? null : { path: path ?? '', message: message ?? '', at } };
}

/** @throws Refused appNotFound, eventTypeNotFound, schemaNotFound */
export async function removeTypeSchema(
  sql: Sql,
  type: TypeOfApp & { by?: Actor },
): Promise<{ readonly typeId: string }> {
  const { typeId, by = COMMAND_LINE } = type;
  const { id, appId } = await findType(sql, type);
  await sql.begin(async (tx) => {
    const removed = await tx`DELETE FROM type_schemas WHERE type_id = ${id} RETURNING 1`;
    if (removed.length === 0)
      throw refused('schemaNotFound', `the event type ${JSON.stringify(typeId)} has no schema`);
    await writeAudit(tx, { appId, by, action: 'type.schema-remove', details: { typeId } });
  });
  return { typeId };
}

export interface SchemaTextReference {
  readonly typeId: number;
  readonly digest: string;
}

/** The texts of schemas that are those of their types now; others are left out. */
export async function findSchemaTexts(
  sql: Sql,
  schemas: readonly SchemaTextReference[],
): Promise<readonly (SchemaTextReference & { readonly text: string })[]> {
  return await sql<(SchemaTextReference & { text: string })[]>`
    SELECT type_id AS "typeId", digest, schema AS text
      FROM type_schemas
      JOIN unnest(${schemas.map(({ typeId }) => typeId)}::int[], ${schemas.map(({ digest }) => digest)}::text[])
             AS asked (type_id, digest) USING (type_id, digest)`;
}

/** Ends the checks of a type until its schema is set again. */
export async function suspendSchema(
  sql: Sql,
  { typeId, digest, reason }: { typeId: number; digest: string; reason: string },
): Promise<void> {
  await sql`
    UPDATE type_schemas SET suspended_at = now(), suspended_reason = ${reason}
     WHERE type_id = ${typeId} AND digest = ${digest} AND suspended_at IS NULL`;
}

/** What checks have found. */
export interface SchemaFindings {
  readonly typeId: number;
  readonly digest: string;
  readonly checked: number;
  readonly violations: number;
  readonly unchecked: number;
  /** The last violation, and when it was found; null if there was none. */
  readonly last: (Violation & { readonly at: Date }) | null;
}

/** Adds findings to those of the schemas that they belong to. What was found with a schema that is gone is left out. */
export async function addFindings(sql: Sql, findings: readonly SchemaFindings[]): Promise<void> {
  const rows = findings.map(({ last, ...counts }) => ({
    ...counts,
    at: last?.at ?? null,
    path: storable(last?.path),
    message: storable(last?.message),
  }));
  // Locked in the order of their keys, so that two processes do not wait for each other in a circle.
  await sql`
    WITH found AS MATERIALIZED (
      SELECT * FROM json_to_recordset(${JSON.stringify(rows)}::text::json)
                 AS found ("typeId" int, digest text, checked bigint, violations bigint, unchecked bigint, at timestamptz,
                           path text, message text)
    ), locked AS MATERIALIZED (
      SELECT type_id, digest FROM type_schemas WHERE type_id IN (SELECT "typeId" FROM found) ORDER BY type_id FOR UPDATE
    )
    UPDATE type_schemas AS schema
       SET checked = schema.checked + found.checked, violations = schema.violations + found.violations,
           unchecked = schema.unchecked + found.unchecked,
           last_violation_at = coalesce(found.at, last_violation_at),
           last_path = coalesce(found.path, last_path), last_message = coalesce(found.message, last_message)
      FROM found JOIN locked ON locked.type_id = found."typeId" AND locked.digest = found.digest
     WHERE schema.type_id = found."typeId"`;
}

/** Takes away what is told of the last violations in an app: they may name members of payloads. */
export async function forgetLastViolations(sql: Sql, app: number): Promise<void> {
  await sql`
    UPDATE type_schemas SET last_violation_at = NULL, last_path = NULL, last_message = NULL
     WHERE last_violation_at IS NOT NULL AND type_id IN (SELECT id FROM event_types WHERE app_id = ${app})`;
}

/** A text column takes neither NUL nor halves of characters. */
function storable(text: string | undefined): string | null {
  return text === undefined ? null : Buffer.from(text.replaceAll('\0', '\\u0000')).toString();
}

async function findType(sql: Sql, type: TypeOfApp): Promise<{ id: number; appId: number }> {
  const { appId, typeId } = type;
  // No text column takes NUL.
  if (`${appId}${typeId}`.includes('\0')) throw typeNotFound(type);
  const [row] = await sql<{ id: number; appId: number }[]>`
    SELECT event_types.id, app_id AS "appId" FROM event_types JOIN apps ON apps.id = app_id
     WHERE apps.public_id = ${appId} AND event_types.public_id = ${typeId}`;
  if (row === undefined) throw typeNotFound(type);
  return row;
}

function typeNotFound({ appId, typeId }: TypeOfApp): Refused {
  return refused(
    'eventTypeNotFound',
    `the app ${JSON.stringify(appId)} has no event type with the id ${JSON.stringify(typeId)}`,
  );
}
