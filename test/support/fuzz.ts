/** How long tests try: briefly in `npm test`, longer in `--project slow`, and for as long as one likes by `npm run fuzz`. */
import fc from 'fast-check';

/** Times as many runs as usual; `npm run fuzz` sets it. */
const FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);

/** True in the project `slow`, which also runs the files that call {@link sized}, and where everything runs (vitest.config.ts). */
const isLong = process.env.TEST_SIZES === 'long';

/**
 * A size of a test: of a flood, of rounds or of runs.
 * @param usual in `npm test`
 * @param long  in `--project slow`, and in `mocking` where everything runs
 */
export function sized(usual: number, long: number): number {
  return isLong ? long : usual;
}

/** Runs of a property: those of `npm test`, times FUZZ_FACTOR. */
export function runs(usual: number): { numRuns: number } {
  return { numRuns: Math.ceil(usual * FACTOR) };
}

// Of properties that do not say how often.
fc.configureGlobal(runs(100));
