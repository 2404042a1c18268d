/** Whether an app has lists of the words of its payloads, by which searches find where to look. */
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { WordSearch } from '../api-types/answers.ts';
import { appNotFound } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { readListed } from '../storage/words/lookup.ts';

/** @throws Refused appNotFound */
export async function readWordSearch(sql: Sql, appId: string): Promise<WordSearch> {
  const [app] = await sql<{ id: number; isOn: boolean }[]>`
    SELECT id, word_search AS "isOn" FROM apps WHERE public_id = ${appId} AND removed_at IS NULL`;
  if (app === undefined) throw appNotFound(appId);
  return { appId, isOn: app.isOn, ...(await readListed(sql, app.id)) };
}

/** Maintenance makes the lists, or removes them. @throws Refused appNotFound */
export async function setWordSearch(
  sql: Sql,
  change: { readonly appId: string; readonly isOn: boolean; readonly by?: Actor },
): Promise<WordSearch> {
  const { appId, isOn, by = COMMAND_LINE } = change;
  await sql.begin(async (tx) => {
    const [changed] = await tx<{ id: number; name: string }[]>`
      UPDATE apps SET word_search = ${isOn}
       WHERE public_id = ${appId} AND removed_at IS NULL AND word_search <> ${isOn} RETURNING id, name`;
    if (changed !== undefined)
      await writeAudit(tx, {
        appId: changed.id,
        by,
        action: 'app.search',
        details: { lists: isOn ? 'on' : 'off' },
      });
  });
  return await readWordSearch(sql, appId);
}
