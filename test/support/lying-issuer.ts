/** An OpenID issuer in this process that signs whatever a test wants: a certified provider cannot be made to lie. */
import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';

export type Claims = Record<string, unknown>;

/** What is wrong with the answers to one sign-in; what is left out is right. */
export interface Lie {
  /** Changes the claims of the ID token. */
  readonly claims?: (claims: Claims) => void;
  /** Changes the header of the ID token before it is signed. */
  readonly header?: Readonly<Record<string, unknown>>;
  /** Signs in another way than by the issuer's key. */
  readonly signedBy?: 'another key' | 'nothing' | 'the client secret' | 'the public key';
  /** Changes the text of the ID token after it was signed. */
  readonly text?: (token: string) => string;
  /** Changes the answer of the token endpoint. */
  readonly tokens?: (answer: Record<string, unknown>) => void;
  /** Status and body of the token endpoint in place of its answer. */
  readonly tokenAnswer?: readonly [number, string, string];
  /** Changes the discovery document. */
  readonly discovery?: (document: Record<string, unknown>) => void;
  /** Status of the discovery document, which then is a page. */
  readonly discoveryStatus?: number;
  /** Claims of the userinfo endpoint in place of the right ones; a number is a status. */
  readonly userInfo?: Claims | number;
}

export interface LyingIssuer {
  readonly url: string;
  lie: Lie;
  /** The query with which the browser comes back from an authorization request. */
  answer(location: string): URLSearchParams;
  /** A token that is signed by the issuer's key. */
  sign(
    claims: Claims,
    header?: Readonly<Record<string, unknown>>,
    signedBy?: Lie['signedBy'],
  ): Promise<string>;
  stop(): Promise<void>;
}

interface Asked {
  readonly nonce: string;
  readonly challenge: string;
  readonly clientId: string;
}

const base64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

/** @param clientSecret of the only client */
export async function startLyingIssuer(clientId: string, clientSecret: string): Promise<LyingIssuer> {
  const [own, other] = [await generateKeyPair('RS256'), await generateKeyPair('RS256')];
  const jwk: JWK = { ...(await exportJWK(own.publicKey)), alg: 'RS256', use: 'sig', kid: 'own' };
  /** By code; each is good once. */
  const codes = new Map<string, Asked>();
  let count = 0;
  /** Of the last ID token. */
  let subject = '';

  const server = createServer((request, response) => {
    void handle(request, response).catch((error: unknown) => {
      response.writeHead(500).end(String(error));
    });
  });
  server.on('error', (error) => {
    throw error;
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const json = (response: ServerResponse, body: unknown, status = 200): void => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  };

  const sign: LyingIssuer['sign'] = async (claims, header = {}, signedBy) => {
    const head = { alg: 'RS256', kid: 'own', ...header };
    const input = `${base64(head)}.${base64(claims)}`;
    const byText = (key: string): string => createHmac('sha256', key).update(input).digest('base64url');
    if (signedBy === 'nothing') return `${input}.`;
    if (signedBy === 'the client secret') return `${input}.${byText(clientSecret)}`;
    if (signedBy === 'the public key') return `${input}.${byText(JSON.stringify(jwk))}`;
    const key = signedBy === 'another key' ? other.privateKey : own.privateKey;
    const signature = (await new SignJWT(claims).setProtectedHeader({ alg: 'RS256' }).sign(key)).split(
      '.',
    )[2];
    if (Object.keys(header).length === 0)
      return await new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'own' }).sign(key);
    if (head.alg !== 'RS256' || 'crit' in head) return `${input}.${signature}`;
    return await new SignJWT(claims).setProtectedHeader({ ...head, alg: 'RS256' }).sign(key);
  };

  const idToken = async ({ nonce }: Asked): Promise<string> => {
    const now = Math.floor(Date.now() / 1_000);
    const claims: Claims = {
      ...{ iss: url, aud: clientId, sub: 'ada', nonce, iat: now, exp: now + 300 },
      ...{ email: 'ada@liar.example', email_verified: true },
    };
    const { lie } = issuer;
    lie.claims?.(claims);
    subject = String(claims.sub);
    const token = await sign(claims, lie.header, lie.signedBy);
    return lie.text?.(token) ?? token;
  };

  const token = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk as Uint8Array));
    const body = new URLSearchParams(Buffer.concat(chunks).toString());
    const asked = codes.get(body.get('code') ?? '');
    codes.delete(body.get('code') ?? '');
    const digest = createHash('sha256')
      .update(body.get('code_verifier') ?? '')
      .digest('base64url');
    const basic = Buffer.from(`${clientId}:${encodeURIComponent(clientSecret).replaceAll('%20', '+')}`);
    if (request.headers.authorization !== `Basic ${basic.toString('base64')}`)
      return json(response, { error: 'invalid_client' }, 401);
    if (asked === undefined || digest !== asked.challenge || asked.clientId !== clientId)
      return json(response, { error: 'invalid_grant' }, 400);
    const { lie } = issuer;
    if (lie.tokenAnswer !== undefined) {
      const [status, type, text] = lie.tokenAnswer;
      response.writeHead(status, { 'content-type': type }).end(text);
      return;
    }
    const answer: Record<string, unknown> = {
      ...{ access_token: 'of ada', token_type: 'Bearer', expires_in: 300 },
      id_token: await idToken(asked),
    };
    lie.tokens?.(answer);
    json(response, answer);
  };

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { lie } = issuer;
    switch (request.url) {
      case '/.well-known/openid-configuration': {
        const document: Record<string, unknown> = {
          issuer: url,
          authorization_endpoint: `${url}/authorize`,
          token_endpoint: `${url}/token`,
          userinfo_endpoint: `${url}/userinfo`,
          jwks_uri: `${url}/keys`,
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['RS256'],
          authorization_response_iss_parameter_supported: true,
        };
        lie.discovery?.(document);
        if (lie.discoveryStatus === undefined) return json(response, document);
        response.writeHead(lie.discoveryStatus, { 'content-type': 'text/html' }).end('<p>nothing</p>');
        return;
      }
      case '/keys':
        return json(response, { keys: [jwk] });
      case '/token':
        return await token(request, response);
      case '/userinfo':
        if (typeof lie.userInfo === 'number') return json(response, {}, lie.userInfo);
        return json(response, lie.userInfo ?? { sub: subject });
      default:
        json(response, {}, 404);
    }
  };

  const issuer: LyingIssuer = {
    url,
    lie: {},
    answer: (location) => {
      const asked = new URL(location).searchParams;
      count += 1;
      const code = `code-${count}`;
      codes.set(code, {
        nonce: asked.get('nonce') ?? '',
        challenge: asked.get('code_challenge') ?? '',
        clientId: asked.get('client_id') ?? '',
      });
      return new URLSearchParams({ code, state: asked.get('state') ?? '', iss: url });
    },
    sign,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return issuer;
}
