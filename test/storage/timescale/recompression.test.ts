/** Late rows of compressed chunks, while TimescaleDB recompresses them: older snapshots must not lose them. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { connect, errorCode, type Sql } from '../../../src/storage/connect.ts';
import { openCopyClient } from '../../../src/storage/copy-client.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { timescaleMaintenance } from '../../../src/storage/timescale/maintenance.ts';
import { applyPolicies } from '../../../src/storage/timescale/policies.ts';
import { recompress } from '../../../src/storage/timescale/recompression.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { until } from '../../support/service.ts';
import { storeRows } from '../../support/stored-events.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 4, 4);
const APP = 1;

describe.runIf(availableEngines().includes('timescale'))('recompression', () => {
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

  test('leaves an export all late rows, and the export lets writers go on', async () => {
    const client = await openCopyClient(database.address, 'test export');
    const writer = connect(database.address, { connections: 1, name: 'test writer' });
    const other = connect(database.address, { connections: 1, name: 'test recompression' });
    try {
      const before = await stored();
      const exported = await storage.beginExport(client);
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

  test('is left to the service by the policy, which compresses what is not compressed yet', async () => {
    const settings = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 7, RETENTION_DAYS: 0 };
    // As an earlier release has made it.
    await sql`CALL add_columnstore_policy('events', after => interval '7 days')`;
    await applyPolicies(sql, settings);
    await applyPolicies(sql, settings);
    await store(10, START + 3 * DAY_MS);
    const jobs = await sql<{ id: number; config: unknown }[]>`
      SELECT job_id AS id, config FROM timescaledb_information.jobs WHERE proc_name = 'policy_compression'`;
    expect(jobs).toHaveLength(1);
    expect(jobs[0]?.config).toMatchObject({ recompress: false });
    await sql`CALL run_job(${jobs[0]?.id ?? 0})`;
    const compressed = await sql<{ at: Date }[]>`
      SELECT range_start AS at FROM timescaledb_information.chunks WHERE hypertable_name = 'events' AND is_compressed`;
    expect(compressed.map(({ at }) => at.getTime())).toContain(START + 3 * DAY_MS);
    expect(await partialChunks()).toBe(1);
    await sql`CALL remove_columnstore_policy('events')`;
  });

  test('leaves every read its total and its rows, however many read meanwhile', async () => {
    const readers = connect(database.address, { connections: 4, name: 'test readers' });
    const reader = storage.reader(readers);
    const scope = { appId: APP, typeId: null, from: START, until: START + DAY_MS };
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
        while (!(await recompress(sql, 7)));
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
      const exported = await storage.beginExport(client);
      expect(await recompress(sql, 7)).toBe(false);
      expect(await partialChunks()).toBe(1);
      await exported.end();
      expect(await recompress(sql, 7)).toBe(true);
      expect(await partialChunks()).toBe(0);
    } finally {
      await client.end();
    }
  });

  test('is a task of maintenance, beside the others, which report its failure once', async () => {
    const settings = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 7, RETENTION_DAYS: 0 };
    const slow = connect(database.address, { connections: 1, name: 'test slow' });
    let now = Date.now();
    const tasks = timescaleMaintenance({ sql, slow }, settings, () => now);
    await tasks.everyTenMinutes();
    await until(async () => (await partialChunks()) === 0, 'the late rows are recompressed');
    // Not again before half of a chunk's hours are over.
    await store(10);
    await tasks.everyTenMinutes();
    now += 11 * 3_600_000;
    await tasks.everyTenMinutes();
    expect(await partialChunks()).toBe(1);
    await slow.end();
    now += 2 * 3_600_000;
    await tasks.everyTenMinutes();
    let failures = 0;
    await until(async () => {
      await tasks.everySecond().catch((error: unknown) => {
        expect(errorCode(error)).toBe('CONNECTION_ENDED');
        failures += 1;
      });
      return failures > 0;
    }, 'the failure is reported');
    await tasks.everySecond();
  });
});
