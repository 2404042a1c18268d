import { afterEach, expect, test, vi } from 'vitest';
import { BatchedLookup } from '../../src/storage/batched-lookup.ts';
import { LookupUnavailable } from '../../src/storage/lookup-cache.ts';

afterEach(() => vi.useRealTimers());

/** A database that knows `good`, and answers when the test says so. */
function setUp() {
  const statements: (readonly string[])[] = [];
  const answers: { answer: () => void; fail: (error: Error) => void }[] = [];
  const lookup = new BatchedLookup<number>((keys) => {
    statements.push(keys);
    return new Promise((resolve, reject) => {
      answers.push({ answer: () => resolve(new Map([['good', 7]])), fail: reject });
    });
  });
  const answer = async (): Promise<void> => {
    answers.shift()?.answer();
    await new Promise(setImmediate);
  };
  return { lookup, statements, answer, fail: (error: Error) => answers.shift()?.fail(error) };
}

test('keys that are asked for while a look-up is on its way share the next statement', async () => {
  const { lookup, statements, answer } = setUp();
  const first = lookup.get('a');
  const others = ['b', 'good', 'b'].map((key) => lookup.get(key));
  expect(statements).toEqual([['a']]);
  await answer();
  expect(await first).toBeNull();
  expect(statements).toEqual([['a'], ['b', 'good']]);
  await answer();
  expect(await Promise.all(others)).toEqual([null, 7, null]);
});

test('ten thousand unknown keys at once are eleven statements, one after the other', async () => {
  const { lookup, statements, answer } = setUp();
  const asked = Array.from({ length: 10_000 }, (_, index) => lookup.get(`junk ${index}`));
  for (let statement = 1; statement <= 11; statement += 1) {
    expect(statements.length).toBe(statement);
    await answer();
  }
  expect(new Set(await Promise.all(asked))).toEqual(new Set([null]));
  expect(statements.length).toBe(11);
});

test('a failure reaches those of its statement alone', async () => {
  const { lookup, answer, fail } = setUp();
  const broken = lookup.get('a');
  const good = lookup.get('good');
  fail(new Error('away'));
  await expect(broken).rejects.toThrow('away');
  await answer();
  expect(await good).toBe(7);
});

test('a statement that stays without an answer is given up after three seconds, and the next goes out', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { lookup, statements, answer } = setUp();
  const silent = expect(lookup.get('a')).rejects.toBeInstanceOf(LookupUnavailable);
  const good = lookup.get('good');
  await vi.advanceTimersByTimeAsync(2_999);
  expect(statements).toEqual([['a']]);
  await vi.advanceTimersByTimeAsync(1);
  await silent;
  expect(statements).toEqual([['a'], ['good']]);
  await answer(); // Of the first: too late for anybody.
  await answer();
  expect(await good).toBe(7);
});
