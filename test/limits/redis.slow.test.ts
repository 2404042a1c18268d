/** The shared limits on a real Redis: the contract of every limiter, many processes, and a Redis that fails. */
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { readConfig } from '../../src/config.ts';
import type { LimitDecision, Limiter } from '../../src/limits/limiter.ts';
import { describeRedisError } from '../../src/limits/redis-connection.ts';
import { SharedLimits, type SharedLimitsOptions } from '../../src/limits/redis-sliding-log.ts';
import { patient } from '../support/patience.ts';
import { startRedisCluster, TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { captured, until } from '../support/service.ts';
import { limiterContract } from './limiter-suite.ts';

// Thousands of round trips, on a machine that may be busy.
vi.setConfig({ testTimeout: patient(120_000) });

const log: Record<string, unknown>[] = [];
let redis: TestRedis;
const open: SharedLimits[] = [];
let names = 0;

const connect = async (more: Partial<SharedLimitsOptions> = {}): Promise<SharedLimits> => {
  const limits = await SharedLimits.start({
    url: redis.url,
    prefix: 'test:{one}',
    // A machine that is busy with other tests must not look like a slow Redis.
    timeoutMs: 5_000,
    log: captured(log),
    now: () => performance.now(),
    ...more,
  });
  open.push(limits);
  return limits;
};

/** A name whose windows are empty. */
const newName = (): string => `n${names++}`;

const take = async (limiter: Limiter, key = 1): Promise<LimitDecision> => {
  const decision = await limiter.take(key);
  if (decision === null) throw new Error('There is no limit.');
  return decision;
};

const acceptedOf = async (limiters: readonly Limiter[], times: number, key = 1): Promise<number> => {
  const all = limiters.flatMap((limiter) => Array.from({ length: times }, () => take(limiter, key)));
  return (await Promise.all(all)).filter(({ accepted }) => accepted).length;
};

const messages = (): unknown[] => log.map(({ msg }) => msg);
const AWAY = 'limits: Redis unavailable, limiting per process';
const SHARED = 'limits: shared through Redis';

test.each([
  ['an answer', new Error('READONLY You cannot write'), 'READONLY You cannot write'],
  [
    'a cluster of which no node answers',
    Object.assign(new Error('Failed to refresh slots cache.'), {
      lastNodeError: new Error('connect ECONNREFUSED'),
    }),
    'connect ECONNREFUSED',
  ],
  ['no address of a name', Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }), 'ECONNREFUSED'],
  ['an error without a word', new TypeError(), 'TypeError'],
  ['what is no error', 'a text', 'a text'],
])('of %s the log has one line', (_, error, line) => {
  expect(describeRedisError(error)).toBe(line);
});

describe.skipIf(REDIS_SERVER === undefined)('on a real Redis,', () => {
  beforeAll(async () => {
    redis = await TestRedis.start();
  });
  afterAll(() => redis?.remove());
  afterEach(() => {
    for (const limits of open.splice(0)) limits.stop();
    log.length = 0;
  });

  describe('with a clock that the tests move,', () => {
    let clock = { ms: 0 };
    let limits: SharedLimits | null = null;
    afterEach(() => {
      // Else it was the process's own windows that kept the contract.
      if (limits !== null) expect(limits.stats).toEqual({ shared: true, fallbacks: 0, ownDecisions: 0 });
      limits = null;
    });
    limiterContract(
      'the sliding log in Redis',
      async (limit) => {
        clock = { ms: 0 };
        limits ??= await connect({
          now: () => clock.ms,
          redisTime: () => Math.floor(clock.ms * 1_000),
        });
        return { limiter: limits.limiter({ name: newName(), limit }), clock };
      },
      { runs: 15 },
    );

    test('a clock that is set back lifts no limit, and refuses no client for longer than a window', async () => {
      const time = { us: 1e15 };
      const own = { ms: 0 };
      const shared = await connect({ now: () => own.ms, redisTime: () => time.us });
      for (const back of [1, 30e6, 60e6, 61e6, 3600e6, 1e14]) {
        const limiter = shared.limiter({ name: newName(), limit: 10 });
        expect(await acceptedOf([limiter], 6)).toBe(6);
        time.us -= back;
        expect(await acceptedOf([limiter], 20)).toBe(4);
        time.us += 120e6;
        own.ms += 120_000;
        expect(await acceptedOf([limiter], 20)).toBe(10);
      }
    });
  });

  test('a key with a limit of its own: raised at once, and lowered with the time until a request is accepted', async () => {
    const time = { us: 1e15 };
    const shared = await connect({ redisTime: () => time.us, now: () => time.us / 1_000 });
    let own: number | null = null;
    const limiter = shared.limiter({ name: newName(), limit: 2, limitOf: (key) => (key === 1 ? own : null) });
    expect(await acceptedOf([limiter], 4)).toBe(2);
    own = 6;
    time.us += 10e6;
    expect(await acceptedOf([limiter], 4)).toBe(4);
    expect(await acceptedOf([limiter], 4, 2)).toBe(2);
    own = 3;
    time.us += 10e6;
    // Six are counted: the two of the first moment and two of the four of the second must leave.
    expect(await take(limiter)).toEqual({ accepted: false, limit: 3, remaining: 0, resetSeconds: 50 });
    time.us += 40e6;
    expect(await take(limiter)).toMatchObject({ accepted: false });
    time.us += 10e6;
    expect(await acceptedOf([limiter], 4)).toBe(3);
  });

  test('amounts of a day over two processes: each whole or not at all, also after Redis has lost them', async () => {
    const wall = { ms: Date.parse('2026-11-20T12:00:00Z') };
    const name = newName();
    let stored = 0;
    const [first, second] = await Promise.all(
      ['a', 'b'].map(async () =>
        (await connect()).dayLimiter(name, {
          limitOf: (key) => (key === 1 ? 100 : null),
          usedOf: () => stored,
          wall: () => wall.ms,
        }),
      ),
    );
    if (first === undefined || second === undefined) throw new Error('There are two.');
    const both = (amount: number): Promise<boolean[]> =>
      Promise.all([first, second].map(async (one) => (await one.take(1, amount))?.accepted === true));
    expect(await both(40)).toEqual([true, true]);
    expect((await both(15)).filter(Boolean)).toHaveLength(1);
    expect(await first.take(1, 5)).toEqual({ accepted: true, limit: 100, resetSeconds: 43_200 });
    expect(await first.take(2, 1_000)).toBeNull();
    stored = 95;
    await redis.cli('flushall');
    expect(await both(10)).toEqual([false, false]);
    stored = 0;
    wall.ms += 43_200_000;
    expect(await both(60)).toContain(true);
  });

  test('1,001 requests over three processes at once: exactly 1,000 are accepted', async () => {
    const limiters = await Promise.all(
      ['a', 'b', 'c'].map(async () => (await connect()).limiter({ name: 'three', limit: 1_000 })),
    );
    const all = Array.from({ length: 1_001 }, (_, index) => limiters[index % 3] as Limiter);
    const decisions = await Promise.all(all.map((limiter) => take(limiter)));
    expect(decisions.filter(({ accepted }) => accepted).length).toBe(1_000);
    // Each sees a place of its own.
    const remaining = decisions.filter(({ accepted }) => accepted).map((decision) => decision.remaining);
    expect(new Set(remaining).size).toBe(1_000);
  });

  test('more keys than one call may have are asked for in several, and each gets its own answer', async () => {
    const limits = await connect();
    const limiter = limits.limiter({ name: newName(), limit: 2 });
    const calls = async (): Promise<number> =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.cli('info', 'commandstats'))?.[1] ?? 0);
    for (const [keys, expected] of [
      [500, 1],
      [501, 2],
    ] as const) {
      const before = await calls();
      // The last key is asked for three times, of which one is too many.
      const asked = [
        ...Array.from({ length: keys }, (_, key) => keys * 1_000 + key),
        keys * 1_000 + keys - 1,
      ];
      const decisions = await Promise.all([...asked, asked.at(-1) ?? 0].map((key) => take(limiter, key)));
      expect(decisions.filter(({ accepted }) => accepted)).toHaveLength(keys + 1);
      expect(decisions.at(-1)).toMatchObject({ accepted: false, remaining: 0 });
      expect((await calls()) - before).toBe(expected);
    }
  });

  test('what the own window refuses takes no place in Redis', async () => {
    const [one, other] = await Promise.all([connect(), connect()]);
    const [name, limit] = [newName(), 10];
    const [limiter, elsewhere] = [one.limiter({ name, limit }), other.limiter({ name, limit })];
    expect(await acceptedOf([limiter], 10)).toBe(10);
    // Redis has lost its windows, as when it is started again.
    await redis.cli('del', `test:{one}:${name}:1`);
    expect(await acceptedOf([limiter], 20)).toBe(0);
    expect(await acceptedOf([elsewhere], 20)).toBe(10);
    expect(one.stats).toMatchObject({ fallbacks: 0, ownDecisions: 0 });
  });

  test('a stop answers what waits for Redis, however long that may take', async () => {
    const limits = await connect({ timeoutMs: 600_000 });
    const limiter = limits.limiter({ name: newName(), limit: 10 });
    await redis.pause();
    try {
      const asked = Promise.all(Array.from({ length: 20 }, () => take(limiter)));
      await new Promise(setImmediate);
      limits.stop();
      expect((await asked).filter(({ accepted }) => accepted)).toHaveLength(10);
      expect(limits.stats).toMatchObject({ shared: false, ownDecisions: 20 });
    } finally {
      await redis.resume();
    }
  });

  test('a reply that came while the process itself was late is one in time', async () => {
    const limits = await connect({ timeoutMs: 200 });
    const limiter = limits.limiter({ name: newName(), limit: 10 });
    await until(() => limits.stats.shared, 'Redis is quick enough');
    const { fallbacks } = limits.stats;
    const taken = take(limiter);
    // The question leaves at the end of this turn. The next one is as long as ten timeouts.
    await new Promise(setImmediate);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000);
    expect((await taken).remaining).toBe(9);
    expect(limits.stats).toMatchObject({ shared: true, fallbacks, ownDecisions: 0 });
    expect(readConfig({}).REDIS_TIMEOUT_MS).toBeGreaterThanOrEqual(250);
  });

  test('keys carry the prefix and one hash tag, expire, and are small', async () => {
    const client = new Redis(redis.url);
    try {
      await client.flushall();
      const limiter = (await connect()).limiter({ name: 'small', limit: 1_000 });
      await take(limiter, 17);
      expect(await client.keys('*')).toEqual(expect.arrayContaining(['test:{one}:small:17']));
      for (const key of await client.keys('*')) {
        expect(key).toMatch(/^test:\{one\}:/);
        expect(await client.pttl(key)).toBeGreaterThan(55_000);
        expect(await client.pttl(key)).toBeLessThanOrEqual(60_001);
      }
      // At worst each of the thousand comes by itself.
      for (let index = 1; index < 1_000; index += 1) await take(limiter, 17);
      expect(await client.memory('USAGE', 'test:{one}:small:17')).toBeLessThan(16_000);
      for (let index = 0; index < 1_000; index += 1) void limiter.take(18);
      await take(limiter, 18);
      expect(await client.memory('USAGE', 'test:{one}:small:18')).toBeLessThan(300);
    } finally {
      client.disconnect();
    }
  });

  test('a script that Redis has forgotten is sent again, and nothing is decided alone', async () => {
    const limits = await connect();
    const limiter = limits.limiter({ name: newName(), limit: 5 });
    await take(limiter);
    await redis.cli('script', 'flush');
    expect((await take(limiter)).remaining).toBe(3);
    expect(limits.stats).toEqual({ shared: true, fallbacks: 0, ownDecisions: 0 });
  });

  test.each([
    ['soon after the start', 0],
    // Then the windows in Redis are complete, and decide alone.
    ['a minute after the start', 61_000],
  ])(
    'security 25: while Redis is paused %s, requests go on, within the own window, which knows what Redis accepted',
    async (_, sinceStartMs) => {
      let ahead = 0;
      const limits = await connect({ timeoutMs: 200, now: () => performance.now() + ahead });
      ahead = sinceStartMs;
      const limiter = limits.limiter({ name: newName(), limit: 10 });
      await until(() => limits.stats.shared, 'Redis is quick enough');
      expect(await acceptedOf([limiter], 4)).toBe(4);
      await redis.pause();
      try {
        expect(await acceptedOf([limiter], 20)).toBe(6);
        expect(limits.stats).toMatchObject({ shared: false, fallbacks: 1 });
        // Redis is asked no more: each is decided in the turn of the event loop in which it comes.
        for (let index = 0; index < 50; index += 1) {
          let decision: LimitDecision | null = null;
          void take(limiter).then((taken) => {
            decision = taken;
          });
          await new Promise(setImmediate);
          expect(decision).toMatchObject({ accepted: false });
        }
        expect(limits.stats).toMatchObject({ fallbacks: 1, ownDecisions: 70 });
      } finally {
        await redis.resume();
      }
      await until(() => limits.stats.shared, 'limits are shared again');
      expect((await take(limiter)).accepted).toBe(false);
      expect(messages().filter((message) => message === AWAY).length).toBeGreaterThan(0);
      expect(messages().at(-1)).toBe(SHARED);
    },
  );

  test('security 25: Redis killed and started again, empty: one line at each change, and the window goes on in each process', async () => {
    const limits = await connect();
    const limiter = limits.limiter({ name: newName(), limit: 10 });
    expect(await acceptedOf([limiter], 4)).toBe(4);
    log.length = 0;
    await redis.kill();
    await until(() => !limits.stats.shared, 'it is noticed that Redis is gone');
    expect(await acceptedOf([limiter], 3)).toBe(3);
    await redis.run();
    await until(() => limits.stats.shared, 'limits are shared again');
    // Redis would accept ten now.
    expect(await acceptedOf([limiter], 20)).toBe(3);
    expect(messages()).toEqual([AWAY, SHARED]);
    expect(limits.stats).toMatchObject({ shared: true, fallbacks: 1, ownDecisions: 3 });
  });

  describe('with timers that the tests move,', () => {
    const realTimeout = setTimeout;
    const turns = async (condition: () => boolean): Promise<void> => {
      const deadline = Date.now() + 15_000;
      while (!condition()) {
        if (Date.now() > deadline) throw new Error('Redis was not asked when it should be.');
        await new Promise(setImmediate);
      }
    };
    /** The process that answers a script with an error, and still answers. */
    const refuse = (isRefused: boolean): Promise<string> =>
      redis.cli('config', 'set', 'maxmemory', isRefused ? '1' : '0');
    const calls = async (): Promise<number> =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.cli('info', 'commandstats'))?.[1] ?? 0);
    const connectionId = async (): Promise<string | undefined> =>
      /^id=(\d+) .* name=tidemark /m.exec(await redis.cli('client', 'list'))?.[1];
    afterEach(async () => {
      vi.useRealTimers();
      await refuse(false);
    });

    test('a Redis that fails now and then is asked less and less often, and soon once it has held for a minute', async () => {
      const clock = { ms: 0 };
      const limits = await connect({ now: () => clock.ms, timeoutMs: 600_000 });
      const limiter = limits.limiter({ name: newName(), limit: 1_000 });
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      for (const [heldMs, probedAfterMs] of [
        [0, 500],
        [0, 1_000],
        [0, 2_000],
        [0, 4_000],
        [0, 5_000],
        [0, 5_000],
        [60_000, 250],
        [59_999, 500],
      ] as const) {
        clock.ms += heldMs;
        await refuse(true);
        expect((await take(limiter)).accepted).toBe(true);
        expect(limits.stats.shared).toBe(false);
        await refuse(false);
        const before = await calls();
        vi.advanceTimersByTime(probedAfterMs - 1);
        expect(await calls()).toBe(before);
        vi.advanceTimersByTime(1);
        await turns(() => limits.stats.shared);
      }
      expect(limits.stats).toEqual({ shared: true, fallbacks: 8, ownDecisions: 8 });
    });

    test('a connection that is silent at three probes in a row is replaced, as its packets may be dropped', async () => {
      for (const [probes, isReplaced] of [
        [2, false],
        [3, true],
      ] as const) {
        const limits = await connect({ timeoutMs: 10_000 });
        const limiter = limits.limiter({ name: newName(), limit: 1_000 });
        const before = await connectionId();
        expect(before).toBeDefined();
        await redis.pause();
        try {
          vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
          const asked = take(limiter);
          await new Promise(setImmediate);
          vi.advanceTimersByTime(10_000);
          expect((await asked).accepted).toBe(true);
          for (let probe = 1; probe <= probes; probe += 1) {
            // Until the probe is sent, and until it is given up.
            for (const ms of [probe === 1 ? 500 : 1_000, 10_000]) {
              vi.advanceTimersByTime(ms);
              for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
            }
          }
        } finally {
          await redis.resume();
        }
        if (isReplaced) {
          // The new connection has waits of its own before it is there.
          while (!limits.stats.shared) {
            vi.advanceTimersByTime(500);
            await new Promise((resolve) => realTimeout(resolve, 10));
          }
        } else {
          vi.advanceTimersByTime(1_000);
          await turns(() => limits.stats.shared);
        }
        vi.useRealTimers();
        expect((await connectionId()) !== before).toBe(isReplaced);
        limits.stop();
      }
    });
  });

  test('a Redis that became a replica counts as away until it is a primary', async () => {
    const limits = await connect();
    const limiter = limits.limiter({ name: newName(), limit: 10 });
    await redis.cli('replicaof', '127.0.0.1', '1');
    expect((await take(limiter)).accepted).toBe(true);
    expect(limits.stats).toMatchObject({ shared: false, fallbacks: 1, ownDecisions: 1 });
    await redis.cli('replicaof', 'no', 'one');
    await until(() => limits.stats.shared, 'limits are shared again');
    expect((await take(limiter)).accepted).toBe(true);
  });

  test('without a Redis at the start it starts with own limits, and joins it when it comes', async () => {
    await redis.kill();
    const limits = await connect();
    const limiter = limits.limiter({ name: newName(), limit: 10 });
    expect(messages()).toEqual([AWAY]);
    expect(await acceptedOf([limiter], 20)).toBe(10);
    await redis.run();
    await until(() => limits.stats.shared, 'limits are shared');
    expect(messages()).toEqual([AWAY, SHARED]);
  });

  test('a password that is wrong is not shown', async () => {
    await redis.cli('config', 'set', 'requirepass', 'right-password');
    try {
      const wrong = await connect({ url: redis.url.replace('//', '//:hidden-password@') });
      expect(wrong.stats.shared).toBe(false);
      expect(messages()).toEqual([AWAY]);
      expect(JSON.stringify(log)).toMatch(/WRONGPASS|NOAUTH/);
      expect(JSON.stringify(log)).not.toContain('hidden-password');
      const right = await connect({ url: redis.url.replace('//', '//:right-password@') });
      expect(right.stats.shared).toBe(true);
    } finally {
      await redis.cli('-a', 'right-password', '--no-auth-warning', 'config', 'set', 'requirepass', '');
    }
  });

  describe('on a Redis Cluster of three nodes,', () => {
    let cluster: Awaited<ReturnType<typeof startRedisCluster>>;
    beforeAll(async () => {
      cluster = await startRedisCluster();
    });
    afterAll(() => cluster?.remove());

    test('several processes share one limit, by its list of nodes or by any one of them', async () => {
      const urls = [cluster.urls.join(','), ...cluster.urls];
      const all = await Promise.all(urls.map((url) => connect({ url, prefix: 'test:{cluster}' })));
      await until(() => all.every(({ stats }) => stats.shared), 'all have found their node');
      const limiters = all.map((limits) => limits.limiter({ name: 'common', limit: 100 }));
      expect(await acceptedOf(limiters, 50)).toBe(100);
      for (const { stats } of all) expect(stats.ownDecisions).toBe(0);
    });
  });
});
