/** How long properties are tried: briefly in `npm test`, for as long as one likes by `npm run fuzz`. */
import fc from 'fast-check';

/** Times as many runs as usual; `npm run fuzz` sets it. */
const FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);

/** Runs of a property: those of `npm test`, times FUZZ_FACTOR. */
export function runs(usual: number): { numRuns: number } {
  return { numRuns: Math.ceil(usual * FACTOR) };
}

// Of properties that do not say how often.
fc.configureGlobal(runs(100));
