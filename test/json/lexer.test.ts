/** The end of a string is found where JSON.parse finds it, near or far, in one step or in many. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NONE, stringEnd, stringRest } from '../../src/json/lexer.ts';
import { stringEnd as knownEnd } from '../../src/json/walk.ts';
import { runs } from '../support/fuzz.ts';
import { isJson } from './json-text.ts';

/** Runs of plain characters, mostly longer than what is looked at one by one, and escapes between them. */
const piece = fc.oneof(
  fc
    .tuple(fc.constantFrom('a', ' ', '~', '\u007f', 'é', 'ㅎ', '😀'), fc.nat(700))
    .map(([of, times]) => of.repeat(times)),
  fc.constantFrom('\\"', '\\\\', '\\n', '\\u0022', '\\ud83d', '}', "'"),
);
const content = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''));

/** The index of the closing quote, by steps of so many characters. */
function restBySteps(text: string, characters: number): number {
  let at = 1;
  for (;;) {
    const stop = Math.min(text.length, at + characters);
    at = stringRest(text, at, stop);
    if (at === NONE || at >= text.length || text[at] === '"') return at;
  }
}

test('of a valid string', () => {
  fc.assert(
    fc.property(content, content, fc.integer({ min: 1, max: 900 }), (inside, after, characters) => {
      const text = `"${inside}"${after}`;
      const end = inside.length + 2;
      expect(() => JSON.parse(text.slice(0, end))).not.toThrow();
      expect(stringEnd(text, 0, text.length)).toBe(end);
      expect(stringEnd(text, 0, end)).toBe(end);
      expect(knownEnd(text, 0)).toBe(end);
      expect(stringEnd(text, 0, end - 1)).toBe(NONE);
      expect(restBySteps(text, characters)).toBe(end - 1);
    }),
    runs(300),
  );
});

test('of a string with a character that JSON does not take, or without an end: none', () => {
  const bad = fc.constantFrom('\n', '\u0000', '\u001f', '\\x', '\\u12g4');
  fc.assert(
    fc.property(
      content,
      bad,
      content,
      fc.integer({ min: 1, max: 900 }),
      (before, wrong, after, characters) => {
        const inside = `${before}${wrong}${after}`;
        const text = `"${inside}"`;
        fc.pre(!isJson(text));
        expect(stringEnd(text, 0, text.length)).toBe(NONE);
        const found = restBySteps(text, characters);
        expect(found === NONE || found >= text.length).toBe(true);
        expect(stringEnd(`"${before}`, 0, before.length + 1)).toBe(NONE);
      },
    ),
    runs(300),
  );
});
