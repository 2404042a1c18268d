/** Routes of sign-in by an OIDC issuer: to the issuer, back from it, and what ends sessions from there. */
import type { IdentityState } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { clientAddress, FORWARDING_HEADERS } from '../../http/client-address.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { AuthLog } from '../log/auth-log.ts';
import { hasIdentity, leaveIdentity } from '../oidc/identities.ts';
import { OidcFailure, type OidcIssuer } from '../oidc/issuer.ts';
import type { OidcProblem, OidcSignIn } from '../oidc/sign-in.ts';
import { lockUser } from '../people/users.ts';
import { deviceText } from '../sessions/device.ts';
import { networksOf } from '../sessions/networks.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { NetworkBackoff, throttled } from '../sign-in/backoff.ts';
import { CLIENT_LEVELS } from '../sign-in/sign-in-limits.ts';
import type { Api, Call } from './api.ts';
import { NO_FIELDS } from './body.ts';
import { named } from './people.ts';

export interface OidcRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly authLog: AuthLog;
  /** TRUST_PROXY */
  readonly trustedProxies: number;
  readonly issuer: OidcIssuer;
  readonly signIn: OidcSignIn;
  /** Called after a change of what tokens and members may do. */
  readonly onChange: () => void;
  readonly monotonic: () => number;
}

/** A logout token has some hundred bytes, with certificates some thousand. */
const MAX_LOGOUT_BYTES = 16_384;
const NO_IDENTITY = new Rejection('notFound', 'The account has no identity of the issuer.');
const AWAY = new Rejection('unavailable', 'The issuer does not answer; try again shortly.', {
  retryAfterSeconds: 10,
});
const NO_LOGOUT = new Rejection('invalidBody', 'This is not a logout token of the issuer for this service.', {
  param: 'logout_token',
});

export function oidcRoutes(options: OidcRoutesOptions): readonly Route[] {
  const { api } = options;
  const attempts = new NetworkBackoff(CLIENT_LEVELS, options.monotonic);
  return [
    api.read('/sign-in/oidc', 'public', (call) => leave(options, call)),
    api.read('/sign-in/oidc/callback', 'public', (call) => comeBack(options, attempts, call)),
    logoutRoute(options, attempts),
    ...identityRoutes(options),
  ];
}

/** Sends the browser to the issuer. */
async function leave({ signIn }: OidcRoutesOptions, call: Call): Promise<Outcome> {
  try {
    const next = new URLSearchParams(call.exchange.query).get('next');
    const { location, setCookie } = await signIn.begin(next, null);
    return redirect(location, [setCookie]);
  } catch (error) {
    return refuse(call, error);
  }
}

/**
 * The identity of the account: whether it has one, the way to the issuer to get one, and its end. Another site cannot begin
 * it for the user, whom it may have signed in at the issuer as somebody else.
 */
function identityRoutes({ api, sql, issuer, signIn }: OidcRoutesOptions): Route[] {
  return [
    api.read('/api/identity', 'signed-in', async ({ user }) =>
      done<IdentityState>({ issuer: issuer.names.name, joined: await hasIdentity(sql, user, issuer.names) }),
    ),
    api.change('POST', '/api/identity', 'signed-in', NO_FIELDS, async (call) => {
      try {
        const { location, setCookie } = await signIn.begin('/account', call.session);
        return done<{ location: string }>({ location }, { setCookie });
      } catch (error) {
        call.note('oidc.refusal', { reason: codeOf(error) });
        return AWAY;
      }
    }),
    api.change('DELETE', '/api/identity', 'signed-in', NO_FIELDS, async ({ user, by, note }) => {
      const left = await sql.begin('isolation level read committed', async (tx) => {
        await lockUser(tx, user.id);
        return await leaveIdentity(tx, user, issuer.names, by);
      });
      if (!left) return NO_IDENTITY;
      note('identity.leave');
      return done<Nothing>({});
    }),
  ];
}

/** The issuer has sent the browser back: starts a session, or leads to the sign-in page with a code. */
async function comeBack(
  { signIn, sessions, onChange }: OidcRoutesOptions,
  attempts: NetworkBackoff,
  call: Call,
): Promise<Outcome> {
  const { networks } = call.client;
  const wait = attempts.wait(networks);
  if (wait > 0) return throttled(wait);
  const attempt = attempts.begin(networks);
  try {
    const session = await sessions.find(call.cookies);
    const outcome = await signIn.complete(call.exchange.query, { ...call, session });
    if (typeof outcome === 'string') return refuse(call, outcome, [signIn.forget()]);
    attempt.undo();
    onChange();
    const { user, isNew, isJoined, isNewDevice, page, setCookie } = outcome;
    if (isNew) call.note('account.create', { ...named(user), purpose: 'oidc' });
    if (isJoined) call.note('identity.join', named(user));
    call.note('sign-in.success', { ...named(user), purpose: 'oidc' });
    if (isNewDevice)
      call.note('sign-in.new-device', { ...named(user), device: deviceText(call.origin.device) });
    return redirect(page, [setCookie, signIn.forget()]);
  } catch (error) {
    return refuse(call, error, [signIn.forget()]);
  }
}

/** Back-Channel Logout 1.0: the issuer posts a token that names the sessions to end. It has no session and no origin. */
function logoutRoute(options: OidcRoutesOptions, attempts: NetworkBackoff): Route {
  const { issuer, signIn, authLog, trustedProxies, onChange } = options;
  return {
    method: 'POST',
    path: '/sign-in/oidc/logout',
    headers: FORWARDING_HEADERS,
    remoteAddress: true,
    handle: async (exchange) => {
      const ip = clientAddress(exchange, trustedProxies);
      const text = await exchange.text({ maxBytes: MAX_LOGOUT_BYTES });
      if (text instanceof Rejection) return text;
      const networks = networksOf(ip);
      const wait = attempts.wait(networks);
      if (wait > 0) return throttled(wait);
      const attempt = attempts.begin(networks);
      try {
        const order = await issuer.logoutOrder(new URLSearchParams(text).get('logout_token') ?? '');
        const ended = await signIn.logout(order);
        if (ended === null) throw new OidcFailure('invalid', 'the logout token was used before');
        attempt.undo();
        onChange();
        const source = { ip, requestId: exchange.id };
        for (const user of ended.users) authLog.write('oidc.logout', source, named(user));
        // A subject that has never signed in here, or an issuer that is called otherwise than when it has.
        if (ended.users.length + ended.sessions === 0)
          authLog.write('oidc.logout-unknown', source, { cause: order.issuer });
        return { status: 200, body: '', contentType: 'text/plain' };
      } catch (error) {
        if (!(error instanceof OidcFailure)) throw error;
        const reason = error.kind === 'unreachable' ? 'OIDC_UNREACHABLE' : 'OIDC_REFUSED';
        authLog.writeRefusal('oidc.refusal', networks[0] ?? '', { ip, requestId: exchange.id }, { reason });
        return NO_LOGOUT;
      }
    },
  };
}

/** Leads to the sign-in page, which has a sentence for the code. What the issuer said is in the log alone. */
function refuse(call: Call, problem: unknown, cookies: readonly string[] = []): Outcome {
  const code = typeof problem === 'string' ? (problem as OidcProblem) : codeOf(problem);
  const cause = problem instanceof OidcFailure ? { cause: problem.message } : {};
  call.note('oidc.refusal', { reason: code, ...cause });
  const page = code === 'OIDC_JOINED_ELSEWHERE' || code === 'OIDC_OTHER_SESSION' ? '/account' : '/sign-in';
  return redirect(`${page}?problem=${code}`, cookies);
}

function codeOf(error: unknown): OidcProblem {
  if (!(error instanceof OidcFailure)) throw error;
  if (error.kind === 'unreachable') return 'OIDC_UNREACHABLE';
  return error.kind === 'denied' ? 'OIDC_DENIED' : 'OIDC_REFUSED';
}

/** @param location made by this service; its parts of a request are percent-encoded or checked to be visible ASCII */
function redirect(location: string, cookies: readonly string[] = []): Outcome {
  const headers = { Location: location, ...(cookies.length > 0 && { 'Set-Cookie': cookies }) };
  return { status: 303, body: '', contentType: 'text/plain', headers };
}
