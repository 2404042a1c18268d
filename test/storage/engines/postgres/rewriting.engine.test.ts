/** The disk of partitions of which most rows are gone. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../../src/apps/apps.ts';
import { setRetention } from '../../../../src/apps/retention.ts';
import { createEventIds } from '../../../../src/ingest/event-id.ts';
import { connect, type Sql } from '../../../../src/storage/database/connect.ts';
import { createPartitions } from '../../../../src/storage/engines/postgres/maintenance.ts';
import { Rewriting } from '../../../../src/storage/engines/postgres/rewriting.ts';
import type { MaintenanceTasks } from '../../../../src/storage/maintenance/loop.ts';
import { openStorage } from '../../../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../../support/database.ts';
import { testSecret, until } from '../../../support/service.ts';
import { storeRows } from '../../../support/stored-events.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };
/** Days of the last two weeks have a partition each. */
const DAY = (Math.floor(Date.now() / DAY_MS) - 6) * DAY_MS;
const PARTITION = `events_${new Date(DAY).toISOString().slice(0, 10).replaceAll('-', '')}`;
const EVENTS = 12_000;

describe.each(availableEngines())('on %s', (engine) => {
  // Chunks are not partitions of PostgreSQL's own.
  describe.skipIf(engine === 'timescale')('a past partition', () => {
    let database: TestDatabase;
    let sql: Sql;
    let maintenance: Sql;
    let tasks: MaintenanceTasks;
    let appIds: string[];
    let now = DAY + 2 * DAY_MS;

    beforeAll(async () => {
      database = await testDatabase(engine);
      ({ sql } = database);
      maintenance = connect(database.address, { connections: 1, name: 'test maintenance' });
      const storage = await openStorage(sql);
      tasks = storage.maintenance({ sql: maintenance, slow: sql }, SETTINGS, () => now);
      const names = ['One', 'Two'];
      appIds = [];
      for (const name of names) appIds.push((await createApp(sql, await testSecret(), { name })).appId);
      await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_' || id, id, 'type' FROM apps ORDER BY id`;
      await createPartitions(sql, { from: DAY, until: now + DAY_MS });
      await tasks.prepare();
      const nextId = createEventIds();
      // Of ten events one is of the second app.
      await storeRows(
        sql,
        'postgres',
        Array.from({ length: EVENTS }, (_, n) => {
          const [appId, at] = [n % 10 === 0 ? 2 : 1, DAY + n * 7_000];
          return {
            id: nextId(at),
            appId,
            typeId: appId,
            at,
            payload: JSON.stringify({ n, text: 'x'.repeat(150) }),
          };
        }),
      );
      await storage.settleCounts(maintenance, now);
      await sql.unsafe(`ANALYZE ${PARTITION}`);
    });
    afterAll(async () => {
      await maintenance?.end();
      await database?.drop();
    });

    const bytes = async (): Promise<number> =>
      (
        await sql<
          { bytes: number }[]
        >`SELECT pg_total_relation_size(${PARTITION}::text::regclass)::float8 AS bytes`
      )[0]?.bytes ?? 0;
    const rows = async (): Promise<object[]> => [
      ...(await sql`SELECT id, app_id, created_at, payload::text AS payload, xmin::text AS writer FROM events ORDER BY id`),
    ];
    /** The statistics of the server are told a moment after a transaction. */
    const untilTold = (removed: number): Promise<void> =>
      until(async () => {
        await maintenance`SELECT pg_stat_force_next_flush()`;
        const [told] =
          await sql`SELECT FROM pg_stat_user_tables WHERE relname = ${PARTITION} AND n_tup_del >= ${removed}`;
        return told !== undefined;
      }, 'the server has told what was removed');

    /** Makes room in the partition. */
    const storeAndRemove = async (): Promise<void> => {
      const nextId = createEventIds();
      const payload = JSON.stringify({ text: 'y'.repeat(1_500) });
      const more = Array.from({ length: 2_000 }, (_, n) => ({
        ...{ id: nextId(DAY + n), appId: 2, typeId: 2, at: DAY + n, payload },
      }));
      await storeRows(sql, 'postgres', more);
      await maintenance`DELETE FROM events WHERE payload::text LIKE '%yyy%'`;
    };
    /** A transaction of another test, in another database, keeps the removed rows: they are tried again hours later. */
    const untilSmaller = async (than: number, round: () => Promise<unknown>): Promise<void> =>
      await until(async () => {
        await round();
        now += 6 * HOUR_MS;
        return (await bytes()) < than;
      }, 'the partition is rewritten');

    test('a full partition, and one of today, stay as they are', async () => {
      const before = await bytes();
      expect(await new Rewriting(maintenance, () => now).rewriteSome()).toEqual([]);
      expect(await bytes()).toBe(before);
    });

    test('a day after most rows are removed, the disk is at most 1.3 times what is left; rows and their writers stay', async () => {
      const full = await bytes();
      await setRetention(sql, SETTINGS, { appId: appIds[0] ?? '', type: null, days: 1, now: now + DAY_MS });
      now += DAY_MS;
      await tasks.everyTenMinutes();
      await untilTold(EVENTS * 0.9);
      const left = await rows();
      expect(left).toHaveLength(EVENTS / 10);
      now += DAY_MS;
      await untilSmaller(full / 5, () => tasks.everyTenMinutes());
      expect(await rows()).toEqual(left);
      await sql.unsafe(`CREATE TABLE fresh (LIKE ${PARTITION} INCLUDING ALL)`);
      await sql.unsafe(`INSERT INTO fresh SELECT * FROM ${PARTITION}`);
      const [wanted] = await sql<
        { bytes: number }[]
      >`SELECT pg_total_relation_size('fresh')::float8 AS bytes`;
      await sql`DROP TABLE fresh`;
      expect(await bytes()).toBeLessThan(1.3 * (wanted?.bytes ?? 0));
      expect(await new Rewriting(maintenance, () => now).rewriteSome()).toEqual([]);
      // What was set for it holds no longer.
      expect(await maintenance`SHOW statement_timeout`).toEqual(await sql`SHOW statement_timeout`);
    });

    test('one that is being read is left for later, and nobody waits for long', async () => {
      await setRetention(sql, SETTINGS, { appId: appIds[1] ?? '', type: null, days: 'forever', now });
      await sql.unsafe(
        `DELETE FROM ${PARTITION} WHERE id IN (SELECT id FROM ${PARTITION} ORDER BY id OFFSET 100)`,
      );
      await storeAndRemove();
      await untilTold(EVENTS * 0.9 + 2_000);
      const full = await bytes();
      const rewriting = new Rewriting(maintenance, () => now);
      await sql.begin(async (tx) => {
        await tx.unsafe(`LOCK TABLE ${PARTITION} IN ACCESS SHARE MODE`);
        expect(await rewriting.rewriteSome()).toEqual([]);
      });
      await untilSmaller(full / 2, () => rewriting.rewriteSome());
    });

    test('one whose old rows a transaction of another database kept is tried again hours later', async () => {
      const other = await testDatabase(engine);
      const holder = connect(other.address, { connections: 1, name: 'test holder' });
      const rewriting = new Rewriting(maintenance, () => now);
      try {
        let full = 0;
        await holder.begin(async (tx) => {
          await tx`SELECT pg_current_xact_id()`;
          await storeAndRemove();
          await untilTold(EVENTS * 0.9 + 4_000);
          full = await bytes();
          expect(await rewriting.rewriteSome()).toEqual([]);
          expect(await bytes()).toBeGreaterThan(full / 2);
        });
        expect(await rewriting.rewriteSome()).toEqual([]);
        await untilSmaller(full / 2, () => rewriting.rewriteSome());
      } finally {
        await holder.end();
        await other.drop();
      }
    });
  });
});
