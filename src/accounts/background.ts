/** Work that a response does not wait for, so that its duration reveals nothing. The shutdown waits for it. */
import type { Logger } from 'pino';
import { errorCode } from '../storage/database/connect.ts';

/** Work beyond these limits is dropped and logged. Clients are throttled, so only an attack reaches them. */
const MAX_PENDING = 500;
/** Of what is pending the rest is for security: what clients can ask for must not keep an owner from being told. */
const MAX_PENDING_OTHERS = 400;

export class Background {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #pending = new Set<Promise<void>>();

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log;
  }

  /** Starts the work. A failure is logged. @param options.isSecurity whether the owner of an account is told what happened to it */
  run(what: string, work: () => Promise<void>, { isSecurity = false } = {}): void {
    if (this.#pending.size >= (isSecurity ? MAX_PENDING : MAX_PENDING_OTHERS)) {
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
