/**
 * What ends at once in every process: sessions, live feeds, tokens and webhooks of an account that signed out at its issuer, that has
 * lost a group, or that the operator has suspended, and those of a suspended app.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { resumeAccount, suspendAccount } from '../../src/accounts/people/suspension.ts';
import { suspendApp } from '../../src/apps/apps.ts';
import { mapGroup, unmapGroup } from '../../src/apps/groups.ts';
import { addConsumer } from '../../src/delivery/consumers.ts';
import { activeWebhooks } from '../../src/delivery/webhooks.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { LiveClient } from '../support/live-client.ts';
import { CLIENT_ID, CLIENT_SECRET, type OidcIssuerServer, startOidcIssuer } from '../support/oidc-issuer.ts';
import { Person } from '../support/person.ts';
import { startTestService, type TestApp, type TestService, until } from '../support/service.ts';

const PUBLIC_URL = 'http://tidemark.test';
const CONSUMER = 'warehouse';

/** Somebody with access to an app by a group, in two processes: a session in each, feeds, and a token. */
interface Member {
  readonly app: TestApp & { readonly id: number };
  readonly email: string;
  /** Signed in at the process of the same index. */
  readonly people: readonly [Person, Person];
  readonly token: string;
  readonly webhookId: string;
  /** Of a session in each process, and of the token in the second. */
  readonly feeds: readonly LiveClient[];
}

function endedAccess(makeDatabase: () => Promise<TestDatabase>): void {
  let issuer: OidcIssuerServer;
  let database: TestDatabase;
  /** Two processes on one database: they learn of each other's changes by notifications alone. */
  let both: readonly [TestService, TestService];
  let members = 0;

  beforeAll(async () => {
    issuer = await startOidcIssuer();
    await issuer.serve(PUBLIC_URL, `${issuer.url}/logged-out`);
    database = await makeDatabase();
    const config = {
      PUBLIC_URL,
      OIDC_ISSUER: issuer.url,
      OIDC_CLIENT_ID: CLIENT_ID,
      OIDC_CLIENT_SECRET: CLIENT_SECRET,
      OIDC_SCOPES: 'openid email groups',
      OIDC_GROUPS_CLAIM: 'groups',
      ALLOW_SIGNUP: 'open',
      READ_LIMIT_PER_MINUTE: 0,
      WEBHOOK_ALLOW_PRIVATE: 'true',
      // For longer than the test: nothing is looked up again by itself.
      TOKEN_CACHE_SECONDS: 3_600,
    } as const;
    const first = await startTestService({ config, database });
    both = [first, await startTestService({ config, database })];
  }, 180_000);
  afterAll(async () => {
    await Promise.all(both.map((service) => service.stop()));
    await Promise.all([database.drop(), issuer.stop()]);
  });

  /** In a browser that the issuer knows already, unless its user is new. */
  const signIn = async (service: TestService, person = new Person(service)): Promise<[Person, string]> => {
    const { headers } = await person.get('/sign-in/oidc');
    const { pathname, search } = new URL(await issuer.signIn(headers.location ?? ''));
    const { headers: end } = await person.get(pathname + search);
    return [person, end.location ?? ''];
  };
  const become = (groups: readonly string[]): string => {
    members += 1;
    issuer.newBrowser();
    const email = `member-${members}@staff.example`;
    issuer.user = { sub: `member-${members}`, claims: { email, email_verified: true, groups } };
    return email;
  };
  const setGroups = (groups: readonly string[]): void => {
    issuer.user = { ...issuer.user, claims: { ...issuer.user.claims, groups } };
  };

  const makeMember = async (): Promise<Member> => {
    const app = await both[0].newApp();
    const [row] = await database.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
    const id = row?.id ?? 0;
    const group = `team of ${app.appId}`;
    await mapGroup(database.sql, { group, appId: app.appId, role: 'maintainer' });
    const email = become([group]);
    const people = [(await signIn(both[0]))[0], (await signIn(both[1]))[0]] as const;
    const { data } = await people[0].post(`/api/apps/${app.appId}/tokens`, { name: 'of the group' });
    const token = String(data.resourceToken);
    const webhook = await people[0].post(`/api/apps/${app.appId}/webhooks`, { url: 'http://127.0.0.1:1/' });
    const store = new ConsumerStore((await openStorage(database.sql)).engine, database.sql);
    await addConsumer(database.sql, store, id, {
      name: CONSUMER,
      types: [],
      filter: [],
      from: 'now',
      most: 9,
    });
    const member: Member = {
      app: { ...app, id },
      email,
      people,
      token,
      webhookId: String(webhook.data.webhookId),
      feeds: await Promise.all([
        LiveClient.follow(both[0].port, app.appId, { cookie: people[0].cookie }),
        LiveClient.follow(both[1].port, app.appId, { cookie: people[1].cookie }),
        LiveClient.follow(both[1].port, app.appId, { token }),
      ]),
    };
    const statuses = await statusesOfToken(member);
    const errors = both.flatMap(({ log }) => log.filter(({ level }) => level === 'error'));
    expect(statuses, JSON.stringify(errors)).toEqual(Array.from({ length: 6 }, () => 200));
    expect(await sends(member)).toBe(true);
    return member;
  };

  const byToken = (
    service: TestService,
    token: string,
    method: string,
    path: string,
  ): Promise<HttpResponse> =>
    service.request({
      method,
      path,
      headers: { Authorization: `Bearer ${token}` },
      ...(method === 'POST' && { body: '{}' }),
    });
  const sends = async (member: Member): Promise<boolean> =>
    (await activeWebhooks(database.sql)).some(({ webhookId }) => webhookId === member.webhookId);
  /** Of a read of events, of counts, and of a consumer's batch, in both processes. */
  const statusesOfToken = async ({ app, token }: Member): Promise<number[]> => {
    const path = `/v1/apps/${app.appId}`;
    const responses = await Promise.all(
      both.flatMap((service) => [
        byToken(service, token, 'GET', `/public/get_events?appId=${app.appId}`),
        byToken(service, token, 'GET', `${path}/series`),
        byToken(service, token, 'GET', `${path}/consumers/${CONSUMER}/events`),
      ]),
    );
    return responses.map(({ status }) => (status === 409 ? 200 : status));
  };
  /** Waits for the end of everything, and expects that it stays: what was refused once is never answered again. */
  const expectEnded = async (
    member: Member,
    { session, token }: { session: string; token: number },
  ): Promise<void> => {
    const { app, people, feeds } = member;
    const codes = async (): Promise<string[]> =>
      (await Promise.all(people.map((person) => person.get(`/api/apps/${app.appId}`)))).map(
        ({ code }) => code,
      );
    await until(
      async () => (await statusesOfToken(member)).every((status) => status === token),
      'the token is refused',
    );
    await until(async () => (await codes()).every((code) => code === session), 'the sessions have no access');
    await until(() => feeds.every(({ isOver }) => isOver), 'the feeds have ended');
    expect(await sends(member)).toBe(false);
    expect(await statusesOfToken(member)).toEqual(Array.from({ length: 6 }, () => token));
    expect(await codes()).toEqual([session, session]);
    for (const feed of feeds) expect(feed.messages.filter(({ event }) => event === 'end')).toHaveLength(1);
    const again = await LiveClient.open(both[0].port, app.appId, { token: member.token });
    expect(again.response.statusCode).toBe(token);
    again.close();
  };
  const sessionsOf = async ({ email }: Member): Promise<number> => {
    const [row] = await database.sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM sessions JOIN users ON users.id = user_id WHERE email = ${email}`;
    return row?.count ?? -1;
  };

  test('a logout at the issuer ends sessions, feeds and tokens in the process that it is told to and in others', async () => {
    const member = await makeMember();
    const told: string[] = [];
    issuer.intercept = (request: IncomingMessage, response: ServerResponse) => {
      if (request.url !== '/logged-out') return false;
      let body = '';
      request.on('data', (chunk: Buffer) => {
        body += chunk.toString();
      });
      request.on('end', () => {
        told.push(body);
        response.writeHead(200).end();
      });
      return true;
    };
    await issuer.signOut();
    issuer.intercept = null;
    await until(() => told.length > 0, 'the issuer tells of the logout');
    // A service whose address the issuer reaches would have been told by the issuer itself.
    const { status } = await both[0].request({
      method: 'POST',
      path: '/sign-in/oidc/logout',
      headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
      body: told[0] ?? '',
    });
    expect(status).toBe(200);
    await expectEnded(member, { session: 'SESSION_REQUIRED', token: 403 });
    expect(await sessionsOf(member)).toBe(0);
    // The next sign-in says which groups are left, and the token reads again.
    const [, location] = await signIn(both[1]);
    expect(location).toBe('/');
    await until(
      async () => (await statusesOfToken(member)).every((status) => status === 200),
      'the token reads again',
    );
    expect(await sends(member)).toBe(true);
  });

  test('a group that is gone at a sign-in takes its access with it, also from older sessions', async () => {
    const member = await makeMember();
    setGroups([]);
    await signIn(both[1]);
    await expectEnded(member, { session: 'APP_NOT_FOUND', token: 401 });
    // The account is signed in as before: it has lost the app, and nothing else.
    expect(await sessionsOf(member)).toBe(3);
    for (const person of member.people) expect((await person.get('/api/apps')).data.apps).toEqual([]);
  });

  test('a group that the operator unmaps takes its access with it', async () => {
    const member = await makeMember();
    const { appId } = member.app;
    expect(await unmapGroup(database.sql, { group: `team of ${appId}`, appId })).toBe(true);
    await expectEnded(member, { session: 'APP_NOT_FOUND', token: 401 });
    expect(await sessionsOf(member)).toBe(2);
  });

  test('a suspended account is signed out, its tokens are refused, and the issuer does not sign it in until it is resumed', async () => {
    const member = await makeMember();
    await suspendAccount(database.sql, requireEmail(member.email));
    await expectEnded(member, { session: 'SESSION_REQUIRED', token: 401 });
    expect(await sessionsOf(member)).toBe(0);
    for (const service of both) {
      const [person, location] = await signIn(service);
      expect(location).toBe('/sign-in?problem=OIDC_SUSPENDED');
      expect((await person.get('/api/session')).data.user).toBeNull();
    }
    expect(await sessionsOf(member)).toBe(0);
    await resumeAccount(database.sql, requireEmail(member.email));
    expect((await signIn(both[1]))[1]).toBe('/');
    await until(
      async () => (await statusesOfToken(member)).every((status) => status === 200),
      'the token reads again',
    );
    expect(await sends(member)).toBe(true);
  });

  test('a suspended app answers on no route in any process, and its feeds and consumers end until it is resumed', async () => {
    const member = await makeMember();
    const { appId, loggingToken } = member.app;
    const write = (service: TestService): Promise<HttpResponse> =>
      service.post({ loggingToken, typeId: undefined, typeName: 'visit' });
    for (const service of both) expect((await write(service)).status).toBe(201);
    await suspendApp(database.sql, { appId, isSuspended: true });
    await expectEnded(member, { session: 'ACCESS_DENIED', token: 403 });
    const description = await both[0].request({ path: '/openapi.json' });
    const { paths } = JSON.parse(description.body) as { paths: Record<string, object> };
    const routes = Object.entries(paths).flatMap(([path, methods]) =>
      path.startsWith('/v1/apps/{appId}') ? Object.keys(methods).map((method) => ({ path, method })) : [],
    );
    expect(routes.length).toBeGreaterThan(10);
    for (const { path, method } of routes) {
      const own = path.replace('{appId}', appId).replace('{name}', CONSUMER).replace('{eventId}', 'evt_1');
      for (const service of both) {
        const { status, body } = await byToken(service, member.token, method.toUpperCase(), own);
        expect([status, body], `${method} ${path}`).toEqual([
          403,
          expect.stringContaining('suspended the app'),
        ]);
      }
    }
    for (const service of both)
      await until(async () => (await write(service)).status === 401, 'writes are refused');
    await suspendApp(database.sql, { appId, isSuspended: false });
    // A batch has what ticks have noted by now: it may be empty at first.
    let next: unknown;
    await until(async () => {
      const path = `/v1/apps/${appId}/consumers/${CONSUMER}/events`;
      const { status, body } = await byToken(both[1], member.token, 'GET', path);
      if (status === 200) [next] = JSON.parse(body).data.events;
      return next !== undefined;
    }, 'the consumer goes on');
    expect(next).toMatchObject({ typeName: 'visit' });
    await until(
      async () => (await statusesOfToken(member)).every((status) => status === 200),
      'it is read again',
    );
  });
}

describe.each(availableEngines())('on %s', (engine) =>
  endedAccess(() => testDatabase(engine, { prepared: true })),
);
