/** Arbitrary JSON as text, in every spelling that RFC 8259 allows. */
import fc from 'fast-check';

export interface JsonText {
  readonly text: string;
  /** Levels of objects and arrays: 0 for a string or a number, 1 for `{}`. */
  readonly depth: number;
}

export const whiteSpace: fc.Arbitrary<string> = fc.string({
  unit: fc.constantFrom(' ', '\t', '\n', '\r'),
  maxLength: 3,
});

const hexDigit = fc.constantFrom(...'0123456789abcdefABCDEF');

/** One character or escape inside of a string. */
const stringPart: fc.Arbitrary<string> = fc.oneof(
  // What a scanner that loses its place would trip over.
  { weight: 4, arbitrary: fc.constantFrom(..."{}[],: '/") },
  { weight: 3, arbitrary: fc.constantFrom(...['\\"', '\\\\', '\\/', '\\b', '\\f', '\\n', '\\r', '\\t']) },
  {
    weight: 2,
    arbitrary: fc.string({ unit: hexDigit, minLength: 4, maxLength: 4 }).map((hex) => `\\u${hex}`),
  },
  { weight: 1, arbitrary: fc.constantFrom('\\"payload\\":', 'payload', '\\\\\\"') },
  {
    weight: 4,
    // Any UTF-16 unit, halves of surrogate pairs included, that needs no escape.
    arbitrary: fc
      .integer({ min: 0x20, max: 0xffff })
      .filter((unit) => unit !== 0x22 && unit !== 0x5c)
      .map((unit) => String.fromCharCode(unit)),
  },
);

export const jsonString: fc.Arbitrary<string> = fc
  .array(stringPart, { maxLength: 8 })
  .map((parts) => `"${parts.join('')}"`);

const digits = fc.string({ unit: fc.constantFrom(...'0123456789'), minLength: 1, maxLength: 22 });

const jsonNumber: fc.Arbitrary<string> = fc
  .tuple(
    fc.constantFrom('', '-'),
    fc.oneof(
      fc.constant('0'),
      digits.map((text) => `1${text}`),
    ),
    fc.oneof(
      fc.constant(''),
      digits.map((text) => `.${text}`),
    ),
    fc.oneof(
      fc.constant(''),
      fc.tuple(fc.constantFrom('e', 'E', 'e+', 'e-', 'E+', 'E-'), digits).map(([sign, text]) => sign + text),
    ),
  )
  .map((parts) => parts.join(''));

const scalar: fc.Arbitrary<JsonText> = fc
  .oneof(jsonString, jsonNumber, fc.constantFrom('true', 'false', 'null'))
  .map((text) => ({ text, depth: 0 }));

function list(
  open: string,
  items: readonly JsonText[],
  separators: readonly string[],
  close: string,
): JsonText {
  const [inner = '', ...around] = separators;
  const text = items
    .map((item, index) => `${around[2 * index] ?? ''}${item.text}${around[2 * index + 1] ?? ''}`)
    .join(',');
  return {
    text: `${open}${items.length === 0 ? inner : text}${close}`,
    depth: 1 + Math.max(0, ...items.map((item) => item.depth)),
  };
}

const spaces = fc.array(whiteSpace, { maxLength: 12 });

const { value, object } = fc.letrec<{ value: JsonText; array: JsonText; object: JsonText; member: JsonText }>(
  (tie) => ({
    value: fc.oneof({ depthSize: 'small', withCrossShrink: true }, scalar, tie('array'), tie('object')),
    array: fc
      .tuple(fc.array(tie('value'), { maxLength: 4 }), spaces)
      .map(([items, around]) => list('[', items, around, ']')),
    member: fc
      .tuple(jsonString, whiteSpace, whiteSpace, tie('value'))
      .map(([key, before, behind, { text, depth }]) => ({ text: `${key}${before}:${behind}${text}`, depth })),
    object: fc
      .tuple(fc.array(tie('member'), { maxLength: 4 }), spaces)
      .map(([members, around]) => list('{', members, around, '}')),
  }),
);

/** Any JSON value. */
export const jsonValue: fc.Arbitrary<JsonText> = value;
/** Any JSON object. */
export const jsonObject: fc.Arbitrary<JsonText> = object;

/** A key as JSON text, each character plain or escaped. */
export function spellingOf(key: string): fc.Arbitrary<string> {
  const characters = [...key].map((character) => {
    const hex = character.charCodeAt(0).toString(16).padStart(4, '0');
    return fc.oneof(
      { weight: 4, arbitrary: fc.constant(character) },
      { weight: 1, arbitrary: fc.constantFrom(`\\u${hex}`, `\\u${hex.toUpperCase()}`) },
    );
  });
  return fc.tuple(...characters).map((parts) => `"${parts.join('')}"`);
}

/** What breaks JSON, or nearly. */
export const CHANGES = [
  '',
  '"',
  '\\',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  ' ',
  '\u0001',
  '\u00a0',
  '0',
  '.',
  '-',
  'e',
  'x',
  '\n',
];

/** Where a text is changed, what comes there, and how many characters are lost. */
export const DAMAGE = fc.array(fc.tuple(fc.nat(), fc.constantFrom(...CHANGES), fc.nat(2)), {
  minLength: 1,
  maxLength: 2,
});

export function damaged(text: string, changes: readonly (readonly [number, string, number])[]): string {
  let broken = text;
  for (const [at, character, lost] of changes) {
    const index = at % (broken.length + 1);
    broken = broken.slice(0, index) + character + broken.slice(index + lost);
  }
  return broken;
}

/** Whether JSON.parse takes it. */
export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
