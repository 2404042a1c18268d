/**
 * A database that says nothing and breaks nothing: timeouts alone notice. Nothing here is measured by the clock on the
 * wall: no request is answered because its own time is over, and what must not wait for the database does not ask it.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { digestOf } from '../../src/base/token-text.ts';
import { refused } from '../http/answers.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { ids, Opened, PATIENT, storedIds, untilReplayed } from '../support/proxied-service.ts';
import { type FaultyProxy, isCopy } from '../support/proxy.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);
const { journaled, proxied } = opened;

/** How many groups of events were sent into the database since this call. */
function copiesSent(proxy: FaultyProxy): () => number {
  let copies = 0;
  proxy.onSent = (sent) => {
    if (isCopy(sent)) copies += 1;
  };
  return () => copies;
}

const posts = (service: TestService, count: number): Promise<HttpResponse[]> =>
  Promise.all(Array.from({ length: count }, () => service.post()));

test('with a journal a network that swallows everything is noticed, and later events are not sent into it', async () => {
  const { service, proxy } = await journaled({ config: PATIENT });
  proxy.swallow();
  const first = await posts(service, 20);
  const copies = copiesSent(proxy);
  const second = await posts(service, 20);
  expect(copies()).toBe(0);
  const answers = [...first, ...second];
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
  proxy.stopSwallowing();
  await untilReplayed(service);
  expect(await storedIds(service)).toEqual(ids(answers));
  expect((await service.post()).status).toBe(201);
});

test('reads and the dashboard get 503 during an outage, and answers after it', async () => {
  const { service, proxy } = await journaled({ config: PATIENT });
  const paths = [`/public/get_events?appId=${service.app.appId}`, '/api/session'];
  const ask = (path: string): Promise<HttpResponse> =>
    service.request({ path, headers: { authorization: 'Bearer x' } });
  proxy.swallow();
  await until(() => !service.stats().databaseReachable, 'the outage is noticed');
  for (const path of paths) refused(await ask(path), 503, 'UNAVAILABLE', 'Service unavailable');
  proxy.stopSwallowing();
  await until(() => service.stats().databaseReachable, 'its end is noticed');
  for (const path of paths) expect((await ask(path)).status).not.toBe(503);
});

test('a stop during an outage ends, says what waits, and the next start stores it', async () => {
  const { service, proxy, folder } = await journaled();
  proxy.swallow();
  const answers = await posts(service, 5);
  const { database, log } = service;
  opened.remove(service);
  await service.stop({ keepDatabase: true });
  expect(
    log.find(({ msg }) => String(msg).includes('journal: events wait for the next start')),
  ).toMatchObject({
    waitingEvents: 5,
  });
  const next = await startTestService({ database, config: { JOURNAL_DIR: folder } });
  opened.addFirst(next, { stop: () => database.drop() });
  await untilReplayed(next);
  expect(await storedIds(next)).toEqual(ids(answers));
  expect((await readdir(join(folder, 'writer-1'))).filter((name) => name.endsWith('.journal'))).toEqual([]);
});

test('without a journal those who wait behind a silent commit are refused before it is given up, and later ones are not sent', async () => {
  const { service, proxy } = await proxied({ config: { COMMIT_CONNECTIONS: 1, ...PATIENT } });
  const met = proxy.next(isCopy, 'black-hole');
  let isSettled = false;
  const inDoubt = service.post().finally(() => {
    isSettled = true;
  });
  await until(() => met() === 1, 'a commit is on its way');
  proxy.swallow();
  refused(await service.post(), 503, 'UNAVAILABLE', 'Service unavailable');
  expect(isSettled).toBe(false);
  await until(() => !service.stats().databaseReachable, 'the outage is noticed');
  const copies = copiesSent(proxy);
  refused(await service.post(), 503, 'UNAVAILABLE', 'Service unavailable');
  expect(copies()).toBe(0);
  proxy.stopSwallowing();
  // Its commit was swallowed; the retry on a new connection settles it.
  expect((await inDoubt).status).toBe(201);
});

test('a lookup of a token that stays without an answer costs its own request, and those of others go through again', async () => {
  const { service, proxy } = await proxied({ config: PATIENT });
  const app = await service.newApp();
  const post = (): Promise<HttpResponse> =>
    service.post({ loggingToken: app.loggingToken, typeId: null, typeName: 'first' });
  const digest = digestOf(app.loggingToken).toString('hex');
  const met = proxy.next((sent) => sent.includes(digest), 'black-hole');
  refused(await post(), 503, 'UNAVAILABLE', 'Service unavailable');
  expect(met()).toBe(1);
  await until(async () => (await post()).status === 201, 'a later lookup is answered');
});

test('a batch whose key cannot be looked up is refused with 503, and a repeat of it is stored', async () => {
  const { service, proxy } = await proxied({ config: PATIENT });
  const post = (): Promise<HttpResponse> =>
    service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${service.app.loggingToken}`, 'Idempotency-Key': 'a-key' },
      body: JSON.stringify({ events: [{ typeId: service.type.typeId, payload: {} }] }),
    });
  const met = proxy.next((sent) => sent.includes('FROM idempotency_keys'), 'black-hole');
  refused(await post(), 503, 'UNAVAILABLE', 'Service unavailable');
  expect(met()).toBe(1);
  await until(async () => (await post()).status === 200, 'a repeat is stored');
  expect(await storedIds(service)).toHaveLength(1);
});

test('a connection that swallows a commit without a word is given up, and the event stored once', async () => {
  const { service, proxy } = await proxied();
  const met = proxy.next(isCopy, 'black-hole');
  const answer = await service.post();
  expect(met()).toBe(1);
  expect(answer.status).toBe(201);
  expect(await storedIds(service)).toEqual(ids([answer]));
});
