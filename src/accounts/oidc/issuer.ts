/**
 * The OpenID Connect issuer: discovery, the authorization code flow with PKCE, and its logout tokens.
 *
 * Sources: OpenID Connect Core 1.0, Discovery 1.0, Back-Channel Logout 1.0; RFC 7636 (PKCE), RFC 9207 (`iss` in the answer).
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { createRemoteJWKSet, decodeProtectedHeader, errors, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import type { Logger } from 'pino';
import type { Config } from '../../config.ts';
import { isLoopbackName } from '../../http/client-address.ts';

export interface OidcSettings {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scopes: string;
  /** Empty: no claim has groups. */
  readonly groupsClaim: string;
  /** PUBLIC_URL, without a trailing slash. */
  readonly publicUrl: string;
}

/**
 * What the settings say of an issuer.
 * @returns null without one; a text that says what is missing, with which sign-in at the issuer is off
 */
export function oidcSettings(config: Config): OidcSettings | string | null {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: clientId, OIDC_CLIENT_SECRET: clientSecret } = config;
  if (issuer === '') {
    if (config.OIDC_ONLY) return 'OIDC_ONLY is true, and OIDC_ISSUER is not set: set it, or remove OIDC_ONLY';
    if (config.OIDC_TRUST_EMAIL || config.OIDC_GROUPS_CLAIM !== '')
      return 'OIDC_TRUST_EMAIL or OIDC_GROUPS_CLAIM is set without OIDC_ISSUER';
    return clientId === '' && clientSecret === ''
      ? null
      : 'OIDC_CLIENT_ID or OIDC_CLIENT_SECRET is set without OIDC_ISSUER';
  }
  if (clientId === '') return 'OIDC_ISSUER needs OIDC_CLIENT_ID, the id of this service at the issuer';
  if (clientSecret === '') return 'OIDC_ISSUER needs OIDC_CLIENT_SECRET or OIDC_CLIENT_SECRET_FILE';
  if (config.PUBLIC_URL === '')
    return 'OIDC_ISSUER needs PUBLIC_URL, to which the issuer sends browsers back';
  return {
    issuer,
    clientId,
    clientSecret,
    scopes: config.OIDC_SCOPES,
    groupsClaim: config.OIDC_GROUPS_CLAIM,
    publicUrl: config.PUBLIC_URL,
  };
}

export interface OidcIssuerOptions extends OidcSettings {
  readonly log: Logger;
  readonly now: () => number;
}

/** What a browser takes to the issuer and must bring back. */
export interface OidcChecks {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** An issuer, and what else it may be called where something is stored of it. */
export interface IssuerNames {
  /** As its discovery document has it, and each of its tokens. */
  readonly name: string;
  /** With the spellings of OIDC_ISSUER, which earlier releases stored for `user join`. */
  readonly all: readonly string[];
}

/** Who signed in at the issuer. */
export interface OidcIdentity {
  readonly issuer: string;
  /** What else the issuer may be called in rows of earlier releases. */
  readonly spellings: readonly string[];
  readonly subject: string;
  /** The session at the issuer; null if it names none. */
  readonly sid: string | null;
  readonly email: string | null;
  /** Whether the issuer says that the address is verified. */
  readonly emailVerified: boolean;
  /** Null: the issuer has said nothing of groups, which is not the same as none. */
  readonly groups: readonly string[] | null;
}

/** What a logout token ends: all sessions of a subject, or one session at the issuer. */
export interface LogoutOrder {
  readonly issuer: string;
  /** What else the issuer may be called in rows of earlier releases. */
  readonly spellings: readonly string[];
  readonly subject: string | null;
  readonly sid: string | null;
  /** SHA-256 of the token's id. */
  readonly digest: Buffer;
  /** Until when the token would be accepted, in milliseconds since the Unix epoch. */
  readonly expiresAt: number;
}

/** An answer of the issuer that is refused, or an issuer that does not answer. The log has the message, the user does not. */
export class OidcFailure extends Error {
  override readonly name = 'OidcFailure';
  /** `unreachable`: nobody was found to be guilty, so it may work later. `denied`: the user or the issuer said no. */
  readonly kind: 'unreachable' | 'denied' | 'invalid';

  constructor(kind: OidcFailure['kind'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

export const CALLBACK_PATH = '/sign-in/oidc/callback';
/** Timeout of each request to the issuer: a user waits for it. */
const TIMEOUT_SECONDS = 5;
/** After a failure the issuer is asked again no sooner; after a success its document is renewed this late. */
const RETRY_AFTER_MS = 10_000;
const RENEW_AFTER_MS = 3_600_000;
/** Clocks that differ by more make tokens expire early or late. */
export const MAX_CLOCK_DIFFERENCE_MS = 60_000;
/** A logout token older than this is refused, whatever its `exp` says. */
const MAX_LOGOUT_AGE_SECONDS = 600;
const LOGOUT_EVENT = 'http://schemas.openid.net/event/backchannel-logout';
const MAX_GROUPS = 1_000;
const MAX_GROUP_CHARACTERS = 200;
/** Names of claims in a line of the log. */
const MAX_CLAIMS_LOGGED = 50;
/** Error codes of OAuth are shorter. */
const MAX_ERROR_CHARACTERS = 60;
const MAX_DESCRIPTION_CHARACTERS = 300;
/** What signs tokens of an issuer here: by its public keys, never by the client's secret. */
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'];
const SET_ALGORITHM =
  'let the issuer sign the tokens of this client with RS256, PS256, ES256 or EdDSA, by a key of its jwks_uri';
/** The answer of the token endpoint to the sign-in in progress: a code is good for one answer. */
const tokenAnswer = new AsyncLocalStorage<{ text: string | null }>();

/** What an issuer says of a user, by the claims' names. */
type Claims = Readonly<Record<string, unknown>>;

interface Discovered {
  readonly config: oidc.Configuration;
  readonly keys: ReturnType<typeof createRemoteJWKSet>;
  readonly at: number;
}

export class OidcIssuer {
  readonly #options: OidcIssuerOptions;
  #discovered: Discovered | null = null;
  #discovering: Promise<Discovered> | null = null;
  /** The last failure of a discovery; null after a success. */
  #failure: { readonly at: number; readonly error: OidcFailure } | null = null;

  constructor(options: OidcIssuerOptions) {
    this.#options = options;
  }

  /** Whether the last question was answered, as far as this process knows. Asks again in the background where it is time to. */
  get isAvailable(): boolean {
    this.#discover().catch(() => undefined); // The failure is kept, and logged when it begins.
    return this.#failure === null;
  }

  /** By its document, once that has been read; before, by OIDC_ISSUER. */
  get names(): IssuerNames {
    return issuerNames(this.#options.issuer, this.#discovered?.config.serverMetadata().issuer);
  }

  /** Asks for the issuer's document now. @throws OidcFailure */
  async check(): Promise<void> {
    await this.#discover();
  }

  /** @throws OidcFailure if the issuer does not answer */
  async authorizationUrl(checks: OidcChecks): Promise<string> {
    const { config } = await this.#discover();
    return oidc.buildAuthorizationUrl(config, {
      redirect_uri: this.#redirectUri,
      scope: this.#options.scopes,
      state: checks.state,
      nonce: checks.nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(checks.verifier),
      code_challenge_method: 'S256',
    }).href;
  }

  /**
   * Exchanges the code of a callback for the identity of the user. Signature, issuer, audience, nonce, state, times and the
   * `iss` parameter are checked.
   * @param query of the callback, without the question mark
   * @throws OidcFailure
   */
  async identity(query: string, checks: OidcChecks): Promise<OidcIdentity> {
    const first = await this.#discover();
    const read = ({ config }: Discovered) =>
      oidc.authorizationCodeGrant(config, new URL(`${this.#redirectUri}?${query}`), {
        expectedState: checks.state,
        expectedNonce: checks.nonce,
        pkceCodeVerifier: checks.verifier,
        idTokenExpected: true,
      });
    try {
      const [{ config }, tokens] = await tokenAnswer.run({ text: null }, async () => {
        try {
          return [first, await read(first)] as const;
        } catch (error) {
          // The issuer may have changed what it signs with since its document was read: the same answer is read by the new one.
          if (unexpectedAlgorithm(error) === null) throw error;
          const second = await this.#discover(RETRY_AFTER_MS);
          if (second === first) throw error;
          return [second, await read(second)] as const;
        }
      });
      const claims = tokens.claims();
      if (claims === undefined) throw new OidcFailure('invalid', 'the answer has no ID token');
      const hasUserInfo = config.serverMetadata().userinfo_endpoint !== undefined;
      const more = hasUserInfo ? await oidc.fetchUserInfo(config, tokens.access_token, claims.sub) : {};
      return this.#identityOf(claims, more);
    } catch (error) {
      throw failureOf(error);
    }
  }

  /**
   * Reads a logout token (Back-Channel Logout 1.0, 2.6). Whether it was used before is for the caller to find out.
   * @throws OidcFailure if it is not one of this issuer for this service
   */
  async logoutOrder(token: string): Promise<LogoutOrder> {
    const { config, keys } = await this.#discover();
    try {
      const { payload } = await jwtVerify(token, keys, {
        issuer: config.serverMetadata().issuer,
        audience: this.#options.clientId,
        algorithms: ALGORITHMS,
        requiredClaims: ['iat', 'jti', 'events'],
        maxTokenAge: MAX_LOGOUT_AGE_SECONDS,
        clockTolerance: MAX_CLOCK_DIFFERENCE_MS / 1_000,
        currentDate: new Date(this.#options.now()),
      });
      const { events, nonce, sid, sub, jti, iat = 0 } = payload;
      if (typeof events !== 'object' || events === null || !(LOGOUT_EVENT in events))
        throw new OidcFailure('invalid', 'the token is not one for a logout');
      // It would be an ID token.
      if (nonce !== undefined) throw new OidcFailure('invalid', 'a logout token has no nonce');
      const order = {
        issuer: this.names.name,
        spellings: this.names.all,
        subject: sub ?? null,
        sid: textOf(sid),
        digest: createHash('sha256')
          .update(jti ?? '')
          .digest(),
        expiresAt: (iat + MAX_LOGOUT_AGE_SECONDS) * 1_000 + 2 * MAX_CLOCK_DIFFERENCE_MS,
      };
      if (order.subject === null && order.sid === null)
        throw new OidcFailure('invalid', 'the token names no subject and no session');
      return order;
    } catch (error) {
      if (error instanceof errors.JOSEAlgNotAllowed)
        throw wrongAlgorithm(decodeProtectedHeader(token).alg, ALGORITHMS, error);
      throw failureOf(error);
    }
  }

  get #redirectUri(): string {
    return this.#options.publicUrl + CALLBACK_PATH;
  }

  /** @param more of the userinfo endpoint, for what the ID token does not say */
  #identityOf(claims: oidc.IDToken, more: Claims): OidcIdentity {
    // "Verified" is said of the address beside it.
    const { email, email_verified: emailVerified } =
      textOf(claims.email) === null ? more : (claims as Claims);
    return {
      issuer: claims.iss,
      spellings: this.names.all,
      subject: claims.sub,
      sid: textOf(claims.sid),
      email: textOf(email),
      emailVerified: emailVerified === true,
      groups: this.#groupsOf(claims, more),
    };
  }

  /**
   * Groups are texts; some issuers send one text in place of a list.
   * @throws OidcFailure where the claim does not have all of them: the access by those that are left out would end
   */
  #groupsOf(claims: Claims, more: Claims): readonly string[] | null {
    const { groupsClaim: name, log } = this.#options;
    if (name === '') return null;
    const value = claimOf(claims, name) ?? claimOf(more, name);
    // OpenID Connect Core 1.0, 5.6.2: the claim is elsewhere. Entra ID does so with more groups than a token holds.
    const elsewhere = claims._claim_names ?? more._claim_names;
    if (value === undefined && typeof elsewhere === 'object' && elsewhere !== null && name in elsewhere)
      throw new OidcFailure(
        'invalid',
        `the user has more groups than the issuer puts into the claim ${name}: let it send those of this application alone`,
      );
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    if (list.length > MAX_GROUPS)
      throw new OidcFailure('invalid', `the claim ${name} has more than ${MAX_GROUPS} groups`);
    const texts = list.filter((one) => typeof one === 'string');
    if (texts.length === 0 && list.length > 0) {
      const came = [...new Set([...Object.keys(claims), ...Object.keys(more)])].slice(0, MAX_CLAIMS_LOGGED);
      log.warn(
        { claim: name, came },
        value === undefined
          ? 'oidc: the claim of OIDC_GROUPS_CLAIM did not come: the sign-in changes no role'
          : 'oidc: the claim of OIDC_GROUPS_CLAIM has no list of texts: the sign-in changes no role',
      );
      return null;
    }
    const names = texts.filter((text) => textOf(text) !== null && text.length <= MAX_GROUP_CHARACTERS);
    return [...new Set(names)];
  }

  /** The issuer's document: from memory, or asked for, once for all who wait. @param newerThanMs how old it may be */
  #discover(newerThanMs = RENEW_AFTER_MS): Promise<Discovered> {
    const now = this.#options.now();
    const known = this.#discovered;
    if (known !== null && this.#failure === null && now - known.at < newerThanMs)
      return Promise.resolve(known);
    if (this.#failure !== null && Math.abs(now - this.#failure.at) < RETRY_AFTER_MS)
      return Promise.reject(this.#failure.error);
    this.#discovering ??= this.#ask().finally(() => {
      this.#discovering = null;
    });
    return this.#discovering;
  }

  async #ask(): Promise<Discovered> {
    const { log, now, issuer } = this.#options;
    try {
      const discovered = await discover(this.#options);
      if (this.#failure !== null) log.info({ issuer }, 'oidc: the issuer answers again');
      this.#failure = null;
      this.#discovered = discovered;
      return discovered;
    } catch (error) {
      const failure = failureOf(error);
      if (this.#failure === null)
        log.warn({ issuer, reason: failure.message }, 'oidc: sign-in is off until the issuer answers');
      this.#failure = { at: now(), error: failure };
      throw failure;
    }
  }
}

/**
 * Reads the issuer's document and compares the clocks.
 * @throws OidcFailure, or an error of the client
 */
async function discover(options: OidcIssuerOptions, asked = options.issuer): Promise<Discovered> {
  const { issuer, clientId, clientSecret, now } = options;
  let date = '';
  const isLocal = isLoopbackName(new URL(issuer).hostname.replace(/^\[|\]$/g, ''));
  if (issuer.startsWith('http:') && !isLocal)
    throw new OidcFailure('invalid', 'OIDC_ISSUER must begin with https://, except on this machine');
  const authentication = clientAuthentication(clientId, clientSecret);
  let config: oidc.Configuration;
  try {
    config = await oidc.discovery(new URL(asked), clientId, undefined, authentication, {
      timeout: TIMEOUT_SECONDS,
      execute: [oidc.enableNonRepudiationChecks, ...(isLocal ? [oidc.allowInsecureRequests] : [])],
      [oidc.customFetch]: async (url, options) => {
        const kept = tokenAnswer.getStore();
        const isToken = options.method === 'POST' && kept !== undefined;
        const headers = { 'content-type': 'application/json' };
        if (isToken && kept.text !== null) return new Response(kept.text, { headers });
        const answer = await fetch(url, {
          ...options,
          body: (options.body ?? null) as NonNullable<RequestInit['body']> | null,
        });
        date = answer.headers.get('date') ?? '';
        if (isToken && answer.status === 200) kept.text = await answer.clone().text();
        return answer;
      },
    });
  } catch (error) {
    const [named, other] = [issuerOf(error), asked.endsWith('/') ? asked.slice(0, -1) : `${asked}/`];
    if (named === null) throw error;
    // Its name is that of the document: OIDC_ISSUER may lack the slash at its end, or have it.
    if (named === other && asked === issuer) return await discover(options, other);
    throw new OidcFailure(
      'invalid',
      `the document of OIDC_ISSUER ${issuer} names the issuer ${shortened(named, MAX_DESCRIPTION_CHARACTERS)}: ${
        named.includes('{') ? 'write the id of the tenant into OIDC_ISSUER' : 'set OIDC_ISSUER to that'
      }`,
      { cause: error },
    );
  }
  const then = Date.parse(date);
  if (!Number.isNaN(then) && Math.abs(then - now()) > MAX_CLOCK_DIFFERENCE_MS + 1_000) {
    const seconds = Math.round((now() - then) / 1_000);
    throw new OidcFailure(
      'invalid',
      `the clock of this machine is ${Math.abs(seconds)} seconds ${seconds > 0 ? 'ahead of' : 'behind'} the issuer's: set both by NTP`,
    );
  }
  const metadata = config.serverMetadata();
  const { jwks_uri: keysAt } = metadata;
  if (keysAt === undefined) throw new OidcFailure('invalid', 'the discovery document has no jwks_uri');
  const { id_token_signing_alg_values_supported: signs } = metadata;
  if (Array.isArray(signs) && !signs.some((one) => ALGORITHMS.includes(String(one))))
    throw wrongAlgorithm(signs.join(', '), ALGORITHMS, null);
  for (const name of ENDPOINTS) checkEndpoint(issuer, name, metadata[name]);
  const keys = createRemoteJWKSet(new URL(keysAt), { timeoutDuration: TIMEOUT_SECONDS * 1_000 });
  return { config, keys, at: now() };
}

/**
 * The way of the issuer's choice: a header where it takes one (RFC 6749, 2.3.1), else the body. Not every issuer decodes what
 * the header must encode, which in the body is the same everywhere.
 */
function clientAuthentication(clientId: string, secret: string): oidc.ClientAuth {
  const basic = oidc.ClientSecretBasic(secret);
  const post = oidc.ClientSecretPost(secret);
  const isPlain = /^[A-Za-z0-9]*$/.test(clientId + secret);
  return (server, client, body, headers) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const byHeader =
      methods.includes('client_secret_basic') && (isPlain || !methods.includes('client_secret_post'));
    (byHeader ? basic : post)(server, client, body, headers);
  };
}

function failureOf(error: unknown): OidcFailure {
  if (error instanceof OidcFailure) return error;
  const message = error instanceof Error ? error.message : String(error);
  const because = { cause: error };
  if (error instanceof oidc.AuthorizationResponseError)
    return new OidcFailure('denied', `the issuer refused: ${refusalOf(error)}`, because);
  if (error instanceof oidc.ResponseBodyError)
    return new OidcFailure('invalid', `the issuer refused the code: ${refusalOf(error)}`, because);
  const algorithm = unexpectedAlgorithm(error);
  if (algorithm !== null) return wrongAlgorithm(algorithm.came, algorithm.expected, error);
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof Error && cause.message === 'JWE decryption is not configured')
    return new OidcFailure(
      'invalid',
      'the ID token is encrypted, which is not supported: let the issuer only sign the tokens of this client',
      because,
    );
  const more =
    cause instanceof Response
      ? `: ${cause.status} from ${cause.url}`
      : cause instanceof Error
        ? `: ${cause.message}`
        : '';
  return new OidcFailure(isOutage(error) ? 'unreachable' : 'invalid', message + more, because);
}

/** The error code, and what the issuer says to it. */
function refusalOf({
  error,
  error_description: description,
}: {
  readonly error: string;
  readonly error_description?: string | undefined;
}): string {
  const code = shortened(error, MAX_ERROR_CHARACTERS);
  return description === undefined || description === ''
    ? code
    : `${code} (${shortened(description, MAX_DESCRIPTION_CHARACTERS)})`;
}

/** The algorithm of a token that is not among those that were expected; null: this is another error. */
function unexpectedAlgorithm(error: unknown): { came: unknown; expected: readonly string[] } | null {
  for (let one = error; one instanceof Error; one = one.cause) {
    if (typeof one.cause !== 'object' || one.cause === null) continue;
    const { header, alg, expected } = one.cause as Partial<Record<'header' | 'alg' | 'expected', unknown>>;
    if (typeof alg === 'string') return { came: alg, expected: ALGORITHMS };
    if (typeof header === 'object' && header !== null && 'alg' in header && expected !== undefined)
      return { came: header.alg, expected: [expected].flat().map(String) };
  }
  return null;
}

function wrongAlgorithm(came: unknown, expected: readonly string[], cause: unknown): OidcFailure {
  const name = shortened(String(came), MAX_ERROR_CHARACTERS);
  return new OidcFailure(
    'invalid',
    `the issuer signs with ${name}, and ${expected.join(', ')} ${expected.length === 1 ? 'is' : 'are'} expected: ${SET_ALGORITHM}`,
    { cause },
  );
}

/** The name in a document of another issuer than was asked for; null: this is another error. */
function issuerOf(error: unknown): string | null {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== 'object' || cause === null || !('attribute' in cause) || !('body' in cause))
    return null;
  const { body } = cause;
  const named = typeof body === 'object' && body !== null && 'issuer' in body ? body.issuer : null;
  return typeof named === 'string' ? named : null;
}

/** A text of an issuer, which may be as long as an address lets it. */
function shortened(text: string, most: number): string {
  return text.slice(0, most);
}

/** Whether nothing was answered: a connection that failed, a timeout, or a status of a server in trouble. */
function isOutage(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof TypeError && error.message === 'fetch failed') return true;
  const code = 'code' in error ? error.code : undefined;
  if (code === 'OAUTH_TIMEOUT' || code === 'ERR_JWKS_TIMEOUT' || error.name === 'TimeoutError') return true;
  return code === 'OAUTH_RESPONSE_IS_NOT_CONFORM' || (error.cause !== undefined && isOutage(error.cause));
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && !value.includes('\0') ? value : null;
}

/** A claim by its literal name, else by its path: Keycloak has groups in `realm_access.roles`. Undefined: it did not come. */
function claimOf(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name] ?? undefined;
  let value: unknown = claims;
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Claims)[part];
  }
  return value ?? undefined;
}

/** What follows the issuer's name in the address of its document (Discovery 1.0, 4; RFC 8414, 3). */
const DOCUMENT = /\/\.well-known\/(?:openid-configuration|oauth-authorization-server)$/;

/**
 * What an issuer is called: by its document, and as OIDC_ISSUER may be spelled, with or without a slash at the end or as the
 * address of the document.
 * @param named by the document; undefined: it has not been read
 */
export function issuerNames(setting: string, named: string | undefined): IssuerNames {
  const base = setting.replace(DOCUMENT, '').replace(/\/$/, '');
  const name = named ?? base;
  return { name, all: [...new Set([name, base, `${base}/`, setting])] };
}

/** Endpoints to which secrets go, or from which keys come. The browser is sent to the first. */
const ENDPOINTS = ['authorization_endpoint', 'token_endpoint', 'userinfo_endpoint', 'jwks_uri'] as const;

/** Only an issuer on this machine may be asked in plain text, and only on this machine. @throws OidcFailure */
function checkEndpoint(issuer: string, name: string, address: string | undefined): void {
  if (address === undefined || address.startsWith('https:')) return;
  const { hostname } = new URL(address);
  if (issuer.startsWith('http:') && isLoopbackName(hostname.replace(/^\[|\]$/g, ''))) return;
  throw new OidcFailure('invalid', `the ${name} of the discovery document must begin with https://`);
}
