import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Condition,
  isScalar,
  type Operand,
  parseFilter,
} from '../../../src/read/filter/parse-filter.ts';
import { payloadFilter } from '../../../src/read/filter/payload-filter.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { NUMBERS, spelledPayload, TEXTS, type Tree } from './json-spellings.ts';

function conditionsOf(filters: readonly string[]): Condition[] {
  return filters.map((filter) => {
    const condition = parseFilter(filter);
    if ('problem' in condition)
      throw new Error(`${filter}, column ${condition.column}: ${condition.problem}`);
    return condition;
  });
}

function filterOf(
  filters: readonly string[],
  search: string | null = null,
): NonNullable<ReturnType<typeof payloadFilter>> {
  const filter = payloadFilter(conditionsOf(filters), { q: search });
  if (filter === null) throw new Error('no filter');
  return filter;
}

function matches(payload: string, ...filters: string[]): boolean {
  return filterOf(filters).matches(payload);
}

describe('a condition holds', () => {
  test.each([
    ['user.id:42', '{"user":{"id":42}}'],
    ['user.id:42', '{"user":{"id":"42"}}'],
    ['user.id:42', '{"user":{"id":4.20e1}}'],
    ['user.id:"42"', '{"user":{"id":"42"}}'],
    ['status>=500', '{"status":500}'],
    ['status<500', '{"status":-1e400}'],
    ['status>500', '{"status":1e400}'],
    ['n:12345678901234567890', '{"n":12345678901234567890}'],
    ['n:1e400', '{"n":10e399}'],
    ['n:0', '{"n":-0}'],
    [`n<1e${'9'.repeat(500)}`, `{"n":1e${'9'.repeat(499)}8}`],
    ['n>5', `{"n":1e${'9'.repeat(5_000)}}`],
    ['n:0', `{"n":0e${'9'.repeat(5_000)}}`],
    ['country:DE,FR', '{"country":"FR"}'],
    ['coupon:*', '{"coupon":null}'],
    ['coupon:*', '{"coupon":[]}'],
    ['x:null', '{"x":null}'],
    ['v:5', '{"v":"5"}'],
    ['v=="5"', '{"v":"5"}'],
    ['v==null,true,"a,b"', '{"v":["a,b"]}'],
    ['-v==true', '{"v":"true"}'],
    ['v==9223372036854775807', '{"v":9223372036854775807}'],
    ['bot:true', '{"bot":true}'],
    ['-bot:true', '{"bot":false}'],
    ['-user.id:42', '{"user":42}'],
    ['tags:red', '{"tags":["blue","red"]}'],
    ['tags:red', '{"tags":[["blue"],["red"]]}'],
    ['items.sku:X1', '{"items":[{"sku":"X0"},{"sku":"X1"}]}'],
    ['a:2', '{"a":1,"a":2}'],
    ['"a.b":1', '{"a.b":1}'],
    ['a\\.b:1', '{"a.b":1}'],
    ['user:x', '{"\\u0075ser":"\\u0078"}'],
    ['"\\u0000":"\\u0000"', '{"\\u0000":"\\u0000"}'],
    ['path:/a/b', '{"path":"\\/a\\/b"}'],
    ['when>=2026-01-31', '{"when":"2026-01-31T08:30:00Z"}'],
    ['name>"M"', '{"name":"Z"}'],
    ['a:1', ' { "z" : { "a" : 2 } , "a" : 1 } '],
  ])('%s on %s', (filter, payload) => {
    expect(matches(payload, filter)).toBe(true);
  });
});

describe('a condition does not hold', () => {
  test.each([
    ['user.id:42', '{"user":{"id":43}}'],
    ['user.id:42', '{"user":{"id":"42 "}}'],
    ['user.id:42', '{"user":42}'],
    ['user.id:42', '{"user.id":42}'],
    ['user.id:"42"', '{"user":{"id":42}}'],
    ['n:9007199254740993', '{"n":9007199254740992}'],
    ['n:0', '{"n":1e-400}'],
    ['status>=500', '{"status":499.9999999999999999999}'],
    ['status>=500', '{"status":"600"}'],
    ['status>=500', '{}'],
    ['country:DE,FR', '{"country":"IT"}'],
    ['coupon:*', '{"other":{"coupon":1}}'],
    ['x:null', '{}'],
    ['v==5', '{"v":"5"}'],
    ['v=="5"', '{"v":5}'],
    ['v==null', '{"v":"null"}'],
    ['v==true,false', '{"v":"true"}'],
    ['v==9223372036854775807', '{"v":"9223372036854775807"}'],
    ['-coupon:*', '{"coupon":null}'],
    ['tags:red', '{"tags":[]}'],
    ['a:1', '{"a":1,"a":2}'],
    ['a:1', '{"a":1,"\\u0061":2}'],
    ['a:true', '{"a":"True"}'],
    ['a:x', '{"b":"\\",\\"a\\":\\"x"}'],
  ])('%s on %s', (filter, payload) => {
    expect(matches(payload, filter)).toBe(false);
  });
});

test('several conditions hold together', () => {
  expect(matches('{"a":1,"b":2}', 'a:1', 'b:2')).toBe(true);
  expect(matches('{"a":1,"b":2}', 'a:1', 'b:3')).toBe(false);
});

test('a text is found as it was sent, and with its escapes resolved', () => {
  const found = (payload: string, search: string): boolean => filterOf([], search).matches(payload);
  expect(found('{"name":"caf\\u00e9"}', 'café')).toBe(true);
  expect(found('{"name":"caf\\u00e9"}', 'caf\\u00e9')).toBe(true);
  expect(found('{"url":"a\\/b"}', 'a/b')).toBe(true);
  expect(found('{"a":"\\u0000"}', '\0')).toBe(true);
  expect(found('{"status":500}', '"status":500')).toBe(true);
  expect(found('{"a":"\\\\u00e9"}', 'é')).toBe(false);
  expect(found('{"a":"b"}', 'B')).toBe(false);
  expect(payloadFilter([], { q: '', word: '' })).toBeNull();
});

describe('a word', () => {
  const has = (payload: string, word: string): boolean =>
    payloadFilter([], { word })?.matches(payload) === true;

  test.each([
    ['4711', '{"order":4711}'],
    ['4711', '{"path":"/orders/4711?x=1"}'],
    ['4711', '{"text":"paid 4711."}'],
    ['4711', '{"text":"-4711, 47110"}'],
    ['order', '{"order":4711}'],
    ['user.id', '{"text":"the user.id is"}'],
    ['user', '{"text":"the user.id is"}'],
    ['10.0.0.1', '{"ip":"10.0.0.1"}'],
    ['42.5', '{"n":42.5}'],
    ['a@b.example', '{"from":"<a@b.example>"}'],
    ['3f2504e0-4f89', '{"id":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}'],
    ['11d3', '{"id":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}'],
    ['order placed', '{"text":"order placed"}'],
    ['café', '{"name":"caf\\u00e9"}'],
    ['caf\\u00e9', '{"name":"caf\\u00e9"}'],
    ['new', '{"text":"a\\nnew"}'],
    ['caf', '{"name":"caf\\u00e9"}'],
    ['nnew', '{"text":"a\\nnew"}'],
    ['b', '{"text":"a\\/b"}'],
    ['naïve', '{"text":"so naïve!"}'],
    ['😀', '{"text":"😀"}'],
    ['\0', '{"text":"\\u0000"}'],
    ['\ud800', '{"text":"\\ud800"}'],
    ['/articles/', '{"path":"api/articles/1"}'],
    ['id":7', '{"id":7}'],
    ['_', '{"_":1}'],
    ['-', '{"a":-1}'],
  ])('%s is in %s', (word, payload) => {
    JSON.parse(payload);
    expect(has(payload, word)).toBe(true);
  });

  test.each([
    ['4711', '{"order":47110}'],
    ['4711', '{"order":14711}'],
    ['4711', '{"order":"x4711"}'],
    ['4711', '{"order":"4711_a"}'],
    ['4711', '{"n":4711.5}'],
    ['4711', '{"n":0.4711}'],
    ['10', '{"ip":"10.0.0.1"}'],
    ['10.0', '{"ip":"10.0.0.1"}'],
    ['.0', '{"ip":"10.0.0.1"}'],
    ['Order', '{"order":1}'],
    ['caf', '{"name":"café"}'],
    ['é', '{"name":"café"}'],
    ['ordered', '{"text":"order"}'],
    ['\ud83d', '{"text":"😀"}'],
    ['order', '{"orders":1,"reorder":2,"order_id":3,"norderX":4}'],
    ['a', '{"x":"aaaa"}'],
    ['aa', '{"x":"aaaa aaa"}'],
  ])('%s is not in %s', (word, payload) => {
    JSON.parse(payload);
    expect(has(payload, word)).toBe(false);
  });

  test('is what stands between the ends of runs of letters, digits, underscores and other characters beyond ASCII', () => {
    const unit = fc.constantFrom('a', 'B', '1', '2', '_', '.', '-', ' ', 'é', '😀', '\ud800', '/', '\\');
    fc.assert(
      fc.property(
        fc.string({ unit, maxLength: 12 }),
        fc.string({ unit, minLength: 1, maxLength: 4 }),
        (text, word) => {
          const payload = JSON.stringify({ text });
          const within = (whole: string, wanted: string): boolean => {
            const inside = new Set<number>();
            for (const { index, 0: run } of whole.matchAll(/(?:\w|[^\0-\x7f]|(?<=\d)\.(?=\d))+/g))
              for (let at = index + 1; at < index + run.length; at += 1) inside.add(at);
            return Array.from({ length: whole.length }, (_, at) => at).some(
              (at) => whole.startsWith(wanted, at) && !inside.has(at) && !inside.has(at + wanted.length),
            );
          };
          expect(has(payload, word)).toBe(within(payload, word) || within(`{"text":"${text}"}`, word));
        },
      ),
      runs(sized(800, 3_000)),
    );
  });

  test('is searched for together with a text and a condition', () => {
    const filter = payloadFilter(conditionsOf(['a:1']), { q: 'rde', word: 'order' });
    expect(filter?.matches('{"a":1,"b":"order"}')).toBe(true);
    expect(filter?.matches('{"a":2,"b":"order"}')).toBe(false);
    expect(filter?.matches('{"a":1,"b":"orders"}')).toBe(false);
  });

  test('takes time that grows with the length of a payload alone', () => {
    expect(has(`{"a":"${'a'.repeat(5_000_000)}"}`, 'a'.repeat(1_000))).toBe(false);
    expect(has(`{"a":"${'ab'.repeat(2_000_000)}"}`, 'ab')).toBe(false);
  }, 5_000);
});

test('the time that a payload takes grows with its length alone', () => {
  const nested = `{"a":${'['.repeat(990)}"${'x'.repeat(1_000_000)}"${']'.repeat(990)}}`;
  expect(matches(nested, 'a:y')).toBe(false);
  const long = `{"n":${'9'.repeat(1_000_000)}.${'9'.repeat(1_000_000)}e${'9'.repeat(1_000_000)}}`;
  expect(matches(long, 'n>5')).toBe(true);
  const names = `{${Array.from({ length: 50_000 }, (_, n) => `"a long name of a field ${n}":${n}`).join(',')}}`;
  expect(matches(names, 'id:5')).toBe(false);
}, 5_000);

/** What a condition means, on the tree. */
function holds({ isNegated, path, test: what }: Condition, payload: Tree): boolean {
  const reached = follow(payload, path);
  if (what.kind === 'exists') return reached.length > 0 !== isNegated;
  const scalars = reached.flatMap(elements);
  const isMet =
    what.kind === 'equals'
      ? scalars.some((one) => what.values.some((operand) => order(one, operand) === 0))
      : scalars.some((one) => {
          const number = what.value.isQuoted ? null : fraction(what.value.text);
          if (one.kind !== (number === null ? 'string' : 'number')) return false;
          const way = order(one, what.value);
          return { '<': way < 0, '<=': way <= 0, '>': way > 0, '>=': way >= 0 }[what.comparison];
        });
  return isMet !== isNegated;
}

function follow(tree: Tree, path: readonly string[]): Tree[] {
  const [name, ...rest] = path;
  if (name === undefined) return [tree];
  if (tree.kind === 'array') return tree.elements.flatMap((element) => follow(element, path));
  if (tree.kind !== 'object') return [];
  const last = tree.members.findLast(([key]) => key === name);
  return last === undefined ? [] : follow(last[1], rest);
}

function elements(tree: Tree): Tree[] {
  return tree.kind === 'array' ? tree.elements.flatMap(elements) : [tree];
}

/** As numbers are ordered; NaN where two values cannot be compared. */
function order(tree: Tree, { text, isQuoted, isExact }: Operand): number {
  if (tree.kind === 'string' && isExact) return Number.NaN;
  if (tree.kind === 'string') return tree.value < text ? -1 : Number(tree.value > text);
  if (isQuoted) return Number.NaN;
  if (tree.kind === 'word') return tree.text === text ? 0 : Number.NaN;
  const number = fraction(text);
  const other = tree.kind === 'number' ? fraction(tree.text) : null;
  if (number === null || other === null) return Number.NaN;
  if (typeof number === 'string' || typeof other === 'string')
    return number === other ? 0 : typeof other === 'string' ? 1 : -1;
  const difference = other.top * number.bottom - number.top * other.bottom;
  return difference < 0n ? -1 : Number(difference > 0n);
}

/** A number as a fraction; 'huge' for the one that has too many digits. */
function fraction(text: string): { top: bigint; bottom: bigint } | 'huge' | null {
  const [, whole = '', digits = '', exponent = '0'] =
    /^(-?\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  if (whole === '') return null;
  if (exponent.length > 10) return 'huge';
  const power = Number(exponent) - digits.length;
  const top = BigInt(whole + digits);
  return power < 0 ? { top, bottom: 10n ** BigInt(-power) } : { top: top * 10n ** BigInt(power), bottom: 1n };
}

const spelledName = fc.constantFrom(...TEXTS);
const operand: fc.Arbitrary<Operand> = fc.record({
  text: fc.constantFrom(...TEXTS.filter((text) => text !== ''), ...NUMBERS, 'null'),
  isQuoted: fc.boolean(),
});
const exact: fc.Arbitrary<Operand> = fc
  .constantFrom(...NUMBERS, 'null')
  .filter(isScalar)
  .map((text) => ({ text, isQuoted: false, isExact: true }));
const condition: fc.Arbitrary<Condition> = fc.record({
  isNegated: fc.boolean(),
  path: fc.array(spelledName, { minLength: 1, maxLength: 2 }),
  test: fc.oneof(
    fc.constant({ kind: 'exists' } as const),
    fc
      .array(fc.oneof(operand, exact), { minLength: 1, maxLength: 3 })
      .map((values) => ({ kind: 'equals', values }) as const),
    fc
      .tuple(fc.constantFrom('<', '<=', '>', '>='), operand)
      .map(([comparison, value]) => ({ kind: 'compares', comparison, value }) as const),
  ),
});

test('a payload is judged by what it means, however it is spelled', () => {
  fc.assert(
    fc.property(
      spelledPayload,
      fc.array(condition, { minLength: 1, maxLength: 10 }),
      ({ tree, text }, conditions) => {
        JSON.parse(text);
        for (const one of conditions) {
          const filter = payloadFilter([one]);
          expect(filter?.matches(text), JSON.stringify(one)).toBe(holds(one, tree));
        }
      },
    ),
    runs(sized(500, 2_000)),
  );
});

test("what the database's test refuses, the service would refuse too", () => {
  const search = fc.oneof(fc.constant(null), fc.constantFrom(...TEXTS));
  fc.assert(
    fc.property(
      spelledPayload,
      fc.array(condition, { minLength: 1, maxLength: 3 }),
      search,
      ({ text }, conditions, wanted) => {
        for (const one of conditions) {
          const filter = payloadFilter([one], { q: wanted, word: wanted });
          if (filter?.matches(text) !== true) continue;
          for (const anyOf of filter.contains) {
            expect(
              anyOf.some((part) => text.includes(part)),
              JSON.stringify([one, anyOf]),
            ).toBe(true);
            // PostgreSQL takes no other.
            for (const part of anyOf) expect(part).not.toMatch(/[\0\p{Cs}]/u);
          }
        }
      },
    ),
    runs(sized(500, 2_000)),
  );
});

test('a payload that the cheap test of the service lets go would not match, whatever stands around it', () => {
  const between = fc.string({
    unit: fc.constantFrom('"', ':', 'a', '\\', '[', '1', '\u00e9', '\0'),
    maxLength: 6,
  });
  let letGo = 0;
  fc.assert(
    fc.property(
      fc.array(fc.tuple(between, spelledPayload), { minLength: 1, maxLength: 4 }),
      fc.array(condition, { minLength: 1, maxLength: 2 }),
      (parts, conditions) => {
        const filter = payloadFilter(conditions);
        if (filter?.prefilter == null) return;
        let bytes = '';
        const places = parts.map(([before, { text }]) => {
          bytes += before;
          const start = bytes.length;
          bytes += Buffer.from(text).toString('latin1');
          return { start, end: bytes.length, text };
        });
        const mayMatch = filter.prefilter(bytes);
        for (const { start, end, text } of places) {
          const isSuspected = mayMatch(start, end);
          if (!isSuspected) letGo += 1;
          if (filter.matches(text)) expect(isSuspected, JSON.stringify([text, conditions])).toBe(true);
        }
      },
    ),
    runs(sized(800, 3_000)),
  );
  expect(letGo).toBeGreaterThan(100);
});
