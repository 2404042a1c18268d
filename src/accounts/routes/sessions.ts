/** Routes of sessions: signing in, in one or two steps, the list of one's sessions, and ending them. */
import type { EndedSessions, OidcShown, Session, SessionList, SignInStep } from '../../api-types/answers.ts';
import type { Config } from '../../config.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { type AccountAction, type AuditDetails, writeAccountAudit } from '../log/audit.ts';
import type { Mailer } from '../mail/mail.ts';
import { parseEmail } from '../people/email.ts';
import type { Setup } from '../people/setup.ts';
import { lockUser } from '../people/users.ts';
import { deviceText } from '../sessions/device.ts';
import { endSessions, type Sessions } from '../sessions/sessions.ts';
import { MOST_CODE_CHARACTERS } from '../sign-in/second-factors.ts';
import type { SignedIn, SignIn } from '../sign-in/sign-in.ts';
import { MOST_CHARACTERS } from '../sign-in/sign-in-challenge.ts';
import type { Api, Call, SignedInCall } from './api.ts';
import { auditPage } from './audit-page.ts';
import { bodyOf, NO_FIELDS } from './body.ts';
import { email, NO_EMAIL, named, password, shown } from './people.ts';

export interface SessionRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  readonly setup: Setup;
  readonly mailer: Mailer | null;
  readonly allowed: Config['ALLOW_SIGNUP'];
  /** What the sign-in page shows of the issuer; null without one. */
  readonly oidc: () => OidcShown | null;
  readonly version: string;
}

const CREDENTIALS = bodyOf({ email, password }, ['email', 'password']);
const SECOND_STEP = bodyOf(
  {
    challenge: { type: 'string', maxLength: MOST_CHARACTERS },
    code: { type: 'string', maxLength: MOST_CODE_CHARACTERS },
  },
  ['challenge', 'code'],
);
const WHICH = bodyOf({ keepCurrent: { type: 'boolean' } });

const NO_SESSION = new Rejection('sessionNotFound', 'Your account has no such session, or it has ended.');

export function sessionRoutes(options: SessionRoutesOptions): readonly Route[] {
  return [...signInRoutes(options), ...listRoutes(options)];
}

function signInRoutes(options: SessionRoutesOptions): Route[] {
  const { api, sql, sessions, signIn } = options;
  return [
    currentSessionRoute(options),
    api.change('POST', '/api/session', 'public', CREDENTIALS, async (call, body) => {
      const { client, origin, note } = call;
      const parsed = parseEmail(body.email);
      if (parsed === null) return NO_EMAIL;
      const step = await signIn.signIn({ email: parsed, password: body.password }, client, origin);
      if (step instanceof Rejection) {
        if (step.reason === 'signInFailed' || step.reason === 'accountSuspended')
          note('sign-in.failure', { email: parsed.text, reason: step.code });
        return step;
      }
      if (!('challenge' in step)) return signedIn(call, step);
      note('sign-in.first-step', named(step.user));
      return done<SignInStep>({ challenge: step.challenge }, { status: 202 });
    }),
    api.change('POST', '/api/session/code', 'public', SECOND_STEP, async (call, body) => {
      const step = await signIn.completeByCode(body, call);
      if (step instanceof Rejection) return step;
      const { recoveryCodesLeft, wrongCodes } = step;
      return signedIn(call, step, { recoveryCodesLeft, wrongCodes });
    }),
    api.change('DELETE', '/api/session', 'public', NO_FIELDS, async ({ cookies, note }) => {
      const ended = await sessions.end(sql, cookies);
      if (ended !== null) note('sign-out', ended);
      return done<Nothing>({}, { setCookie: sessions.forget() });
    }),
  ];
}

function currentSessionRoute({
  api,
  sessions,
  setup,
  allowed,
  mailer,
  oidc,
  version,
}: SessionRoutesOptions): Route {
  return api.read('/api/session', 'public', async ({ exchange, cookies }) => {
    const session = await sessions.find(cookies);
    const pending = session === null && allowed === 'first' && (await setup.isPending());
    return done<Session>({
      user: session === null ? null : shown(session.user),
      setup: pending ? (setup.isOpenTo(exchange) ? 'open' : 'link') : null,
      signup: allowed,
      mail: mailer !== null,
      oidc: oidc(),
      version,
    });
  });
}

/** The answer to a sign-in that is complete. */
function signedIn(
  { note, origin }: Call,
  { user, setCookie, isNewDevice }: SignedIn,
  fields: object = {},
): Outcome {
  note('sign-in.success', named(user));
  if (isNewDevice) note('sign-in.new-device', { ...named(user), device: deviceText(origin.device) });
  return done<SignInStep>({ user: shown(user), ...fields }, { setCookie });
}

function listRoutes({ api, sql, sessions }: SessionRoutesOptions): Route[] {
  return [
    api.read('/api/sessions', 'signed-in', async ({ session }) =>
      done<SessionList>({ sessions: await sessions.list(sql, session) }),
    ),
    api.change('DELETE', '/api/sessions', 'signed-in', WHICH, async (call, { keepCurrent = false }) => {
      const { user, session, note } = call;
      const event = keepCurrent ? 'sign-out.others' : 'sign-out.everywhere';
      const ended = await sql.begin('isolation level read committed', async (tx) => {
        await lockUser(tx, user.id);
        const count = await endSessions(tx, user.id, keepCurrent ? session : null);
        if (count > 0) await auditOf(tx, call, event, { sessions: count });
        return count;
      });
      note(event);
      return done<EndedSessions>({ ended }, keepCurrent ? {} : { setCookie: sessions.forget() });
    }),
    api.change('DELETE', '/api/sessions/:sessionId', 'signed-in', NO_FIELDS, async (call) => {
      const { user, parameters, note } = call;
      const ended = await sql.begin('isolation level read committed', async (tx) => {
        const one = await sessions.endOne(tx, { userId: user.id, sessionId: parameters[0] ?? '' });
        if (one !== null) await auditOf(tx, call, 'sign-out.one', one);
        return one;
      });
      if (ended === null) return NO_SESSION;
      note('sign-out.one');
      return done<Nothing>({});
    }),
    api.readInTurn('/api/activity', 'signed-in', ({ user, exchange, sql }) =>
      auditPage(sql, { userId: user.id }, exchange),
    ),
  ];
}

async function auditOf(
  tx: Parameters<typeof writeAccountAudit>[0],
  { user, by }: SignedInCall,
  action: AccountAction,
  details: AuditDetails,
): Promise<void> {
  await writeAccountAudit(tx, { user, by, action, details });
}
