/** What an account can make grow has a ceiling, or is slowed down. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { CREATE_EVENT, startTestService, TestClock, type TestService } from '../support/service.ts';

let service: TestService;
let clock: TestClock;
let counter = 0;
beforeAll(async () => {
  clock = new TestClock();
  service = await startTestService({ clock, config: { ALLOW_SIGNUP: 'open', MAX_TOKENS_PER_ACCOUNT: 3 } });
});
afterAll(() => service.stop());

async function newOwner(): Promise<{ owner: Person; app: Awaited<ReturnType<typeof newOwnApp>> }> {
  const owner = await newPerson(service, `ceiling-${++counter}@example.com`);
  return { owner, app: await newOwnApp(owner) };
}

const rowsOf = async (table: 'audit_entries' | 'logging_tokens', appId: string): Promise<number> => {
  const [row] = await service.sql<{ count: number }[]>`
    SELECT count(*)::integer AS count FROM ${service.sql(table)}
     WHERE app_id = (SELECT id FROM apps WHERE public_id = ${appId})`;
  return row?.count ?? 0;
};

describe('resource tokens', () => {
  test('an account has so many valid ones in all of its apps, also where it makes many at once', async () => {
    const { owner, app } = await newOwner();
    const other = await newOwnApp(owner, 'Other');
    const create = (path: string) => owner.post(`${path}/tokens`, { name: 'Reader' });
    const replies = await Promise.all(
      Array.from({ length: 10 }, (_, n) => create(n % 2 === 0 ? app.path : other.path)),
    );
    const made = replies.filter(({ status }) => status === 201);
    expect(made).toHaveLength(3);
    expect(replies.find(({ status }) => status !== 201)).toMatchObject({
      status: 400,
      code: 'TOO_MANY_TOKENS',
      data: {
        details:
          'An account may have 3 valid resource tokens (MAX_TOKENS_PER_ACCOUNT): revoke one that is not needed.',
      },
    });
    const [first] = made;
    const path = first === replies[0] || replies.indexOf(first as never) % 2 === 0 ? app.path : other.path;
    expect((await owner.delete(`${path}/tokens/${first?.data.tokenId}`)).status).toBe(200);
    expect((await create(app.path)).status).toBe(201);
    expect((await create(app.path)).code).toBe('TOO_MANY_TOKENS');
  });

  test('of those that have ended a hundred stay', async () => {
    const { owner, app } = await newOwner();
    await service.sql`
      WITH made AS (
        INSERT INTO resource_tokens (public_id, digest, name, created_by, revoked_at, created_at)
        SELECT 'tok_old' || number, sha256(number::text::bytea), 'Old ' || number, users.id,
               now() - make_interval(secs => number), now() - interval '1 day'
          FROM users, generate_series(1, 130) AS number WHERE email = ${`ceiling-${counter}@example.com`}
        RETURNING id)
      INSERT INTO resource_token_apps (token_id, app_id)
      SELECT made.id, apps.id FROM made, apps WHERE apps.public_id = ${app.appId}`;
    expect((await owner.post(`${app.path}/tokens`, { name: 'New' })).status).toBe(201);
    const tokens = (await owner.get(`${app.path}/tokens`)).data.tokens as { name: string }[]; // As the route declares it.
    const names = new Set(tokens.map(({ name }) => name));
    expect(names.size).toBe(101);
    expect(['New', 'Old 1', 'Old 100', 'Old 101'].map((name) => names.has(name))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });
});

test('a logging token that is rotated in a loop leaves five earlier ones, the newest', async () => {
  const { owner, app } = await newOwner();
  const texts: string[] = [];
  for (let n = 0; n < 12; n++) {
    const rotated = await owner.post(`${app.path}/logging-token/rotate`, {
      graceHours: 8_760,
      confirm: 'Shop',
    });
    expect(rotated.status).toBe(200);
    texts.push(String(rotated.data.loggingToken));
  }
  expect(await rowsOf('logging_tokens', app.appId)).toBe(6);
  const statuses = await Promise.all(
    texts.map(async (loggingToken) => {
      const body = JSON.stringify({ loggingToken, typeName: 'login', payload: {} });
      return (await service.request({ method: 'POST', path: CREATE_EVENT, body })).status;
    }),
  );
  expect(statuses).toEqual([...Array(6).fill(401), ...Array(6).fill(201)]);
});

test('changes of one kind are slowed down after a hundred: the audit log grows by one entry a minute', async () => {
  const { owner, app } = await newOwner();
  const save = () => owner.post(`${app.path}/views`, { name: 'Errors', search: 'range=24h' });
  const before = await rowsOf('audit_entries', app.appId);
  const replies = await Promise.all(Array.from({ length: 130 }, save));
  expect(replies.filter(({ status }) => status < 300)).toHaveLength(100);
  const refused = await save();
  expect(refused).toMatchObject({ status: 429, code: 'TOO_MANY_ATTEMPTS' });
  expect(await rowsOf('audit_entries', app.appId)).toBe(before + 100);

  // Other changes, other accounts and removals are not concerned.
  expect((await owner.post(`${app.path}/types`, { name: 'login' })).status).toBe(201);
  const neighbor = await newOwner();
  expect((await neighbor.owner.post(`${neighbor.app.path}/views`, { name: 'Mine', search: '' })).status).toBe(
    201,
  );
  const views = (await owner.get(`${app.path}/views`)).data.views as { viewId: string }[]; // As the route declares it.
  expect((await owner.delete(`${app.path}/views/${views[0]?.viewId}`)).status).toBe(200);

  clock.advance(Number(refused.headers['retry-after']) * 1_000);
  expect((await save()).status).toBe(201);
  // The wait doubles, to a minute.
  for (let n = 0; n < 8; n++) {
    clock.advance(60_000);
    expect((await save()).status).toBe(200);
  }
  expect((await save()).status).toBe(429);
});

test('changes that are refused do not count', async () => {
  const { owner, app } = await newOwner();
  const save = (name: string) => owner.post(`${app.path}/views`, { name, search: '' });
  for (let n = 0; n < 110; n++) expect((await save('')).code).toBe('INVALID_REQUEST');
  expect((await save('Errors')).status).toBe(201);
});

test('an app has a hundred open invitations, and those that have expired make room', async () => {
  const { owner, app } = await newOwner();
  await service.sql`
    INSERT INTO invitations (public_id, digest, app_id, email, email_key, role, created_at, expires_at)
    SELECT 'inv_' || number, sha256(number::text::bytea), apps.id, number || '@example.com', number || '@example.com',
           'viewer', ${clock.wall()}, to_timestamp(${clock.wall() / 1_000}::float8 + number)
      FROM apps, generate_series(1, 100) AS number WHERE apps.public_id = ${app.appId}`;
  const invite = (email: string) => owner.post(`${app.path}/members`, { email, role: 'viewer' });
  expect(await invite('new@example.org')).toMatchObject({ status: 400, code: 'TOO_MANY_INVITATIONS' });
  // An address that is invited again takes no further place.
  expect((await invite('50@example.com')).status).toBe(201);
  clock.advance(1_000);
  expect((await invite('new@example.org')).status).toBe(201);
  expect((await invite('newer@example.org')).code).toBe('TOO_MANY_INVITATIONS');
});
