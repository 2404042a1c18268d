/** Counts that an import adds itself: beside buckets that are known, new ones, and more than are looked for. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MINUTE_MS } from '../../../../src/storage/counts/levels.ts';
import { CopyConnection, type WriteConnection } from '../../../../src/storage/database/copy-connection.ts';
import { countDirectly } from '../../../../src/storage/engines/postgres/direct-counts.ts';
import type { EventRow } from '../../../../src/storage/write/accepted-event.ts';
import { inTransaction } from '../../../../src/storage/write/inserts.ts';
import { type TestDatabase, testDatabase } from '../../../support/database.ts';
import { patient } from '../../../support/patience.ts';

/** The start of a month. */
const START = Date.UTC(2026, 2, 1);
const TABLES = ['minute_counts', 'quarter_hour_counts', 'hour_counts', 'day_counts', 'month_counts'] as const;

let database: TestDatabase;
let connection: CopyConnection;
beforeAll(async () => {
  database = await testDatabase();
  connection = new CopyConnection(database.address, 'test');
});
afterAll(async () => {
  await connection.close();
  await database.drop();
});

/** An event of an app, minutes after the start. */
function event(appId: number, minute: number, typeId = 2): EventRow {
  return { id: '', appId, typeId, createdAt: START + minute * MINUTE_MS, payload: '{}' };
}

async function add(appId: number, events: readonly EventRow[]): Promise<void> {
  await inTransaction(connection, () => countDirectly(appId, events)(connection));
}

/** Buckets of each table, finest first, and the sum of their counts. */
async function countsOf(appId: number, typeId: number): Promise<[number, number][]> {
  const found: [number, number][] = [];
  for (const table of TABLES) {
    const [row] = await database.sql<{ buckets: number; sum: number }[]>`
      SELECT count(*)::integer AS buckets, coalesce(sum(count), 0)::integer AS sum
        FROM ${database.sql(table)} WHERE app_id = ${appId} AND type_id = ${typeId}`;
    found.push([row?.buckets ?? 0, row?.sum ?? 0]);
  }
  return found;
}

test('the same minutes again are added to, from the first one of an hour that has begun to the last', async () => {
  const app = 1;
  const events = [event(app, 47.5), event(app, 50, 3), event(app, 61), event(app, 1_500)];
  for (let times = 1; times <= 3; times += 1) {
    await add(app, events);
    expect(await countsOf(app, 0)).toEqual([4, 3, 3, 2, 1].map((buckets) => [buckets, 4 * times]));
    expect(await countsOf(app, 2)).toEqual([3, 3, 3, 2, 1].map((buckets) => [buckets, 3 * times]));
    expect(await countsOf(app, 3)).toEqual([1, 1, 1, 1, 1].map((buckets) => [buckets, times]));
  }
});

test('new buckets are copied, known ones are added to, and the profiles of all days of the events are discarded', async () => {
  const app = 2;
  const events = [event(app, 5), event(app, 1_500), event(app, 3_000)];
  const days = events.map(
    ({ createdAt }) => `${new Date(createdAt).toISOString().slice(0, 10)}T00:00:00.000Z`,
  );
  for (const added of [
    [0, 0, 0, 6, 2],
    [6, 6, 6, 6, 2],
  ]) {
    const sent: (readonly unknown[])[] = [];
    const recording: WriteConnection = {
      hasLeft: false,
      copy: (group) => connection.copy(group),
      query: (text, values, ...more) => {
        sent.push(values);
        return connection.query(text, values, ...more);
      },
      close: async () => undefined,
    };
    await inTransaction(connection, () => countDirectly(app, events)(recording));
    const [appId, discarded, ...columns] = sent.at(-1) ?? [];
    expect({ appId, discarded: (discarded as string[]).map((day) => new Date(day).toISOString()) }).toEqual({
      appId: app,
      discarded: days,
    });
    // Three columns of each table: of one type and of all types.
    expect(TABLES.map((_, index) => (columns[3 * index] as unknown[]).length)).toEqual(added);
  }
});

test.each([4_999, 5_000, 5_001])(
  'beside %i known minutes, each of which has one more event, and a new one',
  async (known) => {
    const app = known;
    await database.sql`
      INSERT INTO minute_counts (app_id, type_id, bucket, count)
      SELECT ${app}, type, ${new Date(START)}::timestamptz + n * interval '1 minute', 1
        FROM generate_series(0, ${known - 1}) AS n CROSS JOIN unnest(ARRAY[0, 2]) AS type`;
    await add(
      app,
      Array.from({ length: known + 1 }, (_, minute) => event(app, minute)),
    );
    for (const type of [0, 2]) expect((await countsOf(app, type))[0]).toEqual([known + 1, 2 * known + 1]);
  },
);

test('a fold and an import wait for one another, so that no bucket is new to both', async () => {
  const app = 3;
  const held = await database.sql.reserve();
  try {
    await held`BEGIN`;
    await held`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await held`INSERT INTO minute_counts (app_id, type_id, bucket, count)
               SELECT ${app}, type, ${new Date(START)}::timestamptz, 5 FROM unnest(ARRAY[0, 2]) AS type`;
    const adding = add(app, [event(app, 0)]);
    // It sees what the holder has written because it looks after it has the lock.
    await expect
      .poll(
        async () =>
          (
            await database.sql`
          SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
           WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`
          ).length,
        { timeout: patient(15_000) },
      )
      .toBe(1);
    await held`COMMIT`;
    await adding;
  } finally {
    held.release();
  }
  expect((await countsOf(app, 2))[0]).toEqual([1, 6]);
});
