/** Setting a password without the current one, through a link that is mailed or handed over by an operator. */

import { Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import type { Note } from '../log/auth-log.ts';
import type { Background } from '../mail/background.ts';
import { MAILS, type Mailer } from '../mail/mail.ts';
import { leaveIdentities } from '../oidc/identities.ts';
import { createLink, findLink } from '../people/account-links.ts';
import { type Email, parseEmail } from '../people/email.ts';
import {
  accessOf,
  accessText,
  findUser,
  lockUser,
  requireUser,
  resetPassword,
  type User,
  verifyEmail,
} from '../people/users.ts';
import type { Client } from '../sessions/networks.ts';
import { Backoff, NetworkBackoff, throttled } from './backoff.ts';
import { type Passwords, passwordProblem } from './passwords.ts';
import { removeSecondFactor } from './second-factors.ts';
import { CLIENT_LEVELS } from './sign-in-limits.ts';

export interface PasswordResetOptions {
  readonly sql: Sql;
  readonly publicUrl: string;
  readonly passwords: Passwords;
  readonly mailer: Mailer | null;
  readonly background: Background;
  /** OIDC_ONLY: only accounts of the command line have passwords. */
  readonly onlyBreakGlass: boolean;
  /** Ends what reads apps in the name of an account: roles by groups, resource tokens, shares. */
  readonly endReading: (tx: Transaction, user: User) => Promise<void>;
  readonly wall: () => number;
  readonly monotonic: () => number;
}

const NO_LINK = new Rejection('linkNotValid', 'The link was used already, or has expired.');

export class PasswordReset {
  readonly #options: PasswordResetOptions;
  readonly #ofEmail: Backoff;
  readonly #ofClient: NetworkBackoff;
  readonly #ofLink: Backoff;

  constructor(options: PasswordResetOptions) {
    this.#options = options;
    this.#ofEmail = new Backoff({ free: 3, longestMs: 300_000, now: options.monotonic });
    this.#ofClient = new NetworkBackoff(CLIENT_LEVELS, options.monotonic);
    this.#ofLink = new Backoff({ free: 10, longestMs: 60_000, now: options.monotonic });
  }

  /** Mails a link if the account exists. The lookup runs in the background, so known and unknown emails look the same. */
  request(email: Email, { networks }: Client, note: Note): Rejection | null {
    const wait = Math.max(this.#ofEmail.wait(email.key), this.#ofClient.wait(networks));
    if (wait > 0) return throttled(wait);
    this.#ofEmail.begin(email.key);
    this.#ofClient.begin(networks);
    const { sql, mailer, publicUrl, background, onlyBreakGlass, wall } = this.#options;
    if (mailer === null) return null;
    background.run('password reset', async () => {
      const found = await findUser(sql, email);
      if (found === null || (onlyBreakGlass && !found.breakGlass)) return;
      const token = await createLink(sql, { purpose: 'reset-password', userId: found.user.id }, wall());
      note('link.create', { purpose: 'reset-password', email: found.user.email });
      // To the account's stored address, not to the entered one.
      mailer.send(MAILS.resetPassword(found.user.email, `${publicUrl}/password-reset/${token}`));
    });
    return null;
  }

  /**
   * Sets the password of the link's account and ends its sessions, even if the password was changed concurrently. Where this
   * verifies the address, another person may have made the account: all access of before ends then.
   * @returns the account's email and what else has ended, in words; or the refusal
   */
  async complete(
    token: string,
    password: string,
    client: Client,
  ): Promise<{ readonly email: Email; readonly ended: string } | Rejection> {
    const { sql, passwords, endReading, wall } = this.#options;
    const link = await findLink(sql, token, ['reset-password'], wall());
    if (link === null || link.userId === null) return NO_LINK;
    const [user] = await sql<{ email: string }[]>`SELECT email FROM users WHERE id = ${link.userId}`;
    const email = parseEmail(user?.email ?? '');
    if (email === null) return NO_LINK;
    const wait = this.#ofLink.wait(token);
    if (wait > 0) return throttled(wait);
    this.#ofLink.begin(token);
    const problem = await passwordProblem(password, email);
    if (problem !== null) return new Rejection('weakPassword', `The password ${problem}.`);
    const { userId } = link;
    const passwordHash = await passwords.hash(password, { ...client, isKnown: true, failures: 0 });
    if (passwordHash instanceof Rejection) return passwordHash;
    return await sql.begin('isolation level read committed', async (tx) => {
      // Lock the account before its links, as everywhere: the other order could deadlock two requests.
      await lockUser(tx, userId);
      const again = await findLink(tx, token, ['reset-password'], wall());
      if (again === null) return NO_LINK;
      const found = await findUser(tx, email);
      if (found === null) return NO_LINK;
      const { user } = found;
      let ended = '';
      if (again.verifiesEmail && (await verifyEmail(tx, userId))) {
        ended = accessText(await accessOf(tx, userId));
        await leaveIdentities(tx, userId);
        await removeSecondFactor(tx, userId);
        await endReading(tx, user);
      }
      await resetPassword(tx, userId, passwordHash);
      const by = { userId, email: email.text };
      const details = ended === '' ? {} : { ended };
      await writeAccountAudit(tx, { user, by, action: 'password.reset', details });
      return { email, ended };
    });
  }
}

/** For the command line: the path of a link for the account's owner. @throws Refused memberNotFound */
export async function createResetPath(sql: Sql, email: Email, now: number): Promise<string> {
  const user = await requireUser(sql, email);
  return `/password-reset/${await createLink(sql, { purpose: 'reset-password', userId: user.id }, now)}`;
}
