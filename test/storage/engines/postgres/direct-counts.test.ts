/** Counts that an import adds itself: beside more buckets than are looked for, and beside a fold. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MINUTE_MS } from '../../../../src/storage/counts/levels.ts';
import { CopyConnection } from '../../../../src/storage/database/copy-connection.ts';
import { countDirectly } from '../../../../src/storage/engines/postgres/direct-counts.ts';
import type { EventRow } from '../../../../src/storage/write/accepted-event.ts';
import { inTransaction } from '../../../../src/storage/write/inserts.ts';
import { type TestDatabase, testDatabase } from '../../../support/database.ts';
import { patient } from '../../../support/patience.ts';
import { reserved } from '../../../support/reserved.ts';

/** The start of a month. */
const START = Date.UTC(2026, 2, 1);

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
function event(appId: number, minute: number): EventRow {
  return { id: '', appId, typeId: 2, createdAt: START + minute * MINUTE_MS, payload: '{}' };
}

async function add(appId: number, events: readonly EventRow[]): Promise<void> {
  await inTransaction(connection, () => countDirectly(appId, events)(connection));
}

/** Minutes that have counts, and the sum of these. */
async function minutesOf(appId: number, typeId: number): Promise<[number, number]> {
  const [row] = await database.sql<{ buckets: number; sum: number }[]>`
    SELECT count(*)::integer AS buckets, coalesce(sum(count), 0)::integer AS sum
      FROM minute_counts WHERE app_id = ${appId} AND type_id = ${typeId}`;
  return [row?.buckets ?? 0, row?.sum ?? 0];
}

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
    for (const type of [0, 2]) expect(await minutesOf(app, type)).toEqual([known + 1, 2 * known + 1]);
  },
);

test('a fold and an import wait for one another, so that no bucket is new to both', async () => {
  const app = 1;
  const held = await reserved(database.sql);
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
  expect(await minutesOf(app, 2)).toEqual([1, 6]);
});
