/** Checks passwords and codes: throttled, and with the same timing for e-mails with and without an account. */
import { Rejection } from '../errors.ts';
import type { Sql, Transaction } from '../storage/connect.ts';
import { writeAccountAudit } from './audit.ts';
import { deviceText } from './device.ts';
import { type Email, parseEmail } from './email.ts';
import type { Client } from './networks.ts';
import type { Passwords } from './passwords.ts';
import { countRecoveryCodes } from './recovery-codes.ts';
import type { AcceptedCode, SecondFactors } from './second-factors.ts';
import type { SessionOrigin, Sessions, StartedSession } from './sessions.ts';
import type { SignInChallenges } from './sign-in-challenge.ts';
import type { AdmittedAttempt, SignInLimits } from './sign-in-limits.ts';
import { findUser, findUserById, holdPassword, lockUser, type User, type VerifiedUser } from './users.ts';

const FAILED = new Rejection('signInFailed', 'There is no account with this e-mail and password.');
const EXPIRED = new Rejection(
  'signInExpired',
  'Too much time has passed since the password was checked, or it was changed: begin again.',
);
export const WRONG_CODE = new Rejection(
  'wrongCode',
  'The code is wrong, was used already, or is not of this moment. Enter the one that the app shows now, or a recovery code.',
);

export interface SignInOptions {
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly passwords: Passwords;
  readonly limits: SignInLimits;
  readonly secondFactors: SecondFactors;
  readonly challenges: SignInChallenges;
}

export interface SignedIn extends StartedSession {
  readonly user: User;
}

/** The password was right, and a code is needed too. */
export interface FirstStep {
  readonly user: User;
  readonly challenge: string;
}

/** A sign-in by a code. */
export interface SecondStep extends SignedIn {
  readonly accepted: AcceptedCode;
  readonly recoveryCodesLeft: number;
}

/** A password that was verified, and its attempt, which counts as failed until it is told otherwise. */
interface CheckedPassword {
  readonly verified: VerifiedUser;
  readonly attempt: AdmittedAttempt;
}

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
  ): Promise<SignedIn | FirstStep | Rejection> {
    const { sql, secondFactors, challenges } = this.#options;
    const checked = await this.#checkPassword(given, client, false);
    if (checked instanceof Rejection) return checked;
    const { verified, attempt } = checked;
    const { user } = verified;
    const outcome = await sql.begin('isolation level read committed', async (tx) => {
      // A concurrent password change ends all sessions; no session may start after it. Nor may one without a code start
      // after a second factor was turned on: that locks the account's row too.
      if (!(await holdPassword(tx, verified))) return FAILED;
      if (await secondFactors.isOn(tx, user.id)) return { user, challenge: challenges.create(verified) };
      return { user, ...(await this.#start(tx, user, origin)) };
    });
    if (outcome instanceof Rejection) return outcome;
    if ('challenge' in outcome) attempt.passedFirst();
    else attempt.succeeded();
    return outcome;
  }

  /** The second step of a sign-in: checks a code and starts a session. */
  async completeByCode(
    given: { challenge: string; code: string },
    client: Client,
    origin: SessionOrigin,
  ): Promise<SecondStep | Rejection> {
    const { sql, secondFactors, challenges } = this.#options;
    const claim = challenges.read(given.challenge);
    // Before anything is counted or looked up: a client without the password cannot use up the owner's attempts.
    if (claim === null) return EXPIRED;
    const found = await findUserById(sql, claim.userId);
    if (found === null || !claim.isOf(found.passwordHash)) return EXPIRED;
    const { user } = found;
    const attempt = this.admitCode(user, client);
    if (attempt instanceof Rejection) return attempt;
    const checked = sql.begin('isolation level read committed', async (tx) => {
      await lockUser(tx, user.id);
      if (!(await holdPassword(tx, found))) return EXPIRED;
      const accepted = await secondFactors.accept(tx, user, given.code);
      // It was removed since the first step, which another sign-in needs no code after.
      if (accepted === 'off') return EXPIRED;
      if (accepted === 'wrong') return WRONG_CODE;
      const recoveryCodesLeft = await countRecoveryCodes(tx, user.id);
      if (accepted === 'recovery-code') {
        const by = { userId: user.id, email: user.email };
        const details = { left: recoveryCodesLeft };
        await writeAccountAudit(tx, { user, by, action: 'recovery-code.use', details });
      }
      return { user, accepted, recoveryCodesLeft, ...(await this.#start(tx, user, origin)) };
    });
    // What fails for want of the database is no guess.
    const outcome = await checked.catch((error: unknown) => {
      attempt.notChecked();
      throw error;
    });
    if (!(outcome instanceof Rejection)) attempt.succeeded();
    else if (outcome === EXPIRED) attempt.notChecked();
    return outcome;
  }

  /** Counts a guess at a code of an account, which the client has shown to be its own by the password. */
  admitCode(user: User, client: Client): AdmittedAttempt | Rejection {
    const email = parseEmail(user.email) ?? { text: user.email, key: user.emailKey };
    const attempt = this.#options.limits.admitCode(email, client.networks);
    return typeof attempt === 'number' ? slowedDown(attempt) : attempt;
  }

  /**
   * The account with this e-mail and password, or the refusal, for a client with a session of it. The password may have
   * changed by the time this returns: act on it only after {@link holdPassword} or {@link changePassword} confirms it.
   */
  async check(given: { email: Email; password: string }, client: Client): Promise<VerifiedUser | Rejection> {
    const checked = await this.#checkPassword(given, client, true);
    if (checked instanceof Rejection) return checked;
    checked.attempt.succeeded();
    return checked.verified;
  }

  async #start(tx: Transaction, user: User, origin: SessionOrigin): Promise<StartedSession> {
    const started = await this.#options.sessions.start(tx, user, origin);
    if (started.isNewDevice) {
      const by = { userId: user.id, email: user.email };
      const details = { device: deviceText(origin.device), address: origin.address };
      await writeAccountAudit(tx, { user, by, action: 'sign-in.new-device', details });
    }
    return started;
  }

  /** @param isKnown whether the client has already proved that the account is its own, by a session */
  async #checkPassword(
    given: { email: Email; password: string },
    client: Client,
    isKnown: boolean,
  ): Promise<CheckedPassword | Rejection> {
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
    return matches && found !== null ? { verified: found, attempt } : FAILED;
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
