/**
 * Sign-in at real OpenID providers, oidc-provider and Debian's LemonLDAP::NG, and the refusal of what an attacker makes of their
 * answers: tokens that the provider signed for something else, and changes on the way. What only the holder of an issuer's key
 * could sign is in oidc-refusals.test.ts.
 */
import { createHmac, createPublicKey, type JsonWebKey } from 'node:crypto';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { OidcIssuer, type OidcIssuerOptions } from '../../src/accounts/oidc/issuer.ts';
import { mapGroup } from '../../src/apps/groups.ts';
import { Callbacks } from '../support/callbacks.ts';
import { hasLemonldap } from '../support/daemons.ts';
import {
  CONSENT_CLIENT_ID,
  EXPIRED_CLIENT_ID,
  LEMON_USER,
  type LemonIssuer,
  startLemonldap,
  UNSIGNED_CLIENT_ID,
} from '../support/lemonldap.ts';
import {
  CLIENT_ID,
  CLIENT_SECRET,
  OTHER_CLIENT_ID,
  SECRET_SIGNED_CLIENT_ID,
  startOidcIssuer,
} from '../support/oidc-issuer.ts';
import { Person } from '../support/person.ts';
import { captured, startTestService, type TestService } from '../support/service.ts';

const PUBLIC_URL = 'http://tidemark.test';
const EMAIL = 'dwho@badwolf.org';
const SCOPES = 'openid email profile groups';
const CHECKS = { state: 's'.repeat(43), nonce: 'n'.repeat(43), verifier: 'v'.repeat(43) };

type Issuer = LemonIssuer;
type Json = Record<string, unknown>;

async function startProvider(): Promise<Issuer> {
  const provider = await startOidcIssuer();
  await provider.serve(PUBLIC_URL, `${provider.url}/logged-out`);
  provider.user = {
    sub: LEMON_USER,
    claims: { email: EMAIL, email_verified: true, groups: ['users', 'timelords'] },
  };
  return provider;
}

/** The client of the service at an issuer, without the service. */
function clientOf(issuer: Issuer, options: Partial<OidcIssuerOptions> = {}): OidcIssuer {
  return new OidcIssuer({
    issuer: issuer.url,
    clientId: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    scopes: SCOPES,
    groupsClaim: 'groups',
    publicUrl: PUBLIC_URL,
    log: captured([]),
    now: Date.now,
    ...options,
  });
}

/** Signs in at an issuer for a client there. @returns the query that the browser comes back with */
async function queryOf(issuer: Issuer, client: OidcIssuer, checks = CHECKS): Promise<URLSearchParams> {
  return new URL(await issuer.signIn(await client.authorizationUrl(checks))).searchParams;
}

/** An ID token that the issuer signed for a client. */
async function realToken(issuer: Issuer, clientId: string, nonce: string): Promise<string> {
  const client = clientOf(issuer, { clientId });
  const query = await queryOf(issuer, client, { ...CHECKS, nonce });
  let token = '';
  issuer.change = ofTokens((answer) => {
    token = String(answer.id_token);
  });
  await client.identity(query.toString(), { ...CHECKS, nonce });
  issuer.change = null;
  return token;
}

const isTokenPath = (path: string): boolean => path === '/token' || path === '/oauth2/token';
const isUserInfoPath = (path: string): boolean => path === '/me' || path === '/oauth2/userinfo';

type Change = NonNullable<Issuer['change']>;

/** Changes the answer of the token endpoint. */
const ofTokens =
  (change: (answer: Json) => void | Promise<void>): Change =>
  async (path, answer) => {
    if (!isTokenPath(path)) return;
    const json = JSON.parse(answer.body) as Json;
    await change(json);
    answer.body = JSON.stringify(json);
  };

/** Puts something in place of the ID token. */
const ofIdToken = (forge: (token: string) => unknown): Change =>
  ofTokens(async (answer) => {
    answer.id_token = await forge(String(answer.id_token));
  });

/** Puts another answer in place of one. */
const instead =
  (isPath: (path: string) => boolean, status: number, type: string, body: string): Change =>
  (path, answer) => {
    if (isPath(path)) Object.assign(answer, { status, type, body });
  };

const base64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const partsOf = (token: string): [Json, Json, string] => {
  const [head = '', payload = '', signature = ''] = token.split('.');
  const parsed = (part: string): Json => JSON.parse(Buffer.from(part, 'base64url').toString()) as Json;
  return [parsed(head), parsed(payload), signature];
};

/** A case: its name, what is wrong, the cause in the log, and the code for the user. */
type Case<T> = readonly [string, T, RegExp, string];

/** Cases with the code that they lead to, where they do not name another. */
function withCode<T>(cases: readonly (readonly [string, T, RegExp, string?])[]): Case<T>[] {
  return cases.map(([name, what, cause, code = 'OIDC_REFUSED']) => [name, what, cause, code]);
}

const COMPONENTS: readonly ['oidc-provider' | 'lemonldap-ng', boolean][] = [
  ['oidc-provider', true],
  ['lemonldap-ng', hasLemonldap],
];

describe.each(COMPONENTS)('%s', (name, isHere) => {
  let issuer: Issuer;
  /** The other component; without LemonLDAP::NG another provider of the same kind. */
  let foreign: Issuer;
  let service: TestService;
  let callbacks: Callbacks;
  let publicKey: JsonWebKey;
  const attacker = generateKeyPair('RS256', { extractable: true });

  beforeAll(async () => {
    if (!isHere) return;
    issuer = await (name === 'oidc-provider' ? startProvider() : startLemonldap(PUBLIC_URL));
    foreign = await startProvider();
    service = await startTestService({
      config: {
        PUBLIC_URL,
        OIDC_ISSUER: issuer.url,
        OIDC_CLIENT_ID: CLIENT_ID,
        OIDC_CLIENT_SECRET: CLIENT_SECRET,
        OIDC_SCOPES: SCOPES,
        OIDC_GROUPS_CLAIM: 'groups',
        ALLOW_SIGNUP: 'open',
        // Each case comes from a network of its own, which no earlier one has slowed down.
        TRUST_PROXY: 1,
      },
    });
    callbacks = new Callbacks(
      service,
      async (location) => new URL(await issuer.signIn(location)).searchParams,
    );
    const document = (await (await fetch(`${issuer.url}/.well-known/openid-configuration`)).json()) as Json;
    const { keys } = (await (await fetch(String(document.jwks_uri))).json()) as { keys: JsonWebKey[] };
    publicKey = keys[0] ?? {};
  });
  afterEach(() => {
    vi.useRealTimers();
    if (!isHere) return;
    issuer.change = null;
    issuer.intercept = null;
  });
  afterAll(async () => {
    if (!isHere) return;
    await service.stop();
    await Promise.all([issuer.stop(), foreign.stop()]);
  });

  /** Goes to the issuer, whose answer to the code is changed, and expects a refusal. */
  const expectLieRefused = async (change: Change, cause: RegExp, code = 'OIDC_REFUSED'): Promise<void> => {
    const { person, query } = await callbacks.go();
    issuer.change = change;
    await callbacks.expectRefused(person, query, code, cause);
  };
  const signed = async (token: string, header: Json, payload: Json = {}): Promise<string> => {
    const [head, claims] = partsOf(token);
    return await new SignJWT({ ...claims, ...payload })
      .setProtectedHeader({ alg: 'RS256', ...head, ...header })
      .sign((await attacker).privateKey);
  };

  test.runIf(isHere)('signs a user in, with the groups of the issuer', async () => {
    const app = await service.newApp();
    await mapGroup(service.sql, { group: 'timelords', appId: app.appId, role: 'maintainer' });
    const { person, query } = await callbacks.go('/apps?range=7d');
    expect((await callbacks.comeBack(person, query)).headers.location).toBe('/apps?range=7d');
    expect((await person.get('/api/session')).data.user).toMatchObject({ email: EMAIL });
    expect((await person.get('/api/apps')).data.apps).toMatchObject([
      { appId: app.appId, role: 'maintainer' },
    ]);
    expect(
      await clientOf(issuer).identity((await queryOf(issuer, clientOf(issuer))).toString(), CHECKS),
    ).toMatchObject({
      issuer: issuer.url,
      subject: LEMON_USER,
      groups: expect.arrayContaining(['users', 'timelords']),
    });
    await callbacks.signsIn(EMAIL);
    expect(await callbacks.accounts()).toMatchObject({ users: 1, identities: 1 });
  });

  const hmac = (head: Json, claims: Json, key: string | Buffer): string => {
    const input = `${base64(head)}.${base64(claims)}`;
    return `${input}.${createHmac('sha256', key).update(input).digest('base64url')}`;
  };
  type Forge = (token: string) => string | null | Promise<string | null>;
  const FORGED: readonly (readonly [string, Forge, RegExp])[] = [
    [
      'with the algorithm none',
      (token) => `${base64({ alg: 'none' })}.${token.split('.')[1]}.`,
      /signs with none/,
    ],
    [
      'with the algorithm None and its signature',
      (token) => token.replace(/^[^.]+/, base64({ alg: 'None' })),
      /signs with None/,
    ],
    ['without its signature', (token) => token.replace(/[^.]+$/, ''), /signature/],
    [
      'signed with the client secret',
      (token) => hmac({ alg: 'HS256' }, partsOf(token)[1], CLIENT_SECRET),
      /signs with HS256/,
    ],
    [
      'signed with the public key as a secret',
      (token) => {
        const pem = createPublicKey({ key: publicKey, format: 'jwk' }).export({
          type: 'spki',
          format: 'pem',
        });
        return hmac({ alg: 'HS256' }, partsOf(token)[1], pem);
      },
      /signs with HS256/,
    ],
    ['signed by another key', (token) => signed(token, {}), /signature/],
    ['signed by a key of another name', (token) => signed(token, { kid: 'of the attacker' }), /key/],
    [
      'signed by a key that it has with it',
      async (token) => await signed(token, { jwk: await exportJWK((await attacker).publicKey) }),
      /signature/,
    ],
    [
      'signed by a key that it has an address of',
      (token) => signed(token, { jku: 'http://127.0.0.1:9/keys', x5u: 'http://127.0.0.1:9/chain' }),
      /signature/,
    ],
    [
      'with the name of another algorithm',
      (token) => token.replace(/^[^.]+/, base64({ ...partsOf(token)[0], alg: 'PS256' })),
      /alg|key|signature/,
    ],
    [
      'of another subject',
      (token) => token.replace(/\.[^.]+/, `.${base64({ ...partsOf(token)[1], sub: 'rtyler' })}`),
      /signature/,
    ],
    [
      'with another address and groups',
      (token) =>
        token.replace(
          /\.[^.]+/,
          `.${base64({ ...partsOf(token)[1], email: 'root@badwolf.org', groups: ['root'] })}`,
        ),
      /signature/,
    ],
    ['that is cut', (token) => token.slice(0, -4), /signature/],
    ['of five parts', (token) => `${token}.a.b`, /encrypted/],
    ['of two parts', (token) => token.split('.').slice(0, 2).join('.'), /JWT/],
    ['that is no token', () => 'of an attacker', /JWT/],
    ['that is empty', () => '', /id_token/],
    ['that is null', () => null, /id_token/],
  ];
  test.runIf(isHere).each(FORGED)('an ID token is refused %s', async (_, forge, cause) => {
    await expectLieRefused(ofIdToken(forge), cause);
  });

  test.runIf(isHere)(
    'an ID token is refused that the issuer signed for another client, sign-in, or never',
    async () => {
      const stolen: readonly (readonly [string, RegExp])[] = [
        [await realToken(issuer, OTHER_CLIENT_ID, 'x'), /"aud"/],
        [await realToken(issuer, CLIENT_ID, 'of an earlier sign-in'), /"nonce"/],
        [await realToken(foreign, CLIENT_ID, 'x'), /"iss"/],
      ];
      for (const [token, cause] of stolen)
        await expectLieRefused(
          ofIdToken(() => token),
          cause,
        );
    },
  );

  test.runIf(isHere)(
    'an ID token is refused that is signed with the secret, as the issuer was set up',
    async () => {
      const client = clientOf(issuer, { clientId: SECRET_SIGNED_CLIENT_ID });
      const query = await queryOf(issuer, client);
      await expect(client.identity(query.toString(), CHECKS)).rejects.toMatchObject({
        kind: 'invalid',
        message: /alg/,
      });
    },
  );

  test.runIf(isHere && name === 'lemonldap-ng')(
    'an ID token is refused that the issuer does not sign',
    async () => {
      const client = clientOf(issuer, { clientId: UNSIGNED_CLIENT_ID });
      const query = await queryOf(issuer, client);
      await expect(client.identity(query.toString(), CHECKS)).rejects.toMatchObject({
        kind: 'invalid',
        message: /alg/,
      });
    },
  );

  test.runIf(isHere)('an ID token is refused that has expired', async () => {
    if (name === 'lemonldap-ng') {
      const client = clientOf(issuer, { clientId: EXPIRED_CLIENT_ID });
      const query = await queryOf(issuer, client);
      await expect(client.identity(query.toString(), CHECKS)).rejects.toMatchObject({ message: /"exp"/ });
      return;
    }
    const { person, query } = await callbacks.go();
    // The provider is in this process: its clock is two hours behind while it makes the token, which is good for one.
    issuer.intercept = ({ url = '' }) => {
      if (isTokenPath(url)) vi.useFakeTimers({ now: Date.now() - 7_200_000, toFake: ['Date'] });
      return false;
    };
    issuer.change = () => void vi.useRealTimers();
    await callbacks.expectRefused(person, query, 'OIDC_REFUSED', /"exp"/);
  });

  const ANSWERS: readonly (readonly [string, Change, RegExp, string?])[] = [
    ['without an ID token', ofTokens((answer) => void delete answer.id_token), /id_token/],
    ['without an access token', ofTokens((answer) => void delete answer.access_token), /access_token/],
    [
      'with a token of another kind',
      ofTokens((answer) => void Object.assign(answer, { token_type: 'mac' })),
      /token/,
    ],
    ['that is a page', instead(isTokenPath, 200, 'text/html', '<p>problem of the issuer</p>'), /content/i],
    [
      'that is cut',
      instead(isTokenPath, 200, 'application/json', '{"id_token":"ey'),
      /JSON|parse/,
      'OIDC_REFUSED',
    ],
    [
      'of a server in trouble',
      instead(isTokenPath, 503, 'text/plain', 'problem of the issuer'),
      /./,
      'OIDC_UNREACHABLE',
    ],
    [
      'whose user info is of somebody else',
      instead(isUserInfoPath, 200, 'application/json', '{"sub":"rtyler","email":"root@badwolf.org"}'),
      /"sub"/,
    ],
    ['whose user info is of nobody', instead(isUserInfoPath, 200, 'application/json', '{}'), /"sub"/],
    [
      'whose user info is denied',
      instead(isUserInfoPath, 401, 'application/json', '{}'),
      /./,
      'OIDC_UNREACHABLE',
    ],
  ];
  test.runIf(isHere).each(withCode(ANSWERS))('an answer is refused %s', async (_, change, cause, code) => {
    await expectLieRefused(change, cause, code);
  });

  type Spoil = (query: URLSearchParams) => void | Promise<void>;
  const CALLBACKS: readonly (readonly [string, Spoil, RegExp, string?])[] = [
    ['with another state', (query) => query.set('state', 'x'.repeat(43)), /"state"/],
    ['without a state', (query) => query.delete('state'), /"state"/],
    ['with two states', (query) => query.append('state', query.get('state') ?? ''), /"state"/],
    ['without a code', (query) => query.delete('code'), /code/],
    ['with a code that the issuer did not give', (query) => query.set('code', 'made up'), /invalid_grant/],
    ['of another issuer (mix-up)', (query) => query.set('iss', foreign.url), /"iss"/],
    [
      'with the code of another issuer (mix-up)',
      async (query) => query.set('code', (await queryOf(foreign, clientOf(foreign))).get('code') ?? ''),
      /invalid_grant/,
    ],
    [
      'with the code of another client',
      async (query) => {
        const other = clientOf(issuer, { clientId: OTHER_CLIENT_ID });
        query.set('code', (await queryOf(issuer, other)).get('code') ?? '');
      },
      /invalid_grant/,
    ],
    [
      // oidc-provider compares the verifier; LemonLDAP::NG leaves that to a setting, and the nonce to the client.
      'with the code of another sign-in',
      async (query) => query.set('code', (await queryOf(issuer, clientOf(issuer))).get('code') ?? ''),
      /invalid_grant|"nonce"/,
    ],
    ['with an ID token in the address', (query) => query.set('id_token', 'made up'), /implicit/],
    [
      'with a signed answer in place of its parameters',
      (query) => query.set('response', 'made up'),
      /response/,
    ],
  ];
  test.runIf(isHere).each(withCode(CALLBACKS))('a callback is refused %s', async (_, spoil, cause, code) => {
    const { person, query } = await callbacks.go();
    await spoil(query);
    // LemonLDAP::NG may answer a code that it does not know with a status of its own: nothing comes of it either way.
    if (name === 'lemonldap-ng' && cause.test('invalid_grant'))
      await callbacks.expectRefused(person, query, /^OIDC_(?:REFUSED|UNREACHABLE)$/);
    else await callbacks.expectRefused(person, query, code, cause);
  });

  test.runIf(isHere)(
    'a callback is refused without its cookie, in another browser, and the second time',
    async () => {
      const { person, query } = await callbacks.go();
      const { cookie } = person;
      await callbacks.expectRefused(new Person(service), query, 'OIDC_EXPIRED');
      issuer.newBrowser();
      const other = await callbacks.go();
      await callbacks.expectRefused(other.person, query, 'OIDC_REFUSED', /"state"/);
      expect((await callbacks.comeBack(person, query)).headers.location).toBe('/');
      const replayed = new Person(service);
      replayed.cookie = cookie;
      // LemonLDAP::NG may answer with a status of its own: of neither answer comes an identity.
      if (name === 'lemonldap-ng')
        await callbacks.expectRefused(replayed, query, /^OIDC_(?:REFUSED|UNREACHABLE)$/);
      else await callbacks.expectRefused(replayed, query, 'OIDC_REFUSED', /invalid_grant/);
    },
  );

  test.runIf(isHere)('an error of the issuer leads back with a code alone', async () => {
    const person = new Person(service);
    const { headers } = await person.get('/sign-in/oidc', callbacks.from());
    const location = new URL(headers.location ?? '');
    location.searchParams.set('prompt', 'none');
    // Without a page LemonLDAP::NG asks nobody for a consent, and oidc-provider signs nobody in.
    if (name === 'lemonldap-ng') location.searchParams.set('client_id', CONSENT_CLIENT_ID);
    else issuer.newBrowser();
    const { searchParams } = new URL(await issuer.signIn(location.href));
    const error = name === 'lemonldap-ng' ? 'consent_required' : 'login_required';
    expect(searchParams.get('error')).toBe(error);
    await callbacks.expectRefused(person, searchParams, 'OIDC_DENIED', new RegExp(error));
  });

  test.runIf(isHere)('a client with a wrong secret gets nothing', async () => {
    const client = clientOf(issuer, { clientSecret: 'a guess' });
    const query = await queryOf(issuer, client);
    // LemonLDAP::NG may answer with a status of its own: of neither answer comes an identity.
    const kind = name === 'lemonldap-ng' ? expect.stringMatching(/^(?:invalid|unreachable)$/) : 'invalid';
    await expect(client.identity(query.toString(), CHECKS)).rejects.toMatchObject({ kind });
  });

  test.runIf(isHere)('the document of another issuer is refused, and keys that do not fit', async () => {
    const other = await (await fetch(`${foreign.url}/.well-known/openid-configuration`)).text();
    issuer.change = instead((path) => path.startsWith('/.well-known'), 200, 'application/json', other);
    await expect(clientOf(issuer).check()).rejects.toMatchObject({ kind: 'invalid', message: /issuer/ });
    const jwk = {
      ...(await exportJWK((await attacker).publicKey)),
      alg: 'RS256',
      use: 'sig',
      kid: 'of the attacker',
    };
    issuer.change = instead(
      (path) => path.endsWith('/jwks'),
      200,
      'application/json',
      JSON.stringify({ keys: [jwk] }),
    );
    const client = clientOf(issuer);
    const query = await queryOf(issuer, client);
    await expect(client.identity(query.toString(), CHECKS)).rejects.toMatchObject({
      kind: 'invalid',
      message: /key/,
    });
  });

  test.runIf(isHere)('a logout token is refused that is an ID token, of the issuer or another', async () => {
    const person = await callbacks.signsIn(EMAIL);
    for (const token of [await realToken(issuer, CLIENT_ID, 'x'), await realToken(foreign, CLIENT_ID, 'x')]) {
      const reply = await service.request({
        method: 'POST',
        path: '/sign-in/oidc/logout',
        headers: { 'Content-Type': 'application/x-www-form-urlencoded', ...callbacks.from().headers },
        body: new URLSearchParams({ logout_token: token }).toString(),
      });
      expect(reply.status).toBe(400);
    }
    expect((await person.get('/api/session')).data.user).toMatchObject({ email: EMAIL });
  });

  test.runIf(isHere)('what is right still signs in', async () => {
    await callbacks.signsIn(EMAIL);
    expect(await callbacks.accounts()).toMatchObject({ users: 1, identities: 1 });
  });
});

test.each(['PS256', 'ES256', 'EdDSA'] as const)('an issuer may sign with %s', async (algorithm) => {
  const issuer = await startOidcIssuer();
  try {
    await issuer.serve(PUBLIC_URL, `${issuer.url}/logged-out`, algorithm);
    const client = clientOf(issuer);
    expect(await client.identity((await queryOf(issuer, client)).toString(), CHECKS)).toMatchObject({
      subject: 'ada',
    });
  } finally {
    await issuer.stop();
  }
});
