/** Restores a backup into an empty database in one transaction. */
import type pg from 'pg';
import type { Restore } from '../../storage/backup/restore.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { Storage } from '../../storage/storage.ts';
import { type BackupReader, damaged } from './backup-format.ts';

export interface RestoreOptions {
  readonly reader: BackupReader;
  readonly storage: Storage;
  /** A connection used only for the restore. */
  readonly client: pg.Client;
  /** For statements outside the transaction: the schema, and partitions for events. */
  readonly sql: Sql;
  readonly onProgress: () => void;
}

export interface RestoreCounts {
  readonly events: number;
  readonly apps: number;
}

/**
 * Restores the backup, then migrates the schema to this release.
 * @throws OperatorError if the file is damaged, the schema does not match, or the database is not empty
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreCounts> {
  const { reader, storage, client, sql } = options;
  const { schema, sequences } = await reader.header();
  const restore = await storage.beginRestore({ client, sql, schema });
  const counts = await addSections(options, restore);
  await restore.commit(sequences);
  return counts;
}

async function addSections({ reader, onProgress }: RestoreOptions, restore: Restore): Promise<RestoreCounts> {
  async function* watched(): AsyncGenerator<Buffer> {
    for await (const rows of reader.rows()) {
      yield rows;
      onProgress();
    }
  }
  const counts = { events: 0, apps: 0, rows: 0 };
  for (;;) {
    const next = await reader.next();
    if ('trailer' in next) {
      if (next.trailer.rows !== counts.rows) throw damaged('its number of rows does not match');
      return counts;
    }
    const { section } = next;
    if (section.section === 'table' && !restore.hasTable(section.table))
      throw damaged(`its schema has no table "${section.table}"`);
    const rows = await restore.add(section, watched());
    counts.rows += rows;
    if (section.section === 'events') counts.events += rows;
    if (section.section === 'table' && section.table === 'apps') counts.apps = rows;
  }
}
