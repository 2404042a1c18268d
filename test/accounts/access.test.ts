import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { grantRole } from '../../src/accounts/people/members.ts';
import { digestOf } from '../../src/base/token-text.ts';
import { joinApp, newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

let counter = 0;
const anEmail = (): string => `access-${++counter}@example.com`;

describe('a server', () => {
  let service: TestService;
  let neighbor: TestService;
  let owner: Person;
  let app: { appId: string; loggingToken: string; path: string };
  beforeAll(async () => {
    service = await startTestService();
    neighbor = await startTestService({ database: service.database });
    owner = await newPerson(service, anEmail());
    app = await newOwnApp(owner);
  });
  afterAll(async () => {
    await neighbor.stop();
    await service.stop();
  });

  const readEvents = (at: TestService, appId: string, bearer: string) =>
    at.request({ path: `/public/get_events?appId=${appId}`, headers: { Authorization: `Bearer ${bearer}` } });
  const codeOf = (body: string): string => JSON.parse(body).code;
  const newToken = async (): Promise<{ tokenId: string; resourceToken: string }> => {
    const { data } = await owner.post(`${app.path}/tokens`, { name: 'Analytics' });
    return { tokenId: String(data.tokenId), resourceToken: String(data.resourceToken) };
  };
  const newMaintainer = async (): Promise<{ person: Person; userId: string; email: string }> => {
    const email = anEmail();
    const person = await newPerson(service, email);
    await joinApp(owner, app.path, person, { email });
    const { user } = (await person.get('/api/session')).data as { user: { userId: string } };
    return { person, userId: user.userId, email };
  };

  test('security 9: a dump of the database holds no token, session, link or password that could be used', async () => {
    const { resourceToken } = await newToken();
    const invited = await owner.post(`${app.path}/members`, { email: anEmail() });
    const link = /\/invitations\/([\w-]{43})$/.exec(String(invited.data.link))?.[1] ?? '';
    const cookie = owner.cookie.split('=')[1] ?? '';
    expect(link).toHaveLength(43);
    expect(cookie).toHaveLength(43);
    const tables = await service.sql<{ name: string }[]>`
      SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`;
    let dump = '';
    for (const { name } of tables) {
      const rows = await service.sql<{ row: string }[]>`SELECT t::text AS row FROM ${service.sql(name)} AS t`;
      dump += rows.map(({ row }) => row).join('\n');
    }
    expect(dump).toContain(digestOf(resourceToken).toString('hex'));
    for (const secret of [app.loggingToken, resourceToken, link, cookie, PASSWORD]) {
      expect(dump).not.toContain(secret);
      expect(dump).not.toContain(Buffer.from(secret).toString('hex'));
    }
  });

  test('security 10: a resource token of one app is 403 on another, a logging token as Bearer is 401, and the reverse', async () => {
    const { resourceToken } = await newToken();
    const other = await newOwnApp(owner, 'Other');
    expect((await readEvents(service, app.appId, resourceToken)).status).toBe(200);
    expect((await readEvents(service, other.appId, resourceToken)).status).toBe(403);
    expect((await readEvents(service, app.appId, app.loggingToken)).status).toBe(401);
    expect((await service.post({ loggingToken: resourceToken })).status).toBe(401);
  });

  test('security 10: a revoked token is refused on the next request here, and within a second elsewhere', async () => {
    const { tokenId, resourceToken } = await newToken();
    for (const at of [service, neighbor])
      expect((await readEvents(at, app.appId, resourceToken)).status).toBe(200);
    expect((await owner.delete(`${app.path}/tokens/${tokenId}`)).status).toBe(200);
    expect((await readEvents(service, app.appId, resourceToken)).status).toBe(401);
    const refused = async () => (await readEvents(neighbor, app.appId, resourceToken)).status === 401;
    await until(refused, 'the token is refused by the other process', 1_000);
  });

  test('security 10: a rotated logging token without grace is refused on the next request here, and within a second elsewhere', async () => {
    const shop = await newOwnApp(owner, 'Rotated');
    const post = (at: TestService) =>
      at.post({ loggingToken: shop.loggingToken, typeId: undefined, typeName: 'visit' });
    expect((await post(service)).status).toBe(201);
    expect((await post(neighbor)).status).toBe(201);
    const wrong = await owner.post(`${shop.path}/logging-token/rotate`, {
      graceHours: 0,
      confirm: 'rotated',
    });
    expect(wrong).toMatchObject({ status: 400, code: 'CONFIRMATION_MISMATCH' });
    const rotated = await owner.post(`${shop.path}/logging-token/rotate`, {
      graceHours: 0,
      confirm: 'Rotated',
    });
    expect((await post(service)).status).toBe(401);
    await until(
      async () => (await post(neighbor)).status === 401,
      'the old token is refused elsewhere',
      1_000,
    );
    const { loggingToken } = rotated.data;
    expect((await service.post({ loggingToken, typeId: undefined, typeName: 'visit' })).status).toBe(201);
    const shown = (await owner.get(`${shop.path}/logging-token`)).data;
    expect(shown).toMatchObject({ loggingToken, previousValidUntil: null });
  });

  test('security 10: a removed member is refused on the next request, here and elsewhere', async () => {
    const { person, userId } = await newMaintainer();
    const elsewhere = new Person(neighbor);
    elsewhere.cookie = person.cookie;
    expect((await person.get(app.path)).status).toBe(200);
    expect((await elsewhere.get(app.path)).status).toBe(200);
    expect((await owner.delete(`${app.path}/members/${userId}`)).status).toBe(200);
    expect(await person.get(app.path)).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
    expect(await elsewhere.get(app.path)).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
  });

  test("security 11: a logging token with another app's typeId is 404 and stores nothing", async () => {
    const other = await newOwnApp(owner, 'Stranger');
    const type = await owner.post(`${other.path}/types`, { name: 'strange' });
    const answer = await service.post({ loggingToken: app.loggingToken, typeId: type.data.typeId });
    expect([answer.status, codeOf(answer.body)]).toEqual([404, 'EVENT_TYPE_NOT_FOUND']);
    for (const path of [app.path, other.path]) expect((await owner.get(path)).data.total).toBe(0);
    const rows = await service.sql`
      SELECT FROM events JOIN apps ON apps.id = app_id WHERE public_id IN (${app.appId}, ${other.appId})`;
    expect(rows).toHaveLength(0);
  });

  test('security 12: extra fields change nothing', async () => {
    const more = {
      role: 'owner',
      ownerId: 1,
      userId: 'usr_x',
      appId: 'app_x',
      createdAt: '2000-01-01',
      emailVerified: true,
    };
    const { person, email } = await newMaintainer();
    const made = await person.post('/api/apps', { name: 'Extra', ...more });
    const { data } = await person.get(`/api/apps/${made.data.appId}`);
    expect(data).toMatchObject({ name: 'Extra', role: 'owner' });
    expect(String(data.createdAt)).not.toContain('2000');
    const { role: _, ...others } = more;
    const owners = await owner.post(`${app.path}/members`, { email: anEmail(), ...more });
    expect(owners).toMatchObject({ status: 400, code: 'INVALID_REQUEST' });
    const invited = await owner.post(`${app.path}/members`, { email: anEmail(), ...others });
    expect(invited.data.invited).toBe(true);
    const { members, invitations } = (await owner.get(`${app.path}/members`)).data as {
      members: { email: string; role: string }[];
      invitations: { role: string }[];
    };
    expect(members.find((member) => member.email === email)?.role).toBe('maintainer');
    expect(new Set(invitations.map(({ role }) => role))).toEqual(new Set(['maintainer']));
    await person.post('/api/session', { email, password: PASSWORD, ...more });
    expect((await person.patch(app.path, { name: 'Mine', ...more })).code).toBe('ACCESS_DENIED');
  });

  test('security 12: answers carry no secret fields', async () => {
    const { person } = await newMaintainer();
    const token = await newToken();
    const answers = await Promise.all(
      ['', '/types', '/tokens', '/members', '/audit', '/series', '/events'].map((name) =>
        person.get(app.path + name),
      ),
    );
    answers.push(await person.get('/api/session'), await person.get('/api/apps'));
    for (const { status, text } of answers) {
      expect(status).toBe(200);
      expect(text).not.toMatch(/hash|digest|sealed|argon2|tdl_|tdr_/i);
      expect(text).not.toContain(token.resourceToken);
    }
  });

  test('security 13: a token in a query string is not read', async () => {
    const { resourceToken } = await newToken();
    const query = `appId=${app.appId}&token=${resourceToken}&access_token=${resourceToken}&authorization=Bearer%20${resourceToken}`;
    expect((await service.request({ path: `/public/get_events?${query}` })).status).toBe(401);
    const cookie = encodeURIComponent(owner.cookie);
    expect((await new Person(service).get(`/api/apps?cookie=${cookie}&session=${cookie}`)).status).toBe(401);
  });

  test('security 13: logs at every level contain no token, password, cookie or payload', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    const { resourceToken } = await newToken();
    const secret = 'a-secret-of-a-payload';
    await service.post({
      loggingToken: app.loggingToken,
      typeId: undefined,
      typeName: 'v',
      payload: { secret },
    });
    await readEvents(service, app.appId, resourceToken);
    await person.post('/api/session', { email, password: 'a wrong password' });
    await service.request({
      method: 'POST',
      path: '/public/create_event',
      body: `{"loggingToken":"${app.loggingToken}",`,
    });
    // A fault inside: its log line must not carry what the request had.
    await service.sql`ALTER TABLE apps RENAME TO apps_away`;
    const failed = await person.post('/api/apps', { name: secret });
    await service.sql`ALTER TABLE apps_away RENAME TO apps`;
    expect(failed).toMatchObject({ status: 500, code: 'INTERNAL_ERROR' });
    expect(failed.text).not.toContain('apps');
    const log = JSON.stringify(service.log);
    expect(log).toContain('http: request failed');
    for (const one of [
      app.loggingToken,
      resourceToken,
      PASSWORD,
      'a wrong password',
      secret,
      person.cookie.split('=')[1] ?? '-',
    ])
      expect(log).not.toContain(one);
  });

  test('a maintainer sees tokens, creates types and tokens, and cannot rename, delete, invite or remove', async () => {
    const { person, userId } = await newMaintainer();
    expect((await person.get(`${app.path}/logging-token`)).data.loggingToken).toBe(app.loggingToken);
    expect((await person.post(`${app.path}/types`, { name: `of ${userId}` })).status).toBe(201);
    expect((await person.post(`${app.path}/tokens`, { name: 'Mine', expiresInDays: 7 })).status).toBe(201);
    const denied = { status: 403, code: 'ACCESS_DENIED' };
    expect(await person.patch(app.path, { name: 'Mine' })).toMatchObject(denied);
    expect(await person.delete(app.path, { confirm: 'Shop' })).toMatchObject(denied);
    expect(await person.post(`${app.path}/members`, { email: anEmail() })).toMatchObject(denied);
    expect(await person.delete(`${app.path}/invitations/inv_00000000000000000000`)).toMatchObject(denied);
    const { members } = (await person.get(`${app.path}/members`)).data as {
      members: { userId: string; role: string }[];
    };
    const theOwner = members.find(({ role }) => role === 'owner')?.userId;
    expect(await person.delete(`${app.path}/members/${theOwner}`)).toMatchObject(denied);
    expect((await person.delete(`${app.path}/members/${userId}`)).status).toBe(200);
    expect((await person.get(app.path)).status).toBe(404);
    expect(await owner.delete(`${app.path}/members/${theOwner}`)).toMatchObject({
      status: 409,
      code: 'LAST_OWNER',
    });
  });

  test('an owner leaves while another one stays', async () => {
    const shared = await newOwnApp(owner);
    const { person, userId, email } = await newMaintainer();
    await grantRole(service.sql, { appId: shared.appId, email: requireEmail(email), role: 'owner' });
    const own = (await owner.get('/api/session')).data as { user: { userId: string } };
    expect((await owner.delete(`${shared.path}/members/${own.user.userId}`)).status).toBe(200);
    expect((await owner.get(shared.path)).status).toBe(404);
    expect(await person.delete(`${shared.path}/members/${userId}`)).toMatchObject({
      status: 409,
      code: 'LAST_OWNER',
    });
  });

  test('to a stranger an app looks like one that does not exist, on every route', async () => {
    const stranger = await newPerson(service, anEmail());
    for (const path of [
      '',
      '/types',
      '/logging-token',
      '/tokens',
      '/members',
      '/audit',
      '/series',
      '/events',
      '/events/00000000-0000-7000-8000-000000000000',
    ]) {
      const reply = await stranger.get(app.path + path);
      const missing = await stranger.get(`/api/apps/app_00000000000000000000${path}`);
      expect([reply.status, reply.code]).toEqual([404, 'APP_NOT_FOUND']);
      expect(reply.text).toBe(missing.text);
    }
    expect((await stranger.delete(app.path, { confirm: 'Shop' })).status).toBe(404);
    expect((await stranger.post(`${app.path}/logging-token/rotate`, { confirm: 'Shop' })).status).toBe(404);
  });

  test('a resource token is made only for apps that its maker is a member of, and revoked only from one of its apps', async () => {
    const stranger = await newPerson(service, anEmail());
    const own = await newOwnApp(stranger, 'Own');
    const refused = await stranger.post(`${own.path}/tokens`, { name: 'Spy', appIds: [app.appId] });
    expect(refused).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
    const { tokenId } = await newToken();
    expect(await stranger.delete(`${own.path}/tokens/${tokenId}`)).toMatchObject({ code: 'TOKEN_NOT_FOUND' });
  });

  test('every change of members, tokens and apps is in the audit log, with who made it', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    const shop = await newOwnApp(person, 'Audited');
    const helper = anEmail();
    const added = await newPerson(service, helper);
    await person.patch(shop.path, { name: 'Renamed' });
    await person.post(`${shop.path}/types`, { name: 'visit' });
    const { data: token } = await person.post(`${shop.path}/tokens`, { name: 'Analytics' });
    await person.delete(`${shop.path}/tokens/${token.tokenId}`);
    await person.delete(`${shop.path}/tokens/${token.tokenId}`);
    await person.post(`${shop.path}/logging-token/rotate`, { graceHours: 1, confirm: 'Renamed' });
    await joinApp(person, shop.path, added, { email: helper });
    const { members } = (await person.get(`${shop.path}/members`)).data as {
      members: { userId: string; email: string }[];
    };
    await person.delete(`${shop.path}/members/${members.find((one) => one.email === helper)?.userId}`);
    await person.post(`${shop.path}/members`, { email: anEmail() });
    const { data } = await person.get(`${shop.path}/audit`);
    const entries = data.entries as { action: string; actor: string; at: string }[];
    expect(entries.map(({ action }) => action).reverse()).toEqual([
      'app.create',
      'app.rename',
      'type.create',
      'resource-token.create',
      'resource-token.revoke',
      'logging-token.rotate',
      'invitation.create',
      'invitation.accept',
      'member.remove',
      'invitation.create',
    ]);
    const others = entries.filter(({ actor }) => actor !== email);
    expect(others).toMatchObject([{ actor: helper, action: 'invitation.accept' }]);
    expect(data.hasMore).toBe(false);
    await person.delete(shop.path, { confirm: 'Renamed' });
    const [last] =
      await service.sql`SELECT actor, action, details FROM audit_entries ORDER BY id DESC LIMIT 1`;
    expect(last).toMatchObject({
      actor: email,
      action: 'app.delete',
      details: { appId: shop.appId, name: 'Renamed' },
    });
  });

  test('the list of apps has totals, today and the last 24 hours; an app its first and last event', async () => {
    const person = await newPerson(service, anEmail());
    const shop = await newOwnApp(person, 'Counted');
    for (let i = 0; i < 3; i++)
      await service.post({ loggingToken: shop.loggingToken, typeId: undefined, typeName: 'visit' });
    const { apps } = (await person.get('/api/apps?timezone=Pacific/Auckland')).data as {
      apps: { name: string; total: number; today: number; sparkline: number[] }[];
    };
    expect(apps).toHaveLength(1);
    expect(apps[0]).toMatchObject({ name: 'Counted', total: 3 });
    expect(apps[0]?.sparkline).toHaveLength(24);
    expect(apps[0]?.sparkline.reduce((sum, count) => sum + count, 0)).toBe(3);
    const { data } = await person.get(shop.path);
    expect(data).toMatchObject({ total: 3, role: 'owner' });
    expect(Date.parse(String(data.lastEventAt))).toBeGreaterThanOrEqual(
      Date.parse(String(data.firstEventAt)),
    );
    const { types } = (await person.get(`${shop.path}/types`)).data as { types: { count: number }[] };
    expect(types.map(({ count }) => count)).toEqual([3]);
    expect((await person.get('/api/apps?timezone=Mars/Olympus')).status).toBe(400);
  });

  test.each([
    ['name', 'POST', '', {}],
    ['name', 'POST', '', { name: 1 }],
    ['name', 'POST', '', { name: '' }],
    ['email', 'POST', '/members', { email: 'no address' }],
    ['email', 'POST', '/members', { email: 'a@b.example, c@d.example' }],
    ['expiresInDays', 'POST', '/tokens', { name: 'x', expiresInDays: -1 }],
    ['graceHours', 'POST', '/logging-token/rotate', { graceHours: -1, confirm: 'Shop' }],
    ['timezone', 'GET', '/series?timezone=Nowhere/At_All', {}],
    ['from', 'GET', '/series?from=yesterday', {}],
    ['from', 'GET', '/series?from=2026-01-02&to=2026-01-01', {}],
    ['buckets', 'GET', '/series?buckets=0', {}],
    ['limit', 'GET', '/events?limit=-1', {}],
  ])('a bad %s is 400 and named', async (field, method, path, body) => {
    const target = path === '' ? '/api/apps' : app.path + path;
    const reply = method === 'GET' ? await owner.get(target) : await owner.post(target, body);
    expect([reply.status, reply.code]).toEqual([400, 'INVALID_REQUEST']);
    expect(reply.data.details).toContain(field.replace(/^email$/, 'email'));
  });
});
