/** Whether an app keeps lists of words: on the page, on the command line, and in the audit log. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { tidemark } from '../support/command-line.ts';
import { testDatabase } from '../support/database.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { hurryRounds, sharedService, until } from '../support/service.ts';

hurryRounds();

test('an owner turns lists on, maintenance makes them, and a command removes them', async () => {
  const service = await sharedService();
  const owner = await newPerson(service);
  const { path, appId } = await newOwnApp(owner);
  const { sql, database } = service;
  const begun = async (): Promise<boolean> => {
    const rows = await sql`
      SELECT FROM word_states JOIN apps ON apps.id = app_id WHERE public_id = ${appId} AND begun_at IS NOT NULL`;
    return rows.length > 0;
  };
  expect((await owner.get(`${path}/search`)).data).toEqual({
    ...{ appId, isOn: false, listedEvents: 0, isComplete: false },
  });
  const turned = await owner.put(`${path}/search`, { isOn: true });
  expect(turned.data).toMatchObject({ isOn: true });
  await until(begun, 'the lists have begun');
  expect((await owner.get(`${path}/search`)).data).toMatchObject({ isOn: true, isComplete: true });
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-words-'));
  const other = await testDatabase('postgres18', { empty: true });
  const file = join(folder, 'all.backup');
  const saved = await tidemark(['backup', file], { DATABASE_URL: database.url, DATA_DIR: folder });
  expect(saved.code, saved.stderr).toBe(0);
  const restored = await tidemark(['restore', file], { DATABASE_URL: other.url, DATA_DIR: folder });
  expect(restored.code, restored.stderr).toBe(0);
  const [kept] = await other.sql<{ isOn: boolean; lists: number }[]>`
    SELECT word_search AS "isOn",
           ((SELECT count(*) FROM word_states) + (SELECT count(*) FROM unlisted_minutes))::integer AS lists
      FROM apps WHERE public_id = ${appId}`;
  // A restored app makes its lists again.
  expect(kept).toEqual({ isOn: true, lists: 0 });
  await other.drop();
  await rm(folder, { recursive: true });
  const run = (...options: string[]) =>
    tidemark(['app', 'search', '--app', appId, ...options], { DATABASE_URL: database.url });
  expect((await run()).stdout).toMatch(/Lists of words +on\n/);
  expect((await run('--on', '--off')).code).toBe(2);
  expect(JSON.parse((await run('--off', '--json')).stdout)).toMatchObject({ appId, isOn: false });
  await until(async () => !(await begun()), 'the lists are gone');
  const { text } = await owner.get(`${path}/audit`);
  expect(text).toContain('turned lists of words on');
  expect(text).toContain('turned lists of words off');
});
