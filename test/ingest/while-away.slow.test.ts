/** While the database is away: what requests are answered, what is stored of them in the end, and what metrics say. */
import { afterEach, describe, expect, test } from 'vitest';
import { created, refused } from '../http/answers.ts';
import { answered, type BatchResult, EVENTS, postBatch, storedIds } from '../support/batch.ts';
import { Exposition } from '../support/exposition.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { LONG_BATCH_LIMITS, LongBatch, type LongCounts } from '../support/long-batch.ts';
import { Opened, untilReplayed, waitingEvents } from '../support/proxied-service.ts';
import { isCopy } from '../support/proxy.ts';
import { CREATE_EVENT, RunningClock, TestClock, type TestService, until } from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);

async function scrape(service: TestService): Promise<Exposition> {
  return new Exposition((await service.request({ path: '/metrics' })).body);
}

describe('while the database is away', () => {
  test('a batch of which a part was committed before says of each event which', async () => {
    const clock = new RunningClock();
    const { service, proxy } = await opened.proxied({ clock, config: { COMMIT_CONNECTIONS: 1 } });
    const events = Array.from({ length: 9_000 }, (_, n) => ({ typeId: service.type.typeId, payload: { n } }));
    let copies = 0;
    proxy.decide = (sent) => {
      if (isCopy(sent)) copies += 1;
      return copies > 1 ? 'lose-request' : 'forward';
    };
    const answer = postBatch(service, events);
    await until(() => copies > 1, 'the second piece is on its way');
    await proxy.goAway();
    // It is retried for twelve seconds.
    clock.advance(12_001);
    const { stored, results } = answered(await answer);
    await proxy.comeBack();
    expect(stored).toBe(4_000);
    expect(new Set(results.map(({ code }) => code))).toEqual(
      new Set([undefined, 'OUTCOME_UNKNOWN', 'UNAVAILABLE']),
    );
    expect(await storedIds(service)).toEqual(results.flatMap(({ eventId }) => eventId ?? []));
  });

  test('a batch is refused whole with 503, as is one larger than what may wait now, which fits later', async () => {
    const { service, proxy } = await opened.proxied({ config: { COMMIT_BUFFER_EVENTS: 100 } });
    const batch = (count: number) =>
      postBatch(
        service,
        Array.from({ length: count }, () => ({ typeId: service.type.typeId, payload: {} })),
      );
    const { details } = refused(await batch(101), 400, 'INVALID_REQUEST', 'Invalid request body');
    expect(details).toContain('at most 100 events');
    const met = proxy.next(isCopy, 'hold-answer');
    const first = batch(60);
    await until(() => met() === 1, 'the first batch is on its way');
    refused(await batch(41), 503, 'UNAVAILABLE', 'Service unavailable');
    // What comes alone has room of its own, and the other connection.
    proxy.decide = () => 'forward';
    expect((await service.post()).status).toBe(201);
    proxy.release();
    expect(answered(await first).stored).toBe(60);
    expect(answered(await batch(41)).stored).toBe(41);
    await proxy.goAway();
    refused(await batch(60), 503, 'UNAVAILABLE', 'Service unavailable');
    await proxy.comeBack();
    expect(await storedIds(service)).toHaveLength(60 + 41 + 1);
  });

  test('the metrics say so, and say when the database is back', async () => {
    const { service, proxy } = await opened.proxied();
    const isUp = async (): Promise<number> => (await scrape(service)).value('tidemark_database_up');
    expect(await isUp()).toBe(1);
    await proxy.goAway();
    await until(async () => (await isUp()) === 0, 'somebody has missed the database');
    const upkeepFailures = async (): Promise<number> =>
      (await scrape(service)).value('tidemark_upkeep_failures_total');
    await until(async () => (await upkeepFailures()) > 0, 'the upkeep has missed it too');
    await service.post();
    const away = await scrape(service);
    expect(away.value('tidemark_refusals_total', { code: 'UNAVAILABLE' })).toBe(1);
    expect(away.value('tidemark_events_stored_total')).toBe(1);
    await proxy.comeBack();
    await until(async () => (await isUp()) === 1, 'the database is found');
  });

  test('a database that does not respond counts as down in the metrics, and no scrape waits for it', async () => {
    const { service, proxy } = await opened.proxied();
    const isUp = async (): Promise<number> => (await scrape(service)).value('tidemark_database_up');
    expect(await isUp()).toBe(1);
    proxy.decide = () => 'black-hole';
    await until(async () => (await isUp()) === 0, 'the silence is noticed');
    // Otherwise the stop waits for what will not come.
    await proxy.goAway();
  });
});

describe('while the database is away, lines that are more than a batch', () => {
  const line = (n: number): string =>
    `{"typeName":"outage","payload":{"n":${n},"filler":"${'x'.repeat(80)}"}}\n`;
  const linesOf = (count: number, from: number): string =>
    Array.from({ length: count }, (_, at) => line(from + at)).join('');
  const storedNow = async ({ sql }: TestService): Promise<number> =>
    (await sql<[{ count: number }]>`SELECT count(*)::integer AS count FROM events`)[0].count;

  test('are answered 503 with how many are stored, or in lines up to the first that is not, and the rest can be sent later', async () => {
    const { service, proxy } = await opened.proxied({ config: LONG_BATCH_LIMITS });
    const telling = new LongBatch(service.port, service.app, { Accept: 'application/x-ndjson' });
    await telling.send(linesOf(2_000, 0));
    await until(() => telling.received.split('\n').length === 2_001, 'their results have arrived');
    const batch = new LongBatch(service.port, service.app);
    await batch.send(linesOf(2_000, 0));
    await until(async () => (await storedNow(service)) === 4_000, 'what has arrived is committed');
    await proxy.goAway();
    await until(() => !service.stats().databaseWritable, 'the outage is noticed');
    await telling.send(linesOf(500, 2_000));
    const told = await telling.described();
    const lines = told.body
      .trimEnd()
      .split('\n')
      .map((text) => JSON.parse(text));
    expect([told.status, told.isWhole]).toEqual([200, true]);
    expect(lines.filter(({ eventId }) => eventId !== undefined)).toHaveLength(2_000);
    expect(lines.at(-1)).toMatchObject({ code: 'UNAVAILABLE', resumeAt: 2_000, retryAfterSeconds: 1 });
    // They are sent again: no event was refused for good.
    const metrics = (await service.request({ path: '/metrics' })).body;
    expect(metrics).not.toMatch(/tidemark_events_refused_total\{[^}]*UNAVAILABLE/);
    await batch.send(linesOf(2_000, 2_000));
    const response = await batch.described();
    const counts: LongCounts = JSON.parse(response.body);
    expect([response.status, counts.code, counts.resumeAt]).toEqual([503, 'UNAVAILABLE', counts.stored]);
    expect(Number(response.headers['retry-after'])).toBeGreaterThan(0);
    await proxy.comeBack();
    await until(() => service.stats().databaseWritable, 'it is back');
    expect(await storedNow(service)).toBe(2_000 + counts.stored);
    const rest = new LongBatch(service.port, service.app);
    await rest.send(linesOf(4_000 - counts.stored, counts.stored));
    expect(JSON.parse((await rest.end()).body)).toMatchObject({ stored: 4_000 - counts.stored });
    expect(await storedNow(service)).toBe(6_000);
  });

  test('go into the journal where there is one', async () => {
    const { service, proxy } = await opened.journaled({ config: LONG_BATCH_LIMITS });
    const batch = new LongBatch(service.port, service.app);
    await batch.send(linesOf(1_000, 0));
    await until(async () => (await storedNow(service)) === 1_000, 'what has arrived is committed');
    await proxy.goAway();
    await until(() => !service.stats().databaseWritable, 'the outage is noticed');
    await batch.send(linesOf(2_000, 1_000));
    const response = await batch.end();
    expect([response.status, JSON.parse(response.body)]).toEqual([
      200,
      { success: true, stored: 3_000, refused: 0, errors: [] },
    ]);
    await proxy.comeBack();
    await untilReplayed(service);
    expect(await storedNow(service)).toBe(3_000);
  });

  test('wait at their sender while the commit queue is full of others, and are not refused', async () => {
    const { service, proxy } = await opened.proxied({
      config: { ...LONG_BATCH_LIMITS, COMMIT_BUFFER_EVENTS: 1_000 },
    });
    const other = await service.newApp();
    const isHeld = proxy.next(isCopy, 'hold-answer', 1);
    const filling = service.request({
      method: 'POST',
      path: EVENTS,
      body: linesOf(1_000, 0),
      headers: { 'Content-Type': 'application/x-ndjson', Authorization: `Bearer ${other.loggingToken}` },
    });
    await until(() => isHeld() === 1, 'a commit of another app is held up');
    const batch = new LongBatch(service.port, service.app);
    await batch.send(linesOf(2_000, 1_000));
    const answer = batch.end();
    const held = async (): Promise<number> => {
      const { body } = await service.request({ path: '/metrics' });
      return Number(/^tidemark_request_body_bytes (\d+)$/m.exec(body)?.[1]);
    };
    await until(async () => (await held()) > 100_000, 'its lines have arrived');
    proxy.release();
    expect([(await answer).status, (await filling).status]).toEqual([200, 200]);
    expect(await storedNow(service)).toBe(3_000);
  });
});

/** POST /public/create_event with an Idempotency-Key. */
function post(service: TestService, key: string): Promise<HttpResponse> {
  const headers = { 'Idempotency-Key': key };
  return service.request({ method: 'POST', path: CREATE_EVENT, body: service.body('{}'), headers });
}

test('a commit whose answer never came is found by the repeat, once the database is back', async () => {
  const clock = new TestClock();
  const { service, proxy } = await opened.proxied({ clock });
  const met = proxy.next((sent) => sent.includes('INSERT INTO idempotency_keys'), 'lose-answer');
  const lost = post(service, 'lost');
  await until(() => met() === 1, 'the commit is on its way');
  await until(async () => (await storedIds(service)).length === 1, 'the event is stored');
  await proxy.goAway();
  clock.advance(12_001);
  refused(await lost, 503, 'OUTCOME_UNKNOWN', 'Outcome unknown');
  await proxy.comeBack();
  await until(() => service.stats().databaseReachable, 'the service knows that the database is back');
  const repeat = await post(service, 'lost');
  expect(repeat.status, repeat.body).toBe(201);
  expect(repeat.headers['idempotent-replayed']).toBe('true');
  expect(await storedIds(service)).toEqual([created(repeat).eventId]);
});

test('during an outage idempotent requests are refused with 503, and their keys are not stored', async () => {
  const { service, proxy } = await opened.proxied();
  await proxy.goAway();
  refused(await post(service, 'away'), 503, 'UNAVAILABLE', 'Service unavailable');
  const batch = [{ typeId: service.type.typeId, payload: {} }];
  refused(
    await postBatch(service, batch, { 'Idempotency-Key': 'away-batch' }),
    503,
    'UNAVAILABLE',
    'Service unavailable',
  );
  await proxy.comeBack();
  await until(async () => (await post(service, 'away')).status === 201, 'it is stored');
  expect((await storedIds(service)).length).toBe(1);
});

test('during an outage an atomic batch is refused with 503, with a journal too', async () => {
  const { service, proxy } = await opened.journaled();
  await proxy.goAway();
  const response = await service.request({
    method: 'POST',
    path: `${EVENTS}?atomic=true`,
    body: JSON.stringify({ events: [{ typeId: service.type.typeId, payload: {} }] }),
    headers: { Authorization: `Bearer ${service.app.loggingToken}` },
  });
  refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
  await proxy.comeBack();
  expect(await storedIds(service)).toEqual([]);
});

test('during an outage keys go into the journal, and their replay stores each once', async () => {
  const { service, proxy } = await opened.journaled();
  const createdAt = new Date().toISOString();
  const send = async (keys: readonly string[], at = createdAt): Promise<readonly BatchResult[]> => {
    const events = keys.map((key) => ({ typeName: 'test type', createdAt: at, key, payload: {} }));
    return answered(await postBatch(service, events)).results;
  };
  const before = await send(['before']);
  await proxy.goAway();
  const during = await send(['before', 'during', 'during']);
  const again = [
    ...(await send(['during'])),
    ...(await send(['past'], new Date(Date.now() - 10 * 86_400_000).toISOString())),
  ];
  expect([...during, ...again].filter(({ repeated }) => repeated)).toEqual([]);
  expect(during[0]?.eventId).toBe(before[0]?.eventId);
  expect(waitingEvents(service)).toBe(5);
  await proxy.comeBack();
  await untilReplayed(service);
  const after = await send(['before', 'during']);
  expect(after.map(({ repeated }) => repeated)).toEqual([true, true]);
  const all = new Set([...before, ...during, ...again].map(({ eventId }) => eventId));
  expect(new Set(await storedIds(service))).toEqual(all);
  expect(await storedIds(service)).toHaveLength(all.size);
});
