/** /api/apps/:appId/search: whether an app has lists of words, and how much of it is listed. */
import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import type { WordSearch } from '../../api-types/answers.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { readWordSearch, setWordSearch } from '../word-search.ts';

const PATH = '/api/apps/:appId/search';
const CHANGE = bodyOf({ isOn: { type: 'boolean' } }, ['isOn']);

export function wordSearchRoutes({ api, sql }: { readonly api: Api; readonly sql: Sql }): readonly Route[] {
  return [
    api.read(PATH, 'read', async ({ app: { appId } }) => done<WordSearch>(await readWordSearch(sql, appId))),
    api.change('PUT', PATH, 'own', CHANGE, async ({ app: { appId }, by }, { isOn }) =>
      done<WordSearch>(await setWordSearch(sql, { appId, isOn, by })),
    ),
  ];
}
