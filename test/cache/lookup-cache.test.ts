import { expect, test } from 'vitest';
import {
  answerInTime,
  LookupBusy,
  LookupCache,
  type LookupOutage,
  LookupUnavailable,
} from '../../src/cache/lookup-cache.ts';

interface Pending {
  readonly key: string;
  readonly resolve: (value: string | null) => void;
  readonly reject: (error: Error) => void;
}

/** A cache whose lookups wait to be answered by the test, with a clock that the test moves. */
function setUp(bounds: { max?: number; maxNegatives?: number; outage?: LookupOutage } = {}) {
  const clock = { ms: 0 };
  const asked: Pending[] = [];
  const cache = new LookupCache<string>({
    load: (key) => new Promise((resolve, reject) => asked.push({ key, resolve, reject })),
    max: bounds.max ?? 10,
    maxNegatives: bounds.maxNegatives ?? 10,
    ttlMs: 1_000,
    now: () => clock.ms,
    outage: bounds.outage,
  });
  /** Asks for a key and answers its lookup, which must be the only new one. */
  const fill = async (key: string, value: string | null) => {
    const before = asked.length;
    const answer = cache.get(key);
    expect(asked.length).toBe(before + 1);
    asked.at(-1)?.resolve(value);
    expect(await answer).toBe(value);
  };
  return { cache, asked, clock, fill };
}

test('a result is fresh for its time, counted from the start of its lookup', async () => {
  const { cache, asked, clock } = setUp();
  const answer = cache.get('a');
  clock.ms = 400;
  asked[0]?.resolve('A');
  await answer;
  clock.ms = 999;
  expect(cache.get('a')).toBe('A');
  clock.ms = 1_000;
  expect(cache.get('a')).toBeInstanceOf(Promise);
  expect(asked.length).toBe(2);
});

test('an absence is fresh for as long as a value', async () => {
  const { cache, clock, fill } = setUp();
  await fill('a', null);
  clock.ms = 999;
  expect(cache.get('a')).toBeNull();
  clock.ms = 1_000;
  await fill('a', 'A');
  expect(cache.get('a')).toBe('A');
});

test('security 28: a clock that is set back does not lengthen a belief', async () => {
  const { clock, fill } = setUp();
  clock.ms = 5_000;
  await fill('a', 'A');
  clock.ms = 4_999;
  await fill('a', 'B');
});

test('a failed lookup reaches all callers that wait, and is not cached', async () => {
  const { cache, asked, fill } = setUp();
  const answers = [cache.get('a'), cache.get('a')];
  asked[0]?.reject(new Error('away'));
  for (const answer of answers) await expect(answer).rejects.toThrow('away');
  await fill('a', 'A');
});

test('a drop forgets values and absences', async () => {
  const { cache, fill } = setUp();
  await fill('a', 'A');
  await fill('b', null);
  cache.dropAll();
  await fill('a', 'A2');
  await fill('b', 'B2');
});

test('a lookup that began before a drop is not cached, nor shared with later callers', async () => {
  const { cache, asked } = setUp();
  const before = cache.get('a');
  cache.dropAll();
  const after = cache.get('a');
  expect(asked.length).toBe(2);
  asked[1]?.resolve('new');
  expect(await after).toBe('new');
  asked[0]?.resolve('old');
  expect(await before).toBe('old');
  expect(cache.get('a')).toBe('new');
});

test('an overtaken lookup that ends first leaves the newer one shared', async () => {
  const { cache, asked } = setUp();
  const before = cache.get('a');
  cache.dropAll();
  const after = cache.get('a');
  asked[0]?.resolve('old');
  expect(await before).toBe('old');
  const later = cache.get('a');
  expect(asked.length).toBe(2);
  asked[1]?.resolve('new');
  expect(await Promise.all([after, later])).toEqual(['new', 'new']);
});

test('junk keys never push out good ones, and stay within their bound', async () => {
  const { cache, asked, fill } = setUp({ max: 2, maxNegatives: 3 });
  await fill('good', 'G');
  for (let i = 0; i < 20; i += 1) await fill(`junk${i}`, null);
  expect(cache.get('good')).toBe('G');
  const before = asked.length;
  for (const i of [17, 18, 19]) expect(cache.get(`junk${i}`)).toBeNull();
  expect(asked.length).toBe(before);
  cache.get('junk16');
  expect(asked.length).toBe(before + 1);
});

test('the least recently used value goes first', async () => {
  const { cache, fill } = setUp({ max: 2 });
  await fill('a', 'A');
  await fill('b', 'B');
  cache.get('a');
  await fill('c', 'C');
  expect(cache.get('a')).toBe('A');
  expect(cache.get('b')).toBeInstanceOf(Promise);
});

/** A database that the test takes away; a lookup may take 20 ms. */
function outageOf({ serveStale }: { serveStale: boolean }) {
  const state = { away: false };
  return {
    state,
    outage: { isUnreachable: () => state.away, isSuspect: () => state.away, timeoutMs: 20, serveStale },
  };
}

test('during an outage nothing is queried: stale values are served, unknown keys are unavailable', async () => {
  const { state, outage } = outageOf({ serveStale: true });
  const { cache, asked, clock, fill } = setUp({ outage });
  await fill('a', 'A');
  await fill('absent', null);
  state.away = true;
  clock.ms = 1_000_000;
  expect(await cache.get('a')).toBe('A');
  await expect(cache.get('absent')).rejects.toThrow(LookupUnavailable);
  await expect(cache.get('never asked')).rejects.toThrow(LookupUnavailable);
  expect(asked.length).toBe(2);
  state.away = false;
  await fill('a', 'B');
});

test('if stale values are not served, they are unavailable during an outage', async () => {
  const { state, outage } = outageOf({ serveStale: false });
  const { cache, clock, fill } = setUp({ outage });
  await fill('a', 'A');
  state.away = true;
  expect(await cache.get('a')).toBe('A');
  clock.ms = 1_000;
  await expect(cache.get('a')).rejects.toThrow(LookupUnavailable);
});

test('dropped values are not served during an outage', async () => {
  const { state, outage } = outageOf({ serveStale: true });
  const { cache, fill } = setUp({ outage });
  await fill('a', 'A');
  cache.dropAll();
  state.away = true;
  await expect(cache.get('a')).rejects.toThrow(LookupUnavailable);
});

test('invalidated values are looked up again, and only served during an outage', async () => {
  const { state, outage } = outageOf({ serveStale: true });
  const { cache, fill } = setUp({ outage });
  await fill('a', 'A');
  await fill('revoked', 'R');
  cache.invalidateAll();
  await fill('revoked', null);
  state.away = true;
  expect(await cache.get('a')).toBe('A');
  state.away = false;
  expect(cache.get('revoked')).toBeNull();
  await fill('a', 'B');
});

test('a stale value is served if the database is too busy for the lookup', async () => {
  const { outage } = outageOf({ serveStale: true });
  const { cache, asked, clock, fill } = setUp({ outage });
  await fill('a', 'A');
  clock.ms = 1_000;
  const answer = cache.get('a');
  asked.at(-1)?.reject(new LookupBusy('too many wait'));
  expect(await answer).toBe('A');
  const unknown = cache.get('b');
  asked.at(-1)?.reject(new LookupBusy('too many wait'));
  await expect(unknown).rejects.toThrow(LookupBusy);
});

test('a statement that the server ends because of a lock or its time is no outage', async () => {
  for (const code of ['55P03', '57014']) {
    const ended = Promise.reject(Object.assign(new Error('ended'), { code }));
    await expect(answerInTime(ended)).rejects.toThrow(LookupBusy);
  }
  const gone = Promise.reject(Object.assign(new Error('gone'), { code: 'ECONNRESET' }));
  await expect(answerInTime(gone)).rejects.toThrow('gone');
});

test('a stale value is served if the lookup fails because of an outage, and only then', async () => {
  const { outage } = outageOf({ serveStale: true });
  const { cache, asked, clock, fill } = setUp({ outage });
  await fill('a', 'A');
  clock.ms = 1_000;
  const answer = cache.get('a');
  asked.at(-1)?.reject(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }));
  expect(await answer).toBe('A');
  const other = cache.get('a');
  asked.at(-1)?.reject(new Error('a fault'));
  await expect(other).rejects.toThrow('a fault');
});
