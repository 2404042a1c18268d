/** Work that an answer does not wait for, so that its time tells nothing of what was found; waited for at the stop. */
import type { Logger } from 'pino';
import { errorCode } from '../storage/connect.ts';

/** Beyond it new work is dropped with a line in the log: those who ask are slowed down, so this is an attack. */
const MAX_PENDING = 500;

export class Background {
  readonly #log: Logger;
  readonly #pending = new Set<Promise<void>>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Starts the work. A failure is logged. */
  run(what: string, work: () => Promise<void>): void {
    if (this.#pending.size >= MAX_PENDING) {
      this.#log.warn({ what }, 'Too much work in the background; some was dropped');
      return;
    }
    const running = work()
      .catch((error: unknown) =>
        this.#log.warn({ what, code: errorCode(error), err: error }, 'Background work failed'),
      )
      .finally(() => this.#pending.delete(running));
    this.#pending.add(running);
  }

  /** Resolves when nothing is being done. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }
}
