/** Turns of apps: whose next one it is, and what putting back and taking out do to the order. */
import { expect, test } from 'vitest';
import { AppTurns } from '../../src/ingest/app-turns.ts';

/** Apps with the given items, which begin with the number of their app. */
function turnsOf(...items: readonly string[]): AppTurns<string> {
  const turns = new AppTurns<string>();
  for (const item of items) turns.push(Number(item[0]), item);
  return turns;
}

function takeAll(turns: AppTurns<string>): string[] {
  const taken: string[] = [];
  for (let item = turns.take(); item !== null; item = turns.take()) taken.push(item);
  return taken;
}

test('apps take turns, each in its own order', () => {
  expect(takeAll(turnsOf('1a', '1b', '1c', '2a', '3a', '3b'))).toEqual(['1a', '2a', '3a', '1b', '3b', '1c']);
});

test('an item that is put back is the next of its app, in the next round', () => {
  const turns = turnsOf('1a', '1b', '2a', '2b');
  const item = turns.take() ?? '';
  turns.putBack(1, item, false);
  expect(takeAll(turns)).toEqual(['2a', '1a', '2b', '1b']);
});

test('an item of which nothing was done keeps the turn, and the order of the others', () => {
  const turns = turnsOf('1a', '1b', '2a', '3a');
  const item = turns.take() ?? '';
  turns.putBack(1, item, true);
  expect(takeAll(turns)).toEqual(['1a', '2a', '3a', '1b']);
});

test('the only item of an app can be put back', () => {
  const turns = turnsOf('1a', '2a');
  const item = turns.take() ?? '';
  turns.putBack(1, item, true);
  expect(turns.apps).toBe(2);
  expect(takeAll(turns)).toEqual(['1a', '2a']);
});

test('an item of a named app can be taken out of turn, which moves no turn', () => {
  const turns = turnsOf('1a', '1b', '2a');
  expect([turns.takeOf(2), turns.takeOf(2), turns.takeOf(9)]).toEqual(['2a', null, null]);
  expect(turns.apps).toBe(1);
  expect(turns.takeOf(1)).toBe('1a');
  expect(takeAll(turns)).toEqual(['1b']);
});

test('the last item of an app is taken back if it passes, and an app without items has no turn', () => {
  const turns = turnsOf('1a', '1b', '2a');
  expect(turns.popLast(1, () => false)).toBeNull();
  expect(turns.popLast(9, () => true)).toBeNull();
  expect(turns.popLast(1, (item) => item === '1b')).toBe('1b');
  expect(turns.popLast(1, () => true)).toBe('1a');
  expect(turns.apps).toBe(1);
  expect(turns.popLast(1, () => true)).toBeNull();
  expect(takeAll(turns)).toEqual(['2a']);
});

test('a drain takes everything', () => {
  const turns = turnsOf('1a', '2a', '1b');
  expect(turns.drain().toSorted()).toEqual(['1a', '1b', '2a']);
  expect([turns.apps, turns.take()]).toEqual([0, null]);
});
