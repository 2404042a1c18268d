import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { MemberList } from '../../../src/api-types/answers.ts';
import { TRANSPORTS } from '../../support/fuzz.ts';
import { linkIn, type Mailbox, openMailbox } from '../../support/mailbox.ts';
import { newOwnApp, newPerson, PASSWORD, Person, type Reply } from '../../support/person.ts';
import {
  sharedService,
  startTestService,
  TestClock,
  type TestService,
  until,
  withTestService,
} from '../../support/service.ts';

const DAY_MS = 86_400_000;
let counter = 0;
const anEmail = (): string => `sign-up-${++counter}@example.com`;
const newAccount = (email: string) => ({ email, password: PASSWORD });
const tokenOf = (path: string): string => path.split('/').at(-1) ?? '';

describe('the first account', () => {
  test.each(TRANSPORTS)(
    'is made straight away from this machine alone, by its own name, and only the first, on %s',
    (transport) =>
      withTestService({ transport }, async (service) => {
        const person = new Person(service);
        for (const headers of [
          // A name that was bound to this machine, one that begins as its address, and proxies on this machine.
          { Host: 'evil.example:8080' },
          { Host: '127.0.0.1.evil.example:8080' },
          { 'X-Forwarded-For': '203.0.113.1' },
          { Via: '1.1 proxy' },
        ]) {
          expect((await person.get('/api/session', { headers })).data.setup).toBe('link');
          const refused = await person.post('/api/users', newAccount(anEmail()), { headers });
          expect(refused.code).toBe('SIGN_UP_CLOSED');
        }
        expect((await person.get('/api/session')).data).toMatchObject({
          user: null,
          setup: 'open',
          signup: 'first',
        });
        const made = await person.post('/api/users', newAccount(anEmail()));
        // Whoever can reach this machine's own address need not own the email: only the printed link verifies it.
        expect(made).toMatchObject({ status: 201, data: { user: { emailVerified: false } } });
        expect((await person.get('/api/session')).data.user).not.toBeNull();
        // What the command line has made belongs to nobody: the first account finds it.
        expect((await person.get(`/api/apps/${service.app.appId}`)).data).toMatchObject({ role: 'owner' });
        const second = new Person(service);
        expect((await second.get('/api/session')).data.setup).toBeNull();
        expect(await second.post('/api/users', newAccount(anEmail()))).toMatchObject({
          status: 403,
          code: 'SIGN_UP_CLOSED',
        });
      }),
  );

  test('needs the link that the start prints where the service listens beyond this machine; the link works once', () =>
    withTestService({ config: { HOST: '0.0.0.0' } }, async (service) => {
      const person = new Person(service);
      expect((await person.get('/api/session')).data.setup).toBe('link');
      expect((await person.post('/api/users', newAccount(anEmail()))).code).toBe('SIGN_UP_CLOSED');
      const wrong = { ...newAccount(anEmail()), setupToken: 'A'.repeat(43) };
      expect((await person.post('/api/users', wrong)).code).toBe('LINK_NOT_VALID');
      const setupToken = tokenOf(service.setupPath ?? '');
      expect(await person.post('/api/users', { ...newAccount(anEmail()), setupToken })).toMatchObject({
        status: 201,
        data: { user: { emailVerified: true } },
      });
      expect((await person.post('/api/users', { ...newAccount(anEmail()), setupToken })).code).toBe(
        'SIGN_UP_CLOSED',
      );
    }));

  test('of two made at once one is made', () =>
    withTestService({}, async (service) => {
      const replies = await Promise.all(
        [1, 2, 3].map(() => new Person(service).post('/api/users', newAccount(anEmail()))),
      );
      expect(replies.map(({ status }) => status).sort()).toEqual([201, 403, 403]);
    }));

  test('is not made by request where sign-up is closed', () =>
    withTestService({ config: { ALLOW_SIGNUP: 'closed' } }, async (service) => {
      const person = new Person(service);
      expect((await person.get('/api/session')).data).toMatchObject({ setup: null, signup: 'closed' });
      expect((await person.post('/api/users', newAccount(anEmail()))).code).toBe('SIGN_UP_CLOSED');
    }));
});

describe('invitations', () => {
  let service: TestService;
  let clock: TestClock;
  let owner: Person;
  beforeAll(async () => {
    clock = new TestClock();
    service = await startTestService({ clock, config: { ALLOW_SIGNUP: 'open' } });
    owner = await newPerson(service, anEmail());
  });
  afterAll(() => service.stop());

  const invite = async (path: string, email: string): Promise<string> => {
    const { status, data } = await owner.post(`${path}/members`, { email });
    expect([status, data.invited, data.mailed]).toEqual([201, true, false]);
    return tokenOf(String(data.link));
  };

  test('lead a new person to an account and into the app, once, whatever address the account has', async () => {
    const app = await newOwnApp(owner);
    for (const email of [anEmail(), anEmail()]) {
      const invited = anEmail();
      const invitation = await invite(app.path, invited);
      const person = new Person(service);
      expect((await person.get(`/api/invitations/${invitation}`)).data).toEqual({
        appName: 'Shop',
        email: invited,
        role: 'maintainer',
      });
      expect((await person.post('/api/users', { ...newAccount(email), invitation })).status).toBe(201);
      expect((await person.get(app.path)).data).toMatchObject({ role: 'maintainer' });
      expect((await person.get(`/api/invitations/${invitation}`)).code).toBe('LINK_NOT_VALID');
      const again = { ...newAccount(anEmail()), invitation };
      expect((await new Person(service).post('/api/users', again)).code).toBe('LINK_NOT_VALID');
    }
  });

  test('admit the account that opens them, once, and are not consumed by an existing member', async () => {
    const app = await newOwnApp(owner);
    const invitation = await invite(app.path, anEmail());
    const accept = `/api/invitations/${invitation}/accept`;
    expect(await owner.post(accept)).toMatchObject({ status: 409, code: 'ALREADY_MEMBER' });
    const person = await newPerson(service, anEmail());
    expect((await person.post(accept)).data).toEqual({ appId: app.appId });
    expect((await person.get(app.path)).data).toMatchObject({ role: 'maintainer' });
    expect((await (await newPerson(service, anEmail())).post(accept)).code).toBe('LINK_NOT_VALID');
  });

  test('tell their holder which addresses have accounts, slower and slower, until one has none', async () => {
    const app = await newOwnApp(owner);
    const invited = anEmail();
    const invitation = await invite(app.path, invited);
    const signUp = (email: string) =>
      new Person(service).post('/api/users', { ...newAccount(email), invitation });
    const known = await Promise.all(
      Array.from({ length: 5 }, async () => {
        const email = anEmail();
        await newPerson(service, email);
        return email;
      }),
    );
    for (const email of known) expect((await signUp(email)).code).toBe('EMAIL_TAKEN');
    for (const email of [known[0] ?? '', invited]) expect(await signUp(email)).toMatchObject({ status: 429 });
    clock.advance(60_000);
    expect((await signUp(known[0] ?? '')).code).toBe('EMAIL_TAKEN');
    clock.advance(60_000);
    expect((await signUp(invited)).status).toBe(201);
    clock.advance(60_000);
    for (const email of [known[0] ?? '', anEmail()])
      expect((await signUp(email)).code).toBe('LINK_NOT_VALID');
  });

  test('are in the audit log with the address that they were for', async () => {
    const app = await newOwnApp(owner);
    const invited = anEmail();
    const email = anEmail();
    const person = await newPerson(service, email);
    await person.post(`/api/invitations/${await invite(app.path, invited)}/accept`);
    const { entries } = (await owner.get(`${app.path}/audit`)).data as { entries: object[] };
    expect(entries[0]).toMatchObject({
      actor: email,
      action: 'invitation.accept',
      details: { email, invited, role: 'maintainer' },
    });
  });

  test('security 7: an account that never verified its email gains nothing from an owner adding that email', async () => {
    const app = await newOwnApp(owner);
    const email = anEmail();
    const squatter = new Person(service);
    await squatter.post('/api/users', newAccount(email));
    await invite(app.path, email);
    expect((await squatter.get('/api/apps')).data.apps).toEqual([]);
    expect((await squatter.get(app.path)).status).toBe(404);
  });

  test('say the same whether an account has verified the address, which has the app at once', async () => {
    const app = await newOwnApp(owner);
    const [known, unknown, removed] = [anEmail(), anEmail(), anEmail()];
    const [person, other] = [await newPerson(service, known), await newPerson(service, removed)];
    const answers: unknown[] = [];
    for (const email of [known, unknown, removed, known]) {
      const { status, data } = await owner.post(`${app.path}/members`, { email, role: 'viewer' });
      answers.push([status, Object.keys(data), { ...data, link: String(data.link).length }]);
    }
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    const seen = async () => {
      const { data } = await owner.get(`${app.path}/members`);
      const { members, invitations } = data as unknown as MemberList; // The route's own answer.
      return { members: members.length, invited: invitations.map(({ email }) => email) };
    };
    expect((await person.get('/api/apps')).data.apps).toMatchObject([{ appId: app.appId, role: 'viewer' }]);
    expect(await seen()).toEqual({ members: 1, invited: [known, unknown, removed] });
    const { entries } = (await owner.get(`${app.path}/audit`)).data as { entries: { action: string }[] };
    expect(new Set(entries.slice(0, 4).map(({ action }) => action))).toEqual(new Set(['invitation.create']));
    const { data } = await owner.get(`${app.path}/members`);
    const { invitations } = data as unknown as MemberList; // The route's own answer.
    await owner.delete(`${app.path}/invitations/${invitations.at(-1)?.invitationId}`);
    expect((await other.get(app.path)).status).toBe(404);
    // A page asks for several things at once.
    const opened = await Promise.all(
      ['', '/views', '/boards', '/tokens'].map((part) => person.get(app.path + part)),
    );
    expect(opened.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(await seen()).toEqual({ members: 2, invited: [unknown] });
    expect((await person.get('/api/apps')).data.apps).toHaveLength(1);
    expect((await owner.post(`${app.path}/members`, { email: known })).code).toBe('ALREADY_MEMBER');
  });

  test('end when they are withdrawn, replaced, or a week old', async () => {
    const app = await newOwnApp(owner);
    const email = anEmail();
    const first = await invite(app.path, email);
    const second = await invite(app.path, email);
    expect((await owner.get(`/api/invitations/${first}`)).code).toBe('LINK_NOT_VALID');
    const { invitations } = (await owner.get(`${app.path}/members`)).data as {
      invitations: { invitationId: string }[];
    };
    expect(invitations).toHaveLength(1);
    expect((await owner.delete(`${app.path}/invitations/${invitations[0]?.invitationId}`)).status).toBe(200);
    expect((await owner.get(`/api/invitations/${second}`)).code).toBe('LINK_NOT_VALID');
    const third = await invite(app.path, email);
    clock.advance(7 * DAY_MS);
    expect((await owner.get(`/api/invitations/${third}`)).code).toBe('LINK_NOT_VALID');
  });
});

describe('with mail', () => {
  let service: TestService;
  let mailbox: Mailbox;
  let clock: TestClock;
  beforeAll(async () => {
    mailbox = await openMailbox();
    clock = new TestClock();
    service = await startTestService({
      clock,
      config: {
        ALLOW_SIGNUP: 'open',
        SMTP_URL: mailbox.url,
        PUBLIC_URL: 'http://events.example.com',
        TRUST_PROXY: 1,
      },
    });
  });
  afterAll(async () => {
    await service.stop();
    await mailbox.close();
  });

  const mailTo = async (email: string): Promise<{ text: string }> => {
    await until(() => mailbox.mails.some(({ to }) => to === email), `a mail for ${email}`);
    return mailbox.mails.findLast(({ to }) => to === email) ?? { text: '' };
  };
  let client = 0;
  /** As a client of its own, so that nothing is slowed down. */
  const ask = (path: string, body: unknown): Promise<Reply> => {
    client += 1;
    const headers = { 'X-Forwarded-For': `10.${client >> 8}.${client & 255}.1` };
    return new Person(service).post(path, body, { headers });
  };
  const shape = ({ status, headers, text }: Reply): unknown => {
    const { 'x-request-id': _id, date: _date, ...rest } = headers;
    return { status, rest, text };
  };
  /** How many passwords were hashed or verified by `work`: they are nearly all of the time that a request takes. */
  const hashesOf = async (work: () => Promise<unknown>): Promise<number> => {
    const before = await hashes();
    await work();
    return (await hashes()) - before;
  };
  const hashes = async (): Promise<number> => {
    const text = await (await fetch(`${service.url}/metrics`)).text();
    const counts = [...text.matchAll(/^tidemark_password_hashes_total\{[^}]*\} (\d+)$/gm)];
    return counts.reduce((sum, [, count]) => sum + Number(count), 0);
  };

  test('an account comes into being by the link and the password together', async () => {
    const email = anEmail();
    expect(await ask('/api/users', newAccount(email))).toMatchObject({
      status: 202,
      data: { checkMail: true },
    });
    const path = `/api${linkIn(await mailTo(email))}`;
    expect((await ask('/api/session', newAccount(email))).status).toBe(401);
    const person = new Person(service);
    expect((await person.get(path)).data).toEqual({ email, needsPassword: true });
    expect((await person.post(path, { password: 'what a stranger guesses' })).code).toBe('WRONG_PASSWORD');
    expect(await person.post(path, { password: PASSWORD })).toMatchObject({
      status: 201,
      data: { user: { email } },
    });
    expect((await person.get('/api/session')).data.user).toMatchObject({ email, emailVerified: true });
    expect((await person.post(path, { password: PASSWORD })).code).toBe('LINK_NOT_VALID');
  });

  test.each([
    ['sign-in', '/api/session', 1, (email: string) => ({ email, password: 'not the password' })],
    ['password reset', '/api/password-resets', 0, (email: string) => ({ email })],
    ['sign-up', '/api/users', 1, (email: string) => ({ email, password: 'a new password' })],
  ])(
    'security 7: a known and an unknown email look the same at %s: status, headers, body and hashes of passwords',
    async (_name, path, hashed, body) => {
      const known = anEmail();
      await newPerson(service, known);
      const replies: Reply[] = [];
      const ofKnown = await hashesOf(async () => replies.push(await ask(path, body(known))));
      const ofUnknown = await hashesOf(async () => replies.push(await ask(path, body(anEmail()))));
      const [reply, other] = replies.map(shape);
      expect(reply).toEqual(other);
      expect([ofKnown, ofUnknown]).toEqual([hashed, hashed]);
    },
  );

  test('a password is set by the mailed link, once, which verifies the email and ends every session', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${email}`;
    await ask('/api/password-resets', { email: email.toUpperCase() });
    const path = `/api/password-resets/${tokenOf(linkIn(await mailTo(email)))}`;
    expect((await ask(path, { password: 'password' })).code).toBe('WEAK_PASSWORD');
    expect(await ask(path, { password: 'quite another one' })).toMatchObject({
      status: 200,
      data: { email },
    });
    expect((await ask(path, { password: 'quite another one' })).code).toBe('LINK_NOT_VALID');
    expect((await person.get('/api/session')).data.user).toBeNull();
    expect((await ask('/api/session', newAccount(email))).status).toBe(401);
    await person.signIn(email, 'quite another one');
    expect((await person.get('/api/session')).data.user).toMatchObject({ emailVerified: true });
  });

  test('only the mail to a known address says that it has an account', async () => {
    const email = anEmail();
    await newPerson(service, email);
    await ask('/api/users', { email, password: 'a new password' });
    expect((await mailTo(email)).text).toContain('has an account');
  });

  test('a mailbox gets five sign-up mails an hour, in any spelling of its address and from any client', async () => {
    const [known, unknown] = [anEmail(), anEmail()];
    await newPerson(service, known);
    for (const email of [known, unknown]) {
      const [name, domain] = email.split('@');
      const spellings = [
        email,
        email.toUpperCase(),
        `${name}+a@${domain}`,
        `${name}+b+c@${domain}`,
        `s.${name?.slice(1)}@${domain}`,
      ];
      for (const one of spellings) expect((await ask('/api/users', newAccount(one))).status).toBe(202);
      const refused = await ask('/api/users', newAccount(`${name}+d@${domain}`));
      expect(refused).toMatchObject({ status: 429, code: 'TOO_MANY_MAILS' });
      expect(refused.data.details).toBe(
        'This address received 5 sign-up mails within an hour (MAX_SIGN_UP_MAILS_PER_HOUR): follow the link in one of them with the password given for it, or wait 60 min.',
      );
      expect(refused.headers['retry-after']).toBe('3600');
    }
    expect((await ask('/api/users', newAccount(anEmail()))).status).toBe(202);
    clock.advance(3_599_000);
    expect((await ask('/api/users', newAccount(unknown))).headers['retry-after']).toBe('1');
    clock.advance(1_000);
    expect((await ask('/api/users', newAccount(unknown))).status).toBe(202);
    const plain = (to: string) => to.toLowerCase().replace(/\+.*@/, '@').replaceAll('.', '');
    const sent = () => mailbox.mails.filter(({ to }) => plain(to) === plain(unknown)).length;
    await until(() => sent() === 6, 'five mails and the one of the next hour');
  });

  test('thirty sign-ups at once for one mailbox send five mails', async () => {
    const email = anEmail();
    const replies = await Promise.all(Array.from({ length: 30 }, () => ask('/api/users', newAccount(email))));
    expect(replies.filter(({ status }) => status === 202)).toHaveLength(5);
    await until(() => mailbox.mails.filter(({ to }) => to === email).length >= 5, 'the mails');
    expect(mailbox.mails.filter(({ to }) => to === email)).toHaveLength(5);
  });

  test('an invitation is mailed with a link to PUBLIC_URL, whatever host the request names', async () => {
    const owner = await newPerson(service, anEmail());
    const app = await newOwnApp(owner);
    const email = anEmail();
    const origin = { headers: { Host: 'evil.example' } };
    const { data } = await owner.post(`${app.path}/members`, { email }, origin);
    expect(data).toMatchObject({ invited: true, mailed: true });
    expect(String(data.link)).toMatch(/^http:\/\/events\.example\.com\/invitations\//);
    expect((await mailTo(email)).text).toContain(String(data.link));
  });

  test('an unverified account verifies its email by a mailed link, signed in as that account', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${email}`;
    expect((await person.post('/api/email-verifications')).status).toBe(202);
    const path = `/api${linkIn(await mailTo(email))}`;
    expect((await ask(path, {})).code).toBe('SESSION_REQUIRED');
    const other = await newPerson(service, anEmail());
    expect((await other.post(path)).code).toBe('WRONG_ACCOUNT');
    expect((await person.post(path)).status).toBe(200);
    expect((await person.get('/api/session')).data.user).toMatchObject({ emailVerified: true });
  });
});

test('security 8: no answer sends a browser anywhere else', async () => {
  const service = await sharedService();
  const person = new Person(service);
  for (const target of ['//evil.example', '/\\evil.example', 'https://evil.example']) {
    for (const path of ['/sign-in', '/', '/api/session', target]) {
      const query =
        path === target ? '' : `?next=${encodeURIComponent(target)}&returnTo=${encodeURIComponent(target)}`;
      const { status, headers } = await person.get(path + query);
      expect(headers.location).toBeUndefined();
      expect(Math.floor(status / 100)).not.toBe(3);
    }
  }
});
