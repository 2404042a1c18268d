/** Work that a response does not wait for, so that its duration reveals nothing. The shutdown waits for it. */
import type { Logger } from 'pino';
import { errorCode } from '../../storage/database/connect.ts';

/** Work beyond these limits is dropped and logged. Clients are throttled, so only an attack reaches them. */
export interface BackgroundLimits {
  readonly maxPending: number;
  /** The rest is for security: what clients can ask for must not keep an owner from being told. */
  readonly maxPendingOthers: number;
}

const LIMITS: BackgroundLimits = { maxPending: 500, maxPendingOthers: 400 };

export class Background {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #limits: BackgroundLimits;
  readonly #pending = new Set<Promise<void>>();

  constructor(log: Pick<Logger, 'warn'>, limits = LIMITS) {
    this.#log = log;
    this.#limits = limits;
  }

  /** Starts the work. A failure is logged. @param options.isSecurity whether the owner of an account is told what happened to it */
  run(what: string, work: () => Promise<void>, { isSecurity = false } = {}): void {
    const { maxPending, maxPendingOthers } = this.#limits;
    if (this.#pending.size >= (isSecurity ? maxPending : maxPendingOthers)) {
      this.#log.warn({ task: what }, 'background: task dropped, too many are pending');
      return;
    }
    const running = work()
      .catch((error: unknown) =>
        this.#log.warn({ task: what, code: errorCode(error), err: error }, 'background: task failed'),
      )
      .finally(() => this.#pending.delete(running));
    this.#pending.add(running);
  }

  /** Resolves when no work is pending. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }
}
