/**
 * The authentication log: who signed in, from where, and what was changed of accounts, members and tokens (ASVS 16.3).
 * Lines of the service's log with a field `event`, one name for one thing that happened. Which fields a line can have is
 * a closed list without room for a password, a token, a cookie or a link.
 */
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';

/** Every event, with its level and its text. Names that the audit log has too mean the same there. */
export const AUTH_EVENTS = {
  'sign-in.success': ['info', 'signed in'],
  'sign-in.failure': ['warn', 'sign-in failed'],
  'sign-out': ['info', 'signed out'],
  'sign-out.everywhere': ['info', 'all sessions of the account ended'],
  'account.create': ['info', 'account created'],
  'email.prove': ['info', 'address confirmed'],
  'password-change.success': ['info', 'password changed'],
  'password-change.failure': ['warn', 'password change failed'],
  'password-reset.request': ['info', 'password reset requested'],
  'password-reset.success': ['info', 'password set by a link'],
  'link.create': ['info', 'one-time link created'],
  'link.failure': ['warn', 'one-time link refused'],
  'app.create': ['info', 'app created with its logging token'],
  'app.delete': ['info', 'app deleted with its members and tokens'],
  'logging-token.rotate': ['info', 'logging token rotated'],
  'resource-token.create': ['info', 'resource token created'],
  'resource-token.revoke': ['info', 'resource token revoked'],
  'resource-token.keep': ['info', "a former member's resource token kept"],
  'member.add': ['info', 'member added'],
  'member.remove': ['info', 'member removed'],
  'member.leave': ['info', 'member left'],
  'invitation.create': ['info', 'invitation created'],
  'invitation.withdraw': ['info', 'invitation withdrawn'],
  'invitation.accept': ['info', 'invitation accepted'],
  'slow-down.refusal': ['warn', 'refused after too many attempts'],
  'access.refusal': ['warn', 'access refused'],
} as const satisfies Record<string, readonly ['info' | 'warn', string]>;

export type AuthEvent = keyof typeof AUTH_EVENTS;

/** Where an event comes from; the account is the one that is signed in. */
export interface AuthSource {
  /** The client's address, empty where it is not known. */
  readonly ip: string;
  /** The X-Request-Id of the answer. */
  readonly requestId: string;
  readonly userId?: string | undefined;
  readonly email?: string | undefined;
}

/** What else a line can say. No value is a secret: identifiers, addresses of people, and words of this code. */
export interface AuthFields {
  /** The account that the event is about, where nobody is signed in. */
  readonly userId?: string;
  /** Its address; for failures as it was typed. */
  readonly email?: string;
  readonly appId?: string;
  readonly tokenId?: string;
  readonly invitationId?: string;
  /** The other person of the event: who is added, invited, removed. */
  readonly targetUserId?: string;
  readonly targetEmail?: string;
  /** What a link is for, or how an account came about. */
  readonly purpose?: string;
  /** The `code` of the refusal. */
  readonly reason?: string;
  readonly method?: string;
  /** The route's pattern, never the path that was asked for. */
  readonly route?: string;
  readonly retryAfterSeconds?: number;
}

/** Writes a line for the request or the task that it was made for. */
export type Note = (event: AuthEvent, fields?: AuthFields) => void;

export interface AuthLogOptions {
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Refusals cost a stranger next to nothing: of one kind and from one address a line is written this often at most. */
const REFUSAL_EVERY_MS = 10_000;
const MAX_SOURCES = 10_000;
/** And of all addresses together so many a second. */
const MAX_REFUSALS_PER_SECOND = 20;

interface Refusals {
  readonly writtenAt: number;
  /** How many were not written since then. */
  readonly suppressed: number;
}

export class AuthLog {
  readonly #options: AuthLogOptions;
  /** By event and address. */
  readonly #refusals = new LRUCache<string, Refusals>({ max: MAX_SOURCES });
  #second = { startedAt: Number.NEGATIVE_INFINITY, lines: 0 };

  constructor(options: AuthLogOptions) {
    this.#options = options;
  }

  /** @param source null for what the service does by itself */
  write(
    event: AuthEvent,
    source: AuthSource | null,
    fields: AuthFields & { suppressed?: number } = {},
  ): void {
    const [level, message] = AUTH_EVENTS[event];
    // The event and the address come first: filters such as fail2ban's are anchored to the beginning of the line.
    this.#options.log[level]({ event, ...source, ...fields }, `auth: ${message}`);
  }

  /**
   * Writes an event that any client can cause as often as it likes, within bounds; the next line counts what was left out.
   * @param client what counts as one client
   */
  writeRefusal(event: AuthEvent, client: string, source: AuthSource, fields: AuthFields): void {
    const now = this.#options.now();
    const key = `${event} ${client}`;
    const before = this.#refusals.get(key);
    const suppressed = before?.suppressed ?? 0;
    const writtenAt = before?.writtenAt ?? Number.NEGATIVE_INFINITY;
    if (now - writtenAt < REFUSAL_EVERY_MS || !this.#hasRoom(now)) {
      this.#refusals.set(key, { writtenAt, suppressed: suppressed + 1 });
      return;
    }
    this.#refusals.set(key, { writtenAt: now, suppressed: 0 });
    this.write(event, source, suppressed > 0 ? { ...fields, suppressed } : fields);
  }

  #hasRoom(now: number): boolean {
    if (now - this.#second.startedAt >= 1_000) this.#second = { startedAt: now, lines: 0 };
    this.#second.lines += 1;
    return this.#second.lines <= MAX_REFUSALS_PER_SECOND;
  }
}
