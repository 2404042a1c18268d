/** Checks passwords: throttled, and with the same timing for e-mails with and without an account. */
import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
import type { Email } from './email.ts';
import type { Client } from './networks.ts';
import type { Passwords } from './passwords.ts';
import type { Sessions } from './sessions.ts';
import type { SignInLimits } from './sign-in-limits.ts';
import { findUser, holdPassword, type User, type VerifiedUser } from './users.ts';

const FAILED = new Rejection('signInFailed', 'There is no account with this e-mail and password.');

export interface SignInOptions {
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly passwords: Passwords;
  readonly limits: SignInLimits;
}

export class SignIn {
  readonly #options: SignInOptions;

  constructor(options: SignInOptions) {
    this.#options = options;
  }

  /**
   * Checks the password and starts a session.
   * @param cookies the request's Cookie header; its session ends
   */
  async signIn(
    given: { email: Email; password: string },
    client: Client,
    cookies: string,
  ): Promise<{ user: User; setCookie: string } | Rejection> {
    const verified = await this.check(given, client);
    if (verified instanceof Rejection) return verified;
    const { user } = verified;
    return await this.#options.sql.begin('isolation level read committed', async (tx) => {
      // A concurrent password change ends all sessions; no session may start after it.
      if (!(await holdPassword(tx, verified))) return FAILED;
      return { user, setCookie: await this.#options.sessions.start(tx, user, cookies) };
    });
  }

  /**
   * The account with this e-mail and password, or the refusal. The password may have changed by the time this returns:
   * act on it only after {@link holdPassword} or {@link changePassword} confirms it.
   * @param isKnown whether the client has already proved that the account is its own, for example by a session
   */
  async check(
    given: { email: Email; password: string },
    client: Client,
    isKnown = false,
  ): Promise<VerifiedUser | Rejection> {
    const { sql, passwords, limits } = this.#options;
    const attempt = limits.admit(given.email, client.networks);
    if (typeof attempt === 'number') return slowedDown(attempt);
    const found = await findUser(sql, given.email);
    const matches = await passwords.matches(given.password, found?.passwordHash ?? null, {
      ...client,
      isKnown: isKnown || attempt.isKnown,
      failures: attempt.failures,
    });
    if (matches instanceof Rejection) {
      attempt.notChecked();
      return matches;
    }
    if (!matches || found === null) return FAILED;
    attempt.succeeded();
    return found;
  }

  /** A password was set by a link: earlier failures from this client no longer count. */
  forgive(email: Email, client: Client): void {
    this.#options.limits.remember(email, client.networks);
  }
}

/** The 429 response of all throttled operations. */
export function slowedDown(waitMs: number): Rejection {
  const retryAfterSeconds = Math.ceil(waitMs / 1_000);
  return new Rejection('tooManyAttempts', `Wait ${retryAfterSeconds} s before the next attempt.`, {
    retryAfterSeconds,
  });
}
