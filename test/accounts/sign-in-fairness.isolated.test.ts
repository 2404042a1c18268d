/** Sign-ins while others guess: who pays for password hashes, and that the owner gets in. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { gate, gatedArgon2 } from '../support/argon2-gate.ts';
import { Exposition } from '../support/exposition.ts';
import { HttpConnection } from '../support/http-client.ts';
import { newPerson, PASSWORD, Person, type Reply } from '../support/person.ts';
import { startTestService, TestClock, type TestService, until } from '../support/service.ts';

vi.mock('@node-rs/argon2', async (original) => gatedArgon2(await original()));
// With many cores two hashes are computed at once, with few one.
vi.mock('node:os', async (original) => ({ ...(await original<object>()), availableParallelism: () => 4 }));
const HASHES_AT_ONCE = 2;

const MINUTE_MS = 60_000;

let service: TestService;
let clock: TestClock;
let counter = 0;
const anEmail = (): string => `fair-${++counter}@example.com`;

beforeAll(async () => {
  clock = new TestClock();
  service = await startTestService({ clock, config: { TRUST_PROXY: 1 } });
});
afterEach(async () => {
  gate.open();
  gate.isCheap = () => false;
  // What was counted in one test is forgotten in the next.
  clock.advance(2 * 60 * MINUTE_MS);
});
afterAll(() => service.stop());

const attempt = (email: string, password: string, address: string): Promise<Reply> =>
  new Person(service).post('/api/session', { email, password }, { headers: { 'X-Forwarded-For': address } });

async function metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  const { body } = await service.request({ path: '/metrics' });
  return new Exposition(body).value(name, labels);
}

/** Attempts that are in flight: all of them have been admitted, refused or put in a queue. */
async function inFlight(count: number, one: (i: number) => Promise<Reply>): Promise<Promise<Reply>[]> {
  let answered = 0;
  const replies = Array.from({ length: count }, (_, i) => one(i).finally(() => (answered += 1)));
  const isSettled = async (): Promise<boolean> =>
    answered + gate.held.length + (await metric('tidemark_password_hashes_waiting')) === count;
  await until(isSettled, 'all attempts to wait or be answered');
  return replies;
}

describe('security 6: with 240 attempts in flight from 12 addresses', () => {
  const flood = (): Promise<Promise<Reply>[]> =>
    inFlight(240, (i) => attempt(anEmail(), 'a wrong password', `192.0.2.${i % 12}`));

  /** Lets checks end one by one, until the owner's begins. */
  const turnsUntilOwner = async (): Promise<number> => {
    for (let turns = 1; ; turns++) {
      const before = gate.checked.length;
      gate.releaseOne();
      await until(() => gate.checked.length > before, 'the next turn');
      if (gate.checked.at(-1) === PASSWORD) return turns;
    }
  };

  test('the owner at a new address is not refused, and waits for one turn of each of them at most', async () => {
    const email = anEmail();
    await newPerson(service, email);
    gate.holds = () => true;
    gate.isCheap = (password) => password !== PASSWORD;
    const replies = await flood();
    const waiting = await metric('tidemark_password_hashes_waiting');
    const crowded = () => metric('tidemark_password_hashes_total', { outcome: 'crowded' });
    const before = await crowded();
    let reply: Reply | null = null;
    const owner = attempt(email, PASSWORD, '203.0.113.1').then((one) => {
      reply = one;
      return one;
    });
    await until(
      async () => (await crowded()) === before + 1,
      'the owner to wait, or another one to leave for it',
    );
    expect(reply).toBeNull();
    expect(await metric('tidemark_password_hashes_waiting')).toBe(waiting);
    expect(await turnsUntilOwner()).toBeLessThanOrEqual(12 + HASHES_AT_ONCE);
    gate.open();
    expect((await owner).status).toBe(200);
    const statuses = (await Promise.all(replies)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([401, 429]));
  });

  test('each address has the same share of the places', async () => {
    gate.holds = () => true;
    gate.isCheap = () => true;
    const replies = await flood();
    gate.open();
    const checked = new Map<number, number>();
    for (const [i, reply] of (await Promise.all(replies)).entries())
      if (reply.status === 401) checked.set(i % 12, (checked.get(i % 12) ?? 0) + 1);
    const shares = [...checked.values()];
    expect(checked.size).toBe(12);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(2);
  });

  test('an account at an address that it has signed in from has the next turn but one', async () => {
    const email = anEmail();
    await newPerson(service, email);
    expect((await attempt(email, PASSWORD, '192.0.2.3')).status).toBe(200);
    gate.holds = () => true;
    gate.isCheap = (password) => password !== PASSWORD;
    const replies = await flood();
    const owner = attempt(email, PASSWORD, '192.0.2.3');
    const waiting = await metric('tidemark_password_hashes_waiting');
    await until(
      async () => (await metric('tidemark_password_hashes_waiting')) >= waiting,
      'the owner to wait',
    );
    expect(await turnsUntilOwner()).toBeLessThanOrEqual(3);
    gate.open();
    expect((await owner).status).toBe(200);
    await Promise.all(replies);
  });

  test('the log says so, once a minute', async () => {
    const lines = () => service.log.filter(({ msg }) => String(msg).startsWith('passwords: hashes refused'));
    const before = lines().length;
    gate.holds = () => true;
    gate.isCheap = () => true;
    const replies = await flood();
    gate.open();
    await Promise.all(replies);
    expect(lines().length).toBe(before + 1);
    expect(lines().at(-1)).toMatchObject({ level: 'warn', waiting: 150 });
  });
});

describe('security 6: IPv6', () => {
  test('1,024 networks of one /54 have few attempts, and a neighbor in the same /48 still has its own', async () => {
    gate.isCheap = (password) => password !== PASSWORD;
    const owner = anEmail();
    await newPerson(service, owner);
    const before = gate.checked.length;
    const statuses = new Map<number, number>();
    for (let start = 0; start < 1_024; start += 64) {
      const replies = await Promise.all(
        Array.from({ length: 64 }, (_, i) =>
          attempt(anEmail(), 'a wrong password', `2001:db8:7:${(0x3000 + start + i).toString(16)}::1`),
        ),
      );
      for (const { status } of replies) statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
    expect([...statuses.keys()].sort()).toEqual([401, 429]);
    expect(gate.checked.length - before).toBeLessThanOrEqual(200);
    expect((await attempt(owner, PASSWORD, '2001:db8:7:4000::1')).status).toBe(200);
    expect((await attempt(owner, PASSWORD, '2001:db8:8::1')).status).toBe(200);
  });

  test('a household that takes another /64 of its /56 for each attempt is slowed down like one address', async () => {
    gate.isCheap = () => true;
    const statuses: number[] = [];
    for (let i = 0; i < 256; i++) {
      const address = `2001:db8:9:${(0x100 + i).toString(16)}::1`;
      statuses.push((await attempt(anEmail(), 'a wrong password', address)).status);
    }
    expect(statuses.filter((status) => status === 401)).toHaveLength(12);
  });
});

describe('security 6: an account at which 20 addresses guess without a pause', () => {
  /** Every second each guesser tries, before the owner does. */
  async function ownerGetsIn(guesser: (i: number, second: number) => string, owner: string): Promise<number> {
    gate.isCheap = (password) => password !== PASSWORD;
    const email = anEmail();
    await newPerson(service, email);
    const guess = (second: number) =>
      Promise.all(
        Array.from({ length: 20 }, (_, i) => attempt(email, `guess ${second}`, guesser(i, second))),
      );
    for (let second = 0; second < 20; second++) {
      await guess(second);
      clock.advance(1_000);
    }
    // The owner comes when it was told to come, and not earlier.
    let next = 0;
    for (let second = 0; second <= 60; second++) {
      await guess(20 + second);
      if (second >= next) {
        const { status, headers } = await attempt(email, PASSWORD, owner);
        if (status === 200) return second;
        expect(status).toBe(429);
        next = second + Number(headers['retry-after']);
      }
      clock.advance(1_000);
    }
    throw new Error('The owner was kept out for a minute.');
  }

  test('lets its owner in at a new address within a minute', async () => {
    expect(await ownerGetsIn((i) => `192.0.2.${i}`, '203.0.113.9')).toBeLessThan(60);
  });

  test('also where each of them comes again, one after the other', async () => {
    const later = (i: number, second: number) => (second - 20 >= i ? `192.0.2.${i}` : `198.51.100.${i}`);
    expect(await ownerGetsIn(later, '203.0.113.10')).toBeLessThan(60);
  });

  test('also where they are networks of a /48 and change them with every attempt', async () => {
    const any = (i: number, second: number) =>
      `2001:db8:a:${((i * 997 + second * 31) % 65_536).toString(16)}::1`;
    expect(await ownerGetsIn(any, '203.0.113.11')).toBeLessThan(60);
  });
});

test('a client that has left before its turn costs no hash', async () => {
  gate.holds = () => true;
  gate.isCheap = () => true;
  const held = await inFlight(HASHES_AT_ONCE, (i) =>
    attempt(anEmail(), 'a wrong password', `198.51.100.${i}`),
  );
  const before = gate.checked.length;
  const connections = await Promise.all(
    Array.from({ length: 5 }, async (_, i) => {
      const connection = await HttpConnection.open(service.port);
      await connection.send({
        method: 'POST',
        path: '/api/session',
        headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': `198.51.101.${i}` },
        body: JSON.stringify({ email: anEmail(), password: 'a wrong password' }),
      });
      return connection;
    }),
  );
  await until(async () => (await metric('tidemark_password_hashes_waiting')) === 5, 'all to wait');
  const aborted = await metric('tidemark_requests_aborted_total');
  for (const connection of connections) connection.destroy();
  await until(async () => (await metric('tidemark_requests_aborted_total')) === aborted + 5, 'all to leave');
  gate.open();
  await Promise.all(held);
  await until(
    async () => (await metric('tidemark_password_hashes_total', { outcome: 'left' })) === 5,
    'all to go',
  );
  expect(gate.checked.length).toBe(before);
});

test('a sign-in that waits for more than ten seconds is refused and may be retried', async () => {
  gate.holds = () => true;
  gate.isCheap = () => true;
  const held = await inFlight(HASHES_AT_ONCE + 1, (i) =>
    attempt(anEmail(), 'a wrong password', `198.51.102.${i}`),
  );
  clock.advance(10_001);
  gate.open();
  const statuses = (await Promise.all(held)).map(({ status }) => status);
  expect(statuses.sort()).toEqual([...Array(HASHES_AT_ONCE).fill(401), 503]);
});
