/** Sign-in at an OIDC issuer, against a certified provider. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { mapGroup, unmapGroup } from '../../src/apps/groups.ts';
import { CLIENT_ID, CLIENT_SECRET, type OidcIssuerServer, startOidcIssuer } from '../support/oidc-issuer.ts';
import { newPerson, PASSWORD, Person, type Reply } from '../support/person.ts';
import { startTestService, type TestService, until, withTestService } from '../support/service.ts';

const PUBLIC_URL = 'http://tidemark.test';

let issuer: OidcIssuerServer;
let service: TestService;
/** Logout tokens that the provider has posted. */
const logouts: string[] = [];

function settings(url: string): Record<string, string> {
  return {
    PUBLIC_URL,
    OIDC_ISSUER: url,
    OIDC_CLIENT_ID: CLIENT_ID,
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    OIDC_SCOPES: 'openid email profile groups',
    OIDC_GROUPS_CLAIM: 'groups',
    OIDC_NAME: 'Staff',
    OIDC_TRUST_EMAIL: 'true',
  };
}

beforeAll(async () => {
  issuer = await startOidcIssuer();
  await issuer.serve(PUBLIC_URL, `${issuer.url}/logged-out`);
  service = await startTestService({ config: settings(issuer.url) });
});
afterEach(() => {
  issuer.intercept = null;
});
afterAll(async () => {
  await service.stop();
  await issuer.stop();
});

let users = 0;

/** Somebody whom the issuer knows, and who has not been here. */
function become(claims: Readonly<Record<string, unknown>> = {}): string {
  users += 1;
  issuer.newBrowser();
  const sub = `user-${users}`;
  const email = `${sub}@staff.example`;
  issuer.user = { sub, claims: { email, email_verified: true, groups: [], ...claims } };
  return sub;
}

async function leave(person: Person, query = ''): Promise<string> {
  const reply = await person.get(`/sign-in/oidc${query}`);
  expect(reply.status).toBe(303);
  return reply.headers.location ?? '';
}

/** The whole way: to the issuer, in there as its user, and back. */
async function signIn(person: Person, query = ''): Promise<Reply> {
  const back = new URL(await issuer.signIn(await leave(person, query)));
  expect(back.origin).toBe(PUBLIC_URL);
  return await person.get(back.pathname + back.search);
}

async function userOf(person: Person): Promise<Record<string, unknown> | null> {
  const { data } = await person.get('/api/session');
  return data.user as Record<string, unknown> | null;
}

async function appsOf(person: Person): Promise<unknown[]> {
  const { data } = await person.get('/api/apps');
  return (data.apps as { appId: string; role: string }[]).map(({ appId, role }) => [appId, role]);
}

test('a user of the issuer gets an account, a session, and the page that was asked for', async () => {
  become();
  const person = new Person(service);
  const reply = await signIn(person, '?next=%2Fapps%3Fa%3D1');
  expect([reply.status, reply.headers.location]).toEqual([303, '/apps?a=1']);
  expect(await userOf(person)).toMatchObject({ email: issuer.user.claims.email, emailVerified: true });
  const again = new Person(service);
  await signIn(again);
  expect((await userOf(again))?.userId).toBe((await userOf(person))?.userId);
});

test('an identity is issuer and subject: another subject with the same address does not get the account', async () => {
  become();
  const { claims } = issuer.user;
  await signIn(new Person(service));
  become(claims);
  const other = new Person(service);
  const reply = await signIn(other);
  expect(reply.headers.location).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
  expect(await userOf(other)).toBeNull();
});

test('an account with a password is joined by its signed-in user alone', async () => {
  become();
  const email = String(issuer.user.claims.email);
  const owner = await newPerson(service, email);
  expect((await signIn(new Person(service))).headers.location).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
  const { data } = await owner.post('/api/identity');
  const arrived = new URL(await issuer.signIn(String(data.location)));
  expect((await owner.get(arrived.pathname + arrived.search)).headers.location).toBe('/account');
  expect((await owner.get('/api/identity')).data).toEqual({ issuer: issuer.url, joined: true });
  const later = new Person(service);
  await signIn(later);
  expect(await userOf(later)).toMatchObject({ email });
  expect((await owner.delete('/api/identity')).status).toBe(200);
  expect((await signIn(new Person(service))).headers.location).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
  // Who has only begun to join it cannot complete it in another session.
  become();
  const other = await newPerson(service, 'other@staff.example');
  const { data: way } = await other.post('/api/identity');
  const back = new URL(await issuer.signIn(String(way.location)));
  await other.delete('/api/session');
  const cut = await other.get(back.pathname + back.search);
  expect(cut.headers.location).toBe('/account?problem=OIDC_OTHER_SESSION');
});

test.each([
  ['//evil.example', '/'],
  ['/\\evil.example', '/'],
  ['https://evil.example', '/'],
  ['/apps\r\nSet-Cookie: a=b', '/'],
  ['/api/session', '/'],
  ['/sign-in/oidc', '/'],
  ['/./sign-in/oidc', '/'],
  ['/apps/%2e%2e/api/session', '/'],
  ['/.//evil.example', '/'],
  ['/apps/..//evil.example', '/'],
  ['/apps/app_1?range=7d#x', '/apps/app_1?range=7d#x'],
])('after a sign-in %s leads to %s', async (next, page) => {
  become();
  const reply = await signIn(new Person(service), `?next=${encodeURIComponent(next)}`);
  expect(reply.headers.location).toBe(page);
  expect(reply.headers['set-cookie']).not.toContain('a=b');
});

test('groups give roles at each sign-in, shown as such, and take them when they are gone', async () => {
  const app = await service.newApp();
  await mapGroup(service.sql, { group: 'readers', appId: app.appId, role: 'viewer' });
  await mapGroup(service.sql, { group: 'makers', appId: app.appId, role: 'maintainer' });
  become({ groups: ['readers', 'strangers'] });
  const person = new Person(service);
  await signIn(person);
  expect(await appsOf(person)).toEqual([[app.appId, 'viewer']]);
  issuer.user = { ...issuer.user, claims: { ...issuer.user.claims, groups: ['readers', 'makers'] } };
  await signIn(person);
  expect(await appsOf(person)).toEqual([[app.appId, 'maintainer']]);
  const { data } = await person.get(`/api/apps/${app.appId}/members`);
  expect(data.members).toMatchObject([{ role: 'maintainer', byGroup: 'makers' }]);
  const { data: made } = await person.post(`/api/apps/${app.appId}/tokens`, { name: 'mine' });
  const read = () =>
    service.request({
      path: `/public/get_events?appId=${app.appId}`,
      headers: { Authorization: `Bearer ${String(made.resourceToken)}` },
    });
  expect((await read()).status).toBe(200);
  issuer.user = { ...issuer.user, claims: { ...issuer.user.claims, groups: [] } };
  await signIn(new Person(service));
  expect(await appsOf(person)).toEqual([]);
  expect((await read()).status).toBe(401);
});

test('a role that a person gave stays, and the higher one of two counts', async () => {
  const app = await service.newApp();
  await mapGroup(service.sql, { group: 'crew', appId: app.appId, role: 'maintainer' });
  become();
  const person = new Person(service);
  await signIn(person);
  const { userId } = (await userOf(person)) ?? {};
  await service.sql`
    INSERT INTO app_members (app_id, user_id, role)
    SELECT apps.id, users.id, 'viewer' FROM apps, users
     WHERE apps.public_id = ${app.appId} AND users.public_id = ${String(userId)}`;
  issuer.user = { ...issuer.user, claims: { ...issuer.user.claims, groups: ['crew'] } };
  await signIn(person);
  expect(await appsOf(person)).toEqual([[app.appId, 'maintainer']]);
  expect(await unmapGroup(service.sql, { group: 'crew', appId: app.appId })).toBe(true);
  expect(await appsOf(person)).toEqual([[app.appId, 'viewer']]);
});

test('a logout at the issuer ends the sessions here and what groups gave, until the next sign-in', async () => {
  const app = await service.newApp();
  await mapGroup(service.sql, { group: 'night', appId: app.appId, role: 'maintainer' });
  become({ groups: ['night'] });
  const person = new Person(service);
  await signIn(person);
  const { data: token } = await person.post(`/api/apps/${app.appId}/tokens`, { name: 'of the night' });
  const read = async (): Promise<number> =>
    (
      await service.request({
        path: `/public/get_events?appId=${app.appId}`,
        headers: { Authorization: `Bearer ${String(token.resourceToken)}` },
      })
    ).status;
  expect(await read()).toBe(200);
  issuer.intercept = (request, response) => {
    if (request.url !== '/logged-out') return false;
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      logouts.push(body);
      response.writeHead(200).end();
    });
    return true;
  };
  await issuer.signOut();
  await until(async () => logouts.length > 0, 'the issuer tells of the logout');
  const post = (body: string) =>
    service.request({
      method: 'POST',
      path: '/sign-in/oidc/logout',
      headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
      body,
    });
  const [sent = ''] = logouts;
  const cut = await post(sent.slice(0, -3));
  expect(cut.status).toBe(400);
  expect(await userOf(person)).not.toBeNull();
  expect((await post(sent)).status).toBe(200);
  expect(await userOf(person)).toBeNull();
  expect(await read()).toBe(403);
  await signIn(person);
  expect(await appsOf(person)).toEqual([[app.appId, 'maintainer']]);
  await until(async () => (await read()) === 200, 'the token reads again');
});

test('the issuer away: sessions go on, the button says so, and it comes back by itself', async () => {
  await withTestService({ config: { ...settings(`${issuer.url}/nowhere`) } }, async (away) => {
    const person = await newPerson(away, 'here@staff.example');
    const shown = async () => (await new Person(away).get('/api/session')).data.oidc;
    await until(
      async () => ((await shown()) as { available: boolean }).available === false,
      'the button says so',
    );
    expect(await shown()).toEqual({ name: 'Staff', only: false, available: false });
    expect((await person.get('/api/apps')).status).toBe(200);
    expect((await new Person(away).get('/sign-in/oidc')).headers.location).toMatch(
      /^\/sign-in\?problem=OIDC_/,
    );
    expect((await away.request({ path: '/readyz' })).status).toBe(200);
  });
});

test('settings that contradict each other leave the service running, with sign-in at the issuer off', async () => {
  await withTestService({ config: { OIDC_ISSUER: issuer.url, PUBLIC_URL } }, async (half) => {
    expect(half.log.some(({ msg }) => /OIDC_ISSUER needs OIDC_CLIENT_ID/.test(String(msg)))).toBe(true);
    expect((await new Person(half).get('/api/session')).data.oidc).toBeNull();
    expect((await half.request({ path: '/readyz' })).status).toBe(200);
    expect((await half.request({ path: '/sign-in/oidc' })).status).toBe(404);
  });
});

test('with OIDC_ONLY a password is a way in for break-glass accounts alone', async () => {
  await withTestService({ config: { ...settings(issuer.url), OIDC_ONLY: 'true' } }, async (only) => {
    const usual = await newPerson(only, 'usual@staff.example').catch((error: unknown) => String(error));
    expect(usual).toMatch(/SIGN_IN_FAILED|Email or password is wrong/);
    await only.sql`UPDATE users SET break_glass = true WHERE email = 'usual@staff.example'`;
    expect(
      (await new Person(only).post('/api/session', { email: 'usual@staff.example', password: PASSWORD }))
        .status,
    ).toBe(200);
    const signUp = await new Person(only).post('/api/users', {
      email: 'new@staff.example',
      password: PASSWORD,
    });
    expect(signUp.code).toBe('SIGN_UP_CLOSED');
  });
});

test('the log has what happened, and no token, code or secret', () => {
  const events = new Set(service.log.map(({ event }) => event));
  for (const event of ['identity.join', 'identity.leave', 'oidc.logout', 'oidc.refusal'])
    expect(events).toContain(event);
  const text = JSON.stringify(service.log);
  expect(text).not.toContain(CLIENT_SECRET);
  expect(text).not.toMatch(/eyJ[\w-]+\.[\w-]+\./);
});
