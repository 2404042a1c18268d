/** Checks passwords and codes: throttled, and with the same timing for emails with and without an account. */
import { Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { Email } from '../people/email.ts';
import { type AuthenticatedUser, findUser, findUserById, holdPassword, type User } from '../people/users.ts';
import type { Client } from '../sessions/networks.ts';
import {
  holdSession,
  type Session,
  type SessionOrigin,
  type Sessions,
  type StartedSession,
  SUSPENDED,
} from '../sessions/sessions.ts';
import { throttled } from './backoff.ts';
import { type CodeChecks, type CodeSource, IS_OFF, type RightCode } from './code-checks.ts';
import type { Passwords } from './passwords.ts';
import type { SecondFactors } from './second-factors.ts';
import type { SignInChallenges } from './sign-in-challenge.ts';
import type { SharedAttempt, SharedSignInLimits } from './sign-in-limits.ts';

const FAILED = new Rejection('signInFailed', 'There is no account with this email and password.');
const EXPIRED = new Rejection(
  'signInExpired',
  'Too much time has passed since the password was checked, or it was changed: begin again.',
);
const NO_SESSION = new Rejection('sessionRequired', 'The session has ended.');
const WRONG_PASSWORD = new Rejection('wrongPassword', 'The current password is wrong.');

export interface SignInOptions {
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly passwords: Passwords;
  readonly limits: SharedSignInLimits;
  readonly secondFactors: SecondFactors;
  readonly codes: CodeChecks;
  readonly challenges: SignInChallenges;
  /** OIDC_ONLY: only accounts of the command line sign in by a password. */
  readonly onlyBreakGlass: boolean;
}

export interface SignedIn extends StartedSession {
  readonly user: User;
}

export interface SecondStep extends SignedIn, RightCode {}

export class SignIn {
  readonly #options: SignInOptions;

  constructor(options: SignInOptions) {
    this.#options = options;
  }

  /**
   * Checks the password and starts a session, in place of that of the origin; or, for an account with a second factor, returns
   * the challenge for {@link completeByCode}.
   */
  async signIn(
    given: { email: Email; password: string },
    client: Client,
    origin: SessionOrigin,
  ): Promise<SignedIn | { user: User; challenge: string } | Rejection> {
    const { sql, sessions, secondFactors, challenges } = this.#options;
    const checked = await this.#checkPassword(given, client, false);
    if (checked instanceof Rejection) return checked;
    const { verified, attempt } = checked;
    const { user } = verified;
    if (verified.isSuspended) return SUSPENDED;
    const outcome = await sql.begin('isolation level read committed', async (tx) => {
      // A concurrent password change ends all sessions; no session may start after it. Nor may one without a code start
      // after a second factor was turned on: that locks the account's row too.
      if (!(await holdPassword(tx, verified))) return FAILED;
      if (await secondFactors.isOn(tx, user.id))
        return { user, challenge: challenges.create(user.userId, verified.passwordHash) };
      return { user, ...(await sessions.signIn(tx, user, origin)) };
    });
    if (outcome instanceof Rejection) return outcome;
    await ('challenge' in outcome ? attempt.passedFirst() : attempt.succeeded());
    return outcome;
  }

  /** The second step of a sign-in: checks a code and starts a session. */
  async completeByCode(
    given: { challenge: string; code: string },
    source: CodeSource,
  ): Promise<SecondStep | Rejection> {
    const { sql, sessions, codes, challenges } = this.#options;
    const claim = challenges.read(given.challenge);
    // Before anything is counted or looked up: a client without the password cannot use up the owner's attempts.
    if (claim === null) return EXPIRED;
    const found = await findUserById(sql, claim.id);
    if (found === null || !claim.isOf(found.passwordHash)) return EXPIRED;
    const { user } = found;
    if (found.isSuspended) return SUSPENDED;
    return await codes.run(user, source, async (check) => {
      if (!(await holdPassword(check.tx, found))) return EXPIRED;
      const code = await check.accept(given.code);
      // It was removed since the first step, which another sign-in needs no code after.
      if (code === IS_OFF) return EXPIRED;
      if (code instanceof Rejection) return code;
      return { user, ...code, ...(await sessions.signIn(check.tx, user, source.origin)) };
    });
  }

  /**
   * The account with this email and password, or the refusal, for a client with a session of it. Counted like sign-ins: an open
   * session must not be a way to guess the password. The password may have changed by the time this returns: act on it only
   * after {@link holdAccess} or {@link changePassword} confirms it.
   */
  async check(
    given: { email: Email; password: string },
    client: Client,
  ): Promise<AuthenticatedUser | Rejection> {
    const checked = await this.#checkPassword(given, client, true);
    if (checked instanceof Rejection) return checked === FAILED ? WRONG_PASSWORD : checked;
    await checked.attempt.succeeded();
    return checked.verified;
  }

  /**
   * @param isKnown whether the client has already shown that the account is its own, by a session
   * @returns the attempt counts as failed until it is told otherwise
   */
  async #checkPassword(
    given: { email: Email; password: string },
    client: Client,
    isKnown: boolean,
  ): Promise<{ verified: AuthenticatedUser; attempt: SharedAttempt } | Rejection> {
    const { sql, passwords, limits } = this.#options;
    const attempt = await limits.admit(given.email, client.networks);
    if (typeof attempt === 'number') return throttled(attempt);
    const found = await findUser(sql, given.email);
    const matches = await passwords.matches(given.password, found?.passwordHash ?? null, {
      ...client,
      isKnown: isKnown || attempt.isKnown,
      failures: attempt.failures,
    });
    if (matches instanceof Rejection) {
      await attempt.notChecked();
      return matches;
    }
    // A sign-in that is not allowed gets the answer of a wrong password, after the same work.
    const mayEnter = isKnown || !this.#options.onlyBreakGlass || found?.breakGlass === true;
    return matches && found !== null && mayEnter ? { verified: found, attempt } : FAILED;
  }

  /** A password was set by a link: earlier failures from this client no longer count. */
  async reset(email: Email, client: Client): Promise<void> {
    await this.#options.limits.remember(email, client.networks);
  }
}

/**
 * Whether the session and the password that were found to be valid still are; if so, they are until the end of the transaction,
 * which must be "read committed". Call after lockUser.
 * @param verified null where no password was asked for
 * @returns null, or the refusal
 */
export async function holdAccess(
  tx: Transaction,
  session: Session,
  verified: AuthenticatedUser | null,
): Promise<Rejection | null> {
  if (verified !== null && !(await holdPassword(tx, verified))) return WRONG_PASSWORD;
  return (await holdSession(tx, session)) ? null : NO_SESSION;
}
