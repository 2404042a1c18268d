import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { COMMAND_LINE } from '../../../src/accounts/log/audit.ts';
import { createApp, deleteApp } from '../../../src/apps/apps.ts';
import { readAppSpan } from '../../../src/storage/counts/app-stats.ts';
import { profileDay, unprofiledDays } from '../../../src/storage/counts/daily-prefix-sums.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { postgres } from '../../../src/storage/engines/postgres/postgres.ts';
import { timescale } from '../../../src/storage/engines/timescale/timescale.ts';
import { removeDeletedApps } from '../../../src/storage/maintenance/deleted-apps.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { testSecret } from '../../support/service.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const DAY = Date.UTC(2026, 5, 1);

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  const { removal } = engine === 'timescale' ? timescale : postgres;
  let database: TestDatabase;
  let sql: Sql;
  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    await prepare(sql, DAY, DAY + 3 * DAY_MS);
  });
  afterAll(() => database.drop());

  const newApp = async (): Promise<{ appId: number; typeId: number }> => {
    const made = await createApp(sql, await testSecret(), { name: 'Profiled' });
    const [row] = await sql<[{ appId: number; typeId: number }]>`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_' || id, id, 'visit' FROM apps WHERE public_id = ${made.appId}
      RETURNING app_id AS "appId", id AS "typeId"`;
    return row;
  };
  const add = ({ appId, typeId }: { appId: number; typeId: number }, at: number) =>
    insertSelected(
      sql,
      database.engine,
      sql`VALUES (${randomUUID()}::uuid, ${appId}::integer, ${typeId}::integer, ${at}::timestamptz, '{}'::json)`,
    );
  const isReady = async (appId: number): Promise<boolean> =>
    (await sql`SELECT FROM ready_profiles WHERE app_id = ${appId} AND day = ${DAY}`).length > 0;
  const daysOf = async (appId: number, now: number): Promise<number[]> =>
    (await unprofiledDays(sql, now)).filter((one) => one.appId === appId).map(({ day }) => day);

  test('a day is profiled once it is over and settled, with the running count of each quarter-hour', async () => {
    const app = await newApp();
    for (const at of [DAY, DAY + HOUR_MS, DAY + HOUR_MS + 1, DAY + DAY_MS - 1]) await add(app, at);
    await settle(sql);
    expect(await daysOf(app.appId, DAY + DAY_MS + 1)).toEqual([]);
    expect(await daysOf(app.appId, DAY + DAY_MS + HOUR_MS)).toEqual([DAY]);
    await profileDay(sql, { appId: app.appId, day: DAY });
    expect(await daysOf(app.appId, DAY + DAY_MS + HOUR_MS)).toEqual([]);
    const rows = await sql<{ type_id: number; running: number[] }[]>`
      SELECT type_id, running FROM daily_prefix_sums WHERE app_id = ${app.appId} ORDER BY type_id`;
    expect(rows.map(({ type_id }) => type_id)).toEqual([0, app.typeId]);
    for (const { running } of rows) {
      expect(running).toHaveLength(96);
      expect([running[0], running[3], running[4], running[94], running[95]]).toEqual([1, 1, 3, 3, 4]);
    }
  });

  test('an event that comes late makes the profiles of its day useless at once, and they are made again', async () => {
    const app = await newApp();
    await add(app, DAY);
    await settle(sql);
    await profileDay(sql, { appId: app.appId, day: DAY });
    expect(await isReady(app.appId)).toBe(true);
    await add(app, DAY + HOUR_MS);
    expect(await isReady(app.appId)).toBe(false);
    await settle(sql);
    expect(await isReady(app.appId)).toBe(false);
    await profileDay(sql, { appId: app.appId, day: DAY });
    expect(await isReady(app.appId)).toBe(true);
    const [row] =
      await sql`SELECT running[96] AS total FROM daily_prefix_sums WHERE app_id = ${app.appId} AND type_id = 0`;
    expect(row?.total).toBe(2);
  });

  test('of a deleted app events and counts go in the background, also those that were committed after it', async () => {
    const app = await newApp();
    const other = await newApp();
    for (const one of [app, other]) {
      await add(one, DAY);
      await settle(sql);
      await profileDay(sql, { appId: one.appId, day: DAY });
      await add(one, DAY + 1);
    }
    await deleteApp(sql, { appId: app.appId, confirm: 'Profiled', by: COMMAND_LINE });
    await add(app, DAY + 2);
    expect(await removeDeletedApps(sql, removal, () => 0, 1)).toBe(true);
    const views = ['minute', 'quarter_hour', 'hour', 'day', 'month'].map((width) => `events_per_${width}`);
    const tables = ['events', ...views, 'daily_prefix_sums', 'profiled_days'];
    const rowsOf = async (appId: number): Promise<number[]> =>
      await Promise.all(
        tables.map(async (table) => (await sql`SELECT FROM ${sql(table)} WHERE app_id = ${appId}`).length),
      );
    expect(await rowsOf(app.appId)).toEqual(tables.map(() => 0));
    expect((await rowsOf(other.appId)).every((rows) => rows > 0)).toBe(true);
    await settle(sql);
    expect(await rowsOf(app.appId)).toEqual(tables.map(() => 0));
    expect((await readAppSpan(sql, other.appId)).total).toBe(2);
    await add(app, DAY + 3);
    await removeDeletedApps(sql, removal, () => 0, 1);
    expect(await rowsOf(app.appId)).toEqual(tables.map(() => 0));
    await sql`UPDATE deleted_apps SET deleted_at = now() - interval '2 hours'`;
    await removeDeletedApps(sql, removal, () => 0, 1);
    expect(await sql`SELECT FROM deleted_apps`).toHaveLength(0);
  });
});
