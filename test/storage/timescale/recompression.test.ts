/** Late rows of compressed chunks, while TimescaleDB recompresses them: older snapshots must not lose them. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connect, type Sql } from '../../../src/storage/connect.ts';
import { openCopyClient } from '../../../src/storage/copy-client.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
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
      id: randomUUID(),
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
});
