/**
 * Whether the table of idempotency keys takes rows. Somebody may lock it alone, for an index or a VACUUM FULL: then requests with
 * a key are refused at once, and all others go on.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';

const LOCKED = new Rejection(
  'unavailable',
  'Requests with an Idempotency-Key cannot be stored now: their table is locked in the database; try again shortly.',
);

/** Between two looks at a lock. */
const LOOK_MS = 250;

export class KeyTable {
  readonly #areKeysLocked: () => Promise<boolean>;
  readonly #log: Pick<Logger, 'info' | 'warn'>;
  #isLocked = false;
  #looking: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #stopped = false;

  constructor(areKeysLocked: () => Promise<boolean>, log: Pick<Logger, 'info' | 'warn'>) {
    this.#areKeysLocked = areKeysLocked;
    this.#log = log;
  }

  /** False while another session has the table locked, as far as is known. */
  get acceptsIdempotencyKeys(): boolean {
    return !this.#isLocked;
  }

  /** Why a request with a key is refused now, or null. */
  get refusal(): Rejection | null {
    return this.#isLocked ? LOCKED : null;
  }

  /**
   * To be called when idempotent requests could not get a lock in time, which may be one on this table or on that of events.
   * @returns whether it is this one
   */
  async suspect(): Promise<boolean> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    await this.#looking;
    return this.#isLocked;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    // A database that does not answer is noticed elsewhere.
    const isLocked = await this.#areKeysLocked().catch(() => false);
    if (isLocked !== this.#isLocked) {
      if (isLocked)
        this.#log.warn('write: the table of idempotency keys is locked, refusing requests with a key');
      else this.#log.info('write: the table of idempotency keys is unlocked');
    }
    this.#isLocked = isLocked;
    if (!isLocked || this.#stopped) return;
    this.#timer = setTimeout(() => void this.suspect(), LOOK_MS);
    this.#timer.unref();
  }
}
