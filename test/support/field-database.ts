/** A database with two apps of two types each, and everything that counts the values of their declared fields. */
import pino from 'pino';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type Sql, type Transaction } from '../../src/storage/database/connect.ts';
import type { Nodes } from '../../src/storage/database/nodes.ts';
import { ClusterFields } from '../../src/storage/engines/citus/fields.ts';
import { settleCluster } from '../../src/storage/engines/citus/maintenance.ts';
import { readFieldsOfApp } from '../../src/storage/engines/citus/reads.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { ensurePartitions } from '../../src/storage/engines/postgres/maintenance.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type TestDatabase, testDatabase } from './database.ts';
import type { TestEngine } from './global-setup.ts';
import { SOURCE } from './source.ts';
import { storeRows } from './stored-events.ts';
import { upkeepOf } from './upkeep.ts';
import { RoutedWriter, writingTo } from './writers.ts';

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
  /** Where the fields of app 1 are counted: it takes transactions. */
  readonly counts: Sql;
  readonly upkeep: Pick<FieldUpkeep, 'everySecond' | 'everyTenMinutes'>;
  readonly nodes: Nodes;
  /** Milliseconds since 1970, as the upkeep has them; may be moved. */
  readonly clock: { now: number };
  newId(at: number): string;
  /** Another writer; closed with the database. */
  writer(connections: number): RoutedWriter;
  /** Stores events with the writer. @param isUncertain whether some may be stored already, as far as the writer knows */
  write(events: readonly FieldEvent[], by?: RoutedWriter, isUncertain?: boolean): Promise<void>;
  /** Stores events whose values are left to maintenance, as a replay leaves them. */
  store(events: readonly FieldEvent[]): Promise<void>;
  /** Brings the counts of events up to date. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

export interface FieldTime {
  readonly now: number;
  readonly from: number;
  readonly until: number;
}

/** Opens the database of a contract that runs on every engine. */
export type OpenFieldDatabase = (time: FieldTime) => Promise<FieldDatabase>;

export async function fieldDatabase(engine: TestEngine, time: FieldTime): Promise<FieldDatabase> {
  if (engine === 'citus') return await clusterFieldDatabase(await testDatabase(engine), time);
  const { prepare, settle } = upkeepOf(engine);
  const made = await testDatabase(engine);
  const opened = await open(made, time, writingTo(made).nodes);
  const { sql, alone, clock, database } = opened;
  await prepare(sql, time.from, time.until);
  return {
    ...opened,
    counts: sql,
    upkeep: new FieldUpkeep(alone, () => clock.now),
    store: (events) =>
      storeRows(
        sql,
        database.engine,
        events.map((event) => ({ ...event, appId: appOf(event) })),
      ),
    settle: () => settle(sql),
  };
}

/** In a cluster. */
export async function clusterFieldDatabase(database: TestDatabase, time: FieldTime): Promise<FieldDatabase> {
  const nodes = (await openStorage(database.sql)).nodesOf(database.sql.pool.database);
  const opened = await open(database, time, nodes);
  const { sql, alone, clock } = opened;
  await ensurePartitions(sql, time.from, time.until);
  const fields = new ClusterFields(alone, () => clock.now);
  // Progress is brought back by the round that follows.
  const everySecond = async (): Promise<void> => {
    await fields.everySecond();
    await fields.everySecond();
  };
  const inTransaction = async (mode: string, work: (tx: Transaction) => Promise<unknown>) =>
    await readFieldsOfApp(sql, 1, (shards) => shards.begin(mode, work));
  return {
    ...opened,
    counts: { begin: inTransaction, pool: sql.pool } as unknown as Sql,
    upkeep: {
      everySecond,
      everyTenMinutes: async () => {
        await everySecond();
        await fields.everyTenMinutes();
        await everySecond();
      },
    },
    store: async (events) => {
      await opened.write(events, undefined, true);
      await settleCluster(alone);
    },
    settle: () => settleCluster(alone),
  };
}

function appOf({ typeId }: FieldEvent): number {
  return typeId > 2 ? 2 : 1;
}

type Opened = Omit<FieldDatabase, 'counts' | 'upkeep' | 'store' | 'settle'>;

async function open(database: TestDatabase, { now }: FieldTime, nodes: Nodes): Promise<Opened> {
  const { sql, engine } = database;
  const alone = connect(sql.pool.database, { connections: 1, name: 'test upkeep' });
  const clock = { now };
  const writers: RoutedWriter[] = [];
  const writer = (connections: number): RoutedWriter => {
    const log = pino({ level: 'silent' });
    const about = { engine: ENGINES[engine].writes, connections, log };
    const made = new RoutedWriter(nodes, { ...about, now: () => performance.now() });
    writers.push(made);
    return made;
  };
  const first = writer(2);
  await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 2) n`;
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'type' || n, 1 + (n - 1) / 2, 'type' || n FROM generate_series(1, 4) n`;
  return {
    ...{ database, sql, alone, nodes, clock, writer },
    newId: createEventIds(),
    write: async (events, by = first, isUncertain = false) => {
      const rows = events.map((event) => {
        const { id, at, typeId, payload } = event;
        return { id, appId: appOf(event), typeId, createdAt: at, payload, source: SOURCE };
      });
      const refused = (await by.write(rows, isUncertain)).filter((outcome) => outcome !== null);
      if (refused.length > 0) throw new Error(`events were not stored: ${JSON.stringify(refused[0])}`);
    },
    close: async () => {
      for (const one of writers) await one.close();
      await alone.end();
      await database.drop();
    },
  };
}
