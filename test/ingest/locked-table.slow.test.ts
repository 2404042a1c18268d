/** A lock on the whole table of events, as CREATE INDEX or a migration takes it: producers are told soon, and nothing piles up. */
import { afterEach, describe, expect, test } from 'vitest';
import type { Sql } from '../../src/storage/database/connect.ts';
import { CopyConnection } from '../../src/storage/database/copy-connection.ts';
import { refused } from '../http/answers.ts';
import { answered, EVENTS, postBatch } from '../support/batch.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import { heldLock } from '../support/held-lock.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { ids, Opened, PATIENT, storedIds, untilReplayed } from '../support/proxied-service.ts';
import { CREATE_EVENT, startTestService, type TestService, until } from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);

const ENGINES = first(availableEngines());
/** Each connection that writes, and the trial of whether it may. */
const MOST_WAITING = 3;

async function readiness({ request }: TestService): Promise<readonly [number, number]> {
  const [all, writing] = await Promise.all(
    ['/readyz', '/readyz?for=writing'].map((path) => request({ path })),
  );
  return [all?.status ?? 0, writing?.status ?? 0];
}

/** The most sessions of ours that wait for a lock, of many looks. */
async function mostWaiting(sql: Sql, looks: number, names = '^tidemark'): Promise<number> {
  let most = 0;
  for (let look = 0; look < looks; look += 1) {
    const [row] = await sql<[{ waiting: number }]>`
      SELECT count(*)::int AS waiting FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name ~ ${names}`;
    most = Math.max(most, row.waiting);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return most;
}

describe.each(ENGINES)('while the table is locked, on %s,', (engine) => {
  test('events are refused, at once when that is known, readiness says so, and no sessions pile up', async () => {
    const service = await startTestService({ engine, config: { ...PATIENT, CREATE_LIMIT_PER_MINUTE: 0 } });
    opened.add(service);
    expect((await service.post()).status).toBe(201);
    expect(await readiness(service)).toEqual([200, 200]);
    const lock = await heldLock(service.sql, 'events', 'SHARE');
    refused(await service.post(), 503, 'UNAVAILABLE', 'Service unavailable');
    expect(await readiness(service)).toEqual([503, 503]);
    expect(service.stats()).toMatchObject({ databaseReachable: true, databaseWritable: false });

    // Whoever comes now is told without a statement that waits.
    const looks = mostWaiting(service.sql, 40);
    for (let round = 0; round < 20; round += 1) {
      const answers = await Promise.all(Array.from({ length: 20 }, () => service.post()));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
    }
    expect(await looks).toBeLessThanOrEqual(MOST_WAITING);
    expect(await storedIds(service)).toHaveLength(1);

    await lock.release();
    await until(() => service.stats().databaseWritable, 'it is noticed that the lock is gone');
    expect(await readiness(service)).toEqual([200, 200]);
    const after = await service.post();
    expect(after.status).toBe(201);
    expect(await storedIds(service)).toHaveLength(2);
  });

  test('with a journal events are accepted, and stored once when the lock is gone', async () => {
    const { service } = await opened.journaled({ engine, config: PATIENT });
    const lock = await heldLock(service.sql, 'events', 'SHARE');
    const looks = mostWaiting(service.sql, 60);
    const answers = [];
    for (let round = 0; round < 4; round += 1)
      answers.push(...(await Promise.all(Array.from({ length: 50 }, () => service.post()))));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(await readiness(service)).toEqual([503, 200]);
    // The replay is one more.
    expect(await looks).toBeLessThanOrEqual(MOST_WAITING + 1);
    expect(await storedIds(service)).toEqual([]);
    await lock.release();
    await untilReplayed(service);
    expect(await storedIds(service)).toEqual(ids(answers));
    expect(await readiness(service)).toEqual([200, 200]);
  });
});

describe.each(
  ENGINES.flatMap((engine) => first(['ACCESS EXCLUSIVE', 'SHARE']).map((mode) => [engine, mode] as const)),
)('while the table of idempotency keys is locked, on %s, in mode %s,', (engine, mode) => {
  test('requests with a key are refused at once, all others go on, and /readyz names it', async () => {
    const service = await startTestService({ engine, config: { ...PATIENT, CREATE_LIMIT_PER_MINUTE: 0 } });
    opened.add(service);
    let number = 0;
    const keyed = (): Promise<HttpResponse> =>
      service.request({
        method: 'POST',
        path: CREATE_EVENT,
        headers: { 'Idempotency-Key': `key-${++number}` },
        body: service.body('{}'),
      });
    const batch = (): Promise<HttpResponse> =>
      postBatch(service, JSON.stringify({ events: [{ typeId: service.type.typeId, payload: {} }] }), {
        'Idempotency-Key': `key-${++number}`,
      });
    const atomic = (): Promise<HttpResponse> =>
      service.request({
        method: 'POST',
        path: `${EVENTS}?atomic=true`,
        headers: { Authorization: `Bearer ${service.app.loggingToken}` },
        body: JSON.stringify({ events: [{ typeId: service.type.typeId, payload: {} }] }),
      });
    const acceptsIdempotencyKeys = async (): Promise<unknown> =>
      JSON.parse((await service.request({ path: '/readyz' })).body).acceptsIdempotencyKeys ?? true;
    expect((await keyed()).status).toBe(201);
    const lock = await heldLock(service.sql, 'idempotency_keys', mode);
    const [first, second] = await Promise.all([keyed(), batch()]);
    for (const answer of [first, second]) refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
    expect(await acceptsIdempotencyKeys()).toBe(false);

    // Whoever comes now is told without a statement that waits.
    const looks = mostWaiting(service.sql, 25, '^tidemark (keyed|lookups)');
    for (let round = 0; round < 10; round += 1) {
      const answers = await Promise.all([
        keyed(),
        batch(),
        service.post(),
        service.post({ typeId: null, typeName: `new ${round}` }),
        atomic(),
      ]);
      expect(answers.map(({ status }) => status)).toEqual([503, 503, 201, 201, 200]);
      for (const answer of answers.slice(0, 2))
        expect(JSON.parse(answer.body).details).toMatch(/Idempotency-Key.*locked/);
    }
    expect(await looks).toBe(0);
    expect(await readiness(service)).toEqual([200, 200]);
    expect(service.stats()).toMatchObject({ databaseWritable: true });
    const { body } = await service.request({ path: '/metrics' });
    expect(body).toMatch(/^tidemark_database_accepts_idempotency_keys 0$/m);
    expect(service.log.filter(({ msg }) => String(msg).includes('idempotency keys'))).toHaveLength(1);

    await lock.release();
    await until(async () => (await acceptsIdempotencyKeys()) === true, 'it is noticed that the lock is gone');
    expect((await keyed()).status).toBe(201);
    expect(answered(await batch()).stored).toBe(1);
  });
});

test('a statement that is given up does not go on in the server', async () => {
  const database = await testDatabase();
  opened.add({ stop: () => database.drop() });
  // The server's own timeout is off, as if its clock stood still.
  const connection = new CopyConnection(
    database.address,
    'given up',
    { connectMs: 5_000, answerMs: 300, lockMs: 60_000 },
    { statement_timeout: '0' },
  );
  const sessions = (): Promise<{ state: string }[]> =>
    database.sql`SELECT state FROM pg_stat_activity WHERE application_name = 'given up'`.then((rows) =>
      rows.map(({ state }) => ({ state })),
    );
  await expect(connection.query('SELECT pg_sleep(60)', [])).rejects.toMatchObject({ code: '57014' });
  await until(async () => (await sessions()).length === 0, 'its session has ended');
  expect((await connection.query('SELECT 1 AS one', [])).rows).toEqual([{ one: 1 }]);
  await connection.close();
});

test('a commit that ends after it was canceled is no success: its standby may not have it', async () => {
  const database = await testDatabase();
  opened.add({ stop: () => database.drop() });
  const timeouts = { connectMs: 5_000, answerMs: 200, lockMs: 60_000 };
  const connection = new CopyConnection(database.address, 'late', timeouts, { statement_timeout: '0' });
  // It ignores the cancel, as a commit does that has written its record.
  const statement = `
    DO $$ DECLARE until timestamptz := clock_timestamp() + interval '350 ms';
    BEGIN
      WHILE clock_timestamp() < until LOOP
        BEGIN PERFORM pg_sleep(0.5); EXCEPTION WHEN query_canceled THEN NULL; END;
      END LOOP;
    END $$`;
  await expect(connection.query(statement, [])).rejects.toMatchObject({ sent: true, timedOut: true });
  await connection.close();
});
