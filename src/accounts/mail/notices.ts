/**
 * Mails that tell owners what happened to their account or app: what they did themselves they ignore, and what they did not
 * they learn of. Only verified addresses get them, and only where SMTP_URL is set. Nothing waits for a mail, and none changes
 * the outcome of a request.
 */
import type { Logger } from 'pino';
import { HOUR_MS } from '../../base/time-units.ts';
import { MOST_CLIENTS, Window } from '../../base/window.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { AuthEvent, AuthFields, AuthSource } from '../log/auth-log.ts';
import { type Email, parseEmail } from '../people/email.ts';
import { type AddressStorage, storedAddress } from '../sessions/networks.ts';
import type { Background } from './background.ts';
import type { Mailer } from './mail.ts';

export interface NoticesOptions {
  readonly sql: Sql;
  /** Null: there is no mail server, and nothing is looked up. */
  readonly mailer: Pick<Mailer, 'send'> | null;
  readonly background: Pick<Background, 'run'>;
  readonly publicUrl: string;
  /** SESSION_ADDRESSES: mails hold no more of an address than the database. */
  readonly addresses: AddressStorage;
  readonly log: Pick<Logger, 'warn'>;
  readonly wall: () => number;
  readonly monotonic: () => number;
}

/** What an account's own mails say: the subject, and what happened. */
const OF_ACCOUNT = {
  'sign-in.new-device': [
    'New sign-in',
    'Your account was signed in to from a device that it was not used on before.',
  ],
  'password-change.success': ['Password changed', 'The password of your account was changed.'],
  'password-reset.success': ['Password changed', 'The password of your account was set by a link.'],
  'identity.join': [
    'New way to sign in',
    'An identity of the issuer was joined to your account, and can sign in to it.',
  ],
  'email.vouch': [
    'Email verified',
    'The operator of the server marked the email address of your account as verified.',
  ],
  'second-factor.enable': ['Second factor turned on', 'Sign-ins to your account now need a code.'],
  'second-factor.disable': ['Second factor turned off', 'Sign-ins to your account need no code any more.'],
  'second-factor.remove': [
    'Second factor removed',
    'The operator of the server removed the second factor of your account: sign-ins need no code any more.',
  ],
  'second-factor.guessing': [
    'Wrong codes',
    'Ten wrong codes in a row were entered for your account, by someone who knows its password.',
  ],
  'second-factor.lock': [
    'Codes of the authenticator are refused',
    'A hundred wrong codes in a row were entered for your account, by someone who knows its password. Until a recovery code is used, codes of the authenticator are refused.',
  ],
  'recovery-codes.create': [
    'New recovery codes',
    'The recovery codes of your account were replaced. This invalidates the earlier ones.',
  ],
  'recovery-code.use': [
    'Recovery code used',
    'A recovery code of your account was used instead of an authenticator code.',
  ],
} as const satisfies Partial<Record<NoticeEvent, readonly [subject: string, what: string]>>;

/** After these a user may be unable to sign in, also with a new password. */
const LOCKING: readonly NoticeEvent[] = ['second-factor.enable', 'second-factor.lock'];
/** What a reset says that has verified the address. */
const HAS = '\n\nThe account has what was made for it before:\n';
const ENDED =
  '\n\nThe link has verified your email address. Before that, anyone could have made the account. So what there was has ended:\n';
const CHECK_APPS =
  '\n\nThe page of the account has the ways to sign in. Leave the apps that you do not know, and check the members, webhooks and tokens of the others.';
const LOCKED_OUT =
  '\n\nIf you cannot sign in any more, ask the operator of the server to remove the second factor (tidemark user remove-second-factor).';

/** What mails to the owners of an app say: the subject, and what happened. */
const OF_APP = {
  'logging-token.rotate': ['Logging token rotated', 'has a new logging token.'],
  'resource-token.create': ['Resource token created', 'has a new resource token, which can read its events.'],
  'resource-token.revoke': ['Resource token revoked', 'has one resource token less: it was revoked.'],
  'resource-token.restore': ['Resource token restored', 'has a resource token whose revocation was undone.'],
  'producer.create': ['Producer created', 'has a new producer with a logging token of its own.'],
  'producer.rotate': ['Logging token rotated', 'has a producer with a new logging token.'],
  'producer.revoke': ['Producer revoked', 'has one producer less: it was revoked.'],
  'producer.restore': ['Producer restored', 'has a producer whose revocation was undone.'],
  'browser-key.create': ['Browser key created', 'has a new browser key, with which pages can write events.'],
  'browser-key.revoke': ['Browser key revoked', 'has one browser key less: it was revoked.'],
  'browser-key.restore': ['Browser key restored', 'has a browser key whose revocation was undone.'],
} as const satisfies Partial<Record<NoticeEvent, readonly [subject: string, what: string]>>;

/** What owners can be told of: events of the authentication log, and what the operator does. */
export type NoticeEvent = AuthEvent | 'second-factor.remove' | 'email.vouch';

/** Mails to one address in an hour. Each kind has room of its own: sign-ins, and what members of an app do, must not use up that of changes of the account. */
const MAX_SIGN_INS_PER_HOUR = 20;
const MAX_CHANGES_PER_HOUR = 60;
const MAX_OF_APPS_PER_HOUR = 60;

interface Happening {
  readonly event: NoticeEvent;
  /** Empty for the service and the command line. */
  readonly ip: string;
  readonly by: string;
  readonly fields: AuthFields;
}

export class Notices {
  readonly #options: NoticesOptions;
  readonly #signIns: Window;
  readonly #changes: Window;
  readonly #ofApps: Window;

  constructor(options: NoticesOptions) {
    this.#options = options;
    // By the whole address, which is verified: another one that looks like a spelling of it may be another person's.
    const limit = (mails: number): Window =>
      new Window({ limit: mails, ms: HOUR_MS, maxKeys: MOST_CLIENTS, now: options.monotonic });
    this.#signIns = limit(MAX_SIGN_INS_PER_HOUR);
    this.#changes = limit(MAX_CHANGES_PER_HOUR);
    this.#ofApps = limit(MAX_OF_APPS_PER_HOUR);
  }

  /** Mails an event to those who are told of it, in the background. Takes the arguments of the authentication log. */
  mail(event: NoticeEvent, source: AuthSource, fields: AuthFields = {}): void {
    const { mailer, background } = this.#options;
    if (mailer === null) return;
    const happening = { event, ip: source.ip, by: source.email ?? '', fields };
    if (isOfAccount(event)) {
      const account = fields.email ?? source.email ?? '';
      const tell = () => this.#tellAccount(mailer, event, account, happening);
      background.run('notice to an account', tell, { isSecurity: true });
    } else if (isOfApp(event)) {
      background.run('notice to owners', () => this.#tellOwners(mailer, event, happening));
    }
  }

  async #tellAccount(
    mailer: Pick<Mailer, 'send'>,
    event: keyof typeof OF_ACCOUNT,
    account: string,
    happening: Happening,
  ): Promise<void> {
    const key = parseEmail(account)?.key ?? '';
    const { sql, publicUrl } = this.#options;
    const [user] = await sql<{ email: string }[]>`
      SELECT email FROM users WHERE email_key = ${key} AND email_verified_at IS NOT NULL`;
    if (user === undefined) return;
    const [subject, what] = OF_ACCOUNT[event];
    const advice = `If it was you, ignore this mail. If it was not you, set a new password and sign out everywhere else:\n${publicUrl}/account${LOCKING.includes(event) ? LOCKED_OUT : ''}`;
    const { access: ended } = happening.fields;
    const before = event === 'email.vouch' ? HAS : ENDED;
    const gone = ended === undefined ? '' : `${before}${ended}.${CHECK_APPS}`;
    const text = `${what}${gone}\n\n${this.#facts(happening)}\n\n${advice}\n`;
    this.#send(mailer, user.email, subject, text, event);
  }

  async #tellOwners(
    mailer: Pick<Mailer, 'send'>,
    event: keyof typeof OF_APP,
    happening: Happening,
  ): Promise<void> {
    const { sql, publicUrl } = this.#options;
    const { appId = '', tokenId = '' } = happening.fields;
    // A token that is revoked ends for all its apps. The command line knows the app of none; the first producer's id is that of
    // its app with another prefix.
    const isRestored = event === 'resource-token.restore';
    const owners = await sql<{ email: string; appId: string; app: string; token: string | null }[]>`
      SELECT users.email, apps.public_id AS "appId", apps.name AS app,
             (SELECT name FROM resource_tokens WHERE public_id = ${tokenId}
              UNION ALL SELECT name FROM producers WHERE public_id = ${tokenId}
              UNION ALL SELECT name FROM browser_keys WHERE public_id = ${tokenId}) AS token
        FROM apps JOIN app_members ON app_members.app_id = apps.id JOIN users ON users.id = user_id
       WHERE role = 'owner' AND email_verified_at IS NOT NULL
         AND (apps.public_id IN (${appId}, ${tokenId.replace(/^tok_/, 'app_')})
              OR apps.id IN (SELECT app_id FROM resource_token_apps JOIN resource_tokens ON id = token_id
                              WHERE public_id = ${tokenId} AND (revoked_at IS NOT NULL OR ${isRestored})
                             UNION ALL SELECT app_id FROM producers WHERE public_id = ${tokenId}
                             UNION ALL SELECT app_id FROM browser_keys WHERE public_id = ${tokenId}))`;
    const [subject, what] = OF_APP[event];
    for (const { email, app, token, ...its } of owners) {
      // Names are a member's text: in quotes, and on one line.
      const named = token === null ? '' : `\nToken: ${JSON.stringify(token)}`;
      // Addresses are told to nobody else.
      const facts = this.#facts(email === happening.by ? happening : { ...happening, ip: '' });
      const text = `The app ${JSON.stringify(app)} ${what}\n\n${facts}${named}\n\nTokens of the app:\n${publicUrl}/apps/${its.appId}/settings\n`;
      this.#send(mailer, email, subject, text, event);
    }
  }

  #send(mailer: Pick<Mailer, 'send'>, to: string, subject: string, text: string, event: NoticeEvent): void {
    const email: Email = parseEmail(to) ?? { text: to, key: to };
    if (this.#limitOf(event).wait(email.key) > 0)
      this.#options.log.warn({ event }, 'mail: notice not sent, the mailbox has had too many in an hour');
    else mailer.send({ to, subject, text }, { isSecurity: isOfAccount(event) });
  }

  #limitOf(event: NoticeEvent): Window {
    if (isOfApp(event)) return this.#ofApps;
    return event === 'sign-in.new-device' ? this.#signIns : this.#changes;
  }

  #facts({ ip, by, fields }: Happening): string {
    const address = storedAddress(ip, this.#options.addresses);
    return [
      `Time: ${new Date(this.#options.wall()).toISOString()}`,
      ...(by === '' ? [] : [`By: ${by}`]),
      ...(fields.device === undefined ? [] : [`Device: ${fields.device}`]),
      ...(address === null ? [] : [`Address: ${address}`]),
    ].join('\n');
  }
}

function isOfAccount(event: NoticeEvent): event is keyof typeof OF_ACCOUNT {
  return Object.hasOwn(OF_ACCOUNT, event);
}

function isOfApp(event: NoticeEvent): event is keyof typeof OF_APP {
  return Object.hasOwn(OF_APP, event);
}
