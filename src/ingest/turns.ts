/** Turns of the event loop for work that would take too many milliseconds at once. */

const waiting: (() => void)[] = [];

/**
 * Waits for a turn. Each turn of the event loop is given to one who waits, in the order of their coming: however many have
 * long work to do, other requests wait for one piece of it.
 */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (waiting.length === 1) setImmediate(giveTurn);
  });
}

function giveTurn(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(giveTurn);
}
