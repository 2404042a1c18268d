/** Named producers: each with a logging token of its own, whose use is counted, and which is rotated, revoked and restored alone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { removeOldRequests } from '../../src/apps/usage-store.ts';
import { build, tidemark } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';

hurryRounds();

interface Listed {
  readonly tokenId: string;
  readonly name: string;
  readonly firstUsedAt: string | null;
  readonly lastUsedAt: string | null;
  readonly eventsPerMinute: number;
  readonly refused: number;
  readonly revokedAt: string | null;
}

let service: TestService;
let owner: Person;
let app: Awaited<ReturnType<typeof newOwnApp>>;
let path: string;
beforeAll(async () => {
  build();
  service = await startTestService();
  owner = await newPerson(service, 'owner@example.com');
  app = await newOwnApp(owner);
  path = `/api/apps/${app.appId}/producers`;
}, 180_000);
afterAll(() => service.stop());

const send = async (loggingToken: string): Promise<{ status: number; details: string }> => {
  const { status, body } = await service.request({
    method: 'POST',
    path: '/public/create_event',
    body: JSON.stringify({ loggingToken, typeName: 'order', payload: {} }),
  });
  return { status, details: String((JSON.parse(body) as { details?: string }).details ?? '') };
};
const make = async (name: string): Promise<{ tokenId: string; loggingToken: string }> =>
  (await owner.post(path, { name })).data as { tokenId: string; loggingToken: string };
const list = async (): Promise<Listed[]> =>
  ((await owner.get(path)).data as { producers: Listed[] }).producers;
/** The id of the app with the prefix of tokens. */
const firstId = (): string => app.appId.replace('app_', 'tok_');
const named = async (name: string): Promise<Listed | undefined> =>
  (await list()).find((one) => one.name === name);

test('the token of the app is the first of them, and each one has its own use', async () => {
  expect((await list()).map(({ tokenId, name }) => [tokenId, name])).toEqual([[firstId(), 'First token']]);
  const checkout = await make('checkout');
  expect((await send(checkout.loggingToken)).status).toBe(201);
  expect((await send(app.loggingToken)).status).toBe(201);
  const batch = [1, 2, 3].map(() => ({ typeName: 'order', payload: {} }));
  const { status } = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { authorization: `Bearer ${checkout.loggingToken}` },
    body: JSON.stringify({ events: batch }),
  });
  expect(status).toBe(200);
  const used = await named('checkout');
  expect(used).toMatchObject({ revokedAt: null, refused: 0, lastUsedAt: used?.firstUsedAt });
  expect(used?.firstUsedAt).not.toBeNull();
  const minutes = await service.sql<{ producerId: number; events: number }[]>`
    SELECT producer_id AS "producerId", sum(events)::int AS events FROM producer_requests GROUP BY 1 ORDER BY 1`;
  expect(minutes.map(({ events }) => events)).toEqual([1, 4]);
  expect(minutes[0]?.producerId).toBe(0);
  await service.sql`UPDATE producer_requests SET minute = minute - interval '1 minute'`;
  expect((await named('checkout'))?.eventsPerMinute).toBe(4);
});

test('events by producer are those of its token, and stay when minutes are folded into quarter-hours', async () => {
  const now = Date.now();
  const quarter = (back: number): number => (Math.floor(now / 900_000) - back) * 900_000;
  const [row] = await service.sql<{ app: number; id: number }[]>`
    SELECT app_id AS app, id FROM producers WHERE name = 'checkout'`;
  if (row === undefined) throw new Error('checkout is a producer');
  const minutes = Array.from({ length: 60 }, (_, n) => quarter(20) / 1_000 + n * 60);
  await service.sql`
    INSERT INTO producer_requests (app_id, producer_id, minute, requests, events, refused)
    SELECT ${row.app}, ${row.id}, to_timestamp(unnest(${minutes}::float8[])), 1, 2, 0`;
  // The chart begins at the first event.
  await service.sql`UPDATE producer_requests SET minute = ${new Date(quarter(0))} WHERE minute > ${new Date(quarter(3))}`;
  const { typeId } = await service.newType(app, 'old');
  const old = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { authorization: `Bearer ${app.loggingToken}` },
    body: JSON.stringify({
      events: [{ typeId, payload: {}, createdAt: new Date(quarter(30)).toISOString() }],
    }),
  });
  expect(old.status).toBe(200);
  const chart = async (more = ''): Promise<Record<string, number[]>> => {
    const range = `from=${new Date(quarter(24)).toISOString()}&to=${new Date(quarter(-1)).toISOString()}`;
    const { data } = await owner.get(`/api/apps/${app.appId}/producer-series?${range}${more}`);
    const { starts, lines } = data as { starts: number[]; lines: { name: string; counts: number[] }[] };
    expect(starts[1]).toBe((starts[0] ?? 0) + 900_000);
    return Object.fromEntries(lines.map(({ name, counts }) => [name, counts]));
  };
  const before = await chart();
  expect(before.checkout?.slice(3, 9)).toEqual([0, 30, 30, 30, 30, 0]);
  expect(before['First token']?.at(-1)).toBe(2);
  // The same, finer than the counts are.
  expect(await chart('&buckets=1000')).toEqual(before);
  for (const events of [2, 30, 30]) {
    const stored = await service.sql<{ events: number }[]>`
      SELECT events::int FROM producer_requests WHERE minute >= ${new Date(quarter(20))} AND minute < ${new Date(quarter(16))}`;
    expect(stored.map((one) => one.events)).toEqual(Array(120 / events).fill(events));
    await removeOldRequests(service.sql, now);
    expect(await chart()).toEqual(before);
  }
});

test('a rotation, a revocation and its undo are of one producer alone', async () => {
  const [first, second] = [await make('billing'), await make('search')];
  const rotated = await owner.post(`${path}/${first.tokenId}/rotate`, { graceHours: 1 });
  const { loggingToken } = rotated.data as { loggingToken: string };
  for (const token of [first.loggingToken, loggingToken, second.loggingToken, app.loggingToken])
    expect((await send(token)).status).toBe(201);
  // Without grace the programs that have it stop: the name has to be typed.
  expect((await owner.post(`${path}/${first.tokenId}/rotate`, { graceHours: 0 })).status).toBe(400);
  expect((await owner.delete(`${path}/${first.tokenId}`)).status).toBe(200);
  for (const token of [first.loggingToken, loggingToken]) {
    const refused = await send(token);
    expect([refused.status, refused.details]).toEqual([401, expect.stringContaining('was revoked')]);
  }
  for (const token of [second.loggingToken, app.loggingToken]) expect((await send(token)).status).toBe(201);
  expect((await named('billing'))?.revokedAt).not.toBeNull();
  expect((await owner.post(`${path}/${first.tokenId}/rotate`, {})).status).toBe(404);
  expect((await owner.post(`${path}/${first.tokenId}/restore`, {})).status).toBe(200);
  for (const token of [first.loggingToken, loggingToken]) expect((await send(token)).status).toBe(201);
  expect((await named('billing'))?.revokedAt).toBeNull();
  // A day later there is no way back.
  await owner.delete(`${path}/${second.tokenId}`);
  await service.sql`UPDATE producers SET revoked_at = revoked_at - interval '25 hours' WHERE name = 'search'`;
  expect((await owner.post(`${path}/${second.tokenId}/restore`, {})).status).toBe(404);
});

test('the first one is revoked, restored and replaced as the others are', async () => {
  expect((await owner.delete(`${path}/${firstId()}`)).status).toBe(200);
  expect((await send(app.loggingToken)).status).toBe(401);
  expect((await owner.get(`/api/apps/${app.appId}/logging-token`)).data).toMatchObject({
    loggingToken: null,
  });
  expect((await named('First token'))?.revokedAt).not.toBeNull();
  expect((await owner.post(`${path}/${firstId()}/restore`, {})).status).toBe(200);
  expect((await send(app.loggingToken)).status).toBe(201);
  const shown = await owner.get(`${path}/${firstId()}/token`);
  expect(shown.data).toMatchObject({ loggingToken: app.loggingToken });
});

test('names are checked, other apps have other producers, and outsiders see none', async () => {
  expect((await owner.post(path, { name: '' })).status).toBe(400);
  expect((await owner.post(path, {})).status).toBe(400);
  const other = await newOwnApp(owner);
  const { tokenId } = await make('mine');
  for (const end of ['rotate', 'restore'])
    expect((await owner.post(`/api/apps/${other.appId}/producers/${tokenId}/${end}`, {})).status).toBe(404);
  expect((await owner.delete(`/api/apps/${other.appId}/producers/${tokenId}`)).status).toBe(404);
  expect((await owner.get(`/api/apps/${other.appId}/producers/${tokenId}/token`)).status).toBe(404);
  const stranger = await newPerson(service, 'stranger@example.com');
  expect((await stranger.get(path)).status).toBe(404);
});

test('the command line creates, lists, rotates, revokes and restores them', async () => {
  const run = async (...args: string[]): Promise<Record<string, unknown>> => {
    const { code, stdout, stderr } = await tidemark([...args, '--json'], {
      DATABASE_URL: service.database.url,
      SECRET: 'the secret of the tests, 32 characters',
    });
    expect(code, stderr).toBe(0);
    return JSON.parse(stdout) as Record<string, unknown>;
  };
  const made = await run('token', 'create', '--kind', 'logging', '--app', app.appId, '--name', 'cli');
  expect(made).toMatchObject({ name: 'cli', appId: app.appId, loggingToken: expect.stringMatching(/^tdl_/) });
  const { tokenId, loggingToken } = made as { tokenId: string; loggingToken: string };
  expect((await send(loggingToken)).status).toBe(201);
  const { tokens } = (await run('token', 'list', '--kind', 'logging')) as {
    tokens: { kind?: string; tokenId: string }[];
  };
  expect(tokens).toContainEqual(expect.objectContaining({ kind: 'logging', tokenId, name: 'cli' }));
  const rotated = (await run('token', 'rotate', tokenId, '--grace', '0')) as { loggingToken: string };
  await until(async () => (await send(loggingToken)).status === 401, 'the old token has ended');
  expect((await send(rotated.loggingToken)).status).toBe(201);
  await run('token', 'revoke', tokenId);
  await until(async () => (await send(rotated.loggingToken)).status === 401, 'the producer is revoked');
  await run('token', 'restore', tokenId);
  await until(async () => (await send(rotated.loggingToken)).status === 201, 'the producer is restored');
}, 120_000);
