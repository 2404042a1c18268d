/** Events of past days: what is wrong with one day is told to its own events, and nobody else waits for it. */
import { afterEach, describe, expect, test } from 'vitest';
import type { Sql } from '../../src/storage/database/connect.ts';
import { answered, type BatchResult, postBatch, storedIds } from '../support/batch.ts';
import { availableEngines, type TestEngine } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import { heldLock } from '../support/held-lock.ts';
import { Opened, untilChangesAreHeard, untilReplayed, waitingEvents } from '../support/proxied-service.ts';
import { type FaultyProxy, isBatch, isCopy } from '../support/proxy.ts';
import { RunningClock, type TestService, until } from '../support/service.ts';

const DAY_MS = 86_400_000;
/** Noon of the day that is in trouble: long enough ago for a partition that is wider than a day. */
const BAD = Math.floor(Date.now() / DAY_MS - 40) * DAY_MS + DAY_MS / 2;
const OTHER = BAD - 400 * DAY_MS;
/** Longer than any back-off of a day. */
const BACK_OFF_MS = 61_000;

const opened = new Opened();
afterEach(opened.stopAll);

interface Event {
  readonly typeName: string;
  readonly payload: object;
  readonly createdAt?: string;
}

function at(time?: number): Event {
  const event = { typeName: 'a', payload: {} };
  return time === undefined ? event : { ...event, createdAt: new Date(time).toISOString() };
}

const codes = (results: readonly BatchResult[]): (string | undefined)[] => results.map(({ code }) => code);

async function ready({ request }: TestService, purpose = ''): Promise<Record<string, unknown>> {
  const { status, body } = await request({ path: `/readyz${purpose}` });
  return { httpStatus: status, ...JSON.parse(body) };
}

/** The partition or chunk of a time. */
async function partOf(sql: Sql, engine: TestEngine, time: number): Promise<string> {
  const moment = new Date(time);
  const [row] =
    engine === 'timescale'
      ? await sql<{ name: string }[]>`
          SELECT format('%I.%I', chunk_schema, chunk_name) AS name FROM timescaledb_information.chunks
           WHERE hypertable_name = 'events' AND range_start <= ${moment} AND range_end > ${moment}`
      : await sql<{ name: string }[]>`
          SELECT partition::text AS name FROM events_partitions WHERE start <= ${moment} AND finish > ${moment}`;
  if (row === undefined) throw new Error('There is no partition.');
  return row.name;
}

/** Counts the groups of events that are sent to the database. */
function groupsOf(proxy: FaultyProxy): () => number {
  let groups = 0;
  proxy.onSent = (sent) => {
    if (isBatch(sent)) groups += 1;
  };
  return () => groups;
}

/** A service with a journal and its proxy, in whose table the troubled day and another one have a row. */
async function withPast(engine: TestEngine) {
  const clock = new RunningClock();
  const { service, proxy } = await opened.journaled({ engine, clock });
  expect(answered(await postBatch(service, [at(BAD), at(OTHER)])).stored).toBe(2);
  return { service, proxy, clock, groups: groupsOf(proxy) };
}

/** Nothing went into the journal, and events of now are stored as ever. */
async function expectOthersUnharmed(service: TestService): Promise<void> {
  const { status, body } = await service.post();
  expect(status).toBe(201);
  expect(await storedIds(service)).toContain(JSON.parse(body).eventId);
  expect(service.stats()).toMatchObject({
    databaseWritable: true,
    journal: { waitingEvents: 0, appendedEvents: 0, quarantinedEvents: 0 },
  });
  for (const purpose of ['', '?for=writing'])
    expect(await ready(service, purpose)).toMatchObject({ httpStatus: 200, status: 'ready' });
}

const ENGINES = first(availableEngines());

describe('on postgres18', () => {
  const engine = 'postgres18';

  test('an event of a day whose partition was detached is refused as data, and no one else notices', async () => {
    const { service, clock, groups } = await withPast(engine);
    const partition = await partOf(service.sql, engine, BAD);
    const [bounds] = await service.sql<{ text: string }[]>`
      SELECT pg_get_expr(relpartbound, oid) AS text FROM pg_class WHERE oid = ${partition}::regclass`;
    await service.sql.unsafe(`ALTER TABLE events DETACH PARTITION ${partition}`);

    const { results } = answered(await postBatch(service, [at(BAD), at(OTHER), at()]));
    expect(codes(results)).toEqual(['INVALID_REQUEST', undefined, undefined]);
    expect(results[0]?.details).toContain('no partition');
    expect(groups()).toBeLessThan(10);
    await expectOthersUnharmed(service);
    expect(await ready(service)).toMatchObject({ closedDays: 1 });
    expect(service.log.find(({ msg }) => msg === 'write: past day not writable')).toMatchObject({
      day: new Date(BAD).toISOString().slice(0, 10),
      closure: 'no-partition',
      err: { message: expect.stringContaining(partition) },
    });

    // What is known costs nothing.
    const before = groups();
    expect(codes(answered(await postBatch(service, [at(BAD)])).results)).toEqual(['INVALID_REQUEST']);
    expect(groups()).toBe(before);

    await service.sql.unsafe(`ALTER TABLE events ATTACH PARTITION ${partition} ${bounds?.text}`);
    clock.advance(BACK_OFF_MS);
    expect(answered(await postBatch(service, [at(BAD)])).stored).toBe(1);
    expect(await ready(service)).not.toHaveProperty('closedDays');
  });

  test('of a request with a key the events of a detached day are refused, the others stored, and a repeat says the same', async () => {
    const { service } = await withPast(engine);
    await service.sql.unsafe(`ALTER TABLE events DETACH PARTITION ${await partOf(service.sql, engine, BAD)}`);
    const before = (await storedIds(service)).length;
    const events = [at(BAD), at(OTHER), at(), at(BAD + 1)];
    const send = () => postBatch(service, events, { 'Idempotency-Key': 'a' });
    const first = await send();
    expect(codes(answered(first).results)).toEqual([
      'INVALID_REQUEST',
      undefined,
      undefined,
      'INVALID_REQUEST',
    ]);
    expect((await send()).body).toBe(first.body);
    expect((await storedIds(service)).length).toBe(before + 2);
    await expectOthersUnharmed(service);
  });

  test('a day whose partition cannot be made now waits alone: those that have one and those of now are stored', async () => {
    const { service, clock } = await withPast(engine);
    // As ANALYZE and VACUUM hold it.
    const lock = await heldLock(service.sql, 'events', 'SHARE UPDATE EXCLUSIVE');
    const missing = OTHER - 800 * DAY_MS;
    const { results } = answered(await postBatch(service, [at(missing), at(OTHER), at(BAD), at()]));
    expect(codes(results)).toEqual(['UNAVAILABLE', undefined, undefined, undefined]);
    await expectOthersUnharmed(service);
    await lock.release();
    clock.advance(BACK_OFF_MS);
    expect(answered(await postBatch(service, [at(missing)])).stored).toBe(1);
  });
});

describe.each(ENGINES)('on %s', (engine) => {
  test('while one past day is locked, its events are told to come later, and all others are stored', async () => {
    const { service, clock, groups } = await withPast(engine);
    const lock = await heldLock(service.sql, await partOf(service.sql, engine, BAD), 'SHARE');
    // Where the machine is busy, a new day may take longer than its events wait.
    await until(async () => {
      const { results } = answered(await postBatch(service, [at(BAD), at(OTHER), at()]));
      expect(results[0]?.code).toBe('UNAVAILABLE');
      const areStored = codes(results.slice(1)).every((code) => code === undefined);
      if (!areStored) clock.advance(BACK_OFF_MS);
      return areStored;
    }, 'events of other days are stored');
    await expectOthersUnharmed(service);
    expect(await ready(service)).toMatchObject({ closedDays: 1 });

    const before = groups();
    const alone = await postBatch(service, [at(BAD)]);
    expect([alone.status, Number(alone.headers['retry-after'])]).toEqual([503, expect.any(Number)]);
    const keyed = await postBatch(service, [at(BAD), at()], { 'Idempotency-Key': 'b' });
    expect(keyed.status).toBe(503);
    expect(groups()).toBe(before);

    await lock.release();
    clock.advance(BACK_OFF_MS);
    expect(answered(await postBatch(service, [at(BAD)])).stored).toBe(1);
    expect((await postBatch(service, [at(BAD), at()], { 'Idempotency-Key': 'b' })).status).toBe(200);
    expect(await ready(service)).not.toHaveProperty('closedDays');
  });

  test('a locked day among a hundred costs its own events, whichever it is', async () => {
    const { service } = await withPast(engine);
    const lock = await heldLock(service.sql, await partOf(service.sql, engine, BAD), 'SHARE');
    const events = Array.from({ length: 100 }, (_, n) => at(BAD - 10 * DAY_MS * n));
    const { results } = answered(await postBatch(service, events));
    expect(results[0]?.code).toBe('UNAVAILABLE');
    expect(codes(results.slice(10)).filter((code) => code !== undefined)).toEqual([]);
    await lock.release();
  });

  test('events of a locked day in the journal do not keep the others there', async () => {
    const { service, proxy, clock } = await withPast(engine);
    await untilChangesAreHeard({ service, proxy });
    expect((await service.post()).status).toBe(201);
    await proxy.goAway();
    const { stored, results } = answered(
      await postBatch(
        service,
        [at(BAD), at(OTHER)].map((event) => ({ ...event, typeName: undefined, typeId: service.type.typeId })),
      ),
    );
    const later = await Promise.all([service.post(), service.post()]);
    expect([stored, later.map(({ status }) => status), waitingEvents(service)]).toEqual([2, [201, 201], 4]);
    const lock = await heldLock(service.sql, await partOf(service.sql, engine, BAD), 'SHARE');
    await proxy.comeBack();
    await until(() => waitingEvents(service) === 1, 'all others are stored');
    await until(() => service.stats().databaseWritable, 'events of now are taken');
    const { body } = await service.post();
    expect(await storedIds(service)).toEqual(
      expect.arrayContaining([JSON.parse(body).eventId, results[1]?.eventId]),
    );
    expect(await storedIds(service)).not.toContain(results[0]?.eventId);
    await lock.release();
    clock.advance(BACK_OFF_MS);
    await untilReplayed(service);
    expect(await storedIds(service)).toContain(results[0]?.eventId);
  }, 30_000);

  test("a request on a thousand days does not keep another app's batch waiting", async () => {
    const { service, proxy } = await opened.proxied({ engine });
    const other = await service.newApp();
    const thousand = Array.from({ length: 1_000 }, (_, n) => at(Date.now() - (n + 2) * DAY_MS));
    const small = [at()];
    const headers = { Authorization: `Bearer ${other.loggingToken}` };
    expect(answered(await postBatch(service, small, headers)).stored).toBe(1);
    const groups = groupsOf(proxy);
    // Its first group stays under way until the other batch has its answer.
    const met = proxy.next(isCopy, 'hold-answer');
    const large = postBatch(service, thousand);
    await until(() => met() === 1, 'the large request is on its way');
    expect(answered(await postBatch(service, small, headers)).stored).toBe(1);
    expect(groups()).toBe(2);
    proxy.release();
    expect(answered(await large).stored).toBe(1_000);
  }, 60_000);
});
