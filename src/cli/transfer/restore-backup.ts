/** Restores a backup into a database that nobody has used: all of it in one transaction, or nothing. */
import type pg from 'pg';
import type { Sql } from '../../storage/connect.ts';
import type { Restore, Storage } from '../../storage/storage.ts';
import { type BackupReader, damaged } from './backup-format.ts';

export interface RestoreOptions {
  readonly reader: BackupReader;
  readonly storage: Storage;
  /** A connection for this alone. */
  readonly client: pg.Client;
  /** For what is not part of the one transaction: the schema, and room for events. */
  readonly sql: Sql;
  readonly onProgress: () => void;
}

export interface RestoreCounts {
  readonly events: number;
  readonly apps: number;
}

/**
 * Restores, then brings the schema to this release's.
 * @throws OperatorError where the file is damaged, the schema does not fit, or the database has been used
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
      if (next.trailer.rows !== counts.rows) throw damaged('it has another number of rows than it says');
      return counts;
    }
    const { section } = next;
    if (section.section === 'table' && !restore.hasTable(section.table))
      throw damaged(`it has a table "${section.table}", which its schema has not`);
    const rows = await restore.add(section, watched());
    counts.rows += rows;
    if (section.section === 'events') counts.events += rows;
    if (section.section === 'table' && section.table === 'apps') counts.apps = rows;
  }
}
