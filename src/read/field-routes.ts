/** The declared fields of an app, for its members' sessions: everyone sees them, owners add and remove them. */

import type { Api } from '../accounts/routes/api.ts';
import { bodyOf } from '../accounts/routes/body.ts';
import type { DeclaredField, DeclaredFields } from '../api-types/answers.ts';
import {
  declareField,
  type FieldReference,
  listFieldProgress,
  MAX_FIELDS,
  removeField,
} from '../apps/fields.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/database/connect.ts';
import { shownField } from './fields/shown-field.ts';
import { parsePath } from './filter/parse-filter.ts';

const REFERENCE = {
  path: { type: 'string', maxLength: 1_000 },
  kind: { type: 'string', enum: ['value', 'number'] },
  typeName: { type: 'string', maxLength: 1_000, nullable: true },
} as const;
const NEW_FIELD = bodyOf({ ...REFERENCE, backfill: { type: 'boolean' } }, ['path', 'kind']);
const OLD_FIELD = bodyOf(REFERENCE, ['path', 'kind']);

export function fieldRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
    api.readInTurn('/api/apps/:appId/declared-fields', 'viewer', async ({ app, sql }) =>
      done<DeclaredFields>({
        fields: (await listFieldProgress(sql, app.id)).map(shownField),
        most: MAX_FIELDS,
      }),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/declared-fields',
      'owner',
      NEW_FIELD,
      async ({ app, by }, { backfill = false, ...body }) => {
        const reference = referenceOf(app.id, body);
        if (reference instanceof Rejection) return reference;
        const field = await declareField(sql, { ...reference, backfill, by });
        return done<DeclaredField>(shownField(field), { status: 201 });
      },
    ),
    api.change(
      'POST',
      '/api/apps/:appId/declared-fields/remove',
      'owner',
      OLD_FIELD,
      async ({ app, by }, body) => {
        const reference = referenceOf(app.id, body);
        if (reference instanceof Rejection) return reference;
        return done<DeclaredField>(shownField(await removeField(sql, { ...reference, by })));
      },
    ),
  ];
}

function referenceOf(
  appId: number,
  body: { readonly path: string; readonly kind: string; readonly typeName?: string | null | undefined },
): FieldReference | Rejection {
  const path = parsePath(body.path);
  if ('problem' in path)
    return new Rejection('invalidBody', `path is wrong at column ${path.column}: ${path.problem}.`);
  return { appId, path, kind: body.kind === 'number' ? 'number' : 'value', typeName: body.typeName ?? null };
}
