/** Lists of words name each slice that has a word, and few others. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  eachWordOfPayload,
  HASH_BITS,
  innerWordsOf,
  OTHER_NUMBER,
  wordsOf,
} from '../../../src/json/words.ts';
import { parseFilters, payloadFilter } from '../../../src/read/filter/payload-filter.ts';
import { encodePart, entryOf, listCodeOf, partOf, slicesIn } from '../../../src/storage/words/lists.ts';
import { SegmentBuilder } from '../../../src/storage/words/segment.ts';
import { NUMBERS, spelledPayload, TEXTS } from '../../read/filter/json-spellings.ts';
import { runs, sized } from '../../support/fuzz.ts';

function wordsOfPayload(payload: string): Set<number> {
  const bytes = Buffer.from(payload);
  const words = new Set<number>();
  eachWordOfPayload(bytes, 0, bytes.length, (hash) => words.add(hash));
  return words;
}

test('a part of lists has the slices of its words, or whole groups of them', () => {
  const few = fc.uniqueArray(fc.nat(1_023), { minLength: 1, maxLength: 60 });
  const many = fc
    .tuple(fc.nat(100), fc.integer({ min: 370, max: 400 }), fc.integer({ min: 1, max: 2 }))
    .map(([from, count, step]) => Array.from({ length: count }, (_, index) => from + index * step));
  const lists = fc.uniqueArray(
    fc.record({
      hash: fc.oneof(fc.nat(2 ** HASH_BITS - 1), fc.nat(40)),
      slices: fc.oneof({ weight: 20, arbitrary: few }, { weight: 1, arbitrary: many }),
    }),
    { selector: ({ hash }) => hash, maxLength: 200 },
  );
  fc.assert(
    fc.property(lists, fc.nat(4), fc.nat(9), (known, partBits, twice) => {
      const { rice } = listCodeOf(known.length, known.length);
      const code = { partBits, rice };
      for (let part = 0; part < 2 ** partBits; part += 1) {
        const own = known.filter(({ hash }) => partOf(hash, code) === part);
        const entries = own.flatMap(({ hash, slices }) => slices.map((slice) => entryOf(hash, slice)));
        const again = entries.filter((_, index) => index % 10 < twice);
        const list = encodePart(Uint32Array.from([...entries, ...again]).sort(), part, code);
        for (const { hash, slices } of own) {
          const found = slicesIn(list, hash, code);
          expect(found).toEqual(expect.arrayContaining(slices));
          if (slices.length <= 384) expect(found).toHaveLength(slices.length);
          if (!own.some((other) => other.hash === hash + 1) && partOf(hash + 1, code) === part)
            expect(slicesIn(list, hash + 1, code)).toEqual([]);
        }
      }
    }),
    runs(sized(60, 200)),
  );
});

test('a segment names for each word the slices that have it, and when these were', async () => {
  const builder = new SegmentBuilder();
  const payloads = Array.from(
    { length: 5_000 },
    (_, index) => `{"order":${index},"name":"n${index % 7}","all":"x"}`,
  );
  payloads.forEach((payload, index) => {
    const bytes = Buffer.from(`..${payload}..`);
    builder.add(bytes, 2, bytes.length - 2, 1_000 + index, index === 700);
  });
  const segment = await builder.finish();
  expect(segment).toMatchObject({ start: 1_000, until: 6_000, events: 5_000, slices: 40 });
  const rangesOf = (word: string): number[][] => {
    const [hash = 0] = wordsOf(word);
    const part = segment.parts.find((one) => one.part === partOf(hash, segment));
    return (part === undefined ? [] : slicesIn(part.list, hash, segment))
      .filter((slice) => slice < segment.slices)
      .map((slice) => [0, 4].map((at) => 1_000 + segment.times.readUInt32BE(slice * 8 + at)));
  };
  const within = (ranges: number[][], at: number): boolean =>
    ranges.some(([first = 0, last = 0]) => at >= first && at <= last);
  let others = 0;
  for (let index = 0; index < 5_000; index += 1) {
    const ranges = rangesOf(String(index));
    expect(within(ranges, 1_000 + index)).toBe(true);
    others += ranges.length - 1;
  }
  expect(others).toBeLessThan(50);
  expect(rangesOf('x').length).toBe(40);
  expect(rangesOf('ORDER').length).toBe(40);
  const nowhere = Array.from({ length: 1_000 }, (_, index) => rangesOf(`no${index}`).length);
  expect(nowhere.reduce((sum, count) => sum + count, 0)).toBeLessThan(20);
});

describe('what a filter needs of words', () => {
  const text = fc.oneof(
    fc.constantFrom(...TEXTS),
    fc.constantFrom(
      'a',
      '42',
      '42.0',
      '4.2',
      '"a"',
      ':42,',
      '{"a":',
      'b"',
      '1e400',
      '\u00e9',
      'true',
      '.',
      '4.',
    ),
    fc.string({
      unit: fc.constantFrom('a', '1', '.', '0', 'e', '-', '"', ' ', '\\', 'é'),
      minLength: 1,
      maxLength: 5,
    }),
  );
  const value = fc.constantFrom(
    ...NUMBERS,
    ...TEXTS.filter((one) => one !== '').map((one) => JSON.stringify(one)),
  );
  const filter = fc
    .tuple(fc.constantFrom('a', 'b', 'id', '"a.b"', 'a.id'), fc.constantFrom(':', '==', '>='), value)
    .map((parts) => parts.join(''));

  test('is in every payload that passes it', () => {
    let passed = 0;
    fc.assert(
      fc.property(
        spelledPayload,
        fc.array(text, { minLength: 8, maxLength: 8 }),
        fc.array(filter),
        (payload, texts, filters) => {
          const words = wordsOfPayload(payload.text);
          const all = [
            ...texts.flatMap((one) => [payloadFilter([], { q: one }), payloadFilter([], { word: one })]),
            ...filters.map((one) => {
              const conditions = parseFilters([one]);
              return typeof conditions === 'string' ? null : payloadFilter(conditions);
            }),
          ];
          for (const one of all) {
            if (one?.matches(payload.text) !== true || one.words?.length === 0) continue;
            passed += 1;
            for (const alternatives of one.words ?? [])
              expect(alternatives.some((some) => some.every((hash) => words.has(hash)))).toBe(true);
          }
        },
      ),
      runs(sized(400, 3_000)),
    );
    expect(passed).toBeGreaterThan(300);
  });

  test('is what stands alone, or has both ends within a text', () => {
    expect(innerWordsOf('4711')).toEqual([]);
    expect(innerWordsOf('/articles/4711"')).toEqual([...wordsOf('articles'), ...wordsOf('4711')]);
    expect(innerWordsOf('/4711.')).toEqual([]);
    expect(innerWordsOf('.4711/')).toEqual([]);
    expect(wordsOf('3f25-11D3')).toEqual([...wordsOf('3F25'), ...wordsOf('11d3')]);
    expect(wordsOf('42.50')).toEqual(
      [...wordsOf('42.50'), ...wordsOf('42.5')].filter((hash, at, all) => all.indexOf(hash) === at),
    );
    expect(wordsOfPayload('{"n":12e4}').has(OTHER_NUMBER)).toBe(true);
    expect(wordsOfPayload('{"n":"12e4-33e1"}').has(OTHER_NUMBER)).toBe(false);
  });
});
