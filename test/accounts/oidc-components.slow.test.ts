/** Sign-in at real OpenID providers, oidc-provider and Debian's LemonLDAP::NG. What is refused is in oidc-refusals.test.ts. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OidcIssuer } from '../../src/accounts/oidc/issuer.ts';
import { mapGroup } from '../../src/apps/groups.ts';
import { Callbacks } from '../support/callbacks.ts';
import { hasLemonldap } from '../support/daemons.ts';
import { CONSENT_CLIENT_ID, LEMON_USER, type LemonIssuer, startLemonldap } from '../support/lemonldap.ts';
import { CLIENT_ID, CLIENT_SECRET, startOidcIssuer } from '../support/oidc-issuer.ts';
import { Person } from '../support/person.ts';
import { captured, startTestService, type TestService } from '../support/service.ts';

const PUBLIC_URL = 'http://tidemark.test';
const EMAIL = 'dwho@badwolf.org';
const SCOPES = 'openid email profile groups';
const CHECKS = { state: 's'.repeat(43), nonce: 'n'.repeat(43), verifier: 'v'.repeat(43) };

type Issuer = LemonIssuer;

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
function clientOf(issuer: Issuer): OidcIssuer {
  return new OidcIssuer({
    issuer: issuer.url,
    clientId: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    scopes: SCOPES,
    groupsClaim: 'groups',
    publicUrl: PUBLIC_URL,
    log: captured([]),
    now: Date.now,
  });
}

/** Signs in at an issuer for a client there. @returns the query that the browser comes back with */
async function queryOf(issuer: Issuer, client: OidcIssuer): Promise<URLSearchParams> {
  return new URL(await issuer.signIn(await client.authorizationUrl(CHECKS))).searchParams;
}

const COMPONENTS: readonly ['oidc-provider' | 'lemonldap-ng', boolean][] = [
  ['oidc-provider', true],
  ['lemonldap-ng', hasLemonldap],
];

describe.each(COMPONENTS)('%s', (name, isHere) => {
  let issuer: Issuer;
  let service: TestService;
  let callbacks: Callbacks;

  beforeAll(async () => {
    if (!isHere) return;
    issuer = await (name === 'oidc-provider' ? startProvider() : startLemonldap(PUBLIC_URL));
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
  afterAll(async () => {
    if (!isHere) return;
    await service.stop();
    await issuer.stop();
  });

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
