/** Who gets a place, by the order in which work begins. */
import { expect, test } from 'vitest';
import { Ending, type Place, Slots, type Waiter } from '../../src/base/slots.ts';
import type { Path } from '../../src/base/turns.ts';

class Client implements Waiter {
  settled = false;
  readonly #listeners = new Set<() => void>();

  whenSettled(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  leave(): void {
    this.settled = true;
    for (const listener of this.#listeners) listener();
  }
}

/** Work that the test ends. */
function setUp(places: number, maxWaiting = 100, mostOfAccount = places) {
  const slots = new Slots(places, maxWaiting, mostOfAccount);
  /** What has begun and has not ended, and all that has begun. */
  const running: string[] = [];
  const begun: string[] = [];
  const ends = new Map<string, { end: (error?: Error) => void; place: Place }>();
  const ask = (name: string, path: Path) => {
    const client = new Client();
    const outcome = slots.run(path, client, async (place) => {
      begun.push(name);
      running.push(name);
      try {
        await new Promise<void>((resolve, reject) => {
          ends.set(name, { place, end: (error) => (error === undefined ? resolve() : reject(error)) });
        });
      } finally {
        running.splice(running.indexOf(name), 1);
      }
      return name;
    });
    return { client, outcome };
  };
  const turn = (): Promise<void> => new Promise(setImmediate);
  const end = async (name: string, error?: Error): Promise<void> => {
    ends.get(name)?.end(error);
    await turn();
  };
  /** Asks several times, as `a1`, `a2`, …. */
  const askMany = (name: string, count: number, path: (index: number) => Path) =>
    Array.from({ length: count }, (_, index) => ask(`${name}${index + 1}`, path(index)));
  return { slots, running, begun, ends, ask, askMany, end, turn };
}

test('an account has no more places than it may have, although others are free', async () => {
  const { begun, running, askMany, end, turn } = setUp(8, 100, 2);
  askMany('a', 4, (index) => ['a', index]);
  await turn();
  expect(running).toEqual(['a1', 'a2']);
  askMany('b', 3, () => ['b', 1]);
  await turn();
  expect(running).toEqual(['a1', 'a2', 'b1', 'b2']);
  await end('a1');
  expect(begun.at(-1)).toBe('a3');
});

test('work that waits is not run once the one that runs all of it stops', async () => {
  const slots = new Slots(1, 100);
  const ending = new Ending();
  let finish: () => void = () => undefined;
  const running = slots.run(['a', 1], ending, () => new Promise<void>((resolve) => (finish = resolve)));
  const waiting = slots.run(['a', 2], ending, async () => 'run');
  ending.settle();
  expect(await waiting).toBe('settled');
  expect(await slots.run(['b', 1], ending, async () => 'run')).toBe('settled');
  finish();
  expect(await running).toBeUndefined();
});

test('sixty tokens of one account have the turns of one: others are next, whatever waits before them', async () => {
  const { begun, ask, askMany, end, turn } = setUp(1);
  askMany('a', 60, (index) => ['a', index]);
  ask('b', ['b', 1]);
  ask('c', ['c', 1]);
  await turn();
  await end('a1');
  await end('b');
  await end('c');
  expect(begun).toEqual(['a1', 'b', 'c', 'a2']);
});

test('an account alone leaves a place for whoever comes', async () => {
  const { running, ask, askMany, turn } = setUp(4);
  askMany('a', 100, (index) => ['a', index]);
  await turn();
  expect(running).toEqual(['a1', 'a2', 'a3']);
  ask('b', ['b', 1]);
  await turn();
  expect(running).toEqual(['a1', 'a2', 'a3', 'b']);
});

test('while others wait, an account gets no more than half of the places', async () => {
  const { running, askMany, end, turn } = setUp(4);
  askMany('a', 10, (index) => ['a', index]);
  askMany('b', 3, () => ['b', 1]);
  await turn();
  expect(running).toEqual(['a1', 'a2', 'a3', 'b1']);
  await end('a1');
  expect(running).toEqual(['a2', 'a3', 'b1', 'b2']);
  await end('b1');
  // It has half of the places: others wait, so the next is theirs.
  expect(running).toEqual(['a2', 'a3', 'b2', 'b3']);
  await end('b2');
  // None of the others waits.
  expect(running).toEqual(['a2', 'a3', 'b3', 'a4']);
});

test('a full queue loses the latest of the account with most in it, so an innocent one gets in', async () => {
  const { begun, ask, askMany, end, turn, slots } = setUp(1, 5);
  const all = askMany('a', 6, (index) => ['a', index]);
  const innocent = ask('b', ['b', 1]);
  expect(await all[5]?.outcome).toBe('busy');
  expect(slots.evicted).toBe(1);
  expect(slots.waiting).toBe(5);
  await turn();
  await end('a1');
  await end('b');
  expect(await innocent.outcome).toBe('b');
  expect(begun).toEqual(['a1', 'b', 'a2']);
});

test('what nobody waits for any more leaves the queue at once, and is never begun', async () => {
  const { begun, ask, end, turn, slots } = setUp(1);
  ask('a', ['a', 1]);
  const b = ask('b', ['b', 1]);
  ask('c', ['c', 1]);
  await turn();
  expect(slots.waiting).toBe(2);
  b.client.leave();
  expect(slots.waiting).toBe(1);
  expect(await b.outcome).toBe('settled');
  await end('a');
  expect(begun).toEqual(['a', 'c']);
});

test('between two parts work lets other accounts in, and none of its own', async () => {
  const { begun, ends, ask, askMany, end, turn } = setUp(1);
  askMany('a', 3, () => ['a', 1]);
  await turn();
  expect(await ends.get('a1')?.place.pass()).toBe(null);
  expect(begun).toEqual(['a1']);
  ask('b', ['b', 1]);
  const passed = ends.get('a1')?.place.pass();
  await turn();
  expect(begun).toEqual(['a1', 'b']);
  await end('b');
  expect(await passed).toBe(null);
  // It came back before the others of its account.
  expect(begun).toEqual(['a1', 'b']);
  await end('a1');
  expect(begun).toEqual(['a1', 'b', 'a2']);
});

test('work whose client leaves between two parts has lost its place, and gives up none twice', async () => {
  const { running, ends, ask, askMany, end, turn } = setUp(1);
  const a = ask('a', ['a', 1]);
  ask('b', ['b', 1]);
  await turn();
  const passed = ends.get('a')?.place.pass();
  await turn();
  a.client.leave();
  expect(await passed).toBe('settled');
  await end('a');
  askMany('c', 2, () => ['c', 1]);
  await turn();
  expect(running).toEqual(['b']);
});
