/** The live feed for resource tokens: the same feed, for as long as the token gives access. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken, revokeResourceToken } from '../../../src/apps/resource-tokens.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson } from '../../support/person.ts';
import { startTestService, TestClock, type TestService, until } from '../../support/service.ts';

describe('with a resource token', () => {
  const clock = new TestClock();
  let service: TestService;
  let clients: LiveClient[] = [];
  beforeAll(async () => {
    const config = { MAX_LIVE_FEEDS_PER_ACCOUNT: 2 };
    service = await startTestService({ clock, config });
  });
  afterAll(() => service.stop());
  afterEach(() => {
    for (const client of clients) client.close();
    clients = [];
  });

  const newToken = (
    seconds: number | null = null,
    appId = service.app.appId,
  ): Promise<{ tokenId: string; resourceToken: string }> =>
    createResourceToken(service.sql, {
      name: 'live',
      appIds: [appId],
      expiresInSeconds: seconds,
    });

  const follow = async (token: string, lastEventId = ''): Promise<LiveClient> => {
    const client = await LiveClient.follow(service.port, service.app.appId, { token, lastEventId });
    clients.push(client);
    return client;
  };

  const reasonOf = (client: LiveClient): unknown =>
    JSON.parse(client.messages.find(({ event }) => event === 'end')?.data ?? 'null');

  test('new events come, and after a break those that were missed', async () => {
    const { resourceToken } = await newToken();
    const client = await follow(resourceToken);
    const first = JSON.parse((await service.post({ payload: { n: 1 } })).body).eventId;
    await until(() => client.events.length === 1, 'the event has come');
    client.close();
    const second = JSON.parse((await service.post({ payload: { n: 2 } })).body).eventId;
    const again = await LiveClient.open(service.port, service.app.appId, {
      token: resourceToken,
      lastEventId: client.lastEventId,
    });
    clients.push(again);
    await until(() => again.events.length === 1, 'the missed event has come');
    expect([client.events[0]?.id, again.events[0]?.id]).toEqual([first, second]);
    expect(again.response.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'ratelimit-limit': '100',
    });
  });

  test('the feed ends when the token is revoked, and those of other tokens go on', async () => {
    const [one, other] = await Promise.all([newToken(), newToken()]);
    const [ended, going] = [await follow(one.resourceToken), await follow(other.resourceToken)];
    await revokeResourceToken(service.sql, one.tokenId);
    await until(() => ended.isOver, 'the feed has ended');
    expect(reasonOf(ended)).toEqual({ reason: 'access' });
    await service.post();
    await until(() => going.events.length === 1, 'the other feed goes on');
  });

  test('the feed ends when the token expires, and when it may not read the app any more', async () => {
    const [expiring, narrowed] = await Promise.all([newToken(3_600), newToken()]);
    const [first, second] = [await follow(expiring.resourceToken), await follow(narrowed.resourceToken)];
    await service.sql`
      DELETE FROM resource_token_apps
       WHERE token_id = (SELECT id FROM resource_tokens WHERE public_id = ${narrowed.tokenId})`;
    await until(() => second.isOver, 'the feed without its app has ended');
    expect(first.isOver).toBe(false);
    clock.jump(3_700_000);
    await until(() => first.isOver, 'the feed of the expired token has ended');
    expect([reasonOf(first), reasonOf(second)]).toEqual([{ reason: 'access' }, { reason: 'access' }]);
  });

  test("a token has its share of feeds, and takes none of another one's", async () => {
    const [one, other] = await Promise.all([newToken(), newToken()]);
    for (const { resourceToken } of [one, one, other]) await follow(resourceToken);
    const refused = await LiveClient.open(service.port, service.app.appId, { token: one.resourceToken });
    await until(() => refused.isOver, 'the answer has come');
    expect(refused.response.statusCode).toBe(429);
    expect(JSON.parse(refused.refusal)).toMatchObject({ code: 'TOO_MANY_LIVE_FEEDS' });
  });

  test('all tokens of an account have the share of the account, with its sessions', async () => {
    const person = await newPerson(service, 'owner@example.com');
    const { appId } = await newOwnApp(person);
    const openWith = async (access: { token: string } | { cookie: string }): Promise<LiveClient> => {
      const client = await LiveClient.open(service.port, appId, access);
      clients.push(client);
      return client;
    };
    for (let n = 0; n < 2; n += 1) {
      const { resourceToken } = await newToken(null, appId);
      expect((await openWith({ token: resourceToken })).response.statusCode).toBe(200);
    }
    for (const access of [
      { token: (await newToken(null, appId)).resourceToken },
      { cookie: person.cookie },
    ]) {
      const refused = await openWith(access);
      await until(() => refused.isOver, 'the answer has come');
      expect(refused.response.statusCode).toBe(429);
    }
  });
});
