/** Saved views of an app: every member uses them, maintainers and owners save and remove them. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { SavedView, SavedViewList } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { listSavedViews, removeView, saveView } from '../saved-views.ts';

/** As long as an address may be that a page of ours makes; nothing in it is run, the page parses it as its own address. */
const MAX_SEARCH = 8_000;

const NEW_VIEW = bodyOf(
  {
    name: { type: 'string', maxLength: 1_000 },
    search: { type: 'string', maxLength: MAX_SEARCH, pattern: '^[!-~]*$' },
    boardId: { type: 'string', maxLength: 100 },
  },
  ['name', 'search'],
);
const NO_VIEW = new Rejection('viewNotFound', 'The app has no such saved view.');

export function savedViewRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
    api.read('/api/apps/:appId/views', 'read', async ({ app }) =>
      done<SavedViewList>({ views: await listSavedViews(sql, app.id) }),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/views',
      'change',
      NEW_VIEW,
      async ({ app, by }, { name, search, boardId }) => {
        const { viewId, isNew } = await saveView(sql, { appId: app.id, name, search, boardId, by });
        return done<Pick<SavedView, 'viewId' | 'name' | 'search'>>(
          { viewId, name, search },
          { status: isNew ? 201 : 200 },
        );
      },
    ),
    api.change(
      'DELETE',
      '/api/apps/:appId/views/:viewId',
      'change',
      NO_FIELDS,
      async ({ app, by, parameters }) => {
        const isRemoved = await removeView(sql, { appId: app.id, viewId: parameters[1] ?? '', by });
        return isRemoved ? done<Nothing>({}) : NO_VIEW;
      },
    ),
  ];
}
