/** Shares turns of the event loop among long computations. */

const waiting: (() => void)[] = [];

/**
 * Waits for a turn. Each turn of the event loop resumes one waiter, in order of arrival: however many long computations
 * there are, other requests wait for one slice of one of them.
 */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (waiting.length === 1) setImmediate(resumeNext);
  });
}

function resumeNext(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(resumeNext);
}
