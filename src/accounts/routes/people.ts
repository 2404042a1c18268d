/** Routes of accounts: sign-up, passwords, email verification. */
import type { NewAccount, User as ShownUser, VerificationDetails } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Mailer } from '../mail/mail.ts';
import { parseEmail } from '../people/email.ts';
import type { SignedUp, SignUp } from '../people/sign-up.ts';
import type { User } from '../people/users.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { PasswordChange } from '../sign-in/password-change.ts';
import type { PasswordReset } from '../sign-in/password-reset.ts';
import type { SignIn } from '../sign-in/sign-in.ts';
import type { Api, Call } from './api.ts';
import { bodyOf, NO_FIELDS } from './body.ts';

export interface PeopleOptions {
  readonly api: Api;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  readonly signUp: SignUp;
  readonly passwordChange: PasswordChange;
  readonly passwordReset: PasswordReset;
  readonly mailer: Mailer | null;
}

/** Longer than any accepted password: refused before each character is checked. */
export const password = { type: 'string', maxLength: 4_096 } as const;
export const email = { type: 'string', maxLength: 1_000 } as const;
const token = { type: 'string', maxLength: 1_000 } as const;

const NEW_ACCOUNT = bodyOf({ email, password, setupToken: token, invitation: token }, ['email', 'password']);
const EMAIL = bodyOf({ email }, ['email']);
const PASSWORD = bodyOf({ password }, ['password']);
const VERIFICATION = bodyOf({ password });
const PASSWORD_CHANGE = bodyOf({ currentPassword: password, newPassword: password }, [
  'currentPassword',
  'newPassword',
]);

export const NO_EMAIL = new Rejection('invalidBody', 'The field "email" must be an email address.');
const NO_MAIL = new Rejection('unavailable', 'This installation sends no mail: set SMTP_URL.', {
  retryAfterSeconds: 3_600,
});
const NO_LINK = new Rejection('linkNotValid', 'The link was used already, or has expired.');

export function peopleRoutes(options: PeopleOptions): readonly Route[] {
  return [...accountRoutes(options), ...passwordRoutes(options), ...verificationRoutes(options)];
}

function accountRoutes({ api, sessions, signUp }: PeopleOptions): Route[] {
  return [
    api.change('POST', '/api/users', 'public', NEW_ACCOUNT, async (call, body) => {
      const made = await signUp.create(body, call, (tx, user) => sessions.start(tx, user, call.origin));
      if (made === 'check-mail') return done<NewAccount>({ checkMail: true }, { status: 202 });
      return made instanceof Rejection ? made : signedUp(call, made);
    }),
  ];
}

function passwordRoutes(options: PeopleOptions): Route[] {
  const { api, sessions, signIn, passwordChange, passwordReset } = options;
  return [
    api.change('POST', '/api/password', 'signed-in', PASSWORD_CHANGE, async (call, body) => {
      const own = parseEmail(call.user.email);
      if (own === null) return NO_EMAIL;
      const started = await passwordChange.change({ email: own, ...body }, call.client, call);
      if (started instanceof Rejection) {
        if (started.reason === 'wrongPassword')
          call.note('password-change.failure', { reason: started.code });
        return started;
      }
      call.note('password-change.success');
      return done<Nothing>({}, { setCookie: started.setCookie });
    }),
    api.change('POST', '/api/password-resets', 'public', EMAIL, async ({ client, note }, body) => {
      const parsed = parseEmail(body.email);
      if (parsed === null) return NO_EMAIL;
      const refused = passwordReset.request(parsed, client, note);
      if (refused !== null) return refused;
      note('password-reset.request', { email: parsed.text });
      return done<Nothing>({}, { status: 202 });
    }),
    api.change('POST', '/api/password-resets/:token', 'public', PASSWORD, async (call, body) => {
      const completed = await passwordReset.complete(call.parameters[0] ?? '', body.password, call.client);
      if (completed instanceof Rejection) return completed;
      const { email: own, ended } = completed;
      await signIn.reset(own, call.client);
      passwordChange.reset(own);
      call.note('password-reset.success', { email: own.text, ...(ended !== '' && { access: ended }) });
      return done<Pick<User, 'email'>>({ email: own.text }, { setCookie: sessions.forget() });
    }),
  ];
}

function verificationRoutes({ api, sessions, signUp, mailer }: PeopleOptions): Route[] {
  return [
    api.change('POST', '/api/email-verifications', 'signed-in', NO_FIELDS, async ({ user, note }) => {
      if (mailer === null) return NO_MAIL;
      const refused = signUp.mailVerificationOf(user, mailer, note);
      return refused ?? done<Nothing>({}, { status: 202 });
    }),
    api.read('/api/email-verifications/:token', 'public', async ({ parameters }) => {
      const verification = await signUp.pendingVerification(parameters[0] ?? '');
      return verification === null ? NO_LINK : done<VerificationDetails>(verification);
    }),
    api.change('POST', '/api/email-verifications/:token', 'public', VERIFICATION, async (call, body) => {
      const session = await sessions.find(call.cookies);
      const verification = { password: body.password, user: session?.user ?? null };
      const verified = await signUp.verify(call.parameters[0] ?? '', verification, call.client, (tx, user) =>
        sessions.start(tx, user, call.origin),
      );
      if (verified === 'verified') {
        call.note('email.verify', session === null ? {} : named(session.user));
        return done<Nothing>({});
      }
      if (!(verified instanceof Rejection)) return signedUp(call, verified);
      if (verified.reason === 'wrongPassword') call.note('link.failure', { reason: verified.code });
      return verified;
    }),
  ];
}

function signedUp({ note }: Call, { user, setCookie, way, invitation }: SignedUp): Outcome {
  note('account.create', { ...named(user), purpose: way });
  if (invitation !== undefined) {
    const { appId, email: targetEmail } = invitation;
    note('invitation.accept', { ...named(user), appId, targetEmail });
  }
  const joined = invitation === undefined ? {} : { appId: invitation.appId };
  return done<NewAccount>({ user: shown(user), ...joined }, { status: 201, setCookie });
}

/** An account's fields in the authentication log. */
export function named({ userId, email }: User): { userId: string; email: string } {
  return { userId, email };
}

/** An account's own data. */
export function shown({ userId, email, emailVerified }: User): ShownUser {
  return { userId, email, emailVerified };
}
