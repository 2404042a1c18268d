/** Creates accounts: the first one, by invitation, and by open sign-up with or without verification of the email. */
import { HOUR_MS } from '../../base/time-units.ts';
import { MOST_CLIENTS, Window } from '../../base/window.ts';
import type { Config } from '../../config.ts';
import { Rejection, refused } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { COMMAND_LINE } from '../log/audit.ts';
import type { Note } from '../log/auth-log.ts';
import { MAILS, type Mailer } from '../mail/mail.ts';
import type { Client } from '../sessions/networks.ts';
import type { StartedSession } from '../sessions/sessions.ts';
import { Backoff, NetworkBackoff, throttled } from '../sign-in/backoff.ts';
import type { PasswordResetOptions } from '../sign-in/password-reset.ts';
import { type Passwords, passwordProblem } from '../sign-in/passwords.ts';
import { CLIENT_LEVELS } from '../sign-in/sign-in-limits.ts';
import { createLink, findLink, useUp } from './account-links.ts';
import { type Email, mailboxOf, parseEmail } from './email.ts';
import { acceptInvitation, holdInvitation, type OpenInvitation } from './invitations.ts';
import { adoptApps } from './members.ts';
import type { Setup } from './setup.ts';
import { createUser, findUser, hasUsers, type User, verifyEmail } from './users.ts';

export interface SignUpOptions extends Omit<PasswordResetOptions, 'onlyBreakGlass' | 'endReading'> {
  readonly allowed: Config['ALLOW_SIGNUP'];
  readonly setup: Setup;
  /** Sign-up mails to one mailbox in an hour; 0 for no limit. */
  readonly mailsPerHour: number;
}

export interface NewAccount {
  readonly email: string;
  readonly password: string;
  readonly setupToken?: string | undefined;
  readonly invitation?: string | undefined;
}

/** Starts a session in the transaction that creates the account. */
export type StartSession = (tx: Transaction, user: User) => Promise<StartedSession>;

export interface SignedUp {
  readonly user: User;
  readonly setCookie: string;
  readonly way: Way;
  /** The invitation that was accepted, if any. */
  readonly invitation?: OpenInvitation;
}

/** How an account is created: from this machine, by the setup link, by invitation, by open sign-up, by a mailed link. */
export type Way = AtOnce | 'mailed-link';
type AtOnce = 'first' | 'setup-link' | 'invitation' | 'open';
const CLOSED = new Rejection('signUpClosed', 'Accounts are created by invitation, or on the command line.');
const NO_LINK = new Rejection('linkNotValid', 'The link was used already, was withdrawn, or has expired.');
const WRONG_PASSWORD = new Rejection('wrongPassword', 'This is not the password that was chosen at sign-up.');

export class SignUp {
  readonly #options: SignUpOptions;
  readonly #ofClient: NetworkBackoff;
  readonly #ofLink: Backoff;
  readonly #ofMailbox: Window;

  constructor(options: SignUpOptions) {
    this.#options = options;
    this.#ofClient = new NetworkBackoff(CLIENT_LEVELS, options.monotonic);
    this.#ofMailbox = new Window({
      limit: options.mailsPerHour,
      ms: HOUR_MS,
      maxKeys: MOST_CLIENTS,
      now: options.monotonic,
    });
    this.#ofLink = new Backoff({ free: 5, longestMs: 60_000, now: options.monotonic });
  }

  /** @returns the account with its session, 'check-mail' if the email must be verified first, or the refusal */
  async create(
    given: NewAccount,
    { exchange, client, note }: { exchange: Exchange; client: Client; note: Note },
    start: StartSession,
  ): Promise<SignedUp | 'check-mail' | Rejection> {
    const { passwords, mailer } = this.#options;
    const way = await this.#wayIn(given, exchange);
    if (way instanceof Rejection) return way;

    const email = parseEmail(given.email);
    if (email === null) return new Rejection('invalidBody', 'The field "email" must be an email address.');
    const wait = this.#ofClient.wait(client.networks);
    if (wait > 0) return throttled(wait);
    const failures = this.#ofClient.count(client.networks);
    this.#ofClient.begin(client.networks);
    const problem = await passwordProblem(given.password, email);
    if (problem !== null) return new Rejection('weakPassword', `The password ${problem}.`);

    const mailsVerification = way === 'open' && mailer !== null;
    // Before the expensive work, and the same for addresses with and without an account.
    const tooEarly = mailsVerification ? this.#ofMailbox.wait(mailboxOf(email)) : 0;
    if (tooEarly > 0) return tooManyMails(this.#options.mailsPerHour, tooEarly);
    const passwordHash = await passwords.hash(given.password, { ...client, isKnown: false, failures });
    if (passwordHash instanceof Rejection) {
      if (mailsVerification) this.#ofMailbox.giveBack(mailboxOf(email));
      return passwordHash;
    }
    if (mailsVerification) {
      this.#options.background.run('sign-up', () =>
        this.#mailVerification(email, passwordHash, mailer, note),
      );
      return 'check-mail';
    }
    return await this.#options.sql.begin('isolation level read committed', async (tx) => {
      const made = await this.#make(tx, way, given, email, passwordHash);
      return made instanceof Rejection ? made : { ...made, way, ...(await start(tx, made.user)) };
    });
  }

  /** By which right an account may be created. */
  async #wayIn(given: NewAccount, exchange: Exchange): Promise<AtOnce | Rejection> {
    const { allowed, setup } = this.#options;
    if (allowed === 'closed') return CLOSED;
    if (given.invitation !== undefined) return 'invitation';
    if (allowed === 'open') return 'open';
    if (!(await setup.isPending())) return CLOSED;
    if (given.setupToken !== undefined && (await setup.isLink(given.setupToken))) return 'setup-link';
    if (setup.isOpenTo(exchange)) return 'first';
    return given.setupToken === undefined ? CLOSED : NO_LINK;
  }

  async #make(
    tx: Transaction,
    way: AtOnce,
    given: NewAccount,
    email: Email,
    passwordHash: string,
  ): Promise<{ user: User; invitation?: OpenInvitation } | Rejection> {
    if (way === 'open') return { user: await createUser(tx, { email, passwordHash, verified: false }) };
    if (way === 'invitation') {
      const invitation = await holdInvitation(tx, given.invitation ?? '', this.#options.wall());
      if (invitation === null) return NO_LINK;
      // It tells whoever holds the link which addresses have accounts. The lock has one attempt after the other.
      const link = given.invitation ?? '';
      const wait = this.#ofLink.wait(link);
      if (wait > 0) return throttled(wait);
      this.#ofLink.begin(link);
      const user = await createUser(tx, { email, passwordHash, verified: false });
      await acceptInvitation(tx, invitation, user);
      return { user, invitation };
    }
    // Serialize: two concurrent requests must not both create a first account.
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark first account'))`;
    if (await hasUsers(tx)) return CLOSED;
    await tx`DELETE FROM account_links WHERE purpose = 'setup'`;
    // Only the operator has seen the link. A local request may come from any user of this machine.
    const user = await createUser(tx, { email, passwordHash, verified: way === 'setup-link' });
    await adoptApps(tx, user, { userId: user.id, email: user.email });
    return { user };
  }

  /** Runs in the background: whether an account exists shows only in the mailbox. */
  async #mailVerification(email: Email, passwordHash: string, mailer: Mailer, note: Note): Promise<void> {
    const { sql, publicUrl, wall } = this.#options;
    const known = await findUser(sql, email);
    if (known !== null) {
      mailer.send(MAILS.alreadySignedUp(known.user.email, `${publicUrl}/password-reset`));
      return;
    }
    const token = await createLink(sql, { purpose: 'sign-up', email, passwordHash }, wall());
    note('link.create', { purpose: 'sign-up', email: email.text });
    mailer.send(MAILS.signUp(email.text, `${publicUrl}/email-verifications/${token}`));
  }

  /** Mails a signed-in account the link that verifies its email. @returns the refusal if it is throttled */
  mailVerificationOf(user: User, mailer: Mailer, note: Note): Rejection | null {
    const { sql, publicUrl, wall, background } = this.#options;
    const wait = this.#ofLink.wait(user.userId);
    if (wait > 0) return throttled(wait);
    this.#ofLink.begin(user.userId);
    background.run('email verification', async () => {
      const token = await createLink(sql, { purpose: 'verify-email', userId: user.id }, wall());
      note('link.create', { purpose: 'verify-email' });
      mailer.send(MAILS.verifyEmail(user.email, `${publicUrl}/email-verifications/${token}`));
    });
    return null;
  }

  /** The account that a verification link is for; null if the link is not valid. */
  async pendingVerification(token: string): Promise<{ email: string; needsPassword: boolean } | null> {
    const { sql, wall } = this.#options;
    const link = await findLink(sql, token, ['sign-up', 'verify-email'], wall());
    if (link === null) return null;
    if (link.email !== null) return { email: link.email, needsPassword: true };
    const [user] = await sql<{ email: string }[]>`SELECT email FROM users WHERE id = ${link.userId}`;
    return user === undefined ? null : { email: user.email, needsPassword: false };
  }

  /**
   * Follows a verification link. A sign-up also requires the password: a person who signed up with another person's address
   * must not get an account when the owner of the address follows the link. An existing account requires its session.
   */
  async verify(
    token: string,
    verification: { password: string | undefined; user: User | null },
    client: Client,
    start: StartSession,
  ): Promise<SignedUp | 'verified' | Rejection> {
    const { sql, passwords, wall } = this.#options;
    const link = await findLink(sql, token, ['sign-up', 'verify-email'], wall());
    if (link === null) return NO_LINK;
    if (link.purpose === 'verify-email') {
      if (verification.user === null)
        return new Rejection('sessionRequired', 'Sign in to verify that the email is yours.');
      if (verification.user.id !== link.userId)
        return new Rejection('wrongAccount', 'The link is for another account.');
      await verifyEmail(sql, verification.user.id);
      await sql.begin((tx) => useUp(tx, link));
      return 'verified';
    }
    if (verification.password === undefined)
      return new Rejection('invalidBody', 'The field "password" is missing.');
    const wait = this.#ofLink.wait(token);
    if (wait > 0) return throttled(wait);
    this.#ofLink.begin(token);
    const asker = { ...client, isKnown: true, failures: 0 };
    const matches = await passwords.matches(verification.password, link.passwordHash, asker);
    if (matches instanceof Rejection) return matches;
    if (!matches) return WRONG_PASSWORD;
    return await sql.begin('isolation level read committed', async (tx) => {
      const again = await findLink(tx, token, ['sign-up'], wall());
      const email = parseEmail(again?.email ?? '');
      if (again === null || email === null || again.passwordHash === null) return NO_LINK;
      const user = await createUser(tx, { email, passwordHash: again.passwordHash, verified: true });
      await useUp(tx, again);
      return { user, way: 'mailed-link', ...(await start(tx, user)) };
    });
  }
}

function tooManyMails(limit: number, waitMs: number): Rejection {
  const minutes = Math.ceil(waitMs / 60_000);
  const details = `This address received ${limit} sign-up mails within an hour (MAX_SIGN_UP_MAILS_PER_HOUR): follow the link in one of them with the password given for it, or wait ${minutes} min.`;
  return new Rejection('tooManyMails', details, { retryAfterSeconds: waitMs / 1_000 });
}

/** For the command line. @throws Refused invalidBody, weakPassword, emailTaken */
export async function createVerifiedUser(
  sql: Sql,
  passwords: Passwords,
  account: { email: Email; password: string; breakGlass?: boolean },
): Promise<User> {
  const problem = await passwordProblem(account.password, account.email);
  if (problem !== null) throw refused('weakPassword', `the password ${problem}`);
  const passwordHash = await passwords.hash(account.password);
  return await sql.begin('isolation level read committed', async (tx) => {
    const isFirst = !(await hasUsers(tx));
    const { email, breakGlass = false } = account;
    const user = await createUser(tx, { email, passwordHash, verified: true, breakGlass });
    if (isFirst) await adoptApps(tx, user, COMMAND_LINE);
    return user;
  });
}
