/** The values of fields are those that a filter finds, however a payload spells them. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { countedValues } from '../../../src/read/filter/counted-values.ts';
import { type Condition, isScalar } from '../../../src/read/filter/parse-filter.ts';
import { matcherOf } from '../../../src/read/filter/payload-matcher.ts';
import { PayloadValues } from '../../../src/storage/fields/payload-values.ts';
import { MANY, OTHER } from '../../../src/storage/fields/value-text.ts';
import { NUMBERS, spelledPayload, TEXTS } from '../../read/filter/json-spellings.ts';
import { runs, sized } from '../../support/fuzz.ts';

function valueAt(payload: string, ...path: string[]): string | null {
  return new PayloadValues([path]).read(payload)[0] ?? null;
}

test.each([
  ['{"a":"DE"}', '"DE"'],
  ['{"a":"\\u0044E"}', '"DE"'],
  ['{"\\u0061":1}', '1'],
  ['{"a":1.0}', '1'],
  ['{"a":1e0}', '1'],
  ['{"a":-0.0}', '0'],
  ['{"a":0.10}', '0.1'],
  ['{"a":120E-1}', '12'],
  ['{"a":12345678901234567890123}', '1.2345678901234567890123e22'],
  ['{"a":1e400}', '1e400'],
  ['{"a":true}', 'true'],
  ['{"a":null}', 'null'],
  ['{"a":""}', '""'],
  ['{"a":"\\u0000"}', '"\\u0000"'],
  ['{"a":1,"a":2}', '2'],
  ['{"a":[7]}', '7'],
  ['{"a":[7,7.0,[7]]}', '7'],
  ['{"a":[7,8]}', MANY],
  ['{"a":{"b":1}}', null],
  ['{"a":[]}', null],
  ['{"b":1}', null],
  ['{}', null],
])('the value of a in %s is %s', (payload, value) => {
  expect(valueAt(payload, 'a')).toBe(value);
});

test('a value of more than 200 characters is not told apart, whatever its spelling is', () => {
  const long = (length: number): string => `{"a":"${'x'.repeat(length)}"}`;
  expect(valueAt(long(200), 'a')).toBe(`"${'x'.repeat(200)}"`);
  expect(valueAt(long(201), 'a')).toBe(OTHER);
  expect(valueAt(`{"a":"${'\\u0078'.repeat(200)}"}`, 'a')).toBe(`"${'x'.repeat(200)}"`);
  expect(valueAt(`{"a":"${'\\u0078'.repeat(201)}"}`, 'a')).toBe(OTHER);
  expect(valueAt(`{"a":1.${'0'.repeat(300)}}`, 'a')).toBe('1');
  expect(valueAt(`{"a":1.${'1'.repeat(300)}}`, 'a')).toBe(OTHER);
  expect(valueAt(`{"a":1e${'9'.repeat(3_000)}}`, 'a')).toBe(OTHER);
});

test.each([
  ['{"a":-1.50e3}', '-1.50e3'],
  ['{"a":12345678901234567890123}', '12345678901234567890123'],
  ['{"a":[7]}', '7'],
  ['{"a":[true,"7",7,null,{"b":1}]}', '7'],
  ['{"a":[7,7]}', MANY],
  ['{"a":[7,[8,9]]}', MANY],
  ['{"a":"7"}', null],
  ['{"a":true}', null],
  ['{"a":null}', null],
  ['{"a":1,"a":"2"}', null],
  ['{"b":1}', null],
])('the number of a in %s is %s', (payload, number) => {
  expect(new PayloadValues([['a']], ['number']).read(payload)[0] ?? null).toBe(number);
});

test('a path can be about values and about numbers', () => {
  const values = new PayloadValues([['a'], ['a'], ['b'], ['b', 'c']], ['value', 'number', 'number', 'value']);
  expect(values.read('{"a":[1.0,"x"],"b":{"c":2}}')).toEqual([MANY, '1.0', null, '2']);
  expect(values.read('{"a":1.0,"b":[3,{"c":2.0}]}')).toEqual(['1', '1.0', '3', '2']);
});

test('paths that share names are read together', () => {
  const paths = [['a'], ['a', 'b'], ['a', 'c'], ['c', 'b'], ['a', 'b']];
  const payload = '{"c":[{"b":1},{"b":1}],"a":[3,{"c":null,"b":[2]},{"b":"2"}]}';
  expect(new PayloadValues(paths).read(payload)).toEqual(['3', MANY, 'null', '1', MANY]);
});

const name = fc.constantFrom(...TEXTS);
const operand = fc
  .tuple(fc.constantFrom(...TEXTS, ...NUMBERS, 'true', 'false', 'null'), fc.boolean())
  .map(([text, isQuoted]) =>
    !isQuoted && isScalar(text) && text.length % 2 === 0
      ? { text, isQuoted, isExact: true as const }
      : { text, isQuoted },
  );
const condition: fc.Arbitrary<Condition> = fc.record({
  isNegated: fc.constant(false),
  path: fc.array(name, { minLength: 1, maxLength: 3 }),
  test: fc.record({
    kind: fc.constant('equals' as const),
    values: fc.array(operand, { minLength: 1, maxLength: 3 }),
  }),
});

test('a condition holds for exactly the events that are counted under one of its values', () => {
  fc.assert(
    fc.property(
      spelledPayload,
      fc.array(condition, { minLength: 1, maxLength: 4 }),
      ({ text }, conditions) => {
        const found = new PayloadValues(conditions.map(({ path }) => path)).read(text);
        for (const [index, one] of conditions.entries()) {
          const value = found[index] ?? null;
          // What has several values, or one that is not told apart, is decided by its row.
          if (value === MANY || value === OTHER) continue;
          const values = countedValues(one);
          expect(values).not.toBeNull();
          expect(value !== null && values?.includes(value)).toBe(matcherOf(one)(text));
        }
      },
    ),
    runs(sized(700, 2_000)),
  );
});

test('whatever follows a payload that was read, its values do not remain', () => {
  const values = new PayloadValues([['a'], ['b', 'c']]);
  expect(values.read('{"a":1,"b":{"c":2}}')).toEqual(['1', '2']);
  expect(values.read('{"b":{"d":2}}')).toEqual([null, null]);
});
