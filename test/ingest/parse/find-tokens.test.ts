/** The quick search misses no token that JSON.parse would find, or says that it may. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createTokenText } from '../../../src/base/token-text.ts';
import { findTokens, mayHideToken } from '../../../src/ingest/parse/find-tokens.ts';
import { jsonString, jsonValue, spellingOf, whiteSpace } from '../../json/json-text.ts';
import { runs, sized } from '../../support/fuzz.ts';

const A = createTokenText('tdl');
const B = createTokenText('tdl');
const C = createTokenText('tdl');

/** Of UTF-8, seen byte by byte, as the search has it. */
const bytesOf = (text: string): string => Buffer.from(text).toString('latin1');

describe('a body with a token', () => {
  const token = fc.constantFrom(A, B, C);
  const value = fc.oneof(
    token.map((text) => `"${text}"`),
    token.chain(spellingOf),
    jsonString,
    jsonValue.map(({ text }) => text),
    // Further down, where the search finds it too.
    token.map((text) => `{"loggingToken":"${text}"}`),
    token.map((text) => JSON.stringify(`"loggingToken":"${text}"`)),
  );
  const key = fc.oneof(fc.constant('"loggingToken"'), spellingOf('loggingToken'), jsonString);
  const body = fc
    .array(fc.tuple(whiteSpace, key, whiteSpace, whiteSpace, value), { maxLength: 6 })
    .map(
      (members) =>
        `{${members.map(([before, name, between, behind, text]) => `${before}${name}${between}:${behind}${text}`).join(',')}}`,
    );

  test('has it among those that are found, or is said to be able to hide it', () => {
    let found = 0;
    fc.assert(
      fc.property(body, (text) => {
        const { loggingToken } = JSON.parse(text);
        if (![A, B, C].includes(loggingToken)) return;
        const { tokens, isComplete } = findTokens(bytesOf(text));
        if (tokens.includes(loggingToken)) found += 1;
        else expect(!isComplete || mayHideToken(bytesOf(text)), text).toBe(true);
      }),
      runs(sized(1_000, 5_000)),
    );
    expect(found).toBeGreaterThan(50);
  });

  test('is not said to hide one where it is spelled as everybody does', () => {
    const text = JSON.stringify({
      loggingToken: A,
      payload: { text: 'é\u{1f30a}\n"\\\u0001', html: '\u003cb\u003e' },
    });
    expect(mayHideToken(text)).toBe(false);
    // What serializers of some languages escape.
    expect(mayHideToken('"\\u003cb\\u003e \\u0026 \\u00e9 \\u0027 \\u002f \\u001f \\u007f \\u4e2d"')).toBe(
      false,
    );
    expect(mayHideToken('"\\u006Cogging"')).toBe(true);
    expect(mayHideToken('"\\u0030"')).toBe(true);
    expect(mayHideToken('"\\u005f"')).toBe(true);
  });
});

test('a letter, a digit or an underscore as an escape may hide a token, wherever it stands, and nothing else', () => {
  const WORD = /\\u00(?:3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])/;
  for (let code = 0; code < 256; code += 1) {
    const hex = code.toString(16).padStart(2, '0');
    for (const digits of [hex, hex.toUpperCase()])
      for (let before = 0; before < 4; before += 1)
        for (const behind of ['', 'x', 'xyz', 'xxxx']) {
          const text = `${'x'.repeat(before)}\\u00${digits}${behind}`;
          expect(mayHideToken(text), text).toBe(WORD.test(text));
        }
  }
  const part = fc.constantFrom('\\', 'u', '0', '00', '6', 'c', '\\u00', '\\u006', '1', '"', '5', 'F', 'g');
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      // Of what is no escape in JSON it may say anything.
      if (WORD.test(parts.join(''))) expect(mayHideToken(parts.join(''))).toBe(true);
    }),
    runs(sized(1_000, 5_000)),
  );
});
