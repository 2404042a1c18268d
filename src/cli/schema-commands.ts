/** `type schema set`, `type schema show`, `type schema remove`. */
import { readFile } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { Option } from 'commander';
import {
  removeTypeSchema,
  SCHEMA_MODES,
  type SchemaMode,
  setTypeSchema,
  showTypeSchema,
  type TypeSchema,
} from '../apps/type-schemas.ts';
import { OperatorError } from '../errors.ts';
import { SchemaProver } from '../schema/schema-text.ts';
import { APP_OPTION } from './options.ts';
import { formatFields } from './output.ts';
import type { Command } from './session.ts';

const TYPE_ID_OPTION = ['--type <id>', 'the event type, typ_…'] as const;

interface TypeOptions {
  readonly app: string;
  readonly type: string;
}

export function addSchemaCommands(type: Command): void {
  const schema = type
    .command('schema')
    .description('JSON Schemas that payloads of an event type are checked against');
  schema
    .command('set')
    .description('attach a JSON Schema (draft 2020-12 or 07) to an event type, in place of an earlier one')
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_ID_OPTION)
    .requiredOption('--file <file>', 'the schema; - reads it from standard input')
    .addOption(
      new Option('--mode <mode>', 'count payloads that violate it, or refuse them too')
        .choices(SCHEMA_MODES)
        .default('warn'),
    )
    .run(async ({ sql }, options: TypeOptions & { file: string; mode: SchemaMode }) => {
      const prover = new SchemaProver();
      try {
        const given = { appId: options.app, typeId: options.type, mode: options.mode };
        return answer(await setTypeSchema(sql, prover, { ...given, schema: await readSchema(options.file) }));
      } finally {
        await prover.close();
      }
    });
  schema
    .command('show')
    .description('show the schema of an event type, and what was found with it')
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_ID_OPTION)
    .run(async ({ sql }, options: TypeOptions) =>
      answer(await showTypeSchema(sql, { appId: options.app, typeId: options.type })),
    );
  schema
    .command('remove')
    .description('remove the schema of an event type')
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_ID_OPTION)
    .run(async ({ sql }, options: TypeOptions) => {
      const removed = await removeTypeSchema(sql, { appId: options.app, typeId: options.type });
      return { json: removed, text: formatFields({ 'Event type': removed.typeId, Schema: 'removed' }) };
    });
}

async function readSchema(file: string): Promise<unknown> {
  const name = file === '-' ? 'standard input' : file;
  let text: string;
  try {
    text = file === '-' ? await textOf(process.stdin) : await readFile(file, 'utf8');
  } catch (error) {
    throw new OperatorError(`${name} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new OperatorError(`${name} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function answer(schema: TypeSchema): { readonly json: TypeSchema; readonly text: string } {
  const { lastViolation: last, suspendedAt, suspendedReason } = schema;
  const text = formatFields({
    'Event type': schema.typeId,
    Name: schema.typeName,
    Mode: schema.mode,
    Set: schema.setAt,
    Checked: String(schema.checked),
    Violations: String(schema.violations),
    Unchecked: String(schema.unchecked),
    'Last violation': last?.at ?? null,
    'Its path': last?.path ?? null,
    'Its message': last?.message ?? null,
    Suspended: suspendedAt === null ? null : `${suspendedAt.toISOString()}: ${suspendedReason}`,
    Schema: JSON.stringify(schema.schema),
  });
  return { json: schema, text };
}
