import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createPublicId, createTokenText, digestOf, isWellFormed } from '../../src/base/token-text.ts';
import { codeSpans, readPage } from '../docs/pages.ts';

const CHARACTER = fc.constantFrom(...'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz');

test('tokens have the documented form and pass their own check', () => {
  for (const kind of ['tdl', 'tdr'] as const) {
    const token = createTokenText(kind);
    expect(token).toMatch(new RegExp(`^${kind}_[0-9A-Za-z]{38}$`));
    expect(isWellFormed(token, kind)).toBe(true);
  }
});

test('the check characters are the CRC-32 of the rest in base62, padded', () => {
  // zlib.crc32(b'tdl_' + b'0' * 32) in Python: 2271094826
  expect(isWellFormed(`tdl_${'0'.repeat(32)}2ThHVi`, 'tdl')).toBe(true);
});

test('the documentation tells secret scanners the form, and shows a well-formed token that was never given to anybody', () => {
  const section = readPage('docs/api.md').split('For secret scanners:')[1]?.split('\n\n')[0] ?? '';
  const spans = codeSpans(section);
  for (const kind of ['tdl', 'tdr'] as const) {
    const pattern = spans.find((span) => span.startsWith(`${kind}_[`)) ?? '';
    expect(createTokenText(kind)).toMatch(new RegExp(`^${pattern}$`));
  }
  expect(spans.filter((span) => isWellFormed(span, 'tdl'))).toHaveLength(1);
});

test('a token of one kind is not one of the other', () => {
  expect(isWellFormed(createTokenText('tdl'), 'tdr')).toBe(false);
  const [, rest] = createTokenText('tdl').split('_');
  expect(isWellFormed(`tdr_${rest}`, 'tdr')).toBe(false);
});

test('any one wrong character and any two exchanged neighbors are noticed', () => {
  const token = createTokenText('tdr');
  fc.assert(
    fc.property(fc.integer({ min: 4, max: 41 }), CHARACTER, (at, character) => {
      const wrong = token.slice(0, at) + character + token.slice(at + 1);
      expect(isWellFormed(wrong, 'tdr')).toBe(wrong === token);
      const pair = token.slice(at, at + 2);
      const exchanged = token.slice(0, at) + [...pair].reverse().join('') + token.slice(at + 2);
      expect(isWellFormed(exchanged, 'tdr')).toBe(exchanged === token);
    }),
  );
});

test('what only looks like a token is refused', () => {
  const token = createTokenText('tdl');
  for (const text of [
    '',
    'tdl_',
    ` ${token}`,
    `${token}\n`,
    token.toUpperCase(),
    `${token}0`,
    token.replace('_', '-'),
  ]) {
    expect(isWellFormed(text, 'tdl'), JSON.stringify(text)).toBe(false);
  }
});

test('every character is as likely as any other', () => {
  const counts = new Map<string, number>();
  for (let i = 0; i < 2_000; i++) {
    for (const character of createTokenText('tdl').slice(4, 36))
      counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  const expected = (2_000 * 32) / 62;
  expect(counts.size).toBe(62);
  // Chi-square with 61 degrees of freedom passes 140 once in 25 million runs; byte % 62 gives about 1,000.
  const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  expect(chiSquare).toBeLessThan(140);
});

test('public ids have a prefix and do not repeat', () => {
  const ids = Array.from({ length: 1_000 }, () => createPublicId('typ'));
  expect(new Set(ids).size).toBe(1_000);
  for (const id of ids) expect(id).toMatch(/^typ_[0-9A-Za-z]{20}$/);
});

test('the digest is SHA-256', () => {
  expect(digestOf('abc').equals(createHash('sha256').update('abc').digest())).toBe(true);
});
