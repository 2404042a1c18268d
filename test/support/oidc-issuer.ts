/** An OpenID provider in this process (oidc-provider), whose users are signed in without a page. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';
import { type IssuerFront, startIssuerFront } from './issuer-front.ts';

export const CLIENT_ID = 'tidemark';
export const CLIENT_SECRET = 'a secret of the client that nobody else has';

/** What the provider signs ID tokens with. */
export type Algorithm = 'RS256' | 'PS256' | 'ES256' | 'EdDSA';

/** Claims of a user, by its subject. */
export type Claims = Readonly<Record<string, unknown>>;

export interface OidcIssuerServer extends Pick<IssuerFront, 'url' | 'intercept' | 'newBrowser'> {
  /** Who signs in next. */
  user: { readonly sub: string; readonly claims: Claims };
  /** Brings the provider up for a service at this address, with keys of its own. */
  serve(publicUrl: string, logoutUrl: string, algorithm?: Algorithm): Promise<void>;
  /** Signs the user in there. @returns the address at the service that the browser is sent to */
  signIn(location: string): Promise<string>;
  /** Signs the user out at the issuer, which tells its clients. */
  signOut(): Promise<void>;
  stop(): Promise<void>;
}

export async function startOidcIssuer(): Promise<OidcIssuerServer> {
  let handle: (request: IncomingMessage, response: ServerResponse) => void = (_, response) =>
    response.writeHead(503).end();
  const front = await startIssuerFront();
  const { url, stop: stopFront } = front;
  const server = createServer((request, response) => handle(request, response));
  server.on('error', (error) => {
    throw error;
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  front.behind = { port: (server.address() as AddressInfo).port };

  const serve: OidcIssuerServer['serve'] = async (publicUrl, logoutUrl, algorithm = 'RS256') => {
    const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
    const key = { ...(await exportJWK(privateKey)), alg: algorithm, use: 'sig', kid: 'first' };
    const client = {
      client_secret: CLIENT_SECRET,
      redirect_uris: [`${publicUrl}/sign-in/oidc/callback`],
      id_token_signed_response_alg: algorithm,
    } as const;
    const made = new Provider(url, {
      jwks: { keys: [key] },
      clients: [
        {
          ...client,
          client_id: CLIENT_ID,
          backchannel_logout_uri: logoutUrl,
          backchannel_logout_session_required: true,
        },
      ],
      enabledJWA: { idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'EdDSA'] },
      cookies: { keys: ['of a test'] },
      // The provider's own refuses addresses of this machine.
      fetch: (address, { dispatcher: _, ...options } = {}) => fetch(address, options),
      features: {
        devInteractions: { enabled: false },
        backchannelLogout: { enabled: true },
        rpInitiatedLogout: {
          enabled: true,
          logoutSource: (ctx, form) => {
            ctx.body = `<html><body>${form}</body></html>`;
          },
        },
      },
      claims: { openid: ['sub', 'sid'], email: ['email', 'email_verified'], groups: ['groups'] },
      scopes: ['openid', 'email', 'profile', 'groups'],
      interactions: { url: () => '/interaction' },
      findAccount: (_ctx, sub) => ({
        accountId: sub,
        claims: async () => ({ sub, ...(sub === issuer.user.sub ? issuer.user.claims : {}) }),
      }),
      loadExistingGrant: async (ctx) => {
        const grant = new ctx.oidc.provider.Grant({
          clientId: ctx.oidc.client?.clientId ?? '',
          accountId: ctx.oidc.session?.accountId ?? '',
        });
        grant.addOIDCScope('openid email profile groups');
        await grant.save();
        return grant;
      },
    });
    const callback = made.callback();
    handle = (request, response) => {
      if (request.url?.startsWith('/interaction') === true)
        void made.interactionFinished(request, response, { login: { accountId: issuer.user.sub } });
      else void callback(request, response);
    };
  };

  // The front itself, which reads what the tests set.
  const issuer: OidcIssuerServer = Object.assign(front, {
    user: { sub: 'ada', claims: {} },
    serve,
    signIn: (location: string) => front.visit(location, issuer.user.sub),
    signOut: async () => {
      const page = await (await front.ask(`${url}/session/end`)).text();
      const secret = /name="xsrf" value="([^"]+)"/.exec(page)?.[1] ?? '';
      await front.ask(
        `${url}/session/end/confirm`,
        'POST',
        new URLSearchParams({ xsrf: secret, logout: 'yes' }),
      );
      front.newBrowser();
    },
    stop: async () => {
      server.closeAllConnections();
      await Promise.all([stopFront(), new Promise((done) => server.close(done))]);
    },
  });
  return issuer;
}
