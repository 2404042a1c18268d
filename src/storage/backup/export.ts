/** Reads the content of a backup in one snapshot, while the service runs. */
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { errorCode } from '../connect.ts';
import { COARSE_LEVELS, DAYS } from '../counts/levels.ts';
import { SNAPSHOT_LOCK } from '../snapshot.ts';
import type { StorageEngine } from '../storage-engine.ts';
import {
  COUNT_COLUMNS,
  EVENT_COLUMNS,
  type RowSection,
  readEventIntervals,
  readSequences,
  readTables,
  type SequenceValue,
  selectKept,
} from './catalog.ts';

/** Bytes in COPY's text format; the number of rows is known after they are read. */
export interface CopiedRows extends AsyncIterable<Buffer> {
  readonly rowCount: number;
}

export interface ExportedSection {
  readonly section: RowSection;
  /** Starts to copy; one section at a time. */
  rows(): CopiedRows;
}

export interface Export {
  /** Number of the last migration. */
  readonly schema: number;
  readonly sequences: readonly SequenceValue[];
  /** Number of events by the counts. */
  readonly events: number;
  /** In order: tables, counts that outlive their rows, events by time. Events before the retention boundary are left out. */
  readonly sections: readonly ExportedSection[];
  /** Ends the snapshot. */
  end(): Promise<void>;
}

/** Takes a snapshot. @param client a dedicated connection */
export async function beginExport(client: pg.Client, engine: StorageEngine): Promise<Export> {
  for (let tries = 1; !(await beginLocked(client, await engine.tablesToExport(client))); tries += 1)
    if (tries === MAX_TRIES) throw new Error('Tables of events are dropped faster than they can be locked.');
  const { boundary, schema, events } = await readState(client);
  return {
    schema,
    events,
    sequences: await readSequences(client),
    sections: await sectionsOf(client, engine, boundary),
    end: async () => {
      await client.query('COMMIT');
    },
  };
}

const MAX_TRIES = 10;
const UNDEFINED_TABLE = '42P01';

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
    if (errorCode(error) !== UNDEFINED_TABLE) throw error;
    await client.query('ROLLBACK');
    return false;
  }
}

async function readState(client: pg.Client): Promise<{ boundary: string; schema: number; events: number }> {
  const { rows } = await client.query<{ boundary: string; schema: number; events: number }>(`
    SELECT greatest(readable_from, '1970-01-01Z')::text       AS boundary,
           (SELECT max(number) FROM schema_migrations)        AS schema,
           (SELECT coalesce(sum(count), 0)::float8 FROM ${DAYS.view}
             WHERE type_id = 0 AND bucket >= readable_from)   AS events
      FROM retention`);
  const [state] = rows;
  if (state === undefined) throw new Error('The table retention has lost its row.');
  return state;
}

async function sectionsOf(
  client: pg.Client,
  engine: StorageEngine,
  boundary: string,
): Promise<ExportedSection[]> {
  const tables = await readTables(client);
  const intervals = await readEventIntervals(client, engine, boundary);
  const time = (text: string): string => `'${text}'::timestamptz`;
  const exported = (section: RowSection, query: string): ExportedSection => ({
    section,
    rows: () => {
      const rows = client.query(copyTo(`COPY (${query}) TO STDOUT`));
      rows.on('error', () => undefined); // Whoever reads it throws it.
      // The package's type does not declare that chunks are buffers.
      return rows as CopiedRows;
    },
  });
  return [
    ...tables.map((table) =>
      exported(
        { section: 'table', table: table.name, columns: table.columns },
        selectKept(table, time(boundary)),
      ),
    ),
    ...COARSE_LEVELS.map(({ name, view }) =>
      exported(
        { section: 'counts', level: name, columns: COUNT_COLUMNS },
        `SELECT app_id, type_id, bucket, sum(count)::bigint FROM ${view}
          WHERE bucket < ${time(boundary)} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
      ),
    ),
    ...intervals.map(({ from, until }) =>
      exported(
        { section: 'events', from, until, columns: EVENT_COLUMNS },
        // In physical order: nearly that of time, and without a sort on disk.
        `SELECT ${EVENT_COLUMNS.join(', ')} FROM events
          WHERE created_at >= ${time(from)} AND created_at < ${time(until)}`,
      ),
    ),
  ];
}
