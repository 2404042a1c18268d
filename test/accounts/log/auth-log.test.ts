/** The authentication log: a line for everything that happens to accounts, members and tokens, and no secret in any. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AUTH_EVENTS, type AuthEvent, AuthLog } from '../../../src/accounts/log/auth-log.ts';
import { digestOf } from '../../../src/base/token-text.ts';
import { newProtected, signInWithCode } from '../../support/authenticator.ts';
import { linkIn, type Mailbox, openMailbox } from '../../support/mailbox.ts';
import { joinApp, newOwnApp, newPerson, PASSWORD, Person, type Reply } from '../../support/person.ts';
import { captured, startTestService, TestClock, type TestService, until } from '../../support/service.ts';

type Line = Readonly<Record<string, unknown>>;

/** Events that test/accounts/oidc.test.ts and test/ingest/browser-keys.test.ts bring about. */
const OF_OTHER_TESTS: ReadonlySet<string> = new Set([
  'app.erase',
  'app.restore',
  'browser-key.create',
  'browser-key.restore',
  'browser-key.revoke',
  'oidc.logout-unknown',
  'identity.join',
  'identity.leave',
  'oidc.logout',
  'oidc.refusal',
  'producer.create',
  'producer.restore',
  'producer.revoke',
  'producer.rotate',
  'resource-token.restore',
  'share.create',
  'share.failure',
  'share.revoke',
]);

const OWNER = 'auth-owner@example.com';
const HELPER = 'auth-helper@example.com';
const GUEST = 'auth-guest@example.com';
const NEWCOMER = 'auth-newcomer@example.com';
const CAREFUL = 'auth-careful@example.com';
const WRONG = 'not anybody’s password';
const SECOND = 'the second good password';
const THIRD = 'the third good password';

/** Every field that a line may have. */
const FIELDS = new Set([
  ...[
    'level',
    'time',
    'msg',
    'event',
    'ip',
    'requestId',
    'userId',
    'email',
    'appId',
    'tokenId',
    'invitationId',
    'device',
  ],
  ...[
    'targetUserId',
    'targetEmail',
    'purpose',
    'reason',
    'method',
    'route',
    'retryAfterSeconds',
    'suppressed',
  ],
]);

describe('a server', () => {
  let mailbox: Mailbox;
  let service: TestService;
  let openService: TestService;
  const secrets = new Set<string>([PASSWORD, WRONG, SECOND, THIRD]);
  let lines: readonly Line[] = [];
  let owner: Person;
  let app: { appId: string; path: string; loggingToken: string };
  let failure: Reply;
  let revokedToken: string;
  const clock = new TestClock();

  const of = (event: AuthEvent): readonly Line[] => lines.filter((line) => line.event === event);
  const from = (ip: string) => ({ headers: { 'X-Forwarded-For': ip } });
  const tokenIn = (link: string): string => {
    const token = link.split('/').at(-1) ?? '';
    expect(token).toHaveLength(43);
    secrets.add(token);
    return token;
  };
  const mailedTo = async (email: string): Promise<string> => {
    await until(() => mailbox.mails.some(({ to }) => to === email), `a mail to ${email}`);
    return tokenIn(linkIn(mailbox.mails.findLast(({ to }) => to === email)));
  };
  const userIdOf = async (person: Person): Promise<string> =>
    ((await person.get('/api/session')).data.user as { userId: string }).userId;
  /** Keeps what the person's browser has. */
  const noted = (person: Person): Person => {
    for (const pair of person.cookie.split('; ')) secrets.add(pair.split('=')[1] ?? '');
    return person;
  };
  const newToken = async (person: Person): Promise<string> => {
    const { data } = await person.post(`${app.path}/tokens`, { name: 'Reports' });
    secrets.add(String(data.resourceToken));
    return String(data.tokenId);
  };

  beforeAll(async () => {
    mailbox = await openMailbox();
    const config = { SMTP_URL: mailbox.url, PUBLIC_URL: 'http://events.example.com', TRUST_PROXY: 1 };
    service = await startTestService({ clock, config });
    openService = await startTestService({
      clock: new TestClock(),
      config: { ...config, ALLOW_SIGNUP: 'open' },
      database: service.database,
    });
    await people();
    await sessionsAndCodes();
    await tokensAndMembers();
    await endings();
    lines = [...service.log, ...openService.log].filter((line) => line.event !== undefined);
  });
  afterAll(async () => {
    await openService.stop();
    await service.stop();
    await mailbox.close();
  });

  /** The first account by its link, sign-ins, passwords; an account by a mailed link. */
  const people = async (): Promise<void> => {
    owner = new Person(service);
    const setupToken = tokenIn(service.setupPath ?? '');
    expect((await owner.post('/api/users', { email: OWNER, password: PASSWORD, setupToken })).status).toBe(
      201,
    );
    await noted(owner).delete('/api/session');
    failure = await owner.post('/api/session', { email: OWNER, password: WRONG }, from('192.0.2.7'));
    await noted(await owner.signIn(OWNER));
    const change = (currentPassword: string) =>
      owner.post('/api/password', { currentPassword, newPassword: SECOND });
    expect([(await change(WRONG)).status, (await change(PASSWORD)).status]).toEqual([403, 200]);
    await owner.post('/api/password-resets', { email: OWNER });
    const reset = `/api/password-resets/${await mailedTo(OWNER)}`;
    expect((await owner.post(reset, { password: THIRD })).status).toBe(200);
    await noted(await owner.signIn(OWNER, THIRD));

    const newcomer = new Person(openService);
    await newcomer.post('/api/users', { email: NEWCOMER, password: PASSWORD });
    const verification = `/api/email-verifications/${await mailedTo(NEWCOMER)}`;
    expect((await newcomer.post(verification, { password: WRONG })).status).toBe(403);
    expect((await newcomer.post(verification, { password: PASSWORD })).status).toBe(201);
    noted(newcomer);
  };

  /** A second factor from its beginning to its end, and sessions that are ended from another one. */
  const sessionsAndCodes = async (): Promise<void> => {
    const {
      email,
      owner: person,
      secret,
      recoveryCodes,
      nextCode,
    } = await newProtected(service, clock, CAREFUL);
    for (const text of [secret, ...recoveryCodes]) secrets.add(text);
    const code = nextCode();
    const other = await signInWithCode(service, email, recoveryCodes[0] ?? '');
    expect((await signInWithCode(service, email, 'not a code')).reply.status).toBe(403);
    expect((await signInWithCode(service, email, code)).reply.status).toBe(200);
    for (const wrongCodes of [9, 99]) {
      await service.sql`UPDATE second_factors SET wrong_codes = ${wrongCodes}`;
      expect((await signInWithCode(service, email, 'not a code')).reply.status).toBe(403);
    }
    expect((await signInWithCode(service, email, recoveryCodes[1] ?? '')).reply.status).toBe(200);
    const { sessions } = (await noted(other.person).get('/api/sessions')).data as {
      sessions: { sessionId: string; isCurrent: boolean }[];
    };
    const mine = sessions.find(({ isCurrent }) => isCurrent);
    expect((await person.delete(`/api/sessions/${mine?.sessionId}`)).status).toBe(200);
    expect((await noted(person).delete('/api/sessions', { keepCurrent: true })).status).toBe(200);
    const renewal = { password: PASSWORD, code: nextCode() };
    expect((await person.post('/api/second-factor/recovery-codes', renewal)).status).toBe(200);
    const end = { password: PASSWORD, code: nextCode() };
    expect((await person.delete('/api/second-factor', end)).status).toBe(200);
  };

  const tokensAndMembers = async (): Promise<void> => {
    app = await newOwnApp(owner);
    const { data } = await owner.post(`${app.path}/logging-token/rotate`, { confirm: 'Shop' });
    for (const token of [app.loggingToken, data.loggingToken]) secrets.add(String(token));
    revokedToken = await newToken(owner);
    await owner.delete(`${app.path}/tokens/${revokedToken}`);

    const helper = noted(await newPerson(service, HELPER));
    const helperPath = `${app.path}/members/${await userIdOf(helper)}`;
    await joinApp(owner, app.path, helper, { email: HELPER });
    for (const role of ['viewer', 'maintainer']) await owner.patch(helperPath, { role });
    expect((await helper.patch(app.path, { name: 'Mine' })).status).toBe(403);
    const keepTokens = [await newToken(helper)];
    await newToken(helper);
    expect((await owner.delete(helperPath, { keepTokens })).status).toBe(200);
    await joinApp(owner, app.path, helper, { email: HELPER });
    expect((await helper.delete(helperPath)).status).toBe(200);

    const invite = async (): Promise<string> =>
      tokenIn(String((await owner.post(`${app.path}/members`, { email: GUEST })).data.link));
    await invite();
    const { invitations } = (await owner.get(`${app.path}/members`)).data as {
      invitations: { invitationId: string }[];
    };
    await owner.delete(`${app.path}/invitations/${invitations[0]?.invitationId}`);
    const guest = new Person(service);
    const joined = { email: GUEST, password: PASSWORD, invitation: await invite() };
    expect((await guest.post('/api/users', joined)).status).toBe(201);
    await noted(guest).post('/api/email-verifications');
    await until(
      () => mailbox.mails.filter(({ to }) => to === GUEST).length === 3,
      'the mail of the verification',
    );
    expect((await guest.post(`/api/email-verifications/${await mailedTo(GUEST)}`)).status).toBe(200);
  };

  const endings = async (): Promise<void> => {
    await owner.get(`/api/invitations/${'A'.repeat(43)}`);
    const stranger = new Person(service);
    for (let i = 0; i < 40; i++)
      await stranger.post(
        '/api/session',
        { email: `nobody-${i}@example.com`, password: WRONG },
        from('192.0.2.8'),
      );
    expect((await owner.delete(app.path, { confirm: 'Shop' })).status).toBe(200);
    expect((await noted(owner).delete('/api/sessions')).status).toBe(200);
  };

  test('has every event', () => {
    const expected = Object.keys(AUTH_EVENTS).filter((event) => !OF_OTHER_TESTS.has(event));
    expect(new Set(lines.map(({ event }) => event))).toEqual(new Set(expected));
  });

  test('has each with its own level, text and known fields', () => {
    for (const line of lines) {
      const [level, message] = AUTH_EVENTS[line.event as AuthEvent];
      expect(line).toMatchObject({ level, msg: `auth: ${message}` });
      expect(Object.keys(line).filter((name) => !FIELDS.has(name))).toEqual([]);
    }
  });

  test('security 13: has no password, token, cookie or link, in no line of the log and in no spelling', () => {
    const log = JSON.stringify([...service.log, ...openService.log]);
    expect(secrets.size).toBeGreaterThan(15);
    for (const secret of secrets) {
      const digest = digestOf(secret);
      for (const spelling of [
        secret,
        JSON.stringify(secret).slice(1, -1),
        encodeURIComponent(secret),
        Buffer.from(secret).toString('base64url').slice(0, -1),
        Buffer.from(secret).toString('hex'),
        digest.toString('hex'),
        digest.toString('base64url'),
      ])
        expect(log).not.toContain(spelling);
    }
  });

  test('says of a failed sign-in which account was tried, from where, and in which request', () => {
    expect(of('sign-in.failure')[0]).toMatchObject({
      ip: '192.0.2.7',
      requestId: failure.headers['x-request-id'],
      email: OWNER,
      reason: 'SIGN_IN_FAILED',
    });
    expect(of('password-change.failure')[0]).toMatchObject({ email: OWNER, reason: 'WRONG_PASSWORD' });
    const account = { email: CAREFUL, userId: expect.stringMatching(/^usr_/) };
    expect(of('second-factor.failure')[0]).toMatchObject({ ...account, reason: 'WRONG_CODE' });
    for (const event of ['second-factor.guessing', 'second-factor.lock'] as const)
      expect(of(event)).toEqual([expect.objectContaining(account)]);
  });

  test('has the author and the object of a change', () => {
    const { appId } = app;
    const by = { email: OWNER, userId: expect.stringMatching(/^usr_/) };
    expect(of('resource-token.revoke')[0]).toMatchObject({ ...by, appId, tokenId: revokedToken });
    const targetUserId = expect.stringMatching(/^usr_/);
    expect(of('member.remove')).toEqual([
      expect.objectContaining({ ...by, appId, targetUserId, targetEmail: HELPER }),
    ]);
    expect(of('member.leave')).toEqual([expect.objectContaining({ email: HELPER, appId })]);
    // The helper has opened the app after each of two invitations, the guest has followed a link.
    expect(of('invitation.accept')).toMatchObject(
      [HELPER, HELPER, GUEST].map((email) => ({ email, appId, targetEmail: email })),
    );
    expect(of('account.create').map(({ email, purpose }) => [email, purpose])).toEqual([
      [OWNER, 'setup-link'],
      [GUEST, 'invitation'],
      [NEWCOMER, 'mailed-link'],
    ]);
    expect(new Set(of('link.create').map(({ purpose }) => purpose))).toEqual(
      new Set(['setup', 'reset-password', 'verify-email', 'sign-up']),
    );
  });

  test('has every failed sign-in, and the refusals of too many attempts once, however many there are', () => {
    const guesses = of('sign-in.failure').filter(({ ip }) => ip === '192.0.2.8');
    expect(guesses.length).toBeGreaterThan(0);
    expect(guesses.length).toBeLessThan(40);
    expect(new Set(guesses.map(({ email }) => email)).size).toBe(guesses.length);
    expect(of('slow-down.refusal')).toEqual([
      expect.objectContaining({
        ip: '192.0.2.8',
        method: 'POST',
        route: '/api/session',
        retryAfterSeconds: expect.any(Number),
      }),
    ]);
  });
});

describe('refusals', () => {
  const source = { ip: '192.0.2.1', requestId: 'r' };
  const fields = { reason: 'TOO_MANY_ATTEMPTS' };
  const newLog = (): { lines: Record<string, unknown>[]; log: AuthLog; clock: TestClock } => {
    const lines: Record<string, unknown>[] = [];
    const clock = new TestClock();
    return { lines, clock, log: new AuthLog({ log: captured(lines), now: clock.monotonic }) };
  };

  test('from one client are a line every ten seconds, which counts those that were left out', () => {
    const { lines, log, clock } = newLog();
    for (let i = 0; i < 1_000; i++) log.writeRefusal('slow-down.refusal', 'a', source, fields);
    log.writeRefusal('access.refusal', 'a', source, fields);
    log.writeRefusal('slow-down.refusal', 'b', source, fields);
    expect(lines.map(({ event }) => event)).toEqual([
      'slow-down.refusal',
      'access.refusal',
      'slow-down.refusal',
    ]);
    clock.advance(10_000);
    log.writeRefusal('slow-down.refusal', 'a', source, fields);
    expect(lines.at(-1)).toMatchObject({ suppressed: 999 });
  });

  test('from any number of clients are twenty lines a second', () => {
    const { lines, log, clock } = newLog();
    for (let second = 0; second < 3; second++) {
      for (let i = 0; i < 500; i++) log.writeRefusal('slow-down.refusal', `${second} ${i}`, source, fields);
      clock.advance(1_000);
    }
    expect(lines).toHaveLength(60);
  });
});

test('the documentation has every event', () => {
  const folder = fileURLToPath(new URL('../../../docs/', import.meta.url));
  const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.md'),
  );
  const text = pages.map((name) => readFileSync(folder + name, 'utf8')).join('\n');
  expect(Object.keys(AUTH_EVENTS).filter((event) => !text.includes(`\`${event}\``))).toEqual([]);
});
