/**
 * How many indexes from 0 on meet a condition, by bisection.
 * @param length how many indexes there are
 * @param holds  false for all after the first one of which it is
 */
export function countWhile(length: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}
