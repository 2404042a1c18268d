/** Attempts to sign in that processes count together, on a real Redis, beside the limits of one process. */
import { createSecretKey } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import {
  type SharedAttempt,
  SharedSignInLimits,
  SignInLimits,
} from '../../src/accounts/sign-in/sign-in-limits.ts';
import { SharedLimits } from '../../src/limits/redis-sliding-log.ts';
import { seededRandom } from '../support/field-oracle.ts';
import { sized } from '../support/fuzz.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { captured, until } from '../support/service.ts';

const KEY = createSecretKey(Buffer.alloc(32, 7));
const HOUR_MS = 3_600_000;
const OWNER = requireEmail('owner@example.com');
const HOME = ['192.0.2.1', '192.0.2.0/24', '192.0.0.0/16'];
const ELSEWHERE = ['198.51.100.1', '198.51.100.0/24', '198.51.0.0/16'];

describe.skipIf(REDIS_SERVER === undefined)('attempts to sign in at several processes', () => {
  let redis: TestRedis;
  let prefixes = 0;
  const open: SharedLimits[] = [];
  beforeAll(async () => {
    redis = await TestRedis.start();
  });
  afterAll(() => redis?.remove());
  afterEach(() => {
    for (const limits of open.splice(0)) limits.stop();
  });

  /** Processes whose clocks differ, and the time that Redis has. */
  async function processes(count: number, clock: { ms: number }) {
    prefixes += 1;
    const prefix = `test:{sign-ins ${prefixes}}`;
    return await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const now = (): number => clock.ms - 1_000_000 * index;
        const shared = await SharedLimits.start({
          ...{ url: redis.url, prefix, timeoutMs: 5_000, log: captured([]), now },
          redisTime: () => clock.ms * 1_000,
        });
        open.push(shared);
        const own = new SignInLimits(now);
        return { shared, limits: new SharedSignInLimits(own, shared.records().share, KEY) };
      }),
    );
  }

  const isAdmitted = (attempt: SharedAttempt | number): attempt is SharedAttempt =>
    typeof attempt !== 'number';

  test('security 6: are counted together: at once, one after the other, and forgotten by all after a success', async () => {
    const clock = { ms: 1e12 };
    const [one, other] = (await processes(2, clock)).map(({ limits }) => limits);
    if (one === undefined || other === undefined) throw new Error('There are two.');
    const atOnce = await Promise.all(
      Array.from({ length: 20 }, (_, index) => (index % 2 ? one : other).admit(OWNER, HOME)),
    );
    expect(atOnce.filter(isAdmitted).length).toBe(5);
    expect(atOnce.filter((wait) => !isAdmitted(wait))).toEqual(Array.from({ length: 15 }, () => 1_000));
    clock.ms += 1_000;
    const admitted = await other.admit(OWNER, HOME);
    expect(await one.admit(OWNER, HOME)).toBe(2_000);
    if (!isAdmitted(admitted)) throw new Error('A second has passed.');
    await admitted.succeeded();
    const again = await Promise.all(Array.from({ length: 6 }, () => one.admit(OWNER, HOME)));
    // The earlier ones still count in the wider networks.
    expect(again.filter(isAdmitted).map(({ isKnown }) => isKnown)).toEqual([true, true, true, true]);
    // A wrong code of another client is one of all processes, too.
    const codes = await Promise.all(
      Array.from({ length: 12 }, (_, index) => (index % 2 ? one : other).admitCode(OWNER, ELSEWHERE)),
    );
    expect(codes.filter(isAdmitted).length).toBe(5);
  });

  test('security 6: are what they are at one process, whatever comes where', async () => {
    const clock = { ms: 1e12 };
    const random = seededRandom(20_261_126);
    const shared = (await processes(3, clock)).map(({ limits }) => limits);
    const single = new SignInLimits(() => clock.ms);
    const emails = ['a@example.com', 'b@example.com'].map(requireEmail);
    for (let step = 0; step < sized(100, 300); step += 1) {
      const email = emails[random(2)] ?? OWNER;
      const [net, host] = [random(2), random(3)];
      const networks = [`10.${net}.0.${host}`, `10.${net}.0.0/24`, '10.0.0.0/8'];
      const how = random(4) === 0 ? 'admitCode' : 'admit';
      const attempt = await shared[random(3)]?.[how](email, networks);
      const expected = single[how](email, networks);
      if (typeof expected === 'number' || typeof attempt !== 'object')
        expect(attempt, `step ${step}`).toBe(expected);
      else {
        expect([attempt.isKnown, attempt.failures]).toEqual([expected.isKnown, expected.failures]);
        const end =
          (['succeeded', 'passedFirst', 'notChecked', null, null, null] as const)[random(6)] ?? null;
        if (end !== null) {
          await attempt[end]();
          expected[end]();
        }
      }
      clock.ms += random(20) === 0 ? random(2 * HOUR_MS) : random(3_000);
    }
  });

  test('go on as they were seen last while Redis is gone, and are joined when it is back, empty', async () => {
    const clock = { ms: 1e12 };
    const two = await processes(2, clock);
    const [one, other] = two.map(({ limits }) => limits);
    for (let attempt = 0; attempt < 4; attempt += 1)
      expect(isAdmitted((await one?.admit(OWNER, HOME)) ?? 0)).toBe(true);
    expect(isAdmitted((await other?.admit(OWNER, HOME)) ?? 0)).toBe(true);
    await redis.kill();
    await until(() => two.every(({ shared }) => !shared.isShared), 'Redis is found to be gone');
    // The one has not seen the last attempt, the other has seen all.
    expect(isAdmitted((await one?.admit(OWNER, HOME)) ?? 0)).toBe(true);
    expect(await other?.admit(OWNER, HOME)).toBe(1_000);
    clock.ms += 1_000;
    expect(isAdmitted((await other?.admit(OWNER, HOME)) ?? 0)).toBe(true);
    await redis.run();
    await until(() => two.every(({ shared }) => shared.isShared), 'Redis is back');
    // Of the other's last attempt nobody else knows until the other comes.
    expect(isAdmitted((await one?.admit(OWNER, HOME)) ?? 0)).toBe(true);
    expect([await other?.admit(OWNER, HOME), await one?.admit(OWNER, HOME)]).toEqual([2_000, 2_000]);
  });

  test('make nobody wait for longer where the clock of Redis is set back', async () => {
    const clock = { ms: 1e12 };
    const time = { ms: 1e12 };
    prefixes += 1;
    const shared = await SharedLimits.start({
      ...{ url: redis.url, prefix: `test:{back ${prefixes}}`, timeoutMs: 5_000, log: captured([]) },
      now: () => clock.ms,
      redisTime: () => time.ms * 1_000,
    });
    open.push(shared);
    const limits = new SharedSignInLimits(new SignInLimits(() => clock.ms), shared.records().share, KEY);
    for (let attempt = 0; attempt < 5; attempt += 1) await limits.admit(OWNER, HOME);
    time.ms -= 24 * HOUR_MS;
    expect(await limits.admit(OWNER, HOME)).toBe(1_000);
    clock.ms += 1_000;
    time.ms += 1_000;
    expect(isAdmitted(await limits.admit(OWNER, HOME))).toBe(true);
  });

  test('have names that tell nobody who signs in from where, and leave after an hour', async () => {
    const [one] = await processes(1, { ms: 1e12 });
    await one?.limits.admit(OWNER, HOME);
    const keys = (await redis.cli('keys', `*sign-ins ${prefixes}}:sign-in:*`)).split('\n');
    // Of pair and client in three networks each, and of the account.
    expect(keys.length).toBe(7);
    for (const key of keys) expect(key).toMatch(/:sign-in:[\w-]{22}$/);
    expect((await redis.cli('mget', ...keys)).split('\n')).toEqual(keys.map(() => '1 1000000000000'));
    const left = "return {redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[7])}";
    for (const ms of (await redis.cli('eval', left, '7', ...keys)).split('\n').map(Number)) {
      expect(ms).toBeGreaterThan(0);
      expect(ms).toBeLessThanOrEqual(HOUR_MS);
    }
  });
});
