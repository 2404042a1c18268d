/** Sessions, identified by a cookie of which the database stores only a digest. */
import { parseCookie, stringifySetCookie } from 'cookie';
import type { ListedSession } from '../../api-types/answers.ts';
import { BatchedLookup } from '../../cache/batched-lookup.ts';
import { Refused, Rejection } from '../../errors.ts';
import type { Fragment, Sql, Transaction } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import { type User, userColumns } from '../people/users.ts';
import { type Device, deviceText } from './device.ts';
import type { KnownDevices } from './known-devices.ts';
import { createSecretText, secretDigest } from './one-time-secret.ts';

export interface SessionsOptions {
  readonly sql: Sql;
  /** Whether users reach the service by https. */
  readonly secure: boolean;
  readonly idleMs: number;
  readonly maxMs: number;
  readonly devices: KnownDevices;
  readonly now: () => number;
  /** Milliseconds since the Unix epoch, by which sessions and devices end. */
  readonly judged?: () => number;
}

/** Where a session is started from. */
export interface SessionOrigin {
  /** The request's Cookie header. */
  readonly cookies: string;
  readonly device: Device;
  /** The client's address as far as SESSION_ADDRESSES lets it be stored. */
  readonly address: string | null;
}

export interface StartedSession {
  /** What the database knows the session by. */
  readonly digest: Buffer;
  /** The Set-Cookie value. */
  readonly setCookie: string;
  /** Whether the account has not been used from this device before. */
  readonly isNewDevice: boolean;
}

/** A session that is valid now. */
export interface Session {
  readonly digest: Buffer;
  readonly user: User;
}

interface StoredSession {
  readonly user: User;
  /** The last use that was written, in milliseconds since the Unix epoch. */
  readonly seen: number;
}

/** Shortest interval between writes of a session's last use. An idle lifetime is at least an hour. */
const SEEN_EVERY_MS = 5 * 60_000;
/** Sessions of one account. Beyond that the one that was used longest ago ends. */
const MAX_OF_ACCOUNT = 100;
/** As long as a request may take: the statement may wait for chart queries on the same connections. */
const TIMEOUT_MS = 30_000;

/** Only for a client that has shown that the account is its own. */
export const SUSPENDED = new Rejection(
  'accountSuspended',
  'The operator of this service has suspended the account: ask them.',
);

export class Sessions {
  readonly #options: SessionsOptions;
  readonly #name: string;
  /** By the hexadecimal digest. Clients can make up cookies, and only the database can validate them. */
  readonly #lookup: BatchedLookup<StoredSession>;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#lookup = new BatchedLookup((digests) => this.#findMany(digests), { timeoutMs: TIMEOUT_MS });
    // With the prefix, browsers refuse the cookie from other hosts, for a narrower path, and over http (RFC 6265bis, 4.1.3).
    this.#name = options.secure ? '__Host-tidemark_session' : 'tidemark_session';
  }

  /**
   * Starts a session and ends the one of the request, so that no session id survives a sign-in.
   * @throws Refused accountSuspended
   */
  async start(sql: Sql | Transaction, user: User, origin: SessionOrigin): Promise<StartedSession> {
    await this.end(sql, origin.cookies);
    const { text, digest } = createSecretText();
    const { device, address } = origin;
    const { devices, idleMs, maxMs } = this.#options;
    const now = this.#options.now();
    const judged = this.#judged();
    // The lock waits for a suspension at the same time, which ends all sessions that there are.
    const begun = await sql`
      INSERT INTO sessions (digest, user_id, created_at, last_seen_at, browser, system, address)
      SELECT ${digest}, id, ${now}, ${now}, ${device.browser}, ${device.system}, ${address}
        FROM users WHERE id = ${user.id} AND suspended_at IS NULL FOR SHARE
      RETURNING 1`;
    if (begun.length === 0) throw new Refused(SUSPENDED);
    // Skip rows that another transaction has locked: waiting for each other would deadlock.
    await sql`
      DELETE FROM sessions
       WHERE digest IN (SELECT digest FROM sessions
                         WHERE last_seen_at <= ${judged - idleMs} OR created_at <= ${judged - maxMs}
                           FOR UPDATE SKIP LOCKED)`;
    await sql`
      DELETE FROM sessions
       WHERE digest IN (SELECT digest FROM sessions
                         WHERE user_id = ${user.id} AND digest <> ${digest}
                         ORDER BY last_seen_at DESC, digest OFFSET ${MAX_OF_ACCOUNT - 1}
                           FOR UPDATE SKIP LOCKED)`;
    const isNewDevice = await devices.remember(sql, user, { device, address }, now, judged);
    return {
      digest,
      setCookie: pageCookie(this.#name, text, this.#options.secure, maxMs / 1_000),
      isNewDevice,
    };
  }

  /** Starts a session by a sign-in, of which the audit log has those from a new device. @throws Refused accountSuspended */
  async signIn(tx: Transaction, user: User, origin: SessionOrigin): Promise<StartedSession> {
    const started = await this.start(tx, user, origin);
    if (started.isNewDevice) {
      const by = { userId: user.id, email: user.email };
      const details = { device: deviceText(origin.device), address: origin.address };
      await writeAccountAudit(tx, { user, by, action: 'sign-in.new-device', details });
    }
    return started;
  }

  /** The session of a Cookie header; null if there is none or it has ended. */
  async find(cookies: string): Promise<Session | null> {
    const digest = this.#digest(cookies);
    if (digest === null) return null;
    const session = await this.#lookup.get(digest.toString('hex'));
    if (session === null) return null;
    const { sql, now } = this.#options;
    const time = now();
    if (time - session.seen >= SEEN_EVERY_MS)
      await sql`UPDATE sessions SET last_seen_at = ${time} WHERE digest = ${digest} AND last_seen_at < ${time}`;
    return { digest, user: session.user };
  }

  async #findMany(digests: readonly string[]): Promise<ReadonlyMap<string, StoredSession>> {
    const { sql, idleMs, maxMs } = this.#options;
    const time = this.#judged();
    const rows = await sql<(User & { digest: string; seen: number })[]>`
      SELECT encode(digest, 'hex') AS digest, ${userColumns(sql)},
             (extract(epoch FROM last_seen_at) * 1000)::float8 AS seen
        FROM sessions JOIN users ON users.id = user_id
       WHERE digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...digests]}::text[]) AS hex)
         AND last_seen_at > ${time - idleMs} AND sessions.created_at > ${time - maxMs} AND ${hadCode(sql)}`;
    return new Map(rows.map(({ digest, seen, ...user }) => [digest, { user, seen }]));
  }

  /** The given sessions that are valid now, by hexadecimal digest. Does not count as a use. */
  async findValid(sql: Sql, digests: readonly Buffer[]): Promise<ReadonlySet<string>> {
    const { idleMs, maxMs } = this.#options;
    const time = this.#judged();
    const asked = [...new Set(digests.map((digest) => digest.toString('hex')))];
    const rows = await sql<{ digest: string }[]>`
      SELECT encode(digest, 'hex') AS digest
        FROM sessions
       WHERE digest IN (SELECT decode(text, 'hex') FROM unnest(${asked}::text[]) AS asked (text))
         AND last_seen_at > ${time - idleMs} AND created_at > ${time - maxMs} AND ${hadCode(sql)}`;
    return new Set(rows.map(({ digest }) => digest));
  }

  /** Ends the session of a Cookie header. @returns its account; null if there was none */
  async end(
    sql: Sql | Transaction,
    cookies: string,
  ): Promise<{ readonly userId: string; readonly email: string } | null> {
    const digest = this.#digest(cookies);
    if (digest === null) return null;
    const [ended] = await sql<{ userId: string; email: string }[]>`
      DELETE FROM sessions USING users
       WHERE digest = ${digest} AND users.id = user_id
      RETURNING public_id AS "userId", email`;
    return ended ?? null;
  }

  /** The valid sessions of an account, the last used first. @param current the session of the request */
  async list(sql: Sql, current: Session): Promise<ListedSession<Date>[]> {
    const { idleMs, maxMs } = this.#options;
    const time = this.#judged();
    const rows = await sql<(Omit<ListedSession<Date>, 'device'> & { [K in keyof Device]: string | null })[]>`
      SELECT handle AS "sessionId", browser, system, address, created_at AS "createdAt",
             last_seen_at AS "lastUsedAt", digest = ${current.digest} AS "isCurrent"
        FROM sessions
       WHERE user_id = ${current.user.id} AND last_seen_at > ${time - idleMs} AND created_at > ${time - maxMs}
       ORDER BY last_seen_at DESC, created_at DESC, handle`;
    return rows.map(({ browser, system, ...session }) => ({
      ...session,
      device: browser === null || system === null ? null : deviceText({ browser, system }),
    }));
  }

  /**
   * Ends one session of an account.
   * @returns its device; null if the account has no such session
   */
  async endOne(
    tx: Transaction,
    { userId, sessionId }: { userId: number; sessionId: string },
  ): Promise<{ readonly device: string } | null> {
    const [ended] = await tx<{ [K in keyof Device]: string | null }[]>`
      DELETE FROM sessions WHERE user_id = ${userId} AND handle = ${sessionId} RETURNING browser, system`;
    if (ended === undefined) return null;
    const { browser, system } = ended;
    return { device: deviceText({ browser: browser ?? 'unknown', system: system ?? 'unknown' }) };
  }

  /** The Set-Cookie value that deletes the cookie. */
  forget(): string {
    return pageCookie(this.#name, '', this.#options.secure, 0);
  }

  #judged(): number {
    const { now, judged = now } = this.#options;
    return judged();
  }

  #digest(cookies: string): Buffer | null {
    return secretDigest(parseCookie(cookies)[this.#name] ?? '');
  }
}

/** A Set-Cookie value for pages here, which their scripts cannot read. @param value base64url: no text of a request reaches the header */
export function pageCookie(name: string, value: string, secure: boolean, maxAge: number): string {
  return stringifySetCookie(name, value, { httpOnly: true, sameSite: 'lax', path: '/', secure, maxAge });
}

/**
 * Whether a session began with a code, where one was asked for then. A process of the release before second factors asks for none,
 * beside this one during an upgrade; of its sessions the browser is not known.
 */
function hadCode(sql: Sql): Fragment {
  return sql`NOT (browser IS NULL AND EXISTS (
    SELECT FROM second_factors AS factor WHERE factor.user_id = sessions.user_id AND factor.enabled_at <= sessions.created_at))`;
}

/**
 * Ends the sessions of an account, all or all but one. Call after lockUser: two of these could deadlock.
 * @returns how many
 */
export async function endSessions(tx: Transaction, userId: number, keep: Session | null): Promise<number> {
  const ended = await tx`
    DELETE FROM sessions WHERE user_id = ${userId} AND digest IS DISTINCT FROM ${keep?.digest ?? null}::bytea RETURNING 1`;
  return ended.length;
}

/**
 * Whether a session has not been ended since it was found; if so, it is not until the end of the transaction, which must
 * be "read committed". Call after lockUser.
 */
export async function holdSession(tx: Transaction, { digest, user }: Session): Promise<boolean> {
  const rows = await tx`SELECT FROM sessions WHERE digest = ${digest} AND user_id = ${user.id} FOR SHARE`;
  return rows.length > 0;
}
