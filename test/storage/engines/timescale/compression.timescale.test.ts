/** Late rows of compressed chunks, while TimescaleDB recompresses them: older snapshots must not lose them. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventIds } from '../../../../src/ingest/event-id.ts';
import { readTables } from '../../../../src/storage/backup/catalog.ts';
import { connect, errorCode, type Sql } from '../../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../../src/storage/database/copy-client.ts';
import { beginColumnstore, compress } from '../../../../src/storage/engines/timescale/compression.ts';
import { timescaleMaintenance } from '../../../../src/storage/engines/timescale/maintenance.ts';
import { applyPolicies, readCompression } from '../../../../src/storage/engines/timescale/policies.ts';
import { withFieldsLocked } from '../../../../src/storage/fields/fields-lock.ts';
import { openStorage, type Storage } from '../../../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../../support/database.ts';
import { patient } from '../../../support/patience.ts';
import { until } from '../../../support/service.ts';
import { storeRows } from '../../../support/stored-events.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 4, 4);
const APP = 1;

describe.runIf(availableEngines().includes('timescale'))('compression', () => {
  let database: TestDatabase;
  let sql: Sql;
  let storage: Storage;
  beforeAll(async () => {
    database = await testDatabase('timescale');
    sql = database.sql;
    storage = await openStorage(sql);
    await sql`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
    await sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('t', ${APP}, 't')`;
  });
  afterAll(() => database.drop());

  /** Stores events evenly over a day. */
  async function store(count: number, day = START, into: Sql = sql): Promise<void> {
    const step = DAY_MS / count;
    const rows = Array.from({ length: count }, (_, n) => ({
      id: createEventIds()(day + Math.floor(n * step)),
      appId: APP,
      typeId: 1,
      at: day + Math.floor(n * step),
      payload: '{}',
    }));
    await storeRows(into, 'timescale', rows);
  }

  const stored = async (): Promise<number> => (await sql`SELECT FROM events`).length;

  // A compressed chunk that holds late rows.
  beforeEach(async () => {
    await store(2_000);
    await sql`SELECT compress_chunk(chunk) FROM show_chunks('events') AS chunk`;
    await store(500);
  });

  test('opens what lies around events that are erased, and nothing between those that are far apart', async () => {
    const day = START - 3 * DAY_MS;
    await store(6_000, day);
    const within = sql`created_at >= ${new Date(day)} AND created_at < ${new Date(day + DAY_MS)}`;
    const [chunk] = await sql<{ name: string }[]>`
      SELECT DISTINCT tableoid::regclass::text AS name FROM events WHERE ${within}`;
    await sql`SELECT compress_chunk(${chunk?.name ?? ''}::text::regclass)`;
    const events = await sql<{ id: string; at: number }[]>`
      SELECT id, (extract(epoch FROM created_at) * 1000)::float8 AS at FROM events WHERE ${within} ORDER BY created_at, id`;
    const erased = [events[0], events.at(-1)].flatMap((event) => event ?? []);
    // Of one connection, as that of erasures is: it holds a lock of its session.
    const alone = connect(database.address, { connections: 1, name: 'test erasures' });
    const erasure = { appId: APP, erasureId: 1, events: erased, payloads: null };
    expect(await storage.erase(alone, erasure).finally(() => alone.end())).toBe(2);
    const opened = await sql.unsafe(`SELECT FROM ONLY ${chunk?.name}`);
    // A batch has a thousand.
    expect(opened.length).toBeLessThan(2_001);
    expect(await sql`SELECT FROM events WHERE ${within}`).toHaveLength(5_998);
    await sql`DELETE FROM events WHERE ${within}`;
  });

  test('leaves an export all late rows, and the export lets writers go on', async () => {
    const client = await openCopyClient(database.address, 'test export');
    const writer = connect(database.address, { connections: 1, name: 'test writer' });
    const other = connect(database.address, { connections: 1, name: 'test recompression' });
    try {
      const before = await stored();
      const exported = await storage.beginExport(client, database.sql.pool.database);
      // Of a new chunk, and of the one that is exported.
      await store(1, START + 40 * DAY_MS, writer);
      await store(3, START, writer);
      let ended = false;
      const recompressed = other`
        SELECT compress_chunk(chunk) FROM show_chunks('events', older_than => ${new Date(START + 2 * DAY_MS)}::timestamptz) AS chunk
      `.then(() => {
        ended = true;
      });
      const waits = async (): Promise<boolean> =>
        (
          await sql`
            SELECT FROM pg_stat_activity WHERE application_name = 'test recompression' AND wait_event_type = 'Lock'`
        ).length > 0;
      await until(async () => ended || (await waits()), 'the recompression has ended or waits');
      let rows = 0;
      for (const section of exported.sections) {
        const copied = section.rows();
        for await (const _ of copied);
        if (section.section.section === 'events') rows += copied.rowCount;
      }
      await exported.end();
      expect(rows).toBe(before);
      await recompressed;
      expect(await stored()).toBe(before + 4);
    } finally {
      await Promise.all([client.end(), writer.end(), other.end()]);
    }
  });

  const partialChunks = async (): Promise<number> =>
    (
      await sql`SELECT FROM show_chunks('events') AS chunk WHERE _timescaledb_functions.chunk_status(chunk) & 8 <> 0`
    ).length;

  const NEW_DAY = START + 3 * DAY_MS;
  const chunkOf = async (day: number): Promise<{ name: string; isCompressed: boolean }> => {
    const [chunk] = await sql<{ name: string; isCompressed: boolean }[]>`
      SELECT format('%I.%I', chunk_schema, chunk_name) AS name, is_compressed AS "isCompressed"
        FROM timescaledb_information.chunks
       WHERE hypertable_name = 'events' AND range_start = ${new Date(day)}::timestamptz`;
    if (chunk === undefined) throw new Error('There is no such chunk.');
    return chunk;
  };

  test('is the work of the service, whatever policy an earlier release has made', async () => {
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    await sql`CALL add_columnstore_policy('events', after => interval '7 days')`;
    await applyPolicies(sql, settings);
    await applyPolicies(sql, settings);
    expect(
      await sql`SELECT FROM timescaledb_information.jobs WHERE proc_name ~ '^policy_(compression|columnstore)'`,
    ).toHaveLength(0);
    // Somebody adds one while the service runs, and one to the minutes: both go within ten minutes.
    await sql`CALL add_columnstore_policy('events', after => interval '7 days')`;
    await sql`CALL add_columnstore_policy('minute_counts', after => interval '60 days')`;
    expect((await readCompression(sql)).policies).toHaveLength(2);
    const own = connect(database.address, { connections: 1, name: 'test maintenance' });
    const withoutCompression = { ...settings, COMPRESS_AFTER_DAYS: 0 };
    await timescaleMaintenance({ sql: own, slow: own }, withoutCompression, Date.now).everyTenMinutes();
    await own.end();
    expect((await readCompression(sql)).policies).toEqual([]);
    await store(10, START + 2 * DAY_MS);
    while (!(await compress(sql, 7)));
    expect((await chunkOf(START + 2 * DAY_MS)).isCompressed).toBe(true);
    expect(await partialChunks()).toBe(0);
  });

  /** Bytes of the rows of a day outside of the columnstore, with their indexes. */
  const sizeOf = async (day: number): Promise<number> => {
    const { name } = await chunkOf(day);
    const [row] = await sql<{ bytes: number }[]>`
      SELECT pg_total_relation_size(${name}::text::regclass)::float8 AS bytes`;
    return row?.bytes ?? 0;
  };

  test('gives the room of moved rows back where batches of the columnstore are not in order', async () => {
    await store(20_000);
    const mover = connect(database.address, { connections: 1, name: 'test mover' });
    try {
      const { name } = await chunkOf(START);
      await sql`SELECT compress_chunk(${name}::text::regclass)`;
      expect(await sizeOf(START)).toBeGreaterThan(1_000_000);
      const UNORDERED = 2;
      await sql`UPDATE _timescaledb_catalog.chunk SET status = status | ${UNORDERED} WHERE relid = ${name}::text::regclass`;
      expect(await compress(mover, 7, 0)).toBe(true);
      expect(await sizeOf(START)).toBeLessThan(200_000);
    } finally {
      await mover.end();
    }
  });

  test('gives the room of moved rows back once the snapshot has ended that saw the last of them', async () => {
    const day = START + 7 * DAY_MS;
    await store(20_000, day);
    const mover = connect(database.address, { connections: 1, name: 'test mover' });
    const holder = connect(database.address, { connections: 1, name: 'test holder' });
    try {
      const { name } = await chunkOf(day);
      await beginColumnstore(mover, name, 'events');
      await mover`SELECT compress_chunk(${name}::text::regclass)`;
      await store(1, day);
      await holder.begin('isolation level repeatable read', async (tx) => {
        await tx`SELECT FROM pg_class LIMIT 1`;
        expect(await compress(mover, 7, 0)).toBe(true);
        expect(await sizeOf(day)).toBeGreaterThan(1_000_000);
      });
      expect(await compress(mover, 7, 0)).toBe(true);
      expect(await sizeOf(day)).toBeLessThan(200_000);
    } finally {
      await Promise.all([mover.end(), holder.end()]);
    }
  });

  test('of a large chunk lets its late writers go on, and gives the room of its rows back', async () => {
    await store(60_000, NEW_DAY);
    const before = await stored();
    const mover = connect(database.address, { connections: 1, name: 'test mover' });
    const writer = connect(database.address, { connections: 1, name: 'test writer' });
    const isMoving = async (): Promise<boolean> =>
      (
        await sql`
          SELECT FROM pg_stat_activity
           WHERE application_name = 'test mover' AND state = 'active' AND query LIKE '%SELECT compress_chunk(%'`
      ).length > 0;
    let written = 0;
    let writtenMeanwhile = 0;
    try {
      let ended = false;
      const compressed = (async () => {
        // On a busy machine the late writer may be in the way.
        while (!(await compress(mover, 7, 0)));
        ended = true;
      })();
      while (!ended) {
        if (!(await isMoving())) continue;
        await store(1, NEW_DAY + written, writer);
        written += 1;
        if (await isMoving()) writtenMeanwhile += 1;
      }
      await compressed;
      expect(writtenMeanwhile).toBeGreaterThan(0);
      expect(await stored()).toBe(before + written);
      // What has come since is moved too, and nothing is left of the rows once no snapshot sees them, such as one of the server's own.
      await expect
        .poll(async () => (await compress(mover, 7, 0)) && (await sizeOf(NEW_DAY)), {
          timeout: patient(20_000),
        })
        .toSatisfy((size) => typeof size === 'number' && size < 200_000);
      expect(await partialChunks()).toBe(0);
      expect((await chunkOf(NEW_DAY)).isCompressed).toBe(true);
      expect(await stored()).toBe(before + written);
      const scope = { appId: APP, typeIds: null, from: NEW_DAY, until: NEW_DAY + DAY_MS };
      const page = await storage
        .reader(sql)
        .page({ scope, offset: 0, limit: 10, order: 'asc', maxBytes: 1e9 });
      expect(page.total).toBe(60_000 + written);
      // A backup does not take it for a table of its own.
      const client = await openCopyClient(database.address, 'test export');
      expect((await readTables(client)).map(({ name: table }) => table).join()).not.toContain('columnstore');
      await client.end();
    } finally {
      await Promise.all([mover.end(), writer.end()]);
    }
  });

  test('of a large chunk is bounded in its wait for writers and readers that do not end', async () => {
    await store(20, START + 5 * DAY_MS);
    const holder = connect(database.address, { connections: 1, name: 'test holder' });
    const { name } = await chunkOf(START + 5 * DAY_MS);
    await holder.begin(async (tx) => {
      await tx.unsafe(`LOCK TABLE ${name} IN ROW EXCLUSIVE MODE`);
      expect(await compress(sql, 7, 0)).toBe(false);
    });
    await holder.end();
    while (!(await compress(sql, 7, 0)));
    expect((await chunkOf(START + 5 * DAY_MS)).isCompressed).toBe(true);
    expect(await partialChunks()).toBe(0);
  });

  test('leaves who may only read the events their rows', async () => {
    const role = `reader_${randomUUID().replaceAll('-', '')}`;
    await sql.unsafe(`CREATE ROLE ${role}`);
    try {
      await sql.unsafe(`GRANT SELECT ON events TO ${role}`);
      await store(100, START + 6 * DAY_MS);
      while (!(await compress(sql, 7, 0)));
      await sql.begin(async (tx) => {
        await tx.unsafe(`SET LOCAL ROLE ${role}`);
        const rows = tx`SELECT FROM events WHERE created_at >= ${new Date(START + 6 * DAY_MS)} AND created_at < ${new Date(START + 7 * DAY_MS)}`;
        expect(await rows).toHaveLength(100);
      });
    } finally {
      await sql.unsafe(`DROP OWNED BY ${role}`);
      await sql.unsafe(`DROP ROLE ${role}`);
    }
  });

  test('leaves every read its total and its rows, however many read meanwhile', async () => {
    const readers = connect(database.address, { connections: 4, name: 'test readers' });
    const reader = storage.reader(readers);
    const scope = { appId: APP, typeIds: null, from: START, until: START + DAY_MS };
    const list = {
      appId: APP,
      typeIds: null,
      from: START,
      until: START + DAY_MS,
      order: 'desc',
      maxBytes: 1e9,
    } as const;
    let total = 0;
    let reading = true;
    let reads = 0;
    const read = async (offset: number): Promise<void> => {
      for (; reading; reads += 1) {
        const expected = total;
        const page = await reader.page({ scope, offset, limit: 1_000, order: 'asc', maxBytes: 1e9 });
        expect({ total: page.total, rows: page.events.length }).toEqual({
          total: expected,
          rows: Math.min(1_000, expected - offset),
        });
        const [last] = page.events.slice(-1);
        if (last === undefined) throw new Error('The page is empty.');
        expect(await reader.event(APP, last.id)).toMatchObject({ id: last.id });
        const after = { at: last.createdAt.getTime() + 1, id: last.id, order: 'desc' } as const;
        expect((await reader.list({ ...list, after, limit: 100 })).events).toHaveLength(100);
      }
    };
    try {
      for (let round = 0; round < 6; round += 1) {
        total = (
          await sql`SELECT FROM events WHERE created_at >= ${new Date(START)} AND created_at < ${new Date(START + DAY_MS)}`
        ).length;
        expect(await partialChunks()).toBe(1);
        reading = true;
        const reads = [read(0), read(1_200), read(total - 1_000)];
        // On a busy machine reads may last so long that it is put off.
        while (!(await compress(sql, 7)));
        reading = false;
        await Promise.all(reads);
        expect(await partialChunks()).toBe(0);
        await store(300);
      }
      expect(reads).toBeGreaterThan(10);
    } finally {
      reading = false;
      await readers.end();
    }
  });

  test('is put off while a snapshot stays in use, and done later', async () => {
    const client = await openCopyClient(database.address, 'test export');
    try {
      const exported = await storage.beginExport(client, database.sql.pool.database);
      expect(await compress(sql, 7)).toBe(false);
      expect(await partialChunks()).toBe(1);
      await exported.end();
      expect(await compress(sql, 7)).toBe(true);
      expect(await partialChunks()).toBe(0);
    } finally {
      await client.end();
    }
  });

  test('leaves who counts fields from rows all rows of the snapshot, and is done later', async () => {
    const all = await stored();
    const seen = await withFieldsLocked(sql, async (tx) => {
      // The snapshot is taken before events are looked at.
      await tx`SELECT FROM declared_fields`;
      const isDone = await compress(sql, 7);
      return { isDone, rows: (await tx`SELECT FROM events`).length };
    });
    expect(seen).toEqual({ isDone: false, rows: all });
    expect(await compress(sql, 7)).toBe(true);
    expect(await partialChunks()).toBe(0);
  });

  test('is a task of maintenance, beside the others, which report its failure once', async () => {
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    // Each of one connection, as those of the service: locks of a session are held by the one that works.
    const [own, slow] = ['test maintenance', 'test slow'].map((name) =>
      connect(database.address, { connections: 1, name }),
    ) as [Sql, Sql];
    let now = Date.now();
    const tasks = timescaleMaintenance({ sql: own, slow }, settings, () => now);
    await tasks.everyTenMinutes();
    await until(async () => (await partialChunks()) === 0, 'the late rows are recompressed');
    // Not again before half of a chunk's hours are over.
    await store(10);
    await tasks.everyTenMinutes();
    now += 11 * 3_600_000;
    await tasks.everyTenMinutes();
    expect(await partialChunks()).toBe(1);
    // What the writes have marked is vacuumed on this pool as well: that is over before it is closed.
    for (let round = 0; round < 3; round += 1) await tasks.everySecond();
    await slow.end();
    now += 2 * 3_600_000;
    await tasks.everyTenMinutes();
    let failures = 0;
    await until(async () => {
      // It may still have been at its last work when its connection was closed.
      now += 3_600_000;
      await tasks.everyTenMinutes();
      await tasks.everySecond().catch((error: unknown) => {
        expect(errorCode(error)).toBe('CONNECTION_ENDED');
        failures += 1;
      });
      return failures > 0;
    }, 'the failure is reported');
    await tasks.everySecond();
    await own.end();
  });
});
