/** How far two counts are apart, measured by what chance does. */

/** Two counts that differ by fewer standard deviations differ by chance. */
export const LEAST_WEIGHT = 2;

/** By how many standard deviations of a count two counts of intervals of one length differ. */
export function weightOf(total: number, before: number): number {
  return Math.abs(total - before) / Math.sqrt(total + before + 1);
}
