/** Work that is repeated for as long as the service runs: one round at a time, with a pause between two. */

export interface RoundsOptions {
  readonly work: () => Promise<void>;
  /** Milliseconds between the end of a round and the begin of the next one. */
  readonly pauseMs: () => number;
  /**
   * Called with what a round rejects with; the next round comes as after any other.
   * @param isFirst false if the round before failed, too
   */
  readonly onFailure: (error: unknown, isFirst: boolean) => void;
  /** Called after a round that did not fail, where the one before did. */
  readonly onRecovery?: () => void;
}

export class Rounds {
  readonly #options: RoundsOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> | null = null;
  #isFailing = false;
  #isStopped = false;

  constructor(options: RoundsOptions) {
    this.#options = options;
  }

  /** True from the call of {@link stop}: a long round ends early. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** @param afterMs milliseconds until the first round; by default a pause */
  start(afterMs: number = this.#options.pauseMs()): void {
    this.#schedule(afterMs);
  }

  /** Cuts the pause short. A round that runs is left alone. */
  runSoon(): void {
    if (this.#round === null) this.#schedule(0);
  }

  /** Waits for the round that runs; no other begins. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  #schedule(afterMs: number): void {
    if (this.#isStopped) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#round = this.#run().finally(() => {
        this.#round = null;
        this.#schedule(this.#options.pauseMs());
      });
    }, afterMs);
    this.#timer.unref();
  }

  async #run(): Promise<void> {
    try {
      await this.#options.work();
      if (this.#isFailing) this.#options.onRecovery?.();
      this.#isFailing = false;
    } catch (error) {
      this.#options.onFailure(error, !this.#isFailing);
      this.#isFailing = true;
    }
  }
}
