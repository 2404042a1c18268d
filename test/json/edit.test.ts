/** Values that are removed or replaced in a JSON text, with everything else as it was. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { addEdit, editValues, newEditStep, type Replace } from '../../src/json/edit.ts';

type Paths = Readonly<Record<string, Replace>>;

const DROP: Replace = () => null;
const MASK: Replace = () => '"***"';

function edited(text: string, paths: Paths): string {
  const root = newEditStep();
  for (const [path, replace] of Object.entries(paths)) addEdit(root, path.split('.'), replace);
  return editValues(text, root);
}

describe('values of a JSON text', () => {
  test.each([
    ['{"a":1,"b":2}', { a: DROP }, '{"b":2}'],
    ['{"a":1,"b":2}', { b: DROP }, '{"a":1}'],
    ['{"a":1}', { a: DROP }, '{}'],
    ['{ "a" : 1 , "b" : 2 , "c" : 3 }', { b: DROP }, '{ "a" : 1 , "c" : 3 }'],
    ['{ "a" : 1 , "b" : 2 , "c" : 3 }', { b: DROP, c: DROP }, '{ "a" : 1 }'],
    ['{ "a" : 1 , "b" : 2 }', { a: DROP, b: DROP }, '{  }'],
    ['{"a":{"x":1,"y":2},"b":1,"c":2}', { 'a.y': MASK, b: DROP, c: DROP }, '{"a":{"x":1,"y":"***"}}'],
    // Every member of a name, however it is spelled.
    ['{"a":1,"\\u0061":2,"b":3,"a":4}', { a: DROP }, '{"b":3}'],
    ['{"a":1,"\\u0061":2,"b":3}', { a: MASK }, '{"a":"***","\\u0061":"***","b":3}'],
    // Arrays are gone through; one that a path ends at is a value.
    ['{"a":[{"b":1},[{"b":2}],3],"b":4}', { 'a.b': DROP }, '{"a":[{},[{}],3],"b":4}'],
    ['{"a":[{"b":1}]}', { a: MASK }, '{"a":"***"}'],
    // The path around another one decides.
    ['{"a":{"b":1}}', { a: MASK, 'a.b': DROP }, '{"a":"***"}'],
    ['{"a":{"b":1}}', { 'a.b': DROP, a: MASK }, '{"a":"***"}'],
    // What is not found changes nothing.
    ['{"a":"{\\"b\\":1}","c":[],"d":{},"n":-0,"e":1e400}', { b: DROP, 'c.b': DROP, 'a.b': MASK }, null],
    ['{"__proto__":1,"x":2}', { constructor: DROP }, null],
    ['{"__proto__":1,"x":2}', { __proto: DROP }, null],
  ] as const)('%s', (text, paths, expected) => {
    expect(edited(text, paths)).toBe(expected ?? text);
  });

  test('are those that JSON.parse sees, and what is left is valid, whatever the payload', () => {
    const names = fc.constantFrom('a', 'b', 'c');
    const value = fc.letrec((tie) => ({
      value: fc.oneof({ depthSize: 'small' }, fc.jsonValue({ maxDepth: 0 }), tie('list'), tie('object')),
      list: fc.array(tie('value'), { maxLength: 3 }),
      object: fc.dictionary(names, tie('value'), { maxKeys: 3 }),
    }));
    const drop = (from: unknown, path: readonly string[]): unknown => {
      if (Array.isArray(from)) return from.map((one) => drop(one, path));
      if (typeof from !== 'object' || from === null) return from;
      const [name, ...rest] = path;
      return Object.fromEntries(
        Object.entries(from)
          .filter(([key]) => key !== name || rest.length > 0)
          .map(([key, inner]) => [key, key === name ? drop(inner, rest) : inner]),
      );
    };
    const path = fc.array(names, { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(value.object, path, path, fc.constantFrom(0, 1, 3), (object, first, second, spaces) => {
        const text = JSON.stringify(object, null, spaces);
        const result = edited(text, { [first.join('.')]: DROP, [second.join('.')]: DROP });
        const expected = drop(drop(JSON.parse(text), first), second);
        expect(JSON.parse(result)).toEqual(expected);
      }),
    );
  });

  test('may be nested a thousand levels deep', () => {
    const text = `${'{"a":'.repeat(999)}{"b":1}${'}'.repeat(999)}`;
    const root = newEditStep();
    addEdit(root, [...Array.from({ length: 999 }, () => 'a'), 'b'], DROP);
    expect(editValues(text, root)).toBe(text.replace('"b":1', ''));
  });
});
