/** How many exports run: those that begin in one turn of the event loop are counted before their responses are open. */
import { expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { Exports } from '../../../src/read/export/exports.ts';
import { captured } from '../../support/service.ts';

test('of several that are admitted at once two may run, and one that is never opened gives its place back', async () => {
  const exports = new Exports(captured([]));
  const all = Array.from({ length: 3 }, () => exports.admit('token 1'));
  expect(all.map((one) => one instanceof Rejection)).toEqual([false, false, true]);
  expect(all[2]).toMatchObject({ reason: 'tooManyExports' });
  expect(exports.admit('token 2')).not.toBeInstanceOf(Rejection);
  await new Promise(setImmediate);
  expect(exports.running).toBe(0);
  expect(exports.refusal('token 1')).toBeNull();
});
