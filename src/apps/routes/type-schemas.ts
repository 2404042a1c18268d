/** Routes of the schemas of event types. */

import type { Api } from '../../accounts/routes/api.ts';
import { NO_FIELDS } from '../../accounts/routes/body.ts';
import type { SchemaList, TypeSchema } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import { scanDocument } from '../../json/mistake.ts';
import { JsonScan } from '../../json/scan.ts';
import type { SchemaProver } from '../../schema/schema-text.ts';
import type { Sql } from '../../storage/database/connect.ts';
import {
  listTypeSchemas,
  removeTypeSchema,
  SCHEMA_MODES,
  type SchemaMode,
  setTypeSchema,
  showTypeSchema,
} from '../type-schemas.ts';

export interface TypeSchemaRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly prover: Pick<SchemaProver, 'prove'>;
}

const PATH = '/api/apps/:appId/types/:typeId/schema';

export function typeSchemaRoutes({ api, sql, prover }: TypeSchemaRoutesOptions): readonly Route[] {
  return [
    api.read('/api/apps/:appId/type-schemas', 'read', async ({ app: { appId } }) =>
      done<SchemaList>({ schemas: await listTypeSchemas(sql, appId) }),
    ),
    api.read(PATH, 'read', async ({ app: { appId }, parameters }) =>
      done<TypeSchema>(await showTypeSchema(sql, { appId, typeId: parameters[1] ?? '' })),
    ),
    api.change('PUT', PATH, 'own', parseSetting, async ({ app: { appId }, parameters, by }, setting) =>
      done<TypeSchema>(
        await setTypeSchema(sql, prover, { appId, typeId: parameters[1] ?? '', ...setting, by }),
      ),
    ),
    api.change('DELETE', PATH, 'own', NO_FIELDS, async ({ app: { appId }, parameters, by }) =>
      done<Pick<TypeSchema, 'typeId'>>(
        await removeTypeSchema(sql, { appId, typeId: parameters[1] ?? '', by }),
      ),
    ),
  ];
}

/** `{"schema": {…}, "mode": "warn"}`. The schema's own form is checked later. */
function parseSetting(text: string): { readonly schema: unknown; readonly mode: SchemaMode } | Rejection {
  const scan = new JsonScan(['schema', 'mode']);
  const problem = scanDocument(scan, text);
  if (problem !== null) return problem;
  const schema = scan.member('schema');
  if (schema === null) return new Rejection('invalidBody', 'The field "schema" is missing.');
  const { mode: sent = 'warn' } = scan.fields() ?? {};
  const mode = SCHEMA_MODES.find((one) => one === sent);
  if (mode === undefined)
    return new Rejection('invalidBody', `The field "mode" must be one of ${SCHEMA_MODES.join(', ')}.`);
  return { schema: JSON.parse(schema), mode };
}
