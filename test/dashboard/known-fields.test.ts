/** What the dashboard reads out of the catalogue, of filters and of the browser's complaints about JSON. */
import { describe, expect, test } from 'vitest';
import { countablePath } from '../../dashboard/filter-text.ts';
import { placeOfMistake } from '../../dashboard/json-mistake.ts';
import { catalogOf, countersOf, pathKey } from '../../dashboard/known-fields.ts';

test('examples of the catalogue keep the spelling in which they were sent', () => {
  const text =
    '{"success":true,"data":{"fields":[{"path":"id","examples":[12345678901234567890,1e400,"a\\"b"]},{"path":"x","examples":[]}],"truncated":false}}';
  expect(catalogOf(text).fields.map(({ path, examples }) => [path, examples])).toEqual([
    ['id', ['12345678901234567890', '1e400', '"a\\"b"']],
    ['x', []],
  ]);
});

test('two spellings of a path are the same', () => {
  expect(pathKey('order."with space".a')).toBe(pathKey(' order . with space .a'));
  expect(pathKey('"a.b"')).not.toBe(pathKey('a.b'));
  expect(pathKey('"half')).toBe(pathKey('half'));
});

test('the counts of a type answer that type alone, those of all types every one', () => {
  const field = (path: string, typeId: string | null) => ({
    ...{ path, typeId, typeName: typeId, kind: 'value' as const, createdAt: '', completeFrom: null },
    ...{ by: null, backfill: false, values: 0, otherSince: null, unit: null, decimals: null },
  });
  const all = field('"country"', null);
  const ofType = field('country', 'typ_1');
  expect(countersOf([all, ofType], 'country', 'typ_1')).toEqual([all, ofType]);
  expect(countersOf([all, ofType], 'country', null)).toEqual([all]);
  expect(countersOf([all, ofType], 'city', null)).toEqual([]);
});

test.each([
  ['country:DE', 'country'],
  ['country:DE,FR', 'country'],
  ['order."a:b".c : "x:y"', 'order."a:b".c'],
  ['-country:DE', null],
  ['country:*', null],
  ['country:', null],
  ['total>=5', null],
  ['some text', null],
])('counts may answer %s by the path %s', (condition, path) => {
  expect(countablePath(condition)).toBe(path);
});

describe('a mistake in JSON has the place that the browser gives', () => {
  const text = '{\n  "a": 1\n  "b": 2\n}';
  test.each([
    ["Expected ',' or '}' after property value in JSON at position 13 (line 3 column 3)", 3, 3],
    [
      "JSON.parse: expected ',' or '}' after property value in object at line 3 column 3 of the JSON data",
      3,
      3,
    ],
    ['Unexpected end of JSON input', 4, 2],
  ])('%s', (message, line, column) => {
    const place = placeOfMistake(text, message);
    expect(place).toMatchObject({ line, column });
    if (line === 3) expect(text.slice(place?.at)).toMatch(/^"b"/);
  });
  test('or none', () => expect(placeOfMistake(text, "JSON Parse error: Expected '}'")).toBeNull());
});
