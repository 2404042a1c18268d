import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { connect, type Sql, type Transaction } from '../../../../src/storage/database/connect.ts';
import { removeExpired } from '../../../../src/storage/engines/postgres/app-removal.ts';
import {
  applyRetention,
  clipPartitions,
  countDeltas,
  ExpiredMinutes,
  ensurePartitions,
  foldCounts,
  postgresMaintenance,
} from '../../../../src/storage/engines/postgres/maintenance.ts';
import { writes } from '../../../../src/storage/engines/postgres/writes.ts';
import { DeadRows } from '../../../../src/storage/maintenance/dead-rows.ts';
import { ExpiredRows } from '../../../../src/storage/maintenance/expired-rows.ts';
import { readEventPage } from '../../../../src/storage/read/event-page.ts';
import { holdersInTurns } from '../../../support/counts-lock.ts';
import { type TestDatabase, testDatabase } from '../../../support/database.ts';
import {
  blocksOf,
  type HeldSnapshot,
  heldSnapshot,
  passTransactions,
  removedByTransaction,
} from '../../../support/held-snapshot.ts';
import { insertSelected } from '../../../support/insert-selected.ts';
import { until } from '../../../support/service.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 1, 26);
const NOON = START + DAY_MS / 2;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };

let database: TestDatabase;
let sql: Sql;

beforeEach(async () => {
  database = await testDatabase();
  sql = database.sql;
});
afterEach(() => database.drop());

async function partitions(): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1`;
  return rows.map((row) => row.name);
}

async function insertAt(time: number, into: Sql | Transaction = sql): Promise<void> {
  const row = into`VALUES (gen_random_uuid(), 1, 7, ${time}::timestamptz, '{}'::json)`;
  await insertSelected(into, 'postgres', row);
}

const COUNTS = ['minute_counts', 'quarter_hour_counts', 'hour_counts', 'day_counts'] as const;

/** Sum of the counts of each table, finest first. */
async function sums(typeId: number): Promise<number[]> {
  const found: number[] = [];
  for (const table of COUNTS) {
    const [row] = await sql<{ sum: number }[]>`
      SELECT coalesce(sum(count), 0)::float8 AS sum FROM ${sql(table)} WHERE type_id = ${typeId}`;
    found.push(row?.sum ?? Number.NaN);
  }
  return found;
}

test('partitions are made for every day that the time touches, once; a fold moves each delta once, into its type and into all types, at every level', async () => {
  const made = ['events_20260226', 'events_20260227', 'events_20260228', 'events_20260301'];
  await ensurePartitions(sql, START + DAY_MS - 1, START + 3 * DAY_MS);
  expect(await partitions()).toEqual(made);
  await Promise.all([ensurePartitions(sql, START, NOON), ensurePartitions(sql, START, NOON)]);
  expect(await partitions()).toEqual(made);
  for (const time of [NOON, NOON, NOON + 60_000, NOON + DAY_MS]) await insertAt(time);
  expect(await foldCounts(sql)).toBe(4);
  await insertAt(NOON);
  expect(await foldCounts(sql)).toBe(1);
  expect(await foldCounts(sql)).toBe(0);
  expect(await sums(7)).toEqual([5, 5, 5, 5]);
  expect(await sums(0)).toEqual([5, 5, 5, 5]);
  const days = await sql`SELECT bucket, count FROM day_counts WHERE type_id = 0 ORDER BY 1`;
  expect([...days]).toEqual([
    { bucket: new Date(START), count: '4' },
    { bucket: new Date(START + DAY_MS), count: '1' },
  ]);
});

/** Stores an event in each of so many minutes from noon on. */
async function insertMinutes(count: number): Promise<void> {
  const rows = sql`
    SELECT gen_random_uuid(), 1, 7, at, '{}'::json
      FROM generate_series(${NOON}::timestamptz, ${NOON + (count - 1) * 60_000}::timestamptz, interval '1 minute') at`;
  await insertSelected(sql, 'postgres', rows);
}

async function readTotal(into: Sql = sql): Promise<number> {
  const scope = { appId: 1, typeIds: null, from: NOON, until: NOON + DAY_MS / 4 };
  const page = await readEventPage(into, { scope, offset: 0, limit: 10, order: 'asc', maxBytes: 1e6 });
  return page.total;
}

describe.each([
  ['a snapshot stays in use', false],
  ['a transaction that has written stays open', true],
])('while %s', (_, hasWritten) => {
  let holder: HeldSnapshot;
  let reader: Sql;

  beforeEach(async () => {
    await ensurePartitions(sql, START, START);
    holder = await heldSnapshot(database.address, { hasWritten });
    reader = connect(database.sql.pool.database, { connections: 1, name: 'test reader' });
    await passTransactions(sql, 1_100);
  });
  afterEach(async () => {
    await holder.release();
    await reader.end();
  });

  test('reads and folds do not go through the dead rows of what is folded', async () => {
    const deltas = ['count_deltas'];
    const costs: { read: number; fold: number }[] = [];
    for (let round = 1; round <= 20; round += 1) {
      const isMeasured = round === 6 || round > 17;
      if (isMeasured) await passTransactions(sql, 1_100);
      await insertMinutes(300);
      await foldCounts(sql);
      expect(await readTotal()).toBe(300 * round);
      if (isMeasured) {
        // The plans of the reader are made anew, with statistics of a table in which nothing is folded.
        await sql`ANALYZE count_deltas`;
        const read = await blocksOf(reader, deltas, readTotal);
        costs.push({ read, fold: await blocksOf(reader, deltas, foldCounts) });
      }
    }
    // 3,600 dead rows are 27 pages more for every scan.
    const [first, ...last] = costs;
    expect(Math.min(...last.map(({ read }) => read))).toBeLessThanOrEqual((first?.read ?? 0) + 10);
    expect(Math.min(...last.map(({ fold }) => fold))).toBeLessThanOrEqual((first?.fold ?? 0) + 10);
    expect((await holder.run((tx) => tx`SELECT FROM events`)).length).toBe(0);
  });

  test('what the open transaction stores after folds is counted at once, and folded', async () => {
    await insertMinutes(300);
    await foldCounts(sql);
    await passTransactions(sql, 1_100);
    await insertMinutes(300);
    await foldCounts(sql);
    await holder.run((tx) => insertAt(NOON, tx));
    expect(await readTotal()).toBe(600);
    await insertMinutes(30);
    await foldCounts(sql);
    await holder.release();
    expect(await readTotal()).toBe(631);
    expect(await foldCounts(sql)).toBe(1);
    expect(await readTotal()).toBe(631);
    expect(await sums(7)).toEqual([631, 631, 631, 631]);
  });

  test.skipIf(hasWritten)('reads do not go through a version of each count for each second', async () => {
    let now = NOON;
    const tasks = postgresMaintenance({ sql, slow: sql }, SETTINGS, () => now);
    /** An event of each of 300 types, in the same minute. */
    const insertTypes = (): Promise<number> =>
      insertSelected(
        sql,
        'postgres',
        sql`SELECT gen_random_uuid(), 1, type, ${NOON}::timestamptz, '{}'::json FROM generate_series(1, 300) AS type`,
      );
    const costs: number[] = [];
    for (let second = 1; second <= 26; second += 1) {
      const isMeasured = second === 12 || second > 23;
      if (isMeasured) await passTransactions(sql, 1_100);
      await insertTypes();
      await tasks.everySecond(60);
      now += 1_000;
      expect(await readTotal()).toBe(300 * second);
      if (isMeasured) costs.push(await blocksOf(reader, [...COUNTS, 'count_deltas'], readTotal));
    }
    // Each second's versions of 300 counts are three pages more in each table.
    const [first, ...last] = costs;
    expect(Math.min(...last)).toBeLessThanOrEqual((first ?? 0) + 10);
    const [pending] = await sql<{ deltas: number }[]>`SELECT count(*)::int AS deltas FROM count_deltas`;
    expect(pending?.deltas).toBeLessThanOrEqual(3 * 300);
    // Once a minute all the same.
    now += 60_000;
    await tasks.everySecond(60);
    expect(await sql`SELECT FROM count_deltas`).toHaveLength(0);
    expect(await readTotal()).toBe(300 * 26);
    await insertTypes();
    await tasks.everySecond(60);
    expect(await sql`SELECT FROM count_deltas`).toHaveLength(300);
    // And every second as soon as the snapshot is gone.
    await tasks.everySecond(0);
    expect(await sql`SELECT FROM count_deltas`).toHaveLength(0);
  });

  test.skipIf(hasWritten)('dead rows are not vacuumed in vain, and are when it is over', async () => {
    const tasks = postgresMaintenance({ sql, slow: sql }, SETTINGS, () => NOON);
    await sql`CREATE EXTENSION pageinspect`;
    const dead = async (): Promise<number> => {
      const [row] = await sql<{ count: number }[]>`
        SELECT count(*)::int AS count FROM generate_series(0, pg_relation_size('count_deltas') / 8192 - 1) AS page
         CROSS JOIN LATERAL heap_page_items(get_raw_page('count_deltas', page::int)) WHERE t_ctid IS NOT NULL`;
      return row?.count ?? Number.NaN;
    };
    const vacuums = async (): Promise<number> => {
      await sql`SELECT pg_stat_clear_snapshot()`;
      const [row] = await sql<{ count: number }[]>`
        SELECT vacuum_count::int AS count FROM pg_stat_user_tables WHERE relname = 'count_deltas'`;
      return row?.count ?? Number.NaN;
    };
    for (let round = 0; round < 10; round += 1) {
      await insertMinutes(300);
      await tasks.everySecond();
    }
    expect(await vacuums()).toBe(0);
    expect(await dead()).toBeGreaterThanOrEqual(3_000);
    await holder.release();
    await tasks.everySecond();
    await until(async () => (await vacuums()) === 1, 'the vacuum is counted');
    expect(await dead()).toBe(0);
  });
});

test('a VACUUM that waits for a lock keeps the connection of folds free', async () => {
  const alone = connect(database.address, { connections: 1, name: 'test maintenance' });
  const dead = new DeadRows(alone, sql, ['count_deltas'], 1);
  await sql.begin(async (tx) => {
    await tx`LOCK TABLE count_deltas IN SHARE UPDATE EXCLUSIVE MODE`;
    dead.deleted(1);
    await until(async () => {
      await dead.vacuumIfDue();
      const waiting =
        await sql`SELECT FROM pg_locks WHERE relation = 'count_deltas'::regclass AND NOT granted`;
      return waiting.length > 0;
    }, 'the VACUUM waits for the lock');
    expect(await foldCounts(alone)).toBe(0);
  });
  await dead.idle();
  await alone.end();
});

test('what is committed after a fold that it was written before is counted at once', async () => {
  await ensurePartitions(sql, START, START);
  await sql.begin(async (late) => {
    await insertAt(NOON, late);
    await insertMinutes(300);
    await foldCounts(sql);
    expect(await readTotal()).toBe(300);
  });
  expect(await readTotal()).toBe(301);
  await foldCounts(sql);
  expect(await readTotal()).toBe(301);
  // Also in a copy on a server that has given fewer transaction ids: all deltas are read.
  await sql`UPDATE folds SET pending_from = '900000000000'`;
  await insertMinutes(10);
  expect(await readTotal()).toBe(311);
  expect(await foldCounts(sql)).toBe(10);
  expect(await readTotal()).toBe(311);
  await insertMinutes(30);
  await foldCounts(sql);
  const [fold] = await sql<{ isOld: boolean }[]>`
    SELECT pending_from <= pg_snapshot_xmax(pg_current_snapshot()) AS "isOld" FROM folds`;
  expect(fold?.isOld).toBe(true);
});

test('deltas of thousands of types are added up for a minute, and every total is exact meanwhile', async () => {
  await ensurePartitions(sql, START, START);
  let now = NOON;
  const tasks = postgresMaintenance({ sql, slow: sql }, SETTINGS, () => now);
  let stored = 0;
  /** An event of each type in turn, in the same minute; then a round of maintenance. */
  const round = async (events: number, ms: number): Promise<number> => {
    await insertSelected(
      sql,
      'postgres',
      sql`SELECT gen_random_uuid(), 1, 1 + n % 2500, ${NOON}::timestamptz, '{}'::json FROM generate_series(1, ${events}::integer) AS n`,
    );
    stored += events;
    now += ms;
    await tasks.everySecond();
    expect(await readTotal()).toBe(stored);
    return (await sql`SELECT FROM count_deltas`).length;
  };
  expect(await round(2_500, 1_000)).toBe(0);
  // Fewer than are worth adding up wait.
  expect(await round(2_500, 1_000)).toBe(2_500);
  expect(await round(2_500, 10_000)).toBe(2_500);
  expect(await round(2_500, 10_000)).toBe(2_500);
  expect(await sums(1)).toEqual([1, 1, 1, 1]);
  expect(await round(2_500, 60_000)).toBe(0);
  expect(await sums(1)).toEqual([5, 5, 5, 5]);
  expect(await sums(0)).toEqual([12_500, 12_500, 12_500, 12_500]);
});

test('folds that run at the same time as each other and as writers lose and double nothing', async () => {
  await ensurePartitions(sql, START, START);
  const writing = Array.from({ length: 80 }, (_, i) => insertAt(START + i * 1_000_000));
  const folding = Array.from({ length: 20 }, () => foldCounts(sql));
  await Promise.all([...writing, ...folding]);
  await foldCounts(sql);
  expect(await sums(7)).toEqual([80, 80, 80, 80]);
});

test('a fold that finds the lock held again and again comes in between holders that never pause', async () => {
  await ensurePartitions(sql, START, START);
  await insertAt(NOON);
  const holders = await holdersInTurns(database.address);
  try {
    const { fold } = countDeltas(sql);
    const folded: (number | null)[] = [];
    while ((folded.at(-1) ?? null) === null && folded.length < 20)
      folded.push((await fold())?.deltas ?? null);
    expect(folded.slice(0, 5)).toEqual([null, null, null, null, null]);
    expect(folded.at(-1)).toBe(1);
    await insertAt(NOON);
    expect(await fold()).toBe(null);
  } finally {
    await holders.stop();
  }
  expect(await sums(7)).toEqual([1, 1, 1, 1]);
});

test('a command that waits for the lock of the counts in vain says so, and leaves the deltas to the service', async () => {
  await ensurePartitions(sql, START, START);
  await insertAt(NOON);
  await sql.begin(async (holder) => {
    await holder`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await expect(foldCounts(sql, 50)).rejects.toThrow(/held the lock of the counts for 0.05 s/);
  });
  expect(await foldCounts(sql)).toBe(1);
});

test('an import that holds the boundary delays nothing, and the boundary moves once it has committed', async () => {
  const retention = { days: 1, now: NOON + 2 * DAY_MS };
  const boundary = async (): Promise<unknown> =>
    (await sql<{ boundary: Date }[]>`SELECT readable_from AS boundary FROM retention`)[0]?.boundary;
  const before = await boundary();
  await sql.begin(async (tx) => {
    await tx`SELECT FROM retention FOR SHARE`;
    // Nothing is due: the lock is not asked for.
    await applyRetention(sql, { days: 0, now: NOON });
    await applyRetention(sql, retention);
    expect(await boundary()).toEqual(before);
  });
  await applyRetention(sql, retention);
  expect(await boundary()).toEqual(new Date(START + DAY_MS));
});

test('counts by the minute before the boundary go an interval at a time, and those of a boundary that stays are not looked for', async () => {
  await ensurePartitions(sql, START, START + 2 * DAY_MS);
  for (const hour of [0, 7, 13, 23, 30]) await insertAt(START + hour * 3_600_000);
  await foldCounts(sql);
  const expired = new ExpiredMinutes();
  const removed: number[] = [];
  const remove = async (from: Date, until: Date): Promise<boolean> => {
    removed.push((until.getTime() - from.getTime()) / 3_600_000);
    return removed.length !== 2;
  };
  const end = new Date(START + DAY_MS).toISOString();
  await expired.remove(sql, end, remove);
  // The lock of counts was not free for the second one.
  expect(removed).toEqual([6, 6]);
  await expired.remove(sql, end, remove);
  expect(removed).toEqual([6, 6, 6, 6, 6]);
  await expired.remove(sql, end, remove);
  expect(removed).toHaveLength(5);
});

test('many counts by the minute before the boundary go in slices, each in a transaction of its own', async () => {
  await ensurePartitions(sql, START, START + 2 * DAY_MS);
  await insertAt(START);
  await foldCounts(sql);
  await sql`
    INSERT INTO minute_counts (app_id, type_id, bucket, count)
    SELECT 2, n % 100 + 1, ${new Date(START)}::timestamptz + n / 100 * interval '1 minute', 1
      FROM generate_series(0, 29999) AS n`;
  const retention = { days: 1, now: START + 2 * DAY_MS };
  const expired = new ExpiredMinutes();
  await applyRetention(sql, retention, expired);
  const removed = await removedByTransaction(sql, ['minute_counts'], 2, () =>
    applyRetention(sql, retention, expired),
  );
  expect(removed.toSorted((a, b) => a - b)).toEqual([10_100, 19_900]);
  expect(await sums(1)).toEqual([0, 0, 0, 0]);
});

test('a partition that is in use, or that an older snapshot may still read, stays until that has ended, and writers go on', async () => {
  await ensurePartitions(sql, START, START + 2 * DAY_MS);
  await insertAt(NOON);
  const retention = { days: 1, now: NOON + 2 * DAY_MS };
  await sql.begin('isolation level repeatable read', async (tx) => {
    await tx`SELECT readable_from FROM retention`;
    await applyRetention(sql, retention);
    expect(await applyRetention(sql, retention)).toEqual([]);
    expect([...(await tx`SELECT count(*)::integer FROM events`)]).toEqual([{ count: 1 }]);
  });
  expect(await applyRetention(sql, retention)).toEqual(['events_20260226']);
  const later = { days: 1, now: NOON + 3 * DAY_MS };
  await applyRetention(sql, later);
  await sql.begin(async (tx) => {
    // Holds the lock that every reader and writer of events holds; its snapshot ends with the statement.
    await tx`LOCK TABLE events IN ROW EXCLUSIVE MODE`;
    const [result] = await Promise.all([applyRetention(sql, later), insertAt(NOON + 2 * DAY_MS)]);
    expect(result).toEqual([]);
  });
  expect(await applyRetention(sql, later)).toEqual(['events_20260227']);
});

/** Relations of the partitions: tables, their indexes, and what belongs to long values. */
async function relations(): Promise<number> {
  const [row] = await sql<{ relations: number }[]>`
    SELECT count(*)::int AS relations
      FROM (SELECT partition, reltoastrelid AS toast FROM events_partitions JOIN pg_class ON pg_class.oid = partition) AS parts
      JOIN pg_class ON pg_class.oid IN (partition, toast)
        OR pg_class.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (partition, toast))`;
  return row?.relations ?? Number.NaN;
}

const TODAY = Date.UTC(2026, 10, 22);

async function createPartitions(...days: readonly number[]): Promise<void> {
  for (const day of days)
    await sql`SELECT make_room_for_events(${new Date(day)}::date, ${new Date(TODAY)}::date)`;
}

test('events of ten years make fewer than 300 relations, and each day has its place', async () => {
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  await ensurePartitions(sql, today - DAY_MS, today + 7 * DAY_MS);
  // Each day of the last two months, then one of every four weeks: no month is without one.
  const days = Array.from({ length: 3_653 }, (_, n) => today - n * DAY_MS).filter(
    (_, n) => n < 60 || n % 28 === 0,
  );
  // A hundred days at once, as the writer does, from all over the years.
  const dates = days.map((day) => new Date(day).toISOString().slice(0, 10));
  for (let from = 0; from < 2; from += 1)
    await sql.unsafe(writes.createPartitions, [dates.filter((_, n) => n % 2 === from)]);
  const rows = sql`
    SELECT gen_random_uuid(), 1, 7, day::timestamptz + interval '23 hours', '{}'::json
      FROM unnest(${days.map((day) => new Date(day).toISOString())}::text[]) AS given (day)`;
  expect(await insertSelected(sql, 'postgres', rows)).toBe(days.length);
  expect(await relations()).toBeLessThan(300);
});

test('partitions are by day near now, then by month, then by year, and leave those that exist as they are', async () => {
  await ensurePartitions(sql, TODAY - 20 * DAY_MS, TODAY - 20 * DAY_MS);
  await createPartitions(TODAY - 14 * DAY_MS, TODAY - 15 * DAY_MS, TODAY - 21 * DAY_MS, TODAY - 22 * DAY_MS);
  await createPartitions(
    Date.UTC(2026, 1, 28),
    Date.UTC(2025, 0, 1),
    Date.UTC(2024, 11, 31),
    Date.UTC(1970, 0, 1),
  );
  expect(await partitions()).toEqual([
    'events_19700101_19710101',
    'events_20240101_20250101',
    'events_20250101_20250201',
    'events_20260201_20260301',
    'events_20261001_20261101',
    'events_20261101',
    'events_20261102',
    'events_20261103_20261108',
    'events_20261108',
  ]);
});

test('a day whose partition was detached gets no other one, nor do its neighbors take it', async () => {
  await createPartitions(Date.UTC(2024, 5, 5), Date.UTC(2023, 5, 5));
  await sql`ALTER TABLE events DETACH PARTITION events_20240101_20250101`;
  await expect(createPartitions(Date.UTC(2024, 7, 7))).rejects.toThrow(
    'events_20240101_20250101 holds the events',
  );
  await createPartitions(Date.UTC(2025, 0, 1));
  expect(await partitions()).toEqual(['events_20230101_20240101', 'events_20250101_20250201']);
  await sql`ALTER TABLE events ATTACH PARTITION events_20240101_20250101 FOR VALUES FROM ('2024-01-01Z') TO ('2025-01-01Z')`;
});

test('retention removes rows from a partition that its boundary lies in, and drops it when all of it is over', async () => {
  await createPartitions(Date.UTC(2025, 5, 5));
  const inJune = (day: number): number => Date.UTC(2025, 5, day, 12);
  for (const day of [1, 9, 10, 30]) await insertAt(inJune(day));
  const retention = { days: 10, now: Date.UTC(2025, 5, 20) };
  expect(await clipPartitions(sql)).toBe(0);
  await applyRetention(sql, retention);
  expect(await clipPartitions(sql)).toBe(2);
  expect([...(await sql`SELECT created_at FROM events ORDER BY 1`)]).toEqual(
    [10, 30].map((day) => ({ created_at: new Date(inJune(day)) })),
  );
  expect(await applyRetention(sql, { days: 10, now: Date.UTC(2025, 6, 11) })).toEqual([]);
  const dropped = await applyRetention(sql, { days: 10, now: Date.UTC(2025, 6, 11) });
  expect(dropped).toEqual(['events_20250601_20250701']);
});

test('expired rows of an app go slice by slice; one who has stopped in between leaves the rest to another', async () => {
  await ensurePartitions(sql, START, START + DAY_MS);
  for (const app of [1, 2]) {
    const rows = sql`
      SELECT gen_random_uuid(), ${app}::integer, 7, ${START}::timestamptz + n * interval '4 s', '{}'::json
        FROM generate_series(1, 21000) AS n`;
    await insertSelected(sql, 'postgres', rows);
  }
  await sql`
    INSERT INTO app_boundaries (app_id, type_id, readable_from, moved_at) VALUES (1, 0, ${new Date(START + DAY_MS)}, now())`;
  const left = async (app: number): Promise<number> =>
    (await sql`SELECT FROM events WHERE app_id = ${app}`).length;
  // Declared fields are counted first, of what is noted and of what is still to be folded.
  await sql`INSERT INTO apps (id, public_id, name) OVERRIDING SYSTEM VALUE VALUES (1, 'expired', 'expired')`;
  await sql`
    INSERT INTO declared_fields (app_id, path, kind, generation, complete_from) VALUES (1, '["n"]', 'value', 1, '-infinity')`;
  const waiting = new ExpiredRows(sql, removeExpired, () => 0);
  await waiting.look();
  expect(waiting.hasSome).toBe(false);
  await foldCounts(sql);
  await waiting.look();
  expect(waiting.hasSome).toBe(false);
  await sql`DELETE FROM uncounted_minutes`;
  const times = [0, 10];
  const stopped = new ExpiredRows(sql, removeExpired, () => times.shift() ?? 10);
  await stopped.look();
  await stopped.removeSome(10);
  const half = await left(1);
  expect(half).toBeGreaterThan(0);
  expect(half).toBeLessThan(21_000);
  const next = new ExpiredRows(sql, removeExpired, () => 0);
  await next.look();
  await next.removeSome(1);
  expect([await left(1), await left(2)]).toEqual([0, 21_000]);
  expect(next.hasSome).toBe(false);
  const [boundary] = await sql<{ done: boolean }[]>`
    SELECT removed_until = readable_from AS done FROM app_boundaries`;
  expect(boundary?.done).toBe(true);
});
