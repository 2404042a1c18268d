/** Codes as a second factor: setting up, signing in, guessing, losing the phone; and the mails that tell the owner. */
import decodeQR from 'qr/decode.js';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Notices } from '../../src/accounts/mail/notices.ts';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { removeSecondFactorOf } from '../../src/accounts/sign-in/second-factors.ts';
import { SignInChallenges } from '../../src/accounts/sign-in/sign-in-challenge.ts';
import { type AdmittedAttempt, SignInLimits } from '../../src/accounts/sign-in/sign-in-limits.ts';
import {
  CODE_EVERY_MS,
  challengeFor,
  codeAt,
  newProtected,
  signInWithCode,
} from '../support/authenticator.ts';
import { linkIn, type Mailbox, openMailbox } from '../support/mailbox.ts';
import { newOwnApp, newPerson, PASSWORD, Person, type Reply } from '../support/person.ts';
import { reserved } from '../support/reserved.ts';
import { startTestService, TestClock, type TestService, testSecret, until } from '../support/service.ts';

// A hundred sign-ins: what they cost is the business of other tests.
vi.mock('@node-rs/argon2', async (original) =>
  (await import('../support/cheap-argon2.ts')).cheapArgon2(await original()),
);

const SECOND = 'a second good password';
const MINUTE_MS = 60_000;
const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0';
const SAFARI =
  'Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1';

let service: TestService;
let mailbox: Mailbox;
let clock: TestClock;
let counter = 0;
const anEmail = (): string => `factor-${++counter}@example.com`;
/** Every test has addresses of its own: what one has counted does not delay another one. */
const anAddress = (): string => `198.51.${Math.floor(++counter / 250)}.${counter % 250}`;

const settings = () => ({ SMTP_URL: mailbox.url, PUBLIC_URL: 'http://events.example.com', TRUST_PROXY: 1 });
beforeAll(async () => {
  mailbox = await openMailbox();
  clock = new TestClock();
  service = await startTestService({ clock, config: settings() });
});
afterAll(async () => {
  await service.stop();
  await mailbox.close();
});

const whoIs = async (person: Person): Promise<unknown> => (await person.get('/api/session')).data.user;
const stateOf = async (person: Person): Promise<Record<string, unknown>> =>
  (await person.get('/api/second-factor')).data;
const bySomebodyAt = (address: string) => ({ 'X-Forwarded-For': address });
const mailsTo = (email: string): readonly string[] =>
  [...mailbox.mails, ...mailbox.notices].filter(({ to }) => to === email).map(({ text }) => text);

async function mailTo(email: string, subject: string): Promise<string> {
  const find = () => mailsTo(email).find((text) => text.includes(`Subject: ${subject}`));
  await until(() => find() !== undefined, `the mail "${subject}" to ${email}`);
  return find() ?? '';
}

/** Waits for a statement that the connection with this id holds up. */
const isBlockedBy = async (pid: number): Promise<boolean> =>
  (await service.sql`SELECT FROM pg_stat_activity WHERE ${pid} = ANY(pg_blocking_pids(pid))`).length > 0;

/** Holds the account's row, does the work up to it, changes the account, and lets the work go on. */
async function overtaken(
  email: string,
  work: () => Promise<Reply>,
  change: (sql: TestService['sql']) => Promise<unknown>,
): Promise<Reply> {
  const first = await reserved(service.sql);
  await first`BEGIN`;
  await first`SELECT FROM users WHERE email = ${email} FOR UPDATE`;
  const [me] = await first<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
  const reply = work();
  await until(() => isBlockedBy(me?.pid ?? 0), 'the request to wait for the account');
  await change(first);
  await first`COMMIT`;
  first.release();
  return await reply;
}

describe('setting up', () => {
  test('needs the password and a right code; until then a sign-in needs no code', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    expect(await owner.post('/api/second-factor', { password: 'not the password' })).toMatchObject({
      status: 403,
      code: 'WRONG_PASSWORD',
    });
    const begun = await owner.post('/api/second-factor', { password: PASSWORD });
    expect(begun.status).toBe(201);
    const secret = String(begun.data.secret);
    const wrong = codeAt(secret, clock.wall() + 10 * CODE_EVERY_MS);
    expect(await owner.post('/api/second-factor/confirmation', { code: wrong })).toMatchObject({
      status: 403,
      code: 'WRONG_CODE',
    });
    expect(await stateOf(owner)).toEqual({
      enabledAt: null,
      recoveryCodesLeft: 0,
      recoveryCodeNeeded: false,
    });
    expect(await whoIs(await new Person(service).signIn(email))).toMatchObject({ email });
    const code = codeAt(secret, clock.wall());
    const confirmed = await owner.post('/api/second-factor/confirmation', {
      code: `${code.slice(0, 3)} ${code.slice(3)}`,
    });
    expect(new Set(confirmed.data.recoveryCodes as string[]).size).toBe(10);
    expect(await stateOf(owner)).toEqual({
      enabledAt: new Date(clock.wall()).toISOString(),
      recoveryCodesLeft: 10,
      recoveryCodeNeeded: false,
    });
    expect(await owner.post('/api/second-factor', { password: PASSWORD })).toMatchObject({
      status: 409,
      code: 'SECOND_FACTOR_ON',
    });
  });

  test('shows the secret as text, as the address of authenticator apps and as a QR code of it', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    const { secret, uri, qr } = (await owner.post('/api/second-factor', { password: PASSWORD })).data;
    const address = new URL(String(uri));
    expect(decodeURIComponent(address.pathname)).toMatch(
      new RegExp(`/Tidemark events[.]example[.]com:${email}$`),
    );
    expect(address.searchParams.get('secret')).toBe(secret);
    expect(String(secret)).toMatch(/^[A-Z2-7]{32}$/);
    expect(readQR(qr as { size: number; path: string })).toBe(uri);
  });

  test('ends after 15 minutes, and with the password', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    const begin = async () =>
      String((await owner.post('/api/second-factor', { password: PASSWORD })).data.secret);
    const late = await begin();
    clock.advance(15 * MINUTE_MS);
    const confirm = (secret: string) =>
      owner.post('/api/second-factor/confirmation', { code: codeAt(secret, clock.wall()) });
    expect(await confirm(late)).toMatchObject({ status: 409, code: 'SECOND_FACTOR_OFF' });
    const secret = await begin();
    expect(
      (await owner.post('/api/password', { currentPassword: PASSWORD, newPassword: SECOND })).status,
    ).toBe(200);
    expect(await confirm(secret)).toMatchObject({ status: 409, code: 'SECOND_FACTOR_OFF' });
  });

  test('ends all other sessions, which began without a code', async () => {
    const email = anEmail();
    await newPerson(service, email);
    const other = await new Person(service).signIn(email);
    const owner = await new Person(service).signIn(email);
    const secret = String((await owner.post('/api/second-factor', { password: PASSWORD })).data.secret);
    await owner.post('/api/second-factor/confirmation', { code: codeAt(secret, clock.wall()) });
    expect([await whoIs(other), await whoIs(owner)]).toEqual([null, expect.objectContaining({ email })]);
    // Nor does one last that a process of the release before starts meanwhile, which asks for no code.
    await service.sql`
      UPDATE sessions SET browser = NULL, created_at = enabled_at + interval '1 ms'
        FROM second_factors JOIN users ON users.id = second_factors.user_id
       WHERE sessions.user_id = users.id AND email = ${email}`;
    expect(await whoIs(owner)).toBeNull();
  });

  test('renews the session id: a cookie of the time before opens nothing', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    const secret = String((await owner.post('/api/second-factor', { password: PASSWORD })).data.secret);
    const thief = new Person(service);
    thief.cookie = owner.cookie;
    expect(await whoIs(thief)).toMatchObject({ email });
    const code = codeAt(secret, clock.wall());
    expect((await owner.post('/api/second-factor/confirmation', { code })).status).toBe(200);
    expect(owner.cookie).not.toBe(thief.cookie);
    expect([await whoIs(thief), await whoIs(owner)]).toEqual([null, expect.objectContaining({ email })]);
  });

  test('a sign-in that was under way when it was turned on needs a code too', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    await owner.post('/api/second-factor', { password: PASSWORD });
    const reply = await overtaken(
      email,
      () => new Person(service).post('/api/session', { email, password: PASSWORD }),
      (sql) =>
        sql`UPDATE second_factors SET enabled_at = now() WHERE user_id = (SELECT id FROM users WHERE email = ${email})`,
    );
    expect(reply.status).toBe(202);
    expect(reply.headers['set-cookie']).toBeUndefined();
  });

  test('security 9: the database has neither the secret nor a recovery code, and a secret opens for its account alone', async () => {
    const mine = await newProtected(service, clock, anEmail());
    const other = await newProtected(service, clock, anEmail());
    const rows = await service.sql<{ text: string; hex: string }[]>`
      SELECT row_to_json(f)::text AS text, encode(sealed, 'escape') AS hex FROM second_factors AS f
       UNION ALL SELECT row_to_json(c)::text, encode(digest, 'escape') FROM recovery_codes AS c`;
    expect(rows.length).toBeGreaterThanOrEqual(22);
    const stored = rows.map(({ text, hex }) => text + hex).join('\n');
    for (const secret of [mine.secret, ...mine.recoveryCodes.map((code) => code.replaceAll('-', ''))])
      expect(stored).not.toContain(secret);
    const userId = (email: string) => service.sql`(SELECT id FROM users WHERE email = ${email})`;
    await service.sql`
      UPDATE second_factors SET sealed = (SELECT sealed FROM second_factors WHERE user_id = ${userId(other.email)})
       WHERE user_id = ${userId(mine.email)}`;
    clock.advance(CODE_EVERY_MS);
    const { reply } = await signInWithCode(service, mine.email, codeAt(other.secret, clock.wall()));
    expect(reply).toMatchObject({ status: 403, code: 'WRONG_CODE' });
    // What another SECRET has sealed cannot be read either; the recovery codes still work.
    expect((await signInWithCode(service, mine.email, mine.recoveryCodes[0] ?? '')).reply.status).toBe(200);
  });
});

describe('signing in', () => {
  test('takes a password, then a code; the first step gives no session', async () => {
    const { email, nextCode } = await newProtected(service, clock, anEmail());
    const person = new Person(service);
    const first = await person.post('/api/session', { email, password: PASSWORD });
    expect(first.status).toBe(202);
    expect(Object.keys(first.data)).toEqual(['challenge']);
    expect([first.headers['set-cookie'], await whoIs(person)]).toEqual([undefined, null]);
    const { challenge } = first.data;
    const intruder = new Person(service);
    intruder.cookie = `tidemark_session=${challenge}`;
    expect(await whoIs(intruder)).toBeNull();
    const second = await person.post('/api/session/code', { challenge, code: nextCode() });
    expect(second).toMatchObject({ status: 200, data: { user: { email }, recoveryCodesLeft: 10 } });
    expect(await whoIs(person)).toMatchObject({ email });
  });

  test('takes a code of the steps before and after, and no code a second time, nor an earlier one', async () => {
    const { email, secret } = await newProtected(service, clock, anEmail());
    clock.advance(4 * CODE_EVERY_MS);
    const now = clock.wall();
    const statusOf = async (at: number): Promise<number> =>
      (await signInWithCode(service, email, codeAt(secret, at), bySomebodyAt(anAddress()))).reply.status;
    expect(await statusOf(now - 2 * CODE_EVERY_MS)).toBe(403);
    expect(await statusOf(now + 2 * CODE_EVERY_MS)).toBe(403);
    expect(await statusOf(now - CODE_EVERY_MS)).toBe(200);
    expect(await statusOf(now - CODE_EVERY_MS)).toBe(403);
    expect(await statusOf(now + CODE_EVERY_MS)).toBe(200);
    expect(await statusOf(now)).toBe(403);
  });

  test.each(['code', 'recovery code'])(
    'of two requests with the same %s at once, one succeeds',
    async (kind) => {
      const { email, nextCode, recoveryCodes } = await newProtected(service, clock, anEmail());
      const code = kind === 'code' ? nextCode() : (recoveryCodes[3] ?? '');
      const people = [new Person(service), new Person(service)];
      const challenges = await Promise.all(people.map((person) => challengeFor(person, email)));
      // Both wait for the account's row, each with what it has read before.
      const holding = await reserved(service.sql);
      await holding`BEGIN`;
      await holding`SELECT FROM users WHERE email = ${email} FOR UPDATE`;
      const [me] = await holding<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
      const replies = people.map((person, i) =>
        person.post('/api/session/code', { challenge: challenges[i], code }),
      );
      const waiting = async (): Promise<number> => {
        const [row] = await service.sql<{ count: number }[]>`
        WITH RECURSIVE blocked AS (
          SELECT ${me?.pid ?? 0}::integer AS pid
           UNION SELECT activity.pid FROM pg_stat_activity AS activity JOIN blocked ON blocked.pid = ANY(pg_blocking_pids(activity.pid)))
        SELECT count(*)::integer - 1 AS count FROM blocked`;
        return row?.count ?? 0;
      };
      await until(async () => (await waiting()) === 2, 'both to wait for the account');
      await holding`COMMIT`;
      holding.release();
      const statuses = (await Promise.all(replies)).map(({ status }) => status);
      expect(statuses.sort()).toEqual([200, 403]);
      expect((await Promise.all(people.map(whoIs))).filter((user) => user !== null)).toHaveLength(1);
    },
  );

  test('takes each recovery code once, however it is typed, and no codes that were replaced', async () => {
    const { email, recoveryCodes, nextCode } = await newProtected(service, clock, anEmail());
    const [first = '', second = '', third = ''] = recoveryCodes;
    const typed = ` ${first.toUpperCase().replaceAll('-', ' ').replaceAll('0', 'O').replaceAll('1', 'l')} `;
    const { person, reply } = await signInWithCode(service, email, typed);
    expect(reply).toMatchObject({ status: 200, data: { recoveryCodesLeft: 9 } });
    expect((await signInWithCode(service, email, first)).reply.status).toBe(403);
    const renewal = { password: PASSWORD, code: second };
    const renewed = await person.post('/api/second-factor/recovery-codes', renewal);
    expect(renewed.status).toBe(200);
    expect(await stateOf(person)).toMatchObject({ recoveryCodesLeft: 10 });
    expect((await signInWithCode(service, email, third)).reply.status).toBe(403);
    const [made = ''] = renewed.data.recoveryCodes as string[];
    expect((await signInWithCode(service, email, made)).reply.status).toBe(200);
    expect(
      await person.post('/api/second-factor/recovery-codes', { password: 'wrong', code: nextCode() }),
    ).toMatchObject({
      status: 403,
      code: 'WRONG_PASSWORD',
    });
  });

  test('a challenge ends after five minutes, with the password, and is good for one account of one database', async () => {
    const { email, nextCode, owner } = await newProtected(service, clock, anEmail());
    const person = new Person(service);
    const late = await challengeFor(person, email);
    clock.advance(5 * MINUTE_MS);
    const complete = (challenge: string) => person.post('/api/session/code', { challenge, code: nextCode() });
    const expired = { status: 401, code: 'SIGN_IN_EXPIRED' };
    expect(await complete(late)).toMatchObject(expired);
    const good = await challengeFor(person, email);
    const { accounts } = await testSecret();
    const elsewhere = new SignInChallenges({
      key: accounts.challenges,
      generation: 'of a copy',
      now: clock.wall,
    });
    const [row] = await service.sql<{ hash: string; userId: string }[]>`
      SELECT password_hash AS hash, public_id AS "userId" FROM users WHERE email = ${email}`;
    expect(await complete(elsewhere.create(row?.userId ?? '', row?.hash ?? ''))).toMatchObject(expired);
    // What says that the password of a share was right is no step of a sign-in.
    const ofShares = new SignInChallenges({
      key: accounts.shares,
      generation: '',
      now: clock.wall,
      kind: 'shr',
    });
    expect(await complete(ofShares.create(`shr_${'a'.repeat(20)}`, 'any'))).toMatchObject(expired);
    const other = (await newProtected(service, clock, anEmail())).email;
    const swapped = [
      (await challengeFor(new Person(service), other)).split('.')[0],
      ...good.split('.').slice(1),
    ];
    expect(await complete(swapped.join('.'))).toMatchObject(expired);
    for (const made of [
      '',
      'x',
      `usr_${'a'.repeat(20)}.${clock.wall() + 1_000}.${'A'.repeat(22)}.${'A'.repeat(43)}`,
    ])
      expect(await complete(made)).toMatchObject(expired);
    const change = { currentPassword: PASSWORD, newPassword: SECOND };
    expect((await owner.post('/api/password', change)).status).toBe(200);
    expect(await complete(good)).toMatchObject(expired);
    expect(await whoIs(person)).toBeNull();
  });

  test('security 7: a reset by mail does not get around the code', async () => {
    const { email, nextCode } = await newProtected(service, clock, anEmail());
    const thief = new Person(service);
    await thief.post('/api/password-resets', { email }, { headers: bySomebodyAt(anAddress()) });
    const path = `/api/password-resets/${linkIn({ text: await mailTo(email, 'Set a new password') })
      .split('/')
      .at(-1)}`;
    expect((await thief.post(path, { password: SECOND })).status).toBe(200);
    expect(await whoIs(thief)).toBeNull();
    const first = await thief.post('/api/session', { email, password: SECOND });
    expect(first.status).toBe(202);
    expect(await whoIs(thief)).toBeNull();
    const { challenge } = first.data;
    expect((await thief.post('/api/session/code', { challenge, code: nextCode() })).status).toBe(200);
  });
});

describe('security 6: guessing codes', () => {
  test('needs the password: made-up challenges are refused, and the owner has all attempts', async () => {
    const { email, nextCode } = await newProtected(service, clock, anEmail());
    const address = anAddress();
    const stranger = new Person(service);
    for (let i = 0; i < 40; i++) {
      const challenge = `usr_${'a'.repeat(20)}.${clock.wall() + 1_000}.${'A'.repeat(22)}.${'A'.repeat(43)}`;
      const reply = await stranger.post(
        '/api/session/code',
        { challenge, code: '000000' },
        { headers: bySomebodyAt(address) },
      );
      expect(reply.status).toBe(401);
    }
    expect((await signInWithCode(service, email, nextCode(), bySomebodyAt(address))).reply.status).toBe(200);
  });

  test('is slowed down to minutes, also when the right password is sent in between', async () => {
    const { email, nextCode } = await newProtected(service, clock, anEmail());
    const address = anAddress();
    const guess = async (): Promise<Reply> =>
      (await signInWithCode(service, email, '00000000', bySomebodyAt(address))).reply;
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++) statuses.push((await guess()).status);
    expect(statuses).toEqual([...Array(5).fill(403), ...Array(3).fill(429)]);
    for (let wait = 1; wait <= 512; wait *= 2) {
      clock.advance(wait * 1_000);
      expect((await guess()).status).toBe(403);
    }
    expect((await guess()).headers['retry-after']).toBe('900');
    const { reply } = await signInWithCode(service, email, nextCode(), bySomebodyAt(anAddress()));
    expect(reply.status).toBe(200);
  });

  test('is not forgiven for the right password alone: an address is known after a code', () => {
    const limits = new SignInLimits(clock.monotonic);
    const email = requireEmail(anEmail());
    const admit = (kind: 'admit' | 'admitCode'): AdmittedAttempt => {
      const attempt = limits[kind](email, ['192.0.2.1']);
      if (typeof attempt === 'number') throw new Error(`has to wait for ${attempt} ms`);
      return attempt;
    };
    admit('admit').passedFirst();
    expect([admit('admit').isKnown, admit('admitCode').isKnown]).toEqual([false, false]);
    limits.remember(email, ['192.0.2.1']); // A reset by a link.
    expect([admit('admit').isKnown, admit('admitCode').isKnown]).toEqual([true, false]);
    admit('admitCode').succeeded();
    expect([admit('admit').isKnown, admit('admitCode').isKnown]).toEqual([true, true]);
  });
});

describe('security 6: wrong codes in a row', () => {
  const wrongAt = async (at: TestService, email: string): Promise<Reply> =>
    (await signInWithCode(at, email, '00000000', bySomebodyAt(anAddress()))).reply;
  const rightAt = async (at: TestService, email: string, code: string): Promise<Reply> =>
    (await signInWithCode(at, email, code, bySomebodyAt(anAddress()))).reply;
  const activityOf = async (owner: Person): Promise<Record<string, unknown>[]> =>
    (await owner.get('/api/activity')).data.entries as Record<string, unknown>[];
  const setWrongCodes = (email: string, count: number) => service.sql`
    UPDATE second_factors SET wrong_codes = ${count} WHERE user_id = (SELECT id FROM users WHERE email = ${email})`;

  test('are counted over all processes: the owner is told of ten, and a hundred leave the recovery codes alone', async () => {
    const { email, owner, nextCode, recoveryCodes } = await newProtected(service, clock, anEmail());
    // Knows nothing of what the first process has counted, as after a restart.
    const other = await startTestService({ clock, config: settings(), database: service.database });
    try {
      const guesses = await Promise.all(Array.from({ length: 9 }, () => wrongAt(service, email)));
      expect(guesses.map(({ status }) => status)).toEqual(Array(9).fill(403));
      expect((await activityOf(owner)).map(({ action }) => action)).not.toContain('second-factor.guessing');
      expect((await wrongAt(other, email)).code).toBe('WRONG_CODE');
      expect(await mailTo(email, 'Wrong codes')).toContain('by someone who knows its password');
      expect((await activityOf(owner))[0]).toMatchObject({
        action: 'second-factor.guessing',
        details: { wrongCodes: 10, device: expect.any(String), address: expect.stringContaining('198.51.') },
      });

      await setWrongCodes(email, 98);
      expect((await wrongAt(other, email)).code).toBe('WRONG_CODE');
      expect(await stateOf(owner)).toMatchObject({ recoveryCodeNeeded: false });
      expect((await wrongAt(other, email)).code).toBe('WRONG_CODE');
      expect(await mailTo(email, 'Codes of the authenticator are refused')).toContain('recovery code');
      expect(await stateOf(owner)).toMatchObject({ recoveryCodeNeeded: true });
      expect((await activityOf(owner))[0]).toMatchObject({ action: 'second-factor.lock' });
      // Whoever reads the owner's mail can set a password, which must not let the guessing go on.
      const change = { currentPassword: PASSWORD, newPassword: PASSWORD };
      expect((await owner.post('/api/password', change)).status).toBe(200);
      for (const at of [service, other])
        expect(await rightAt(at, email, nextCode())).toMatchObject({
          status: 403,
          code: 'RECOVERY_CODE_NEEDED',
        });
      const off = { password: PASSWORD, code: nextCode() };
      expect((await owner.delete('/api/second-factor', off)).code).toBe('RECOVERY_CODE_NEEDED');

      expect(await rightAt(other, email, recoveryCodes[0] ?? '')).toMatchObject({
        status: 200,
        data: { wrongCodes: 100, recoveryCodesLeft: 9 },
      });
      expect((await rightAt(other, email, nextCode())).status).toBe(200);
    } finally {
      await other.stop();
    }
  });

  test('end with a right code, whose answer tells how many there were', async () => {
    const { email, owner, nextCode } = await newProtected(service, clock, anEmail());
    await setWrongCodes(email, 99);
    expect(await rightAt(service, email, nextCode())).toMatchObject({
      status: 200,
      data: { wrongCodes: 99 },
    });
    expect((await wrongAt(service, email)).code).toBe('WRONG_CODE');
    expect(await stateOf(owner)).toMatchObject({ recoveryCodeNeeded: false });
    expect(await rightAt(service, email, nextCode())).toMatchObject({ status: 200, data: { wrongCodes: 1 } });
    expect((await activityOf(owner)).map(({ action }) => action)).not.toContain('second-factor.lock');
  });
});

describe('turning it off', () => {
  test('needs the password and a code', async () => {
    const { email, owner, nextCode, recoveryCodes } = await newProtected(service, clock, anEmail());
    const off = (password: string, code: string) => owner.delete('/api/second-factor', { password, code });
    expect(await off('not the password', nextCode())).toMatchObject({ status: 403, code: 'WRONG_PASSWORD' });
    expect(await off(PASSWORD, '00000000')).toMatchObject({ status: 403, code: 'WRONG_CODE' });
    expect(await stateOf(owner)).toMatchObject({ enabledAt: expect.any(String) });
    expect((await off(PASSWORD, recoveryCodes[0] ?? '')).status).toBe(200);
    expect(await stateOf(owner)).toMatchObject({ enabledAt: null, recoveryCodesLeft: 0 });
    expect(await whoIs(await new Person(service).signIn(email))).toMatchObject({ email });
    expect(await off(PASSWORD, nextCode())).toMatchObject({ status: 409, code: 'SECOND_FACTOR_OFF' });
  });

  test('is refused for a session that was ended meanwhile, as is a change of the password', async () => {
    const { email, owner, nextCode } = await newProtected(service, clock, anEmail());
    const end = (sql: TestService['sql']) =>
      sql`DELETE FROM sessions WHERE user_id = (SELECT id FROM users WHERE email = ${email})`;
    const thief = new Person(service);
    thief.cookie = owner.cookie;
    const code = nextCode();
    const off = await overtaken(
      email,
      () => thief.delete('/api/second-factor', { password: PASSWORD, code }),
      end,
    );
    expect(off).toMatchObject({ status: 401, code: 'SESSION_REQUIRED' });
    const { person } = await signInWithCode(service, email, nextCode());
    expect(await stateOf(person)).toMatchObject({ enabledAt: expect.any(String) });
    thief.cookie = person.cookie;
    const body = { currentPassword: PASSWORD, newPassword: SECOND };
    expect(await overtaken(email, () => thief.post('/api/password', body), end)).toMatchObject({
      status: 401,
    });
    expect(await whoIs(thief)).toBeNull();
    expect((await signInWithCode(service, email, nextCode())).reply.status).toBe(200);
  });

  test('is done by the operator for a lost phone, with an entry in the log of the account', async () => {
    const { email, owner } = await newProtected(service, clock, anEmail());
    const challenge = await challengeFor(new Person(service), email);
    await removeSecondFactorOf(service.sql, requireEmail(email));
    expect(await whoIs(await new Person(service).signIn(email))).toMatchObject({ email });
    const late = await new Person(service).post('/api/session/code', { challenge, code: '000000' });
    expect(late).toMatchObject({ status: 401, code: 'SIGN_IN_EXPIRED' });
    const { entries } = (await owner.get('/api/activity')).data as { entries: Record<string, unknown>[] };
    expect(entries.map(({ actor, action }) => [actor, action])).toContainEqual([
      'command line',
      'second-factor.remove',
    ]);
    expect(entries.map(({ action }) => action)).toContain('second-factor.enable');
    const other = await newPerson(service, anEmail());
    const theirs = (await other.get('/api/activity')).data.entries as { actor: string }[];
    expect(theirs.filter(({ actor }) => actor !== `factor-${counter}@example.com`)).toEqual([]);
    await expect(removeSecondFactorOf(service.sql, requireEmail(email))).rejects.toThrow(
      'has no second factor',
    );
  });
});

describe('mails to the owner', () => {
  const signIn = (email: string, agent: string, address: string): Promise<Reply> =>
    new Person(service).post(
      '/api/session',
      { email, password: PASSWORD },
      { headers: { 'User-Agent': agent, ...bySomebodyAt(address) } },
    );
  const newSignIns = (email: string): number =>
    mailsTo(email).filter((text) => text.includes('Subject: New sign-in')).length;

  test('tell of a sign-in from a new device, once for each', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    await until(() => newSignIns(email) === 1, 'the mail of the first sign-in');
    const [home, cafe] = [anAddress(), anAddress()];
    expect((await signIn(email, FIREFOX, home)).status).toBe(200);
    await until(() => newSignIns(email) === 2, 'the mail of a new browser');
    const text = mailsTo(email).at(-1) ?? '';
    expect(text).toContain('Device: Firefox on Linux');
    expect(text).toContain(`Address: ${home}`);
    expect(text).toContain('http://events.example.com/account');
    for (const [agent, address] of [
      [FIREFOX, home],
      [SAFARI, home],
      [FIREFOX, cafe],
      [SAFARI, home],
    ] as const)
      expect((await signIn(email, agent, address)).status).toBe(200);
    await until(() => newSignIns(email) === 4, 'the mails of a phone and of another place');
    // A change of the password makes all devices but this one new, and is told itself.
    await owner.post('/api/password', { currentPassword: PASSWORD, newPassword: PASSWORD });
    await mailTo(email, 'Password changed');
    expect(newSignIns(email)).toBe(4);
    const { entries } = (await owner.get('/api/activity')).data as { entries: Record<string, unknown>[] };
    expect(entries.find(({ details }) => (details as { address: string }).address === cafe)).toMatchObject({
      action: 'sign-in.new-device',
      details: { device: 'Firefox on Linux', address: cafe },
    });
  });

  test('tell of the second factor and of recovery codes', async () => {
    const { email, owner, nextCode, recoveryCodes } = await newProtected(service, clock, anEmail());
    await mailTo(email, 'Second factor turned on');
    await signInWithCode(service, email, recoveryCodes[0] ?? '');
    await mailTo(email, 'Recovery code used');
    await owner.post('/api/second-factor/recovery-codes', { password: PASSWORD, code: nextCode() });
    await mailTo(email, 'New recovery codes');
    await owner.delete('/api/second-factor', { password: PASSWORD, code: nextCode() });
    await mailTo(email, 'Second factor turned off');
    const secrets = mailsTo(email).join('\n');
    for (const code of recoveryCodes) expect(secrets).not.toContain(code);
  });

  test('tell the owners of an app of its tokens, and nobody else', async () => {
    const [email, helperEmail, viewerEmail] = [anEmail(), anEmail(), anEmail()];
    const owner = await newPerson(service, email);
    const helper = await newPerson(service, helperEmail);
    await newPerson(service, viewerEmail);
    const app = await newOwnApp(owner);
    await owner.post(`${app.path}/members`, { email: helperEmail });
    await owner.post(`${app.path}/members`, { email: viewerEmail, role: 'viewer' });
    const { data } = await helper.post(`${app.path}/tokens`, { name: 'Reports' });
    const created = await mailTo(email, 'Resource token created');
    expect(created).toContain(`By: ${helperEmail}`);
    expect(created).toContain('Token: "Reports"');
    expect(created).toContain(`http://events.example.com/apps/${app.appId}/settings`);
    expect(created).not.toContain(String(data.resourceToken));
    // An address is nobody's business but its user's.
    expect(created).not.toContain('Address:');
    await helper.delete(`${app.path}/tokens/${data.tokenId}`);
    await mailTo(email, 'Resource token revoked');
    await helper.post(`${app.path}/tokens/${data.tokenId}/restore`);
    expect(await mailTo(email, 'Resource token restored')).toContain('Token: "Reports"');
    await owner.post(`${app.path}/logging-token/rotate`, { confirm: 'Shop' });
    expect(await mailTo(email, 'Logging token rotated')).toContain('Address:');
    for (const other of [helperEmail, viewerEmail])
      expect(mailsTo(other).filter((text) => /token/i.test(text))).toEqual([]);
  });

  test('of an app leave the room of those of the account', async () => {
    const email = anEmail();
    const owner = await newPerson(service, email);
    const app = await newOwnApp(owner);
    for (let i = 0; i < 61; i++) await owner.post(`${app.path}/logging-token/rotate`, { confirm: 'Shop' });
    const isSaid = (): boolean =>
      service.log.some(
        ({ msg, event }) => String(msg).includes('notice not sent') && event === 'logging-token.rotate',
      );
    await until(isSaid, 'a notice of the app not to be sent');
    await owner.post('/api/password', { currentPassword: PASSWORD, newPassword: PASSWORD });
    await mailTo(email, 'Password changed');
  });

  test('to one address do not count for another that looks like a spelling of it', async () => {
    const [dotted, plain] = [`look.alike-${++counter}@example.com`, `lookalike-${counter}@example.com`];
    for (const email of [dotted, plain]) await newPerson(service, email);
    const sent: string[] = [];
    const work: Promise<void>[] = [];
    const notices = new Notices({
      sql: service.sql,
      mailer: { send: ({ to }) => sent.push(to) },
      background: { run: (_, run) => work.push(run()) },
      publicUrl: '',
      addresses: 'full',
      log: { warn: () => undefined },
      ...clock,
    });
    const source = { ip: '', requestId: '' };
    for (let i = 0; i < 70; i++) notices.mail('password-change.success', source, { email: dotted });
    await Promise.all(work);
    notices.mail('password-change.success', source, { email: plain });
    await Promise.all(work);
    expect([sent.length, sent.at(-1)]).toEqual([61, plain]);
  });

  test('go to verified addresses alone, a bounded number in an hour', async () => {
    const unverified = anEmail();
    const person = await newPerson(service, unverified);
    // It is sent in the background, to those whose address is verified then.
    await until(() => newSignIns(unverified) === 1, 'the mail of the first sign-in');
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${unverified}`;
    expect((await signIn(unverified, FIREFOX, anAddress())).status).toBe(200);
    const verified = anEmail();
    await newPerson(service, verified);
    for (let i = 0; i < 24; i++) expect((await signIn(verified, FIREFOX, anAddress())).status).toBe(200);
    const isSaid = (): boolean =>
      service.log.some(
        ({ msg, event }) => String(msg).includes('notice not sent') && event === 'sign-in.new-device',
      );
    await until(() => newSignIns(verified) === 20 && isSaid(), 'twenty mails, and a line in the log');
    await person.post('/api/password', { currentPassword: PASSWORD, newPassword: PASSWORD });
    expect([newSignIns(unverified), mailsTo(unverified).length, newSignIns(verified)]).toEqual([1, 1, 20]);
  });

  // The last one: the mail server is gone afterwards.
  test('hold up nothing where the mail server is gone, and the log says so', async () => {
    const email = anEmail();
    await newPerson(service, email);
    await until(() => newSignIns(email) === 1, 'the mail of the first sign-in');
    await mailbox.close();
    const before = service.log.filter(({ msg }) => msg === 'mail: delivery failed').length;
    expect((await signIn(email, FIREFOX, anAddress())).status).toBe(200);
    const failures = () => service.log.filter(({ msg }) => msg === 'mail: delivery failed').length;
    await until(() => failures() > before, 'a line in the log');
  });
});

/** What a camera would read of the path that the page draws. */
function readQR({ size, path }: { size: number; path: string }): string {
  const scale = 4;
  const side = size * scale;
  const data = new Uint8Array(side * side * 4).fill(255);
  for (const [, x, y, width] of path.matchAll(/M(\d+) (\d+)h(\d+)v1H\d+z/g)) {
    for (let row = Number(y) * scale; row < (Number(y) + 1) * scale; row++)
      for (let column = Number(x) * scale; column < (Number(x) + Number(width)) * scale; column++)
        data.fill(0, (row * side + column) * 4, (row * side + column) * 4 + 3);
  }
  return decodeQR({ width: side, height: side, data });
}
