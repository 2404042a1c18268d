/** Schemas of event types, as tests attach them and see them at work. */
import { expect } from 'vitest';
import { type SchemaMode, setTypeSchema } from '../../src/apps/type-schemas.ts';
import type { SchemaProver } from '../../src/schema/schema-text.ts';
import { refused } from '../http/answers.ts';
import type { HttpResponse } from './http-client.ts';
import { type TestService, until } from './service.ts';

export const ORDER = {
  type: 'object',
  required: ['total'],
  properties: { total: { type: 'number' }, email: { type: 'string', pattern: '^([a-z]+)+@' } },
};

/** Attaches a schema to the service's type, and waits until the service checks by it. */
export async function attachSchema(
  service: TestService,
  prover: SchemaProver,
  { schema, mode }: { readonly schema: object; readonly mode: SchemaMode },
): Promise<void> {
  const { appId } = service.app;
  const { typeId } = service.type;
  await setTypeSchema(service.sql, prover, { appId, typeId, schema, mode });
  await until(async () => await isKnown(service), 'the schema is known');
}

/** Whether the service checks events of its type: an event that nothing else is wrong with is counted. */
async function isKnown(service: TestService): Promise<boolean> {
  const before = await checks(service);
  await service.post({ payload: { total: 1 } });
  return (await checks(service)) > before;
}

async function checks(service: TestService): Promise<number> {
  return Object.values(await schemaChecks(service)).reduce((sum, count) => sum + count, 0);
}

/** The checks by their outcome, as the metrics count them. */
export async function schemaChecks(service: TestService): Promise<Record<string, number>> {
  const { body } = await service.request({ method: 'GET', path: '/metrics' });
  return Object.fromEntries(
    [...body.matchAll(/^tidemark_schema_checks_total\{outcome="(\w+)"\} (\d+)/gm)].map(
      ([, outcome, count]) => [outcome, Number(count)],
    ),
  );
}

export function expectViolation(response: HttpResponse, details: string): void {
  expect(refused(response, 400, 'SCHEMA_VIOLATION', 'Invalid request body').details).toBe(
    `The payload violates the schema of its event type at ${details}.`,
  );
}
