/** Turning the second factor of a signed-in account on and off, and replacing its recovery codes. */
import { Rejection } from '../errors.ts';
import type { Sql, Transaction } from '../storage/connect.ts';
import { type AccountAction, type AuditDetails, writeAccountAudit } from './audit.ts';
import type { Email } from './email.ts';
import type { Client } from './networks.ts';
import { countRecoveryCodes, createRecoveryCodes } from './recovery-codes.ts';
import { type Enrollment, removeSecondFactor, type SecondFactors } from './second-factors.ts';
import { endSessions, holdSession, type Session } from './sessions.ts';
import { type SignIn, WRONG_CODE } from './sign-in.ts';
import { holdPassword, lockUser, type User, type VerifiedUser } from './users.ts';

export interface SecondFactorChangeOptions {
  readonly sql: Sql;
  readonly secondFactors: SecondFactors;
  readonly signIn: SignIn;
}

/** What a user enters to change the second factor. */
export interface PasswordAndCode {
  readonly email: Email;
  readonly password: string;
  readonly code: string;
}

const NO_SESSION = new Rejection('sessionRequired', 'The session has ended.');
const WRONG_PASSWORD = new Rejection('wrongPassword', 'The password is wrong.');
const IS_ON = new Rejection('secondFactorOn', 'Sign-ins to this account need a code already.');
const IS_OFF = new Rejection('secondFactorOff', 'Sign-ins to this account need no code.');
const NO_ENROLLMENT = new Rejection(
  'secondFactorOff',
  'No second factor waits for its first code, or it has waited for more than 15 minutes: set it up again.',
);

export class SecondFactorChange {
  readonly #options: SecondFactorChangeOptions;

  constructor(options: SecondFactorChangeOptions) {
    this.#options = options;
  }

  /** Makes the secret of a second factor, which {@link confirm} turns on. */
  async begin(
    given: { email: Email; password: string },
    client: Client,
    session: Session,
  ): Promise<Enrollment | Rejection> {
    const verified = await this.#verify(given, client);
    if (verified instanceof Rejection) return verified;
    return await this.#change(session, verified, async (tx, user) => {
      return (await this.#options.secondFactors.begin(tx, user)) ?? IS_ON;
    });
  }

  /** Turns it on and ends all other sessions, which began without it. @returns the recovery codes */
  async confirm(code: string, client: Client, session: Session): Promise<readonly string[] | Rejection> {
    return await this.#guess(session, client, null, async (tx, user) => {
      const codes = await this.#options.secondFactors.confirm(tx, user, code);
      if (codes === 'off') return NO_ENROLLMENT;
      if (codes === 'wrong') return WRONG_CODE;
      await endSessions(tx, user.id, session);
      await audit(tx, user, 'second-factor.enable');
      return codes;
    });
  }

  /** Replaces the recovery codes. @returns the new ones */
  async renewRecoveryCodes(
    given: PasswordAndCode,
    client: Client,
    session: Session,
  ): Promise<readonly string[] | Rejection> {
    return await this.#byPasswordAndCode(given, client, session, async (tx, user) => {
      const codes = await createRecoveryCodes(tx, user.id);
      await audit(tx, user, 'recovery-codes.create');
      return codes;
    });
  }

  /** Turns it off. @returns null, or the refusal */
  async turnOff(given: PasswordAndCode, client: Client, session: Session): Promise<null | Rejection> {
    return await this.#byPasswordAndCode(given, client, session, async (tx, user) => {
      await removeSecondFactor(tx, user.id);
      await audit(tx, user, 'second-factor.disable');
      return null;
    });
  }

  async #byPasswordAndCode<T>(
    given: PasswordAndCode,
    client: Client,
    session: Session,
    change: (tx: Transaction, user: User) => Promise<T>,
  ): Promise<T | Rejection> {
    const verified = await this.#verify(given, client);
    if (verified instanceof Rejection) return verified;
    return await this.#guess(session, client, verified, async (tx, user) => {
      const accepted = await this.#options.secondFactors.accept(tx, user, given.code);
      if (accepted === 'off') return IS_OFF;
      if (accepted === 'wrong') return WRONG_CODE;
      if (accepted === 'recovery-code')
        await audit(tx, user, 'recovery-code.use', { left: await countRecoveryCodes(tx, user.id) });
      return await change(tx, user);
    });
  }

  /** Counted like sign-ins: an open session must not be a way to guess the password. */
  async #verify(
    given: { email: Email; password: string },
    client: Client,
  ): Promise<VerifiedUser | Rejection> {
    const { email, password } = given;
    const verified = await this.#options.signIn.check({ email, password }, client);
    return verified instanceof Rejection && verified.reason === 'signInFailed' ? WRONG_PASSWORD : verified;
  }

  /** A change that a code decides about: a wrong one counts as a guess. */
  async #guess<T>(
    session: Session,
    client: Client,
    verified: VerifiedUser | null,
    change: (tx: Transaction, user: User) => Promise<T | Rejection>,
  ): Promise<T | Rejection> {
    const attempt = this.#options.signIn.admitCode(session.user, client);
    if (attempt instanceof Rejection) return attempt;
    // What fails for want of the database is no guess.
    const outcome = await this.#change(session, verified, change).catch((error: unknown) => {
      attempt.notChecked();
      throw error;
    });
    if (!(outcome instanceof Rejection)) attempt.succeeded();
    else if (outcome !== WRONG_CODE) attempt.notChecked();
    return outcome;
  }

  /** Changes the account while neither the session nor the password that were found to be valid change. */
  async #change<T>(
    session: Session,
    verified: VerifiedUser | null,
    change: (tx: Transaction, user: User) => Promise<T | Rejection>,
  ): Promise<T | Rejection> {
    const { user } = session;
    const { outcome } = await this.#options.sql.begin('isolation level read committed', async (tx) => {
      await lockUser(tx, user.id);
      if (!(await holdSession(tx, session))) return { outcome: NO_SESSION };
      if (verified !== null && !(await holdPassword(tx, verified))) return { outcome: WRONG_PASSWORD };
      return { outcome: await change(tx, user) };
    });
    return outcome;
  }
}

async function audit(
  tx: Transaction,
  user: User,
  action: AccountAction,
  details: AuditDetails = {},
): Promise<void> {
  await writeAccountAudit(tx, { user, by: { userId: user.id, email: user.email }, action, details });
}
