/**
 * The challenge between the two steps of a sign-in: it says that the password was right, for five minutes, and is good for
 * nothing but to be sent with a code. The key of a share says the same of the password of its link, for a day, or for the month that a
 * screen is to show it. They are signed and
 * not stored, so they take no room, and a forged one costs no query.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import { digestOf } from '../../base/token-text.ts';

/** By the kind of id that they are of: an account, a share. */
const VALID_FOR_MS = { usr: 5 * MINUTE_MS, shr: DAY_MS } as const;
const MAC_BYTES = 32;
/** Enough to tell the account's passwords apart. */
const PASSWORD_BYTES = 16;
const FORM = /^((?:usr|shr)_[0-9A-Za-z]{20})\.(\d{1,15})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;
/** Longest text that can be one. */
export const MOST_CHARACTERS = 128;

/** What a challenge says. */
export interface SignInClaim {
  /** Public id of the account or the share. */
  readonly id: string;
  /** Whether this is still the password that was right. */
  isOf(passwordHash: string): boolean;
}

export class SignInChallenges {
  readonly #key: KeyObject;
  /** Generation of the database: challenges of another installation, or from before a restore, are not valid. */
  readonly #generation: string;
  readonly #now: () => number;
  readonly #kind: keyof typeof VALID_FOR_MS;

  /** @param options.now milliseconds since the Unix epoch */
  constructor(options: {
    key: KeyObject;
    generation: string;
    now: () => number;
    kind?: keyof typeof VALID_FOR_MS;
  }) {
    this.#key = options.key;
    this.#generation = options.generation;
    this.#now = options.now;
    this.#kind = options.kind ?? 'usr';
  }

  /** @param id public id of what the password is of */
  create(id: string, passwordHash: string, validForMs: number = VALID_FOR_MS[this.#kind]): string {
    const said = `${id}.${this.#now() + validForMs}.${fingerprint(passwordHash).toString('base64url')}`;
    return `${said}.${this.#mac(said).toString('base64url')}`;
  }

  /** What the challenge says; null if it was not made here or has expired. */
  read(challenge: string): SignInClaim | null {
    const [, id, expires, password, mac] = FORM.exec(challenge.slice(0, MOST_CHARACTERS + 1)) ?? [];
    if (id?.startsWith(this.#kind) !== true || password === undefined || mac === undefined) return null;
    const sent = Buffer.from(mac, 'base64url');
    if (sent.length !== MAC_BYTES) return null;
    if (!timingSafeEqual(sent, this.#mac(`${id}.${expires}.${password}`))) return null;
    if (Number(expires) <= this.#now()) return null;
    const claimed = Buffer.from(password, 'base64url');
    return { id, isOf: (passwordHash) => claimed.equals(fingerprint(passwordHash)) };
  }

  #mac(said: string): Buffer {
    return createHmac('sha256', this.#key).update(`${this.#generation}\n${said}`).digest();
  }
}

function fingerprint(passwordHash: string): Buffer {
  return digestOf(passwordHash).subarray(0, PASSWORD_BYTES);
}
