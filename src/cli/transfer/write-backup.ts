/** Writes a backup: everything that is committed at one moment, while the service goes on. */
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import type { Engine } from '../../storage/engine.ts';
import { EVENT_COLUMNS, identifiers, readSequences, readStretches, readTables } from './backup-catalog.ts';
import {
  type BackupHeader,
  type BackupSection,
  type BackupTrailer,
  COARSE_LEVELS,
  COUNT_COLUMNS,
  END_OF_ROWS,
  FORMAT_VERSION,
} from './backup-format.ts';

export interface BackupCounts {
  readonly events: number;
  /** Of all sections. */
  readonly rows: number;
}

export interface BackupOptions {
  /** A connection for this alone. */
  readonly client: pg.Client;
  readonly engine: Engine;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Called while rows are copied. @param total events there are, as far as it is known */
  readonly onProgress: (counts: BackupCounts, total: number) => void;
}

/** What retention has hidden is left out. In order: tables, coarse counts, events by their days. */
interface Piece {
  readonly section: BackupSection;
  /** SELECT of its rows. */
  readonly query: string;
}

/**
 * The uncompressed bytes of a backup.
 * @returns its counts, when all bytes have been taken
 */
export async function* writeBackup(options: BackupOptions): AsyncGenerator<Buffer, BackupCounts> {
  const { client, engine } = options;
  const hash = createHash('sha256');
  const hashed = (bytes: Buffer): Buffer => {
    hash.update(bytes);
    return bytes;
  };
  const json = (value: BackupHeader | BackupSection | BackupTrailer): Buffer =>
    Buffer.from(`${JSON.stringify(value)}\n`);

  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  // Before the snapshot is taken: nothing that it shows is dropped from under it.
  await client.query('LOCK TABLE events IN ACCESS SHARE MODE');
  const { boundary, schema, total } = await readState(client);
  const header: BackupHeader = {
    tidemark: 'backup',
    format: FORMAT_VERSION,
    schema,
    engine,
    createdAt: new Date(options.now).toISOString(),
    sequences: await readSequences(client),
  };
  yield hashed(json(header));

  const counts = { events: 0, rows: 0 };
  for (const { section, query } of await readPieces(client, engine, boundary)) {
    yield hashed(json(section));
    const rows = client.query(copyTo(`COPY (${query}) TO STDOUT`));
    rows.on('error', () => undefined); // The loop throws it.
    for await (const chunk of rows) {
      // The stream is one of bytes.
      yield hashed(chunk as Buffer);
      options.onProgress(counts, total);
    }
    counts.rows += rows.rowCount;
    if (section.section === 'events') counts.events += rows.rowCount;
    yield hashed(Buffer.from(END_OF_ROWS));
  }
  await client.query('COMMIT');
  yield json({ section: 'end', rows: counts.rows, sha256: hash.digest('hex') });
  return counts;
}

async function readState(client: pg.Client): Promise<{ boundary: string; schema: number; total: number }> {
  const { rows } = await client.query<{ boundary: string; schema: number; total: number }>(`
    SELECT greatest(readable_from, '1970-01-01Z')::text       AS boundary,
           (SELECT max(number) FROM schema_migrations)        AS schema,
           (SELECT coalesce(sum(count), 0)::float8 FROM events_per_day
             WHERE type_id = 0 AND bucket >= readable_from)   AS total
      FROM retention`);
  const [state] = rows;
  if (state === undefined) throw new Error('The table retention has lost its row.');
  return state;
}

async function readPieces(client: pg.Client, engine: Engine, boundary: string): Promise<Piece[]> {
  const tables = await readTables(client);
  const stretches = await readStretches(client, engine, boundary);
  const time = (text: string): string => `'${text}'::timestamptz`;
  return [
    ...tables.map(({ name, columns }): Piece => {
      // The engine and the id are the target's own.
      const own = name === 'installation' ? " WHERE name NOT IN ('engine', 'id')" : '';
      const query = `SELECT ${identifiers(columns)} FROM ${identifiers([name])}${own}`;
      return { section: { section: 'table', table: name, columns }, query };
    }),
    ...COARSE_LEVELS.map(
      (level): Piece => ({
        section: { section: 'counts', level, columns: COUNT_COLUMNS },
        query: `SELECT app_id, type_id, bucket, sum(count)::bigint FROM events_per_${level}
                 WHERE bucket < ${time(boundary)} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
      }),
    ),
    ...stretches.map(
      ({ from, until }): Piece => ({
        section: { section: 'events', from, until, columns: EVENT_COLUMNS },
        // Within a stretch as they lie there: nearly in order of time, and without a sort on disk.
        query: `SELECT ${EVENT_COLUMNS.join(', ')} FROM events
               WHERE created_at >= ${time(from)} AND created_at < ${time(until)}`,
      }),
    ),
  ];
}
