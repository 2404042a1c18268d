/** A wait that ends. */

/**
 * The result of `work`, or `late` where it takes longer. The work itself goes on: whoever starts it ends it.
 * @param ms milliseconds
 * @throws what `work` throws in time; what it throws later is lost
 */
export async function withTimeout<T, L>(work: Promise<T>, ms: number, late: L): Promise<T | L> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<L>((resolve) => {
    timer = setTimeout(resolve, ms, late);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
