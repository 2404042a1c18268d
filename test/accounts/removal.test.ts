/** Removing a member: no invitation, no token and no race lets the person in again. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { activeWebhooks } from '../../src/delivery/webhooks.ts';
import type { Transaction } from '../../src/storage/database/connect.ts';
import { joinApp, newOwnApp, newPerson, PASSWORD, Person, type Reply } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

let counter = 0;
const anEmail = (): string => `removal-${++counter}@example.com`;

interface App {
  readonly appId: string;
  readonly path: string;
}

describe('a server', () => {
  let service: TestService;
  let owner: Person;
  beforeAll(async () => {
    service = await startTestService({ config: { ALLOW_SIGNUP: 'open' } });
    owner = await newPerson(service, anEmail());
  });
  afterAll(() => service.stop());

  const idOf = async (person: Person): Promise<string> => {
    const { user } = (await person.get('/api/session')).data as { user: { userId: string } };
    return user.userId;
  };
  const emailOf = async (person: Person): Promise<string> => {
    const { user } = (await person.get('/api/session')).data as { user: { email: string } };
    return user.email;
  };
  /** The token of an invitation's link. */
  const inviteTo = async (app: App, email: string): Promise<string> => {
    const { data } = await owner.post(`${app.path}/members`, { email });
    return String(data.link).split('/').at(-1) ?? '';
  };
  const accept = (person: Person, token: string): Promise<Reply> =>
    person.post(`/api/invitations/${token}/accept`);
  const remove = async (app: App, person: Person, body: object = {}): Promise<Reply> =>
    owner.delete(`${app.path}/members/${await idOf(person)}`, body);
  const newMaintainer = async (...apps: readonly App[]): Promise<Person> => {
    const email = anEmail();
    const person = await newPerson(service, email);
    for (const app of apps) await joinApp(owner, app.path, person, { email });
    return person;
  };
  const newToken = async (
    person: Person,
    app: App,
    more: object = {},
  ): Promise<{ tokenId: string; resourceToken: string }> => {
    const { status, data } = await person.post(`${app.path}/tokens`, { name: 'Own', ...more });
    expect(status).toBe(201);
    return { tokenId: String(data.tokenId), resourceToken: String(data.resourceToken) };
  };
  const statusOf = async (app: App, { resourceToken }: { resourceToken: string }): Promise<number> => {
    const headers = { Authorization: `Bearer ${resourceToken}` };
    return (await service.request({ path: `/public/get_events?appId=${app.appId}`, headers })).status;
  };
  /** Runs work while a transaction of the test holds a lock; it goes when `work` has returned. */
  const whileLocked = async <T>(
    lock: (tx: Transaction) => Promise<unknown>,
    work: (untilWaiting: (transactions: number) => Promise<void>) => Promise<T>,
  ): Promise<T> =>
    (await service.sql.begin(async (tx) => {
      await lock(tx);
      return await work((transactions) =>
        until(async () => {
          const [row] = await service.sql<[{ waiting: number }]>`
            SELECT count(*)::int AS waiting FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'`;
          return row.waiting >= transactions;
        }, `${transactions} transactions wait`),
      );
    })) as T; // The package's type unwraps arrays of promises.

  describe('invitations', () => {
    test('end with the removal of the invited member, also for another address', async () => {
      const app = await newOwnApp(owner);
      const invited = anEmail();
      const person = await newPerson(service, anEmail());
      expect((await accept(person, await inviteTo(app, invited))).status).toBe(200);
      const second = await inviteTo(app, invited);
      expect((await person.get(`/api/invitations/${second}`)).status).toBe(200);
      expect((await remove(app, person)).status).toBe(200);
      expect(await accept(person, second)).toMatchObject({ status: 404, code: 'LINK_NOT_VALID' });
      expect((await person.get(app.path)).status).toBe(404);
      const { entries } = (await owner.get(`${app.path}/audit`)).data as { entries: { action: string }[] };
      expect(entries.map(({ action }) => action).slice(0, 2)).toEqual([
        'invitation.withdraw',
        'member.remove',
      ]);
    });

    test('that an earlier release left open for a member end with the removal too', async () => {
      const app = await newOwnApp(owner);
      const email = anEmail();
      const person = await newPerson(service, email);
      const link = await inviteTo(app, anEmail());
      await joinApp(owner, app.path, person, { email });
      await service.sql`UPDATE invitations SET email = ${email}, email_key = ${email} WHERE app_id = (
        SELECT id FROM apps WHERE public_id = ${app.appId})`;
      expect((await remove(app, person)).status).toBe(200);
      expect((await accept(person, link)).code).toBe('LINK_NOT_VALID');
    });

    test.each(['accepting first', 'inviting first'])(
      'accepted and made again at the same moment, %s, leave none by which a removed member returns',
      async (order) => {
        const app = await newOwnApp(owner);
        const email = anEmail();
        const person = new Person(service);
        await person.post('/api/users', { email, password: PASSWORD });
        const first = await inviteTo(app, email);
        const again = (): Promise<Reply> => owner.post(`${app.path}/members`, { email });
        const [one, two] =
          order === 'accepting first'
            ? [() => accept(person, first), again]
            : [again, () => accept(person, first)];
        // Both wait for what they change, in the order in which they came.
        const replies = await whileLocked(
          (tx) => tx`
            SELECT FROM invitations JOIN apps ON apps.id = app_id
             WHERE apps.public_id = ${app.appId} FOR UPDATE OF invitations`,
          async (untilWaiting) => {
            const began = [one()];
            await untilWaiting(1);
            began.push(two());
            await untilWaiting(2);
            return { began };
          },
        ).then(({ began }) => Promise.all(began));
        const { invitations } = (await owner.get(`${app.path}/members`)).data as { invitations: unknown[] };
        if (order === 'accepting first') {
          expect(replies.map(({ code }) => code)).toEqual(['', 'ALREADY_MEMBER']);
          expect(invitations).toEqual([]);
          await remove(app, person);
        } else {
          expect(replies.map(({ code }) => code)).toEqual(['', 'LINK_NOT_VALID']);
          expect(invitations).toHaveLength(1);
        }
        expect((await person.get(app.path)).status).toBe(404);
      },
    );

    test('accepted while they are withdrawn: the answer of the withdrawal is true', async () => {
      const app = await newOwnApp(owner);
      const link = await inviteTo(app, anEmail());
      const { invitations } = (await owner.get(`${app.path}/members`)).data as {
        invitations: { invitationId: string }[];
      };
      const person = await newPerson(service, anEmail());
      const began = await whileLocked(
        (tx) => tx`SELECT FROM apps WHERE public_id = ${app.appId} FOR UPDATE`,
        async (untilWaiting) => {
          const withdrawal = owner.delete(`${app.path}/invitations/${invitations[0]?.invitationId}`);
          await untilWaiting(1);
          const acceptance = accept(person, link);
          await untilWaiting(2);
          return { withdrawal, acceptance };
        },
      );
      expect((await began.withdrawal).status).toBe(200);
      expect((await began.acceptance).code).toBe('LINK_NOT_VALID');
      expect((await person.get(app.path)).status).toBe(404);
    });
  });

  describe('what a member has sent elsewhere', () => {
    const RULE = '{"of":"count","window":"1m","above":0}';
    const hookOf = async (person: Person, app: App): Promise<string> => {
      const { data, text } = await person.post(`${app.path}/webhooks`, {
        url: 'https://hooks.example.com/a',
      });
      expect(data.webhookId, text).toMatch(/^whk_/);
      return String(data.webhookId);
    };
    const alertOf = async (person: Person, app: App, name: string): Promise<string> => {
      const alertmanager = `https://${name}.example.com/`;
      const { data, text } = await person.post(`${app.path}/alerts`, { name, rule: RULE, alertmanager });
      expect(data.alertId, text).toMatch(/^alr_/);
      return String(data.alertId);
    };
    const statesOf = async (app: App): Promise<unknown> => {
      const { webhooks } = (await owner.get(`${app.path}/webhooks`)).data as {
        webhooks: { webhookId: string; state: string }[];
      };
      const { alerts } = (await owner.get(`${app.path}/alerts`)).data as {
        alerts: { alertId: string; alertmanager: string | null }[];
      };
      return Object.fromEntries([
        ...webhooks.map(({ webhookId, state }) => [webhookId, state]),
        ...alerts.map(({ alertId, alertmanager }) => [alertId, alertmanager]),
      ]);
    };

    test('ends with the membership, but for what the owner keeps; who resumes a webhook takes it over', async () => {
      const app = await newOwnApp(owner);
      const person = await newMaintainer(app);
      const hooks = [await hookOf(person, app), await hookOf(person, app), await hookOf(owner, app)] as const;
      const alerts = [await alertOf(person, app, 'one'), await alertOf(person, app, 'two')] as const;
      const foreign = await remove(app, person, { keepWebhooks: [hooks[2]] });
      expect(foreign).toMatchObject({ status: 404, code: 'WEBHOOK_NOT_FOUND' });
      expect((await person.get(app.path)).status).toBe(200);
      const removed = await remove(app, person, { keepWebhooks: [hooks[1]], keepAlerts: [alerts[1]] });
      expect(removed.data).toMatchObject({
        endedWebhooks: [{ webhookId: hooks[0], url: 'https://hooks.example.com/a' }],
        keptWebhooks: [{ webhookId: hooks[1] }],
        endedAlerts: [{ alertId: alerts[0], name: 'one' }],
        keptAlerts: [{ alertId: alerts[1] }],
      });
      expect(await statesOf(app)).toEqual({
        ...{ [hooks[0]]: 'disabled', [hooks[1]]: 'active', [hooks[2]]: 'active' },
        ...{ [alerts[0]]: null, [alerts[1]]: 'https://two.example.com/' },
      });
      const isSending = async (): Promise<boolean[]> => {
        const ids = (await activeWebhooks(service.sql)).map(({ webhookId }) => webhookId);
        return hooks.map((id) => ids.includes(id));
      };
      expect(await isSending()).toEqual([false, true, true]);
      expect((await owner.post(`${app.path}/webhooks/${hooks[0]}/resume`)).status).toBe(200);
      expect(await isSending()).toEqual([true, true, true]);
      // The member who comes back has nothing of it.
      await joinApp(owner, app.path, person, { email: await emailOf(person) });
      expect((await remove(app, person)).data).toMatchObject({ endedWebhooks: [], endedAlerts: [] });
    });

    test.each(['webhooks', 'alerts'])(
      '%s that are added while the member is removed are ended, or not added',
      async (what) => {
        const app = await newOwnApp(owner);
        const person = await newMaintainer(app);
        const userId = await idOf(person);
        const body = {
          webhooks: { url: 'https://hooks.example.com/late' },
          alerts: { name: 'late', rule: RULE, alertmanager: 'https://late.example.com/' },
        }[what];
        const { removal, making } = await whileLocked(
          (tx) => tx`SELECT FROM apps WHERE public_id = ${app.appId} FOR UPDATE`,
          async (untilWaiting) => {
            const began = owner.delete(`${app.path}/members/${userId}`);
            await untilWaiting(1);
            // It is past the check of who asks, and has yet to be made.
            const late = person.post(`${app.path}/${what}`, body);
            await untilWaiting(2);
            return { removal: began, making: late };
          },
        );
        expect((await removal).status).toBe(200);
        expect((await making).code).toBe('APP_NOT_FOUND');
        expect(await statesOf(app)).toEqual({});
      },
    );
  });

  describe("a member's resource tokens", () => {
    test('are revoked by the removal; those of others are not', async () => {
      const app = await newOwnApp(owner);
      const person = await newMaintainer(app);
      const [own, foreign] = [await newToken(person, app), await newToken(owner, app)];
      expect([await statusOf(app, own), await statusOf(app, foreign)]).toEqual([200, 200]);
      const { tokens } = (await owner.get(`${app.path}/tokens`)).data as {
        tokens: { tokenId: string; createdBy: object }[];
      };
      expect(tokens.find(({ tokenId }) => tokenId === own.tokenId)?.createdBy).toEqual({
        userId: await idOf(person),
        email: expect.stringContaining('@'),
      });
      expect((await remove(app, person)).data).toEqual({
        revokedTokens: [{ tokenId: own.tokenId, name: 'Own' }],
        keptTokens: [],
        ...{ endedWebhooks: [], keptWebhooks: [], endedAlerts: [], keptAlerts: [] },
      });
      expect([await statusOf(app, own), await statusOf(app, foreign)]).toEqual([401, 200]);
    });

    test('go on where the owner keeps them, which the audit log has; an unknown one to keep changes nothing', async () => {
      const app = await newOwnApp(owner);
      const person = await newMaintainer(app);
      const [kept, ended, foreign] = [
        await newToken(person, app),
        await newToken(person, app),
        await newToken(owner, app),
      ];
      const wrong = await remove(app, person, { keepTokens: [kept.tokenId, foreign.tokenId] });
      expect(wrong).toMatchObject({ status: 404, code: 'TOKEN_NOT_FOUND' });
      expect((await person.get(app.path)).status).toBe(200);
      const { data } = await remove(app, person, { keepTokens: [kept.tokenId] });
      expect(data).toMatchObject({
        revokedTokens: [{ tokenId: ended.tokenId }],
        keptTokens: [{ tokenId: kept.tokenId }],
      });
      expect([await statusOf(app, kept), await statusOf(app, ended)]).toEqual([200, 401]);
      const { entries } = (await owner.get(`${app.path}/audit`)).data as {
        entries: { action: string; details: { tokenId?: string } }[];
      };
      const ofTokens = entries.slice(0, 2).map(({ action, details }) => [action, details.tokenId]);
      expect(ofTokens).toEqual([
        ['resource-token.revoke', ended.tokenId],
        ['resource-token.keep', kept.tokenId],
      ]);
    });

    test('for several apps lose this one, and are revoked with the last', async () => {
      const [one, two] = [await newOwnApp(owner), await newOwnApp(owner)];
      const person = await newMaintainer(one, two);
      const token = await newToken(person, one, { appIds: [two.appId] });
      expect([await statusOf(one, token), await statusOf(two, token)]).toEqual([200, 200]);
      await remove(one, person);
      expect([await statusOf(one, token), await statusOf(two, token)]).toEqual([403, 200]);
      await remove(two, person);
      expect([await statusOf(one, token), await statusOf(two, token)]).toEqual([401, 401]);
    });

    test('that are made while the member is removed are revoked, or not made', async () => {
      const app = await newOwnApp(owner);
      const person = await newMaintainer(app);
      const lock = (tx: Transaction) => tx`
        SELECT FROM app_members JOIN users ON users.id = user_id
         WHERE public_id = ${userId} FOR UPDATE OF app_members`;
      const userId = await idOf(person);
      const began = await whileLocked(lock, async (untilWaiting) => {
        const making = person.post(`${app.path}/tokens`, { name: 'Late' });
        await untilWaiting(1);
        const removal = remove(app, person);
        await untilWaiting(2);
        return { making, removal };
      });
      const made = await began.making;
      expect((await began.removal).status).toBe(200);
      if (made.status === 201) {
        const { resourceToken } = made.data as { resourceToken: string };
        expect(await statusOf(app, { resourceToken })).toBe(401);
      } else {
        expect(made).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
      }

      const other = await newMaintainer(app);
      const otherId = await idOf(other);
      const late = await whileLocked(
        (tx) => tx`SELECT FROM apps WHERE public_id = ${app.appId} FOR UPDATE`,
        async (untilWaiting) => {
          const removal = owner.delete(`${app.path}/members/${otherId}`);
          await untilWaiting(1);
          // It is past the check of who asks, and has yet to be made.
          const making = other.post(`${app.path}/tokens`, { name: 'Later' });
          await untilWaiting(2);
          return { removal, making };
        },
      );
      expect((await late.removal).status).toBe(200);
      const lateMade = await late.making;
      if (lateMade.status === 201)
        expect(await statusOf(app, { resourceToken: String(lateMade.data.resourceToken) })).toBe(401);
      else expect(lateMade.code).toBe('APP_NOT_FOUND');
    });
  });
});
