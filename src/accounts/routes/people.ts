/** Routes of people: sessions, accounts, passwords, proofs of an e-mail. */
import type { Config } from '../../config.ts';
import { Rejection } from '../../errors.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/connect.ts';
import { parseEmail } from '../email.ts';
import type { Mailer } from '../mail.ts';
import type { PasswordChange } from '../password-change.ts';
import type { PasswordReset } from '../password-reset.ts';
import type { Sessions } from '../sessions.ts';
import type { Setup } from '../setup.ts';
import type { SignIn } from '../sign-in.ts';
import type { SignedUp, SignUp } from '../sign-up.ts';
import type { User } from '../users.ts';
import { type Api, done } from './api.ts';
import { bodyOf, NO_FIELDS } from './body.ts';

export interface PeopleOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  readonly signUp: SignUp;
  readonly setup: Setup;
  readonly passwordChange: PasswordChange;
  readonly passwordReset: PasswordReset;
  readonly mailer: Mailer | null;
  readonly allowed: Config['ALLOW_SIGNUP'];
  readonly version: string;
}

/** Longer than any that is taken: refused before anything looks at each character. */
const password = { type: 'string', maxLength: 4_096 } as const;
const email = { type: 'string', maxLength: 1_000 } as const;
const token = { type: 'string', maxLength: 1_000 } as const;

const CREDENTIALS = bodyOf({ email, password }, ['email', 'password']);
const NEW_ACCOUNT = bodyOf({ email, password, setupToken: token, invitation: token }, ['email', 'password']);
const EMAIL = bodyOf({ email }, ['email']);
const PASSWORD = bodyOf({ password }, ['password']);
const PROOF = bodyOf({ password });
const PASSWORD_CHANGE = bodyOf({ currentPassword: password, newPassword: password }, [
  'currentPassword',
  'newPassword',
]);

const NO_EMAIL = new Rejection('invalidBody', 'The field "email" must be an e-mail address.');
const NO_MAIL = new Rejection('unavailable', 'This installation sends no mail.', {
  retryAfterSeconds: 3_600,
});
const NO_LINK = new Rejection('linkNotValid', 'The link was used already, or has expired.');

export function peopleRoutes(options: PeopleOptions): readonly Route[] {
  return [
    ...sessionRoutes(options),
    ...accountRoutes(options),
    ...passwordRoutes(options),
    ...proofRoutes(options),
  ];
}

function sessionRoutes({
  api,
  sql,
  sessions,
  signIn,
  setup,
  allowed,
  mailer,
  version,
}: PeopleOptions): Route[] {
  return [
    api.read('/api/session', 'anybody', async ({ exchange, cookies }) => {
      const session = await sessions.find(cookies);
      const pending = session === null && allowed === 'first' && (await setup.isPending());
      return done({
        user: session === null ? null : shown(session.user),
        setup: pending ? (setup.isOpenTo(exchange) ? 'open' : 'link') : null,
        signup: allowed,
        mail: mailer !== null,
        version,
      });
    }),
    api.change('POST', '/api/session', 'anybody', CREDENTIALS, async ({ cookies, client }, body) => {
      const email = parseEmail(body.email);
      if (email === null) return NO_EMAIL;
      const signedIn = await signIn.signIn({ email, password: body.password }, client, cookies);
      if (signedIn instanceof Rejection) return signedIn;
      return done({ user: shown(signedIn.user) }, { setCookie: signedIn.setCookie });
    }),
    api.change('DELETE', '/api/session', 'anybody', NO_FIELDS, async ({ cookies }) => {
      await sessions.end(sql, cookies);
      return done({}, { setCookie: sessions.forget() });
    }),
    api.change('DELETE', '/api/sessions', 'signed-in', NO_FIELDS, async ({ user }) => {
      await sessions.endAll(sql, user.id);
      return done({}, { setCookie: sessions.forget() });
    }),
  ];
}

function accountRoutes({ api, sessions, signUp }: PeopleOptions): Route[] {
  return [
    api.change('POST', '/api/users', 'anybody', NEW_ACCOUNT, async (call, body) => {
      const made = await signUp.create(body, call.exchange, call.client, (tx, user) =>
        sessions.start(tx, user, call.cookies),
      );
      if (made === 'check-mail') return done({ checkMail: true }, { status: 202 });
      return made instanceof Rejection ? made : signedUp(made);
    }),
  ];
}

function passwordRoutes(options: PeopleOptions): Route[] {
  const { api, sessions, signIn, passwordChange, passwordReset } = options;
  return [
    api.change('POST', '/api/password', 'signed-in', PASSWORD_CHANGE, async (call, body) => {
      const email = parseEmail(call.user.email);
      if (email === null) return NO_EMAIL;
      const setCookie = await passwordChange.change({ email, ...body }, call.client, call.cookies);
      return setCookie instanceof Rejection ? setCookie : done({}, { setCookie });
    }),
    api.change('POST', '/api/password-resets', 'anybody', EMAIL, async ({ client }, body) => {
      const parsed = parseEmail(body.email);
      if (parsed === null) return NO_EMAIL;
      return passwordReset.request(parsed, client) ?? done({}, { status: 202 });
    }),
    api.change('POST', '/api/password-resets/:token', 'anybody', PASSWORD, async (call, body) => {
      const completed = await passwordReset.complete(call.parameters[0] ?? '', body.password, call.client);
      if (completed instanceof Rejection) return completed;
      signIn.forgive(completed, call.client);
      passwordChange.forgive(completed);
      return done({ email: completed.text }, { setCookie: sessions.forget() });
    }),
  ];
}

function proofRoutes({ api, sessions, signUp, mailer }: PeopleOptions): Route[] {
  return [
    api.change('POST', '/api/email-proofs', 'signed-in', NO_FIELDS, async ({ user }) => {
      if (mailer === null) return NO_MAIL;
      const refused = signUp.mailProofOf(user, mailer);
      return refused ?? done({}, { status: 202 });
    }),
    api.read('/api/email-proofs/:token', 'anybody', async ({ parameters }) => {
      const proof = await signUp.proofOf(parameters[0] ?? '');
      return proof === null ? NO_LINK : done(proof);
    }),
    api.change('POST', '/api/email-proofs/:token', 'anybody', PROOF, async (call, body) => {
      const session = await sessions.find(call.cookies);
      const proof = { password: body.password, user: session?.user ?? null };
      const proved = await signUp.prove(call.parameters[0] ?? '', proof, call.client, (tx, user) =>
        sessions.start(tx, user, call.cookies),
      );
      if (proved === 'proved') return done({});
      return proved instanceof Rejection ? proved : signedUp(proved);
    }),
  ];
}

function signedUp({ user, setCookie }: SignedUp): Outcome {
  return done({ user: shown(user) }, { status: 201, setCookie });
}

/** What an account sees of itself. */
function shown({ userId, email, emailProved }: User): {
  userId: string;
  email: string;
  emailProved: boolean;
} {
  return { userId, email, emailProved };
}
