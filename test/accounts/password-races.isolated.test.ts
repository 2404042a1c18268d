/** What happens to a password while something else is changing it. Races are decided by a gate and by locks, not by luck. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { gate, gatedArgon2 } from '../support/argon2-gate.ts';
import { linkIn, type Mailbox, openMailbox } from '../support/mailbox.ts';
import { newPerson, PASSWORD, Person, type Reply } from '../support/person.ts';
import { reserved } from '../support/reserved.ts';
import { startTestService, TestClock, type TestService, until } from '../support/service.ts';

vi.mock('@node-rs/argon2', async (original) => gatedArgon2(await original()));
// With many cores two hashes are computed at once, with few one: what is held must not hold up the rest.
vi.mock('node:os', async (original) => ({ ...(await original<object>()), availableParallelism: () => 4 }));

const SECOND = 'a second good password';
const THIRD = 'a third and better password';
const HOUR_MS = 3_600_000;

let service: TestService;
let mailbox: Mailbox;
let clock: TestClock;
let counter = 0;
const anEmail = (): string => `race-${++counter}@example.com`;

beforeAll(async () => {
  mailbox = await openMailbox();
  clock = new TestClock();
  const config = { SMTP_URL: mailbox.url, PUBLIC_URL: 'http://events.example.com', TRUST_PROXY: 1 };
  service = await startTestService({ clock, config });
});
afterEach(() => gate.open());
afterAll(async () => {
  await service.stop();
  await mailbox.close();
});

const from = (address: string) => ({ headers: { 'X-Forwarded-For': address } });
const signIn = (person: Person, email: string, password: string, address = '192.0.2.1'): Promise<Reply> =>
  person.post('/api/session', { email, password }, from(address));
const change = (person: Person, currentPassword: string, newPassword: string): Promise<Reply> =>
  person.post('/api/password', { currentPassword, newPassword }, from('192.0.2.1'));

/** A link for a reset, as it comes by mail. */
async function resetPath(email: string): Promise<string> {
  const before = mailbox.mails.length;
  await new Person(service).post('/api/password-resets', { email }, from(`198.51.100.${++counter}`));
  await until(() => mailbox.mails.slice(before).some(({ to }) => to === email), `a mail for ${email}`);
  const token = linkIn(mailbox.mails.findLast(({ to }) => to === email))
    .split('/')
    .at(-1);
  return `/api/password-resets/${token}`;
}

/** Starts work and holds the next check or hash of a password once it is computed. In an array: a promise would be awaited. */
async function heldAt(password: string, work: () => Promise<Reply>): Promise<Promise<Reply>[]> {
  let holds = true;
  gate.holds = (one) => {
    if (one !== password || !holds) return false;
    holds = false;
    return true;
  };
  const reply = work();
  await until(() => gate.held.length > 0, 'the check to be held');
  return [reply];
}

async function sessionsOf(email: string): Promise<number> {
  const [row] = await service.sql<{ count: number }[]>`
    SELECT count(*)::integer AS count FROM sessions JOIN users ON users.id = user_id WHERE email = ${email}`;
  return row?.count ?? 0;
}

describe('the password is changed', () => {
  test('while a sign-in with the old one is in flight: no session for the old one survives', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    const thief = new Person(service);
    const [late] = await heldAt(PASSWORD, () => signIn(thief, email, PASSWORD));
    expect((await change(owner, PASSWORD, SECOND)).status).toBe(200);
    gate.open();
    expect(await late).toMatchObject({ status: 401, code: 'SIGN_IN_FAILED' });
    expect((await thief.get('/api/session')).data.user).toBeNull();
    expect((await owner.get('/api/session')).data.user).not.toBeNull();
    expect(await sessionsOf(email)).toBe(1);
  });

  test('by two changes at once: one succeeds, the other learns that the password has changed', async () => {
    const email = anEmail();
    const first = await newPerson(service, email);
    const second = await new Person(service).signIn(email);
    const [late] = await heldAt(SECOND, () => change(first, PASSWORD, SECOND));
    expect((await change(second, PASSWORD, THIRD)).status).toBe(200);
    gate.open();
    expect(await late).toMatchObject({ status: 403, code: 'WRONG_PASSWORD' });
    expect((await first.get('/api/session')).data.user).toBeNull();
    await new Person(service).signIn(email, THIRD);
    expect((await signIn(new Person(service), email, SECOND)).status).toBe(401);
  });

  test('by a transaction that has not committed yet: a sign-in waits for it', async () => {
    const email = anEmail();
    await newPerson(service, email);
    const changing = await reserved(service.sql);
    await changing`BEGIN`;
    await changing`UPDATE users SET password_hash = 'another one' WHERE email = ${email}`;
    await changing`DELETE FROM sessions WHERE user_id = (SELECT id FROM users WHERE email = ${email})`;
    const [me] = await changing<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
    const pid = me?.pid ?? 0;
    let isAnswered = false;
    const reply = signIn(new Person(service), email, PASSWORD).finally(() => {
      isAnswered = true;
    });
    const isWaiting = async (): Promise<boolean> => {
      const rows = await service.sql`
        SELECT FROM pg_stat_activity WHERE ${pid} = ANY(pg_blocking_pids(pid)) AND query LIKE '%FOR SHARE%'`;
      return rows.length > 0;
    };
    await until(async () => isAnswered || (await isWaiting()), 'the sign-in to wait for the change');
    expect(isAnswered).toBe(false);
    await changing`COMMIT`;
    changing.release();
    expect((await reply).status).toBe(401);
    expect(await sessionsOf(email)).toBe(0);
  });
});

describe('a reset by a mailed link', () => {
  test('is not overwritten by a change that was in flight', async () => {
    const email = anEmail();
    const thief = await newPerson(service, email);
    const path = await resetPath(email);
    const [late] = await heldAt(PASSWORD, () => change(thief, PASSWORD, SECOND));
    expect((await new Person(service).post(path, { password: THIRD })).status).toBe(200);
    gate.open();
    expect(await late).toMatchObject({ status: 403, code: 'WRONG_PASSWORD' });
    expect((await signIn(new Person(service), email, SECOND)).status).toBe(401);
    expect(await sessionsOf(email)).toBe(0);
    await new Person(service).signIn(email, THIRD);
  });

  test('prevails over a change that was made while it was in flight', async () => {
    const email = anEmail();
    const thief = await newPerson(service, email);
    const path = await resetPath(email);
    const [late] = await heldAt(THIRD, () => new Person(service).post(path, { password: THIRD }));
    expect((await change(thief, PASSWORD, SECOND)).status).toBe(200);
    gate.open();
    expect((await late)?.status).toBe(200);
    expect((await thief.get('/api/session')).data.user).toBeNull();
    expect((await signIn(new Person(service), email, SECOND)).status).toBe(401);
    await new Person(service).signIn(email, THIRD);
  });

  test('ends a sign-in with the old password that was in flight', async () => {
    const email = anEmail();
    await newPerson(service, email);
    const path = await resetPath(email);
    const [late] = await heldAt(PASSWORD, () => signIn(new Person(service), email, PASSWORD));
    expect((await new Person(service).post(path, { password: THIRD })).status).toBe(200);
    gate.open();
    expect((await late)?.status).toBe(401);
    expect(await sessionsOf(email)).toBe(0);
  });

  test('works however often a thief has set the password to itself since the link was mailed', async () => {
    const email = anEmail();
    const thief = await newPerson(service, email);
    const path = await resetPath(email);
    for (let i = 0; i < 3; i++) expect((await change(thief, PASSWORD, PASSWORD)).status).toBe(200);
    expect((await new Person(service).post(path, { password: THIRD })).status).toBe(200);
    expect((await thief.get('/api/session')).data.user).toBeNull();
    await new Person(service).signIn(email, THIRD);
  });

  test('ends the other links for a reset; of two at once one succeeds', async () => {
    const email = anEmail();
    await newPerson(service, email);
    const paths = [await resetPath(email), await resetPath(email)];
    const held: Promise<Reply>[] = [];
    gate.holds = (password) => password === SECOND || password === THIRD;
    for (const [i, path] of paths.entries())
      held.push(new Person(service).post(path, { password: [SECOND, THIRD][i] }));
    await until(() => gate.held.length === 2, 'both to be held');
    gate.open();
    const replies = await Promise.all(held);
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 404]);
    const winner = replies.findIndex(({ status }) => status === 200);
    await new Person(service).signIn(email, [SECOND, THIRD][winner]);
  });
});

describe('successful changes', () => {
  test('are limited for an account, from whatever address, and again after an hour; a reset is not', async () => {
    const email = anEmail();
    const thief = await newPerson(service, email);
    const statuses: number[] = [];
    for (let i = 0; i < 14; i++) {
      const asking = from(`203.0.113.${i}`);
      const body = { currentPassword: PASSWORD, newPassword: PASSWORD };
      statuses.push((await thief.post('/api/password', body, asking)).status);
    }
    expect(statuses).toEqual([...Array(10).fill(200), ...Array(4).fill(429)]);
    const refused = await change(thief, PASSWORD, PASSWORD);
    expect(refused).toMatchObject({ status: 429, code: 'TOO_MANY_ATTEMPTS' });
    expect(refused.headers['retry-after']).toBe('60');
    clock.advance(59_000);
    expect((await change(thief, PASSWORD, PASSWORD)).status).toBe(429);
    clock.advance(1_000);
    expect((await change(thief, PASSWORD, PASSWORD)).status).toBe(200);
    expect((await change(thief, PASSWORD, PASSWORD)).headers['retry-after']).toBe('120');

    const path = await resetPath(email);
    expect((await new Person(service).post(path, { password: THIRD })).status).toBe(200);
    const owner = await new Person(service).signIn(email, THIRD);
    expect((await change(owner, THIRD, SECOND)).status).toBe(200);
    clock.advance(HOUR_MS);
    expect((await change(owner, SECOND, THIRD)).status).toBe(200);
  });

  test('are not counted where the current password was wrong', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    for (let i = 0; i < 20; i++) await change(owner, 'not the password', SECOND);
    clock.advance(60_000);
    for (let i = 0; i < 10; i++) expect((await change(owner, PASSWORD, PASSWORD)).status).toBe(200);
  });
});
