/** Declared fields in a cluster: what it promises beside the contracts of every engine. */
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from 'vitest';
import { declareField, listFields, removeField } from '../../../../src/apps/fields.ts';
import { DAY_MS } from '../../../../src/storage/counts/levels.ts';
import { checkCounts } from '../../../../src/storage/counts/recount.ts';
import { connect } from '../../../../src/storage/database/connect.ts';
import { clusterOf } from '../../../../src/storage/engines/citus/cluster.ts';
import { ENGINES } from '../../../../src/storage/engines/engines.ts';
import type { EventReader } from '../../../../src/storage/read/event-reader.ts';
import { openStorage } from '../../../../src/storage/storage.ts';
import { TestCitus } from '../../../support/citus.ts';
import { hasCitus } from '../../../support/engine-homes.ts';
import {
  clusterFieldDatabase,
  type FieldDatabase,
  type FieldEvent,
  type FieldTime,
} from '../../../support/field-database.ts';
import { fieldFilter } from '../../../support/field-oracle.ts';
import { atNight } from '../../../support/fuzz.ts';
import { until } from '../../../support/service.ts';

const DAY = Math.floor(Date.now() / DAY_MS) * DAY_MS - 2 * DAY_MS;
const FIELD = { path: ['country'], kind: 'value', typeName: null } as const;
/** A comparison of a whole day. */
const ALL = { limits: { events: Number.POSITIVE_INFINITY, ms: 60_000 }, random: () => 0.5 };
const PAGE = { typeIds: null, from: null, until: null, order: 'asc', after: null, limit: 5 } as const;

describe.runIf(hasCitus)('declared fields in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  const open = (time: FieldTime): Promise<FieldDatabase> =>
    cluster.database().then((database) => clusterFieldDatabase(database, time));

  describe('and its nodes', () => {
    let fields: FieldDatabase;
    let reader: EventReader;
    let events: FieldEvent[];

    beforeEach(async () => {
      fields = await open({ now: DAY + DAY_MS, from: DAY, until: DAY + 4 * DAY_MS });
      reader = (await openStorage(fields.sql)).reader(fields.sql);
      events = [];
      await fields.nodes.ready();
    });
    afterEach(async () => {
      await fields.nodes.stop();
      await fields.close();
    });

    const COUNTRIES = ['DE', 'FR', 'IT'] as const;

    async function write(count: number, appId = 1): Promise<void> {
      const made = Array.from({ length: count }, (_, n): FieldEvent => {
        const at = DAY + Math.floor((n * DAY_MS) / count);
        const payload = JSON.stringify({ country: COUNTRIES[n % 3], amount: n });
        return { id: fields.newId(at), at, typeId: 2 * appId - (n % 2), payload };
      });
      await fields.write(made);
      events.push(...made);
    }

    const ofApp = (appId: number): FieldEvent[] =>
      events.filter(({ typeId }) => Math.ceil(typeId / 2) === appId);

    async function total(appId: number, country: string, by = reader): Promise<number | null | string> {
      const request = { ...PAGE, appId, maxBytes: 1e6, withTotal: true };
      const list = await by.filteredList(request, fieldFilter(`country:${country}`));
      return typeof list === 'string' ? list : list.total;
    }

    async function expectExact(appId = 1, by = reader): Promise<void> {
      for (const country of COUNTRIES) {
        const matching = ofApp(appId).filter(({ payload }) => payload.includes(country));
        expect(await total(appId, country, by), `${country} of app ${appId}`).toBe(matching.length);
      }
    }

    /** Declares a field of an app and counts all of its past. */
    async function declare(appId: number): Promise<void> {
      await declareField(fields.sql, { ...FIELD, appId, backfill: true });
      await completed(appId);
    }

    async function completed(appId: number): Promise<void> {
      await until(async () => {
        await fields.upkeep.everySecond();
        const declared = await listFields(fields.sql, appId);
        return declared.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
      }, 'the past is counted');
    }

    /** Moves the shards of an app to another worker, or to the coordinator. */
    async function move(appId: number, toCoordinator = false): Promise<void> {
      const place = clusterOf(fields.database.sql.pool.database).placeOf(appId);
      const others = toCoordinator ? [cluster.coordinator] : cluster.workers;
      const other = others.find(({ port }) => port !== place?.node.port);
      if (place == null || other === undefined) throw new Error('There is no other node.');
      const sql = connect(fields.database.sql.pool.database, { connections: 1, name: 'test move' });
      try {
        await sql`SELECT citus_move_shard_placement(${place.shard}::bigint, ${place.node.host}, ${place.node.port},
                                                    '127.0.0.1', ${other.port}, 'force_logical')`;
      } finally {
        await sql.end();
      }
    }

    atNight(
      'shards are moved while fields are counted and read: nothing is lost, nothing doubled',
      async () => {
        await write(60);
        await declare(1);
        await fields.sql`SELECT citus_set_node_property('127.0.0.1', ${cluster.coordinator.port}, 'shouldhaveshards', true)`;
        // Like another process, which has not heard of a move when it reads.
        const late = connect({ ...fields.database.address }, { connections: 1, name: 'test late reader' });
        const lateReader = (await openStorage(late)).reader(late);
        for (const toCoordinator of [true, false]) {
          await expectExact(1, lateReader);
          let isMoving = true;
          const moving = move(1, toCoordinator).finally(() => {
            isMoving = false;
          });
          while (isMoving) {
            await write(15);
            await fields.settle();
            await fields.upkeep.everySecond();
            await expectExact();
          }
          await moving;
          await write(15);
          await expectExact(1, lateReader);
          await expectExact();
          await clusterOf(fields.database.sql.pool.database).renew();
          expect(fields.nodes.nodeOf(1) === fields.nodes.home).toBe(toCoordinator);
          await expectExact();
          await fields.settle();
          await fields.upkeep.everySecond();
          await expectExact();
          await fields.sql`CALL citus_cleanup_orphaned_resources()`;
        }
        await late.end();
        const engine = ENGINES[fields.database.engine];
        expect(await engine.compareApps?.(fields.alone, DAY, ALL)).toMatchObject({ differing: 0 });
        // Schemas of shards that have left are gone, the others there.
        await fields.upkeep.everyTenMinutes();
        const [found] = await fields.sql`
        SELECT sum(result::int)::int AS schemas FROM run_command_on_all_nodes(
          $$SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'tidemark_shards_')$$)`;
        expect(found?.schemas).toBe(1);
      },
    );

    atNight('a node that is away keeps nothing but its own fields waiting', async () => {
      const place = (appId: number) => clusterOf(fields.database.sql.pool.database).placeOf(appId);
      if (place(1)?.node === place(2)?.node) await move(2);
      await clusterOf(fields.database.sql.pool.database).renew();
      await write(30, 1);
      await write(30, 2);
      await declare(1);
      const { sql, nodes } = fields;
      nodes.start({ log: pino({ level: 'silent' }), now: () => performance.now(), onBack: () => undefined });
      const worker = cluster.workers.find(({ port }) => port === place(2)?.node.port);
      await worker?.kill();
      try {
        await until(() => nodes.unreachable.length === 1, 'the worker counts as away');
        // Declared, and not yet counted.
        await declareField(sql, { ...FIELD, appId: 2, backfill: true });
        await fields.upkeep.everySecond();
        expect(await listFields(sql, 2)).toMatchObject([{ completeFrom: null, backfill: true }]);
        await expect(total(2, 'DE')).rejects.toThrow('does not answer');
        await write(30, 1);
        await fields.upkeep.everySecond();
        await expectExact(1);
      } finally {
        await worker?.start();
      }
      await until(() => nodes.unreachable.length === 0, 'the worker is back');
      await completed(2);
      await write(30, 2);
      await expectExact(2);
      await fields.settle();
      await fields.upkeep.everySecond();
      await expectExact(2);
      await expectExact(1);
    });

    atNight(
      'a check compares as many apps as its limits allow, and says which days it could not finish',
      async () => {
        await write(200, 1);
        await write(20, 2);
        await fields.settle();
        const { sql, alone } = fields;
        await sql`UPDATE minute_counts SET count = count + 3 WHERE app_id = 1`;
        // All that is known of app 2 is its rows.
        for (const table of ['minute', 'quarter_hour', 'hour', 'day', 'month'])
          await sql`DELETE FROM ${sql(`${table}_counts`)} WHERE app_id = 2`;
        const check = (events: number, ms: number) =>
          checkCounts(alone, ENGINES[fields.database.engine], DAY + DAY_MS - 1, {
            limits: { events, ms },
            random: () => 0.5,
          });
        const appsOf = async (events: number): Promise<readonly string[]> => {
          const { days, unfinished } = await check(events, 60_000);
          expect([days.map(({ day }) => day), unfinished]).toEqual([[DAY], []]);
          return [...new Set(days.flatMap(({ examples }) => examples.map(({ app }) => app)))];
        };
        expect(await appsOf(1_000)).toContain('app1');
        expect(await appsOf(100)).toEqual(['app2']);
        expect(await check(1_000, 0)).toEqual({ days: [], unfinished: [DAY] });
        const found = await ENGINES[fields.database.engine].compareApps?.(alone, DAY, ALL);
        expect(found?.differing).toBeGreaterThan((await check(100, 60_000)).days[0]?.differing ?? 0);
      },
    );

    atNight(
      'counts that are wrong are named with one connection, also of an app that the coordinator holds',
      async () => {
        await write(30);
        await declare(1);
        await fields.settle();
        await fields.upkeep.everySecond();
        const { sql, database } = fields;
        await sql`SELECT citus_set_node_property('127.0.0.1', ${cluster.coordinator.port}, 'shouldhaveshards', true)`;
        await move(1, true);
        await clusterOf(database.sql.pool.database).renew();
        await sql`UPDATE field_minute_counts SET count = count + 3 WHERE app_id = 1`;
        await sql`UPDATE minute_counts SET count = count + 3 WHERE app_id = 1`;
        const one = connect(database.sql.pool.database, { connections: 1, name: 'test command' });
        const found = await ENGINES[database.engine].compareApps?.(one, DAY, ALL);
        await one.end();
        const apps = new Set(found?.examples.map(({ app }) => app));
        expect([...apps]).toEqual(['app1']);
      },
    );

    atNight('a recount waits for a node that does not answer', async () => {
      const { sql, alone, database } = fields;
      const place = (appId: number) => clusterOf(database.sql.pool.database).placeOf(appId);
      if (place(1)?.node === place(2)?.node) await move(2);
      await clusterOf(database.sql.pool.database).renew();
      for (const appId of [1, 2]) {
        await write(30, appId);
        await declare(appId);
      }
      await fields.settle();
      await fields.upkeep.everySecond();
      await sql`UPDATE field_minute_counts SET count = count + 3`;
      const engine = ENGINES[database.engine];
      const worker = cluster.workers.find(({ port }) => port === place(2)?.node.port);
      await worker?.kill();
      let recounted: Promise<number> | undefined;
      try {
        recounted = engine.recountFields?.(alone, DAY);
        await until(async () => (await total(1, 'DE')) === 10, 'the app of the other node is recounted');
      } finally {
        await worker?.start();
      }
      await recounted;
      expect(await engine.compareApps?.(alone, DAY, ALL)).toMatchObject({ differing: 0 });
    });

    atNight('a field is counted until its node knows that it is removed', async () => {
      await declare(1);
      await write(30);
      await fields.settle();
      await fields.upkeep.everySecond();
      // Values that have a series are not looked for in rows.
      const { sql } = fields;
      await removeField(sql, { ...FIELD, appId: 1 });
      await write(30);
      await expectExact();
      await fields.upkeep.everySecond();
      expect(await total(1, 'DE')).toBe('not counted');
      await fields.upkeep.everyTenMinutes();
      for (const table of ['declared_fields', 'field_states', 'field_series', 'field_day_counts'])
        expect(await sql`SELECT FROM ${sql(table)}`, table).toHaveLength(0);
      // Its name is free again.
      await declare(1);
      await expectExact();
    });
  });
});
