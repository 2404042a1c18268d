/** How long tests try: briefly before a merge, longer each night, and for as long as one likes by `npm run fuzz`. */
import fc from 'fast-check';
import { test } from 'vitest';

/** Times as many runs as usual; `npm run fuzz` sets it. */
const FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);

/** True in `npm run test:nightly` (vitest.config.ts). */
export const isLong = process.env.TEST_SIZES === 'long';

/** A test of the night, in a file with others that each merge needs: another of its kind is among those. */
export const atNight = test.runIf(isLong);

/**
 * A size of a test: of a flood, of rounds or of runs, or the kinds that it goes through.
 * @param usual before a merge
 * @param long  in `npm run test:nightly`
 */
export function sized<T>(usual: T, long: T): T {
  return isLong ? long : usual;
}

/** Of several of a kind the first before a merge, and all in `npm run test:nightly`. */
export function first<Kind>(kinds: readonly Kind[], count = 1): readonly Kind[] {
  return kinds.slice(0, sized(count, kinds.length));
}

/** The transports of a test whose matter is not HTTP itself: the default one before a merge, both in `npm run test:nightly`. */
export const TRANSPORTS = first(['uws', 'node'] as const);

/** Runs of a property: those of `npm test`, times FUZZ_FACTOR. */
export function runs(usual: number): { numRuns: number } {
  return { numRuns: Math.ceil(usual * FACTOR) };
}

// Of properties that do not say how often.
fc.configureGlobal(runs(100));
