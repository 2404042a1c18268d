/** Taking over the identity of an email address: by inviting it, by registering it first, with and without mail, and by an identity of an issuer. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { createResetPath } from '../../src/accounts/sign-in/password-reset.ts';
import { applyGroups, mapGroup, unmapGroup } from '../../src/apps/groups.ts';
import { first } from '../support/fuzz.ts';
import { type LyingIssuer, startLyingIssuer } from '../support/lying-issuer.ts';
import { linkIn, type Mailbox, openMailbox } from '../support/mailbox.ts';
import { joinApp, newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

let counter = 0;
const anEmail = (): string => `takeover-${++counter}@example.com`;

/** The first two before a merge. */
const SERVERS = [
  ['with open sign-up, without mail', 'open', false],
  ['with the default ALLOW_SIGNUP and mail', 'first', true],
  ['with the default ALLOW_SIGNUP, without mail', 'first', false],
  ['with open sign-up and mail', 'open', true],
] as const;

describe.each(first(SERVERS, 2))('%s,', (_name, signUp, hasMail) => {
  let mailbox: Mailbox;
  let service: TestService;
  let attacker: Person;
  let victim: Person;
  beforeAll(async () => {
    mailbox = await openMailbox();
    const mail = { SMTP_URL: mailbox.url, PUBLIC_URL: 'http://events.example.com' };
    service = await startTestService({ config: { ALLOW_SIGNUP: signUp, ...(hasMail && mail) } });
    [attacker, victim] = [await newPerson(service, anEmail()), await newPerson(service, anEmail())];
  });
  afterAll(async () => {
    await service.stop();
    await mailbox.close();
  });

  /** The link that the attacker sees in the answer. */
  const inviteAs = async (person: Person, path: string, email: string): Promise<string> => {
    const { data } = await person.post(`${path}/members`, { email });
    expect(data).toMatchObject({ invited: true, mailed: hasMail });
    return String(data.link).split('/').at(-1) ?? '';
  };
  const isVerified = async (person: Person): Promise<unknown> => {
    const { user } = (await person.get('/api/session')).data as { user: { emailVerified: boolean } };
    return user.emailVerified;
  };
  /** What the real owner of an app does, who believes that the account is the boss's. */
  const addToRealApp = async (email: string, thief: Person): Promise<void> => {
    const app = await newOwnApp(victim, 'Real');
    await inviteAs(victim, app.path, email);
    expect(await thief.get(`${app.path}/logging-token`)).toMatchObject({ status: 404 });
    expect((await thief.get('/api/apps')).text).not.toContain(app.appId);
  };

  test('security 7: adding an address tells nobody whether an account has it', async () => {
    const own = await newOwnApp(attacker, 'Bait');
    const [verified, opened, unverified, none] = [anEmail(), anEmail(), anEmail(), anEmail()];
    const people = await Promise.all([verified, opened].map((email) => newPerson(service, email)));
    await newPerson(service, unverified);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${unverified}`;
    /** What the owner sees of an address: answers, lists and entries of the log, without what is its own. */
    const shown = async (email: string): Promise<string> => {
      const { status, headers, text } = await attacker.post(`${own.path}/members`, { email, role: 'viewer' });
      const lists = (await attacker.get(`${own.path}/members`)).data as Record<string, { email: string }[]>;
      const listed = Object.entries(lists).map(([name, all]) => [
        name,
        all.filter((one) => one.email === email),
      ]);
      const { entries } = (await attacker.get(`${own.path}/audit`)).data as {
        entries: { details: object; text: string }[];
      };
      const { text: app } = await attacker.get(own.path);
      return JSON.stringify([
        status,
        Object.keys(headers).sort(),
        text,
        listed,
        entries[0]?.details,
        entries[0]?.text,
        app,
      ])
        .replaceAll(email, 'ADDRESS')
        .replaceAll(/invitations\/[\w-]+|inv_\w+|\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'OWN');
    };
    const before = await shown(none);
    expect(before).toContain('ADDRESS');
    for (const email of [verified, opened, unverified]) expect(await shown(email)).toBe(before);
    // They see the app in their list, and have not opened it: a second time tells nothing either.
    for (const person of people) expect((await person.get('/api/apps')).text).toContain(own.appId);
    for (const email of [verified, opened, unverified, none]) expect(await shown(email)).toBe(before);
    if (!hasMail) return;
    const mailsOf = (email: string): string[] =>
      mailbox.mails
        .filter(({ to, text }) => to === email && text.includes('/invitations/'))
        .map(({ text }) => text.replaceAll(email, 'ADDRESS').replaceAll(/invitations\/[\w-]+/g, 'OWN'));
    await until(
      () => [verified, opened, unverified, none].every((email) => mailsOf(email).length === 2),
      'a mail for each time, whoever has the address',
    );
  });

  test('security 7: signing up by an own invitation for an address does not verify the address', async () => {
    const boss = anEmail();
    const own = await newOwnApp(attacker, 'Bait');
    const invitation = await inviteAs(attacker, own.path, boss);
    const thief = new Person(service);
    const made = await thief.post('/api/users', { email: boss, password: PASSWORD, invitation });
    expect(made).toMatchObject({ status: 201, data: { user: { email: boss, emailVerified: false } } });
    expect((await thief.get(own.path)).data).toMatchObject({ role: 'maintainer' });
    expect(await isVerified(thief)).toBe(false);
    await addToRealApp(boss, thief);
  });

  test('security 7: an account that accepts an invitation for its address has not verified it', async () => {
    const boss = anEmail();
    const thief = await newPerson(service, boss);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${boss}`;
    const own = await newOwnApp(attacker, 'Bait');
    const invitation = await inviteAs(attacker, own.path, boss);
    expect((await thief.post(`/api/invitations/${invitation}/accept`)).status).toBe(200);
    expect((await thief.get(own.path)).data).toMatchObject({ role: 'maintainer' });
    expect(await isVerified(thief)).toBe(false);
    const { members } = (await attacker.get(`${own.path}/members`)).data as { members: object[] };
    expect(members).toContainEqual(expect.objectContaining({ email: boss, emailVerified: false }));
    await addToRealApp(boss, thief);
  });

  test.runIf(hasMail)('a mailed reset that verifies the address says what has ended by it', async () => {
    const boss = anEmail();
    await newPerson(service, boss);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${boss}`;
    await new Person(service).post('/api/password-resets', { email: boss });
    const mailWith = (text: RegExp) =>
      [...mailbox.mails, ...mailbox.notices].find((mail) => mail.to === boss && text.test(mail.text));
    await until(() => mailWith(/password-reset/) !== undefined, 'the link');
    const link = linkIn(mailWith(/password-reset/)).replace('reset', 'resets');
    const done = await new Person(service).post(`/api${link}`, { password: `${PASSWORD}!` });
    expect(done.status).toBe(200);
    await until(() => mailWith(/So what there was has ended:\s+1 session\./) !== undefined, 'the notice');
  });

  test.runIf(hasMail)('a link that was only mailed still verifies the address', async () => {
    const boss = anEmail();
    const person = await newPerson(service, boss);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${boss}`;
    await person.post('/api/email-verifications');
    await until(() => mailbox.mails.some(({ to }) => to === boss), 'the mail');
    const mail = mailbox.mails.find(({ to }) => to === boss);
    expect((await person.post(`/api${linkIn(mail)}`)).status).toBe(200);
    expect(await isVerified(person)).toBe(true);
    const app = await newOwnApp(victim, 'Real');
    await joinApp(victim, app.path, person, { email: boss });
  });
});

/** Sets the password as the owner of the mailbox does. */
async function reset(service: TestService, email: string, password: string): Promise<number> {
  const path = await createResetPath(service.sql, requireEmail(email), Date.now());
  const token = path.split('/').at(-1);
  return (await new Person(service).post(`/api/password-resets/${token}`, { password })).status;
}

describe.each([
  ['of an issuer whose addresses are trusted', 'true'],
  ['of an issuer whose addresses are not', 'false'],
] as const)('by an identity %s,', (_name, trusted) => {
  let issuer: LyingIssuer;
  let service: TestService;
  let owner: Person;
  beforeAll(async () => {
    issuer = await startLyingIssuer('tidemark', 'secret');
    service = await startTestService({
      config: {
        PUBLIC_URL: 'http://tidemark.test',
        OIDC_ISSUER: issuer.url,
        OIDC_CLIENT_ID: 'tidemark',
        OIDC_CLIENT_SECRET: 'secret',
        OIDC_TRUST_EMAIL: trusted,
        ALLOW_SIGNUP: 'open',
      },
    });
    owner = await newPerson(service, anEmail());
  });
  afterAll(async () => {
    await service.stop();
    await issuer.stop();
  });

  /** The issuer knows the user by this subject, and by any address that the user says. */
  const become = (sub: string, email: string): void => {
    issuer.lie = { claims: (claims) => Object.assign(claims, { sub, email, email_verified: true }) };
  };
  const comeBack = async (person: Person, query: URLSearchParams): Promise<string | undefined> =>
    (await person.get(`/sign-in/oidc/callback?${query}`)).headers.location;
  const signIn = async (person: Person): Promise<string | undefined> =>
    await comeBack(person, issuer.answer((await person.get('/sign-in/oidc')).headers.location ?? ''));
  const join = async (person: Person): Promise<URLSearchParams> =>
    issuer.answer(String((await person.post('/api/identity')).data.location));
  const userOf = async (person: Person): Promise<Record<string, unknown> | null> =>
    (await person.get('/api/session')).data.user as Record<string, unknown> | null;
  const isVerified = async (email: string): Promise<unknown> =>
    (await service.sql`SELECT email_verified_at IS NOT NULL AS yes FROM users WHERE email = ${email}`)[0]
      ?.yes;

  test('an address is no way into the account that has it, verified or not', async () => {
    const [boss, early] = [anEmail(), anEmail()];
    await newPerson(service, boss);
    const thief = new Person(service);
    become('thief', boss);
    expect(await signIn(thief)).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
    // An account that somebody registered first stays theirs, and nothing verifies it.
    const squatter = new Person(service);
    await squatter.post('/api/users', { email: early, password: PASSWORD });
    become('early', early);
    expect(await signIn(thief)).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
    expect(await userOf(thief)).toBeNull();
    expect(await isVerified(early)).toBe(false);
  });

  test('another address at the issuer changes nothing: the account keeps its own, and gets no access of the new one', async () => {
    const [own, boss] = [anEmail(), anEmail()];
    const thief = new Person(service);
    become('mover', own);
    expect(await signIn(thief)).toBe('/');
    become('mover', boss);
    expect(await signIn(thief)).toBe('/');
    expect(await userOf(thief)).toMatchObject({ email: own, emailVerified: trusted === 'true' });
    const app = await newOwnApp(owner, 'Real');
    expect((await owner.post(`${app.path}/members`, { email: boss })).data).toMatchObject({ invited: true });
    expect((await thief.get('/api/apps')).text).not.toContain(app.appId);
    // Its own address counts as verified only where the issuer is trusted with that.
    await owner.post(`${app.path}/members`, { email: own });
    expect((await thief.get(app.path)).status).toBe(trusted === 'true' ? 200 : 404);
  });

  test('an identity is joined by the session that began it alone, and is one account’s', async () => {
    const [thief, victim] = [await newPerson(service, anEmail()), await newPerson(service, anEmail())];
    become('joined', anEmail());
    const before = thief.cookie;
    const query = await join(thief);
    // The victim is led to the address that the thief came back with, with the thief's cookie of the way.
    const way = thief.cookie.split('; ').filter((pair) => pair.startsWith('tidemark_oidc'));
    const own = victim.cookie;
    victim.cookie = [own, ...way].join('; ');
    expect(await comeBack(victim, query)).toBe('/account?problem=OIDC_OTHER_SESSION');
    victim.cookie = own;
    expect((await victim.get('/api/identity')).data.joined).toBe(false);
    thief.cookie = before;
    expect(await comeBack(thief, await join(thief))).toBe('/account');
    expect(await comeBack(victim, await join(victim))).toBe('/account?problem=OIDC_JOINED_ELSEWHERE');
    expect((await victim.get('/api/identity')).data.joined).toBe(false);
    const again = new Person(service);
    await signIn(again);
    expect((await userOf(again))?.userId).toBe((await userOf(thief))?.userId);
  });

  test.runIf(trusted === 'false')(
    'a reset that verifies the address ends whatever the maker of the account had',
    async () => {
      const email = anEmail();
      const thief = new Person(service);
      become('squatter', email);
      expect(await signIn(thief)).toBe('/');
      const bait = await newOwnApp(thief, 'Bait');
      const { token } = (await thief.post(`${bait.path}/tokens`, { name: 'spy' })).data;
      const { viewId } = (await thief.post(`${bait.path}/views`, { name: 'All', search: '?range=7d' })).data;
      expect(
        await thief.post(`${bait.path}/shares`, { viewId, range: '7d', timezone: 'UTC', list: 'payloads' }),
      ).toMatchObject({ status: 201 });
      await mapGroup(service.sql, { group: 'staff', appId: null, role: 'viewer' });
      const [{ id } = { id: 0 }] = await service.sql<
        { id: number }[]
      >`SELECT id FROM users WHERE email = ${email}`;
      await service.sql.begin(async (tx) => {
        const user = { id, userId: '', email, emailKey: email, emailVerified: false };
        await applyGroups(tx, user, ['staff']);
      });
      await service.sql`INSERT INTO second_factors (user_id, sealed, started_at, enabled_at) VALUES (${id}, '', now(), now())`;
      // It comes back from the issuer while the reset is done: what was known before the lock does not count.
      const late = new Person(service);
      const query = issuer.answer((await late.get('/sign-in/oidc')).headers.location ?? '');

      const victim = new Person(service);
      expect(await reset(service, email, `${PASSWORD}!`)).toBe(200);
      await victim.signIn(email, `${PASSWORD}!`);
      expect(await userOf(victim)).toMatchObject({ email, emailVerified: true });
      const own = await newOwnApp(victim, 'Real');
      expect(await userOf(thief)).toBeNull();
      expect(await comeBack(late, query)).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
      expect(await signIn(new Person(service))).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
      expect((await thief.get(own.path)).status).toBe(401);
      const read = await service.request({
        path: `/public/get_events?appId=${bait.appId}`,
        headers: { Authorization: `Bearer ${String(token)}` },
      });
      expect(read.status).toBe(401);
      expect((await victim.get(`${bait.path}/shares`)).data).toMatchObject({ shares: [] });
      const roles = await service.sql`SELECT role FROM app_members WHERE user_id = ${id}`;
      expect(roles.map(({ role }) => role)).toEqual(['owner', 'owner']);
      const [entry] = await service.sql<{ details: unknown }[]>`
        SELECT details FROM audit_entries WHERE account_id = ${id} AND action = 'password.reset'`;
      expect(entry?.details).toEqual({
        ended: `1 session, the sign-in at ${issuer.url}, the second factor, 1 resource token, 1 share`,
      });
      await unmapGroup(service.sql, { group: 'staff', appId: null });
    },
  );

  test('a reset of an address that was verified before leaves the identities of its owner', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    become('kept', anEmail());
    expect(await comeBack(person, await join(person))).toBe('/account');
    expect(await reset(service, email, `${PASSWORD}!`)).toBe(200);
    expect(await userOf(person)).toBeNull();
    const again = new Person(service);
    expect(await signIn(again)).toBe('/');
    expect(await userOf(again)).toMatchObject({ email });
  });

  test('an identity that has left is no way in any more', async () => {
    const email = anEmail();
    const person = await newPerson(service, email);
    become('left', email);
    expect(await comeBack(person, await join(person))).toBe('/account');
    expect((await person.delete('/api/identity')).status).toBe(200);
    const later = new Person(service);
    expect(await signIn(later)).toBe('/sign-in?problem=OIDC_EMAIL_TAKEN');
    expect(await userOf(later)).toBeNull();
  });

  test('the account that an identity made has no password that anybody knows', async () => {
    const email = anEmail();
    become('fresh', email);
    expect(await signIn(new Person(service))).toBe('/');
    for (const password of ['', PASSWORD, email])
      expect((await new Person(service).post('/api/session', { email, password })).status).not.toBe(200);
    // Who registers the address meanwhile gets nothing of it.
    const squatter = new Person(service);
    expect((await squatter.post('/api/users', { email, password: PASSWORD })).status).not.toBe(201);
    expect(await userOf(squatter)).toBeNull();
  });
});
