/** The scan takes what JSON.parse takes, wherever it stops, and finds members where JSON.parse does. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { JsonScan, type Span } from '../../src/json/scan.ts';
import { runs, sized } from '../support/fuzz.ts';
import {
  CHANGES,
  DAMAGE,
  damaged,
  isJson,
  type JsonText,
  jsonObject,
  jsonString,
  jsonValue,
  spellingOf,
  whiteSpace,
} from './json-text.ts';

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

/** As the scan of a whole text finds it; null if there is no such member, or the text is not JSON. */
function memberSpan(text: string, name: string): Span | null {
  const scan = new JsonScan([name]);
  scan.begin(text, 0);
  return scan.step(text.length) === 'done' ? scan.span(name) : null;
}

describe('the span of a member', () => {
  test('is exactly its text, whatever the spelling, order, nesting, white space and repetition', () => {
    fc.assert(
      fc.property(whiteSpace, fc.array(member, { maxLength: 6 }), whiteSpace, (before, members, after) => {
        const { text, expected } = render(before, members, after);
        expect(memberSpan(text, 'payload')).toEqual(expected);
      }),
      runs(sized(600, 3_000)),
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
});

/** Index behind the value at the beginning, scanned in steps of so many characters; null for what is not JSON. */
function scannedEnd(text: string, characters: number): number | null {
  const scan = new JsonScan(['payload']);
  scan.begin(text, 0);
  for (;;) {
    const state = scan.step(characters);
    if (state === 'done') return scan.end;
    if (state === 'invalid') return null;
  }
}

/** Whether a text is one JSON value between white space. */
function isScanned(text: string, characters: number): boolean {
  const end = scannedEnd(text, characters);
  return end !== null && /^[ \t\n\r]*$/.test(text.slice(end));
}

/** However the scan is interrupted. */
function expectAsJsonParse(text: string): void {
  const wanted = isJson(text);
  for (const characters of [1, 2, 7, text.length + 1])
    expect(isScanned(text, characters), `${characters} at a time: ${text}`).toBe(wanted);
}

describe('a scan', () => {
  const text = fc
    .tuple(whiteSpace, jsonValue, whiteSpace)
    .map(([before, value, after]) => before + value.text + after);

  test('takes every JSON text, wherever it stops by the way', () => {
    fc.assert(fc.property(text, expectAsJsonParse), runs(sized(400, 2_000)));
  });

  test('takes of damaged texts exactly those that JSON.parse takes', () => {
    let taken = 0;
    fc.assert(
      fc.property(text, DAMAGE, (whole, changes) => {
        const broken = damaged(whole, changes);
        if (isJson(broken)) taken += 1;
        expectAsJsonParse(broken);
      }),
      runs(sized(800, 8_000)),
    );
    expect(taken).toBeGreaterThan(40);
  });

  test('takes of any texts exactly those that JSON.parse takes', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'{}[]",:\\ e0x-.+1\ntrufalsn\u0001') }),
        expectAsJsonParse,
      ),
      runs(sized(800, 8_000)),
    );
  });

  test('takes of a text with every token, damaged at any place, what JSON.parse takes', () => {
    const every = String.raw`{"a":[1,-0.5e+10,0,{},[],true,false,null,""],"b\"\\\u00e9":"\ud800\n é" , "":-1E5}`;
    for (let at = 0; at <= every.length; at += 1)
      for (const character of CHANGES)
        for (const lost of [0, 1]) expectAsJsonParse(every.slice(0, at) + character + every.slice(at + lost));
  });

  test('finds the same members wherever it stops by the way', () => {
    fc.assert(
      fc.property(
        fc.array(member, { maxLength: 4 }),
        fc.integer({ min: 1, max: 9 }),
        (members, characters) => {
          const { text, expected } = render('', members, '');
          const scan = new JsonScan(['payload']);
          scan.begin(text, 0);
          while (scan.step(characters) === 'more');
          expect(scan.span('payload')).toEqual(expected);
        },
      ),
      runs(sized(200, 1_000)),
    );
  });

  test('forgets what it found before', () => {
    const scan = new JsonScan(['payload']);
    scan.begin('{"payload":1}', 0);
    scan.step(100);
    scan.begin('{"a":{"payload":1}}', 0);
    expect(scan.step(100)).toBe('done');
    expect(scan.span('payload')).toBeNull();
  });

  test('follows any depth', () => {
    const levels = 100_000;
    const deep = `{"payload":${'[{"a":'.repeat(levels)}0${'}]'.repeat(levels)}}`;
    expect(memberSpan(deep, 'payload')?.depth).toBe(2 * levels);
    expect(memberSpan(deep.slice(0, -2), 'payload')).toBeNull();
  });

  const size = 300_000;
  test.each([
    ['escaped quotes', `{"a":"${'\\"'.repeat(size)}","payload":{}}`],
    ['backslashes', `{"a":"${'\\\\'.repeat(size)}","payload":{}}`],
    ['levels', `{"a":${'['.repeat(size)}${']'.repeat(size)},"payload":{}}`],
    ['escapes', `{"a":"${'\\u0022'.repeat(size)}","payload":{}}`],
    ['members', `{${'"k":0,'.repeat(size)}"payload":{}}`],
    ['escaped names', `{${'"\\u006b":0,'.repeat(size / 4)}"payload":{}}`],
    ['empty arrays', `{"a":[${'[],'.repeat(size)}0],"payload":{}}`],
  ])('stops when it was told to, and reads nothing twice, in a text of many %s', (_, text) => {
    const scan = new JsonScan(['payload']);
    scan.begin(text, 0);
    let before = 0;
    while (scan.step(1_000) === 'more') {
      expect(scan.end - before).toBeGreaterThanOrEqual(990);
      expect(scan.end - before).toBeLessThan(1_010);
      before = scan.end;
    }
    expect(scan.span('payload')?.end).toBe(text.length - 1);
  });
});
