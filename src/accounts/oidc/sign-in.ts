/** Sign-in at the issuer: what the browser takes there, and what comes back becomes a session. */
import type { KeyObject } from 'node:crypto';
import { parseCookie } from 'cookie';
import { seal, unseal } from '../../base/sealed-text.ts';
import { Refused, Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { parseEmail } from '../people/email.ts';
import { createUser, lockUser, type User, verifyEmail } from '../people/users.ts';
import type { Client } from '../sessions/networks.ts';
import { createSecretText } from '../sessions/one-time-secret.ts';
import {
  holdSession,
  pageCookie,
  type Session,
  type SessionOrigin,
  type Sessions,
  type StartedSession,
  SUSPENDED,
} from '../sessions/sessions.ts';
import type { Passwords } from '../sign-in/passwords.ts';
import {
  endOidcSessions,
  findIdentity,
  joinIdentity,
  noteOidcSession,
  useLogoutToken,
} from './identities.ts';
import type { LogoutOrder, OidcChecks, OidcIdentity, OidcIssuer } from './issuer.ts';

export interface OidcSignInOptions {
  readonly sql: Sql;
  readonly issuer: OidcIssuer;
  readonly sessions: Sessions;
  readonly passwords: Passwords;
  readonly key: KeyObject;
  /** Generation of the database: a sign-in that began before a restore does not end after it. */
  readonly generation: string;
  readonly secure: boolean;
  /** Whether an identity without an account gets one. */
  readonly createsAccounts: boolean;
  /** OIDC_TRUST_EMAIL */
  readonly trustsEmail: boolean;
  /** Gives the account the roles of its groups, in the transaction of the sign-in. */
  readonly applyGroups: (tx: Transaction, user: User, groups: readonly string[]) => Promise<void>;
  /** Takes the access by groups away until the next sign-in. */
  readonly suspendGroups: (tx: Transaction, user: User) => Promise<void>;
  readonly now: () => number;
}

/** A sign-in that has left for the issuer. */
interface Pending extends OidcChecks {
  /** The page that was asked for: a path of this origin. */
  readonly page: string;
  /** Public id of the signed-in account that the identity is to be joined to; null for a sign-in. */
  readonly joins: string | null;
  /** When it is too late, in milliseconds since the Unix epoch. */
  readonly until: number;
}

export interface OidcSignedIn extends StartedSession {
  readonly user: User;
  readonly page: string;
  /** Whether the account was made by this sign-in. */
  readonly isNew: boolean;
  /** Whether the identity was joined to the account of a session. */
  readonly isJoined: boolean;
}

/** Why a callback leads back to the sign-in page. The page has a sentence for each, the log has the cause. */
export const OIDC_PROBLEMS = [
  'OIDC_EXPIRED',
  'OIDC_REFUSED',
  'OIDC_DENIED',
  'OIDC_UNREACHABLE',
  'OIDC_NO_EMAIL',
  'OIDC_EMAIL_TAKEN',
  'OIDC_NO_ACCOUNT',
  'OIDC_BUSY',
  'OIDC_JOINED_ELSEWHERE',
  'OIDC_OTHER_SESSION',
  'OIDC_SUSPENDED',
] as const;

export type OidcProblem = (typeof OIDC_PROBLEMS)[number];

/** Time in which a user signs in at the issuer. */
const VALID_FOR_MS = 10 * 60_000;
/** Longest page that is remembered; of a longer one the start page is shown. */
const MAX_PAGE_CHARACTERS = 1_500;
/** A path of this origin: browsers read "//" and "/\" as the beginning of another one. */
const OWN_PAGE = /^\/(?![/\\])[\x21-\x7e]*$/;
/** Nothing that answers a request may be shown by a way back to it. */
const NO_PAGE = /^\/(?:sign-in|api|v1|public)(?:[/?#]|$)/;

/** The page to come back to: what was asked for if it is a page of this origin, else the start page. */
export function ownPage(asked: string | null): string {
  if (asked === null || asked.length > MAX_PAGE_CHARACTERS || !OWN_PAGE.test(asked)) return '/';
  // As browsers resolve it: "/./api" is "/api", and "/.//host" a path that names another host when it is resolved again.
  const { pathname } = new URL(asked, 'http://own.invalid');
  return NO_PAGE.test(pathname) || pathname.startsWith('//') ? '/' : asked;
}

export class OidcSignIn {
  readonly #options: OidcSignInOptions;
  readonly #cookieName: string;

  constructor(options: OidcSignInOptions) {
    this.#options = options;
    this.#cookieName = options.secure ? '__Host-tidemark_oidc' : 'tidemark_oidc';
  }

  /**
   * Begins a sign-in.
   * @param asked   the page that was asked for
   * @param session of the account that the identity is to be joined to; null for a sign-in
   * @throws OidcFailure if the issuer does not answer
   */
  async begin(
    asked: string | null,
    session: Session | null,
  ): Promise<{ location: string; setCookie: string }> {
    const { issuer, secure, now } = this.#options;
    const pending: Pending = {
      state: createSecretText().text,
      nonce: createSecretText().text,
      // 256 random bits, as RFC 7636 (7.1) recommends.
      verifier: createSecretText().text,
      page: ownPage(asked),
      joins: session?.user.userId ?? null,
      until: now() + VALID_FOR_MS,
    };
    const location = await issuer.authorizationUrl(pending);
    const sealed = seal(this.#options.key, JSON.stringify(pending), this.#boundTo);
    const text = sealed.toString('base64url');
    return { location, setCookie: pageCookie(this.#cookieName, text, secure, VALID_FOR_MS / 1_000) };
  }

  /**
   * Ends a sign-in with the query that the issuer sent the browser back with.
   * @param session the one of the request, which must still be that of the account that an identity is joined to
   * @throws OidcFailure
   */
  async complete(
    query: string,
    { origin, client, session }: { origin: SessionOrigin; client: Client; session: Session | null },
  ): Promise<OidcSignedIn | OidcProblem> {
    const { sql, issuer, trustsEmail } = this.#options;
    const pending = this.#pending(origin.cookies);
    if (pending === null) return 'OIDC_EXPIRED';
    const identity = await issuer.identity(query, pending);
    if (pending.joins !== null && session?.user.userId !== pending.joins) return 'OIDC_OTHER_SESSION';
    // The hash is slow, so it is made before the transaction; most sign-ins need none.
    const known = pending.joins !== null || (await findIdentity(sql, identity)) !== null;
    const passwordHash = known ? null : await this.#unusableHash(client);
    if (passwordHash instanceof Rejection) return 'OIDC_BUSY';
    try {
      return await sql.begin('isolation level read committed', async (tx) => {
        const found = await this.#account(tx, identity, session, pending, passwordHash);
        if (typeof found === 'string') return found;
        const { user, isNew } = found;
        if (trustsEmail && identity.emailVerified && parseEmail(identity.email ?? '')?.key === user.emailKey)
          await verifyEmail(tx, user.id);
        if (identity.groups !== null) await this.#options.applyGroups(tx, user, identity.groups);
        const started = await this.#options.sessions.signIn(tx, user, origin);
        await noteOidcSession(tx, identity, started.digest);
        return { user, isNew, isJoined: pending.joins !== null, page: pending.page, ...started };
      });
    } catch (error) {
      if (error instanceof Refused && error.rejection.reason === 'emailTaken') return 'OIDC_EMAIL_TAKEN';
      if (error instanceof Refused && error.rejection === SUSPENDED) return 'OIDC_SUSPENDED';
      throw error;
    }
  }

  /**
   * Ends the sessions that a logout token names, and the access that groups gave their accounts.
   * @returns how many; null where the token was used before
   */
  async logout(order: LogoutOrder): Promise<{ users: readonly User[]; sessions: number } | null> {
    return await this.#options.sql.begin('isolation level read committed', async (tx) => {
      if (!(await useLogoutToken(tx, order, this.#options.now()))) return null;
      const ended = await endOidcSessions(tx, order);
      for (const user of ended.users) await this.#options.suspendGroups(tx, user);
      return ended;
    });
  }

  /** The Set-Cookie value that forgets a sign-in that has ended. */
  forget(): string {
    return pageCookie(this.#cookieName, '', this.#options.secure, 0);
  }

  /** The account that signs in or is joined, locked: what was known of it before is looked at again. */
  async #account(
    tx: Transaction,
    identity: OidcIdentity,
    session: Session | null,
    { joins }: Pending,
    passwordHash: string | null,
  ): Promise<{ user: User; isNew: boolean } | OidcProblem> {
    if (joins !== null && session !== null) {
      const { user } = session;
      const by = { userId: user.id, email: user.email };
      await lockUser(tx, user.id);
      // A reset of the password may have ended it since it was found.
      if (!(await holdSession(tx, session))) return 'OIDC_OTHER_SESSION';
      return (await joinIdentity(tx, user, identity, by)) ? { user, isNew: false } : 'OIDC_JOINED_ELSEWHERE';
    }
    const known = await findIdentity(tx, identity);
    if (known !== null) {
      await lockUser(tx, known.id);
      const user = await findIdentity(tx, identity);
      return user?.id === known.id ? { user, isNew: false } : 'OIDC_EXPIRED';
    }
    if (!this.#options.createsAccounts || passwordHash === null) return 'OIDC_NO_ACCOUNT';
    const email = parseEmail(identity.email ?? '');
    if (email === null) return 'OIDC_NO_EMAIL';
    // An address proves nothing by itself: an account that has it already is joined by its own user alone.
    const user = await createUser(tx, { email, passwordHash, verified: false });
    if (!(await joinIdentity(tx, user, identity, { userId: user.id, email: user.email })))
      return 'OIDC_JOINED_ELSEWHERE';
    return { user, isNew: true };
  }

  /** The hash of a password that nobody knows: the account has none until its user sets one by mail. */
  async #unusableHash(client: Client): Promise<string | Rejection> {
    return await this.#options.passwords.hash(createSecretText().text, {
      ...client,
      isKnown: false,
      failures: 0,
    });
  }

  /** The sign-in of the request's cookie; null if there is none, it was changed, or it is too old. */
  #pending(cookies: string): Pending | null {
    const sealed = parseCookie(cookies)[this.#cookieName] ?? '';
    const text = unseal(this.#options.key, Buffer.from(sealed, 'base64url'), this.#boundTo);
    if (text === null) return null;
    // Only this service seals with the key, so the text has the shape that it wrote.
    const pending = JSON.parse(text) as Pending;
    return pending.until > this.#options.now() ? pending : null;
  }

  get #boundTo(): Buffer {
    return Buffer.from(this.#options.generation);
  }
}
