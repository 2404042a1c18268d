/** Shares turns of the event loop among long computations. */
import { AppTurns } from './app-turns.ts';

/**
 * Longest time in milliseconds that a long computation takes at once. A request that is stored waits for three or four turns of
 * the event loop: for its body, its commit group, the answer of the database.
 */
const SLICE_MS = 1;
/** How many steps of a loop are done between two looks at the clock. */
const STEPS = 64;
/** Work whose app is not known yet. */
const NOBODY = 0;

const waiting = new AppTurns<() => void>();

/**
 * Waits for a turn. Each turn of the event loop resumes one waiter, apps in turns: however many long computations there are,
 * other requests wait for one slice of one of them, and an app with one waits for one slice of each other app.
 */
export function nextTurn(appId: number = NOBODY): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.apps === 0) setImmediate(resumeNext);
    waiting.push(appId, resolve);
  });
}

function resumeNext(): void {
  waiting.take()?.();
  if (waiting.apps > 0) setImmediate(resumeNext);
}

/** The slices of one long computation. */
export class Slices {
  readonly #appId: number;
  #pausedAt = performance.now();
  #steps = 0;

  /** @param appId whose turns they are */
  constructor(appId: number = NOBODY) {
    this.#appId = appId;
  }

  /** Whether the slice has taken its time: then {@link next} is due. */
  get isOver(): boolean {
    return performance.now() - this.#pausedAt >= SLICE_MS;
  }

  /** The same for loops of short steps, to be asked in each. */
  get isOverAfterStep(): boolean {
    this.#steps += 1;
    return this.#steps % STEPS === 0 && this.isOver;
  }

  /** Waits for the next turn. */
  async next(): Promise<void> {
    await nextTurn(this.#appId);
    this.#pausedAt = performance.now();
  }
}
