/**
 * A list that somebody writes back whole, joined with what others have done to it meanwhile.
 * @param based   what the writer had seen, each value once
 * @param wanted  what the writer wants in its place
 * @param present what there is now
 * @returns the wanted values without those that others have removed, and those that others have added, each behind the one that
 *   it is behind now
 */
export function mergedList(
  based: readonly string[],
  wanted: readonly string[],
  present: readonly string[],
): readonly string[] {
  const merged = wanted.filter((value) => present.includes(value) || !based.includes(value));
  for (const [index, value] of present.entries()) {
    if (based.includes(value) || merged.includes(value)) continue;
    merged.splice(index === 0 ? 0 : merged.indexOf(present[index - 1] ?? '') + 1 || merged.length, 0, value);
  }
  return merged;
}
