/** Passwords: which are taken, and how they are hashed without filling the memory. */
import { hash, verify } from '@node-rs/argon2';
import { COMMON_PASSWORDS } from './common-passwords.ts';
import type { Email } from './email.ts';

/** OWASP's first choice for argon2id (ASVS 11.4.2): 19 MiB, two passes, one lane. The package's default is argon2id. */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

const SHORTEST = 8;
/** Only so that nobody sends a novel: every character counts. */
const LONGEST = 1_000;
/** From this length on the list of common passwords is not asked: nothing on it is as long. */
const LONG = 15;

/** Hashes at work at once: 19 MiB each, and two of the four threads that files and look-ups use too. */
const AT_ONCE = 2;
/** Hashes that may wait, some five seconds' worth on one core; beyond it {@link Passwords} refuses. */
const MAX_WAITING = 200;

/**
 * What is wrong with a new password, to be read after "The password "; null for a good one. Length is all that counts:
 * there are no rules on which characters (ASVS 6.2).
 */
export function passwordProblem(password: string, email: Email): string | null {
  const characters = [...password].length;
  if (characters < SHORTEST) return `must have at least ${SHORTEST} characters`;
  if (characters > LONGEST) return `must have at most ${LONGEST} characters`;
  if (/\p{Cs}/u.test(password)) return 'must not contain a lone surrogate';
  const plain = password.toLowerCase();
  if (plain === email.key) return 'must not be the e-mail address';
  if (characters < LONG && COMMON_PASSWORDS.has(plain)) return 'is one of the most common ones';
  return null;
}

/** The hashing, a few at a time. One per process. */
export class Passwords {
  readonly #waiting: (() => void)[] = [];
  #working = 0;
  /** What a password is compared with where there is no account, so that it takes as long. */
  #decoy: Promise<string> | null = null;

  /** True where so many wait already that a new one would wait too long. */
  get isBusy(): boolean {
    return this.#waiting.length >= MAX_WAITING;
  }

  /** The text to store: algorithm, cost, salt and hash. */
  hash(password: string): Promise<string> {
    return this.#inTurn(() => hash(password, COST));
  }

  /** Whether the password is the account's. Takes the same time where there is no account (null): then it never is. */
  async matches(password: string, stored: string | null): Promise<boolean> {
    if (stored !== null) return await this.#inTurn(() => verify(stored, password));
    const decoy = await this.decoy();
    await this.#inTurn(() => verify(decoy, password));
    return false;
  }

  /** Made at the start, so that the first unknown e-mail takes no longer than the next. */
  decoy(): Promise<string> {
    this.#decoy ??= this.hash('no account has this password');
    return this.#decoy;
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#working === AT_ONCE) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#working += 1;
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // Who is next takes over this place.
      if (next === undefined) this.#working -= 1;
      else next();
    }
  }
}
