/** Checking a password: as slow for guessers as it must be, the same for e-mails with and without an account. */

import { LRUCache } from 'lru-cache';
import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
import type { Email } from './email.ts';
import type { Passwords } from './passwords.ts';
import { SlowDown } from './slow-down.ts';
import { findUser, type User } from './users.ts';

const FAILED = new Rejection('signInFailed', 'There is no account with this e-mail and password.');
const BUSY = new Rejection('unavailable', 'Too many sign-ins at once; try again shortly.', {
  retryAfterSeconds: 5,
});

const MAX_KNOWN = 50_000;

/**
 * Three counts of attempts: of an account from one address, of an address, and of an account from wherever. The last one
 * is generous, waits little, and does not hold up who signed in from this address before: else a stranger could keep
 * somebody out by guessing.
 */
export class SignIn {
  readonly #sql: Sql;
  readonly #passwords: Passwords;
  readonly #ofPair: SlowDown;
  readonly #ofAddress: SlowDown;
  readonly #ofAccount: SlowDown;
  /** Pairs of account and address that have signed in. */
  readonly #known = new LRUCache<string, true>({ max: MAX_KNOWN });

  constructor(options: { sql: Sql; passwords: Passwords; now: () => number }) {
    const { sql, passwords, now } = options;
    this.#sql = sql;
    this.#passwords = passwords;
    this.#ofPair = new SlowDown({ free: 5, longestMs: 60_000, now });
    this.#ofAddress = new SlowDown({ free: 20, longestMs: 60_000, now });
    this.#ofAccount = new SlowDown({ free: 50, longestMs: 10_000, now });
  }

  /** The account of this e-mail and password, or the refusal. */
  async check(email: Email, password: string, address: string): Promise<User | Rejection> {
    const pair = `${address} ${email.key}`;
    const wait = Math.max(
      this.#ofPair.wait(pair),
      this.#ofAddress.wait(address),
      this.#known.has(pair) ? 0 : this.#ofAccount.wait(email.key),
    );
    if (wait > 0) return slowedDown(wait);
    if (this.#passwords.isBusy) return BUSY;
    this.#ofPair.begin(pair);
    this.#ofAddress.begin(address);
    this.#ofAccount.begin(email.key);

    const found = await findUser(this.#sql, email);
    if (!(await this.#passwords.matches(password, found?.passwordHash ?? null)) || found === null)
      return FAILED;

    this.#ofPair.forget(pair);
    this.#ofAddress.takeBack(address);
    this.#ofAccount.takeBack(email.key);
    this.#known.set(pair, true);
    return found.user;
  }

  /** Whoever has set a new password by a link tries with a clean slate. */
  forgive(email: Email, address: string): void {
    this.#ofPair.forget(`${address} ${email.key}`);
    this.#known.set(`${address} ${email.key}`, true);
  }
}

/** The 429 of everything that is slowed down. */
export function slowedDown(waitMs: number): Rejection {
  const retryAfterSeconds = Math.ceil(waitMs / 1_000);
  return new Rejection('tooManyAttempts', `Wait ${retryAfterSeconds} s before the next attempt.`, {
    retryAfterSeconds,
  });
}
