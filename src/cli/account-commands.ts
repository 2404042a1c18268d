/** Commands for accounts and their roles in apps. */

import { COMMAND_LINE } from '../accounts/log/audit.ts';
import type { IssuerNames } from '../accounts/oidc/issuer.ts';
import { type Email, requireEmail } from '../accounts/people/email.ts';
import { grantRole } from '../accounts/people/members.ts';
import {
  accessOf,
  accessText,
  listUsers,
  lockUser,
  requireUser,
  verifyEmail,
} from '../accounts/people/users.ts';
import { ROLES, type Role } from '../base/roles.ts';
import type { Config } from '../config.ts';
import { OperatorError, oneLine, refused } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { mailNotice } from './command-notice.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command } from './session.ts';

const EMAIL_OPTION = ['--email <email>', 'the email that the account signs in with'] as const;
/** For commands that grant access to an account by its address. */
export const UNVERIFIED_OPTION = [
  '--allow-unverified',
  'also grant to an account with an unverified email, which anyone may have registered',
] as const;

const VERIFIES =
  'The email of this account is not verified; the link verifies it. Send it to that address or hand it over in person.';

/** Loads what it needs only now: the packages take longer to load than most commands run. */
async function createAccount(
  sql: Sql,
  account: { email: Email; password: string; breakGlass: boolean },
): Promise<{ userId: string }> {
  const { Passwords } = await import('../accounts/sign-in/passwords.ts');
  const { createVerifiedUser } = await import('../accounts/people/sign-up.ts');
  return await createVerifiedUser(sql, new Passwords(), account);
}

function usersTable(users: Awaited<ReturnType<typeof listUsers>>): string {
  const head = ['Account', 'Email', 'Email verified', 'Second factor', 'Suspended since', 'Created'];
  const rows = users.map(({ userId, email, emailVerified, secondFactor, suspendedAt, createdAt }) => [
    userId,
    email,
    emailVerified ? 'yes' : 'no',
    secondFactor ? 'yes' : 'no',
    suspendedAt,
    createdAt,
  ]);
  return formatTable(head, rows, 'There are no accounts.');
}

/** `user create`, `user list`, `user verify`, `user reset-password`, `user remove-second-factor`, `user suspend` and the rest. */
export function addUserCommands(program: Command): void {
  const user = program.command('user').description('user accounts');
  user
    .command('create')
    .description('create an account with a verified email')
    .requiredOption(...EMAIL_OPTION)
    .requiredOption('--password-stdin', 'read the password from standard input')
    .option('--break-glass', 'let the account sign in by its password also where OIDC_ONLY is set')
    .run(async ({ sql }, options: { email: string; breakGlass?: true }) => {
      const { breakGlass = false } = options;
      const email = requireEmail(options.email);
      const password = await readPassword();
      const { userId } = await createAccount(sql, { email, password, breakGlass });
      return {
        json: { userId, email: email.text, ...(breakGlass && { breakGlass }) },
        text: formatFields({
          Account: userId,
          Email: email.text,
          ...(breakGlass && { 'Break glass': 'yes' }),
        }),
      };
    });
  user
    .command('list')
    .description('list all accounts')
    .list(async ({ sql }) => {
      const users = await listUsers(sql);
      return { json: { users }, text: usersTable(users) };
    });
  user
    .command('verify')
    .description('mark the email of an account as verified, if you know that it belongs to the account')
    .requiredOption(...EMAIL_OPTION)
    .run(async (session, options: { email: string }) => {
      const { sql } = session;
      const { id, userId, email } = await requireUser(sql, requireEmail(options.email));
      const isNew = await verifyEmail(sql, id);
      const access = accessText(await accessOf(sql, id));
      const fields = { Account: userId, Email: email, 'Email verified': 'yes' };
      const had = access === '' ? {} : { access };
      return {
        json: { userId, email, emailVerified: true, ...had },
        text: formatFields(access === '' ? fields : { ...fields, 'It has already': access }),
        afterwards: async () => {
          if (isNew) await mailNotice(session, 'email.vouch', { email, ...had });
        },
      };
    });
  user
    .command('reset-password')
    .description('create a one-time link, valid for an hour, to set a new password')
    .requiredOption(...EMAIL_OPTION)
    .run(async ({ sql, config }, options: { email: string }) => {
      const email = requireEmail(options.email);
      const { emailVerified } = await requireUser(sql, email);
      const { createResetPath } = await import('../accounts/sign-in/password-reset.ts');
      const link = baseUrl(config) + (await createResetPath(sql, email, Date.now()));
      const warning = emailVerified ? '' : `\n${VERIFIES}`;
      return {
        json: { email: email.text, link },
        text: `${formatFields({ Email: email.text, Link: link })}\nGive it only to the account's owner.${warning}`,
      };
    });
  addSecondFactorCommand(user);
  addIdentityCommand(user);
  for (const isSuspended of [true, false]) addSuspendCommand(user, isSuspended);
}

/** `user suspend` and `user resume`. */
function addSuspendCommand(user: Command, isSuspended: boolean): void {
  user
    .command(isSuspended ? 'suspend' : 'resume')
    .description(
      isSuspended
        ? 'end all sessions of an account, and refuse its sign-ins and its resource tokens, in every process within a second'
        : 'let an account sign in again that was suspended; its resource tokens are valid again',
    )
    .requiredOption(...EMAIL_OPTION)
    .run(async ({ sql }, options: { email: string }) => {
      const { suspendAccount, resumeAccount } = await import('../accounts/people/suspension.ts');
      const change = isSuspended ? suspendAccount : resumeAccount;
      const { user: account, suspendedAt, endedSessions } = await change(sql, requireEmail(options.email));
      const { userId, email } = account;
      return {
        json: { userId, email, suspendedAt, ...(isSuspended && { endedSessions }) },
        text: formatFields({
          Account: userId,
          Email: email,
          'Suspended since': suspendedAt,
          ...(isSuspended && { 'Ended sessions': String(endedSessions) }),
        }),
      };
    });
}

function addIdentityCommand(user: Command): void {
  user
    .command('join')
    .description(
      'let an identity of the OIDC issuer sign in to an account, if you know that both are the same person',
    )
    .requiredOption(...EMAIL_OPTION)
    .requiredOption('--subject <subject>', 'the subject of the identity: claim "sub" of its tokens')
    .option('--issuer <url>', 'the issuer; OIDC_ISSUER by default')
    .run(async ({ sql, config }, options: { email: string; subject: string; issuer?: string }) => {
      const { issuer: asked = config.OIDC_ISSUER, subject } = options;
      if (asked === '')
        throw refused('invalidBody', 'there is no issuer: set OIDC_ISSUER, or name one with --issuer');
      const { joinIdentity } = await import('../accounts/oidc/identities.ts');
      const account = await requireUser(sql, requireEmail(options.email));
      const { name: issuer, all: spellings } = await askedNames(config, asked);
      const joined = await sql.begin('isolation level read committed', async (tx) => {
        await lockUser(tx, account.id);
        return await joinIdentity(tx, account, { issuer, spellings, subject }, COMMAND_LINE);
      });
      if (!joined)
        throw refused(
          'wrongAccount',
          "the identity is another account's, or the account has another one of this issuer",
        );
      const { userId, email } = account;
      return {
        json: { userId, email, issuer, subject },
        text: formatFields({ Account: userId, Email: email, Issuer: issuer, Subject: subject }),
      };
    });
}

/** What an issuer's document calls it, which is what its tokens say. @throws OperatorError where it does not answer */
async function askedNames(config: Config, asked: string): Promise<IssuerNames> {
  const { OidcIssuer } = await import('../accounts/oidc/issuer.ts');
  const { default: pino } = await import('pino');
  const issuer = new OidcIssuer({
    ...{
      issuer: asked,
      clientId: config.OIDC_CLIENT_ID || 'tidemark',
      clientSecret: config.OIDC_CLIENT_SECRET,
    },
    ...{ scopes: '', groupsClaim: '', publicUrl: config.PUBLIC_URL },
    ...{ log: pino({ enabled: false }), now: () => Date.now() },
  });
  try {
    await issuer.check();
  } catch (error) {
    throw new OperatorError(
      `${asked} must answer with its discovery document, which has the name that its tokens have, and did not: ${oneLine(String(error))}. Run the command again when it does.`,
    );
  }
  return issuer.names;
}

function addSecondFactorCommand(user: Command): void {
  user
    .command('remove-second-factor')
    .description(
      'let an account sign in without a code, for a user who has lost the authenticator and the recovery codes',
    )
    .requiredOption(...EMAIL_OPTION)
    .run(async (session, options: { email: string }) => {
      const { removeSecondFactorOf } = await import('../accounts/sign-in/second-factors.ts');
      const { userId, email } = await removeSecondFactorOf(session.sql, requireEmail(options.email));
      return {
        json: { userId, email, secondFactor: false },
        text: formatFields({ Account: userId, Email: email, 'Second factor': 'removed' }),
        afterwards: () => mailNotice(session, 'second-factor.remove', { email }),
      };
    });
}

/** Adds `app grant` to the commands for apps. */
export function addGrantCommand(app: Command): void {
  app
    .command('grant')
    .description('give an account a role in an app')
    .requiredOption('--app <id>', 'the app, app_…')
    .requiredOption(...EMAIL_OPTION)
    .requiredOption('--role <role>', ROLES.join(' or '))
    .option(...UNVERIFIED_OPTION)
    .run(async ({ sql }, options: { app: string; email: string; role: string; allowUnverified?: true }) => {
      const role = requireRole(options.role);
      const email = requireEmail(options.email);
      const { allowUnverified = false } = options;
      await grantRole(sql, { appId: options.app, email, role, allowUnverified });
      return {
        json: { appId: options.app, email: email.text, role },
        text: formatFields({ App: options.app, Email: email.text, Role: role }),
      };
    });
}

export function requireRole(text: string): Role {
  const role = ROLES.find((one) => one === text);
  if (role !== undefined) return role;
  throw refused('invalidBody', `the role must be ${ROLES.slice(0, -1).join(', ')} or ${ROLES.at(-1)}`);
}

/** The whole input without its last line break: a password may begin or end with spaces. */
async function readPassword(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** The address of the dashboard, according to the settings. */
function baseUrl({ PUBLIC_URL, HOST, PORT }: Config): string {
  if (PUBLIC_URL !== '') return PUBLIC_URL;
  const host = ['0.0.0.0', '::'].includes(HOST) ? 'localhost' : HOST;
  return `http://${host.includes(':') ? `[${host}]` : host}:${PORT}`;
}
