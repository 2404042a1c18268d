/**
 * How often a password may be tried: per account and client, per client, and per account.
 *
 * The limit per account alone would let a stranger lock the owner out. So a client that has signed in to the account from
 * its network before is limited only by its own failures. The others are grouped by their number of attempts and wait
 * only within their group: repeated guessers leave the groups of new clients. All state is in memory and bounded;
 * where processes share limits through Redis, {@link SharedSignInLimits} makes it that of all of them.
 */
import { createHmac, type KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { DAY_MS } from '../../base/time-units.ts';
import { atMost } from '../../cache/lookup-cache.ts';
import type { SharedRecord, ShareRecords } from '../../limits/shared-records.ts';
import type { Email } from '../people/email.ts';
import { Backoff, NetworkBackoff, TIERS } from './backoff.ts';

/** Attempts of a client at any operation that costs a hash. Wide networks have these free attempts per tier. */
export const CLIENT_LEVELS = [
  { free: 20, longestMs: 60_000 },
  { free: 12, longestMs: 10_000 },
  { free: 40, longestMs: 10_000 },
] as const;

/** Attempts of a client at one account. */
const PAIR_LEVELS = [
  { free: 5, longestMs: 60_000 },
  { free: 3, longestMs: 60_000 },
  { free: 5, longestMs: 60_000 },
] as const;

/** Attempts at one account from everywhere, per tier. The wait doubles slowly, so that a full tier still makes progress. */
const ACCOUNT_LEVEL = { free: 50 / TIERS, longestMs: 10_000, doublesEvery: 60 } as const;

/** Wrong codes of a client at one account, and at one account from everywhere, per tier. Three codes of a million are right. */
const CODE_PAIR_LEVEL = { free: 5, longestMs: 900_000 } as const;
const CODE_PAIR_LEVELS = [CODE_PAIR_LEVEL, CODE_PAIR_LEVEL, CODE_PAIR_LEVEL];
const CODE_ACCOUNT_LEVEL = { free: 10, longestMs: 900_000 } as const;

/** Accounts with remembered networks, and networks per account: one account cannot evict those of many others. */
const MAX_KNOWN_ACCOUNTS = 10_000;
const MAX_KNOWN_NETWORKS = 20;
/** How long Redis keeps a network after its last sign-in. */
const KNOWN_FOR_MS = 30 * DAY_MS;
/** Bytes of the digests of records' names. */
const NAME_BYTES = 16;

/** The limit that refuses, for metrics. */
const LIMIT_NAMES = ['account_and_client', 'client', 'account'] as const;
export type ThrottledBy = (typeof LIMIT_NAMES)[number];

/** An admitted password check, counted as failed unless reported otherwise. */
export interface AdmittedAttempt {
  /** Whether the client has signed in to this account before. */
  readonly isKnown: boolean;
  /** Failed attempts of the client in the last hour. */
  readonly failures: number;
  /** The password or the code was correct, and the client is signed in. */
  succeeded(): void;
  /** The password was correct, but a code is needed too: failures are not forgotten, and the client is not known yet. */
  passedFirst(): void;
  /** The password or the code was not checked. */
  notChecked(): void;
}

export class SignInLimits {
  readonly #ofPair: NetworkBackoff;
  readonly #ofClient: NetworkBackoff;
  readonly #ofAccount: Backoff;
  readonly #codesOfPair: NetworkBackoff;
  readonly #codesOfAccount: Backoff;
  /** Networks of successful sign-ins and resets by a link. */
  readonly #known = new KnownNetworks();
  /** Networks of sign-ins with a code. */
  readonly #knownByCode = new KnownNetworks();
  /** Throttled attempts, by the limit with the longest wait. */
  readonly throttled: Record<ThrottledBy, number> = { account_and_client: 0, client: 0, account: 0 };

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#ofPair = new NetworkBackoff(PAIR_LEVELS, now);
    this.#ofClient = new NetworkBackoff(CLIENT_LEVELS, now);
    this.#ofAccount = new Backoff({ ...ACCOUNT_LEVEL, now });
    this.#codesOfPair = new NetworkBackoff(CODE_PAIR_LEVELS, now);
    this.#codesOfAccount = new Backoff({ ...CODE_ACCOUNT_LEVEL, now });
  }

  /** Counts an attempt, or returns the milliseconds to wait. */
  admit(email: Email, networks: readonly string[]): AdmittedAttempt | number {
    const isKnown = this.#known.has(email, networks);
    const tier = this.#ofPair.tier(networks, email.key);
    const waits: Record<ThrottledBy, number> = {
      account_and_client: this.#ofPair.wait(networks, email.key),
      client: isKnown ? 0 : this.#ofClient.wait(networks),
      account: isKnown ? 0 : this.#ofAccount.wait(email.key, tier),
    };
    const wait = this.#longest(waits);
    if (wait > 0) return wait;
    const failures = this.#ofClient.count(networks);
    const pair = this.#ofPair.begin(networks, email.key);
    const client = this.#ofClient.begin(networks);
    this.#ofAccount.begin(email.key, tier);
    const undo = (): void => {
      pair.undo();
      this.#ofAccount.undo(email.key, tier);
    };
    return {
      isKnown,
      failures,
      succeeded: () => {
        undo();
        client.undo();
        this.remember(email, networks);
      },
      passedFirst: () => {
        undo();
        client.undo();
      },
      // The client's own count stays: a request beyond the queue's capacity is an attempt too.
      notChecked: undo,
    };
  }

  /** Counts an attempt at a code by a client that has shown the password, or returns the milliseconds to wait. */
  admitCode(email: Email, networks: readonly string[]): AdmittedAttempt | number {
    const isKnown = this.#knownByCode.has(email, networks);
    const tier = this.#codesOfPair.tier(networks, email.key);
    const wait = this.#longest({
      account_and_client: this.#codesOfPair.wait(networks, email.key),
      client: 0,
      account: isKnown ? 0 : this.#codesOfAccount.wait(email.key, tier),
    });
    if (wait > 0) return wait;
    const failures = this.#codesOfPair.count(networks, email.key);
    const pair = this.#codesOfPair.begin(networks, email.key);
    this.#codesOfAccount.begin(email.key, tier);
    const undo = (): void => {
      pair.undo();
      this.#codesOfAccount.undo(email.key, tier);
    };
    return {
      isKnown,
      failures,
      succeeded: () => {
        undo();
        this.#codesOfPair.forget(networks, email.key);
        this.#knownByCode.add(email, networks);
        this.remember(email, networks);
      },
      passedFirst: undo,
      notChecked: undo,
    };
  }

  /** The client signed in to the account, or set its password by a link: its earlier failures no longer count. */
  remember(email: Email, networks: readonly string[]): void {
    this.#ofPair.forget(networks, email.key);
    this.#known.add(email, networks);
  }

  /** Everything that is known of a client at an account, as records of all processes. */
  records(email: Email, networks: readonly string[]): readonly SharedRecord[] {
    return [
      ...this.#ofPair.records('pair', networks, email.key),
      ...this.#ofClient.records('client', networks),
      this.#ofAccount.record(`account ${email.key}`, email.key),
      ...this.#codesOfPair.records('codes of pair', networks, email.key),
      this.#codesOfAccount.record(`codes of account ${email.key}`, email.key),
      this.#known.record('known', email, networks),
      this.#knownByCode.record('known by code', email, networks),
    ];
  }

  /** The longest of the waits, counted for metrics. */
  #longest(waits: Readonly<Record<ThrottledBy, number>>): number {
    const wait = Math.max(...Object.values(waits));
    const by = wait > 0 ? LIMIT_NAMES.find((count) => waits[count] === wait) : undefined;
    if (by !== undefined) this.throttled[by] += 1;
    return wait;
  }
}

/** Networks by account, the latest last. */
class KnownNetworks {
  readonly #networks = new LRUCache<string, Set<string>>(atMost(MAX_KNOWN_ACCOUNTS));

  has(email: Email, [narrowest = '']: readonly string[]): boolean {
    return this.#networks.get(email.key)?.has(narrowest) ?? false;
  }

  add(email: Email, [narrowest = '']: readonly string[]): void {
    const known = this.#networks.get(email.key) ?? new Set();
    known.delete(narrowest);
    known.add(narrowest);
    for (const oldest of known) {
      if (known.size <= MAX_KNOWN_NETWORKS) break;
      known.delete(oldest);
    }
    this.#networks.set(email.key, known);
  }

  /** Whether a network is known, as a record of all processes. */
  record(name: string, email: Email, networks: readonly string[]): SharedRecord {
    return {
      name: `${name} ${networks[0] ?? ''} ${email.key}`,
      lifeMs: KNOWN_FOR_MS,
      read: () => (this.has(email, networks) ? '1' : ''),
      write: (text) => {
        if (text !== '') this.add(email, networks);
      },
    };
  }
}

/** An attempt that all processes have counted. */
export interface SharedAttempt extends Pick<AdmittedAttempt, 'isKnown' | 'failures'> {
  succeeded(): Promise<void>;
  passedFirst(): Promise<void>;
  notChecked(): Promise<void>;
}

/** The limits of all processes: exact while they share records, and per process while they cannot. */
export class SharedSignInLimits {
  readonly #limits: SignInLimits;
  readonly #share: ShareRecords;
  readonly #key: KeyObject;

  /** @param key of the digests that records are named by: nobody who sees Redis learns who signs in from where */
  constructor(limits: SignInLimits, share: ShareRecords, key: KeyObject) {
    this.#limits = limits;
    this.#share = share;
    this.#key = key;
  }

  /** Counts an attempt, or returns the milliseconds to wait. */
  admit(email: Email, networks: readonly string[]): Promise<SharedAttempt | number> {
    return this.#admit(email, networks, 'admit');
  }

  /** Counts an attempt at a code by a client that has shown the password, or returns the milliseconds to wait. */
  admitCode(email: Email, networks: readonly string[]): Promise<SharedAttempt | number> {
    return this.#admit(email, networks, 'admitCode');
  }

  /** As {@link SignInLimits.remember}. */
  remember(email: Email, networks: readonly string[]): Promise<void> {
    return this.#share(this.#records(email, networks), () => this.#limits.remember(email, networks));
  }

  async #admit(
    email: Email,
    networks: readonly string[],
    how: 'admit' | 'admitCode',
  ): Promise<SharedAttempt | number> {
    const records = this.#records(email, networks);
    const attempt = await this.#share(records, () => this.#limits[how](email, networks));
    if (typeof attempt === 'number') return attempt;
    const { isKnown, failures } = attempt;
    return {
      ...{ isKnown, failures },
      succeeded: () => this.#share(records, attempt.succeeded),
      passedFirst: () => this.#share(records, attempt.passedFirst),
      notChecked: () => this.#share(records, attempt.notChecked),
    };
  }

  #records(email: Email, networks: readonly string[]): readonly SharedRecord[] {
    return this.#limits.records(email, networks).map((record) => {
      const digest = createHmac('sha256', this.#key).update(record.name).digest();
      return { ...record, name: `sign-in:${digest.subarray(0, NAME_BYTES).toString('base64url')}` };
    });
  }
}
