/** Work that a response does not wait for, so that its duration reveals nothing. The shutdown waits for it. */
import type { Logger } from 'pino';
import { errorCode } from '../storage/connect.ts';

/** Work beyond this limit is dropped and logged. Clients are throttled, so only an attack reaches it. */
const MAX_PENDING = 500;

export class Background {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #pending = new Set<Promise<void>>();

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log;
  }

  /** Starts the work. A failure is logged. */
  run(what: string, work: () => Promise<void>): void {
    if (this.#pending.size >= MAX_PENDING) {
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
