/** What becomes of a batch that the database refuses, or refuses for a while: on real PostgreSQL. */
import fc from 'fast-check';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { compareDay } from '../../../src/storage/counts/differences.ts';
import type { AcceptedEvent } from '../../../src/storage/write/accepted-event.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { jsonObject } from '../../json/json-text.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { sized } from '../../support/fuzz.ts';
import { FaultyProxy, isBatch } from '../../support/proxy.ts';
import { until } from '../../support/service.ts';
import { SOURCE } from '../../support/source.ts';
import { writingTo } from '../../support/writers.ts';

const DAY_MS = 86_400_000;
const newId = createEventIds();

function event(payload = '{}', createdAt = Date.now()): AcceptedEvent {
  return { id: newId(createdAt), appId: 1, typeId: 2, createdAt, payload, source: SOURCE };
}

describe.each(availableEngines())('on %s a batch', (engine) => {
  let database: TestDatabase;
  let writer: EventWriter;
  const clock = { ms: 0 };
  const makeWriter = (): EventWriter => {
    const log = pino({ level: 'silent' });
    const { address } = database;
    return new EventWriter({
      ...writingTo({ ...database, address }),
      connections: 2,
      log,
      now: () => clock.ms,
    });
  };
  /** PostgreSQL has partitions that someone must make. */
  const isPlain = engine !== 'timescale';
  /** Takes what a group changes in the counts. */
  const changes = isPlain ? 'count_deltas' : 'stale_buckets';
  beforeAll(async () => {
    database = await testDatabase(engine);
    const first = makeWriter();
    await first.write([event()]); // Makes the partition of today.
    await first.close();
  });
  afterAll(() => database.drop());
  beforeEach(async () => {
    writer = makeWriter();
    await database.sql.unsafe(`
      DROP TRIGGER IF EXISTS refuse ON events;
      ALTER TABLE events DROP CONSTRAINT IF EXISTS no_poison;
      TRUNCATE events, ${changes}`);
  });
  afterEach(() => writer.close());

  const stored = async (): Promise<{ id: string; payload: string }[]> => [
    ...(await database.sql<{ id: string; payload: string }[]>`
      SELECT id::text AS id, payload::text AS payload FROM events ORDER BY id`),
  ];
  const storedIds = async (): Promise<string[]> => (await stored()).map(({ id }) => id);
  /** Every row is counted once, or on TimescaleDB its minute marked, and nothing else. */
  const expectCounted = async (): Promise<void> => {
    const days = await database.sql<{ day: number }[]>`
      SELECT DISTINCT (extract(epoch FROM date_trunc('day', created_at, 'UTC')) * 1000)::float8 AS day FROM events`;
    for (const { day } of days)
      expect(await compareDay(database.sql, day, null)).toEqual({ differing: 0, examples: [] });
    if (!isPlain) return;
    const [sums] = await database.sql`
      SELECT (SELECT count(*)::int FROM events) AS rows, (SELECT coalesce(sum(count), 0)::int FROM count_deltas) AS counted`;
    expect(sums?.counted).toBe(sums?.rows);
  };
  /** The reasons of a batch's outcomes, null for stored. */
  const write = async (batch: readonly AcceptedEvent[]): Promise<(string | null)[]> =>
    (await writer.write(batch)).map((outcome) => (outcome instanceof Rejection ? outcome.reason : outcome));
  const forbidPoison = (): Promise<unknown> =>
    database.sql.unsafe(
      `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
    );

  /** The next `times` inserts fail with this SQLSTATE. Sequences are not rolled back, so they count. */
  const failNext = (times: number, code: string): Promise<unknown> =>
    database.sql.unsafe(`
      CREATE SEQUENCE IF NOT EXISTS tries;
      ALTER SEQUENCE tries RESTART;
      CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('tries') <= ${times} THEN RAISE EXCEPTION 'refused' USING ERRCODE = '${code}'; END IF;
        RETURN NULL;
      END $$;
      CREATE TRIGGER refuse AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()`);
  const triesOf = async (): Promise<number> => {
    const [row] = await database.sql<{ tries: number }[]>`SELECT last_value::int AS tries FROM tries`;
    return row?.tries ?? 0;
  };

  test('has large payloads compressed by lz4 where the server has it', async () => {
    const { sql } = database;
    await writer.write([event(JSON.stringify({ text: 'a long text '.repeat(2_000) }))]);
    const [found] = await sql<{ method: string; has: boolean }[]>`
      SELECT pg_column_compression(payload) AS method,
             (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') AS has
        FROM events`;
    expect(found?.method).toBe(found?.has ? 'lz4' : 'pglz');
  });

  test('is stored as it is: ids, app, type, time to the millisecond, payload', async () => {
    const createdAt = Date.now() - (Date.now() % 1_000) + 7;
    const one = event('{"a":1}', createdAt);
    expect(await write([one])).toEqual([null]);
    const rows = await database.sql`
      SELECT id::text AS id, app_id AS "appId", type_id AS "typeId", created_at AS "createdAt", payload::text AS payload
        FROM events`;
    // Where it came from is for the journal alone.
    const { source: _, ...row } = one;
    expect([...rows]).toEqual([{ ...row, createdAt: new Date(createdAt) }]);
  });

  test('is committed with synchronous_commit on, whatever the default of the database', async () => {
    await database.sql.unsafe(`
      DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$;
      CREATE TABLE IF NOT EXISTS seen (setting text);
      CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
      CREATE TRIGGER refuse AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()`);
    await write([event()]);
    expect([...(await database.sql`SELECT setting FROM seen`)]).toEqual([{ setting: 'on' }]);
  });

  test('keeps the text of any payload, by COPY and by INSERT', async () => {
    // A body is UTF-8, which has no half of a surrogate pair.
    const payload = jsonObject.map(({ text }) => Buffer.from(text).toString());
    await fc.assert(
      fc.asyncProperty(
        fc.array(payload, { minLength: 1, maxLength: 40 }),
        fc.boolean(),
        async (payloads, again) => {
          const batch = payloads.map((text) => event(text));
          // One event that is there already makes the whole batch go by INSERT.
          if (again) await write(batch.slice(0, 1));
          expect(await write(batch)).toEqual(batch.map(() => null));
          expect(await stored()).toEqual(batch.map(({ id, payload: text }) => ({ id, payload: text })));
          await expectCounted();
          await database.sql.unsafe(`TRUNCATE events, ${changes}`);
        },
      ),
      { numRuns: sized(15, 40) },
    );
  });

  test('security 24: of 500 of which one cannot be stored: the other 499 are', async () => {
    await forbidPoison();
    const batch = Array.from({ length: 500 }, (_, index) => event(index === 123 ? '{"poison":1}' : '{}'));
    const outcomes = await write(batch);
    expect(outcomes.filter((reason) => reason === null).length).toBe(499);
    expect(outcomes[123]).toBe('invalidBody');
    expect((await storedIds()).length).toBe(499);
    await expectCounted();
  });

  test('is stored but for its poison, wherever and however much that is', async () => {
    await forbidPoison();
    await fc.assert(
      fc.asyncProperty(fc.array(fc.boolean(), { minLength: 1, maxLength: 30 }), async (poison) => {
        const batch = poison.map((isPoison) => event(isPoison ? '{"poison":1}' : '{}'));
        expect(await write(batch)).toEqual(poison.map((isPoison) => (isPoison ? 'invalidBody' : null)));
        expect(await storedIds()).toEqual(batch.filter((_, index) => !poison[index]).map(({ id }) => id));
        await expectCounted();
        await database.sql.unsafe(`TRUNCATE events, ${changes}`);
      }),
      { numRuns: 25 },
    );
  });

  test.each(['40001', '40P01', '55P03', '55006', '53100', '53200', '57014', '57P01', '58030', '25006'])(
    'that fails three times with %s is stored, once, at the fourth try',
    async (code) => {
      await failNext(3, code);
      expect(await write([event(), event()])).toEqual([null, null]);
      expect(await triesOf()).toBe(4);
      expect((await storedIds()).length).toBe(2);
      await expectCounted();
    },
  );

  test('that goes on failing is given up as not stored when its time is over', async () => {
    await failNext(1_000_000, '40P01');
    const outcomes = write([event()]);
    await until(async () => (await triesOf()) > 3, 'it is tried again');
    clock.ms += 12_001;
    expect(await outcomes).toEqual(['unavailable']);
    expect(await storedIds()).toEqual([]);
  });

  test('that fails with what no retry could mend is not tried again', async () => {
    await failNext(1, '0A000');
    expect(await write([event()])).toEqual(['internalError']);
    expect(await triesOf()).toBe(1);
    expect(await storedIds()).toEqual([]);
  });

  test('waits for a lock on the table and is then stored once', async () => {
    let outcomes: Promise<(string | null)[]> | undefined;
    await database.sql.begin(async (tx) => {
      await tx`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`;
      outcomes = write([event()]);
      await until(async () => {
        const waiting = await database.sql`SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
        return waiting.length > 0;
      }, 'the batch waits for the lock');
    });
    expect(await outcomes).toEqual([null]);
    expect((await storedIds()).length).toBe(1);
  });

  test('whose connection is ended in the middle of its COPY is stored once', async () => {
    let outcomes: Promise<(string | null)[]> | undefined;
    await database.sql.begin(async (tx) => {
      await tx`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`;
      outcomes = write([event(), event()]);
      await until(async () => {
        const [ended] = await database.sql<{ ended: boolean }[]>`
          SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
           WHERE application_name LIKE 'tidemark writer%' AND wait_event_type = 'Lock'
             AND datname = current_database()`;
        return ended?.ended === true;
      }, 'the writer is ended');
    });
    expect(await outcomes).toEqual([null, null]);
    expect((await storedIds()).length).toBe(2);
    await expectCounted();
  });

  test.runIf(isPlain)('of a day without a partition is stored, and the partition is made', async () => {
    const batch = [20, 21, 20].map((days) => event('{}', Date.now() + days * DAY_MS));
    expect(await write(batch)).toEqual([null, null, null]);
    expect((await storedIds()).length).toBe(3);
    for (const one of batch) {
      const partition = `events_${new Date(one.createdAt).toISOString().slice(0, 10).replaceAll('-', '')}`;
      expect([...(await database.sql`SELECT to_regclass(${partition}) IS NOT NULL AS made`)]).toEqual([
        { made: true },
      ]);
    }
  });

  test('and another one of the same day without a partition are both stored', async () => {
    const batches = [1, 2].map(() => [event('{}', Date.now() + 40 * DAY_MS)]);
    expect(await Promise.all(batches.map(write))).toEqual([[null], [null]]);
    expect((await storedIds()).length).toBe(2);
  });

  test.runIf(isPlain)('of a day whose partition cannot be made at first is stored', async () => {
    await database.sql.unsafe(`
      CREATE SEQUENCE made;
      CREATE FUNCTION refuse_table() RETURNS event_trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('made') = 1 THEN RAISE EXCEPTION 'tuple concurrently updated' USING ERRCODE = 'XX000'; END IF;
      END $$;
      CREATE EVENT TRIGGER refuse_table ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION refuse_table()`);
    try {
      expect(await write([event('{}', Date.now() + 50 * DAY_MS)])).toEqual([null]);
    } finally {
      await database.sql.unsafe(
        'DROP EVENT TRIGGER refuse_table; DROP FUNCTION refuse_table(); DROP SEQUENCE made',
      );
    }
  });

  test('of which some events are there already is stored without a second copy of them', async () => {
    const batch = [event('{"n":1}'), event('{"n":2}'), event('{"n":3}')];
    await write(batch.slice(0, 2));
    expect(await write(batch)).toEqual([null, null, null]);
    expect(await storedIds()).toEqual(batch.map(({ id }) => id));
    await expectCounted();
  });

  test('with poison of which some events are there already is stored but for the poison', async () => {
    await forbidPoison();
    const batch = [event('{"n":1}'), event('{"poison":1}'), event('{"n":3}')];
    await write(batch.slice(0, 1));
    expect(await write(batch)).toEqual([null, 'invalidBody', null]);
    expect(await storedIds()).toEqual([batch[0]?.id, batch[2]?.id]);
    await expectCounted();
  });

  test('whose counts cannot be written is not stored, and is stored with them later', async () => {
    await database.sql.unsafe(`
      CREATE SEQUENCE IF NOT EXISTS tries;
      ALTER SEQUENCE tries RESTART;
      CREATE OR REPLACE FUNCTION refuse_counts() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('tries') <= 3 THEN RAISE EXCEPTION 'refused' USING ERRCODE = '40P01'; END IF;
        RETURN NULL;
      END $$;
      CREATE TRIGGER refuse_counts AFTER INSERT ON ${changes} FOR EACH STATEMENT EXECUTE FUNCTION refuse_counts()`);
    try {
      let seen = 0;
      const looking = (async () => {
        while ((await triesOf()) < 3) seen += (await storedIds()).length;
      })();
      expect(await write([event(), event()])).toEqual([null, null]);
      await looking;
      expect([seen, await triesOf(), (await storedIds()).length]).toEqual([0, 4, 2]);
      await expectCounted();
    } finally {
      await database.sql.unsafe(`DROP TRIGGER refuse_counts ON ${changes}`);
    }
  });

  test('whose commit was told before its connection broke is not written again', async () => {
    const proxy = await FaultyProxy.start(database.address);
    const { address } = proxy;
    const log = pino({ level: 'silent' });
    const proxied = new EventWriter({
      ...writingTo({ ...database, address }),
      connections: 1,
      log,
      now: () => 0,
    });
    try {
      const met = proxy.next(isBatch, 'lose-ready', 2);
      expect(await proxied.write([event(), event()])).toEqual([null, null]);
      // The connection is found broken by the next one, and made again.
      expect(await proxied.write([event()])).toEqual([null]);
      expect([met(), proxied.retries]).toEqual([2, 0]);
      expect((await storedIds()).length).toBe(3);
      await expectCounted();
    } finally {
      await proxied.close();
      await proxy.stop();
    }
  });

  test('is dated to the millisecond, in whatever year', async () => {
    const times = [
      '0001-01-01',
      '1969-12-31',
      '1999-12-31',
      '2000-01-01',
      '2038-01-19',
      '2300-02-28',
      '9998-06-05',
    ].map((date) => Date.parse(`${date}T23:59:59.987Z`));
    const batch = times.filter((time) => isPlain || time > 0).map((time) => event('{}', time));
    for (const one of batch) expect(await write([one])).toEqual([null]);
    const rows = await database.sql<{ at: string }[]>`
      SELECT to_char(created_at, 'YYYY-MM-DD HH24:MI:SS.US') AS at FROM events ORDER BY created_at`;
    expect(rows.map(({ at }) => at)).toEqual(
      batch.map(({ createdAt }) => new Date(createdAt).toISOString().replace('T', ' ').replace('Z', '000')),
    );
  });

  test('leaves its connection usable for the next one, whatever became of it', async () => {
    await forbidPoison();
    for (let round = 0; round < 5; round += 1) {
      expect(await write([event('{"poison":1}')])).toEqual(['invalidBody']);
      expect(await write([event()])).toEqual([null]);
    }
    const connections = await database.sql`
      SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'tidemark writer%' AND datname = current_database()`;
    expect(connections.length).toBe(1);
  });
});
