/** The writer of journaled events: which rows its one statement writes, and what it says of the events that get none. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createApp } from '../../../src/apps/apps.ts';
import { createEventType } from '../../../src/apps/event-types.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { readInstallation } from '../../../src/storage/database/installation-id.ts';
import { readEventPage } from '../../../src/storage/read/event-page.ts';
import type { EventSource, JournaledEvent } from '../../../src/storage/write/accepted-event.ts';
import { type ReplayOutcome, ReplayWriter } from '../../../src/storage/write/replay-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { testSecret } from '../../support/service.ts';
import { writingTo } from '../../support/writers.ts';

const newId = createEventIds();
const NOW = Date.now();

function event(source: EventSource, createdAt = NOW, payload = '{ "a" : 1 }'): JournaledEvent {
  return { id: newId(createdAt), createdAt, payload, source };
}

function reasons(outcomes: readonly ReplayOutcome[]): string[] {
  return outcomes.map((outcome) => (typeof outcome === 'string' ? outcome : outcome.reason));
}

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  let writer: ReplayWriter;
  let appId: string;
  let typeId: string;
  let source: EventSource;

  beforeEach(async () => {
    database = await testDatabase(engine);
    const { sql } = database;
    ({ appId } = await createApp(sql, await testSecret(), { name: 'an app' }));
    ({ typeId } = await createEventType(sql, { appId, name: 'a type', maxTypes: 10 }));
    source = { appId, typeId, typeName: 'a type' };
    const { identity } = await readInstallation(sql);
    writer = writerFor(identity);
  });

  afterEach(async () => {
    await writer.close();
    await database.drop();
  });

  function writerFor(identity: string): ReplayWriter {
    const log = { warn: () => undefined, error: () => undefined };
    return new ReplayWriter({
      ...writingTo(database),
      identity,
      log,
      now: () => performance.now(),
    });
  }

  /** Rows with what clients know of their app and type; an outer join, so that none hides. */
  async function rows(): Promise<readonly unknown[]> {
    return await database.sql`
      SELECT events.id, apps.public_id AS "appId", type.public_id AS "typeId", type.name AS "typeName",
             extract(epoch FROM events.created_at)::float8 * 1000 AS "createdAt", payload::text AS payload
        FROM events LEFT JOIN apps ON apps.id = app_id
        LEFT JOIN event_types AS type ON type.id = type_id AND type.app_id = events.app_id
       ORDER BY events.id`;
  }

  function rowOf({ id, createdAt, payload, source: named }: JournaledEvent): unknown {
    return { id, ...named, createdAt, payload };
  }

  /** What the counts say of the first app; exact also where the engine counts later. */
  async function counted(): Promise<number> {
    const scope = { appId: 1, typeIds: null, from: null, until: null };
    const request = { scope, offset: 0, limit: 1, order: 'asc', maxBytes: 1_000 } as const;
    return (await readEventPage(database.sql, request)).total;
  }

  test('an event is stored once and counted once, however often it is written', async () => {
    const events = [event(source), event({ ...source }), event(source)];
    for (let times = 0; times < 2; times += 1)
      expect(await writer.write(events)).toEqual(['stored', 'stored', 'stored']);
    expect(await rows()).toEqual(events.map(rowOf));
    expect(await counted()).toBe(3);
  });

  test('a type is found by its public id, else by its name; one that is missing is made as it was', async () => {
    const other = await createEventType(database.sql, { appId, name: 'made again', maxTypes: 10 });
    const renamed = { ...source, typeName: 'had this name once' };
    const madeAgain = { appId, typeId: 'typ_lost', typeName: 'made again' };
    const missing = { appId, typeId: 'typ_missing', typeName: 'missing' };
    const missingToo = { appId, typeId: 'typ_missing2', typeName: 'missing' };
    const events = [event(renamed), event(madeAgain), event(missing), event(missing), event(missingToo)];
    expect(reasons(await writer.write(events))).toEqual(events.map(() => 'stored'));
    const stored = (await rows()) as { typeId: string; typeName: string }[];
    expect(stored.slice(0, 2).map((row) => row.typeId)).toEqual([typeId, other.typeId]);
    const made = stored.slice(2).map((row) => `${row.typeId} ${row.typeName}`);
    expect(new Set(made).size).toBe(1);
    expect(made[0]).toMatch(/^typ_missing2? missing$/);
  });

  test('an unknown app gets no rows and no types, and says so; its neighbors are stored', async () => {
    const unknown = { appId: 'app_unknown', typeId, typeName: 'a type' };
    const events = [event(source), event(unknown), event(source)];
    const outcomes = await writer.write(events);
    expect(outcomes).toEqual([
      'stored',
      { reason: 'unknown-app', details: 'the database has no app app_unknown' },
      'stored',
    ]);
    expect(await rows()).toHaveLength(2);
    expect(await counted()).toBe(2);
  });

  test("a type's public id that belongs to another app is not taken from it", async () => {
    const other = await createApp(database.sql, await testSecret(), { name: 'another app' });
    const events = [event({ appId: other.appId, typeId, typeName: 'new here' })];
    expect(reasons(await writer.write(events))).toEqual(['type-conflict']);
    expect(await rows()).toEqual([]);
  });

  test('an event that the database refuses is found among its neighbors, with the reason', async () => {
    await database.sql.unsafe(
      `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
    );
    const events = Array.from({ length: 9 }, (_, n) => event(source, NOW, n === 4 ? '{"poison":1}' : '{}'));
    const outcomes = await writer.write(events);
    expect(reasons(outcomes)).toEqual(events.map((_, n) => (n === 4 ? 'refused' : 'stored')));
    expect(outcomes[4]).toMatchObject({ details: expect.stringContaining('no_poison') });
    expect(await rows()).toHaveLength(8);
  });

  test.skipIf(engine === 'timescale')(
    'a day that can get no partition costs its own events, and days that get one none',
    async () => {
      const detached = Date.UTC(2024, 0, 15);
      const old = Date.UTC(2024, 0, 16);
      // Its partition was detached: the name is taken, and no rows go there.
      await database.sql`CREATE TABLE events_20240115 (LIKE events)`;
      const events = [
        event(source),
        event(source, detached),
        event(source, old),
        event(source, detached + 1),
      ];
      const outcomes = await writer.write(events);
      expect(reasons(outcomes)).toEqual(['stored', 'no-partition', 'stored', 'no-partition']);
      expect(outcomes[1]).toMatchObject({ details: 'there is no partition for 2024-01-15' });
      expect(await rows()).toHaveLength(2);
    },
  );

  test('an app that is deleted while its events are written gets none of them', async () => {
    const { sql } = database;
    let written: Promise<readonly ReplayOutcome[]> | undefined;
    await sql.begin(async (tx) => {
      await tx`DELETE FROM apps WHERE public_id = ${appId}`;
      written = writer.write([event(source)]);
      for (let waiting = 0; waiting === 0; ) {
        const blocked = await tx`
          SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
        waiting = blocked.length;
        await tx`SELECT pg_stat_clear_snapshot()`;
      }
    });
    expect(reasons((await written) ?? [])).toEqual(['unknown-app']);
    expect(await rows()).toEqual([]);
  });

  test('a type that another session makes at the same moment is used', async () => {
    const { sql } = database;
    const missing = { appId, typeId: 'typ_missing', typeName: 'missing' };
    let written: Promise<readonly ReplayOutcome[]> | undefined;
    await sql.begin(async (tx) => {
      await tx`INSERT INTO event_types (public_id, app_id, name)
               SELECT 'typ_first', id, 'missing' FROM apps WHERE public_id = ${appId}`;
      written = writer.write([event(missing)]);
      for (let waiting = 0; waiting === 0; ) {
        const blocked = await tx`
          SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
        waiting = blocked.length;
        await tx`SELECT pg_stat_clear_snapshot()`;
      }
    });
    expect(await written).toEqual(['stored']);
    expect(await rows()).toMatchObject([{ typeId: 'typ_first' }]);
  });
});
