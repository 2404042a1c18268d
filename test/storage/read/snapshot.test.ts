import { expect, onTestFinished, test } from 'vitest';
import { Ending } from '../../../src/base/slots.ts';
import { connect, poolFor } from '../../../src/storage/database/connect.ts';
import { decodeFeedCursor } from '../../../src/storage/read/arrivals.ts';
import { createReader } from '../../../src/storage/read/event-reader.ts';
import { inOneSnapshot } from '../../../src/storage/read/snapshot.ts';
import { testDatabase } from '../../support/database.ts';

test('charts of a snapshot that have the same buckets read their counts, and what the snapshot says, once', async () => {
  const database = await testDatabase();
  onTestFinished(() => database.drop());
  const request = { appId: 1, from: Date.UTC(2025, 0, 1), until: Date.UTC(2026, 0, 1), buckets: 60 } as const;
  /** How often tables were looked into by so many charts, on a connection of their own: it tells what it did before, too. */
  const scansOf = async (charts: number): Promise<unknown> => {
    const sql = connect(database.sql.pool.database, { connections: 1, name: 'test reader' });
    onTestFinished(() => sql.end());
    return await inOneSnapshot(
      sql,
      async (snapshot) => {
        const reader = createReader(snapshot);
        const series = await Promise.all(
          Array.from({ length: charts }, () =>
            reader.series({ ...request, typeIds: null, timezone: 'Europe/Berlin' }),
          ),
        );
        expect(series).toEqual(series.map(() => series[0]));
        const rows = await snapshot`
          SELECT relname AS table, seq_scan + idx_scan AS scans FROM pg_stat_xact_user_tables
           WHERE relname IN ('retention', 'day_counts', 'hour_counts', 'profiled_days') ORDER BY 1`;
        return [...rows];
      },
      1,
    );
  };
  const once = await scansOf(1);
  expect(once).toMatchObject([{ table: 'day_counts' }, { table: 'hour_counts' }, {}, { table: 'retention' }]);
  expect(await scansOf(12)).toEqual(once);
});

test('cursors of a live feed that are asked for at once are one, and another where nobody waits for it any more', async () => {
  const database = await testDatabase();
  const sql = connect(database.sql.pool.database, { connections: 2, name: 'test reader' });
  onTestFinished(async () => {
    await sql.end();
    await database.drop();
  });
  const cursor = (at: number, pool = sql): Promise<string> => createReader(pool).feedCursor(1, at);
  const [first, second] = await Promise.all([cursor(1_000), cursor(2_000)]);
  expect(second).toBe(first);
  expect(await cursor(3_000)).not.toBe(first);
  const gone = new Ending();
  gone.settle();
  const [lost, found] = await Promise.allSettled([cursor(4_000, poolFor(gone, sql)), cursor(5_000)]);
  expect(lost.status).toBe('rejected');
  expect(found.status === 'fulfilled' && decodeFeedCursor(found.value)).toMatchObject({ at: 5_000 });
});
