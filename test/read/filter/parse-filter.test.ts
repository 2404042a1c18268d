import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Condition, parseFilter } from '../../../src/read/filter/parse-filter.ts';
import { anyText, runs } from '../../support/fuzz.ts';

/** A condition in short: `not a.b equals x|y`, with what was quoted in quotes. */
function short(text: string): string {
  const parsed = parseFilter(text);
  if ('problem' in parsed) return `column ${parsed.column}: ${parsed.problem}`;
  const { isNegated, path, test } = parsed;
  const operand = (one: { text: string; isQuoted: boolean; isExact?: true }): string =>
    (one.isExact ? 'only ' : '') + (one.isQuoted ? JSON.stringify(one.text) : one.text);
  let said = 'exists';
  if (test.kind === 'equals') said = `equals ${test.values.map(operand).join('|')}`;
  if (test.kind === 'compares') said = `${test.comparison} ${operand(test.value)}`;
  return `${isNegated ? 'not ' : ''}${path.join(' → ')} ${said}`;
}

describe('a filter', () => {
  test.each([
    ['user.id:42', 'user → id equals 42'],
    ['status>=500', 'status >= 500'],
    ['status>500', 'status > 500'],
    ['status<=-1.5e3', 'status <= -1.5e3'],
    ['status<5', 'status < 5'],
    ['country:DE,FR', 'country equals DE|FR'],
    ['coupon:*', 'coupon exists'],
    ['v==5', 'v equals only 5'],
    ['-v == null, "5" ,true,-1.5e3', 'not v equals only null|"5"|only true|only -1.5e3'],
    ['v:=5', 'v equals =5'],
    ['v:==5', 'v equals ==5'],
    ['-bot:true', 'not bot equals true'],
    ['-coupon:*', 'not coupon exists'],
    ['time:08:30', 'time equals 08:30'],
    ['url:https://example.org/?a=b', 'url equals https://example.org/?a=b'],
    ['started>=2026-01-31T08:30:00Z', 'started >= 2026-01-31T08:30:00Z'],
    ['name:Ada Lovelace', 'name equals Ada Lovelace'],
    ['  name : Ada ,  Grace  ', 'name equals Ada|Grace'],
    ['first name:Ada', 'first name equals Ada'],
    ['user\\.id:42', 'user.id equals 42'],
    ['"user.id".x:42', 'user.id → x equals 42'],
    ['"user.id" . "x" :42', 'user.id → x equals 42'],
    ['\\-x:1', '-x equals 1'],
    ['a:\\*', 'a equals *'],
    ['a:x\\,y,z\\\\', 'a equals x,y|z\\'],
    ['a:\\ x\\ ', 'a equals  x '],
    ['a:"42"', 'a equals "42"'],
    ['a:"x,y" , "*",z', 'a equals "x,y"|"*"|z'],
    ['a:""', 'a equals ""'],
    ['"":1', ' equals 1'],
    ['"\\u0000\\ud800":"\\u0000"', '\0\ud800 equals "\\u0000"'],
    ['a>="M"', 'a >= "M"'],
    ['größe:5', 'größe equals 5'],
    ['a:5"', 'a equals 5"'],
  ])('%s', (text, expected) => {
    expect(short(text)).toBe(expected);
  });
});

const NO_EQUALITY =
  'one of : < <= > >= must follow the name (equal is written status:500, the number alone status==500, and unequal -status:500)';
const NO_JSON = 'after == a value is JSON: a number, true, false, null, or a text in quotes';

describe('a mistake names its column and what is expected there', () => {
  test.each([
    ['', 'column 1: the name of a field is missing'],
    ['-', 'column 2: the name of a field is missing'],
    ['a', 'column 2: one of : < <= > >= must follow the name'],
    ['status=500', `column 7: ${NO_EQUALITY}`],
    ['v==', 'column 4: a value is missing (for an empty text, write "")'],
    ['v==five', `column 8: ${NO_JSON}`],
    ['v==1,05', `column 8: ${NO_JSON}`],
    ['v==*', 'column 4: * stands alone (for a star itself, write \\*)'],
    ['v===5', `column 6: ${NO_JSON}`],
    ['status!=500', `column 8: ${NO_EQUALITY}`],
    ['a..b:1', 'column 3: the name of a field is missing'],
    ['a.:1', 'column 3: the name of a field is missing'],
    ['status>=', 'column 9: a value is missing (for an empty text, write "")'],
    ['a:', 'column 3: a value is missing (for an empty text, write "")'],
    ['a:x,', 'column 5: a value is missing (for an empty text, write "")'],
    ['a:x,,y', 'column 5: a value is missing (for an empty text, write "")'],
    ['a>1,000', 'column 4: > takes one value'],
    ['a:/api/*', 'column 8: * stands alone (for a star itself, write \\*)'],
    ['a:*,b', 'column 4: nothing may follow * (for a star itself, write \\*)'],
    ['a:b,*', 'column 5: * stands alone (for a star itself, write \\*)'],
    ['a:"x', 'column 3: the closing quote is missing'],
    ['a:"x\\"', 'column 3: the closing quote is missing'],
    ['a:"x" y', 'column 7: a comma or the end must follow a quoted value'],
    ['a>"x"y', 'column 6: > takes one value'],
    ['a:"\\x"', 'column 4: this is no escape of a JSON string'],
    ['a:"\\u12g4"', 'column 4: this is no escape of a JSON string'],
    ['a:"\n"', 'column 4: a control character in quotes is written as an escape'],
    ['a:x\\', 'column 4: a character must follow \\'],
    ['😀=1', `column 2: ${NO_EQUALITY}`],
    [`${'a.'.repeat(32)}a:1`, 'column 65: a path has at most 32 names'],
    [`a:${'1,'.repeat(100)}1`, 'column 203: a list has at most 100 values'],
    ['a'.repeat(1_001), 'column 1001: a filter has at most 1000 characters'],
  ])('%s', (text, expected) => {
    expect(short(text)).toBe(expected);
  });
});

/** The spelling of a text with everything escaped that may have a meaning. */
function escaped(text: string): string {
  return text.replace(/[\\.:<>=",* -]/g, '\\$&');
}

const unquotable = anyText({ minLength: 1, maxLength: 8 });
const quotable = fc.string({
  unit: fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code)),
  maxLength: 8,
});
const name = fc.oneof(
  unquotable.map((value) => ({ value, text: escaped(value) })),
  quotable.map((value) => ({ value, text: JSON.stringify(value) })),
);
const value = fc.oneof(
  unquotable.map((text) => ({ operand: { text, isQuoted: false }, text: escaped(text) })),
  quotable.map((text) => ({ operand: { text, isQuoted: true }, text: JSON.stringify(text) })),
);

test('what is written with escapes or in quotes is read as it was meant', () => {
  const filter = fc.record({
    isNegated: fc.boolean(),
    path: fc.array(name, { minLength: 1, maxLength: 4 }),
    operator: fc.constantFrom(':', '<', '<=', '>', '>='),
    values: fc.array(value, { minLength: 1, maxLength: 4 }),
  });
  fc.assert(
    fc.property(filter, ({ isNegated, path, operator, values }) => {
      const used = operator === ':' ? values : values.slice(0, 1);
      const left = `${isNegated ? '-' : ''}${path.map(({ text }) => text).join('.')}`;
      const parsed = parseFilter(`${left}${operator}${used.map(({ text }) => text).join(',')}`);
      const operands = used.map(({ operand }) => operand);
      const test =
        operator === ':'
          ? { kind: 'equals', values: operands }
          : { kind: 'compares', comparison: operator, value: operands[0] };
      expect(parsed).toEqual({ isNegated, path: path.map((one) => one.value), test } as Condition);
    }),
    runs(300),
  );
});

test('any text is a filter, or a mistake within it', () => {
  const mixed = fc.array(fc.oneof(fc.constantFrom(...'ab-.:<>="\\,* 1u0'), fc.string({ maxLength: 2 })), {
    maxLength: 20,
  });
  fc.assert(
    fc.property(mixed, (parts) => {
      const text = parts.join('');
      const parsed = parseFilter(text);
      if (!('problem' in parsed)) return;
      expect(parsed.column).toBeGreaterThanOrEqual(1);
      expect(parsed.column).toBeLessThanOrEqual([...text].length + 1);
    }),
    runs(500),
  );
});
