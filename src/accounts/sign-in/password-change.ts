/** Changing the password of a signed-in account, which requires the current password. */
import { Rejection } from '../../errors.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import type { Email } from '../people/email.ts';
import { changePassword, lockUser } from '../people/users.ts';
import type { Client } from '../sessions/networks.ts';
import type { Session, SessionOrigin, Sessions, StartedSession } from '../sessions/sessions.ts';
import { Backoff, throttled } from './backoff.ts';
import { type Passwords, passwordProblem } from './passwords.ts';
import { holdAccess, type SignIn } from './sign-in.ts';

export interface PasswordChangeOptions {
  readonly sql: Sql;
  readonly passwords: Passwords;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/**
 * Limit per account: some changes are free, then each waits minutes. Each change ends all other sessions, so a thief
 * changing the password in a loop could lock the owner out. Resets by link are not limited by this.
 */
const CHANGES = { free: 10, firstMs: 60_000, longestMs: 600_000 } as const;

export class PasswordChange {
  readonly #options: PasswordChangeOptions;
  readonly #ofAccount: Backoff;

  constructor(options: PasswordChangeOptions) {
    this.#options = options;
    this.#ofAccount = new Backoff({ ...CHANGES, now: options.now });
  }

  /** The password was set by a link: earlier changes of this account no longer count. */
  reset(email: Email): void {
    this.#ofAccount.forget(email.key);
  }

  /**
   * Changes the password, ends every session of the account, and starts one for the client.
   * @param session the client's, which needs no code for the new one: it must not have been ended meanwhile
   */
  async change(
    given: { email: Email; currentPassword: string; newPassword: string },
    client: Client,
    { session, origin }: { session: Session; origin: SessionOrigin },
  ): Promise<StartedSession | Rejection> {
    const { signIn, passwords } = this.#options;
    const { email, currentPassword, newPassword } = given;
    const wait = this.#ofAccount.wait(email.key);
    if (wait > 0) return throttled(wait);
    // Counted like sign-ins: an open session must not be a way to guess the password.
    const verified = await signIn.check({ email, password: currentPassword }, client);
    if (verified instanceof Rejection) return verified;
    // From here on the attempt counts, refused or not: rating a new password costs CPU.
    this.#ofAccount.begin(email.key);
    const problem = await passwordProblem(newPassword, email);
    if (problem !== null) return new Rejection('weakPassword', `The password ${problem}.`);
    const newHash = await passwords.hash(newPassword, { ...client, isKnown: true, failures: 0 });
    if (newHash instanceof Rejection) return newHash;
    const { user } = session;
    return await this.#options.sql.begin('isolation level read committed', async (tx) => {
      await lockUser(tx, user.id);
      const refusal = await holdAccess(tx, session, verified);
      if (refusal !== null) return refusal;
      await changePassword(tx, verified, newHash);
      const by = { userId: user.id, email: user.email };
      await writeAccountAudit(tx, { user, by, action: 'password.change', details: {} });
      return await this.#options.sessions.start(tx, verified.user, origin);
    });
  }
}
