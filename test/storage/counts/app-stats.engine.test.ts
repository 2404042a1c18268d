import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readAppSpan, readAppStats, readTypeActivity } from '../../../src/storage/counts/app-stats.ts';
import { readSeries } from '../../../src/storage/counts/series.ts';
import { readTypeStats } from '../../../src/storage/counts/type-stats.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** In Kathmandu it is 10:11:12 then, and the day began at 18:15 UTC. */
const NOW = Date.UTC(2026, 4, 20, 4, 26, 12);
const TODAY = Date.UTC(2026, 4, 19, 18, 15);
const APPS = [1, 2, 3];

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  let database: TestDatabase;
  let sql: Sql;
  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    await prepare(sql, NOW - 80 * DAY_MS, NOW);
    await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 3) n`;
    await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'type' || n, 1 + n % 2, 'type' || n FROM generate_series(1, 4) n`;
  });
  afterAll(() => database.drop());

  const add = async (appId: number, typeId: number, at: number): Promise<void> => {
    await insertSelected(
      sql,
      database.engine,
      sql`VALUES (${randomUUID()}::uuid, ${appId}::integer, ${typeId}::integer, ${at}::timestamptz, '{}'::json)`,
    );
  };

  /** Every figure against the rows themselves. */
  async function expectExact(): Promise<void> {
    const figures = await readAppStats(sql, APPS, { timezone: 'Asia/Kathmandu', now: NOW });
    for (const appId of APPS) {
      const rows = await sql<{ at: number; type: string }[]>`
        SELECT (extract(epoch FROM created_at) * 1000)::float8 AS at, 'type' || type_id AS type
          FROM events WHERE app_id = ${appId} ORDER BY created_at`;
      const firstHour = Math.floor(NOW / HOUR_MS) - 23;
      const sparkline = Array.from(
        { length: 24 },
        (_, i) => rows.filter(({ at }) => Math.floor(at / HOUR_MS) === firstHour + i).length,
      );
      const today = rows.filter(({ at }) => at >= TODAY).length;
      const lastEventAt = rows.length === 0 ? null : new Date(rows.at(-1)?.at ?? 0);
      expect(figures.get(appId)).toEqual({ total: rows.length, today, sparkline, lastEventAt });
      const activity = await readTypeActivity(sql, appId, NOW);
      const together = Array.from({ length: 24 }, (_, hour) =>
        [...activity.values()].reduce((sum, counts) => sum + (counts[hour] ?? 0), 0),
      );
      expect(together).toEqual(sparkline);

      const [first, last] = [rows[0], rows.at(-1)];
      expect(await readAppSpan(sql, appId)).toEqual({
        total: rows.length,
        firstEventAt: first === undefined ? null : new Date(first.at),
        lastEventAt: last === undefined ? null : new Date(last.at),
      });
      const byType = new Map<string, number>();
      for (const { type } of rows) byType.set(type, (byType.get(type) ?? 0) + 1);
      const lastOf = (type: string): number => rows.findLast((row) => row.type === type)?.at ?? 0;
      expect(await readTypeStats(sql, appId)).toEqual(
        new Map([...byType].map(([type, count]) => [type, { count, lastEventAt: new Date(lastOf(type)) }])),
      );

      const request = { appId, typeIds: null, from: null, until: NOW, timezone: 'UTC', buckets: 400 };
      const series = await readSeries(sql, request);
      if (typeof series === 'string') throw new Error(series);
      const from = first === undefined ? NOW - 1 : Math.floor(first.at / HOUR_MS) * HOUR_MS;
      expect(series.starts[0]).toBeLessThanOrEqual(from);
      expect(from).toBeLessThan(series.starts[1] ?? series.end);
      expect(series.all.reduce((sum, count) => sum + count, 0)).toBe(rows.length);
      expect(series.types.map(({ total }) => total)).toEqual([...byType.values()].sort((a, b) => b - a));
    }
  }

  test('figures are exact from the first event on, and before it', async () => {
    await expectExact();
    await add(1, 2, NOW - 1_000);
    await expectExact();
    await add(2, 1, NOW - 25 * HOUR_MS);
    await add(1, 4, NOW - HOUR_MS);
    await expectExact();
    await settle(sql);
    await expectExact();
  });

  test('figures are exact while what came late, into this month and others, waits to be settled', async () => {
    for (const days of [0, 0.1, 0.4, 1, 2, 20, 40, 41, 79])
      for (let n = 0; n < 3; n += 1) await add(1, 2, NOW - days * DAY_MS - n * 7 * 60_000);
    await settle(sql);
    await expectExact();
    for (const days of [0, 0.4, 3, 40, 60, 79.5]) await add(1, 4, NOW - days * DAY_MS);
    await add(2, 3, NOW - 30 * DAY_MS);
    await expectExact();
    await settle(sql);
    await expectExact();
  });

  test('figures do not see what is not committed, and see it from the commit on', async () => {
    await sql.begin(async (late) => {
      const row = late`VALUES (${randomUUID()}::uuid, 1, 2, ${NOW - 5 * HOUR_MS}::timestamptz, '{}'::json)`;
      await insertSelected(late, database.engine, row);
      await settle(sql);
      await expectExact();
    });
    await expectExact();
  });
});
