/** Work that is repeated: one round at a time. */
import { expect, test } from 'vitest';
import { Rounds } from '../../src/base/rounds.ts';

/** Rounds that the test ends. */
function setUp({ pauseMs = 0 } = {}) {
  const said: string[] = [];
  const ends: ((error?: Error) => void)[] = [];
  let onBegun = (): void => undefined;
  const rounds = new Rounds({
    work: () =>
      new Promise<void>((resolve, reject) => {
        ends.push((error) => (error === undefined ? resolve() : reject(error)));
        onBegun();
      }),
    pauseMs: () => pauseMs,
    onFailure: (error, isFirst) => {
      said.push(`${isFirst ? 'failing' : 'failed again'}: ${String(error)}`);
    },
    onRecovery: () => {
      said.push('works again');
    },
  });
  /** Resolves with the function that ends the round of this number, once it has begun. */
  const begun = async (number: number): Promise<(error?: Error) => void> => {
    while (ends.length < number) {
      await new Promise<void>((resolve) => {
        onBegun = resolve;
      });
    }
    const end = ends[number - 1];
    if (end === undefined) throw new Error('No such round');
    return end;
  };
  return { rounds, said, begun, count: () => ends.length };
}

test('a round begins only after the one before has ended, however soon another is asked for', async () => {
  const { rounds, begun, count } = setUp();
  rounds.start();
  const end = await begun(1);
  rounds.runSoon();
  await new Promise((resolve) => setTimeout(resolve, 0));
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect(count()).toBe(1);
  end();
  (await begun(2))();
  await rounds.stop();
});

test('a pause can be cut short', async () => {
  const { rounds, begun } = setUp({ pauseMs: 3_600_000 });
  rounds.start();
  rounds.runSoon();
  (await begun(1))();
  await rounds.stop();
});

test('stop waits for the round that runs, and no other begins', async () => {
  const { rounds, begun, count } = setUp();
  rounds.start();
  const end = await begun(1);
  let isStopped = false;
  const stopping = rounds.stop().then(() => {
    isStopped = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect([isStopped, rounds.isStopped]).toEqual([false, true]);
  end();
  await stopping;
  rounds.runSoon();
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect(count()).toBe(1);
});

test('failures in a row are told apart, and so is the first round that works', async () => {
  const { rounds, begun, said } = setUp();
  rounds.start();
  for (const [index, error] of [new Error('one'), new Error('two'), undefined, new Error('three')].entries())
    (await begun(index + 1))(error);
  (await begun(5))();
  await rounds.stop();
  expect(said).toEqual([
    'failing: Error: one',
    'failed again: Error: two',
    'works again',
    'failing: Error: three',
    'works again',
  ]);
});
