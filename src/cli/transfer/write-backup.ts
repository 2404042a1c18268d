/** Writes a backup: a consistent snapshot, while the service keeps running. */
import { createHash } from 'node:crypto';
import type pg from 'pg';
import type { Database } from '../../storage/database/database.ts';
import type { Storage } from '../../storage/storage.ts';
import {
  type BackupHeader,
  type BackupSection,
  type BackupTrailer,
  END_OF_ROWS,
  FORMAT_VERSION,
} from './backup-format.ts';

export interface BackupCounts {
  readonly events: number;
  readonly rows: number;
}

export interface BackupOptions {
  readonly storage: Storage;
  /** A connection used only for the backup. */
  readonly client: pg.Client;
  readonly database: Database;
  readonly now: number;
  /** Called while rows are copied. @param total estimated number of events */
  readonly onProgress: (counts: BackupCounts, total: number) => void;
}

/**
 * The uncompressed bytes of a backup.
 * @returns its counts, once all bytes are consumed
 */
export async function* writeBackup(options: BackupOptions): AsyncGenerator<Buffer, BackupCounts> {
  const { storage, client, database, now, onProgress } = options;
  const hash = createHash('sha256');
  const hashed = (bytes: Buffer): Buffer => {
    hash.update(bytes);
    return bytes;
  };
  const json = (value: BackupHeader | BackupSection | BackupTrailer): Buffer =>
    Buffer.from(`${JSON.stringify(value)}\n`);

  const exported = await storage.beginExport(client, database);
  const header: BackupHeader = {
    tidemark: 'backup',
    format: FORMAT_VERSION,
    schema: exported.schema,
    engine: storage.engine,
    createdAt: new Date(now).toISOString(),
    sequences: exported.sequences,
  };
  yield hashed(json(header));

  const counts = { events: 0, rows: 0 };
  for (const { section, rows } of exported.sections) {
    yield hashed(json(section));
    const copied = rows();
    for await (const chunk of copied) {
      yield hashed(chunk);
      onProgress(counts, exported.events);
    }
    counts.rows += copied.rowCount;
    if (section.section === 'events') counts.events += copied.rowCount;
    yield hashed(Buffer.from(END_OF_ROWS));
  }
  await exported.end();
  yield json({ section: 'end', rows: counts.rows, sha256: hash.digest('hex') });
  return counts;
}
