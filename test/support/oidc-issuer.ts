/** An OpenID provider in this process (oidc-provider), whose users are signed in without a page. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

export const CLIENT_ID = 'tidemark';
export const CLIENT_SECRET = 'a secret of the client that nobody else has';

/** Claims of a user, by its subject. */
export type Claims = Readonly<Record<string, unknown>>;

export interface OidcIssuerServer {
  readonly url: string;
  /** Who signs in next. */
  user: { readonly sub: string; readonly claims: Claims };
  /** Answers in place of the provider's, while it is set; false leaves a request to the provider. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | null;
  /** Brings the provider up for a service at this address. */
  serve(publicUrl: string, logoutUrl: string): Promise<void>;
  /** What a browser without a page does there: follows redirects until one leads to the service. @returns that address */
  signIn(location: string): Promise<string>;
  /** Takes another browser, which no user has signed in with. */
  newBrowser(): void;
  /** Signs the user out at the issuer, which tells its clients. */
  signOut(): Promise<void>;
  stop(): Promise<void>;
}

export async function startOidcIssuer(): Promise<OidcIssuerServer> {
  let handle: (request: IncomingMessage, response: ServerResponse) => void = (_, response) =>
    response.writeHead(503).end();
  const server: Server = createServer((request, response) => {
    if (issuer.intercept?.(request, response) !== true) handle(request, response);
  });
  server.on('error', (error) => {
    throw error;
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const cookies = new Map<string, string>();

  const visit = async (address: string, method = 'GET', body?: URLSearchParams): Promise<Response> => {
    const response = await fetch(address, {
      method,
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(body !== undefined && { body }),
    });
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === '') cookies.delete(name);
      else cookies.set(name, value);
    }
    return response;
  };

  const issuer: OidcIssuerServer = {
    url,
    user: { sub: 'ada', claims: {} },
    intercept: null,
    serve: async (publicUrl, logoutUrl) => {
      const { privateKey } = await generateKeyPair('RS256', { extractable: true });
      const key = { ...(await exportJWK(privateKey)), alg: 'RS256', use: 'sig', kid: 'first' };
      const made = new Provider(url, {
        jwks: { keys: [key] },
        clients: [
          {
            client_id: CLIENT_ID,
            client_secret: CLIENT_SECRET,
            redirect_uris: [`${publicUrl}/sign-in/oidc/callback`],
            backchannel_logout_uri: logoutUrl,
            backchannel_logout_session_required: true,
          },
        ],
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
    },
    signIn: async (location) => {
      let next = location;
      for (let steps = 0; steps < 10; steps += 1) {
        const response = await visit(next);
        const to = response.headers.get('location');
        if (to === null)
          throw new Error(`the issuer answered ${response.status}: ${(await response.text()).slice(0, 500)}`);
        next = new URL(to, url).href;
        if (!next.startsWith(url)) return next;
      }
      throw new Error('the issuer leads in a circle');
    },
    newBrowser: () => cookies.clear(),
    signOut: async () => {
      const page = await (await visit(`${url}/session/end`)).text();
      const secret = /name="xsrf" value="([^"]+)"/.exec(page)?.[1] ?? '';
      await visit(`${url}/session/end/confirm`, 'POST', new URLSearchParams({ xsrf: secret, logout: 'yes' }));
      cookies.clear();
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return issuer;
}
