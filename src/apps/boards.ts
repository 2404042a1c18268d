/** Boards: two to twelve saved views of an app on one page, for all of its members. */

import { type Actor, writeAudit } from '../accounts/log/audit.ts';
import { lockApp } from '../accounts/people/members.ts';
import type { Board } from '../api-types/answers.ts';
import { mergedList } from '../base/merged-list.ts';
import { createPublicId } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { checkName } from './name.ts';

export const LEAST_VIEWS = 2;
export const MOST_VIEWS = 12;
/** Boards that an app may have. */
export const MAX_BOARDS = 50;

/** An app's boards by name. @param appId internal id  @param boardId only this one */
export async function listBoards(
  sql: Sql | Transaction,
  appId: number,
  boardId: string | null = null,
): Promise<Board[]> {
  return await sql<Board[]>`
    SELECT board.public_id AS "boardId", board.name,
           coalesce(json_agg(json_build_object('viewId', view.public_id, 'name', view.name, 'search', view.search)
                             ORDER BY shown.position, view.id) FILTER (WHERE view.id IS NOT NULL), '[]') AS views
      FROM boards AS board
      LEFT JOIN board_views AS shown ON shown.board_id = board.id
      LEFT JOIN saved_views AS view ON view.id = shown.view_id
     WHERE board.app_id = ${appId} AND (${boardId}::text IS NULL OR board.public_id = ${boardId})
     GROUP BY board.id ORDER BY lower(board.name), board.id`;
}

interface BoardChange {
  readonly appId: number;
  readonly by: Actor;
}

/** @throws Refused invalidBody, appNotFound, viewNotFound, tooManyBoards, boardExists */
export async function createBoard(
  sql: Sql,
  { appId, name, viewIds, by }: BoardChange & { readonly name: string; readonly viewIds: readonly string[] },
): Promise<{ readonly boardId: string }> {
  checkName(name);
  checkViews(viewIds);
  const boardId = createPublicId('brd');
  await sql.begin('isolation level read committed', async (tx) => {
    await lockApp(tx, appId);
    if ((await countRows(tx, tx`boards WHERE app_id = ${appId}`)) >= MAX_BOARDS)
      throw refused('tooManyBoards', `an app may have ${MAX_BOARDS} boards: remove one`);
    await refuseTaken(tx, appId, name, boardId);
    const [board] = await tx<{ id: number }[]>`
      INSERT INTO boards (public_id, app_id, name, created_by)
      VALUES (${boardId}, ${appId}, ${name}, ${by === 'command line' ? null : by.userId}) RETURNING id`;
    await setViews(tx, appId, board?.id ?? 0, viewIds);
    await writeAudit(tx, { appId, by, action: 'board.create', details: { boardId, name } });
  });
  return { boardId };
}

/**
 * Renames a board, or gives it other views or another order.
 * @param change.basedOn the views that the caller had seen: what others have added or removed since stays so. Only a list that leaves
 *   none out may come without it.
 * @returns false if the app has no such board
 * @throws Refused invalidBody, appNotFound, viewNotFound, boardExists, basisRequired
 */
export async function changeBoard(
  sql: Sql,
  change: BoardChange & {
    readonly boardId: string;
    readonly name?: string | undefined;
    readonly viewIds?: readonly string[] | undefined;
    readonly basedOn?: readonly string[] | undefined;
  },
): Promise<boolean> {
  const { appId, boardId, name, viewIds, basedOn, by } = change;
  if (name !== undefined) checkName(name);
  if (viewIds !== undefined) checkViews(viewIds);
  return await sql.begin('isolation level read committed', async (tx) => {
    await lockApp(tx, appId);
    const [board] = await tx<{ id: number; name: string }[]>`
      SELECT id, name FROM boards WHERE app_id = ${appId} AND public_id = ${boardId}`;
    if (board === undefined) return false;
    if (name !== undefined && name !== board.name) {
      await refuseTaken(tx, appId, name, boardId);
      await tx`UPDATE boards SET name = ${name} WHERE id = ${board.id}`;
    }
    if (viewIds !== undefined) {
      const present = await tx<{ viewId: string }[]>`
        SELECT public_id AS "viewId" FROM board_views AS shown JOIN saved_views AS view ON view.id = view_id
         WHERE board_id = ${board.id} ORDER BY shown.position, view.id`;
      const views = present.map(({ viewId }) => viewId);
      const merged = mergedList(basedOn ?? views, viewIds, views);
      if (merged.length > MOST_VIEWS)
        throw refused('invalidBody', `others have added views meanwhile: a board may have ${MOST_VIEWS}`);
      await tx`DELETE FROM board_views WHERE board_id = ${board.id}`;
      await setViews(tx, appId, board.id, merged);
      // Behind what is wrong with the list itself; nothing of it stays.
      if (basedOn === undefined && views.some((viewId) => !viewIds.includes(viewId)))
        throw refused(
          'basisRequired',
          'viewIds leaves out views of the board, which others may have added: send the viewIds that you have read as basedOn, too',
          { param: 'basedOn' },
        );
    }
    const details = { boardId, name: name ?? board.name };
    await writeAudit(tx, { appId, by, action: 'board.change', details });
    return true;
  });
}

/**
 * Shows a view on a board behind the others, unless it is there. The transaction holds the app's lock.
 * @throws Refused invalidBody, boardNotFound
 */
export async function putOnBoard(
  tx: Transaction,
  { appId, boardId, viewId, by }: BoardChange & Readonly<Record<'boardId' | 'viewId', string>>,
): Promise<void> {
  const [board] = await listBoards(tx, appId, boardId);
  if (board === undefined) throw refused('boardNotFound', 'the app has no such board');
  const { name, views } = board;
  if (views.some((view) => view.viewId === viewId)) return;
  if (views.length >= MOST_VIEWS) throw refused('invalidBody', `a board may have ${MOST_VIEWS} views`);
  await tx`
    INSERT INTO board_views (board_id, view_id, position)
    SELECT board.id, view.id, (SELECT coalesce(max(position), 0) + 1 FROM board_views WHERE board_id = board.id)
      FROM boards AS board JOIN saved_views AS view ON view.app_id = board.app_id
     WHERE board.app_id = ${appId} AND board.public_id = ${boardId} AND view.public_id = ${viewId}`;
  await writeAudit(tx, { appId, by, action: 'board.change', details: { boardId, name } });
}

/** @returns false if the app has no such board */
export async function removeBoard(
  sql: Sql,
  { appId, boardId, by }: BoardChange & { readonly boardId: string },
): Promise<boolean> {
  return await sql.begin(async (tx) => {
    const [removed] = await tx<{ name: string }[]>`
      DELETE FROM boards WHERE app_id = ${appId} AND public_id = ${boardId} RETURNING name`;
    if (removed === undefined) return false;
    await writeAudit(tx, { appId, by, action: 'board.remove', details: { boardId, name: removed.name } });
    return true;
  });
}

function checkViews(viewIds: readonly string[]): void {
  const different = new Set(viewIds).size;
  if (different < LEAST_VIEWS || viewIds.length > MOST_VIEWS || different < viewIds.length)
    throw refused(
      'invalidBody',
      `viewIds must have ${LEAST_VIEWS} to ${MOST_VIEWS} different saved views of the app`,
    );
}

async function refuseTaken(tx: Transaction, appId: number, name: string, boardId: string): Promise<void> {
  const [other] = await tx`
    SELECT FROM boards WHERE app_id = ${appId} AND name = ${name} AND public_id <> ${boardId}`;
  if (other !== undefined) throw refused('boardExists', 'the app has a board of this name');
}

async function setViews(
  tx: Transaction,
  appId: number,
  board: number,
  viewIds: readonly string[],
): Promise<void> {
  const added = await tx`
    INSERT INTO board_views (board_id, view_id, position)
    SELECT ${board}, view.id, asked.position
      FROM unnest(${[...viewIds]}::text[]) WITH ORDINALITY AS asked (public_id, position)
      JOIN saved_views AS view ON view.public_id = asked.public_id AND view.app_id = ${appId}
    RETURNING view_id`;
  if (added.length < viewIds.length)
    throw refused('viewNotFound', 'one of viewIds is no saved view of the app');
}
