/** Why a serving process must stop: a signal, an order, or an unhandled error. */
import type { Logger } from 'pino';
import { isUnavailable } from '../storage/database/connect.ts';

/** A signal that follows sooner is the same one: npm passes on what its process group has got already. */
const SAME_SIGNAL_MS = 2_000;

/**
 * Calls back for the first signal to stop: SIGTERM, SIGINT, or SIGHUP where a terminal closes.
 * @param exit for an impatient second SIGTERM or SIGINT
 */
export function onStopSignal(stop: (signal: string) => void, exit: () => void = () => process.exit(1)): void {
  let firstAt: number | null = null;
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (firstAt === null) {
        firstAt = performance.now();
        stop(signal);
      } else if (signal !== 'SIGHUP' && performance.now() - firstAt >= SAME_SIGNAL_MS) exit();
    });
  }
}

/** A fault that repeats itself while the process stops must not fill the log. */
const MOST_LOGGED = 10;

export class StopRequest {
  /** Resolves with the first reason. */
  readonly reason: Promise<string>;
  #resolve: (reason: string) => void = () => undefined;
  #faults = 0;

  constructor() {
    this.reason = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** Asks for the stop. A later reason changes nothing. */
  request(reason: string): void {
    this.#resolve(reason);
  }

  /**
   * Makes an unhandled exception or rejection stop the process in order: requests are answered, what waits is
   * committed or in the journal, and the exit code is 1. Ending at once would lose all of that, and going on would trust
   * an unknown state. A lost connection that a database client reports as unhandled is no fault: outages are
   * what the service outlives.
   */
  onFault(log: Logger): void {
    process.on('uncaughtException', (error) => this.#fault(log, error));
    process.on('unhandledRejection', (error) => {
      if (isUnavailable(error))
        log.warn({ err: error }, 'An unhandled error was a lost connection: continuing');
      else this.#fault(log, error);
    });
  }

  #fault(log: Logger, error: unknown): void {
    process.exitCode = 1;
    this.#faults += 1;
    if (this.#faults <= MOST_LOGGED) log.fatal({ err: error }, 'Unhandled error: stopping');
    this.request('a fault');
  }
}
