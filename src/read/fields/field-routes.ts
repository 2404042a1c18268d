/** The declared fields of an app, for its members' sessions: everyone sees them, owners add and remove them. */
import { isDeepStrictEqual } from 'node:util';
import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import type { DeclaredField, DeclaredFields } from '../../api-types/answers.ts';
import {
  declareField,
  type FieldReference,
  formatProblem,
  listFieldProgress,
  MAX_FIELDS,
  removeField,
} from '../../apps/fields.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { FieldKind } from '../../storage/fields/payload-values.ts';
import { parsePath } from '../filter/parse-filter.ts';
import { shownField } from './shown-field.ts';

const REFERENCE = {
  path: { type: 'string', maxLength: 1_000 },
  kind: { type: 'string', enum: ['value', 'number', 'distinct'] },
  by: { type: 'string', maxLength: 1_000, nullable: true },
  typeName: { type: 'string', maxLength: 1_000, nullable: true },
} as const;
const FORMAT = {
  unit: { type: 'string', nullable: true },
  decimals: { type: 'number', nullable: true },
} as const;
const NEW_FIELD = bodyOf({ ...REFERENCE, ...FORMAT, backfill: { type: 'boolean' } }, ['path', 'kind']);
const OLD_FIELD = bodyOf(REFERENCE, ['path', 'kind']);

export function fieldRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
    api.readInTurn('/api/apps/:appId/declared-fields', 'read', async ({ app, sql }) =>
      done<DeclaredFields>({
        fields: (await listFieldProgress(sql, app.id)).map(shownField),
        most: MAX_FIELDS,
      }),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/declared-fields',
      'own',
      NEW_FIELD,
      async ({ app, by: actor }, { backfill = false, unit, decimals, ...body }) => {
        const reference = referenceOf(app.id, body);
        if (reference instanceof Rejection) return reference;
        const problem = formatProblem({ kind: reference.kind, unit, decimals });
        if (problem !== null) return invalidField(...problem);
        const field = await declareField(sql, { ...reference, backfill, unit, decimals, actor });
        return done<DeclaredField>(shownField(field), { status: 201 });
      },
    ),
    api.change(
      'POST',
      '/api/apps/:appId/declared-fields/remove',
      'own',
      OLD_FIELD,
      async ({ app, by: actor }, body) => {
        const reference = referenceOf(app.id, body);
        if (reference instanceof Rejection) return reference;
        return done<DeclaredField>(shownField(await removeField(sql, { ...reference, actor })));
      },
    ),
  ];
}

function referenceOf(
  appId: number,
  body: {
    readonly path: string;
    /** One of the kinds: the schema lets no other through. */
    readonly kind: string;
    readonly by?: string | null | undefined;
    readonly typeName?: string | null | undefined;
  },
): FieldReference | Rejection {
  const path = pathOf('path', body.path);
  const by = body.by == null ? null : pathOf('by', body.by);
  if (path instanceof Rejection) return path;
  if (by instanceof Rejection) return by;
  if (isDeepStrictEqual(path, by)) return new Rejection('invalidBody', 'by must be another path than path.');
  return { appId, path, kind: body.kind as FieldKind, by, typeName: body.typeName ?? null };
}

function pathOf(name: string, spelled: string): readonly string[] | Rejection {
  const path = parsePath(spelled);
  if (!('problem' in path)) return path;
  return new Rejection('invalidBody', `${name} is wrong at column ${path.column}: ${path.problem}.`);
}
