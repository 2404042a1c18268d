/** How many exports run: those that begin in one turn of the event loop are counted before their responses are open. */
import { expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { Exports } from '../../../src/read/export/exports.ts';
import { captured } from '../../support/service.ts';

const REFUSAL = new Rejection('eventTypeNotFound', 'There is no such type.');

test('of several that begin at once two are prepared, and one that is never opened gives its place back', async () => {
  const exports = new Exports(captured([]));
  let prepared = 0;
  const prepare = async (): Promise<number> => ++prepared;
  const all = await Promise.all(Array.from({ length: 3 }, () => exports.admit('token 1', prepare)));
  expect(all.map((one) => one instanceof Rejection)).toEqual([false, false, true]);
  expect(all[2]).toMatchObject({ reason: 'tooManyExports' });
  expect([prepared, exports.running]).toEqual([2, 2]);
  expect(await exports.admit('token 2', prepare)).not.toBeInstanceOf(Rejection);
  await new Promise(setImmediate);
  expect(exports.running).toBe(0);
});

test('one that cannot be prepared gives its place back, and one that is being prepared has it', async () => {
  const exports = new Exports(captured([]));
  expect(await exports.admit('token 1', async () => REFUSAL)).toBe(REFUSAL);
  await expect(exports.admit('token 1', () => Promise.reject(new Error('no database')))).rejects.toThrow();
  expect(exports.running).toBe(0);
  const waiting = Array.from({ length: 2 }, () => exports.admit('token 1', () => new Promise(() => {})));
  expect(waiting).toHaveLength(2);
  expect(await exports.admit('token 1', async () => 1)).toMatchObject({ reason: 'tooManyExports' });
});
