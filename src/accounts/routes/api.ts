/**
 * The pipeline of every route under /api: same origin and JSON → body → session → app and role → handler. A
 * request that one step refuses does not reach the next.
 */

import { may, type Permission } from '../../base/roles.ts';
import { Slots } from '../../base/slots.ts';
import { PUBLIC_ID_FORMS } from '../../base/token-text.ts';
import type { Path } from '../../base/turns.ts';
import { type Reason, Refused, Rejection } from '../../errors.ts';
import { addressKey, clientAddress, FORWARDING_HEADERS } from '../../http/client-address.ts';
import { ACCEPT_ENCODING, compressedAnswer } from '../../http/compressed-answer.ts';
import type { Exchange, Outcome } from '../../http/exchange.ts';
import { type ReadPlace, type ReadSlots, refusalOf } from '../../http/read-slots.ts';
import type { Method, Parameter, Route } from '../../http/route.ts';
import { ORIGIN_HEADERS, refuseForeign } from '../../http/same-origin.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { AuthEvent, AuthLog, AuthSource, Note } from '../log/auth-log.ts';
import type { Notices } from '../mail/notices.ts';
import { acceptByAddress } from '../people/invitations.ts';
import { findMembership, type Membership } from '../people/members.ts';
import type { User } from '../people/users.ts';
import { deviceOf } from '../sessions/device.ts';
import { type AddressStorage, type Client, networksOf, storedAddress } from '../sessions/networks.ts';
import { SECRET_TEXT } from '../sessions/one-time-secret.ts';
import type { Session, SessionOrigin, Sessions } from '../sessions/sessions.ts';
import { Backoff, throttled } from '../sign-in/backoff.ts';
import type { BodyParser } from './body.ts';

/** A request in the pipeline. */
export interface Call {
  readonly exchange: Exchange;
  /** The values of `:name` segments of the path. */
  readonly parameters: readonly string[];
  /** The Cookie header. */
  readonly cookies: string;
  /** For a session that the request starts. */
  readonly origin: SessionOrigin;
  /** Key of the client for throttling. */
  readonly address: string;
  /** Writes a line of the authentication log with the request's account and address, and mails what owners are told. */
  readonly note: Note;
  readonly client: Client;
  /** The public address of the service for links, without a trailing slash. */
  readonly baseUrl: string;
}

export interface SignedInCall extends Call {
  readonly session: Session;
  readonly user: User;
  /** For the audit log. */
  readonly by: { readonly userId: number; readonly email: string };
}

export interface MemberCall extends SignedInCall {
  /** The app of the path's first `:name` segment. */
  readonly app: Membership;
}

interface Calls extends Readonly<Record<Permission, MemberCall>> {
  public: Call;
  'signed-in': SignedInCall;
}

/** Who may use a route: with a permission, the members of the path's app whose role has it. */
export type Access = keyof Calls;

export interface ApiOptions {
  /** For sessions and roles alone: handlers of routes of an app have other connections. */
  readonly sql: Sql;
  readonly slots: ReadSlots;
  readonly sessions: Sessions;
  readonly authLog: AuthLog;
  readonly notices: Notices;
  /** SESSION_ADDRESSES */
  readonly addresses: AddressStorage;
  /** PUBLIC_URL, empty if not set. */
  readonly publicUrl: string;
  /** TRUST_PROXY */
  readonly trustedProxies: number;
  /** Called after every change by a signed-in user, before the response. */
  readonly onChange: () => void;
  readonly wall: () => number;
  readonly monotonic: () => number;
}

/** The source of a request. The account is set once the session is known. */
type Source = { -readonly [K in keyof AuthSource]: AuthSource[K] };

/** A call before the session lookup. */
interface RawCall extends Call {
  readonly source: Source;
}
/** What the `:name` segments of the paths under /api may be, and the answer to anything else. */
const PARAMETERS: Readonly<Record<string, Parameter>> = {
  action: {
    form: /^[a-z]{1,20}$/,
    refusal: new Rejection('notFound', 'There is no such action.'),
  },
  alertId: publicId('alr', 'alertId', 'alertRuleNotFound'),
  annotationId: publicId('ann', 'annotationId', 'annotationNotFound'),
  appId: publicId('app', 'appId', 'appNotFound'),
  eventId: {
    form: /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i,
    refusal: new Rejection('eventNotFound', 'An eventId is a UUID.'),
  },
  invitationId: publicId('inv', 'invitationId', 'invitationNotFound'),
  token: {
    form: SECRET_TEXT,
    refusal: new Rejection('linkNotValid', 'The link is not complete: its token has 43 characters.'),
  },
  sessionId: publicId('ses', 'sessionId', 'sessionNotFound'),
  tokenId: publicId('tok', 'tokenId', 'tokenNotFound'),
  typeId: {
    // A restored id may be any text.
    form: /^[^\0]{1,200}$/,
    refusal: new Rejection('eventTypeNotFound', 'A typeId has 1 to 200 characters.'),
  },
  webhookId: publicId('whk', 'webhookId', 'webhookNotFound'),
  viewId: publicId('vie', 'viewId', 'viewNotFound'),
  boardId: publicId('brd', 'boardId', 'boardNotFound'),
  shareId: publicId('shr', 'shareId', 'shareNotFound'),
  userId: publicId('usr', 'userId', 'memberNotFound'),
};

function publicId(kind: keyof typeof PUBLIC_ID_FORMS, name: string, reason: Reason): Parameter {
  const article = /^[aei]/.test(name) ? 'An' : 'A';
  const details = `${article} ${name} is "${kind}_" with 20 letters and digits.`;
  return { form: PUBLIC_ID_FORMS[kind], refusal: new Rejection(reason, details) };
}

const HEADERS = ['cookie', 'user-agent', ...ORIGIN_HEADERS, ...FORWARDING_HEADERS];

/** Largest body: names, passwords, email addresses, lists of apps. */
const MAX_BODY_BYTES = 65_536;

const NO_SESSION = new Rejection('sessionRequired', 'There is no session, or it has ended.');
const NO_APP = new Rejection('appNotFound', 'There is no such app, or you are not a member of it.');
const APP_SUSPENDED = new Rejection(
  'accessDenied',
  'The operator of this service has suspended the app: nothing is written to it or read from it.',
);
/** To members whose role lacks a permission. */
export const NOT_ALLOWED: Readonly<Record<Permission, Rejection>> = {
  read: new Rejection('accessDenied', 'Your role in the app may not see this.'),
  change: new Rejection('accessDenied', 'Viewers of the app may not do this.'),
  own: new Rejection('accessDenied', 'Only an owner of the app may do this.'),
};

/**
 * Changes of an app in one way by one account, before it has to wait between two: each is a row of the audit log for ever. What
 * removes is never slowed down: it follows an addition.
 */
const CHANGES = { free: 100, longestMs: 60_000 };

/** Changes at once: a few for each of the connections that they share, so that none of those is idle. */
const CHANGES_AT_ONCE = 16;
const MAX_WAITING_CHANGES = 1_000;

/** Waits within a change for something other than its connections, and lets changes of others run meanwhile. */
export type Outside = <T>(wait: () => Promise<T>) => Promise<T | Rejection>;

/** Builds the routes. */
export class Api {
  readonly #options: ApiOptions;
  /** By account and route. */
  readonly #changes: Backoff;
  /** The turns of all changes by signed-in users, by account. */
  readonly #places = new Slots(CHANGES_AT_ONCE, MAX_WAITING_CHANGES);
  readonly #admit: { readonly [A in Access]: (call: RawCall) => Promise<Calls[A] | Rejection> };

  constructor(options: ApiOptions) {
    this.#options = options;
    this.#changes = new Backoff({ ...CHANGES, now: options.monotonic });
    this.#admit = {
      public: async (call) => call,
      'signed-in': (call) => this.#signedIn(call),
      read: (call) => this.#member(call, 'read'),
      change: (call) => this.#member(call, 'change'),
      own: (call) => this.#member(call, 'own'),
    };
  }

  /** A read-only route. @param headers those that its handler reads */
  read<A extends Access>(
    path: string,
    access: A,
    handle: (call: Calls[A]) => Outcome | Promise<Outcome>,
    headers: readonly string[] = [],
  ): Route {
    const work = async (raw: RawCall): Promise<Outcome> => {
      const call = await this.#admit[access](raw);
      return call instanceof Rejection ? call : await handle(call);
    };
    return this.#route('GET', path, work, headers);
  }

  /** A read of events, of their counts or of a log, none of which has a secret: it waits for its turn among all reads. */
  readInTurn<A extends Exclude<Access, 'public'>>(
    path: string,
    access: A,
    handle: (call: Calls[A] & ReadPlace) => Promise<Outcome>,
  ): Route {
    const work = async (call: Calls[A]): Promise<Outcome> => {
      const outcome = await this.inTurn(call, (place) => handle({ ...call, ...place }));
      // After the turn: it must not hold a connection for this.
      return await compressedAnswer(call.exchange, outcome);
    };
    return this.read(path, access, work, [ACCEPT_ENCODING]);
  }

  /** Runs the part of a request that looks through events, in its turn among all reads and with their connections. */
  async inTurn<T>(
    { exchange, user }: SignedInCall,
    read: (place: ReadPlace) => Promise<T>,
  ): Promise<T | Rejection> {
    const turn = { kind: 'dashboard', turns: turnsOfSession(user), waiter: exchange } as const;
    return await this.#options.slots.run(turn, read);
  }

  /** A read whose question is a body. No other site may ask it through a browser either. */
  ask<A extends Access>(
    path: string,
    access: A,
    { maxBodyBytes, headers }: { readonly maxBodyBytes: number; readonly headers: readonly string[] },
    handle: (call: Calls[A], text: string) => Promise<Outcome>,
  ): Route {
    const work = async (raw: RawCall): Promise<Outcome> => {
      const text = await this.#bodyOf(raw, maxBodyBytes);
      if (text instanceof Rejection) return text;
      const call = await this.#admit[access](raw);
      return call instanceof Rejection ? call : await handle(call, text);
    };
    return this.#route('POST', path, work, headers);
  }

  /** A route that changes state. */
  change<A extends Access, T>(
    method: Exclude<Method, 'GET'>,
    path: string,
    access: A,
    parse: BodyParser<T>,
    handle: (call: Calls[A], body: T, outside: Outside) => Promise<Outcome>,
  ): Route {
    const work = async (raw: RawCall): Promise<Outcome> => {
      const text = await this.#bodyOf(raw, MAX_BODY_BYTES);
      if (text instanceof Rejection) return text;
      const call = await this.#admit[access](raw);
      if (call instanceof Rejection) return call;
      const body = parse(text);
      if (body instanceof Rejection) return body;
      const change = (outside: Outside): Promise<Outcome> => handle(call, body, outside);
      const key = 'app' in call && method !== 'DELETE' ? `${call.user.userId} ${method} ${path}` : null;
      const outcome = !('user' in call)
        ? await change((wait) => wait())
        : key === null
          ? await this.#inPlace(call, change)
          : await this.#slowly(key, () => this.#inPlace(call, change));
      if (access !== 'public') this.#options.onChange();
      return outcome;
    };
    return this.#route(method, path, work);
  }

  /** The body of a request of the dashboard's own pages. Before the first await: a transport delivers it in the same turn alone. */
  async #bodyOf({ exchange }: RawCall, maxBytes: number): Promise<string | Rejection> {
    return refuseForeign(exchange, this.#options.publicUrl) ?? (await exchange.text({ maxBytes }));
  }

  /** Makes a change in its turn: those of one account do not take the connections from those of others. */
  async #inPlace({ exchange, user }: SignedInCall, change: (outside: Outside) => Promise<Outcome>) {
    const outcome = await this.#places.run([user.id], exchange, (place) =>
      change(async (wait) => refusalOf(await place.outside(wait))),
    );
    return refusalOf(outcome);
  }

  /** Makes a change, unless too many of its kind were made. One that is refused does not count. */
  async #slowly(key: string, change: () => Promise<Outcome>): Promise<Outcome> {
    const wait = this.#changes.wait(key);
    if (wait > 0) return throttled(wait);
    this.#changes.begin(key);
    let isMade = false;
    try {
      const outcome = await change();
      isMade = !(outcome instanceof Rejection);
      return outcome;
    } finally {
      if (!isMade) this.#changes.undo(key);
    }
  }

  #route(
    method: Method,
    path: string,
    work: (call: RawCall) => Promise<Outcome>,
    headers: readonly string[] = [],
  ): Route {
    const handle = async (exchange: Exchange): Promise<Outcome> => {
      const call = this.#call(exchange);
      const outcome = await work(call).catch((error: unknown) => {
        if (error instanceof Refused) return error.rejection;
        throw error;
      });
      if (outcome instanceof Rejection) this.#noteRefusal(call, { method, path }, outcome);
      return outcome;
    };
    return {
      method,
      path,
      parameters: PARAMETERS,
      headers: [...HEADERS, ...headers],
      remoteAddress: true,
      handle,
    };
  }

  #call(exchange: Exchange): RawCall {
    const { publicUrl, trustedProxies, authLog, notices, addresses } = this.#options;
    const ip = clientAddress(exchange, trustedProxies);
    const source: Source = { ip, requestId: exchange.id };
    return {
      exchange,
      parameters: exchange.parameters,
      cookies: exchange.header('cookie'),
      origin: {
        cookies: exchange.header('cookie'),
        device: deviceOf(exchange.header('user-agent')),
        address: storedAddress(ip, addresses),
      },
      address: addressKey(ip),
      client: { networks: networksOf(ip), hasLeft: () => exchange.settled },
      note: (event, fields) => {
        authLog.write(event, source, fields);
        notices.mail(event, source, fields);
      },
      source,
      // The Host header of the user's own browser: the link is shown only to that user.
      baseUrl: publicUrl === '' ? `http://${exchange.header('host')}` : publicUrl,
    };
  }

  #noteRefusal(call: RawCall, route: Pick<Route, 'method' | 'path'>, refusal: Rejection): void {
    const event = REFUSAL_EVENTS[refusal.reason];
    if (event === undefined) return;
    const retryAfter = refusal.headers['Retry-After'];
    this.#options.authLog.writeRefusal(event, call.address, call.source, {
      reason: refusal.code,
      method: route.method,
      route: route.path,
      ...(retryAfter !== undefined && { retryAfterSeconds: Number(retryAfter) }),
    });
  }

  async #signedIn(call: RawCall): Promise<SignedInCall | Rejection> {
    const session = await this.#options.sessions.find(call.cookies);
    if (session === null) return NO_SESSION;
    const { user } = session;
    call.source.userId = user.userId;
    call.source.email = user.email;
    return { ...call, session, user, by: { userId: user.id, email: user.email } };
  }

  async #member(call: RawCall, permission: Permission): Promise<MemberCall | Rejection> {
    const signedIn = await this.#signedIn(call);
    if (signedIn instanceof Rejection) return signedIn;
    const { sql, wall } = this.#options;
    const { user } = signedIn;
    const [appId = ''] = call.parameters;
    let app = await findMembership(sql, user, appId);
    if (app === null) {
      const accepted = await acceptByAddress(sql, user, appId, wall());
      if (accepted !== null) call.note('invitation.accept', { appId, targetEmail: accepted.email });
      // Another request of the same page may have accepted it meanwhile.
      app = await findMembership(sql, user, appId);
      if (app === null) return NO_APP;
    }
    if (app.suspendedAt !== null) return APP_SUSPENDED;
    return may(app.role, permission) ? { ...signedIn, app } : NOT_ALLOWED[permission];
  }
}

/** Whose turns the reads of a session take: those of its account. */
export function turnsOfSession({ id }: User): Path {
  return [id, 'sessions'];
}

/** The refusals that are written to the authentication log, for all routes. */
const REFUSAL_EVENTS: Readonly<Partial<Record<Reason, AuthEvent>>> = {
  tooManyAttempts: 'slow-down.refusal',
  linkNotValid: 'link.failure',
  accessDenied: 'access.refusal',
  appNotFound: 'access.refusal',
  crossOrigin: 'access.refusal',
  wrongAccount: 'access.refusal',
};
