/** Shares the event loop among long computations. */
import { type Path, Turns } from './turns.ts';

/**
 * Longest time in milliseconds that a long computation takes at once. A request that is stored waits for three or four turns of
 * the event loop: for its body, its commit group, the answer of the database.
 */
const SLICE_MS = 1;
/** Steps of a loop, and kilobytes that they go through, between two looks at the clock. */
const STEPS = 64;
const BITS_OF_KILOBYTE = 10;
/** Holder of work whose app is not known yet. */
const NOBODY: Path = ['nobody', 0];

const waiting = new Turns<() => void>();

/**
 * Waits for a turn of the event loop. Each one resumes one waiter, accounts in turns, then their apps: however many long
 * computations there are, other requests wait for one slice of one of them.
 */
export function yieldToEventLoop(holder: Path = NOBODY): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.size === 0) setImmediate(resumeNext);
    waiting.push(holder, resolve);
  });
}

function resumeNext(): void {
  waiting.take()?.();
  if (waiting.size > 0) setImmediate(resumeNext);
}

/** Runs a computation that yields where it may pause. */
export async function inSlices<T>(work: Generator<undefined, T>, slices: TimeSlice): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (slices.isOver) await slices.next();
  }
}

/** As `map`, in slices of time. */
export async function mapInSlices<Row, Mapped>(
  rows: readonly Row[],
  slices: TimeSlice,
  map: (row: Row, index: number) => Mapped,
): Promise<readonly Mapped[]> {
  const mapped: Mapped[] = [];
  for (const [index, row] of rows.entries()) {
    mapped.push(map(row, index));
    if (slices.isOver) await slices.next();
  }
  return mapped;
}

/** Runs a short one at once. */
export function atOnce<T>(work: Generator<undefined, T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/** The slices of time that one long computation takes. */
export class TimeSlice {
  readonly #holder: Path;
  #pausedAt = performance.now();
  #steps = 0;

  /** @param holder whose computation it is */
  constructor(holder: Path = NOBODY) {
    this.#holder = holder;
  }

  /** Whether the slice has taken its time: then {@link next} is due. */
  get isOver(): boolean {
    return performance.now() - this.#pausedAt >= SLICE_MS;
  }

  /** Whether the slice has taken its time, for loops of short steps that ask in each. */
  get isOverAfterStep(): boolean {
    return this.isOverAfter(0);
  }

  /** The same for steps that go through so many bytes each. */
  isOverAfter(bytes: number): boolean {
    this.#steps += 1 + (bytes >> BITS_OF_KILOBYTE);
    if (this.#steps < STEPS) return false;
    this.#steps = 0;
    return this.isOver;
  }

  /** Waits for the next slice. */
  async next(): Promise<void> {
    await yieldToEventLoop(this.#holder);
    this.#pausedAt = performance.now();
  }
}
