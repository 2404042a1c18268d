/** Reads the content of a backup in one snapshot, while the service runs. */
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { COARSE_LEVELS, countTable, DAYS, type Level } from '../counts/levels.ts';
import type { CountingEngine } from '../counts/recount.ts';
import { errorCode, SQLSTATE } from '../database/connect.ts';
import type { Database } from '../database/database.ts';
import { SNAPSHOT_LOCK } from '../read/snapshot.ts';
import { EVENT_COLUMN_NAMES } from '../write/accepted-event.ts';
import {
  COUNT_COLUMNS,
  isOfFieldCounts,
  joinBoundaries,
  OWN_BOUNDARY,
  REFUSED_REQUESTS,
  type RowSection,
  readEventIntervals,
  readSequences,
  readTables,
  type SequenceValue,
  selectKept,
  selectOutlived,
} from './catalog.ts';

/** Bytes in COPY's text format; the number of rows is known after they are read. */
export interface ExportedRows extends AsyncIterable<Buffer> {
  readonly rowCount: number;
}

export interface ExportedSection {
  readonly section: RowSection;
  /** Starts to copy; one section at a time. */
  rows(): ExportedRows;
}

export interface Export {
  /** Number of the last migration. */
  readonly schema: number;
  readonly sequences: readonly SequenceValue[];
  readonly events: number;
  /** In order: tables, counts that outlive their rows, events by time. Events before the retention boundary are left out. */
  readonly sections: readonly ExportedSection[];
  end(): Promise<void>;
}

/** A place in the snapshot where rows of tables are: a server, or some shards of a cluster. */
export interface RowSource {
  /** In a transaction with the snapshot. */
  readonly client: pg.Client;
  /** The name of a table there. */
  readonly nameOf: (table: string) => string;
  /** The relation of the counts of a level there. */
  readonly selectCounts: (level: Level) => string;
}

/** A snapshot, and where it has the rows of each table. */
export interface ExportSnapshot {
  /** Connection to the database, for all that is in one place. */
  readonly client: pg.Client;
  placesOf(table: string): readonly RowSource[];
  end(): Promise<void>;
}

/** What an export needs of an engine. */
export interface EngineExport extends Pick<CountingEngine, 'totalsOfAllApps' | 'eventIntervals'> {
  /** Takes the snapshot of a backup on all nodes of a cluster. Absent: one server has it. @param client on the coordinator */
  beginSnapshot?(client: pg.Client, database: Database): Promise<ExportSnapshot>;
  /**
   * Tables that an export locks in SHARE UPDATE EXCLUSIVE mode before its snapshot, so that no maintenance rewrites them
   * during the export. Writers do not wait for these locks.
   */
  tablesToExport(client: pg.Client): Promise<readonly string[]>;
  /**
   * Whether backups and copies have the counts of declared fields. Otherwise they have the declarations alone, and what these count
   * is counted again from the rows.
   */
  readonly keepsFieldCounts: boolean;
  /** A SELECT of the minutes of apps (app_id, bucket) that the next tick would tell consumers of. @param nameOf the name of a table */
  unticked(nameOf: (table: string) => string): string;
}

/** Takes a snapshot. @param client a dedicated connection */
export async function beginExport(
  client: pg.Client,
  database: Database,
  engine: EngineExport,
): Promise<Export> {
  const snapshot = (await engine.beginSnapshot?.(client, database)) ?? (await beginOnServer(client, engine));
  const { boundary, schema, events } = await readState(client, engine);
  return {
    schema,
    events,
    sequences: await readSequences(client),
    sections: await sectionsOf(snapshot, engine, boundary),
    end: () => snapshot.end(),
  };
}

async function beginOnServer(client: pg.Client, engine: EngineExport): Promise<ExportSnapshot> {
  for (let tries = 1; !(await beginLocked(client, await engine.tablesToExport(client))); tries += 1)
    if (tries === MAX_TRIES) throw new Error('Tables of events are dropped faster than they can be locked.');
  const server = { client, nameOf: (table: string) => table, selectCounts: ({ view }: Level) => view };
  return {
    client,
    placesOf: () => [server],
    end: async () => {
      await client.query('COMMIT');
    },
  };
}

const MAX_TRIES = 10;

/**
 * Begins the transaction with its locks, which precede its snapshot: no table in it is dropped or rewritten meanwhile.
 * @param tables tables to lock, read before
 * @returns false if retention has dropped one of the tables since
 */
async function beginLocked(client: pg.Client, tables: readonly string[]): Promise<boolean> {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  try {
    if (tables.length > 0)
      await client.query(`LOCK TABLE ONLY ${tables.join(', ONLY ')} IN SHARE UPDATE EXCLUSIVE MODE`);
    await client.query(`LOCK TABLE events, ${SNAPSHOT_LOCK} IN ACCESS SHARE MODE`);
    return true;
  } catch (error) {
    if (errorCode(error) !== SQLSTATE.undefinedTable) throw error;
    await client.query('ROLLBACK');
    return false;
  }
}

async function readState(
  client: pg.Client,
  { totalsOfAllApps }: EngineExport,
): Promise<{ boundary: string; schema: number; events: number }> {
  // One after the other: a cluster does not join what is in different places.
  const only = async <Row extends pg.QueryResultRow>(query: string, values: string[] = []): Promise<Row> => {
    const { rows } = await client.query<Row>(query, values);
    const [row] = rows;
    if (row === undefined) throw new Error('The table retention has lost its row.');
    return row;
  };
  const { boundary } = await only<{ boundary: string }>(
    "SELECT greatest(readable_from, '1970-01-01Z')::text AS boundary FROM retention",
  );
  const { schema } = await only<{ schema: number }>('SELECT max(number) AS schema FROM schema_migrations');
  const { events } = await only<{ events: number }>(
    `SELECT coalesce(sum(count), 0)::float8 AS events FROM ${totalsOfAllApps(DAYS)} AS days
      WHERE type_id = 0 AND bucket >= $1::timestamptz`,
    [boundary],
  );
  return { boundary, schema, events };
}

async function sectionsOf(
  { client, placesOf }: ExportSnapshot,
  engine: EngineExport,
  boundary: string,
): Promise<ExportedSection[]> {
  const tables = (await readTables(client)).filter(
    (table) => table.name !== REFUSED_REQUESTS && (engine.keepsFieldCounts || !isOfFieldCounts(table)),
  );
  const intervals = await readEventIntervals(client, engine, boundary);
  const { rows: apps } = await client.query('SELECT FROM app_boundaries LIMIT 1');
  const hasBoundaries = apps.length > 0;
  const time = (text: string): string => `'${text}'::timestamptz`;
  const exported = (
    section: RowSection,
    table: string,
    query: (place: RowSource) => string,
  ): ExportedSection => ({
    section,
    rows: () => new RowsOfPlaces(placesOf(table), query),
  });
  return [
    ...tables.map((table) =>
      exported({ section: 'table', table: table.name, columns: table.columns }, table.name, ({ nameOf }) =>
        selectKept(table, engine, time(boundary), nameOf),
      ),
    ),
    ...COARSE_LEVELS.map((level) =>
      exported(
        { section: 'counts', level: level.name, columns: COUNT_COLUMNS },
        countTable(level.name),
        ({ selectCounts, nameOf }) =>
          selectOutlived(selectCounts(level), time(boundary), nameOf('app_boundaries')),
      ),
    ),
    ...intervals.map(({ from, until }) =>
      exported(
        { section: 'events', from, until, columns: EVENT_COLUMN_NAMES },
        'events',
        // In physical order: nearly that of time, and without a sort on disk.
        ({ nameOf }) => `
          SELECT ${EVENT_COLUMN_NAMES.map((name) => `events.${name}`).join(', ')} FROM ${nameOf('events')} AS events
           ${hasBoundaries ? joinBoundaries('events', nameOf('app_boundaries')) : ''}
           WHERE created_at >= ${time(from)} AND created_at < ${time(until)}
           ${hasBoundaries ? `AND created_at >= coalesce(${OWN_BOUNDARY}, '-infinity')` : ''}`,
      ),
    ),
  ];
}

/** The rows of a section, from one place after the other. */
class RowsOfPlaces implements ExportedRows {
  rowCount = 0;
  readonly #places: readonly RowSource[];
  readonly #query: (place: RowSource) => string;

  constructor(places: readonly RowSource[], query: (place: RowSource) => string) {
    this.#places = places;
    this.#query = query;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    for (const place of this.#places) {
      const rows = place.client.query(copyTo(`COPY (${this.#query(place)}) TO STDOUT`));
      rows.on('error', () => undefined); // Whoever reads it throws it.
      // The package's type does not declare that chunks are buffers.
      for await (const chunk of rows) yield chunk as Buffer;
      this.rowCount += rows.rowCount;
    }
  }
}
