import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { memberSpan } from '../../../src/ingest/parse/payload-text.ts';
import { runs } from '../../support/fuzz.ts';
import { type JsonText, jsonObject, jsonString, jsonValue, spellingOf, whiteSpace } from './json-text.ts';

interface Member {
  readonly key: string;
  readonly value: JsonText;
  readonly spaces: readonly [string, string, string, string];
}

/** Members of which about every second one is called payload, in some spelling. */
const member: fc.Arbitrary<Member> = fc.record({
  key: fc.oneof(
    spellingOf('payload'),
    jsonString,
    fc.constantFrom('"paylo\\u0061"', '"Payload"', '"payload "', '""'),
  ),
  value: jsonValue,
  spaces: fc.tuple(whiteSpace, whiteSpace, whiteSpace, whiteSpace),
});

/** The text of an object, and by construction what memberSpan must find in it. */
function render(before: string, members: readonly Member[], after: string) {
  let text = `${before}{`;
  let expected: { start: number; end: number; depth: number } | null = null;
  for (const [index, { key, value, spaces }] of members.entries()) {
    text += `${index === 0 ? '' : ','}${spaces[0]}${key}${spaces[1]}:${spaces[2]}`;
    const start = text.length;
    text += value.text;
    if (JSON.parse(key) === 'payload') expected = { start, end: text.length, depth: value.depth };
    text += spaces[3];
  }
  return { text: `${text}}${after}`, expected };
}

describe('the span of a member', () => {
  test('is exactly its text, whatever the spelling, order, nesting, white space and repetition', () => {
    fc.assert(
      fc.property(whiteSpace, fc.array(member, { maxLength: 6 }), whiteSpace, (before, members, after) => {
        const { text, expected } = render(before, members, after);
        expect(memberSpan(text, 'payload')).toEqual(expected);
      }),
      runs(3_000),
    );
  });

  test('is the text of the very value that JSON.parse finds', () => {
    fc.assert(
      fc.property(
        whiteSpace,
        fc.array(member, { minLength: 1, maxLength: 6 }),
        whiteSpace,
        (before, members, after) => {
          const { text } = render(before, members, after);
          const parsed = JSON.parse(text);
          const span = memberSpan(text, 'payload');
          expect(span !== null).toBe(Object.hasOwn(parsed, 'payload'));
          if (span !== null) expect(JSON.parse(text.slice(span.start, span.end))).toEqual(parsed.payload);
        },
      ),
      runs(1_000),
    );
  });

  test('is found in what JSON.stringify writes, at any indent', () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.nat(4),
        (payload, others, indent) => {
          const text = JSON.stringify({ ...others, payload }, null, indent);
          const span = memberSpan(text, 'payload');
          expect(JSON.parse(text.slice(span?.start, span?.end))).toEqual(JSON.parse(JSON.stringify(payload)));
        },
      ),
    );
  });

  test('has the depth of its nesting', () => {
    fc.assert(
      fc.property(jsonObject, fc.nat(30), ({ text, depth }, wraps) => {
        const wrapped = `${'['.repeat(wraps)}${text}${']'.repeat(wraps)}`;
        expect(memberSpan(`{"payload":${wrapped}}`, 'payload')?.depth).toBe(depth + wraps);
      }),
    );
  });

  test.each([
    ['{}', null],
    [' { } ', null],
    ['{"payload":1}', '1'],
    ['{"payload":-0}', '-0'],
    ['{"payload":true}', 'true'],
    ['{"payload":null }', 'null'],
    ['{"payload":""}', '""'],
    ['{"payload":"\\\\"}', '"\\\\"'],
    ['{"payload":"\\\\\\""}', '"\\\\\\""'],
    ['{"a\\\\":"\\"}","payload":{}}', '{}'],
    ['{"payload":{"a":"}"}}', '{"a":"}"}'],
    ['{"a":{"payload":1}}', null],
    ['{"a":[{"payload":1}],"payload":[2]}', '[2]'],
    ['{"payload":1,"payload":2}', '2'],
    ['{"\\u0070ayload":1,"payload":2}', '2'],
    ['{"payload":1,"\\u0070\\u0061\\u0079\\u006C\\u006f\\u0061\\u0064":2}', '2'],
    ['{"payload\\u0000":1}', null],
    ['{"payloaD":1}', null],
    ['{"__proto__":{"payload":1}}', null],
  ])('in %s is %s', (text, expected) => {
    const span = memberSpan(text, 'payload');
    expect(span === null ? null : text.slice(span.start, span.end)).toBe(expected);
  });

  test('is found in linear time in texts made to slow a scanner down', () => {
    const size = 1_000_000;
    const texts = [
      `{"a":"${'\\"'.repeat(size)}","payload":{}}`,
      `{"a":"${'\\\\'.repeat(size)}","payload":{}}`,
      `{"a":${'['.repeat(size)}${']'.repeat(size)},"payload":{}}`,
      `{"a":"${'\\u0022'.repeat(size)}","payload":{}}`,
      `{${'"k":0,'.repeat(size)}"payload":{}}`,
      `{${'"\\u006b":0,'.repeat(size / 4)}"payload":{}}`,
    ];
    for (const text of texts) {
      const startedAt = performance.now();
      expect(memberSpan(text, 'payload')?.end).toBe(text.length - 1);
      expect(performance.now() - startedAt).toBeLessThan(2_000);
    }
  });
});
