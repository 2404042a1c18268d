import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deviceOf, deviceText } from '../../../src/accounts/sessions/device.ts';
import { storedAddress } from '../../../src/accounts/sessions/networks.ts';
import { HttpConnection } from '../../support/http-client.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../../support/person.ts';
import {
  startTestService,
  TestClock,
  type TestService,
  until,
  withTestService,
} from '../../support/service.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let counter = 0;
const anEmail = (): string => `person-${++counter}@example.com`;

describe('a server', () => {
  let service: TestService;
  let clock: TestClock;
  beforeAll(async () => {
    clock = new TestClock();
    service = await startTestService({ clock });
  });
  afterAll(() => service.stop());

  const whoIs = async (person: Person): Promise<unknown> => (await person.get('/api/session')).data.user;

  test('security 1: the session cookie is HttpOnly, SameSite=Lax, Path=/, random, and kept as a hash only', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    const { headers } = await person.post('/api/session', { email, password: PASSWORD });
    const [pair = '', ...attributes] = (headers['set-cookie'] ?? '').split('; ');
    expect(attributes.sort()).toEqual(['HttpOnly', 'Max-Age=2592000', 'Path=/', 'SameSite=Lax']);
    const value = /^tidemark_session=([A-Za-z0-9_-]{43})$/.exec(pair)?.[1] ?? '';
    expect(Buffer.from(value, 'base64url')).toHaveLength(32);
    const rows = await service.sql<{ text: string }[]>`SELECT sessions::text AS text FROM sessions`;
    expect(rows.length).toBeGreaterThan(0);
    for (const { text } of rows) {
      expect(text).not.toContain(value);
      expect(text).not.toContain(Buffer.from(value, 'base64url').toString('hex'));
    }
  });

  test('security 2: a preset session id is replaced at the sign-in and never becomes valid', async () => {
    const email = anEmail();
    await newPerson(service, email);
    const preset = `tidemark_session=${'A'.repeat(43)}`;
    const person = new Person(service);
    person.cookie = preset;
    await person.signIn(email);
    expect(person.cookie).not.toBe(preset);
    expect(await whoIs(person)).toMatchObject({ email });
    const intruder = new Person(service);
    intruder.cookie = preset;
    expect(await whoIs(intruder)).toBeNull();
  });

  test('security 2: a second sign-in ends the first session of the same browser', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    const before = person.cookie;
    await person.signIn(email);
    const old = new Person(service);
    old.cookie = before;
    expect(await whoIs(old)).toBeNull();
    expect(await whoIs(person)).toMatchObject({ email });
  });

  test('security 2: signing out ends the session at the server, not only in the browser', async () => {
    const person = await newPerson(service, anEmail());
    const copy = new Person(service);
    copy.cookie = person.cookie;
    expect((await person.delete('/api/session')).status).toBe(200);
    expect(person.cookie).toBe('');
    expect(await whoIs(copy)).toBeNull();
  });

  test('security 2: a password change and "sign out everywhere" end the sessions of every device', async () => {
    const email = anEmail();
    const here = await newPerson(service, email);
    const there = await new Person(service).signIn(email);
    const newPassword = 'another correct horse';
    const change = { currentPassword: PASSWORD, newPassword };
    expect((await here.post('/api/password', change)).status).toBe(200);
    expect(await whoIs(here)).toMatchObject({ email });
    expect(await whoIs(there)).toBeNull();
    await there.signIn(email, newPassword);
    expect((await there.delete('/api/sessions')).status).toBe(200);
    expect(await whoIs(here)).toBeNull();
    expect(await whoIs(there)).toBeNull();
  });

  const CHROME_ON_WINDOWS =
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36';
  const listOf = async (person: Person): Promise<Record<string, unknown>[]> =>
    (await person.get('/api/sessions')).data.sessions as Record<string, unknown>[]; // As the route declares it.
  const signInWith = async (email: string, headers: Readonly<Record<string, string>>): Promise<Person> => {
    const person = new Person(service);
    expect((await person.post('/api/session', { email, password: PASSWORD }, { headers })).status).toBe(200);
    return person;
  };

  test('the list of sessions has device, address, first and last use, and marks the current one', async () => {
    const email = anEmail();
    const here = await newPerson(service, email);
    const signedInAt = clock.wall();
    const there = await signInWith(email, { 'User-Agent': CHROME_ON_WINDOWS });
    clock.advance(4 * 60_000);
    await there.get('/api/session');
    const before = await listOf(there);
    expect(before.map(({ isCurrent }) => isCurrent).sort()).toEqual([false, true]);
    expect(before.find(({ isCurrent }) => isCurrent)).toEqual({
      sessionId: expect.stringMatching(/^ses_[0-9a-f]{20}$/),
      device: 'Chrome on Windows',
      address: '127.0.0.1',
      createdAt: new Date(signedInAt).toISOString(),
      // Written at most once in five minutes.
      lastUsedAt: new Date(signedInAt).toISOString(),
      isCurrent: true,
    });
    clock.advance(60_000);
    await there.get('/api/session');
    const [latest, other] = await listOf(there);
    expect(latest).toMatchObject({ isCurrent: true, lastUsedAt: new Date(clock.wall()).toISOString() });
    expect(other).toMatchObject({ device: 'An unknown device', isCurrent: false });
    expect(JSON.stringify(before)).not.toContain(there.cookie.split('=')[1]);
    expect(await whoIs(here)).toMatchObject({ email });
  });

  test('signing out one session ends it and its live feeds, and no session of another account', async () => {
    const email = anEmail();
    const here = await newPerson(service, email);
    const there = await signInWith(email, { 'User-Agent': CHROME_ON_WINDOWS });
    const stranger = await newPerson(service, anEmail());
    const { appId } = await newOwnApp(here);
    const feed = await LiveClient.open(service.port, appId, { cookie: there.cookie });
    const theirs = (await listOf(here)).find(({ isCurrent }) => !isCurrent);
    const session = `/api/sessions/${theirs?.sessionId}`;
    expect(await stranger.delete(session)).toMatchObject({ status: 404, code: 'SESSION_NOT_FOUND' });
    expect(await whoIs(there)).toMatchObject({ email });
    expect((await here.delete(session)).status).toBe(200);
    expect(await whoIs(there)).toBeNull();
    await until(() => feed.isOver, 'the feed of the ended session to end');
    expect(feed.messages.at(-1)).toMatchObject({ event: 'end' });
    expect(await here.delete(session)).toMatchObject({ status: 404, code: 'SESSION_NOT_FOUND' });
    expect(await here.delete('/api/sessions/x')).toMatchObject({ status: 404, code: 'SESSION_NOT_FOUND' });
    expect(await listOf(here)).toHaveLength(1);
  });

  test('signing out everywhere else keeps the current session alone', async () => {
    const email = anEmail();
    const here = await newPerson(service, email);
    const others = [await signInWith(email, {}), await signInWith(email, {})];
    const reply = await here.delete('/api/sessions', { keepCurrent: true });
    expect(reply).toMatchObject({ status: 200, data: { ended: 2 } });
    expect(reply.headers['set-cookie']).toBeUndefined();
    expect(await Promise.all(others.map(whoIs))).toEqual([null, null]);
    expect(await whoIs(here)).toMatchObject({ email });
  });

  test('an account has at most 100 sessions: the one that was used longest ago ends', async () => {
    const email = anEmail();
    const first = await newPerson(service, email);
    clock.advance(1_000);
    const second = await new Person(service).signIn(email);
    await service.sql`
      INSERT INTO sessions (digest, user_id, created_at, last_seen_at)
      SELECT sha256(convert_to(${email} || number, 'UTF8')), (SELECT id FROM users WHERE email = ${email}), ${clock.wall()}, ${clock.wall() + 1}
        FROM generate_series(1, 98) AS number`;
    const last = await new Person(service).signIn(email);
    expect(await whoIs(first)).toBeNull();
    expect([await whoIs(second), await whoIs(last)]).toEqual([expect.anything(), expect.anything()]);
  });

  test('a password change needs the current password', async () => {
    const person = await newPerson(service, anEmail());
    const change = { currentPassword: 'not my password', newPassword: 'another correct horse' };
    expect(await person.post('/api/password', change)).toMatchObject({ status: 403, code: 'WRONG_PASSWORD' });
  });

  test('security 3: a session that is not used for its idle lifetime has ended; one that is used has not', async () => {
    const email = anEmail();
    const idle = await newPerson(service, email);
    const used = await new Person(service).signIn(email);
    for (let day = 0; day < 7; day++) {
      clock.advance(DAY_MS - HOUR_MS / 8);
      expect(await whoIs(used)).toMatchObject({ email });
    }
    clock.advance(HOUR_MS);
    expect(await whoIs(idle)).toBeNull();
    expect(await whoIs(used)).toMatchObject({ email });
    expect(await idle.get('/api/apps')).toMatchObject({ status: 401, code: 'SESSION_REQUIRED' });
  });

  test('security 3: a session ends at its absolute lifetime however much it is used', async () => {
    const person = await newPerson(service, anEmail());
    for (let day = 0; day < 29; day++) {
      clock.advance(DAY_MS);
      expect(await whoIs(person)).not.toBeNull();
    }
    clock.advance(DAY_MS);
    expect(await whoIs(person)).toBeNull();
  });

  test.each([
    ['from another origin', { Origin: 'https://evil.example' }, 403, 'CROSS_ORIGIN'],
    ['from no origin at all', { Origin: 'null' }, 403, 'CROSS_ORIGIN'],
    ['from another site', { 'Sec-Fetch-Site': 'cross-site' }, 403, 'CROSS_ORIGIN'],
    ['from a neighbor of the site', { 'Sec-Fetch-Site': 'same-site' }, 403, 'CROSS_ORIGIN'],
    ['as text/plain', { 'Content-Type': 'text/plain' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['as a form', { 'Content-Type': 'application/x-www-form-urlencoded' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['without a content type', { 'Content-Type': null }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
  ])('security 4: a change %s is refused', async (_name, headers, status, code) => {
    const person = await newPerson(service, anEmail());
    expect(await person.post('/api/apps', { name: 'Forged' }, { headers })).toMatchObject({ status, code });
    expect(await person.delete('/api/session', {}, { headers })).toMatchObject({ status, code });
    expect((await person.get('/api/apps')).data.apps).toEqual([]);
  });

  test('security 4: a change from a page of the service itself is taken', async () => {
    const person = await newPerson(service, anEmail());
    const headers = {
      Host: `localhost:${service.port}`,
      Origin: `http://localhost:${service.port}`,
      'Sec-Fetch-Site': 'same-origin',
      'Content-Type': 'application/json; charset=utf-8',
    };
    expect((await person.post('/api/apps', { name: 'Mine' }, { headers })).status).toBe(201);
  });

  test('security 4: no GET route changes anything', async () => {
    const person = await newPerson(service, anEmail());
    await person.post('/api/apps', { name: 'Shop' });
    const { apps } = (await person.get('/api/apps')).data as { apps: { appId: string }[] };
    const path = `/api/apps/${apps[0]?.appId}`;
    const content = () => service.sql`
      SELECT (SELECT json_agg(row ORDER BY id) FROM apps AS row) AS apps, (SELECT json_agg(row ORDER BY id) FROM users AS row) AS users,
             (SELECT json_agg(row ORDER BY app_id, user_id) FROM app_members AS row) AS members, (SELECT count(*) FROM audit_entries) AS audit,
             (SELECT count(*) FROM sessions) AS sessions, (SELECT count(*) FROM logging_tokens) AS tokens,
             (SELECT count(*) FROM event_types) AS types, (SELECT count(*) FROM invitations) AS invitations`;
    const before = await content();
    for (const route of [
      '/api/session',
      '/api/apps',
      path,
      ...['types', 'logging-token', 'tokens', 'members', 'audit', 'series', 'events'].map(
        (name) => `${path}/${name}`,
      ),
      '/api/email-verifications/x',
      '/api/invitations/x',
    ]) {
      await person.get(route);
    }
    expect(await content()).toEqual(before);
  });

  test('a change without a body and a length, on a connection that goes on, is answered', async () => {
    const person = await newPerson(service, anEmail());
    const connection = await HttpConnection.open(service.port);
    const headers = { Cookie: person.cookie, 'Content-Type': 'application/json' };
    await connection.send({ method: 'DELETE', path: '/api/session', headers });
    expect((await connection.response()).status).toBe(200);
    await connection.send({ path: '/api/apps', headers });
    expect((await connection.response()).status).toBe(401);
    connection.destroy();
  });
});

test('security 1: with an https PUBLIC_URL the cookie is Secure and has the __Host- prefix', async () => {
  const service = await startTestService({ config: { PUBLIC_URL: 'https://events.example.com/' } });
  try {
    const email = anEmail();
    const person = await newPerson(service, email);
    const { headers } = await person.post('/api/session', { email, password: PASSWORD });
    expect(headers['set-cookie']).toMatch(/^__Host-tidemark_session=[\w-]{43}; .*Secure/);
    expect(headers['set-cookie']).not.toContain('Domain');
    const origin = { headers: { Origin: 'https://events.example.com' } };
    expect((await person.post('/api/apps', { name: 'Mine' }, origin)).status).toBe(201);
  } finally {
    await service.stop();
  }
});

test.each([
  ['192.0.2.77', '192.0.2.77', '192.0.2.0/24'],
  ['2001:db8:1:2:3::4', '2001:db8:1:2:3::4', '2001:db8:1::/48'],
  ['', null, null],
])('of the address %s is stored what SESSION_ADDRESSES says', (address, full, network) => {
  expect(storedAddress(address, 'full')).toBe(full);
  expect(storedAddress(address, 'network')).toBe(network);
  expect(storedAddress(address, 'none')).toBeNull();
});

test.each([
  ['Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Firefox on Linux'],
  [
    'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15',
    'Safari on macOS',
  ],
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/138.0 Mobile/15E148 Safari/604.1',
    'Chrome on iPhone',
  ],
  [
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0',
    'Edge on Windows',
  ],
  [
    'Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36',
    'Samsung Internet on Android',
  ],
  ['curl/8.5.0', 'curl'],
  ['', 'An unknown device'],
  ['<b>Reset your password at evil.example</b>', 'An unknown device'],
  [`${'x'.repeat(100_000)}Firefox/1`, 'An unknown device'],
])('the device of %.60s is shown from a closed list', (agent, shown) => {
  expect(deviceText(deviceOf(agent))).toBe(shown);
});

test('a page that is open without https beside PUBLIC_URL is told so, and one of this machine is not', async () => {
  await withTestService({ config: { PUBLIC_URL: 'https://events.example.com' } }, async (beside) => {
    const signIn = async (origin: string): Promise<{ status: number; body: string }> =>
      await beside.request({
        method: 'POST',
        path: '/api/session',
        headers: { 'Content-Type': 'application/json', Host: new URL(origin).host, Origin: origin },
        body: JSON.stringify({ email: 'ada@example.com', password: 'correct horse battery staple' }),
      });
    const refused = await signIn('http://192.168.1.7:8080');
    expect(refused.status).toBe(403);
    expect(JSON.parse(refused.body)).toMatchObject({
      code: 'CROSS_ORIGIN',
      details: expect.stringMatching(/without https: open it at https:\/\/events\.example\.com$/),
    });
    for (const origin of ['http://localhost:8080', 'http://127.0.0.1:8080', 'https://events.example.com'])
      expect((await signIn(origin)).status, origin).toBe(401);
  });
});
