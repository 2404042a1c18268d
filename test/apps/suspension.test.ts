/** The operator's view of all apps, and suspension of apps and accounts: at once, in every process, and back as it was. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { build, tidemark } from '../support/command-line.ts';
import { availableEngines } from '../support/database.ts';
import { LiveClient } from '../support/live-client.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  /** Another process on the same database: it learns of changes by notifications alone. */
  let other: TestService;
  let owner: Person;
  beforeAll(async () => {
    build();
    // For longer than the test: nothing is looked up again by itself.
    const config = { TOKEN_CACHE_SECONDS: 3_600, ALLOW_SIGNUP: 'open' } as const;
    service = await startTestService({ engine, config });
    other = await startTestService({ engine, config, database: service.database });
    owner = await newPerson(service, 'owner@example.com');
  }, 180_000);
  afterAll(async () => {
    await other.stop();
    await service.stop();
  });

  const run = async (...args: string[]): Promise<Record<string, unknown>> => {
    const settings = { DATABASE_URL: service.database.url, SECRET: 'the secret of the tests, 32 characters' };
    const { code, stdout, stderr } = await tidemark([...args, '--json'], settings);
    expect(code, stderr).toBe(0);
    return JSON.parse(stdout);
  };
  const write = async (to: TestService, loggingToken: string): Promise<[number, string]> => {
    const { status, body } = await to.post({ loggingToken, typeId: undefined, typeName: 'visit' });
    return [status, body];
  };
  const read = async (from: TestService, appId: string, token: string): Promise<[number, string]> => {
    const headers = { authorization: `Bearer ${token}` };
    const { status, body } = await from.request({ path: `/public/get_events?appId=${appId}`, headers });
    return [status, body];
  };

  test('a suspended account has no session and no token, cannot sign in, and comes back with its tokens', async () => {
    const email = 'member@example.com';
    const member = await newPerson(service, email);
    const elsewhere = new Person(other);
    await elsewhere.post('/api/session', { email, password: PASSWORD });
    const app = await newOwnApp(member, 'Tool');
    const { resourceToken } = (await member.post(`${app.path}/tokens`, { name: 'Own' })).data;
    const token = String(resourceToken);
    for (const one of [service, other]) expect((await read(one, app.appId, token))[0]).toBe(200);
    const feed = await LiveClient.follow(other.port, app.appId, { cookie: elsewhere.cookie });
    expect(await run('user', 'suspend', '--email', email)).toMatchObject({ email, endedSessions: 2 });
    for (const person of [member, elsewhere])
      expect((await person.get(app.path)).code).toBe('SESSION_REQUIRED');
    await until(() => feed.isOver, 'the feed has ended');
    for (const one of [service, other]) {
      await until(async () => (await read(one, app.appId, token))[0] === 401, 'the token is refused');
      expect((await read(one, app.appId, token))[1]).toContain('suspended the account');
    }
    const again = new Person(service);
    expect(await again.post('/api/session', { email, password: PASSWORD })).toMatchObject({
      status: 403,
      code: 'ACCOUNT_SUSPENDED',
    });
    // Only who knows the password learns of it.
    expect((await again.post('/api/session', { email, password: 'wrong horse battery' })).code).toBe(
      'SIGN_IN_FAILED',
    );
    expect((await again.get('/api/apps')).code).toBe('SESSION_REQUIRED');
    // Its apps are not suspended with it.
    expect((await write(service, app.loggingToken))[0]).toBe(201);
    const { users } = (await run('user', 'list')) as { users: { email: string; suspendedAt: unknown }[] };
    expect(users.find((one) => one.email === email)?.suspendedAt).toEqual(expect.any(String));
    await run('user', 'resume', '--email', email);
    expect((await again.post('/api/session', { email, password: PASSWORD })).status).toBe(200);
    for (const one of [service, other])
      await until(async () => (await read(one, app.appId, token))[0] === 200, 'the token is valid again');
    const { entries } = (await again.get('/api/activity')).data as { entries: { action: string }[] };
    const actions = entries.map(({ action }) => action);
    expect(actions).toEqual(expect.arrayContaining(['account.suspend', 'account.resume']));
  }, 120_000);

  test('the list of all apps has owners, events, bytes, limits and refusals', async () => {
    const app = await newOwnApp(owner, 'Listed');
    await run('app', 'limit', '--app', app.appId, '--create-per-minute', '7');
    const statuses: number[] = [];
    await until(async () => {
      statuses.push((await write(service, app.loggingToken))[0]);
      return statuses.at(-1) === 429;
    }, 'the limit is reached');
    await service.post({ loggingToken: app.loggingToken, typeId: 'typ_00000000000000000000' });
    const stored = statuses.filter((status) => status === 201).length;
    const find = async (): Promise<Record<string, unknown> | undefined> => {
      const { apps } = (await run('app', 'list', '--all')) as { apps: Record<string, unknown>[] };
      return apps.find(({ appId }) => appId === app.appId);
    };
    // The dashboard's page brings to the database what this process has counted.
    await owner.get(`${app.path}/usage`);
    expect(await find()).toMatchObject({
      name: 'Listed',
      owners: ['owner@example.com'],
      suspendedAt: null,
      events: stored,
      lastEventAt: expect.any(String),
      bytes: 2 * stored,
      bytesToday: 2 * stored,
      limits: { createPerMinute: 7, own: { createPerMinute: 7, bytesPerDay: null } },
      refused: { RATE_LIMIT_EXCEEDED: 2 },
      refusedEvents: {},
    });
  }, 60_000);
});
