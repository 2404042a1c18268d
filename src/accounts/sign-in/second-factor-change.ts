/** Turning the second factor of a signed-in account on and off, and replacing its recovery codes. */
import type { Enrollment } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { type AccountAction, writeAccountAudit } from '../log/audit.ts';
import type { Email } from '../people/email.ts';
import { lockUser, type User } from '../people/users.ts';
import { endSessions, type Session, type Sessions } from '../sessions/sessions.ts';
import type { CodeChecks, CodeSource } from './code-checks.ts';
import { createRecoveryCodes } from './recovery-codes.ts';
import { removeSecondFactor, type SecondFactors } from './second-factors.ts';
import { holdAccess, type SignIn } from './sign-in.ts';

export interface SecondFactorChangeOptions {
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly secondFactors: SecondFactors;
  readonly codes: CodeChecks;
  readonly signIn: SignIn;
}

/** What a user enters to change the second factor. */
export interface PasswordAndCode {
  readonly email: Email;
  readonly password: string;
  readonly code: string;
}

/** The request of a signed-in user. */
export interface ChangeSource extends CodeSource {
  readonly session: Session;
}

/** A second factor that is on now. */
export interface Confirmed {
  readonly recoveryCodes: readonly string[];
  /** The Set-Cookie value of the session that goes on. */
  readonly setCookie: string;
}

const IS_ON = new Rejection('secondFactorOn', 'Sign-ins to this account need a code already.');
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
    { session, client }: ChangeSource,
  ): Promise<Enrollment | Rejection> {
    const { sql, signIn, secondFactors } = this.#options;
    const verified = await signIn.check(given, client);
    if (verified instanceof Rejection) return verified;
    const { user } = session;
    return await sql.begin('isolation level read committed', async (tx) => {
      await lockUser(tx, user.id);
      const refusal = await holdAccess(tx, session, verified);
      return refusal ?? (await secondFactors.begin(tx, user)) ?? IS_ON;
    });
  }

  /**
   * Turns it on and ends all sessions, which began without it, or whose cookie another person may have since then. The client's
   * goes on with a new cookie.
   */
  async confirm(code: string, source: ChangeSource): Promise<Confirmed | Rejection> {
    const { codes, secondFactors, sessions } = this.#options;
    const { session, origin } = source;
    const { user } = session;
    return await codes.run(user, source, async (check) => {
      const { tx } = check;
      const refusal = await holdAccess(tx, session, null);
      if (refusal !== null) return refusal;
      const recoveryCodes = await secondFactors.confirm(tx, user, code);
      if (recoveryCodes === 'off') return NO_ENROLLMENT;
      if (recoveryCodes === 'wrong') return check.wrong();
      await audit(tx, user, 'second-factor.enable');
      await endSessions(tx, user.id, null);
      const { setCookie } = await sessions.start(tx, user, origin);
      return { recoveryCodes, setCookie };
    });
  }

  /** Replaces the recovery codes. @returns the new ones */
  async renewRecoveryCodes(
    given: PasswordAndCode,
    source: ChangeSource,
  ): Promise<readonly string[] | Rejection> {
    return await this.#byPasswordAndCode(given, source, async (tx, user) => {
      const codes = await createRecoveryCodes(tx, user.id);
      await audit(tx, user, 'recovery-codes.create');
      return codes;
    });
  }

  /** Turns it off. @returns null, or the refusal */
  async turnOff(given: PasswordAndCode, source: ChangeSource): Promise<null | Rejection> {
    return await this.#byPasswordAndCode(given, source, async (tx, user) => {
      await removeSecondFactor(tx, user.id);
      await audit(tx, user, 'second-factor.disable');
      return null;
    });
  }

  async #byPasswordAndCode<T>(
    { email, password, code }: PasswordAndCode,
    source: ChangeSource,
    change: (tx: Transaction, user: User) => Promise<T>,
  ): Promise<T | Rejection> {
    const { codes, signIn } = this.#options;
    const { session, client } = source;
    const { user } = session;
    const verified = await signIn.check({ email, password }, client);
    if (verified instanceof Rejection) return verified;
    return await codes.run(user, source, async (check) => {
      const refusal = await holdAccess(check.tx, session, verified);
      if (refusal !== null) return refusal;
      const accepted = await check.accept(code);
      return accepted instanceof Rejection ? accepted : await change(check.tx, user);
    });
  }
}

async function audit(tx: Transaction, user: User, action: AccountAction): Promise<void> {
  const by = { userId: user.id, email: user.email };
  await writeAccountAudit(tx, { user, by, action, details: {} });
}
