/** The bin: a deleted app is refused everywhere at once, comes back as it was within seven days, and is gone after them. */
import { beforeAll, expect, test } from 'vitest';
import { removeDeletedApps } from '../../src/storage/maintenance/deleted-apps.ts';
import { tidemark } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { sharedService, type TestService, until } from '../support/service.ts';

let service: TestService;
let owner: Person;
beforeAll(async () => {
  service = await sharedService();
  owner = await newPerson(service);
});

const send = async (loggingToken: string): Promise<number> =>
  (await service.post({ loggingToken, typeId: undefined, typeName: 'visit' })).status;
const appIds = async (): Promise<string[]> =>
  ((await owner.get('/api/apps')).data as { apps: { appId: string }[] }).apps.map(({ appId }) => appId);
const removed = async (who: Person): Promise<unknown[]> =>
  ((await who.get('/api/removed-apps')).data as { apps: unknown[] }).apps;
const run = (...args: string[]) =>
  tidemark([...args, '--json'], {
    DATABASE_URL: service.database.url,
    SECRET: 'the secret of the tests, 32 characters',
  });

test('a deleted app is refused at once, and restored it is what it was', async () => {
  const app = await newOwnApp(owner, 'Shop');
  const { data: token } = await owner.post(`${app.path}/tokens`, { name: 'Analytics' });
  const { resourceToken } = token as { resourceToken: string };
  const read = async (): Promise<number> =>
    (
      await service.request({
        path: `/public/get_events?appId=${app.appId}`,
        headers: { authorization: `Bearer ${resourceToken}` },
      })
    ).status;
  expect(await send(app.loggingToken)).toBe(201);
  expect(await read()).toBe(200);
  expect((await owner.delete(app.path, { confirm: 'Other' })).status).toBe(400);
  expect((await owner.delete(app.path, { confirm: 'Shop' })).status).toBe(200);
  expect(await send(app.loggingToken)).toBe(401);
  expect(await read()).toBe(404);
  expect((await owner.get(app.path)).status).toBe(404);
  expect(await appIds()).not.toContain(app.appId);
  expect(await removed(owner)).toEqual([expect.objectContaining({ appId: app.appId, name: 'Shop' })]);
  // Nobody else sees it, or brings it back.
  const stranger = await newPerson(service);
  expect(await removed(stranger)).toEqual([]);
  expect((await stranger.post(`/api/removed-apps/${app.appId}/restore`, {})).status).toBe(404);
  expect((await owner.post(`/api/removed-apps/${app.appId}/restore`, {})).status).toBe(200);
  expect(await removed(owner)).toEqual([]);
  expect(await send(app.loggingToken)).toBe(201);
  expect(await read()).toBe(200);
  expect((await owner.get(app.path)).data).toMatchObject({ name: 'Shop', role: 'owner' });
  const { events } = (await owner.get(`${app.path}/events`)).data as { events: unknown[] };
  expect(events).toHaveLength(2);
});

test('the command line lists deleted apps and restores one', async () => {
  const app = await newOwnApp(owner, 'Tool');
  await owner.delete(app.path, { confirm: 'Tool' });
  const listed = await run('app', 'restore');
  expect(JSON.parse(listed.stdout).apps).toContainEqual(
    expect.objectContaining({ appId: app.appId, name: 'Tool' }),
  );
  const restored = await run('app', 'restore', app.appId);
  expect(restored.code, restored.stderr).toBe(0);
  expect(JSON.parse(restored.stdout)).toEqual({ appId: app.appId, name: 'Tool' });
  await until(async () => (await send(app.loggingToken)) === 201, 'its token is accepted again');
  expect((await run('app', 'restore', app.appId)).code).not.toBe(0);
}, 120_000);

test('after seven days it is gone, or at once if its owner says so', async () => {
  const [old, now] = [await newOwnApp(owner, 'Old'), await newOwnApp(owner, 'Now')];
  const rows = await service.sql<{ id: number }[]>`
    SELECT id FROM apps WHERE public_id IN (${old.appId}, ${now.appId})`;
  const ids = rows.map(({ id }) => id);
  await owner.delete(old.path, { confirm: 'Old' });
  await owner.delete(now.path, { confirm: 'Now' });
  expect((await owner.delete(`/api/removed-apps/${now.appId}`, { confirm: 'no' })).status).toBe(400);
  expect((await owner.delete(`/api/removed-apps/${now.appId}`, { confirm: 'Now' })).status).toBe(200);
  await service.sql`UPDATE apps SET removed_at = removed_at - interval '8 days' WHERE removed_id = ${old.appId}`;
  expect((await owner.post(`/api/removed-apps/${old.appId}/restore`, {})).status).toBe(404);
  const removal = { removeEvents: async () => true, removeCounts: async () => true };
  await removeDeletedApps(service.sql, removal, () => 0, 1);
  expect(await service.sql`SELECT FROM apps WHERE id = ANY(${ids})`).toHaveLength(0);
  expect(await service.sql`SELECT FROM deleted_apps WHERE app_id = ANY(${ids})`).toHaveLength(2);
});
