/** What is dated far back is told to a client that goes on from a cursor, by the order of commits, on every engine. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson, type Person } from '../../support/person.ts';
import { sharedService, type TestService, until } from '../../support/service.ts';

const HOUR_MS = 3_600_000;

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  let owner: Person;
  let app: { appId: string; loggingToken: string; path: string };
  let clients: LiveClient[] = [];
  beforeAll(async () => {
    service = await sharedService({ engine });
    owner = await newPerson(service, `${randomUUID()}@example.com`);
  });
  beforeEach(async () => {
    app = await newOwnApp(owner);
    await send(0);
  });
  afterEach(() => {
    for (const client of clients) client.close();
    clients = [];
  });
  afterAll(() => service.stop());

  const send = async (ageMs: number): Promise<void> => {
    const createdAt = new Date(Date.now() - ageMs).toISOString();
    const { status, body } = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${app.loggingToken}` },
      body: JSON.stringify({ events: [{ typeName: 'order', payload: { shop: 'north' }, createdAt }] }),
    });
    expect(status, body).toBe(200);
  };
  const chart = async (query = ''): Promise<string> =>
    String((await owner.get(`${app.path}/series?range=all${query}`)).data.feed);
  const list = async (query = ''): Promise<string> => {
    const { pagination } = (await owner.get(`${app.path}/events?order=desc${query}`)).data;
    return String((pagination as { feed: string }).feed);
  };
  const follow = async (lastEventId: string): Promise<LiveClient> => {
    const client = await LiveClient.follow(service.port, app.appId, { cookie: owner.cookie, lastEventId });
    clients.push(client);
    await until(() => client.messages.some(({ id }) => id !== lastEventId), 'the feed goes on');
    return client;
  };
  const toldBy = (client: LiveClient): string => client.messages.map(({ event }) => event).join(' ');

  test.each(['', '&filter=shop:north', '&q=north'])(
    'what was committed between the answers of a page%s and its feed is told, however old it is',
    async (query) => {
      const page = `${await chart(query)},${await list(query)}`;
      expect(toldBy(await follow(page))).toBe('ready');
      await send(3 * HOUR_MS);
      expect(toldBy(await follow(page))).toBe('recount ready');
      await send(0);
      const both = await follow(page);
      expect(toldBy(both)).toBe('recount events');
      expect(both.events).toHaveLength(1);
    },
  );

  test('what was committed between the two answers of a page is told, in either order', async () => {
    const before = await chart();
    await send(3 * HOUR_MS);
    const after = await list();
    expect(toldBy(await follow(`${before},${after}`))).toBe('recount ready');
    expect(toldBy(await follow(`${after},${before}`))).toBe('recount ready');
    expect(toldBy(await follow(after))).toBe('ready');
  });

  test('what was committed while a client was away is told, and once', async () => {
    const first = await follow(await list());
    first.close();
    await send(3 * HOUR_MS);
    const second = await follow(first.lastEventId);
    expect(toldBy(second)).toBe('recount ready');
    second.close();
    expect(toldBy(await follow(second.lastEventId))).toBe('ready');
  });
});
