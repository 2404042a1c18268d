/**
 * Events and their counts. Only this folder has SQL on them, and only here engines have names. Each engine is a folder of engines/
 * that implements {@link StorageEngine}. Everything else is imported from the file that has it.
 */
import type pg from 'pg';
import { beginExport } from './backup/export.ts';
import { beginRestore, type RestoreOptions } from './backup/restore.ts';
import { refuseMoved } from './copy/endpoint.ts';
import type { Interval } from './counts/intervals.ts';
import { DAY_MS } from './counts/levels.ts';
import { type RecountedDay, recount } from './counts/recount.ts';
import { rowsHereOf, type Sql, type Transactions } from './database/connect.ts';
import { connectionsTo } from './database/copy-connection.ts';
import type { Database } from './database/database.ts';
import { chooseEngine } from './database/engine.ts';
import { refuseUnfit } from './database/fitness.ts';
import { type Nodes, oneServer } from './database/nodes.ts';
import { hasSchema, readDatabaseFacts } from './database-facts.ts';
import { ENGINES } from './engines/engines.ts';
import type { ErasedValues } from './fields/recount.ts';
import {
  type BroughtBack,
  type DayToBring,
  type DayToTake,
  type Stayed,
  waitsForFields,
} from './maintenance/days-away.ts';
import { type RecountOfErased, recountErased } from './maintenance/erasing.ts';
import { unlessKept } from './maintenance/expired-rows.ts';
import { type RecoveredRows, recoverRows } from './maintenance/stray-rows.ts';
import { migrate, migrationState, noSchema, requireSchema } from './migrate.ts';
import { createReader, type EventReader } from './read/event-reader.ts';
import { inOneSnapshot } from './read/snapshot.ts';
/** What the storage of one database does, whatever its engine. Operations take the pool whose connections they use. */
export type Storage = Awaited<ReturnType<typeof openStorage>>;

/**
 * Opens the storage of a database that has the schema of this release, and changes nothing.
 * @throws OperatorError with what to do, where it does not have it; and as {@link openStorage} does
 */
export async function openMigratedStorage(sql: Sql): Promise<Storage> {
  // Opening an empty database could create an extension in it.
  if (!(await hasSchema(sql))) throw noSchema();
  const storage = await openStorage(sql);
  await requireSchema(sql, storage.engine);
  return storage;
}

/**
 * Opens the storage of a database, whose engine it detects. In an empty database that can have TimescaleDB it creates the
 * extension.
 * @throws OperatorError where the database was migrated for another engine, was left for another one, is a part of a copy, or would
 *   lose what is written to it
 */
export async function openStorage(sql: Sql) {
  const { engine: name, description, note } = await chooseEngine(sql);
  await refuseMoved(sql);
  await refuseUnfit(sql, name);
  const engine = ENGINES[name];
  sql.pool.database.adopt(engine);
  const nodesOf = (database: Database): Nodes =>
    engine.nodesOf?.(database) ?? oneServer(connectionsTo(database));
  const readerOf = (pool: Sql): EventReader => {
    pool.pool.database.adopt(engine);
    return createReader(pool, engine.routes(pool));
  };
  return {
    engine: name,
    /** Names and versions of the engine, for display. */
    description,
    /** A line for the log where a better engine is available and not used. */
    note,
    /** Brings the schema to this release's. @returns the names of the files that were applied */
    migrate: (pool: Sql) => migrate(pool, name),
    /** How far the migration by a backend is, in words; null where the schema is this release's. */
    migrationState: (pool: Sql, pid: number) => migrationState(pool, name, pid),
    /** Reads with the connections of a pool, and in the archive what is there alone. */
    reader: readerOf,
    /** Reads the rows that are in the database alone. Counts, and the totals that are made of them, are of all events. */
    readerOfRows: (pool: Sql) => readerOf(rowsHereOf(pool)),
    /** Has several reads see one snapshot; in a cluster, each read has that of its app's node. */
    inSnapshot: <T>(pool: Sql, read: (events: EventReader) => Promise<T>): Promise<T> => {
      pool.pool.database.adopt(engine);
      const routes = engine.routes(pool);
      if (routes.together === null) return read(createReader(pool, routes));
      return inOneSnapshot(pool, (snapshot) => read(createReader(snapshot)));
    },
    /** How rows are written, for writers. */
    writes: engine.writes,
    /** The servers that hold events. */
    nodesOf,
    /** The pool where the events of an app are: in a cluster, one on its node. @throws if that node is known not to answer */
    poolOfApp: (pool: Sql, appId: number) => engine.routes(pool).at(appId),
    /** What has to be done from time to time. */
    maintenance: engine.maintenance,
    /**
     * Brings what was just stored into the counts, so that its first reads are as cheap as all others. Totals are exact
     * before, during and after.
     * @param sql a pool of one connection
     */
    settleCounts: engine.settleCounts,
    /** Settles counts while more is being stored; does nothing where that would make writers wait. */
    settleBesideWriters: async (pool: Sql, now: number) => {
      if (engine.settlesBesideWriters) await engine.settleCounts(pool, now);
    },
    /** Takes a snapshot of everything that a backup holds. @param client a connection to the database for this alone */
    beginExport: (client: pg.Client, database: Database) => beginExport(client, database, engine),
    /** Prepares an unused database for the rows of a backup. @throws OperatorError where it does not fit or has been used */
    beginRestore: (options: Omit<RestoreOptions, 'engine'>) => beginRestore({ ...options, engine }),
    /** Facts for the doctor. */
    facts: (pool: Sql) => readDatabaseFacts(pool, engine, description),
    /**
     * Rebuilds the counts of the UTC days that an interval touches from their rows, while readers and writers go on. Days
     * before the retention boundary are left out.
     * @param sql a pool of one connection
     * @param onDay called after each day
     */
    recount: (pool: Sql, interval: Interval, onDay: (day: RecountedDay) => void) => {
      pool.pool.database.adopt(engine);
      return recount(pool, engine, interval, onDay);
    },
    /**
     * Removes events of an app, or replaces their payloads, with their counts: in one transaction.
     * @returns how many there were
     */
    erase: engine.erase,
    /**
     * Counts declared fields again where events were erased, and forgets values that no event has any more.
     * @param values those that were asked for
     * @param named  values that are named elsewhere
     * @returns those of `named` that are forgotten
     */
    recountErased: async (
      pool: Sql,
      of: RecountOfErased,
      values: { readonly values: readonly ErasedValues[]; readonly named: readonly ErasedValues[] },
      now: number,
    ) => {
      pool.pool.database.adopt(engine);
      const place = await engine.routes(pool).at(of.appId);
      let forgotten: readonly ErasedValues[] = [];
      const work = async (counts: Transactions): Promise<void> => {
        // A part of a cluster keeps its connection meanwhile, which others may need.
        const { pass: _, ...whole } = of;
        const parts = engine.atFields === undefined ? of : whole;
        forgotten = await recountErased(place, counts, parts, values, now);
      };
      await (engine.atFields?.(pool, of.appId, work) ?? work(place));
      return forgotten;
    },
    /**
     * Takes the rows of an archived day away, which its objects hold from now on, in one transaction.
     * @param sql a pool of one connection
     * @returns null: they have left
     */
    takeAway: async (pool: Sql, day: Omit<DayToTake, 'unticked'>): Promise<Stayed | null> => {
      const waits = await waitsForFields(pool, day);
      if (waits !== null) return waits;
      const unticked = engine.unticked((table) => table);
      const outcome = await unlessKept(pool, () => engine.days.takeAway(pool, { ...day, unticked }));
      return outcome === null
        ? { reason: 'the database is being copied: its rows leave later', isChanged: false }
        : outcome.value;
    },
    /**
     * The inverse: its rows are where they were, in one transaction.
     * @param sql a pool of one connection
     * @returns null where the day is not away in these objects, or rows have to stay where they are now
     */
    bringBack: async (pool: Sql, day: DayToBring): Promise<BroughtBack | null> => {
      const at = Date.parse(`${day.day}T00:00:00Z`);
      await engine.createPartitions(pool, { from: at, until: at + DAY_MS });
      const outcome = await unlessKept(pool, () => engine.days.bringBack(pool, day));
      return outcome?.value ?? null;
    },
    /** Counts the events that lie where nobody reads them, by server. */
    strayRows: async (pool: Sql) => (await engine.strayRows?.find(pool)) ?? [],
    /**
     * Moves them to where they are read, with their counts, each once. It may be interrupted and called again.
     * @param sql a pool of one connection
     * @param onBatch called with the sums after each transaction
     */
    recoverRows: async (pool: Sql, onBatch: (rows: RecoveredRows) => void) => {
      const sources = (await engine.strayRows?.gather(pool)) ?? [];
      return await recoverRows(sources, {
        sql: pool,
        nodes: nodesOf(pool.pool.database),
        writes: engine.writes,
        onBatch,
      });
    },
  };
}
