import { expect, test } from 'vitest';
import { nearest } from '../../src/base/did-you-mean.ts';

test.each([
  ['sevre', ['serve', 'restore'], 'serve'],
  ['--nme', ['--name', '--owner'], '--name'],
  ['TypeID', ['typeId', 'typeName'], 'typeId'],
  ['limt', ['limit', 'offset'], 'limit'],
  ['startDate', ['from', 'to'], null],
  ['x'.repeat(100_000), ['limit'], null],
])('%.20s among %j is %s', (name, known, meant) => {
  expect(nearest(name, known)).toBe(meant);
});
