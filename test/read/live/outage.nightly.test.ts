/** The database goes away while somebody watches: the feed stays, says so, and is complete afterwards. */
import { randomUUID } from 'node:crypto';
import { afterEach, expect, test } from 'vitest';
import { insertSelected } from '../../support/insert-selected.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson } from '../../support/person.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';

const open: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.stop();
});

async function start(): Promise<{ service: TestService; proxy: FaultyProxy }> {
  let proxy: FaultyProxy | undefined;
  const service = await startTestService({
    reach: async (address) => {
      proxy = await FaultyProxy.start(address);
      return proxy.address;
    },
  });
  if (proxy === undefined) throw new Error('The service did not ask how to reach its database.');
  open.push(service, proxy);
  return { service, proxy };
}

async function follow(service: TestService) {
  const owner = await newPerson(service, 'owner@example.com');
  const app = await newOwnApp(owner);
  const post = async (): Promise<string> => {
    const response = await service.post({
      loggingToken: app.loggingToken,
      typeId: undefined,
      typeName: 'tick',
    });
    expect(response.status).toBe(201);
    return JSON.parse(response.body).eventId;
  };
  const first = await post();
  const client = await LiveClient.follow(service.port, app.appId, { cookie: owner.cookie });
  /** Straight into the database, as another process would. */
  const insert = async (): Promise<string> => {
    const { sql, database } = service;
    const id = randomUUID();
    const row = sql`SELECT ${id}::uuid, app_id, type_id, ${Date.now()}::timestamptz, '{}'::json FROM events WHERE id = ${first}`;
    await insertSelected(sql, database.engine, row);
    return id;
  };
  return { client, insert, post, appId: app.appId, cookie: owner.cookie };
}

/** The transaction of a look that found that something was committed. */
const isLook = (bytes: Buffer): boolean => bytes.includes('repeatable read read only');

const eventsOf = (client: LiveClient): string[] => client.events.map(({ id }) => id).sort();

test('with lost and refused connections the feed stays open, and is complete when the database is back', async () => {
  const { service, proxy } = await start();
  const { client, insert, post } = await follow(service);
  const sent = [await post()];
  await until(() => client.events.length === 1, 'the event before has come');
  await proxy.goAway();
  sent.push(await insert(), await insert());
  await until(() => client.has('stalled'), 'the reader is told');
  expect(client.isOver).toBe(false);
  await proxy.comeBack();
  await until(() => client.events.length >= 3, 'what was committed meanwhile has come');
  await until(() => client.messages.at(-1)?.event === 'ready', 'the reader is told that it goes on');
  sent.push(await post());
  await until(() => client.events.length >= 4, 'the event after has come');
  expect(eventsOf(client)).toEqual(sent.sort());
  client.close();
});

test('a client that connects during an outage waits, and then receives what it asked for', async () => {
  const { service, proxy } = await start();
  const { client, insert, appId, cookie } = await follow(service);
  const held = proxy.next(isLook, 'hold-answer');
  const sent = [await insert()];
  await until(() => held() > 0, 'a look is under way');
  const { lastEventId } = client;
  const late = await LiveClient.open(service.port, appId, { cookie, lastEventId });
  expect(late.response.statusCode).toBe(200);
  sent.push(await insert());
  proxy.release();
  await until(() => late.events.length > 1, 'both events have come');
  expect(eventsOf(late)).toEqual(sent.sort());
  late.close();
  client.close();
});
