/** When a request is repeated. */

/** Statuses after which the same request may succeed. */
const RETRYABLE: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Whether the same request may succeed later. @param status 0: without a response */
export function isRetryable(status: number): boolean {
  return status === 0 || RETRYABLE.has(status);
}

const FIRST_MS = 100;
const LONGEST_MS = 30_000;

/**
 * Milliseconds until the next try. At least what the service asks for; beyond that it doubles from try to try, and half of it
 * is random, so that clients that failed together do not return together.
 * @param failures   in a row, from 1 on
 * @param retryAfter the response's Retry-After header
 */
export function pauseMs(failures: number, retryAfter: string | null): number {
  const longest = Math.min(FIRST_MS * 2 ** (failures - 1), LONGEST_MS);
  const jitter = (longest / 2) * (1 + Math.random());
  const asked = Number(retryAfter ?? 0);
  return Number.isFinite(asked) && asked > 0 ? asked * 1_000 + Math.random() * FIRST_MS : jitter;
}

/** A wait that can be ended early. */
export class Pause {
  #timer: NodeJS.Timeout | null = null;
  #end: (() => void) | null = null;

  async wait(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#end = resolve;
      this.#timer = setTimeout(resolve, ms);
    });
    this.end();
  }

  end(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#end?.();
    this.#end = null;
  }
}
