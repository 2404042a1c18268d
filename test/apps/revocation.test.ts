/** Revocations of resource tokens and browser keys, and their undo: who may, for how long, and in which processes it is seen. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createBrowserKey, restoreBrowserKey, revokeBrowserKey } from '../../src/apps/browser-keys.ts';
import { restoreProducer } from '../../src/apps/producers.ts';
import {
  createResourceToken,
  restoreResourceToken,
  revokeResourceToken,
} from '../../src/apps/resource-tokens.ts';
import { build, tidemark } from '../support/command-line.ts';
import { joinApp, newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, testSecret, until } from '../support/service.ts';

const ORIGIN = 'https://shop.example';
const MAX_TOKENS = 8;

interface App {
  readonly appId: string;
  readonly path: string;
}
interface Token {
  readonly tokenId: string;
  readonly resourceToken: string;
}

let service: TestService;
let other: TestService;
let owner: Person;
let helper: Person;
let helperId: string;
let shop: App & { readonly loggingToken: string };
beforeAll(async () => {
  build();
  const config = { MAX_TOKENS_PER_ACCOUNT: MAX_TOKENS };
  service = await startTestService({ config });
  other = await startTestService({ config, database: service.database });
  owner = await newPerson(service, 'owner@example.com');
  helper = await newPerson(service, 'helper@example.com');
  await newPerson(service, 'viewer@example.com');
  shop = await newOwnApp(owner);
  await joinApp(owner, shop.path, helper, { email: 'helper@example.com' });
  await owner.post(`${shop.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
  const { user } = (await helper.get('/api/session')).data as { user: { userId: string } };
  helperId = user.userId;
}, 180_000);
afterAll(async () => {
  await other.stop({ keepDatabase: true });
  await service.stop();
});

const newToken = async (person: Person, app: App, more: object = {}): Promise<Token> => {
  const { status, data, text } = await person.post(`${app.path}/tokens`, { name: 'Reports', ...more });
  expect(status, text).toBe(201);
  return { tokenId: String(data.tokenId), resourceToken: String(data.resourceToken) };
};
const read = async (at: TestService, app: App, { resourceToken }: Token): Promise<number> =>
  (
    await at.request({
      path: `/public/get_events?appId=${app.appId}`,
      headers: { Authorization: `Bearer ${resourceToken}` },
    })
  ).status;
const newKey = async (): Promise<{ tokenId: string; browserKey: string }> =>
  (await owner.post(`${shop.path}/browser-keys`, { name: 'Page', types: ['view'], origins: [ORIGIN] }))
    .data as { tokenId: string; browserKey: string };
const collect = async (at: TestService, key: string): Promise<number> =>
  (
    await at.request({
      method: 'POST',
      path: '/v1/collect',
      headers: { Origin: ORIGIN },
      body: JSON.stringify({ key, events: [{ typeName: 'view', payload: {} }] }),
    })
  ).status;
/** Until when each token of the list can be restored, as a person sees it. */
const restorable = async (person: Person, tokenId: string, app: App = shop): Promise<unknown> => {
  const { tokens } = (await person.get(`${app.path}/tokens`)).data as { tokens: Record<string, unknown>[] };
  return tokens.find((one) => one.tokenId === tokenId)?.restorableUntil;
};
const restore = async (person: Person, token: { tokenId: string }, app: App = shop): Promise<number> =>
  (await person.post(`${app.path}/tokens/${token.tokenId}/restore`)).status;
const revoke = async (person: Person, token: { tokenId: string }, app: App = shop): Promise<void> =>
  expect((await person.delete(`${app.path}/tokens/${token.tokenId}`)).status).toBe(200);
/** An app of the owner with the helper as a maintainer. */
const newShared = async (name: string): Promise<App> => {
  const app = await newOwnApp(owner, name);
  await joinApp(owner, app.path, helper, { email: 'helper@example.com' });
  return app;
};

describe('a revocation and its undo', () => {
  test('are seen by every process, whatever it has in its cache', async () => {
    const [token, key] = [await newToken(owner, shop), await newKey()];
    const statuses = (at: TestService) =>
      Promise.all([read(at, shop, token), collect(at, key.browserKey)]).then(String);
    const everywhere = (wanted: string) =>
      until(
        async () => (await Promise.all([service, other].map(statuses))).every((one) => one === wanted),
        wanted,
      );
    await everywhere('200,200');
    for (let round = 0; round < 2; round++) {
      await revoke(owner, token);
      expect((await owner.delete(`${shop.path}/browser-keys/${key.tokenId}`)).status).toBe(200);
      // In the process that was asked at once, in the others within moments: also where "revoked" is what is remembered.
      expect(await statuses(service)).toBe('401,401');
      await everywhere('401,401');
      expect(await restore(owner, token)).toBe(200);
      expect((await owner.post(`${shop.path}/browser-keys/${key.tokenId}/restore`)).data).toEqual({
        tokenId: key.tokenId,
      });
      expect(await statuses(service)).toBe('200,200');
      await everywhere('200,200');
    }
    // What is not revoked is not restored.
    expect(await restore(owner, token)).toBe(404);
    expect((await owner.post(`${shop.path}/browser-keys/${key.tokenId}/restore`)).status).toBe(404);
    const { entries } = (await owner.get(`${shop.path}/audit`)).data as { entries: { text: string }[] };
    const sentences = entries.map(({ text }) => text);
    expect(sentences).toContain('restored the resource token “Reports”');
    expect(sentences).toContain('restored the browser key “Page”');
    for (const [event, { tokenId }] of [
      ['resource-token.restore', token],
      ['browser-key.restore', key],
    ] as const)
      expect(service.log).toContainEqual(
        expect.objectContaining({ event, tokenId, appId: shop.appId, email: 'owner@example.com' }),
      );
    await revoke(owner, token);
  });

  test('are of maintainers, and for a day', async () => {
    const [token, key] = [await newToken(owner, shop), await newKey()];
    await revoke(owner, token);
    await owner.delete(`${shop.path}/browser-keys/${key.tokenId}`);
    const foreign = await newOwnApp(owner, 'Another');
    const viewer = await newPerson(service, 'second-viewer@example.com');
    const stranger = await newPerson(service, 'stranger@example.com');
    await owner.post(`${shop.path}/members`, { email: 'second-viewer@example.com', role: 'viewer' });
    expect(await restorable(owner, token.tokenId)).toMatch(/Z$/);
    expect(await restorable(viewer, token.tokenId)).toBeUndefined();
    for (const kind of ['tokens', 'browser-keys']) {
      const { tokenId } = kind === 'tokens' ? token : key;
      const path = `${shop.path}/${kind}/${tokenId}/restore`;
      expect((await viewer.post(path)).status).toBe(403);
      expect((await stranger.post(path)).status).toBe(404);
      expect((await owner.post(`${foreign.path}/${kind}/${tokenId}/restore`)).status).toBe(404);
      expect((await owner.post(`${shop.path}/${kind}/tok_00000000000000000000/restore`)).status).toBe(404);
    }
    await service.sql`UPDATE resource_tokens SET revoked_at = revoked_at - interval '25 hours' WHERE public_id = ${token.tokenId}`;
    await service.sql`UPDATE browser_keys SET revoked_at = revoked_at - interval '25 hours' WHERE public_id = ${key.tokenId}`;
    expect(await restorable(owner, token.tokenId)).toBeUndefined();
    expect(await restore(owner, token)).toBe(404);
    expect((await owner.post(`${shop.path}/browser-keys/${key.tokenId}/restore`)).status).toBe(404);
  });

  test('give a token of several apps back to who revoked it, and to maintainers of all of them', async () => {
    const second = await newOwnApp(owner, 'Second');
    const token = await newToken(owner, shop, { appIds: [second.appId] });
    // The helper maintains one of the two apps.
    await revoke(owner, token);
    expect(await restorable(helper, token.tokenId)).toBeUndefined();
    const refused = await helper.post(`${shop.path}/tokens/${token.tokenId}/restore`);
    expect([refused.status, refused.text]).toEqual([403, expect.stringContaining('who revoked it')]);
    expect(await restore(owner, token, second)).toBe(200);
    await revoke(helper, token);
    expect(await restorable(helper, token.tokenId)).toMatch(/Z$/);
    expect(await restore(helper, token)).toBe(200);
    expect(await read(service, second, token)).toBe(200);
    // Revoked by both: one of them alone does not give back what the other has ended.
    await revoke(helper, token);
    await revoke(owner, token, second);
    expect(await restore(helper, token)).toBe(403);
    expect(await read(service, second, token)).toBe(401);
    expect(await restore(owner, token)).toBe(200);
    await revoke(owner, token);
  });

  test('leave a token as it was: an expired one stays expired', async () => {
    const token = await newToken(owner, shop, { expiresInDays: 1 });
    await revoke(owner, token);
    await service.sql`UPDATE resource_tokens SET expires_at = now() - interval '1 second' WHERE public_id = ${token.tokenId}`;
    expect(await restore(owner, token)).toBe(200);
    expect(await read(service, shop, token)).toBe(401);
  });
});

describe('what is restored', () => {
  test('counts again among the tokens of its creator, whoever restores it', async () => {
    const app = await newShared('Full');
    const first = await newToken(helper, app);
    await revoke(helper, first, app);
    const tokens: Token[] = [];
    for (let i = 0; i < MAX_TOKENS; i++) tokens.push(await newToken(helper, app));
    const refused = await owner.post(`${app.path}/tokens/${first.tokenId}/restore`);
    expect([refused.status, refused.code]).toEqual([400, 'TOO_MANY_TOKENS']);
    expect(await read(service, app, first)).toBe(401);
    for (const token of tokens) await revoke(helper, token, app);
    // Of many restorations at once none is beyond the maximum.
    const all = await Promise.all([first, ...tokens].map((token) => restore(helper, token, app)));
    expect(all.sort()).toEqual([...Array<number>(MAX_TOKENS).fill(200), 400]);
    await owner.delete(`${app.path}/members/${helperId}`);
  });

  test('counts again among the browser keys and the producers of its app', async () => {
    const app = await newOwnApp(owner, 'Crowded');
    const { sql } = service;
    const secret = await testSecret();
    const key = await createBrowserKey(sql, secret, {
      appId: app.appId,
      name: 'Page',
      types: ['view'],
      origins: [],
    });
    const made = await owner.post(`${app.path}/producers`, { name: 'checkout' });
    const producer = String(made.data.tokenId);
    await revokeBrowserKey(sql, key.tokenId);
    await owner.delete(`${app.path}/producers/${producer}`);
    const [{ id }] = await sql<[{ id: number }]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
    await sql`
      INSERT INTO browser_keys (public_id, digest, sealed, app_id, name, types, origins)
      SELECT 'tok_full' || n, sha256(n::text::bytea), '', ${id}, 'Page', '{view}', '{}' FROM generate_series(1, 100) AS n`;
    await sql`INSERT INTO producers (public_id, app_id, name) SELECT 'tok_also' || n, ${id}, 'p' FROM generate_series(1, 100) AS n`;
    const tooMany = { rejection: { reason: 'tooManyTokens' } };
    await expect(restoreBrowserKey(sql, key.tokenId)).rejects.toMatchObject(tooMany);
    await expect(restoreProducer(sql, { appId: id, tokenId: producer })).rejects.toMatchObject(tooMany);
    await sql`DELETE FROM browser_keys WHERE public_id = 'tok_full1'`;
    await sql`DELETE FROM producers WHERE public_id = 'tok_also1'`;
    expect(await restoreBrowserKey(sql, key.tokenId)).toEqual({ tokenId: key.tokenId });
    expect(await restoreProducer(sql, { appId: id, tokenId: producer })).toEqual({ tokenId: producer });
  });
});

describe('the end of a membership', () => {
  test('is for good: neither its tokens nor those that were revoked before come back', async () => {
    const [app, second] = [await newShared('Left'), await newShared('Kept')];
    const before = await newToken(helper, app);
    const both = await newToken(helper, app, { appIds: [second.appId] });
    await revoke(helper, before, app);
    await revoke(helper, both, app);
    const live = await newToken(helper, app);
    expect((await owner.delete(`${app.path}/members/${helperId}`)).status).toBe(200);
    for (const token of [before, live]) {
      expect(await restorable(owner, token.tokenId, app)).toBeUndefined();
      expect(await restore(owner, token, app)).toBe(404);
      expect(await restoreResourceToken(service.sql, token.tokenId)).toBeNull();
      expect(await read(service, app, token)).toBe(401);
    }
    // It reads the other app again, of which its creator is a member.
    expect(await restore(helper, both, second)).toBe(200);
    expect([await read(service, second, both), await read(service, app, both)]).toEqual([200, 403]);
  });

  test('prevails over a restoration at the same time, as does the end of the app', async () => {
    for (let round = 0; round < 3; round++) {
      const app = await newShared(`Race ${round}`);
      const token = await newToken(helper, app);
      await revoke(owner, token, app);
      const [restored, removed] = await Promise.all([
        restore(helper, token, app),
        owner.delete(`${app.path}/members/${helperId}`),
      ]);
      expect(removed.status).toBe(200);
      expect([200, 404]).toContain(restored);
      expect(await read(service, app, token)).toBe(401);
      expect(await restore(owner, token, app)).toBe(404);
      const last = await newToken(owner, app);
      await revoke(owner, last, app);
      await owner.delete(app.path, { confirm: `Race ${round}` });
      // The operator can restore it while the app is in the bin; it reads nothing until the app is back.
      const [again, erased] = await Promise.all([
        restoreResourceToken(service.sql, last.tokenId),
        owner.delete(`/api/removed-apps/${app.appId}`, { confirm: `Race ${round}` }),
      ]);
      expect(erased.status, erased.text).toBe(200);
      expect([null, last.tokenId]).toContain(again?.tokenId ?? null);
      expect(await read(service, app, last)).toBe(401);
      expect(await restoreResourceToken(service.sql, last.tokenId)).toBeNull();
    }
  }, 60_000);
});

test('a suspended or removed app has its tokens back when it is back itself', async () => {
  const app = await newOwnApp(owner, 'Away');
  const token = await newToken(owner, app);
  await revoke(owner, token, app);
  await owner.delete(app.path, { confirm: 'Away' });
  expect(await restore(owner, token, app)).toBe(404);
  expect(await restoreResourceToken(service.sql, token.tokenId)).toMatchObject({ tokenId: token.tokenId });
  await until(
    async () => (await read(service, app, token)) === 404,
    'the token is valid, and its app in the bin',
  );
  await owner.post(`/api/removed-apps/${app.appId}/restore`);
  await until(async () => (await read(service, app, token)) === 200, 'the token reads its app');
});

test('the command line revokes and restores each kind, and says what cannot be restored', async () => {
  const run = async (...args: string[]) =>
    await tidemark(args, {
      DATABASE_URL: service.database.url,
      SECRET: 'the secret of the tests, 32 characters',
    });
  const made = await createResourceToken(service.sql, {
    name: 'cli',
    appIds: [shop.appId],
    expiresInSeconds: null,
  });
  const key = await newKey();
  for (const tokenId of [made.tokenId, key.tokenId]) {
    const revoked = await run('token', 'revoke', tokenId);
    expect(revoked.stdout).toContain(`tidemark token restore ${tokenId}`);
    const { code, stdout, stderr } = await run('token', 'restore', tokenId, '--json');
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ tokenId });
  }
  await until(async () => (await read(service, shop, made)) === 200, 'the token is valid again');
  await until(async () => (await collect(service, key.browserKey)) === 200, 'the key is valid again');
  const again = await run('token', 'restore', made.tokenId);
  expect([again.code, again.stderr]).toEqual([2, expect.stringContaining('was revoked within a day')]);
  // The operator's revocation of a token can be undone by maintainers of all its apps.
  await revokeResourceToken(service.sql, made.tokenId);
  expect(await restore(helper, made)).toBe(200);
}, 120_000);
