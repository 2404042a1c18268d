import { afterEach, expect, test, vi } from 'vitest';
import { BatchedLookup, type BatchedLookupOptions } from '../../src/cache/batched-lookup.ts';
import { LookupBusy, LookupUnavailable } from '../../src/cache/lookup-cache.ts';

afterEach(() => vi.useRealTimers());

/** A database that knows `good`, and answers when the test says so. */
function setUp(options: BatchedLookupOptions = {}) {
  const statements: (readonly string[])[] = [];
  const answers: { answer: () => void; fail: (error: Error) => void }[] = [];
  const lookup = new BatchedLookup<number>((keys) => {
    statements.push(keys);
    return new Promise((resolve, reject) => {
      answers.push({ answer: () => resolve(new Map([['good', 7]])), fail: reject });
    });
  }, options);
  const answer = async (): Promise<void> => {
    answers.shift()?.answer();
    await new Promise(setImmediate);
  };
  return { lookup, statements, answer, fail: (error: Error) => answers.shift()?.fail(error) };
}

test('keys that are asked for while a lookup is on its way share the next statement', async () => {
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
  const silent = expect(lookup.get('a')).rejects.toBeInstanceOf(LookupBusy);
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

test('after a statement of forged keys more are gathered for the next, where that is asked for', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const statements: (readonly string[])[] = [];
  const loadMany = async (keys: readonly string[]): Promise<ReadonlyMap<string, number>> => {
    statements.push(keys);
    return new Map(keys.filter((key) => key.startsWith('good')).map((key) => [key, 7]));
  };
  const lookup = new BatchedLookup<number>(loadMany, { pauseMs: 10 });
  const askMany = (kind: string): Promise<unknown> =>
    Promise.all(Array.from({ length: 20 }, (_, index) => lookup.get(`${kind} ${index}`)));
  const asked = [lookup.get('one'), askMany('made up')];
  await Promise.all(asked);
  expect(statements.map(({ length }) => length)).toEqual([1, 20]);
  const gathered = [lookup.get('a'), lookup.get('good'), lookup.get('b')];
  await vi.advanceTimersByTimeAsync(9);
  expect(statements).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(await Promise.all(gathered)).toEqual([null, 7, null]);
  expect(statements[2]).toEqual(['a', 'good', 'b']);
  // Keys that exist, and few that do not, wait for nothing.
  await askMany('good');
  await lookup.get('c');
  await lookup.get('d');
  expect(statements.map(({ length }) => length)).toEqual([1, 20, 3, 1, 19, 1, 1]);
});

test('holders take turns: one key waits for one statement of a holder with thousands', async () => {
  const { lookup, statements, answer } = setUp();
  const asked = Array.from({ length: 3_000 }, (_, index) => lookup.get(`${index}`, ['heavy']));
  const good = lookup.get('good', ['light']);
  await answer();
  await answer();
  expect(await good).toBe(7);
  expect(statements.map(({ length }) => length)).toEqual([1, 1_000, 1_000]);
  await answer();
  await answer();
  await Promise.all(asked);
});

test('waiting keys have a ceiling: beyond it the holder with most of them loses its latest', async () => {
  const { lookup, answer } = setUp();
  const heavy = Array.from({ length: 20_001 }, (_, index) => lookup.get(`${index}`, ['heavy']));
  const light = lookup.get('good', ['light']);
  await expect(heavy.at(-1)).rejects.toBeInstanceOf(LookupBusy);
  expect(lookup.queue).toMatchObject({ waiting: 20_000, refused: 1 });
  await answer();
  await answer();
  expect(await light).toBe(7);
  for (let statement = 0; statement < 20; statement += 1) await answer();
  await Promise.all(heavy.slice(0, -1));
});

/** A database that is suspect when the test says so. */
function outageOf() {
  const state = { isUnreachable: false, isSuspect: false };
  const outage = {
    isUnreachable: () => state.isUnreachable,
    isSuspect: () => state.isSuspect,
    timeoutMs: 700,
    serveStale: false,
  };
  return { state, outage };
}

test('a busy database is waited for; one that is suspect has 0.7 seconds, and all that wait are refused with it', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate'] });
  const { state, outage } = outageOf();
  const { lookup, statements } = setUp({ outage });
  const outcomes = ['a', 'b', 'c'].map((key) => lookup.get(key).catch((error: unknown) => error));
  await vi.advanceTimersByTimeAsync(2_000);
  expect(statements).toEqual([['a']]);
  state.isSuspect = true;
  await vi.advanceTimersByTimeAsync(150);
  for (const outcome of await Promise.all(outcomes)) expect(outcome).toBeInstanceOf(LookupUnavailable);
  expect(statements).toEqual([['a']]);
});
