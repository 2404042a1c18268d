/** Taking over the identity of an email address: by inviting it, by registering it first, with and without mail. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { linkIn, type Mailbox, openMailbox } from '../support/mailbox.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

let counter = 0;
const anEmail = (): string => `takeover-${++counter}@example.com`;

describe.each([
  ['with the default ALLOW_SIGNUP, without mail, on uws', 'uws', 'first', false],
  ['with open sign-up, without mail, on node', 'node', 'open', false],
  ['with the default ALLOW_SIGNUP and mail, on node', 'node', 'first', true],
  ['with open sign-up and mail, on uws', 'uws', 'open', true],
] as const)('%s,', (_name, transport, signUp, hasMail) => {
  let mailbox: Mailbox;
  let service: TestService;
  let attacker: Person;
  let victim: Person;
  beforeAll(async () => {
    mailbox = await openMailbox();
    const mail = { SMTP_URL: mailbox.url, PUBLIC_URL: 'http://events.example.com' };
    service = await startTestService({ transport, config: { ALLOW_SIGNUP: signUp, ...(hasMail && mail) } });
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
    expect((await victim.post(`${app.path}/members`, { email: boss })).data).toEqual({ added: true });
  });
});
