/** Answers of an issuer that are refused: each leads to the sign-in page with a code, makes no session and no account, and is logged. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { useLogoutToken } from '../../src/accounts/oidc/identities.ts';
import { type LogoutOrder, type OidcIdentity, OidcIssuer } from '../../src/accounts/oidc/issuer.ts';
import { oidcFacts } from '../../src/cli/doctor/oidc-facts.ts';
import { readConfig } from '../../src/config.ts';
import { Callbacks } from '../support/callbacks.ts';
import { tidemark } from '../support/command-line.ts';
import { testDatabase } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import { type Claims, type Lie, type LyingIssuer, startLyingIssuer } from '../support/lying-issuer.ts';
import { CLIENT_ID, CLIENT_SECRET } from '../support/oidc-issuer.ts';
import { Person } from '../support/person.ts';
import { captured, startTestService, type TestService, until, withTestService } from '../support/service.ts';

const PUBLIC_URL = 'http://tidemark.test';
const SECONDS = (): number => Math.floor(Date.now() / 1_000);

let issuer: LyingIssuer;
let service: TestService;
let callbacks: Callbacks;
/** Moves the clock of the service, not that of the issuer. */
let ahead = 0;
beforeAll(async () => {
  issuer = await startLyingIssuer(CLIENT_ID, CLIENT_SECRET);
  service = await startTestService({
    clock: { wall: () => Date.now() + ahead, monotonic: () => performance.now() },
    config: {
      PUBLIC_URL,
      OIDC_ISSUER: issuer.url,
      OIDC_CLIENT_ID: CLIENT_ID,
      OIDC_CLIENT_SECRET: CLIENT_SECRET,
      OIDC_TRUST_EMAIL: 'true',
      ALLOW_SIGNUP: 'open',
      // Each case comes from a network of its own, which no earlier one has slowed down.
      TRUST_PROXY: 1,
    },
  });
  callbacks = new Callbacks(service, (location) => issuer.answer(location));
});
afterEach(() => {
  issuer.lie = {};
  ahead = 0;
});
afterAll(async () => {
  await service.stop();
  await issuer.stop();
});

/** A browser that was at the issuer, and the query that it comes back with. */
const go = (): ReturnType<Callbacks['go']> => callbacks.go();
const signsIn = async (): Promise<void> => {
  await callbacks.signsIn('ada@liar.example');
};
const comeBack: Callbacks['comeBack'] = (...back) => callbacks.comeBack(...back);
const expectRefused: Callbacks['expectRefused'] = (...how) => callbacks.expectRefused(...how);
const accounts = (): Promise<unknown> => callbacks.accounts();

const set = (name: string, value: unknown): Lie => ({
  claims: (claims: Claims) => {
    if (value === undefined) delete claims[name];
    else claims[name] = value;
  },
});
const swapPayload = (token: string): string => {
  const [head, payload = '', signature] = token.split('.');
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Claims;
  return [head, Buffer.from(JSON.stringify({ ...claims, sub: 'eve' })).toString('base64url'), signature].join(
    '.',
  );
};

/** Cases with the code that they lead to, where they do not name another. */
function withCode<T>(cases: readonly (readonly [string, T, string?])[]): (readonly [string, T, string])[] {
  return cases.map(([name, what, code = 'OIDC_REFUSED']) => [name, what, code]);
}

test('what is right signs in: each of the following differs from it in one thing', signsIn);

describe('an ID token is refused', () => {
  const LIES: readonly (readonly [string, Lie, string?])[] = [
    ['with the algorithm none', { header: { alg: 'none' }, signedBy: 'nothing' }],
    ['with the algorithm none and a signature', { header: { alg: 'none' } }],
    ['with the algorithm None', { header: { alg: 'None' }, signedBy: 'nothing' }],
    ['without its signature', { signedBy: 'nothing' }],
    ['signed with the client secret', { header: { alg: 'HS256' }, signedBy: 'the client secret' }],
    ['signed with the public key as a secret', { header: { alg: 'HS256' }, signedBy: 'the public key' }],
    ['signed by another key', { signedBy: 'another key' }],
    ['signed by a key that the issuer does not have', { header: { kid: 'other' }, signedBy: 'another key' }],
    [
      'signed by a key whose address it has',
      { header: { jku: 'http://127.0.0.1:9/keys' }, signedBy: 'another key' },
    ],
    ['of another algorithm than its signature', { header: { alg: 'ES256' } }],
    ['with a critical extension', { header: { crit: ['exp'], exp: 1 } }],
    ['whose payload was changed', { text: swapPayload }],
    ['that is cut', { text: (token) => token.slice(0, -4) }],
    ['of five parts', { text: (token) => `${token}.a.b` }],
    ['that is no token', { text: () => 'not a token' }],
    ['of another issuer', set('iss', 'https://evil.example')],
    [
      'whose issuer has a slash more',
      { claims: (claims) => Object.assign(claims, { iss: `${claims.iss}/` }) },
    ],
    ['without an issuer', set('iss', undefined)],
    ['for another client', set('aud', 'another')],
    ['for several clients without an authorized party', set('aud', [CLIENT_ID, 'another'])],
    [
      'for several clients, authorized to another',
      { claims: (claims) => Object.assign(claims, { aud: [CLIENT_ID, 'another'], azp: 'another' }) },
    ],
    ['without an audience', set('aud', undefined)],
    ['with another nonce', set('nonce', 'x'.repeat(43))],
    ['without a nonce', set('nonce', undefined)],
    ['that has expired', set('exp', 1_700_000_000)],
    ['without an end', set('exp', undefined)],
    ['whose end is a text', set('exp', 'tomorrow')],
    ['that is not valid yet', { claims: (claims) => Object.assign(claims, { nbf: SECONDS() + 3_600 }) }],
    ['without the time of its issue', set('iat', undefined)],
    ['without a subject', set('sub', undefined)],
    ['with an empty subject', set('sub', '')],
    ['whose subject is a number', set('sub', 7)],
  ];
  test.each(withCode(LIES))('%s', async (_, lie, code) => {
    const { person, query } = await go();
    issuer.lie = lie;
    await expectRefused(person, query, code);
  });
});

describe('an answer of the issuer is refused', () => {
  const LIES: readonly (readonly [string, Lie, string?])[] = [
    ['without an ID token', { tokens: (answer) => delete answer.id_token }],
    ['without an access token', { tokens: (answer) => delete answer.access_token }],
    ['with a token of another kind', { tokens: (answer) => Object.assign(answer, { token_type: 'mac' }) }],
    [
      'that is an error',
      {
        tokenAnswer: [
          400,
          'application/json',
          '{"error":"invalid_grant","error_description":"the code has expired"}',
        ],
      },
    ],
    ['that is a page', { tokenAnswer: [200, 'text/html', '<p>problem of the issuer</p>'] }],
    [
      'whose status is that of a server in trouble',
      { tokenAnswer: [503, 'text/plain', 'problem of the issuer'] },
      'OIDC_UNREACHABLE',
    ],
    ['whose user info is of another subject', { userInfo: { sub: 'eve', email: 'root@liar.example' } }],
    ['whose user info has no subject', { userInfo: { email: 'root@liar.example' } }],
    ['whose user info is denied', { userInfo: 401 }, 'OIDC_UNREACHABLE'],
  ];
  test.each(withCode(LIES))('%s', async (_, lie, code) => {
    const { person, query } = await go();
    issuer.lie = lie;
    await expectRefused(person, query, code);
  });
});

describe('what an issuer says of a user', () => {
  let lines: Record<string, unknown>[] = [];
  const identity = async (lie: Lie, groupsClaim = 'groups'): Promise<OidcIdentity> => {
    lines = [];
    const log = captured(lines);
    const options = {
      clientId: CLIENT_ID,
      clientSecret: CLIENT_SECRET,
      scopes: 'openid',
      publicUrl: PUBLIC_URL,
    };
    const client = new OidcIssuer({
      ...options,
      issuer: issuer.url,
      groupsClaim,
      log,
      now: Date.now,
    });
    const checks = { state: 's'.repeat(43), nonce: 'n'.repeat(43), verifier: 'v'.repeat(43) };
    const query = issuer.answer(await client.authorizationUrl(checks));
    issuer.lie = lie;
    return await client.identity(query.toString(), checks);
  };
  const claims = (values: Claims): Lie => ({ claims: (given) => void Object.assign(given, values) });

  test('an address is verified by what stands beside it alone', async () => {
    const other = { userInfo: { sub: 'ada', email: 'boss@liar.example' } };
    expect(await identity({ ...claims({ email: undefined, email_verified: true }), ...other })).toMatchObject(
      {
        email: 'boss@liar.example',
        emailVerified: false,
      },
    );
    const verified = { userInfo: { ...other.userInfo, email_verified: true } };
    expect(await identity({ ...claims({ email_verified: undefined }), ...verified })).toMatchObject({
      email: 'ada@liar.example',
      emailVerified: false,
    });
    expect(await identity(claims({ email_verified: 'true' }))).toMatchObject({ emailVerified: false });
  });

  test('groups are all of them or a refusal: those that are left out would take their access away', async () => {
    expect((await identity(claims({ groups: ['a', 'a', 7, 'b', null, 'x'.repeat(201)] }))).groups).toEqual([
      'a',
      'b',
    ]);
    expect((await identity(claims({ groups: 'a' }))).groups).toEqual(['a']);
    const many = Array.from({ length: 1_001 }, (_, index) => `g${index}`);
    await expect(identity(claims({ groups: many }))).rejects.toThrow('more than 1000 groups');
    await expect(identity(claims({ _claim_names: { groups: 'src1' } }))).rejects.toThrow(
      'more groups than the issuer',
    );
  });

  test('no groups are not the same as nothing said of groups, which changes nothing and is logged', async () => {
    for (const none of [[], '', ['']]) {
      expect((await identity(claims({ groups: none }))).groups).toEqual([]);
      expect(lines).toEqual([]);
    }
    for (const nothing of [undefined, null, 7, { staff: true }, [{ name: 'staff' }]]) {
      expect((await identity(claims({ groups: nothing, roles: ['a'] }))).groups).toBeNull();
      const came = expect.arrayContaining(['sub', 'email', 'roles']);
      expect(lines).toEqual([expect.objectContaining({ level: 'warn', claim: 'groups', came })]);
    }
  });

  test('the name of the claim is tried as it stands, then as a path, in the ID token and beside it', async () => {
    const nested = { realm_access: { roles: ['a'] } };
    const named = async (lie: Lie) => (await identity(lie, 'realm_access.roles')).groups;
    expect(await named(claims(nested))).toEqual(['a']);
    expect(await named(claims({ ...nested, 'realm_access.roles': ['b'] }))).toEqual(['b']);
    expect(await named(claims({ ...nested, 'realm_access.roles': [] }))).toEqual([]);
    expect(await named({ ...claims({ realm_access: {} }), userInfo: { sub: 'ada', ...nested } })).toEqual([
      'a',
    ]);
    for (const wrong of [{ realm_access: 'roles' }, { realm_access: null }, { realm_access: [] }, {}])
      expect(await named(claims(wrong))).toBeNull();
    expect((await identity(claims({}), 'constructor.name')).groups).toBeNull();
  });
});

describe('a callback is refused', () => {
  type Change = (query: URLSearchParams) => void;
  const change = (query: URLSearchParams, values: Readonly<Record<string, string>>): void => {
    for (const [name, value] of Object.entries(values)) query.set(name, value);
  };
  const QUERIES: readonly (readonly [string, Change, string?])[] = [
    ['with another state', (query) => query.set('state', 'x'.repeat(43))],
    ['without a state', (query) => query.delete('state')],
    ['with two states', (query) => query.append('state', query.get('state') ?? '')],
    ['without a code', (query) => query.delete('code')],
    ['with two codes', (query) => query.append('code', 'code-1')],
    ['with a code that the issuer did not give', (query) => query.set('code', 'made up')],
    ['of another issuer (mix-up)', (query) => query.set('iss', 'https://evil.example')],
    ['that does not say of which issuer it is', (query) => query.delete('iss')],
    ['with an ID token in the address', (query) => query.set('id_token', 'made up')],
    ['with an access token in the address', (query) => query.set('token', 'made up')],
    ['with a signed answer in place of its parameters', (query) => query.set('response', 'made up')],
    ['of an error with another state', (query) => change(query, { error: 'access_denied', state: 'x' })],
    [
      'of an error that is long',
      (query) => change(query, { error: `long${'x'.repeat(500)}`, code: '' }),
      'OIDC_DENIED',
    ],
    ['of an error', (query) => change(query, { error: 'access_denied', code: '' }), 'OIDC_DENIED'],
  ];
  test.each(withCode(QUERIES))('%s', async (_, spoil, code) => {
    const { person, query } = await go();
    spoil(query);
    await expectRefused(person, query, code);
  });

  test('without parameters, without its cookie, and with a cookie that was changed', async () => {
    const { person, query } = await go();
    const { cookie } = person;
    await expectRefused(new Person(service), query, 'OIDC_EXPIRED');
    person.cookie = cookie.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'));
    await expectRefused(person, query, 'OIDC_EXPIRED');
    person.cookie = cookie;
    await expectRefused(person, '', 'OIDC_REFUSED');
  });

  test('in the browser of another sign-in: neither its state, nor its nonce, nor its verifier fits', async () => {
    const [victim, attacker] = [await go(), await go()];
    const { cookie } = attacker.person;
    await expectRefused(attacker.person, victim.query, 'OIDC_REFUSED');
    // With the state of its own the stolen code is one of another verifier.
    const stolen = new URLSearchParams(attacker.query);
    stolen.set('code', victim.query.get('code') ?? '');
    attacker.person.cookie = cookie;
    await expectRefused(attacker.person, stolen, 'OIDC_REFUSED');
  });

  test('the second time, also with the cookie of the first', async () => {
    const { person, query } = await go();
    const { cookie } = person;
    expect((await comeBack(person, query)).headers.location).toBe('/');
    const replayed = new Person(service);
    replayed.cookie = cookie;
    await expectRefused(replayed, query, 'OIDC_REFUSED');
  });

  test('after ten minutes', async () => {
    const { person, query } = await go();
    ahead = 10 * 60_000 + 1;
    await expectRefused(person, query, 'OIDC_EXPIRED');
  });
});

const good = (): Claims => ({
  ...{ iss: issuer.url, aud: CLIENT_ID, sub: 'ada', iat: SECONDS(), jti: 'one', exp: SECONDS() + 60 },
  events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
});

describe('a logout token is refused', () => {
  const TOKENS: readonly (readonly [string, Claims, Lie['header']?, Lie['signedBy']?])[] = [
    ['with the algorithm none', {}, { alg: 'none' }, 'nothing'],
    ['signed with the client secret', {}, { alg: 'HS256' }, 'the client secret'],
    ['signed by another key', {}, {}, 'another key'],
    ['of another issuer', { iss: 'https://evil.example' }],
    ['for another client', { aud: 'another' }],
    ['without an event', { events: undefined }],
    ['of another event', { events: { 'http://example.com': {} } }],
    ['with a nonce, as an ID token has', { nonce: 'x' }],
    ['without a subject and a session', { sub: undefined }],
    ['without an id', { jti: undefined }],
    ['that is old', { iat: 1_700_000_000, exp: undefined }],
    ['that has expired', { exp: 1_700_000_000 }],
  ];
  const post = async (token: string): Promise<number> =>
    (
      await service.request({
        method: 'POST',
        path: '/sign-in/oidc/logout',
        headers: { 'Content-Type': 'application/x-www-form-urlencoded', ...callbacks.from().headers },
        body: new URLSearchParams({ logout_token: token }).toString(),
      })
    ).status;

  test.each(
    TOKENS.map(([name, claims, header = {}, signedBy]) => [name, { claims, header, signedBy }] as const),
  )('%s', async (_, { claims, header, signedBy }) => {
    await signsIn();
    const before = await accounts();
    expect(await post(await issuer.sign({ ...good(), ...claims }, header, signedBy))).toBe(400);
    expect(await accounts()).toEqual(before);
  });

  test('but for a good one, which ends the sessions', async () => {
    await signsIn();
    expect(await post(await issuer.sign(good()))).toBe(200);
    expect(await accounts()).toMatchObject({ sessions: 0, users: 1 });
  });

  test('the second time, and is remembered for as long as it is valid', async () => {
    await signsIn();
    const token = await issuer.sign({ ...good(), jti: 'twice' });
    const both = await Promise.all([post(token), post(token)]);
    expect(both.sort()).toEqual([200, 400]);
    await signsIn();
    expect(await post(token)).toBe(400);
    expect(await accounts()).toMatchObject({ sessions: 1 });
    const order = { digest: Buffer.alloc(32, 1), expiresAt: Date.now() } as LogoutOrder;
    const use = (now: number) => service.sql.begin((tx) => useLogoutToken(tx, order, now));
    expect(await use(Date.now() + 11 * 60_000)).toBe(true);
    const kept = async () => (await service.sql`SELECT FROM used_logout_tokens`).length;
    expect(await kept()).toBeGreaterThan(1);
    await use(Date.now() + 13 * 60_000);
    expect(await kept()).toBe(1);
  });

  test('and one that ends nothing is a line of the log', async () => {
    expect(await post(await issuer.sign({ ...good(), jti: 'nobody', sub: 'nobody' }))).toBe(200);
    const line = service.log.find(({ event }) => event === 'oidc.logout-unknown');
    expect(line).toMatchObject({ level: 'warn', cause: issuer.url });
  });
});

describe('the name of an issuer is that of its document,', () => {
  const sign = (url: string) => ({
    discovery: (document: Claims) => Object.assign(document, { issuer: url }),
    claims: (claims: Claims) => Object.assign(claims, { iss: url, sub: 'bob', email: 'bob@liar.example' }),
  });
  const WAYS = [
    ['OIDC_ISSUER lacks its last slash', '', '/'],
    ['its document has another name', '/.well-known/openid-configuration', '/realms/one'],
    ['OIDC_ISSUER has a slash more', '/', ''],
    ['OIDC_ISSUER is the address of the document', '/.well-known/openid-configuration', ''],
  ] as const;

  test.each(WAYS)('where %s', async (_, asked, named) => {
    const options = { clientId: CLIENT_ID, clientSecret: CLIENT_SECRET, scopes: 'openid', groupsClaim: '' };
    issuer.lie = sign(issuer.url + named);
    const own = new OidcIssuer({
      ...{ ...options, issuer: issuer.url + asked, publicUrl: PUBLIC_URL, log: captured([]), now: Date.now },
    });
    await own.check();
    expect(own.names.name).toBe(issuer.url + named);
  });

  test.each(first(WAYS.slice(0, 2)))('and accounts are joined by it where %s', async (_, asked, named) => {
    const [setting, name] = [issuer.url + asked, issuer.url + named];
    issuer.lie = sign(name);
    const config = {
      PUBLIC_URL,
      OIDC_CLIENT_ID: CLIENT_ID,
      OIDC_CLIENT_SECRET: CLIENT_SECRET,
      ALLOW_SIGNUP: 'open',
    };
    const database = await testDatabase('postgres18', { prepared: true });
    try {
      await withTestService({ database, config: { ...config, OIDC_ISSUER: setting } }, async (started) => {
        const signIn = async (): Promise<Person> => {
          const person = new Person(started);
          const query = issuer.answer((await person.get('/sign-in/oidc')).headers.location ?? '');
          query.set('iss', name);
          expect((await person.get(`/sign-in/oidc/callback?${query}`)).headers.location).toBe('/');
          return person;
        };
        const person = await signIn();
        expect((await person.get('/api/identity')).data).toEqual({ issuer: name, joined: true });
        expect(await started.sql`SELECT issuer FROM user_identities`).toMatchObject([{ issuer: name }]);
        // As "tidemark user join" stored it once.
        await started.sql`UPDATE user_identities SET issuer = ${setting}`;
        expect((await person.get('/api/identity')).data).toEqual({ issuer: name, joined: true });
        await signIn();
        const logout = { ...good(), iss: name, sub: 'bob', jti: randomUUID() };
        const body = new URLSearchParams({ logout_token: await issuer.sign(logout) }).toString();
        const headers = { 'Content-Type': 'application/x-www-form-urlencoded' };
        await started.request({ method: 'POST', path: '/sign-in/oidc/logout', headers, body });
        expect(await started.sql`SELECT FROM sessions`).toHaveLength(0);
        expect((await (await signIn()).delete('/api/identity')).status).toBe(200);
        expect(await started.sql`SELECT FROM user_identities`).toHaveLength(0);
        // The command stores the name that the document has.
        const [account] = await started.sql<{ email: string }[]>`SELECT email FROM users`;
        const settings = { ...config, DATABASE_URL: database.url, OIDC_ISSUER: setting };
        const join = ['user', 'join', '--email', account?.email ?? '', '--subject', 'bob', '--json'];
        const { code, stderr } = await tidemark(join, settings);
        expect([code, stderr]).toEqual([0, '']);
        expect(await started.sql`SELECT issuer FROM user_identities`).toEqual([{ issuer: name }]);
      });
    } finally {
      await database.drop();
      issuer.lie = {};
    }
  });
});

describe('an issuer that cannot be used', () => {
  const config = { PUBLIC_URL, OIDC_CLIENT_ID: CLIENT_ID, OIDC_CLIENT_SECRET: CLIENT_SECRET } as const;
  const LIES: readonly (readonly [string, Lie, number, RegExp])[] = [
    ['without discovery', { discoveryStatus: 404 }, 0, /./],
    ['whose document is a page', { discoveryStatus: 200 }, 0, /./],
    [
      'whose document is of another issuer',
      { discovery: (one) => Object.assign(one, { issuer: 'https://evil.example' }) },
      0,
      /issuer/,
    ],
    ['whose document has no keys', { discovery: (one) => delete one.jwks_uri }, 0, /jwks_uri/],
    [
      'whose keys come in plain text from elsewhere',
      { discovery: (one) => Object.assign(one, { jwks_uri: 'http://192.0.2.1/keys' }) },
      0,
      /jwks_uri of the discovery document must begin with https/,
    ],
    ['with a clock behind', {}, 120_000, /12[01] seconds ahead of the issuer's: set both by NTP/],
    ['with a clock ahead', {}, -120_000, /1(?:19|20) seconds behind the issuer's: set both by NTP/],
  ];
  test.each(LIES.filter(([, , off]) => off === 0))(
    '%s is found by the doctor',
    async (_, lie, _off, text) => {
      issuer.lie = lie;
      const settings = readConfig({ ...config, OIDC_ISSUER: issuer.url });
      expect(await oidcFacts(settings)).toMatchObject({
        problem: expect.stringMatching(text),
        redirectUri: `${PUBLIC_URL}/sign-in/oidc/callback`,
      });
    },
  );

  test.each(LIES.filter((_, index) => index === 0 || index === 5))(
    '%s is said at the start, turns the button off, and leaves the rest',
    async (_, lie, off, text) => {
      issuer.lie = lie;
      const clock = { wall: () => Date.now() + off, monotonic: () => performance.now() };
      await withTestService({ clock, config: { ...config, OIDC_ISSUER: issuer.url } }, async (started) => {
        const said = () => started.log.find(({ msg }) => /^oidc: sign-in is off until/.test(String(msg)));
        await until(() => said() !== undefined, 'the start says so');
        expect(said()).toMatchObject({ issuer: issuer.url, reason: expect.stringMatching(text) });
        const { data } = await new Person(started).get('/api/session');
        expect(data.oidc).toMatchObject({ available: false });
        expect((await started.request({ path: '/readyz' })).status).toBe(200);
        const { headers } = await new Person(started).get('/sign-in/oidc');
        expect(headers.location).toMatch(/^\/sign-in\?problem=OIDC_(?:REFUSED|UNREACHABLE)$/);
      });
    },
  );

  test('and the doctor says so, with the redirect address', async () => {
    const settings = { ...config, OIDC_ISSUER: issuer.url };
    for (const [off, text] of [
      [120_000, /12[01] seconds ahead of the issuer's: set both by NTP/],
      [-120_000, /1(?:19|20) seconds behind the issuer's: set both by NTP/],
    ] as const) {
      const facts = await oidcFacts(readConfig(settings), () => Date.now() + off);
      expect(facts).toMatchObject({
        redirectUri: `${PUBLIC_URL}/sign-in/oidc/callback`,
        problem: expect.stringMatching(text),
      });
    }
  });

  test('but a minute is allowed for, and the doctor finds nothing', async () => {
    const options = { clientId: CLIENT_ID, clientSecret: CLIENT_SECRET, scopes: 'openid', groupsClaim: '' };
    const log = captured([]);
    for (const off of [59_000, -59_000]) {
      const now = (): number => Date.now() + off;
      await new OidcIssuer({ ...options, issuer: issuer.url, publicUrl: PUBLIC_URL, log, now }).check();
    }
    const facts = await oidcFacts(readConfig({ ...config, OIDC_ISSUER: issuer.url }));
    expect(facts).toMatchObject({ problem: null });
  });
});

describe('what is wrong with an issuer is told in its words', () => {
  const config = { PUBLIC_URL, OIDC_CLIENT_ID: CLIENT_ID, OIDC_CLIENT_SECRET: CLIENT_SECRET } as const;
  const refusedFor = async (lie: Lie, cause: RegExp, kind = 'OIDC_REFUSED'): Promise<void> => {
    issuer.lie = lie;
    const { person, query } = await go();
    await expectRefused(person, query, kind, cause);
  };

  test('the algorithm that came, and what to set', async () => {
    const advice = /signs with HS256, and RS256 is expected: let the issuer sign .* with RS256, PS256/;
    await refusedFor({ header: { alg: 'HS256' }, signedBy: 'the client secret' }, advice);
    await refusedFor({ text: (token) => `${token}.more.parts` }, /is encrypted, which is not supported/);
    const only = {
      discovery: (one: Record<string, unknown>) =>
        Object.assign(one, { id_token_signing_alg_values_supported: ['HS256', 'none'] }),
    };
    issuer.lie = only;
    const facts = await oidcFacts(readConfig({ ...config, OIDC_ISSUER: issuer.url }));
    expect(facts?.problem).toMatch(/signs with HS256, none, and RS256.* are expected: let the issuer/);
  });

  test('what a token endpoint or a callback says of its error', async () => {
    const body = JSON.stringify({
      error: 'invalid_client',
      error_description: 'AADSTS7000222: secret expired',
    });
    await refusedFor(
      { tokenAnswer: [401, 'application/json', body] },
      /refused the code: invalid_client \(AADSTS7000222: secret expired\)/,
    );
    const { person, query } = await go();
    query.delete('code');
    query.set('error', 'access_denied');
    query.set('error_description', `not assigned ${'x'.repeat(1_000)}`);
    await expectRefused(person, query, 'OIDC_DENIED', /refused: access_denied \(not assigned x+\)$/);
  });

  test.each([
    [
      { discoveryStatus: 404 },
      '',
      /unexpected HTTP response status code: 404 from http:\S+openid-configuration/,
    ],
    [
      {
        discovery: (one: Record<string, unknown>) =>
          Object.assign(one, { issuer: 'https://login.example/a/b/' }),
      },
      '/',
      /document of OIDC_ISSUER http:\S+ names the issuer https:\/\/login.example\/a\/b\/: set OIDC_ISSUER to that/,
    ],
    [
      {
        discovery: (one: Record<string, unknown>) =>
          Object.assign(one, { issuer: 'https://login.example/{tenantid}/v2.0' }),
      },
      '',
      /names the issuer https:\S+\{tenantid\}\/v2.0: write the id of the tenant/,
    ],
  ] as const)('the status and both names of a document %j', async (lie, slash, text) => {
    issuer.lie = lie;
    const facts = await oidcFacts(readConfig({ ...config, OIDC_ISSUER: `${issuer.url}${slash}` }));
    expect(facts?.problem).toMatch(text);
  });

  test('an issuer that has changed its algorithm is read once more, within the sign-in', async () => {
    // A document of before the change.
    issuer.lie = {
      discovery: (one) => Object.assign(one, { id_token_signing_alg_values_supported: ['ES256'] }),
    };
    let now = Date.now();
    const options = { clientId: CLIENT_ID, clientSecret: CLIENT_SECRET, scopes: 'openid', groupsClaim: '' };
    const own = new OidcIssuer({
      ...options,
      issuer: issuer.url,
      publicUrl: PUBLIC_URL,
      log: captured([]),
      now: () => now,
    });
    const checks = { state: 'the state', nonce: 'the nonce', verifier: 'v'.repeat(43) };
    const signIn = async (): Promise<string> => {
      const query = issuer.answer(await own.authorizationUrl(checks));
      return (await own.identity(query.toString(), checks)).subject;
    };
    await expect(signIn()).rejects.toThrow('signs with RS256, and ES256 is expected');
    issuer.lie = {};
    // Not sooner than after ten seconds: each answer of a wrong algorithm would ask again.
    await expect(signIn()).rejects.toThrow('ES256 is expected');
    now += 11_000;
    expect(await signIn()).toBe('ada');
  });
});

test('what is right still signs in afterwards, and is the same account', async () => {
  await signsIn();
  expect(await accounts()).toMatchObject({ users: 1, identities: 1 });
});
