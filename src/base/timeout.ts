/** Waits for what others owe this process, which end. */

/** Number of timers that a deadline is counted by. */
const PARTS = 8;
/** Shortest of them in milliseconds. */
const SHORTEST_PART_MS = 50;

/**
 * Calls `late` once another side has had so many milliseconds to answer. One timer would count the time in which this process
 * itself stood still, and would end before the answers that have arrived meanwhile are read. So the time is counted by several
 * timers: each counts its own length at most, however late it is, and what has arrived after the last one is read first.
 * For what others have promised; a limit that this service promises, as that of its own stop, is counted by the clock.
 * @param ms milliseconds
 * @returns ends the wait: `late` is not called any more
 */
export function deadline(ms: number, late: () => void): () => void {
  const partMs = Math.max(SHORTEST_PART_MS, Math.ceil(ms / PARTS));
  let timer: NodeJS.Timeout;
  let isOver = false;
  const wait = (leftMs: number): void => {
    timer = setTimeout(
      () => {
        if (leftMs > partMs) wait(leftMs - partMs);
        else setImmediate(() => isOver || late());
      },
      Math.min(partMs, leftMs),
    );
  };
  wait(ms);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/**
 * The result of `work`, or `late` at its {@link deadline}. The work itself goes on: whoever starts it ends it.
 * @param ms milliseconds
 * @throws what `work` throws in time; what it throws later is lost
 */
export async function withTimeout<T, L>(work: Promise<T>, ms: number, late: L): Promise<T | L> {
  let end: (() => void) | undefined;
  const timeout = new Promise<L>((resolve) => {
    end = deadline(ms, () => resolve(late));
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    end?.();
  }
}
