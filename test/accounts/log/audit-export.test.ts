/** The export of an app's audit log: who may have it, its order, and that nothing is missed by continuing. */
import { beforeAll, expect, test } from 'vitest';
import { auditHorizon, auditLines } from '../../../src/accounts/log/audit-export.ts';
import { newOwnApp, newPerson, Person } from '../../support/person.ts';
import { reserved } from '../../support/reserved.ts';
import { sharedService, type TestService, until } from '../../support/service.ts';

interface Entry {
  readonly entryId: number;
  readonly action: string;
  readonly appId: string;
  readonly actor: string;
  readonly at: string;
}

let service: TestService;
let owner: Person;
let app: Awaited<ReturnType<typeof newOwnApp>>;
beforeAll(async () => {
  service = await sharedService();
  owner = await newPerson(service, 'audit-owner@example.com');
  app = await newOwnApp(owner);
  await newOwnApp(owner, 'Another app');
  for (const name of ['First', 'Second', 'Third']) await owner.post(`${app.path}/types`, { name });
});

const linesOf = (text: string): Entry[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
const exported = async (query = ''): Promise<Entry[]> => {
  const url = `${service.url}${app.path}/audit/export${query}`;
  const response = await fetch(url, { headers: { Cookie: owner.cookie } });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('application/x-ndjson');
  return linesOf(await response.text());
};

test('is for owners alone, while they are signed in', async () => {
  const people: [Person, number][] = [
    [new Person(service), 401],
    [await newPerson(service, 'audit-stranger@example.com'), 404],
  ];
  for (const role of ['viewer', 'maintainer']) {
    const email = `audit-${role}@example.com`;
    people.push([await newPerson(service, email), 403]);
    await owner.post(`${app.path}/members`, { email, role });
  }
  for (const [person, status] of people)
    expect((await person.get(`${app.path}/audit/export`)).status).toBe(status);
});

test('has the entries of the app in the order of their ids, and continues after one of them', async () => {
  const all = await exported();
  expect(all.slice(0, 4).map(({ action, actor }) => [action, actor])).toEqual([
    ['app.create', 'audit-owner@example.com'],
    ...Array(3).fill(['type.create', 'audit-owner@example.com']),
  ]);
  expect(new Set(all.map(({ appId }) => appId))).toEqual(new Set([app.appId]));
  const ids = all.map(({ entryId }) => entryId);
  expect(ids).toEqual([...ids].sort((a, b) => a - b));
  expect(await exported(`?after=${ids[1]}`)).toEqual(all.slice(2));
  const from = all[2]?.at ?? '';
  const since = all.filter(({ at }) => at >= from);
  expect(await exported(`?from=${encodeURIComponent(from)}`)).toEqual(since);
  expect(await exported(`?to=${encodeURIComponent(from)}`)).toEqual(all.filter(({ at }) => at < from));
  for (const query of ['?after=x', '?after=-1', '?from=yesterday', '?from=2026-01-02&to=2026-01-01'])
    expect((await owner.get(`${app.path}/audit/export${query}`)).status, query).toBe(400);
});

test('waits for entries that have drawn a lower id, of any release, so that a cursor never skips one', async () => {
  const last = (await exported()).at(-1)?.entryId ?? 0;
  const slow = await reserved(service.sql);
  await slow`BEGIN`;
  await slow`
    INSERT INTO audit_entries (app_id, actor, action, details)
    VALUES ((SELECT id FROM apps WHERE public_id = ${app.appId}), 'slow', 'app.rename', '{}')`;
  expect((await owner.post(`${app.path}/types`, { name: 'Overtaking' })).status).toBe(201);
  let isAnswered = false;
  const late = exported(`?after=${last}`).finally(() => {
    isAnswered = true;
  });
  // Others go on meanwhile: they write entries, and do not wait for the export either.
  for (let i = 0; i < 5; i++)
    expect((await owner.post(`${app.path}/types`, { name: `Meanwhile ${i}` })).status).toBe(201);
  expect(isAnswered).toBe(false);
  await slow`COMMIT`;
  slow.release();
  const entries = await late;
  expect(entries.slice(0, 2).map(({ action }) => action)).toEqual(['app.rename', 'type.create']);
});

test('waits for those alone that were writing when it began: others may write without a pause', async () => {
  const writing = async (actor: string) => {
    const connection = await reserved(service.sql);
    await connection`BEGIN`;
    await connection`
      INSERT INTO audit_entries (app_id, actor, action, details)
      VALUES ((SELECT id FROM apps WHERE public_id = ${app.appId}), ${actor}, 'app.rename', '{}')`;
    return {
      end: async () => {
        await connection`COMMIT`;
        connection.release();
      },
    };
  };
  const before = await writing('before');
  let horizon: number | null = null;
  const found = auditHorizon(service.sql).then((id) => {
    horizon = id;
  });
  // It has looked once when it looks again.
  const looks = async (): Promise<number> => {
    const [row] = await service.sql<{ count: number }[]>`
      SELECT count(*)::integer AS count FROM pg_stat_activity
       WHERE datname = current_database() AND query LIKE '%writer = ANY%' AND query NOT LIKE '%pg_stat_activity%'`;
    return row?.count ?? 0;
  };
  await until(async () => (await looks()) > 0, 'a second look at those who write');
  const meanwhile = await writing('meanwhile');
  expect(horizon).toBeNull();
  await before.end();
  await found;
  expect(horizon).toEqual(expect.any(Number));
  await meanwhile.end();
});

test('there is no horizon while one of those who were writing goes on for too long', async () => {
  const slow = await reserved(service.sql);
  await slow`BEGIN`;
  await slow`LOCK TABLE audit_entries IN ROW EXCLUSIVE MODE`;
  expect(await auditHorizon(service.sql, 2)).toBeNull();
  await slow`COMMIT`;
  slow.release();
  expect(await auditHorizon(service.sql, 2)).toEqual(expect.any(Number));
});

test('no entry is exported from beyond the horizon: a lower one may still come', async () => {
  const horizon = (await auditHorizon(service.sql)) ?? 0;
  expect((await owner.post(`${app.path}/types`, { name: 'Beyond' })).status).toBe(201);
  const found: number[] = [];
  const everything = { appId: null, from: null, until: null, after: 0 };
  for await (const { lastEntryId } of auditLines(service.sql, everything, horizon)) found.push(lastEntryId);
  expect(found.at(-1)).toBe(horizon);
});

test('that wait for others count as running: of three at once one is refused before it asks the database anything', async () => {
  const slow = await reserved(service.sql);
  await slow`BEGIN`;
  await slow`LOCK TABLE audit_entries IN ROW EXCLUSIVE MODE`;
  const replies = Array.from({ length: 3 }, async () => {
    const response = await fetch(`${service.url}${app.path}/audit/export`, {
      headers: { Cookie: owner.cookie },
    });
    return { status: response.status, text: await response.text() };
  });
  expect((await Promise.race(replies)).text).toContain('TOO_MANY_EXPORTS');
  await slow`COMMIT`;
  slow.release();
  expect((await Promise.all(replies)).map(({ status }) => status).sort()).toEqual([200, 200, 429]);
});

test('takes the same memory however long the log is: parts of 500 entries', async () => {
  const [row] = await service.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
  const appId = row?.id ?? 0;
  await service.sql`
    INSERT INTO audit_entries (app_id, actor, action, details)
    SELECT ${appId}, 'many', 'app.rename', jsonb_build_object('number', number) FROM generate_series(1, 1200) AS number`;
  const horizon = (await auditHorizon(service.sql)) ?? 0;
  const scope = { appId, from: null, until: null, after: 0 };
  const sizes: number[] = [];
  for await (const { entries } of auditLines(service.sql, scope, horizon)) sizes.push(entries);
  expect(sizes.slice(0, 2)).toEqual([500, 500]);
  expect(Math.max(...sizes)).toBe(500);
  const all = await exported();
  expect(all).toHaveLength(sizes.reduce((sum, size) => sum + size, 0));
  expect(all.filter(({ actor }) => actor === 'many')).toHaveLength(1_200);
});
