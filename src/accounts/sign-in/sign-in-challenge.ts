/**
 * The challenge between the two steps of a sign-in: it says that the password was right, for five minutes, and is good for
 * nothing but to be sent with a code. It is signed and not stored, so it takes no room, and a forged one costs no query.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import { digestOf } from '../../base/token-text.ts';
import type { AuthenticatedUser } from '../people/users.ts';

const VALID_FOR_MS = 5 * 60_000;
const MAC_BYTES = 32;
/** Enough to tell the account's passwords apart. */
const PASSWORD_BYTES = 16;
const FORM = /^(usr_[0-9A-Za-z]{20})\.(\d{1,15})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;
/** Longest text that can be one. */
export const MOST_CHARACTERS = 128;

/** What a challenge says. */
export interface SignInClaim {
  /** Public id. */
  readonly userId: string;
  /** Whether this is still the password that was right. */
  isOf(passwordHash: string): boolean;
}

export class SignInChallenges {
  readonly #key: KeyObject;
  /** Those of another installation, or of the time before a restore, are not valid. */
  readonly #generation: string;
  readonly #now: () => number;

  /** @param options.now milliseconds since the Unix epoch */
  constructor(options: { key: KeyObject; generation: string; now: () => number }) {
    this.#key = options.key;
    this.#generation = options.generation;
    this.#now = options.now;
  }

  create({ user, passwordHash }: AuthenticatedUser): string {
    const said = `${user.userId}.${this.#now() + VALID_FOR_MS}.${fingerprint(passwordHash).toString('base64url')}`;
    return `${said}.${this.#mac(said).toString('base64url')}`;
  }

  /** What the challenge says; null if it was not made here or has expired. */
  read(challenge: string): SignInClaim | null {
    const [, userId, expires, password, mac] = FORM.exec(challenge.slice(0, MOST_CHARACTERS + 1)) ?? [];
    if (userId === undefined || password === undefined || mac === undefined) return null;
    const sent = Buffer.from(mac, 'base64url');
    if (sent.length !== MAC_BYTES) return null;
    if (!timingSafeEqual(sent, this.#mac(`${userId}.${expires}.${password}`))) return null;
    if (Number(expires) <= this.#now()) return null;
    const claimed = Buffer.from(password, 'base64url');
    return { userId, isOf: (passwordHash) => claimed.equals(fingerprint(passwordHash)) };
  }

  #mac(said: string): Buffer {
    return createHmac('sha256', this.#key).update(`${this.#generation}\n${said}`).digest();
  }
}

function fingerprint(passwordHash: string): Buffer {
  return digestOf(passwordHash).subarray(0, PASSWORD_BYTES);
}
