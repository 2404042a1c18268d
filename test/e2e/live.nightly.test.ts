/** The live feed across a worker's death: two processes on one database, one of them killed under load. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { request } from '../support/http-client.ts';
import { LiveClient } from '../support/live-client.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, until } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

const PRODUCERS = 4;

let database: TestDatabase;
let workers: ServerProcess[];
let cookie: string;
let app: { appId: string; loggingToken: string };

beforeAll(async () => {
  database = await testDatabase();
  const service = await startTestService({ database });
  const owner = await newPerson(service, 'owner@example.com');
  cookie = owner.cookie;
  app = await newOwnApp(owner);
  await service.stop();
  const settings = {
    DATABASE_URL: database.url,
    SECRET: 'the secret of the tests, 32 characters',
    CREATE_LIMIT_PER_MINUTE: '0',
  };
  workers = [await ServerProcess.start(settings), await ServerProcess.start(settings)];
});
afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.end('SIGKILL')));
  await database.drop();
});

test('every event reaches a reader once, whichever process took it and whichever dies', async () => {
  const [first, second] = workers;
  if (first === undefined || second === undefined) throw new Error('no workers');
  const clients = [await LiveClient.follow(first.port, app.appId, { cookie })];
  const steady = await LiveClient.follow(second.port, app.appId, { cookie });
  const acknowledged = new Set<string>();
  let isOver = false;
  const produce = async (name: string): Promise<void> => {
    for (let sent = 0; !isOver; sent += 1) {
      const { port } = sent % 2 === 0 ? first : second;
      const body = JSON.stringify({ loggingToken: app.loggingToken, typeName: name, payload: { sent } });
      // What the killed process does not answer is sent by nobody again: the table says whether it is there.
      const response = await request(port, { method: 'POST', path: '/public/create_event', body }).catch(
        () => null,
      );
      if (response?.status === 201) acknowledged.add(JSON.parse(response.body).eventId);
      // A message names 200 events at most: on a busy machine many more would come between two looks.
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  };
  const producers = Array.from({ length: PRODUCERS }, (_, index) => produce(`producer ${index % 2}`));

  const [watched] = clients;
  await until(() => (watched?.events.length ?? 0) > 60, 'the feed is under way');
  first.signal('SIGKILL');
  await until(() => watched?.isOver === true, 'the feed has broken off');
  const atDeath = acknowledged.size;
  clients.push(
    await LiveClient.follow(second.port, app.appId, { cookie, lastEventId: watched?.lastEventId ?? '' }),
  );
  await until(() => acknowledged.size > atDeath + 60, 'the other process goes on');
  isOver = true;
  await Promise.all(producers);

  const stored = await database.sql<{ id: string }[]>`
    SELECT events.id FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId}`;
  const expected = stored.map(({ id }) => id).sort();
  expect([...acknowledged].filter((id) => !expected.includes(id))).toEqual([]);
  const told = (): string[] => clients.flatMap(({ events }) => events.map(({ id }) => id));
  const isComplete = (ids: readonly string[]): boolean => new Set(ids).size >= expected.length;
  await until(
    () => isComplete(told()) && isComplete(steady.events.map(({ id }) => id)),
    'everything was told',
  );
  expect(told().sort()).toEqual(expected);
  expect(steady.events.map(({ id }) => id).sort()).toEqual(expected);
  for (const client of [...clients, steady]) {
    expect(client.has('reset')).toBe(false);
    client.close();
  }
}, 60_000);
