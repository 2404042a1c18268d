/** Passwords: acceptance rules, and hashing with bounded memory, CPU and waiting time. */
import { availableParallelism } from 'node:os';
import { hash, verify } from '@node-rs/argon2';
import type { Logger } from 'pino';
import { type Path, Turns } from '../../base/turns.ts';
import { Window } from '../../base/window.ts';
import { Rejection } from '../../errors.ts';
import type { Email } from '../people/email.ts';
import { loadPasswordList, weaknessOf } from './password-strength.ts';

/** OWASP's first choice for argon2id (ASVS 11.4.2): 19 MiB, two passes, one lane. The package's default is argon2id. */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

/** Compared with when there is no account, so that it takes as long. No password has this hash of zeros. */
const DECOY = `$argon2id$v=19$m=${COST.memoryCost},t=${COST.timeCost},p=${COST.parallelism}$${'A'.repeat(22)}$${'A'.repeat(43)}`;

const SHORTEST = 8;
/** Bounds the work. Every character counts. */
const LONGEST = 1_000;

/**
 * Concurrent hashes. Each takes 19 MiB and one of the four libuv threads that file and DNS operations share. With two
 * cores, one: the event loop and the database need the other.
 */
const HASHES_AT_ONCE = availableParallelism() > 2 ? 2 : 1;
/** Queue length: about four seconds of work on one core. */
const PLACES = 150;
/** Additional places, only for {@link Asker.isKnown}. */
const KNOWN_PLACES = 50;
/** Longest time in the queue. The request's own deadline may end it earlier. */
const LONGEST_WAIT_MS = 10_000;

/** The client of a hash. It uses a share of the queue. */
export interface Asker {
  /** The client's networks, the narrowest first. */
  readonly networks: readonly string[];
  /** Recent failed attempts of the client. Between equal shares of the queue, the client with fewer keeps its place. */
  readonly failures: number;
  /**
   * True for a client that has shown more than an address: a previous sign-in to the account from there, a session, or a
   * valid link. Such clients have a queue of their own and every other turn.
   */
  readonly isKnown: boolean;
  /** True once the client no longer waits for the response: the work is then skipped. */
  readonly hasLeft: () => boolean;
}

/** Outcomes for metrics. `crowded`: the client's network used its share; `full`: all networks had equal shares. */
const TURN_OUTCOMES = ['done', 'crowded', 'full', 'late', 'left'] as const;
export type TurnOutcome = (typeof TURN_OUTCOMES)[number];

export interface PasswordStats {
  /** Hashes waiting for their turn. */
  readonly waiting: number;
  readonly outcomes: Readonly<Record<TurnOutcome, number>>;
}

export interface PasswordsOptions {
  /** Milliseconds of a monotonic clock; the system's by default. */
  readonly now?: () => number;
  /** Receives refusals, at most once a minute. */
  readonly log?: Pick<Logger, 'warn'>;
}

const WARN_EVERY_MS = 60_000;

const CROWDED = new Rejection(
  'tooManyAttempts',
  'Too many sign-ins from your network are waiting; try again in 5 s.',
  { retryAfterSeconds: 5 },
);
const BUSY = new Rejection('unavailable', 'Too many sign-ins are waiting; try again in 5 s.', {
  retryAfterSeconds: 5,
});

/**
 * The problem of a new password, worded to follow "The password "; null if it is accepted. Costs up to 5 ms of CPU below
 * 15 characters: call it only after the rate limits.
 *
 * Length is what counts. There are no composition rules (ASVS 6.2.5), and from 15 characters on only a password that is
 * on the list of leaked ones is refused.
 */
export async function passwordProblem(password: string, email: Email): Promise<string | null> {
  const formal = formalProblem(password);
  if (formal !== null) return formal;
  if (password.toLowerCase() === email.key) return 'must not be the email address';
  const weakness = await weaknessOf(password, ['tidemark', email.key, ...email.key.split(/[@.+_-]/)]);
  if (weakness === 'common') return 'is one of the most common passwords';
  if (weakness === 'guessable')
    return 'is too easy to guess: it resembles a common password or is too regular; use a longer one, for example several words';
  return null;
}

function formalProblem(password: string): string | null {
  const characters = [...password].length;
  if (characters < SHORTEST) return `must have at least ${SHORTEST} characters`;
  if (characters > LONGEST) return `must have at most ${LONGEST} characters`;
  if (/\p{Cs}/u.test(password)) return 'must not contain a lone surrogate';
  return null;
}

interface Entry extends Asker {
  /** When it was queued. */
  readonly since: number;
  /** Starts the work, or refuses it. */
  readonly settle: (refusal: Rejection | null) => void;
}

/** Password hashing with limited concurrency. One per process. */
export class Passwords {
  readonly #now: () => number;
  readonly #log: PasswordsOptions['log'];
  readonly #warnings: Window;
  /** The process's own work, which clients cannot trigger. */
  readonly #own: (() => void)[] = [];
  readonly #known = new Turns<Entry>();
  readonly #others = new Turns<Entry>();
  readonly #outcomes: Record<TurnOutcome, number> = { done: 0, crowded: 0, full: 0, late: 0, left: 0 };
  #working = 0;
  #isTurnOfKnown = true;

  constructor(options: PasswordsOptions = {}) {
    this.#now = options.now ?? (() => performance.now());
    this.#log = options.log;
    this.#warnings = new Window({ limit: 1, ms: WARN_EVERY_MS, now: this.#now });
  }

  get stats(): PasswordStats {
    return {
      waiting: this.#own.length + this.#known.size + this.#others.size,
      outcomes: { ...this.#outcomes },
    };
  }

  /**
   * The text to store: algorithm, cost, salt and hash.
   * @param asker the client; absent for the process's own work, which is never refused
   */
  hash(password: string): Promise<string>;
  hash(password: string, asker: Asker): Promise<string | Rejection>;
  hash(password: string, asker: Asker | null = null): Promise<string | Rejection> {
    return this.#inTurn(asker, () => hash(password, COST));
  }

  /**
   * Whether the password is the account's. Without an account (null) it takes the same time and returns false.
   * @param asker as for {@link hash}
   */
  matches(password: string, stored: string | null): Promise<boolean>;
  matches(password: string, stored: string | null, asker: Asker): Promise<boolean | Rejection>;
  async matches(
    password: string,
    stored: string | null,
    asker: Asker | null = null,
  ): Promise<boolean | Rejection> {
    if (stored !== null) return await this.#inTurn(asker, () => verify(stored, password));
    const outcome = await this.#inTurn(asker, () => verify(DECOY, password));
    return outcome instanceof Rejection ? outcome : false;
  }

  /** Warms up at start, so that the first request does not take longer. */
  async prepare(): Promise<void> {
    await loadPasswordList();
  }

  async #inTurn<T>(asker: Asker | null, work: () => Promise<T>): Promise<T | Rejection> {
    const refusal = await this.#turn(asker);
    if (refusal !== null) return refusal;
    try {
      return await work();
    } finally {
      this.#outcomes.done += 1;
      this.#next();
    }
  }

  /** Waits for a turn. @returns null at the turn, or the refusal */
  #turn(asker: Asker | null): Promise<Rejection | null> {
    if (this.#working < HASHES_AT_ONCE) {
      this.#working += 1;
      return Promise.resolve(null);
    }
    return new Promise((resolve) => {
      if (asker === null) this.#own.push(() => resolve(null));
      else this.#enqueue({ ...asker, since: this.#now(), settle: resolve });
    });
  }

  #enqueue(entry: Entry): void {
    // If the queue for known clients is full, use the other one.
    const overflow = entry.isKnown ? enter(this.#known, entry, KNOWN_PLACES) : entry;
    if (overflow === null) return;
    const leaving = enter(this.#others, overflow, PLACES);
    if (leaving === null) return;
    const isCrowded = this.#others.countOf(pathOf(leaving).slice(0, 1)) > 0;
    this.#refuse(leaving, isCrowded ? 'crowded' : 'full');
    this.#warn();
  }

  #warn(): void {
    if (this.#warnings.wait('all') === 0)
      this.#log?.warn(this.stats, 'passwords: hashes refused, too many are waiting');
  }

  #refuse(entry: Entry, why: Exclude<TurnOutcome, 'done'>): void {
    this.#outcomes[why] += 1;
    entry.settle(why === 'crowded' ? CROWDED : BUSY);
  }

  /** Ends a hash and starts the next one, if any waits. */
  #next(): void {
    const own = this.#own.shift();
    if (own !== undefined) own();
    else if (!this.#admitNext()) this.#working -= 1;
  }

  /** @returns false if the client no longer waits */
  #admitNext(): boolean {
    for (let entry = this.#take(); entry !== null; entry = this.#take()) {
      if (entry.hasLeft()) this.#refuse(entry, 'left');
      else if (this.#now() - entry.since > LONGEST_WAIT_MS) this.#refuse(entry, 'late');
      else {
        entry.settle(null);
        return true;
      }
    }
    return false;
  }

  #take(): Entry | null {
    const first = this.#isTurnOfKnown ? this.#known : this.#others;
    const second = this.#isTurnOfKnown ? this.#others : this.#known;
    this.#isTurnOfKnown = !this.#isTurnOfKnown;
    return first.take() ?? second.take();
  }
}

/** Turns of clients: by network, the widest first. */
function pathOf({ networks }: Asker): Path {
  return networks.toReversed();
}

/** Adds an entry to a queue. @returns the entry that leaves for it, which may be the added one; null if there was room */
function enter(queue: Turns<Entry>, entry: Entry, places: number): Entry | null {
  queue.push(pathOf(entry), entry);
  return queue.size > places ? queue.evict((one, other) => one.failures >= other.failures) : null;
}
