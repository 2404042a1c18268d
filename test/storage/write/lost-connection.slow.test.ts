/** What producers are told, and what is stored, while the connection to the database breaks, hangs or is refused. */
import { afterEach, describe, expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import { availableEngines } from '../../support/database.ts';
import { first } from '../../support/fuzz.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { ids, Opened, PATIENT, storedIds } from '../../support/proxied-service.ts';
import { isBatch, isCopy } from '../../support/proxy.ts';
import { TestClock, type TestService, until } from '../../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);
const { proxied } = opened;

/** Resolves when this many requests are past the limiter, which they are on their way into the buffer. */
async function untilTaken(service: TestService, requests: number): Promise<void> {
  let asked = 0;
  await until(async () => {
    // A request for a type that is not there counts and is answered at once, whatever the database does.
    const { headers } = await service.post({ typeId: '\0' });
    asked += 1;
    const taken = Number(headers['ratelimit-limit']) - Number(headers['ratelimit-remaining']);
    return taken - asked - 1 >= requests;
  }, `${requests} requests are taken`);
}

describe.each(first(availableEngines()))('on %s', (engine) => {
  test('security 24: of 500 posts that wait for one commit, the one that cannot be stored gets 400 and 499 get 201', async () => {
    // The clock stands, so that a commit that is held up is none that stands still.
    const { service, proxy } = await proxied({
      engine,
      clock: new TestClock(),
      config: { COMMIT_CONNECTIONS: 1 },
    });
    await service.sql.unsafe(
      `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
    );
    proxy.next(isCopy, 'hold-answer');
    const first = service.post({ payload: { first: 1 } });
    await untilTaken(service, 1);
    const posts = Array.from({ length: 500 }, (_, index) =>
      service.post({ payload: index === 321 ? { poison: 1 } : { index } }),
    );
    await untilTaken(service, 501);
    proxy.release();
    const answers = await Promise.all(posts);
    const good = answers.filter(({ status }) => status === 201);
    expect(good.length).toBe(499);
    refused(answers[321] as HttpResponse, 400, 'INVALID_REQUEST', 'Invalid request body');
    expect(await storedIds(service)).toEqual(ids([await first, ...good]));
  });

  test('security 22: a connection that breaks in the middle of a commit, of its retry too, leaves each event stored exactly once, all with 201', async () => {
    const { service, proxy } = await proxied({ engine });
    const all: HttpResponse[] = [];
    for (const fate of ['lose-request', 'lose-answer'] as const) {
      const met = proxy.next(isCopy, fate);
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, index) => service.post({ payload: { index } })),
      );
      expect(met(), fate).toBe(1);
      all.push(...answers);
    }
    const met = proxy.next(isBatch, 'lose-answer', 3);
    all.push(await service.post());
    expect(met()).toBe(3);
    expect(all.map(({ status }) => status)).toEqual(all.map(() => 201));
    expect(await storedIds(service)).toEqual(ids(all));
  });
});

test('while the database is away all posts are answered with 503 UNAVAILABLE, and not stored; when it is back, they are stored', async () => {
  const { service, proxy } = await proxied({ config: PATIENT });
  const type = await service.newType(service.app, 'not asked for yet');
  const app = await service.newApp();
  await proxy.goAway();
  const answers = await Promise.all([
    ...Array.from({ length: 50 }, () => service.post()),
    // What nobody can look up is not said to be wrong.
    service.post({ loggingToken: app.loggingToken }),
    service.post({ typeId: type.typeId }),
  ]);
  for (const response of answers) {
    refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
    expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  }
  // Made while the connection is lost.
  const later = await service.newApp();
  await proxy.comeBack();
  expect(await storedIds(service)).toEqual([]);
  await until(async () => (await service.post()).status === 201, 'a post is stored');
  for (const { loggingToken } of [app, later]) {
    const post = () => service.post({ loggingToken, typeId: undefined, typeName: 'x' });
    await until(async () => (await post()).status === 201, 'a post of another app is stored');
  }
});

test('an event of which nobody can say whether it was committed is answered with 503 OUTCOME_UNKNOWN', async () => {
  const clock = new TestClock();
  const { service, proxy } = await proxied({ clock });
  const met = proxy.next(isCopy, 'lose-answer');
  const answer = service.post();
  await until(() => met() === 1, 'the commit is on its way');
  await proxy.goAway();
  clock.advance(12_001);
  const response = await answer;
  const { details } = refused(response, 503, 'OUTCOME_UNKNOWN', 'Outcome unknown');
  expect(details).toContain('may be stored');
  expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  expect((await storedIds(service)).length).toBeLessThanOrEqual(1);
});

test('a commit that outlasts the deadline of its request is answered with 503 OUTCOME_UNKNOWN, and may be stored', async () => {
  const clock = new TestClock();
  const { service, proxy } = await proxied({ clock });
  proxy.next(isCopy, 'hold-answer');
  const answer = service.post();
  await until(async () => (await storedIds(service)).length === 1, 'the event is stored');
  clock.advance(30_001);
  const { details } = refused(await answer, 503, 'OUTCOME_UNKNOWN', 'Outcome unknown');
  expect(details).toContain('may be stored');
  proxy.release();
});

test('a failure that no retry could mend is answered with 500, its request id, and nothing of its cause', async () => {
  const { service } = await proxied();
  await service.sql.unsafe(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'cause' USING ERRCODE = '0A000'; END $$;
    CREATE TRIGGER refuse AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()`);
  const response = await service.post();
  const { details } = refused(response, 500, 'INTERNAL_ERROR', 'Internal server error');
  expect(details).toContain(response.headers['x-request-id']);
  expect(response.body).not.toContain('cause"');
  expect(service.log.some((line) => line.requestId === response.headers['x-request-id'])).toBe(true);
});

test('security 27: more events than may wait for their commit are refused with 503 at once, and those that wait are stored', async () => {
  const { service, proxy } = await proxied({
    clock: new TestClock(),
    config: { COMMIT_BUFFER_EVENTS: 10, COMMIT_CONNECTIONS: 1 },
  });
  proxy.next(isCopy, 'hold-answer');
  const waiting = Array.from({ length: 10 }, () => service.post());
  await untilTaken(service, 10);
  const response = await service.post();
  refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
  expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  proxy.release();
  const answers = await Promise.all(waiting);
  expect(await storedIds(service)).toEqual(ids(answers));
});

test('a stop answers every post that waits for its commit', async () => {
  const { service, proxy } = await proxied({ clock: new TestClock(), config: { COMMIT_CONNECTIONS: 1 } });
  proxy.next(isCopy, 'hold-answer');
  const posts = Array.from({ length: 30 }, () => service.post());
  await untilTaken(service, 30);
  const stopped = service.stop();
  proxy.release();
  const answers = await Promise.all(posts);
  expect(answers.map(({ status, headers }) => `${status} ${headers.connection}`)).toEqual(
    answers.map(() => '201 close'),
  );
  await stopped;
});
