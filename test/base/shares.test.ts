/** How often something may happen, and what is taken beyond its due. */
import { expect, test } from 'vitest';
import { Debts } from '../../src/base/debts.ts';
import { Room } from '../../src/base/room.ts';
import { Window } from '../../src/base/window.ts';

test('any window has at most the limit of a key, and keys do not count for each other', () => {
  let now = 0;
  const window = new Window({ limit: 2, ms: 1_000, now: () => now });
  expect([window.wait('a'), window.wait('b')]).toEqual([0, 0]);
  now = 600;
  expect([window.wait('a'), window.wait('a')]).toEqual([0, 400]);
  now = 999;
  expect(window.wait('a')).toBe(1);
  now = 1_000;
  expect([window.wait('a'), window.wait('a'), window.wait('b')]).toEqual([0, 600, 0]);
  window.giveBack('a');
  expect([window.wait('a'), window.wait('a')]).toEqual([0, 600]);
});

test('of many keys the one that was used longest ago is forgotten, and no other', () => {
  const window = new Window({ limit: 1, ms: 1_000, maxKeys: 2, now: () => 0 });
  expect([window.wait('a'), window.wait('b'), window.wait('a')]).toEqual([0, 0, 1_000]);
  expect([window.wait('c'), window.wait('a'), window.wait('b')]).toEqual([0, 1_000, 0]);
});

test('a limit of 0 lifts it', () => {
  const window = new Window({ limit: 0, ms: 1_000, now: () => 0 });
  expect([window.wait('a'), window.wait('a'), window.wait('a')]).toEqual([0, 0, 0]);
});

test('a debt is forgiven at its rate, and is never remembered beyond its limit', () => {
  let now = 0;
  const debts = new Debts({ maxKeys: 2, forgivenPerSecond: 10, now: () => now });
  expect(debts.add('a', 100)).toBe(100);
  now = 4_000;
  expect([debts.of('a'), debts.of('b')]).toEqual([60, 0]);
  expect(debts.add('a', 100, 120)).toBe(120);
  debts.limit('a', 50);
  now = 9_000;
  expect(debts.of('a')).toBe(0);
});

test('room is shared in two measures, and knows who has most at each level', () => {
  const room = new Room({ maxEvents: 10, maxBytes: 100 });
  expect(room.fits({ events: 20, bytes: 1_000 })).toBe(true);
  room.take({ events: 4, bytes: 10 }, ['one', 1]);
  room.take({ events: 3, bytes: 50 }, ['two', 2]);
  room.take({ events: 1, bytes: 10 }, ['one', 3]);
  expect(room.fits({ events: 2, bytes: 30 })).toBe(true);
  expect(room.fits({ events: 3, bytes: 30 })).toBe(false);
  expect(room.fits({ events: 2, bytes: 31 })).toBe(false);
  expect(room.heaviest([], 'events', 'two', 3)).toEqual({ name: 'one', amount: 5 });
  expect(room.heaviest([], 'events', 'two', 5)).toEqual({ name: 'two', amount: 5 });
  expect(room.heaviest([], 'bytes', 'one', 20)).toEqual({ name: 'two', amount: 50 });
  expect(room.heaviest(['one'], 'events', 3, 1)).toEqual({ name: 1, amount: 4 });
  room.giveBack({ events: 4, bytes: 10 }, ['one', 1]);
  expect([room.of(['one']), room.of(['one', 1])]).toMatchObject([
    { events: 1, bytes: 10 },
    { events: 0, bytes: 0 },
  ]);
  expect([room.events, room.bytes]).toEqual([4, 60]);
});
