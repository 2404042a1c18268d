/** Sessions, identified by a cookie of which the database stores only a digest. */
import { parseCookie, stringifySetCookie } from 'cookie';
import { BatchedLookup } from '../storage/batched-lookup.ts';
import type { Sql, Transaction } from '../storage/connect.ts';
import { createSecretText, secretDigest } from './one-time-secret.ts';
import type { User } from './users.ts';

export interface SessionsOptions {
  readonly sql: Sql;
  /** Whether users reach the service by https. */
  readonly secure: boolean;
  readonly idleMs: number;
  readonly maxMs: number;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
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
const SEEN_EVERY_MS = 60_000;
/** As long as a request may take: the statement may wait for chart queries on the same connections. */
const TIMEOUT_MS = 30_000;

export class Sessions {
  readonly #options: SessionsOptions;
  readonly #name: string;
  /** By the hexadecimal digest. Clients can make up cookies, and only the database can validate them. */
  readonly #lookup: BatchedLookup<StoredSession>;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#lookup = new BatchedLookup((digests) => this.#findMany(digests), TIMEOUT_MS);
    // With the prefix, browsers refuse the cookie from other hosts, for a narrower path, and over http (RFC 6265bis, 4.1.3).
    this.#name = options.secure ? '__Host-tidemark_session' : 'tidemark_session';
  }

  /**
   * Starts a session and ends the one of the request, so that no session id survives a sign-in.
   * @param previous the request's Cookie header
   * @returns the Set-Cookie value
   */
  async start(sql: Sql | Transaction, user: User, previous: string): Promise<string> {
    await this.end(sql, previous);
    const { text, digest } = createSecretText();
    const now = this.#options.now();
    await sql`
      INSERT INTO sessions (digest, user_id, created_at, last_seen_at) VALUES (${digest}, ${user.id}, ${now}, ${now})`;
    // Skip rows that another transaction has locked: waiting for each other would deadlock.
    await sql`
      DELETE FROM sessions
       WHERE digest IN (SELECT digest FROM sessions
                         WHERE last_seen_at <= ${now - this.#options.idleMs} OR created_at <= ${now - this.#options.maxMs}
                           FOR UPDATE SKIP LOCKED)`;
    return this.#cookie(text, this.#options.maxMs / 1_000);
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
    const { sql, idleMs, maxMs, now } = this.#options;
    const time = now();
    const rows = await sql<(User & { digest: string; seen: number })[]>`
      SELECT encode(digest, 'hex') AS digest, users.id, public_id AS "userId", email, email_key AS "emailKey",
             email_proved_at IS NOT NULL AS "emailProved",
             (extract(epoch FROM last_seen_at) * 1000)::float8 AS seen
        FROM sessions JOIN users ON users.id = user_id
       WHERE digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...digests]}::text[]) AS hex)
         AND last_seen_at > ${time - idleMs} AND sessions.created_at > ${time - maxMs}`;
    return new Map(rows.map(({ digest, seen, ...user }) => [digest, { user, seen }]));
  }

  /** Those of the given sessions that are valid now, by hexadecimal digest. Does not count as a use. */
  async findValid(sql: Sql, digests: readonly Buffer[]): Promise<ReadonlySet<string>> {
    const { idleMs, maxMs, now } = this.#options;
    const time = now();
    const asked = [...new Set(digests.map((digest) => digest.toString('hex')))];
    const rows = await sql<{ digest: string }[]>`
      SELECT encode(digest, 'hex') AS digest
        FROM sessions
       WHERE digest IN (SELECT decode(text, 'hex') FROM unnest(${asked}::text[]) AS asked (text))
         AND last_seen_at > ${time - idleMs} AND created_at > ${time - maxMs}`;
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

  /** Ends all sessions of an account. @param userId internal id */
  async endAll(sql: Sql | Transaction, userId: number): Promise<void> {
    await sql`DELETE FROM sessions WHERE user_id = ${userId}`;
  }

  /** The Set-Cookie value that deletes the cookie. */
  forget(): string {
    return this.#cookie('', 0);
  }

  #digest(cookies: string): Buffer | null {
    return secretDigest(parseCookie(cookies)[this.#name] ?? '');
  }

  /** The value consists of base64url characters, so no text of a request reaches the header. */
  #cookie(value: string, maxAge: number): string {
    const { secure } = this.#options;
    return stringifySetCookie(this.#name, value, {
      httpOnly: true,
      sameSite: 'lax',
      path: '/',
      secure,
      maxAge,
    });
  }
}
