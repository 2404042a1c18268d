/** Idempotency-Key: a repeat gets the first answer and stores nothing, whatever came between, and whoever sends it. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { connect } from '../../src/storage/database/connect.ts';
import { ExpiredKeys, removeExpiredKeys } from '../../src/storage/maintenance/expired-keys.ts';
import { KEY_LIFE_MS } from '../../src/storage/write/inserts.ts';
import { created, refused } from '../http/answers.ts';
import { answered, postBatch, storedIds } from '../support/batch.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { first, sized } from '../support/fuzz.ts';
import { blocksOf, heldSnapshot } from '../support/held-snapshot.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { Opened } from '../support/proxied-service.ts';
import type { Fate } from '../support/proxy.ts';
import {
  CREATE_EVENT,
  startTestService,
  TestClock,
  type TestService,
  withTestService,
} from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);

const isKeyed = (sent: Buffer): boolean => sent.includes('INSERT INTO idempotency_keys');

/** POST /public/create_event with a key, or without. */
function post(service: TestService, key: string | null, payload = '{"a":1}'): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: CREATE_EVENT,
    body: service.body(payload),
    headers: { 'Idempotency-Key': key },
  });
}

function expectReplay(response: HttpResponse, first: HttpResponse): void {
  expect({ status: response.status, body: response.body }).toEqual({
    status: first.status,
    body: first.body,
  });
  expect(response.headers['idempotent-replayed']).toBe('true');
}

function expectReused(response: HttpResponse): void {
  refused(response, 422, 'IDEMPOTENCY_KEY_REUSED', 'Idempotency key reused');
}

/** A service behind a proxy, which has had a request with a key. */
const proxied: Opened['proxied'] = async (options) => {
  const made = await opened.proxied(options);
  created(await post(made.service, 'warm-up'));
  await made.service.sql`TRUNCATE events`;
  return made;
};

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  const clock = new TestClock();
  beforeAll(async () => {
    service = await startTestService({ engine, clock, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterAll(() => service.stop());
  afterEach(() => service.sql`TRUNCATE events, idempotency_keys`);

  test('a repeat gets the first answer again, says so, and stores nothing', async () => {
    const first = await post(service, 'order-1');
    expect(first.headers['idempotent-replayed']).toBeUndefined();
    const { eventId } = created(first);
    clock.advance(KEY_LIFE_MS - 1);
    expectReplay(await post(service, 'order-1'), first);
    expect(await storedIds(service)).toEqual([eventId]);
  });

  test('after 24 hours a key is as good as new, whether its row is still there or not', async () => {
    const first = created(await post(service, 'order-2'));
    clock.advance(KEY_LIFE_MS);
    const second = await post(service, 'order-2', '{"another":1}');
    expect(created(second).eventId).not.toBe(first.eventId);
    expect(second.headers['idempotent-replayed']).toBeUndefined();
    // From then on it lives for another day.
    clock.advance(KEY_LIFE_MS - 1);
    expectReplay(await post(service, 'order-2', '{"another":1}'), second);
    clock.advance(1);
    expect(await removeExpiredKeys(service.sql, clock.wall())).toBe(1);
    created(await post(service, 'order-2'));
    expect((await storedIds(service)).length).toBe(3);
  });

  test('another body with the same key is refused with 422, and nothing of it is stored', async () => {
    const { eventId } = created(await post(service, 'order-3'));
    expectReused(await post(service, 'order-3', '{"a": 1}'));
    expectReused(
      await postBatch(service, [{ typeName: 'a', payload: {} }], { 'Idempotency-Key': 'order-3' }),
    );
    expect(await storedIds(service)).toEqual([eventId]);
  });

  test('the same body on the other route is another request', async () => {
    const body = `${service.body('{}').slice(0, -1)},"events":[{"typeName":"a","payload":{}}]}`;
    const headers = { 'Idempotency-Key': 'both' };
    answered(await postBatch(service, body, headers));
    expectReused(await service.request({ method: 'POST', path: CREATE_EVENT, body, headers }));
    expect((await storedIds(service)).length).toBe(1);
  });

  test('the same key in another app is another key', async () => {
    const other = await service.newApp();
    const batch = [{ typeName: 'a', payload: {} }];
    const headers = { 'Idempotency-Key': 'mine' };
    answered(await postBatch(service, batch, headers));
    const response = await postBatch(service, batch, {
      ...headers,
      Authorization: `Bearer ${other.loggingToken}`,
    });
    expect(response.headers['idempotent-replayed']).toBeUndefined();
    for (const app of [service.app, other]) expect((await storedIds({ ...service, app })).length).toBe(1);
  });

  test('fifty twins at once store one event, and all get its answer', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => post(service, 'twins')));
    const [eventId, ...others] = new Set(answers.map((answer) => created(answer).eventId));
    expect(others).toEqual([]);
    expect(answers.filter(({ headers }) => headers['idempotent-replayed'] === undefined).length).toBe(1);
    expect(await storedIds(service)).toEqual([eventId]);
  });

  test('twins in two processes store one event, and a batch once', async () => {
    const second = await startTestService({
      database: service.database,
      engine,
      clock,
      config: { CREATE_LIMIT_PER_MINUTE: 0 },
    });
    opened.add(second);
    const services = [service, second];
    const batch = Array.from({ length: 200 }, (_, n) => ({ typeName: `t${n % 3}`, payload: { n } }));
    const Authorization = `Bearer ${service.app.loggingToken}`;
    const rounds = sized(2, 10);
    for (let round = 0; round < rounds; round += 1) {
      const key = `round-${round}`;
      const single = {
        method: 'POST',
        path: CREATE_EVENT,
        body: service.body(`{"round":${round}}`),
        headers: { 'Idempotency-Key': key },
      };
      const twins = [0, 1, 0, 1].map((which) => services[which]?.request(single));
      const batches = [0, 1, 0, 1].map((which) =>
        postBatch(services[which] ?? service, batch, { Authorization, 'Idempotency-Key': `batch-${key}` }),
      );
      const bodies = (await Promise.all(twins)).map((answer) => answer?.body);
      expect(new Set(bodies).size).toBe(1);
      const answers = await Promise.all(batches);
      for (const answer of answers) expect(answered(answer).stored).toBe(200);
      expect(new Set(answers.map(({ body }) => body)).size).toBe(1);
    }
    expect((await storedIds(service)).length).toBe(rounds * 201);
    await opened.stopAll();
  });

  test('a batch is repeated with its refusals and all', async () => {
    const batch = [
      { typeName: 'a', payload: {} },
      { payload: {} },
      { typeName: 'b', payload: {}, createdAt: '2026-02-03T04:05:06Z' },
    ];
    const headers = { 'Idempotency-Key': 'mixed' };
    const first = await postBatch(service, batch, headers);
    expect(answered(first).stored).toBe(2);
    expectReplay(await postBatch(service, batch, headers), first);
    expectReused(await postBatch(service, batch.slice(1), headers));
    expect((await storedIds(service)).length).toBe(2);
  });

  test('a batch with an event that the database refuses is stored and repeated without it', async () => {
    await withTestService({ engine }, async (own) => {
      await own.sql.unsafe(
        `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
      );
      const headers = { 'Idempotency-Key': 'poisoned' };
      const batch = Array.from({ length: 100 }, (_, n) => ({
        typeName: 'a',
        payload: n % 50 === 7 ? { poison: n } : { n },
      }));
      const first = await postBatch(own, batch, headers);
      const { stored, results } = answered(first);
      expect([stored, results[7]?.code, results[57]?.code]).toEqual([
        98,
        'INVALID_REQUEST',
        'INVALID_REQUEST',
      ]);
      expectReplay(await postBatch(own, batch, headers), first);
      expect(await storedIds(own)).toEqual(results.flatMap(({ eventId }) => eventId ?? []));
      // Of single events that are committed together the poison alone is refused, and its key stays free.
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, n) =>
          post(own, `single-${n}`, n === 11 ? '{"poison":1}' : `{"n":${n}}`),
        ),
      );
      expect(answers.map(({ status }) => status)).toEqual(answers.map((__, n) => (n === 11 ? 400 : 201)));
      created(await post(own, 'single-11'));
      // Nothing of it can be stored: so answered, and not remembered.
      expect(
        answered(
          await postBatch(own, [{ typeName: 'a', payload: { poison: 1 } }], { 'Idempotency-Key': 'all' }),
        ).stored,
      ).toBe(0);
      answered(await postBatch(own, [{ typeName: 'a', payload: {} }], { 'Idempotency-Key': 'all' }));
    });
  });

  test.each(first<Fate>(['lose-answer', 'lose-request']))(
    'a connection that breaks in the middle of the commit (%s) leaves the events stored once, and a repeat finds them',
    async (fate) => {
      const { service: own, proxy } = await proxied({ engine });
      const met = proxy.next(isKeyed, fate);
      const first = await post(own, 'broken');
      expect([met(), first.headers['idempotent-replayed']]).toEqual([1, undefined]);
      const metAgain = proxy.next(isKeyed, fate);
      const batch = Array.from({ length: 50 }, (_, n) => ({ typeName: 'a', payload: { n } }));
      const headers = { 'Idempotency-Key': 'broken batch'.replace(' ', '-') };
      const batched = await postBatch(own, batch, headers);
      expect(metAgain()).toBe(1);
      expectReplay(await post(own, 'broken'), first);
      expectReplay(await postBatch(own, batch, headers), batched);
      const ids = answered(batched).results.map(({ eventId }) => eventId);
      expect(await storedIds(own)).toEqual([created(first).eventId, ...ids]);
    },
  );

  test('a day that has no partition or chunk yet gets one', async () => {
    const batch = Array.from({ length: 300 }, (_, n) => ({
      typeName: 'a',
      payload: { n },
      createdAt: new Date(Date.UTC(2001, 0, 1 + n)).toISOString(),
    }));
    expect(answered(await postBatch(service, batch, { 'Idempotency-Key': 'old' })).stored).toBe(300);
  });
});

test('refusals are not remembered: the same key succeeds later', async () => {
  await withTestService({ database: 'shared', config: { CREATE_LIMIT_PER_MINUTE: 4 } }, async (service) => {
    const key = 'try-again';
    const body = (fields: object): string =>
      JSON.stringify({ typeId: service.type.typeId, payload: {}, ...fields });
    const { loggingToken } = service.app;
    const send = (text: string): Promise<HttpResponse> =>
      service.request({
        method: 'POST',
        path: CREATE_EVENT,
        body: text,
        headers: { 'Idempotency-Key': key },
      });
    expect((await send('{')).status).toBe(400);
    expect((await send(body({ loggingToken: 'no' }))).status).toBe(401);
    expect((await send(body({ loggingToken, typeId: 'no' }))).status).toBe(404);
    const good = body({ loggingToken });
    expect(answered(await postBatch(service, [{ payload: {} }], { 'Idempotency-Key': key })).stored).toBe(0);
    const first = await send(good);
    created(first);
    // A replay counts for the limit as any other request does.
    expectReplay(await send(good), first);
    expect((await send(good)).status).toBe(429);
  });
});

test('a key that has not 1 to 200 visible ASCII characters is refused with 400, which names the header', async () => {
  await withTestService({ database: 'shared' }, async (service) => {
    for (const key of ['a b', 'x'.repeat(201), 'caf\u00e9s']) {
      const { details } = refused(
        await post(service, key),
        400,
        'INVALID_REQUEST',
        'Invalid request parameters',
      );
      expect(details).toContain('"Idempotency-Key"');
      const batch = await postBatch(service, [{ typeName: 'a', payload: {} }], { 'Idempotency-Key': key });
      refused(batch, 400, 'INVALID_REQUEST', 'Invalid request parameters');
    }
    const twice = await service.request({
      method: 'POST',
      path: CREATE_EVENT,
      body: service.body('{}'),
      headers: { 'Idempotency-Key': 'one', 'idempotency-key': 'two' },
    });
    refused(twice, 400, 'INVALID_REQUEST', 'Invalid request parameters');
    expect(await storedIds(service)).toEqual([]);
    for (const key of ['!', '~'.repeat(200), 'a,b', '"quoted"']) created(await post(service, key));
  });
});

test('a request without a key goes the way it always went: nothing is asked or written for keys', async () => {
  const { service, proxy } = await proxied();
  const sent: string[] = [];
  proxy.decide = (bytes) => {
    sent.push(bytes.toString('latin1'));
    return 'forward';
  };
  created(await service.post());
  answered(await postBatch(service, [{ typeId: service.type.typeId, payload: {} }]));
  // Maintenance, the greeting of a new connection, and the look whether the database takes writes look at the table, too.
  const others = /FOR UPDATE SKIP LOCKED|relpersistence|has_table_privilege/;
  const ours = sent.filter((text) => /idempotency_keys/.test(text) && !others.test(text));
  expect(ours).toEqual([]);
  expect(sent.filter((text) => text.includes('COPY events')).length).toBe(2);
  expect([...(await service.sql`SELECT count(*)::int AS keys FROM idempotency_keys`)]).toEqual([{ keys: 1 }]);
});

test('while a snapshot stays in use, removed keys are not gone through again and again', async () => {
  const database = await testDatabase();
  const holder = await heldSnapshot(database.address, { hasWritten: false });
  const alone = connect(database.address, { connections: 1, name: 'test upkeep' });
  try {
    let now = Date.UTC(2026, 10, 21);
    const expired = new ExpiredKeys(alone);
    for (let round = 1; round <= 10; round += 1) {
      await database.sql`
        INSERT INTO idempotency_keys
        SELECT 1, sha256((${round} * 1000 + n)::text::bytea), sha256('body'), 201, '{}', ${new Date(now - KEY_LIFE_MS)}::timestamptz
          FROM generate_series(1, 200) AS n`;
      expect(await expired.remove(now)).toBe(200);
      now += 1_000;
    }
    // 2,000 dead rows are 40 pages.
    const blocks = await blocksOf(alone, ['idempotency_keys'], () => expired.remove(now));
    expect(blocks).toBeLessThanOrEqual(10);
    // What another process has left is found later.
    await database.sql`
      INSERT INTO idempotency_keys
      VALUES (1, sha256('late'), sha256('body'), 201, '{}', ${new Date(now - KEY_LIFE_MS - 60_000)})`;
    expect(await expired.remove(now)).toBe(0);
    expect(await expired.remove(now + 600_000)).toBe(1);
  } finally {
    await holder.release();
    await alone.end();
    await database.drop();
  }
});

test('keys whose time is over are removed oldest first, 10,000 at a time', async () => {
  const database = await testDatabase();
  try {
    const now = Date.UTC(2026, 10, 21);
    const { sql } = database;
    await sql`
      INSERT INTO idempotency_keys
      SELECT 1, sha256(n::text::bytea), sha256('body'), 201, '{}', ${new Date(now - KEY_LIFE_MS)}::timestamptz - n * interval '1 ms'
        FROM generate_series(-5, 12000) AS n`;
    expect(await removeExpiredKeys(sql, now)).toBe(10_000);
    expect(await removeExpiredKeys(sql, now)).toBe(2_001);
    expect(await removeExpiredKeys(sql, now)).toBe(0);
    expect([...(await sql`SELECT count(*)::int AS keys FROM idempotency_keys`)]).toEqual([{ keys: 5 }]);
  } finally {
    await database.drop();
  }
});
