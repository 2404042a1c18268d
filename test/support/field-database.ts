/** A database with two apps of two types each, and everything that counts the values of their declared fields. */
import pino from 'pino';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type Sql } from '../../src/storage/connect.ts';
import { DeclaredFields } from '../../src/storage/fields/declared-fields.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { connectionsTo } from '../../src/storage/write/copy-connection.ts';
import { EventWriter } from '../../src/storage/write/event-writer.ts';
import { type TestDatabase, testDatabase } from './database.ts';
import type { TestEngine } from './global-setup.ts';
import { SOURCE } from './source.ts';
import { upkeepOf } from './upkeep.ts';

/** An event of a test. */
export interface FieldEvent {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Internal: 1 and 2 are of app 1, 3 and 4 of app 2. */
  readonly typeId: number;
  readonly payload: string;
}

export interface FieldDatabase {
  readonly database: TestDatabase;
  readonly sql: Sql;
  /** A pool of one connection, that of the upkeep. */
  readonly alone: Sql;
  readonly upkeep: FieldUpkeep;
  /** What the writer knows of fields: nothing, until it is loaded. */
  readonly known: DeclaredFields;
  /** Milliseconds since 1970, as the upkeep has them; may be moved. */
  readonly clock: { now: number };
  newId(at: number): string;
  /** A writer that knows these fields; closed with the database. */
  writer(known: DeclaredFields, connections: number): EventWriter;
  /** Stores events with the writer. */
  write(events: readonly FieldEvent[], by?: EventWriter): Promise<void>;
  /** Brings the counts of events up to date. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

export async function fieldDatabase(
  engine: TestEngine,
  time: { readonly now: number; readonly from: number; readonly until: number },
): Promise<FieldDatabase> {
  const { prepare, settle } = upkeepOf(engine);
  const database = await testDatabase(engine);
  const { sql, address } = database;
  const alone = connect(address, { connections: 1, name: 'test upkeep' });
  const clock = { now: time.now };
  const writers: EventWriter[] = [];
  const writer = (fields: DeclaredFields, connections: number): EventWriter => {
    const log = pino({ level: 'silent' });
    const now = (): number => performance.now();
    const made = new EventWriter({
      connect: connectionsTo(address),
      engine: database.engine,
      connections,
      fields,
      log,
      now,
    });
    writers.push(made);
    return made;
  };
  const known = new DeclaredFields();
  const first = writer(known, 2);
  await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 2) n`;
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'type' || n, 1 + (n - 1) / 2, 'type' || n FROM generate_series(1, 4) n`;
  await prepare(sql, time.from, time.until);
  return {
    ...{ database, sql, alone, known, clock, writer },
    upkeep: new FieldUpkeep(alone, () => clock.now),
    newId: createEventIds(),
    write: async (events, by = first) => {
      const rows = events.map(({ id, at, typeId, payload }) => {
        return { id, appId: typeId > 2 ? 2 : 1, typeId, createdAt: at, payload, source: SOURCE };
      });
      const refused = (await by.write(rows)).filter((outcome) => outcome !== null);
      if (refused.length > 0) throw new Error(`events were not stored: ${JSON.stringify(refused[0])}`);
    },
    settle: () => settle(sql),
    close: async () => {
      for (const one of writers) await one.close();
      await alone.end();
      await database.drop();
    },
  };
}
