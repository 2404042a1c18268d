/** Boards of an app: every member reads them, maintainers and owners make, change and remove them. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { BoardList, BoardReference } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { changeBoard, createBoard, listBoards, MOST_VIEWS, removeBoard } from '../boards.ts';

const FIELDS = {
  name: { type: 'string', maxLength: 1_000 },
  viewIds: { type: 'array', maxItems: MOST_VIEWS },
} as const;
const NEW_BOARD = bodyOf(FIELDS, ['name', 'viewIds']);
const CHANGED_BOARD = bodyOf({ ...FIELDS, basedOn: { type: 'array', maxItems: MOST_VIEWS } });
export const NO_BOARD = new Rejection('boardNotFound', 'The app has no such board.');

const PATH = '/api/apps/:appId/boards';

export function boardRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
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
