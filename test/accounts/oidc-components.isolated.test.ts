/**
 * Sign-in at real OpenID providers, oidc-provider and Debian's LemonLDAP::NG, and the refusal of what an attacker makes of their
 * answers with what they have signed for something else. What only somebody between or the holder of a key could make is in
 * oidc-refusals.test.ts.
 */
import { exportJWK, generateKeyPair } from 'jose';
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

  type Spoil = (query: URLSearchParams) => void | Promise<void>;
  const CALLBACKS: readonly (readonly [string, Spoil, RegExp, string?])[] = [
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
  ];
  test.runIf(isHere).each(withCode(CALLBACKS))('a callback is refused %s', async (_, spoil, cause, code) => {
    const { person, query } = await callbacks.go();
    await spoil(query);
    // LemonLDAP::NG may answer a code that it does not know with a status of its own: nothing comes of it either way.
    if (name === 'lemonldap-ng' && cause.test('invalid_grant'))
      await callbacks.expectRefused(person, query, /^OIDC_(?:REFUSED|UNREACHABLE)$/);
    else await callbacks.expectRefused(person, query, code, cause);
  });

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
