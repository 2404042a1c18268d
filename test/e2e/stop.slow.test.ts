/** SIGTERM to the real process while PostgreSQL does not answer: the stop ends in time, with exit code 0, and the log has what it refused. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { type HttpResponse, request } from '../support/http-client.ts';
import { FaultyProxy, isCopy } from '../support/proxy.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

const LEAVING = 'shutdown: leaving the database';

let database: TestDatabase;
let proxy: FaultyProxy;
let installation: Installation;
let loggingToken: string;

beforeAll(async () => {
  database = await testDatabase();
  proxy = await FaultyProxy.start(database.address);
  const { address } = proxy;
  if ('url' in address) throw new Error('The proxy has no address.');
  installation = await Installation.make({
    DATABASE_URL: `postgres://${address.user}@${address.host}:${address.port}/${address.database}`,
    SECRET: 'the secret of the tests, 32 characters',
  });
  ({ loggingToken } = await installation.makeApp());
});
afterEach(() => {
  proxy.decide = () => 'forward';
  proxy.stopSwallowing();
});
afterAll(async () => {
  await installation.remove();
  await proxy.stop();
  await database.drop();
});

const post = ({ port }: ServerProcess): Promise<HttpResponse> =>
  request(port, {
    method: 'POST',
    path: '/public/create_event',
    body: JSON.stringify({ loggingToken, typeName: 'a', payload: {} }),
  });

const stored = async (): Promise<number> => (await database.sql`SELECT FROM events`).length;

test('one connection is silent, what it was to commit is committed on another one', async () => {
  const server = await installation.start();
  expect((await post(server)).status).toBe(201);
  const before = await stored();
  const met = proxy.next(isCopy, 'black-hole', 1);
  const answer = post(server);
  await until(() => met() === 1, 'a commit is on its way');
  const { code, stdout, stderr } = await server.end('SIGTERM');
  expect((await answer).status).toBe(201);
  expect(await stored()).toBe(before + 1);
  expect({ code, left: `${stdout}${stderr}`.includes(LEAVING) }).toEqual({ code: 0, left: false });
}, 120_000);

test('no connection answers, at three quarters of the timeout what waits is refused', async () => {
  const server = await installation.start({
    SHUTDOWN_TIMEOUT_SECONDS: '4',
  });
  expect((await post(server)).status).toBe(201);
  const before = await stored();
  const sent: Buffer[] = [];
  proxy.onSent = (bytes) => void (isCopy(bytes) && sent.push(bytes));
  proxy.swallow();
  const answer = post(server);
  await until(() => sent.length > 0, 'a commit is on its way');
  const { code, stdout, stderr } = await server.end('SIGTERM');
  const { status, body } = await answer;
  expect([status, JSON.parse(body).code]).toEqual([503, 'OUTCOME_UNKNOWN']);
  expect(await stored()).toBe(before);
  expect(code).toBe(0);
  const line = `${stdout}\n${stderr}`.split('\n').find((text) => text.includes(LEAVING));
  expect(JSON.parse(line ?? '{}')).toMatchObject({ requests: { '/public/create_event': 1 }, events: 1 });
}, 120_000);
