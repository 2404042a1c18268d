/** Saved views of an app, and boards of them: every member reads them, maintainers and owners save, change and remove them. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { BoardList, BoardReference, SavedView, SavedViewList } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { changeBoard, createBoard, listBoards, MOST_VIEWS, removeBoard } from '../boards.ts';
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

const FIELDS = {
  name: { type: 'string', maxLength: 1_000 },
  viewIds: { type: 'array', maxItems: MOST_VIEWS },
} as const;
const NEW_BOARD = bodyOf(FIELDS, ['name', 'viewIds']);
const CHANGED_BOARD = bodyOf({ ...FIELDS, basedOn: { type: 'array', maxItems: MOST_VIEWS } });
export const NO_BOARD = new Rejection('boardNotFound', 'The app has no such board.');

const VIEWS = '/api/apps/:appId/views';
const PATH = '/api/apps/:appId/boards';

export function boardRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
    api.read(VIEWS, 'read', async ({ app }) =>
      done<SavedViewList>({ views: await listSavedViews(sql, app.id) }),
    ),
    api.change('POST', VIEWS, 'change', NEW_VIEW, async ({ app, by }, { name, search, boardId }) => {
      const { viewId, isNew } = await saveView(sql, { appId: app.id, name, search, boardId, by });
      return done<Pick<SavedView, 'viewId' | 'name' | 'search'>>(
        { viewId, name, search },
        { status: isNew ? 201 : 200 },
      );
    }),
    api.change('DELETE', `${VIEWS}/:viewId`, 'change', NO_FIELDS, async ({ app, by, parameters }) => {
      const isRemoved = await removeView(sql, { appId: app.id, viewId: parameters[1] ?? '', by });
      return isRemoved ? done<Nothing>({}) : NO_VIEW;
    }),
    api.read(PATH, 'read', async ({ app }) => done<BoardList>({ boards: await listBoards(sql, app.id) })),
    api.change('POST', PATH, 'change', NEW_BOARD, async ({ app, by }, body) =>
      done<BoardReference>(await createBoard(sql, { appId: app.id, by, ...body }), { status: 201 }),
    ),
    api.change(
      'PATCH',
      `${PATH}/:boardId`,
      'change',
      CHANGED_BOARD,
      async ({ app, by, parameters }, changes) => {
        const boardId = parameters[1] ?? '';
        const isChanged = await changeBoard(sql, { appId: app.id, by, boardId, ...changes });
        return isChanged ? done<Nothing>({}) : NO_BOARD;
      },
    ),
    api.change('DELETE', `${PATH}/:boardId`, 'change', NO_FIELDS, async ({ app, by, parameters }) => {
      const isRemoved = await removeBoard(sql, { appId: app.id, boardId: parameters[1] ?? '', by });
      return isRemoved ? done<Nothing>({}) : NO_BOARD;
    }),
  ];
}
