/** A walk visits what JSON.parse has at a path, whether it searches for the names or reads the whole text. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PathWalk, type TextPart } from '../../src/json/path-walk.ts';
import { runs, sized } from '../support/fuzz.ts';

const NAMES = ['a', 'b', 'a', 'b', 'ab', 'é', 'a b', 'a"', '', ':', ',', '/a'] as const;
const PATHS = [['a'], ['b'], ['ab'], ['a', 'b'], ['a', 'b', 'a'], ['b', 'é'], ['/a'], [':'], ['a b', 'ab']];
const SPACES = ['', '', ' ', '\n', '\t '] as const;

const scalar = fc.oneof(
  fc.constantFrom('1', '-2.50e1', 'true', 'null', '""', '"a"', '"b"', '"{"', '"}"', '"[a]"', '"é日"', '"a:"'),
  fc.constantFrom('"\\u0061"', '"a\\":1,\\"b\\":2"', '"\\\\"', `"${'x'.repeat(40)}"`),
);
const space = fc.constantFrom(...SPACES);

/** Members as text, so that names repeat and have escapes. */
const { object } = fc.letrec<{ object: string; value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    { weight: 4, arbitrary: scalar },
    { weight: 2, arbitrary: tie('object') },
    {
      weight: 1,
      arbitrary: fc.array(tie('value'), { maxLength: 3 }).map((values) => `[${values.join(',')}]`),
    },
  ),
  object: fc
    .array(fc.tuple(fc.constantFrom(...NAMES), fc.boolean(), space, tie('value'), space), { maxLength: 4 })
    .map((members) => `{${members.map(memberText).join(',')}}`),
}));

function memberText([name, isEscaped, before, value, after]: [
  string,
  boolean,
  string,
  string,
  string,
]): string {
  const key =
    isEscaped && name.startsWith('a') ? `"\\u0061${JSON.stringify(name).slice(2)}` : JSON.stringify(name);
  return `${before}${key}${after}:${before}${value}${after}`;
}

/** The scalars that JSON.parse has at a path; arrays are gone through. */
function scalarsAt(value: unknown, path: readonly string[]): unknown[] {
  if (Array.isArray(value)) return value.flatMap((one: unknown) => scalarsAt(one, path));
  const [name, ...rest] = path;
  if (typeof value !== 'object' || value === null) return name === undefined ? [value] : [];
  return name !== undefined && Object.hasOwn(value, name)
    ? scalarsAt((value as Record<string, unknown>)[name], rest)
    : [];
}

function visited(walk: (visit: ConstructorParameters<typeof PathWalk>[1]) => void): unknown[][] {
  const found: unknown[][] = PATHS.map(() => []);
  walk((paths, text, start, end) => {
    if (end > start) for (const path of paths) found[path]?.push(JSON.parse(text.slice(start, end)));
    return false;
  });
  return found;
}

test('a text has the values that JSON.parse finds', () => {
  fc.assert(
    fc.property(object, (text) => {
      const expected = PATHS.map((path) => scalarsAt(JSON.parse(text), path));
      expect(visited((visit) => new PathWalk(PATHS, visit).over(text))).toEqual(expected);
      for (const [index, path] of PATHS.entries())
        expect(visited((visit) => new PathWalk([path], visit).over(text))[0]).toEqual(expected[index]);
    }),
    runs(sized(700, 2_000)),
  );
});

test('so have texts between others, as bytes', () => {
  const noise = fc.constantFrom('', '\0', '{"a":', '"a":1,', '[\\', 'é"');
  fc.assert(
    fc.property(fc.array(fc.tuple(noise, object), { minLength: 1, maxLength: 4 }), (parts) => {
      const text = Buffer.from(parts.flat().join('')).toString('latin1');
      for (const path of [...PATHS.map((one) => [one]), PATHS.filter(([name]) => name !== ':')]) {
        const found: unknown[] = [];
        const walk = new PathWalk(path, (_, literal, start, end) => {
          if (end > start) found.push(JSON.parse(literal.slice(start, end)));
          return false;
        });
        let at = 0;
        for (const [before, payload] of parts) {
          const start = at + Buffer.byteLength(before);
          at = start + Buffer.byteLength(payload);
          const part: TextPart = { text, start, end: at, whole: () => payload };
          found.length = 0;
          walk.over(part);
          const expected = path.flatMap((one) => scalarsAt(JSON.parse(payload), one));
          expect(found.map(String).toSorted()).toEqual(expected.map(String).toSorted());
        }
      }
    }),
    runs(sized(700, 2_000)),
  );
});

test('what is found by a search is not read', () => {
  const text = '{"a":"x","b":{"a":2}}';
  const part: TextPart = {
    ...{ text, start: 0, end: text.length },
    whole: () => {
      throw new Error('The text was read.');
    },
  };
  expect(visited((visit) => new PathWalk([['b', 'a']], visit).over(part))[0]).toEqual([2]);
  // Another member of the name makes it uncertain.
  expect(() => new PathWalk([['a']], () => false).over(part)).toThrow('The text was read.');
});
