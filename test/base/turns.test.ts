/** Turns: whose next one it is, what putting back and taking out do to the order, and who leaves where there is no room. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { networksOf } from '../../src/accounts/sessions/networks.ts';
import { type Path, Turns } from '../../src/base/turns.ts';

/** Holders with the given items, which begin with the names of their holder: account, then app. */
function turnsOf(...items: readonly string[]): Turns<string> {
  const turns = new Turns<string>();
  for (const item of items) turns.push(holderOf(item), item);
  return turns;
}

function holderOf(item: string): Path {
  return [item[0] ?? '', item[1] ?? ''];
}

function takeAll<Item>(turns: Turns<Item>): Item[] {
  const taken: Item[] = [];
  for (let item = turns.take(); item !== null; item = turns.take()) taken.push(item);
  return taken;
}

const networks = (address: string): Path => networksOf(address).toReversed();

describe('turns', () => {
  test('go round between accounts, then between the apps of each, in order of arrival for an app', () => {
    expect(takeAll(turnsOf('A1a', 'A1b', 'A2a', 'A3a', 'B1a', 'B1b', 'C1a'))).toEqual([
      ...['A1a', 'B1a', 'C1a'],
      ...['A2a', 'B1b', 'A3a', 'A1b'],
    ]);
  });

  test('go to the accounts of the lowest rank, in rounds among those of equal rank', () => {
    const turns = turnsOf('A1a', 'A1b', 'B1a', 'B1b', 'C1a');
    const rank: Record<string, number> = { A: 5, B: 0, C: 0 };
    const taken: (string | null)[] = [];
    for (let n = 0; n < 4; n++) taken.push(turns.take((account) => rank[account] ?? 0));
    expect(taken).toEqual(['B1a', 'C1a', 'B1b', 'A1a']);
  });
});

describe('an item', () => {
  test('that is put back is the next of its app, in the next round', () => {
    const turns = turnsOf('A1a', 'A1b', 'B1a', 'B1b');
    turns.putBack(holderOf('A1'), turns.take() ?? '', false);
    expect(takeAll(turns)).toEqual(['B1a', 'A1a', 'B1b', 'A1b']);
  });

  test('of which nothing was done keeps the turn of its account and of its app, and the order of the others', () => {
    const turns = turnsOf('A1a', 'A1b', 'A2a', 'B1a', 'C1a');
    turns.putBack(holderOf('A1'), turns.take() ?? '', true);
    expect(takeAll(turns)).toEqual(['A1a', 'B1a', 'C1a', 'A2a', 'A1b']);
  });

  test('of a named holder can be taken out of turn, which moves no turn', () => {
    const turns = turnsOf('A1a', 'A1b', 'B1a');
    expect([turns.takeOf(['B', '1']), turns.takeOf(['B', '1']), turns.takeOf(['Z', '1'])]).toEqual([
      'B1a',
      null,
      null,
    ]);
    expect([turns.size, turns.holders]).toEqual([2, 1]);
    expect(turns.takeOf(['A', '1'])).toBe('A1a');
    expect(takeAll(turns)).toEqual(['A1b']);
  });

  test('that is the last of its holder is taken back if it passes, and a holder without items has no turn', () => {
    const turns = turnsOf('A1a', 'A1b', 'B1a');
    expect(turns.popLast(['A', '1'], () => false)).toBeNull();
    expect(turns.popLast(['Z', '1'], () => true)).toBeNull();
    expect(turns.popLast(['A', '1'], (item) => item === 'A1b')).toBe('A1b');
    expect(turns.popLast(['A', '1'], () => true)).toBe('A1a');
    expect(turns.popLast(['A', '1'], () => true)).toBeNull();
    expect(takeAll(turns)).toEqual(['B1a']);
  });
});

describe('without room', () => {
  test('the latest of the holder with the most leaves, level by level', () => {
    const turns = turnsOf('A1a', 'A1b', 'A2a', 'B1a', 'B1b');
    expect(turns.evict()).toBe('A1b');
    expect([turns.size, turns.holders]).toEqual([4, 3]);
    turns.push(['C', '1'], 'C1a');
    expect(takeAll(turns)).toEqual(['A1a', 'B1a', 'C1a', 'A2a', 'B1b']);
  });

  test('of holders with equally many the one leaves whose latest item is the worst', () => {
    const failures = new Map([
      ['A1', 1],
      ['B1', 3],
      ['C1', 2],
    ]);
    const turns = turnsOf('A1', 'B1', 'C1');
    expect(turns.evict((one, other) => (failures.get(one) ?? 0) >= (failures.get(other) ?? 0))).toBe('B1');
    expect(takeAll(turns)).toEqual(['A1', 'C1']);
  });

  test('in any order of arrivals nothing is lost, and a client that is alone in its network keeps its place', () => {
    const address = fc.oneof(
      fc.integer({ min: 1, max: 4 }).map((n) => `192.0.2.${n}`),
      fc.tuple(fc.nat(2), fc.nat(2), fc.nat(2)).map(([a, b, c]) => `2001:db8:${a}:${b}0${c}::1`),
    );
    const step = fc.oneof({ weight: 3, arbitrary: address }, fc.constant(null));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.integer({ min: 5, max: 12 }), (steps, places) => {
        const turns = new Turns<{ readonly path: Path }>();
        const waiting = new Set<{ readonly path: Path }>();
        for (const one of steps) {
          if (one === null) {
            const taken = turns.take();
            expect(taken === null).toBe(waiting.size === 0);
            if (taken !== null) expect(waiting.delete(taken)).toBe(true);
            continue;
          }
          const added = { path: networks(one) };
          const sharers = [...waiting].filter(({ path }) => path[0] === added.path[0]);
          const crowds = new Set([...waiting].map(({ path }) => path[0]));
          waiting.add(added);
          turns.push(added.path, added);
          const left = turns.size > places ? turns.evict() : null;
          if (left !== null) expect(waiting.delete(left)).toBe(true);
          if (sharers.length === 0 && crowds.size < places) expect(left).not.toBe(added);
          expect(turns.size).toBe(waiting.size);
          expect(turns.holders).toBe(new Set([...waiting].map(({ path }) => path.join())).size);
        }
        expect(takeAll(turns)).toHaveLength(waiting.size);
      }),
    );
  });
});

test('outermost holders that do not pass keep their turn, and one that is moved to the end has had it', () => {
  const turns = new Turns<string>();
  for (const item of ['a1', 'a2', 'b1', 'c1']) turns.push([item.charAt(0), 1], item);
  expect(turns.take((account) => (account === 'a' ? null : 0))).toBe('b1');
  expect(turns.take((account) => (account === 'b' ? 0 : null))).toBe(null);
  expect(turns.take()).toBe('a1');
  turns.moveToEnd('c');
  expect([turns.take(), turns.take(), turns.take()]).toEqual(['a2', 'c1', null]);
});

test('what passes is taken out of a holder and of those inside it; the order of the rest stays', () => {
  const turns = turnsOf('A1a', 'A1x', 'A2x', 'B1x', 'B1b');
  const isX = (item: string): boolean => item.endsWith('x');
  expect(turns.extract(['A'], isX)).toEqual(['A1x', 'A2x']);
  expect([turns.size, turns.holders]).toEqual([3, 2]);
  expect(turns.extract([], isX)).toEqual(['B1x']);
  expect(turns.extract(['C'], isX)).toEqual([]);
  expect(takeAll(turns)).toEqual(['A1a', 'B1b']);
  expect([turns.size, turns.holders]).toEqual([0, 0]);
});

test('a named holder loses its latest item, whoever has more', () => {
  const turns = turnsOf('A1a', 'A2a', 'A2b', 'B1a', 'B1b', 'B1c', 'B1d');
  expect(turns.evict(undefined, ['A'])).toBe('A2b');
  expect(turns.evict(undefined, ['C'])).toBeNull();
  expect(turns.evict()).toBe('B1d');
});
