/** What was opened, in order. A stop and a start that fails close it by the same list, backward. */
export class Opened {
  readonly #closers: (() => unknown)[] = [];

  /** @param close waits for as long as it takes; called at most once */
  push(close: () => unknown): void {
    this.#closers.push(close);
  }

  async close(): Promise<void> {
    for (let close = this.#closers.pop(); close !== undefined; close = this.#closers.pop()) await close();
  }
}
