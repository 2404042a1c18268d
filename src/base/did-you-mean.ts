/** Which of several names a misspelled one was meant to be. */

/** A name may differ by this part of its length. */
const LARGEST_PART = 0.4;
/** No longer names are compared: the time grows with the product of the lengths. */
const LONGEST = 64;

/**
 * The nearest of the names by the least number of inserted, removed, replaced and swapped characters (the optimal string
 * alignment distance), upper and lower case alike.
 * @returns null where none is near
 */
export function nearest(name: string, known: readonly string[]): string | null {
  if (name.length > LONGEST) return null;
  let found: string | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const steps = distance(name.toLowerCase(), candidate.toLowerCase());
    if (steps >= least || steps > LARGEST_PART * Math.max(name.length, candidate.length)) continue;
    found = candidate;
    least = steps;
  }
  return found;
}

function distance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const isSame = a[row - 1] === b[column - 1];
      const at = (line: readonly number[], index: number): number => line[index] ?? Number.POSITIVE_INFINITY;
      let steps = Math.min(
        at(last, column) + 1,
        at(current, column - 1) + 1,
        at(last, column - 1) + Number(!isSame),
      );
      if (row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1])
        steps = Math.min(steps, at(beforeLast, column - 2) + 1);
      current.push(steps);
    }
    beforeLast = last;
    last = current;
  }
  return last[b.length] ?? Number.POSITIVE_INFINITY;
}
