/** JSON values as trees that remember how they are spelled, and every way to spell them that the service accepts. */
import fc from 'fast-check';

/** A value. Numbers keep their text, objects the order and the repetition of their names. */
export type Tree =
  | { readonly kind: 'word' | 'number'; readonly text: string }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'array'; readonly elements: readonly Tree[] }
  | { readonly kind: 'object'; readonly members: readonly (readonly [name: string, value: Tree])[] };

/** A tree with a text that spells it. */
export interface Spelled {
  readonly tree: Tree;
  readonly text: string;
}

/** Names and texts that are often the same, and often need escapes. */
export const TEXTS = [
  'a',
  'b',
  'id',
  'a.b',
  '',
  '\0',
  '\ud800',
  'é',
  '😀',
  '"',
  '\\',
  '/',
  'true',
  '42',
  '4.2',
  '-1',
  'x y',
];

/** Numbers that are often equal, and those that a float can not hold. */
export const NUMBERS = [
  ...[
    '0',
    '-0',
    '0.0',
    '0e5',
    '42',
    '42.0',
    '4.2e1',
    '420E-1',
    '0.42e+2',
    '-1',
    '-1.0',
    '1e400',
    '10e399',
    '1e401',
  ],
  ...[
    '-1e400',
    '1e-400',
    '12345678901234567890',
    '12345678901234567891',
    '1.2345678901234567890e19',
    '9007199254740993',
  ],
  ...[
    '9007199254740992',
    '0.1',
    '0.10',
    '1e-1',
    '0.1000000000000000055',
    '123456',
    '1.23456e5',
    '1e99999999999999999999',
  ],
];

const simple: fc.Arbitrary<Tree> = fc.oneof(
  fc.constantFrom('true', 'false', 'null').map((text): Tree => ({ kind: 'word', text })),
  fc.constantFrom(...NUMBERS).map((text): Tree => ({ kind: 'number', text })),
  fc.constantFrom(...TEXTS).map((value): Tree => ({ kind: 'string', value })),
);

const { object } = fc.letrec<{ value: Tree; object: Tree }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    simple,
    tie('object'),
    fc.array(tie('value'), { maxLength: 3 }).map((elements): Tree => ({ kind: 'array', elements })),
  ),
  object: fc
    .array(fc.tuple(fc.constantFrom(...TEXTS), tie('value')), { maxLength: 4 })
    .map((members): Tree => ({ kind: 'object', members })),
}));

/** Payloads: objects, each spelled in some way. */
export const spelledPayload: fc.Arbitrary<Spelled> = fc
  .tuple(object, fc.infiniteStream(fc.nat(99)))
  .map(([tree, choices]) => ({ tree, text: spell(tree, () => choices.next().value ?? 0) }));

const SPACES = ['', '', '', ' ', '\n', '\t', ' \r\n '];

function spell(tree: Tree, choose: () => number): string {
  const space = (): string => SPACES[choose() % SPACES.length] ?? '';
  const around = (text: string): string => `${space()}${text}${space()}`;
  switch (tree.kind) {
    case 'word':
    case 'number':
      return around(tree.text);
    case 'string':
      return around(spellString(tree.value, choose));
    case 'array':
      return around(`[${tree.elements.map((element) => spell(element, choose)).join(',') || space()}]`);
    case 'object': {
      const members = tree.members.map(
        ([name, value]) => `${around(spellString(name, choose))}:${spell(value, choose)}`,
      );
      return around(`{${members.join(',') || space()}}`);
    }
  }
}

function spellString(value: string, choose: () => number): string {
  let text = '';
  for (const character of value) {
    // A text of well-formed UTF-16 may stand for itself, but for quotes, backslashes and control characters.
    const shortest = JSON.stringify(character).slice(1, -1);
    if (choose() % 3 > 0) text += shortest;
    else if (character === '/') text += '\\/';
    else
      for (let i = 0; i < character.length; i += 1)
        text += hexEscape(character.charCodeAt(i), choose() % 2 === 0);
  }
  return `"${text}"`;
}

function hexEscape(code: number, isUpperCase: boolean): string {
  const hex = code.toString(16).padStart(4, '0');
  return `\\u${isUpperCase ? hex.toUpperCase() : hex}`;
}
