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

const codePoint = fc
  .oneof(fc.integer({ min: 0x20, max: 0x7e }), fc.integer({ min: 0, max: 0x10_f7ff }))
  .map((number) => String.fromCodePoint(number < 0xd800 ? number : number + 0x800));

/**
 * Any text that has a form in UTF-8, half of it ASCII. The units "binary" and "grapheme" of fast-check make a table of a
 * million code points in each process, which takes seconds.
 */
export function anyText(
  lengths: { readonly minLength?: number; readonly maxLength?: number } = {},
): fc.Arbitrary<string> {
  return fc.string({ ...lengths, unit: codePoint });
}

// Of properties that do not say how often.
fc.configureGlobal(runs(100));
