import { parseOptions } from '@node-rs/argon2';
import { ZxcvbnFactory } from '@zxcvbn-ts/core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { requireEmail } from '../../../src/accounts/people/email.ts';
import { Passwords, passwordProblem } from '../../../src/accounts/sign-in/passwords.ts';
import { newPerson, PASSWORD, Person, type Reply } from '../../support/person.ts';
import { startTestService, TestClock, type TestService } from '../../support/service.ts';

const email = requireEmail('somebody@example.com');
let counter = 0;
const anEmail = (): string => `password-${++counter}@example.com`;

describe('security 5: passwords', () => {
  test('are hashed by argon2id with at least 19456 KiB, two passes and one lane', async () => {
    const hashed = await new Passwords().hash('a good password');
    expect(hashed).toMatch(/^\$argon2id\$/);
    const { memoryCost, timeCost, parallelism } = parseOptions(hashed);
    expect(memoryCost).toBeGreaterThanOrEqual(19_456);
    expect(timeCost).toBeGreaterThanOrEqual(2);
    expect(parallelism).toBe(1);
  });

  test('count in full: byte 73 tells two of 64 and more characters apart', async () => {
    const passwords = new Passwords();
    const long = 'é'.repeat(36) + 'x'.repeat(40);
    expect(await passwordProblem(long, email)).toBeNull();
    const hashed = await passwords.hash(long);
    expect(await passwords.matches(long, hashed)).toBe(true);
    expect(await passwords.matches(`${'é'.repeat(36)}y${'x'.repeat(39)}`, hashed)).toBe(false);
    expect(await passwords.matches(long.slice(0, -1), hashed)).toBe(false);
  });

  test('are never refused for their composition', async () => {
    for (const password of [
      ...['aaaaaaaaaaaaaaa', '111111111111111', 'all lower case', 'correct horse battery'],
      ...['пароль-на-кириллице', ' '.repeat(15), 'somebody@example.com1'],
    ])
      expect(await passwordProblem(password, email), password).toBeNull();
  });

  test('are refused where they are among the most common', async () => {
    for (const password of [
      ...['password', 'Password1', '12345678', 'QWERTYUIOP', 'iloveyou', 'letmein123', 'passwordpassword'],
    ])
      expect(await passwordProblem(password, email), password).toContain('most common');
  });

  test('of less than 15 characters are refused where a guesser comes to them soon', async () => {
    for (const password of ['P@ssw0rd!1', 'Monkey1234', 'aaaaaaaaaaaaaa', 'abcdefgh1234', '19841984'])
      expect(await passwordProblem(password, email), password).toContain('too easy to guess');
    // The address, or the product, with little added.
    for (const password of ['somebody1', 'Example2026', 'tidemark123']) {
      expect(await passwordProblem(password, email), password).toContain('too easy to guess');
      expect(await passwordProblem(`${password} but longer`, email), password).toBeNull();
    }
    for (const password of ['mouse-pad-29', 'x7Gq!92k', 'a new password', 'ключ от дома', '窓の外は雨だった'])
      expect(await passwordProblem(password, email), password).toBeNull();
  });

  test('are refused below eight characters, beyond 1,000, and as the email itself', async () => {
    expect(await passwordProblem('1234567', email)).toContain('at least 8');
    expect(await passwordProblem('🛒'.repeat(7), email)).toContain('at least 8');
    expect(await passwordProblem('x'.repeat(1_001), email)).toContain('at most 1000');
    expect(await passwordProblem('Somebody@Example.com', email)).toContain('email');
  });

  test('of any length are never rated beyond 14 characters, whose time grows with their square and worse', async () => {
    const rated: number[] = [];
    vi.spyOn(ZxcvbnFactory.prototype, 'check').mockImplementation((password) => {
      rated.push([...password].length);
      throw new Error('rated');
    });
    try {
      for (const part of ['1', 'ab', '4@8({[<3', '!1|iIl', 'é'])
        for (const length of [15, 100, 1_000])
          expect(await passwordProblem(part.repeat(1_000).slice(0, length), email)).toBeNull();
      expect(rated).toEqual([]);
      await expect(passwordProblem('1'.repeat(14), email)).rejects.toThrow('rated');
    } finally {
      vi.restoreAllMocks();
    }
  });
});

describe('security 6: guessing', () => {
  let service: TestService;
  let clock: TestClock;
  beforeAll(async () => {
    clock = new TestClock();
    // Behind one trusted proxy, so that a test can be many clients.
    service = await startTestService({ clock, config: { TRUST_PROXY: 1 } });
  });
  afterAll(() => service.stop());

  const attempt = (who: string, password: string, address: string): Promise<Reply> =>
    new Person(service).post(
      '/api/session',
      { email: who, password },
      { headers: { 'X-Forwarded-For': address } },
    );

  test('wrong passwords for an account are slowed down; its owner gets in elsewhere at once, and here after a wait', async () => {
    const who = anEmail();
    await newPerson(service, who);
    expect((await attempt(who, PASSWORD, '192.0.2.1')).status).toBe(200);
    const replies: Reply[] = [];
    for (let i = 0; i < 20; i++) replies.push(await attempt(who, `wrong ${i}`, '192.0.2.66'));
    expect(replies.filter(({ status }) => status === 401)).toHaveLength(5);
    const last = replies.at(-1);
    expect(last).toMatchObject({ status: 429, code: 'TOO_MANY_ATTEMPTS' });
    expect((await attempt(who, PASSWORD, '192.0.2.1')).status).toBe(200);
    expect((await attempt(who, PASSWORD, '192.0.2.66')).status).toBe(429);
    clock.advance(Number(last?.headers['retry-after']) * 1_000);
    expect((await attempt(who, PASSWORD, '192.0.2.66')).status).toBe(200);
  });

  test('the wait doubles with every attempt, and is never more than a minute', async () => {
    const who = anEmail();
    await newPerson(service, who);
    const waits: number[] = [];
    for (let i = 0; i < 40; i++) {
      const { status, headers } = await attempt(who, 'wrong', '198.51.100.7');
      if (status !== 429) continue;
      waits.push(Number(headers['retry-after']));
      clock.advance(Number(headers['retry-after']) * 1_000);
    }
    expect(waits.slice(0, 8)).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    expect((await attempt(who, PASSWORD, '203.0.113.9')).status).toBe(200);
  });

  test('wrong passwords from one address for as many accounts are slowed down', async () => {
    const statuses: number[] = [];
    for (let i = 0; i < 40; i++)
      statuses.push((await attempt(anEmail(), 'wrong password', '192.0.2.99')).status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(20);
  });

  test('an account that is attacked from many addresses is slowed down, except for addresses that have signed in before', async () => {
    const who = anEmail();
    await newPerson(service, who);
    expect((await attempt(who, PASSWORD, '192.0.2.2')).status).toBe(200);
    const statuses: number[] = [];
    for (let i = 0; i < 100; i++) statuses.push((await attempt(who, 'wrong', `203.0.113.${i}`)).status);
    expect(statuses).toContain(429);
    expect((await attempt(who, PASSWORD, '203.0.113.200')).status).toBe(429);
    expect((await attempt(who, PASSWORD, '192.0.2.2')).status).toBe(200);
    clock.advance(10_000);
    expect((await attempt(who, PASSWORD, '203.0.113.200')).status).toBe(200);
  });

  test('many sign-ins at once are all answered, and take the memory of two', async () => {
    const people = Array.from({ length: 24 }, anEmail);
    await Promise.all(people.slice(0, 5).map((who) => newPerson(service, who)));
    const before = process.memoryUsage().rss;
    let peak = before;
    const watch = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().rss);
    }, 2);
    const replies = await Promise.all(people.map((who, i) => attempt(who, PASSWORD, `10.0.${i}.1`)));
    clearInterval(watch);
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(replies.filter(({ status }) => status === 401)).toHaveLength(19);
    // All at once would take 450 MiB.
    expect(peak - before).toBeLessThan(200 * 1_048_576);
  });
});
