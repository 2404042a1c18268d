import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readAppSpan } from '../../../../src/storage/counts/app-stats.ts';
import { compareDay } from '../../../../src/storage/counts/differences.ts';
import { readSeries } from '../../../../src/storage/counts/series.ts';
import { readTypeStats } from '../../../../src/storage/counts/type-stats.ts';
import { connect, type Sql, type Transaction } from '../../../../src/storage/database/connect.ts';
import { removal } from '../../../../src/storage/engines/timescale/app-removal.ts';
import { compress } from '../../../../src/storage/engines/timescale/compression.ts';
import {
  dropChunksBefore,
  MARKS_AT_ONCE,
  MARKS_OF_STEP,
  mergeMarks,
  refreshStale,
  settleCounts,
  timescaleMaintenance,
} from '../../../../src/storage/engines/timescale/maintenance.ts';
import { applyPolicies } from '../../../../src/storage/engines/timescale/policies.ts';
import { removeDeletedApps } from '../../../../src/storage/maintenance/deleted-apps.ts';
import { migrate } from '../../../../src/storage/migrate.ts';
import { readEventPage } from '../../../../src/storage/read/event-page.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../../support/database.ts';
import { seededRandom } from '../../../support/field-oracle.ts';
import {
  blocksOf,
  type HeldSnapshot,
  heldSnapshot,
  passTransactions,
} from '../../../support/held-snapshot.ts';
import { insertSelected } from '../../../support/insert-selected.ts';
import { patient } from '../../../support/patience.ts';
import { until } from '../../../support/service.ts';
import { beginRefresh } from '../../../support/slow-refresh.ts';
import { upkeepOf } from '../../../support/upkeep.ts';

const DAY = 86_400_000;
const START = Date.UTC(2026, 4, 1);
const DAYS = 6;
const APP = 1;
const PAYLOADS = ['{ "b" : 1e400, "a":-0 }', '{"n":12345678901234567890,"n":1}', '{"s":"\\u0000\\ud800"}'];
const { settle, pending } = upkeepOf('timescale');

describe.runIf(availableEngines().includes('timescale'))('TimescaleDB', () => {
  let database: TestDatabase;
  let sql: Sql;

  /** For maintenance, whose locks are held by the session that works. */
  let single: Sql;
  beforeAll(async () => {
    database = await testDatabase('timescale');
    single = connect(database.address, { connections: 1, name: 'test maintenance' });
    sql = database.sql;
    await sql`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
    await sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('t1', ${APP}, 't1'), ('t2', ${APP}, 't2')`;
    await insert(Array.from({ length: 3_000 }, (_, i) => START + Math.floor((i * DAYS * DAY) / 3_000)));
  });
  afterAll(async () => {
    await single.end();
    await database.drop();
  });

  async function insert(times: readonly number[]): Promise<void> {
    const rows = sql`
      SELECT id, ${APP}::integer, (1 + n % 2)::integer, at, payload
        FROM unnest(${times.map(() => randomUUID())}::uuid[], ${times.map((time) => new Date(time).toISOString())}::timestamptz[],
                    ${times.map((_, i) => PAYLOADS[i % PAYLOADS.length] ?? '')}::text[]::json[])
             WITH ORDINALITY AS row (id, at, payload, n)`;
    await insertSelected(sql, 'timescale', rows);
  }

  /** Every page of the app, and what it holds by a plain query. */
  async function expectExact(): Promise<void> {
    for (const typeId of [null, 1, 2]) {
      const rows = await sql<{ id: string; payload: string }[]>`
        SELECT id, payload::text FROM events
         WHERE app_id = ${APP} AND created_at >= (SELECT readable_from FROM retention)
           AND (${typeId}::integer IS NULL OR type_id = ${typeId})
         ORDER BY created_at, id`;
      for (const offset of [0, 1_000, 1_999]) {
        const page = await readEventPage(sql, {
          scope: { appId: APP, typeIds: typeId === null ? null : [typeId], from: null, until: null },
          offset,
          limit: 300,
          order: 'asc',
          maxBytes: 1_000_000,
        });
        expect(page.total).toBe(rows.length);
        expect(page.events.map(({ id, payload }) => ({ id, payload }))).toEqual(
          rows.slice(offset, offset + 300),
        );
      }
    }
  }

  test('pages of compressed chunks have the same bytes, and late rows in them are counted at once', async () => {
    await settle(sql);
    const before = await readAll();
    const chunks = await sql<
      { name: string }[]
    >`SELECT compress_chunk(c)::text AS name FROM show_chunks('events') AS c`;
    expect(chunks.length).toBe(DAYS);
    expect(await readAll()).toEqual(before);
    await expectExact();

    await insert([START + 5, START + 2 * DAY + 77, START + 2 * DAY + 78]);
    await expectExact();
    expect(await pending(sql)).toBeGreaterThan(0);
    await settle(sql);
    expect(await pending(sql)).toBe(0);
    await expectExact();
  });

  async function readAll(): Promise<readonly unknown[]> {
    const scope = { appId: APP, typeIds: null, from: START + DAY + 123, until: START + 3 * DAY };
    return (
      await readEventPage(sql, { scope, offset: 10, limit: 1_000, order: 'desc', maxBytes: 10_000_000 })
    ).events;
  }

  test('minutes in the columnstore are read, counted again with late rows, and compressed again', async () => {
    const settled = async (): Promise<readonly string[]> => {
      const rows = await sql<{ text: string }[]>`
        SELECT concat_ws(' ', app_id, type_id, bucket, count) AS text FROM events_per_minute`;
      return rows.map(({ text }) => text).toSorted();
    };
    const expectRead = async (): Promise<void> => {
      await expectExact();
      for (let day = START; day < START + DAYS * DAY; day += DAY)
        expect((await compareDay(sql, day, null)).differing).toBe(0);
      for (const [from, until] of [
        [START, START + 3_600_000],
        [START + DAY + 7, START + 2 * DAY],
      ] as const) {
        const series = await readSeries(sql, {
          appId: APP,
          typeIds: null,
          from,
          until,
          timezone: 'UTC',
          buckets: 400,
        });
        expect(series).not.toBeNull();
      }
    };
    await settle(sql);
    const before = await settled();
    const compressed = async (): Promise<readonly unknown[]> => [
      ...(await sql`
        SELECT aggregate, bool_and(_timescaledb_functions.chunk_status(chunk) = 1) AS is_compressed
          FROM unnest(ARRAY['minute_counts', 'app_minute_counts']) AS aggregate
         CROSS JOIN LATERAL show_chunks(aggregate::regclass) AS chunk
         GROUP BY 1 ORDER BY 1`),
    ];
    const both = (isCompressed: boolean): unknown[] =>
      ['app_minute_counts', 'minute_counts'].map((aggregate) => ({ aggregate, is_compressed: isCompressed }));
    // At once, and beside writers.
    await tillCompressed(sql);
    expect(await compressed()).toEqual(both(true));
    expect(await settled()).toEqual(before);
    await expectRead();
    await insert([START + 9, START + 3 * DAY + 9, START + 3 * DAY + 60_009]);
    await expectRead();
    await settle(sql);
    expect(await compressed()).toEqual(both(false));
    expect(await pending(sql)).toBe(0);
    await expectRead();
    await tillCompressed(sql, 0);
    expect(await compressed()).toEqual(both(true));
    await expectRead();
    const [sizes] = await sql<{ segments: string }[]>`
      SELECT segmentby::text AS segments FROM _timescaledb_catalog.compression_settings
       WHERE relid = (SELECT format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name)::regclass
                        FROM timescaledb_information.continuous_aggregates WHERE view_name = 'minute_counts')`;
    expect(sizes?.segments).toBe('{app_id,type_id}');
  });

  /** Minutes have chunks of thirty days, which may not be over yet: as if it were a year later. */
  async function tillCompressed(into: Sql, smallBytes?: number): Promise<void> {
    while (!(await compress(into, -365, smallBytes)));
  }

  test('a refresh by anybody, of anything, at any time leaves every total exact', async () => {
    await sql.begin(async (late) => {
      const row = late`VALUES (${randomUUID()}::uuid, ${APP}::integer, 1, ${new Date(START + DAY + 5)}::timestamptz, '{}'::json)`;
      await insertSelected(late, 'timescale', row);
      for (const aggregate of [
        'minute_counts',
        'app_minute_counts',
        'hour_counts',
        'app_hour_counts',
        'day_counts',
      ]) {
        await sql`CALL refresh_continuous_aggregate(${aggregate}, NULL, NULL)`;
      }
      await settle(sql);
      await expectExact();
    });
    await expectExact();
    await sql`CALL refresh_continuous_aggregate('app_day_counts', NULL, NULL)`;
    await expectExact();
    await settle(sql);
    await expectExact();
  });

  test('marks of years are settled in bounded steps, and a month that somebody holds keeps no other one waiting', async () => {
    const first = new Date(Date.UTC(2025, 11, 30));
    await sql`
      INSERT INTO stale_buckets (level, bucket)
      SELECT 0, ${first}::timestamptz + minute * interval '1 minute' FROM generate_series(0, ${MARKS_AT_ONCE + 499}) AS minute`;
    await sql`INSERT INTO month_counts (app_id, type_id, bucket, count) VALUES (${APP}, 1, '2026-01-01Z', 0)`;
    const steps: number[] = [];
    let after: Promise<boolean> | null = null;
    const later = Date.UTC(2027, 0, 1);
    const marksOf = async (until: string): Promise<number> =>
      (await sql`SELECT FROM stale_buckets WHERE bucket >= ${first} AND bucket < ${until}::timestamptz`)
        .length;
    await sql.begin(async (tx) => {
      await tx`SELECT FROM month_counts WHERE bucket = '2026-01-01Z' FOR UPDATE`;
      const settling = refreshStale(sql, later, 0, (marks) => void steps.push(marks));
      settling.catch(() => undefined); // Awaited below.
      await until(async () => (await marksOf('2026-01-01Z')) === 0, 'December is settled');
      expect(await marksOf('2026-02-01Z')).toBeGreaterThan(0);
      // The transaction ends, and lets the other month be settled.
      after = settling;
    });
    expect(await after).toBe(true);
    expect(await marksOf('2026-02-01Z')).toBe(0);
    const ofMinutes = new Array<number>(MARKS_AT_ONCE / MARKS_OF_STEP).fill(MARKS_OF_STEP);
    expect(steps.slice(0, ofMinutes.length + 1)).toEqual([...ofMinutes, 500]);
    expect(Math.max(...steps)).toBe(MARKS_OF_STEP);
    await expectExact();
  });

  test('minutes that get rows, and marks that are merged, while their marks wait in memory are counted', async () => {
    await sql`
      INSERT INTO stale_buckets (level, bucket)
      SELECT 0, ${new Date(START)}::timestamptz + minute % ${DAYS * 1_440} * interval '1 minute'
        FROM generate_series(1, ${4 * MARKS_OF_STEP}) AS minute`;
    const random = seededRandom(7);
    let isSettled = false;
    const settling = refreshStale(sql, Date.UTC(2027, 0, 1)).finally(() => {
      isSettled = true;
    });
    settling.catch(() => undefined); // Awaited below.
    for (let round = 0; !isSettled; round += 1) {
      await insert(Array.from({ length: 5 }, () => START + random(DAYS * DAY)));
      await expectExact();
      if (round % 3 === 0) await mergeMarks(single, 1e6);
    }
    await settling;
    await expectExact();
    await settle(sql);
    expect(await pending(sql)).toBe(0);
    await expectExact();
  });

  test('a round leaves the marks that it has no time for to the next one', async () => {
    await sql`
      INSERT INTO stale_buckets (level, bucket)
      SELECT 0, '2025-10-01Z'::timestamptz + minute * interval '1 minute' FROM generate_series(0, ${MARKS_OF_STEP}) AS minute`;
    const later = Date.UTC(2027, 0, 1);
    const isOver = (): boolean => true;
    expect(await refreshStale(sql, later, 0, undefined, isOver)).toBe(false);
    const left = await sql`SELECT FROM stale_buckets WHERE level = 0 AND bucket < '2025-11-01Z'`;
    expect(left).toHaveLength(1);
    expect(await refreshStale(sql, later, 0, undefined, isOver)).toBe(true);
    expect(await sql`SELECT FROM stale_buckets WHERE bucket < '2025-11-01Z'`).toHaveLength(0);
  });

  test('a refresh by another program puts maintenance off, and whoever settles the counts waits for it', async () => {
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 0,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    const alone = connect(database.address, { connections: 1, name: 'test upkeep' });
    const tasks = timescaleMaintenance({ sql: alone, slow: alone }, settings, Date.now);
    await insert([START + 7, START + DAY + 7]);
    const refresh = await beginRefresh(database);
    try {
      await tasks.everySecond();
      expect(await pending(sql)).toBeGreaterThan(0);
      await expectExact();
      let settled = false;
      const settling = settleCounts(alone, Date.now()).then(() => {
        settled = true;
      });
      await until(() => refresh.stands(sql, 'test upkeep'), 'the refresh was refused');
      expect(settled).toBe(false);
      await refresh.end();
      await settling;
    } finally {
      await refresh.end();
      await alone.end();
    }
    expect(await pending(sql)).toBe(0);
    await expectExact();
  });

  describe.each([
    ['a snapshot stays in use', false],
    ['a transaction that has written stays open', true],
  ])('while %s', (_, hasWritten) => {
    let own: TestDatabase;
    let holder: HeldSnapshot;
    let alone: Sql;
    beforeEach(async () => {
      own = await testDatabase('timescale');
      // After ANALYZE between a merge and a read, the planner expects every row to match and scans the table until the next merge.
      await own.sql`ALTER TABLE stale_buckets SET (autovacuum_enabled = off)`;
      await own.sql`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
      await own.sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('t1', ${APP}, 't1')`;
      await store();
      holder = await heldSnapshot(own.address, { hasWritten });
      alone = connect(own.address, { connections: 1, name: 'test reader' });
      await passTransactions(own.sql, 1_100);
    });
    afterEach(async () => {
      await holder.release();
      await alone.end();
      await own.drop();
    });

    const store = (into: Sql | Transaction = own.sql): Promise<number> =>
      insertSelected(
        into,
        'timescale',
        into`SELECT gen_random_uuid(), ${APP}::integer, 1, ${new Date(START)}::timestamptz, '{}'::json`,
      );
    /** What many commit groups leave behind: marks of the same hundred minutes. */
    const mark = (): Promise<unknown> =>
      own.sql`
        INSERT INTO stale_buckets (level, bucket)
        SELECT 0, ${new Date(START)}::timestamptz + n % 100 * interval '1 minute' FROM generate_series(1, 600) AS n`;
    const readTotal = async (from: Sql = own.sql): Promise<number> => {
      const scope = { appId: APP, typeIds: null, from: null, until: null };
      return (await readEventPage(from, { scope, offset: 0, limit: 1, order: 'asc', maxBytes: 1_000 })).total;
    };
    const marks = async (): Promise<number> => (await own.sql`SELECT FROM stale_buckets`).length;

    /**
     * The limit for the blocks of marks that a statement reads. Open transactions in other databases of the server count too,
     * such as CREATE DATABASE for another test: transaction ids belong to the server. A merge notes those that are older than
     * 1,000 transactions, and every statement looks each of them up. It reads the dead rows since the oldest newer one.
     * @param blocks without lookups
     */
    const mostBlocks = async (blocks: number): Promise<number> => {
      const [row] = await own.sql<{ noted: number }[]>`SELECT cardinality(running) AS noted FROM folds`;
      const perLookup = 3;
      return blocks + perLookup * (row?.noted ?? Number.NaN);
    };

    test('reads and maintenance do not go through the dead rows of marks that are gone', async () => {
      const rounds = 30;
      for (let round = 1; round <= rounds; round += 1) {
        // No open transaction that the merge does not note is older than this round.
        if (round === rounds) await passTransactions(own.sql, 1_100);
        await mark();
        await store();
        await mergeMarks(own.sql);
        expect(await marks()).toBe(100);
        expect(await readTotal()).toBe(round + 1);
      }
      // The remaining marks are 4 blocks. The dead rows are 8 blocks for each of the rounds.
      const most = await mostBlocks(16);
      expect(await blocksOf(alone, ['stale_buckets'], readTotal)).toBeLessThanOrEqual(most);
      expect(await blocksOf(alone, ['stale_buckets'], mergeMarks)).toBeLessThanOrEqual(most);
    });

    test('nor of marks that were lifted, and what the open transaction stores late is counted', async () => {
      const settings = {
        CHUNK_HOURS: 24,
        COMPRESS_AFTER_DAYS: 0,
        RETENTION_DAYS: 0,
        CONSUMER_REACH_HOURS: 168,
      };
      let now = Date.now();
      const upkeep = connect(own.address, { connections: 1, name: 'test upkeep' });
      const tasks = timescaleMaintenance({ sql: upkeep, slow: upkeep }, settings, () => now);
      try {
        for (let round = 0; round < 3; round += 1) {
          await mark();
          await tasks.everySecond();
          now += 5_000;
        }
        // No open transaction that the merge does not note is older than the last mark.
        await passTransactions(own.sql, 1_100);
        await tasks.everySecond();
        expect(await marks()).toBe(0);
        // The table without marks is 2 blocks. The dead rows are 24.
        expect(await blocksOf(alone, ['stale_buckets'], readTotal)).toBeLessThanOrEqual(await mostBlocks(6));
        await holder.run((tx) => store(tx));
        await mark();
        await tasks.everySecond();
        expect(await readTotal()).toBe(1);
        await holder.release();
        expect(await readTotal()).toBe(2);
        now += 5_000;
        await tasks.everySecond();
        expect(await marks()).toBe(0);
        expect(await readTotal()).toBe(2);
        await own.sql`SELECT pg_stat_clear_snapshot()`;
        await until(async () => {
          const [row] = await own.sql<{ vacuums: number }[]>`
            SELECT vacuum_count::int AS vacuums FROM pg_stat_user_tables WHERE relname = 'stale_buckets'`;
          return row?.vacuums === 1;
        }, 'dead rows are vacuumed once nobody sees them');
      } finally {
        await upkeep.end();
      }
    });
  });

  test('a changed setting changes the policies at the next start, and 0 takes them away', async () => {
    const policies = async (): Promise<string[]> => {
      const rows = await sql<{ value: string }[]>`
        SELECT config ->> 'drop_after' AS value FROM timescaledb_information.jobs
         WHERE hypertable_name = 'events' AND proc_name = 'policy_retention'`;
      return rows.map(({ value }) => value);
    };
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    await applyPolicies(sql, settings);
    await applyPolicies(sql, settings);
    expect(await policies()).toEqual([]);
    await applyPolicies(sql, {
      CHUNK_HOURS: 12,
      COMPRESS_AFTER_DAYS: 3,
      RETENTION_DAYS: 90,
      CONSUMER_REACH_HOURS: 168,
    });
    expect(await policies()).toEqual(['91 days']);
    const [dimension] = await sql<{ interval: string }[]>`
      SELECT time_interval::text AS interval FROM timescaledb_information.dimensions
       WHERE hypertable_name = 'events'`;
    expect(dimension?.interval).toBe('12:00:00');
    await applyPolicies(sql, {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 0,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    });
    expect(await policies()).toEqual([]);
  });

  test('every aggregate has a refresh policy where the retention leaves room for one', async () => {
    const refreshed = async (): Promise<number> =>
      (
        await sql`SELECT FROM timescaledb_information.jobs WHERE proc_name = 'policy_refresh_continuous_aggregate'`
      ).length;
    await applyPolicies(sql, {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 30,
      CONSUMER_REACH_HOURS: 168,
    });
    expect(await refreshed()).toBe(8);
    await applyPolicies(sql, {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 2,
      CONSUMER_REACH_HOURS: 168,
    });
    expect(await refreshed()).toBe(6);
  });

  test('of a deleted app nothing stays in the columnstore, and the other apps stay exact', async () => {
    await sql`INSERT INTO apps (public_id, name) VALUES ('b', 'b')`;
    await insertSelected(
      sql,
      'timescale',
      sql`SELECT gen_random_uuid(), 2, 1, created_at, payload FROM events WHERE app_id = ${APP}`,
    );
    await settle(sql);
    await sql`SELECT compress_chunk(chunk, recompress => true) FROM show_chunks('events') AS chunk`;
    const eventsOf = async (appId: number): Promise<number> =>
      (await sql`SELECT FROM events WHERE app_id = ${appId}`).length;
    const before = await eventsOf(APP);
    expect(await eventsOf(2)).toBe(before);
    await sql`DELETE FROM apps WHERE id = 2`;
    await sql`INSERT INTO deleted_apps (app_id, deleted_at) VALUES (2, now() - interval '2 hours')`;
    // No time at all: a piece goes, and the rest later.
    expect(await removeDeletedApps(sql, removal, () => 1, 1)).toBe(false);
    expect(await eventsOf(2)).toBeGreaterThan(0);
    expect(await removeDeletedApps(sql, removal, () => 0, 1)).toBe(true);
    expect(await eventsOf(2)).toBe(0);
    for (const aggregate of ['minute_counts', 'app_quarter_hour_counts', 'app_hour_counts', 'day_counts'])
      expect(await sql`SELECT FROM ${sql(aggregate)} WHERE app_id = 2`).toHaveLength(0);
    expect(await sql`SELECT FROM deleted_apps`).toHaveLength(0);
    expect(await eventsOf(APP)).toBe(before);
    await expectExact();
    await sql`CALL refresh_continuous_aggregate('app_day_counts', NULL, NULL)`;
    await expectExact();
  });

  test('retention takes rows and minutes, keeps the coarser counts, and totals count what can be read', async () => {
    const now = START + DAYS * DAY + 1;
    const tasks = timescaleMaintenance(
      { sql: single, slow: single },
      { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 7, RETENTION_DAYS: 3, CONSUMER_REACH_HOURS: 168 },
      () => now,
    );
    const [hours] = await sql<
      { total: number }[]
    >`SELECT sum(count)::float8 AS total FROM events_per_hour WHERE type_id = 0`;
    expect(await tasks.everyTenMinutes()).toEqual([]);
    await expectExact();
    // A chunk that is locked, as by a worker of the server's own, is dropped by a later round.
    const dropped: string[] = [];
    const chunks = async (): Promise<number> => {
      dropped.push(...(await tasks.everyTenMinutes()));
      return dropped.filter((name) => name.includes('hyper_')).length;
    };
    await expect.poll(chunks, { timeout: patient(20_000) }).toBeGreaterThanOrEqual(3);
    await expectExact();
    const [rows] = await sql<{ oldest: Date }[]>`SELECT min(created_at) AS oldest FROM events`;
    expect(rows?.oldest.getTime()).toBeGreaterThanOrEqual(START + 3 * DAY);
    // What comes late marks its bucket; refreshing it must not reach behind the boundary.
    await insert([START + 3 * DAY + 1, START + 3 * DAY + 2]);
    await settle(sql);
    await expectExact();
    const [after] = await sql<
      { total: number }[]
    >`SELECT sum(count)::float8 AS total FROM events_per_hour WHERE type_id = 0`;
    expect(after?.total).toBe((hours?.total ?? 0) + 2);
    expect(await dropChunksBefore(sql, '-infinity')).toEqual([]);
  });

  describe('retention that begins on old data', () => {
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 0,
      RETENTION_DAYS: 3,
      CONSUMER_REACH_HOURS: 168,
    };
    const today = Math.floor(Date.now() / DAY) * DAY;
    let old: TestDatabase;
    let ofOld: Sql;
    beforeEach(async () => {
      old = await testDatabase('timescale');
      ofOld = connect(old.address, { connections: 1, name: 'test maintenance' });
      await old.sql`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
      await old.sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('t1', ${APP}, 't1')`;
      const days = (n: number) => old.sql`
        SELECT gen_random_uuid(), ${APP}::integer, 1, at, '{}'::json
          FROM generate_series(${new Date(today - 10 * DAY)}::timestamptz, ${new Date(today)}, ${`${n} hours`}::interval) at`;
      // Half of it counted, and every minute of the other half marked.
      await insertSelected(old.sql, 'timescale', days(3));
      await settle(old.sql);
      await insertSelected(old.sql, 'timescale', days(5));
    });
    afterEach(async () => {
      await ofOld.end();
      await old.drop();
    });

    /** What TimescaleDB's scheduler does. */
    const runJobs = async (): Promise<void> => {
      const jobs = await old.sql<{ id: number }[]>`
        SELECT job_id AS id FROM timescaledb_information.jobs WHERE proc_name = 'policy_retention'`;
      expect(jobs).toHaveLength(3);
      for (const { id } of jobs) await old.sql`CALL run_job(${id})`;
    };
    const expectReadable = async (): Promise<void> => {
      for (const offset of [0, 10]) {
        const scope = { appId: APP, typeIds: null, from: null, until: null };
        const page = await readEventPage(old.sql, {
          scope,
          offset,
          limit: 1_000,
          order: 'asc',
          maxBytes: 1e9,
        });
        const rows = await old.sql`SELECT FROM events WHERE created_at >= ${new Date(today - 3 * DAY)}`;
        expect(page.total).toBe(rows.length);
        expect(page.events).toHaveLength(rows.length - offset);
      }
    };

    test('hides it before a policy may drop it, so that every page is right when its job has run', async () => {
      await timescaleMaintenance({ sql: ofOld, slow: ofOld }, settings, Date.now).prepare();
      await expectReadable();
      await runJobs();
      await expectReadable();
      const [first] = await old.sql<{ at: Date }[]>`SELECT min(created_at) AS at FROM events`;
      expect(first?.at.getTime()).toBeGreaterThanOrEqual(today - 5 * DAY);
    });

    test('does so at a start too, after a downtime in which the job has run', async () => {
      await applyPolicies(old.sql, settings);
      await runJobs();
      await timescaleMaintenance({ sql: ofOld, slow: ofOld }, settings, Date.now).prepare();
      await expectReadable();
    });

    test('drops nothing that an older snapshot may still read', async () => {
      const tasks = timescaleMaintenance({ sql: ofOld, slow: ofOld }, settings, Date.now);
      const reader = connect(old.address, { connections: 1, name: 'test reader' });
      try {
        await reader.begin('isolation level repeatable read', async (tx) => {
          await tx`SELECT FROM retention`;
          await tasks.prepare();
          expect(await tasks.everyTenMinutes()).toEqual([]);
          expect(
            await tx`SELECT FROM events WHERE created_at < ${new Date(today - 4 * DAY)}`,
          ).not.toHaveLength(0);
        });
      } finally {
        await reader.end();
      }
      expect((await tasks.everyTenMinutes()).length).toBeGreaterThan(0);
      await expectReadable();
    });
  });

  test('a role with ordinary rights makes the schema, counts and compresses', async () => {
    const old = await testDatabase('timescale', { empty: true });
    const role = `owner_${randomUUID().replaceAll('-', '')}`;
    await old.sql`CREATE EXTENSION timescaledb`;
    await old.sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'ordinary'`);
    await old.sql.unsafe(`GRANT ALL ON SCHEMA public TO ${role}`);
    const url = new URL(old.url);
    [url.username, url.password] = [role, 'ordinary'];
    const owner = connect({ url: url.href }, { connections: 1, name: 'test' });
    try {
      await migrate(owner, 'timescale');
      await owner`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
      await owner`INSERT INTO event_types (public_id, app_id, name) VALUES ('t', 1, 't')`;
      const rows = owner`
        SELECT gen_random_uuid(), 1, 1, at, '{}'::json
          FROM generate_series(${new Date(START + 29 * DAY)}::timestamptz, ${new Date(START + 32 * DAY)}, '6 hours') at`;
      await insertSelected(owner, 'timescale', rows);
      await settle(owner);
      await applyPolicies(owner, {
        CHUNK_HOURS: 24,
        COMPRESS_AFTER_DAYS: 7,
        RETENTION_DAYS: 0,
        CONSUMER_REACH_HOURS: 168,
      });
      const months = await owner`
        SELECT type_id, count::integer FROM events_per_month WHERE app_id = 1 ORDER BY type_id, bucket`;
      expect(months.map(({ count }) => count)).toEqual([8, 5, 8, 5]);
      expect((await readAppSpan(owner, 1)).total).toBe(13);
      const row = owner`VALUES (gen_random_uuid(), 1, 1, ${new Date(START + 30 * DAY)}::timestamptz, '{}'::json)`;
      await insertSelected(owner, 'timescale', row);
      expect((await readAppSpan(owner, 1)).total).toBe(14);
      await settle(owner);
      expect((await readTypeStats(owner, 1)).get('t')?.count).toBe(14);
      // With rights on its own schema alone it compresses beside writers, too.
      expect(await compress(owner, 0, 0)).toBe(true);
      expect(
        await owner`SELECT FROM timescaledb_information.chunks WHERE hypertable_name = 'events' AND NOT is_compressed`,
      ).toHaveLength(0);
      expect((await readTypeStats(owner, 1)).get('t')?.count).toBe(14);
    } finally {
      await owner.end();
      await old.sql.unsafe(`DROP OWNED BY ${role}`);
      await old.sql.unsafe(`DROP ROLE ${role}`);
      await old.drop();
    }
  }, 120_000);
});
