/** The database of this installation, as commands open it. */
import { type Config, readConfig } from '../../config.ts';
import type { ArchiveSource } from '../../storage/database/archive-source.ts';
import { connect, type Sql } from '../../storage/database/connect.ts';
import type { Database } from '../../storage/database/database.ts';
import { openDatabase } from '../../storage/database/open.ts';
import { openMigratedStorage, openStorage, type Storage } from '../../storage/storage.ts';
import { commandLog } from '../output.ts';

export interface Installation {
  readonly config: Config;
  readonly database: Database;
  readonly storage: Storage;
  /** A pool of one connection, so that session locks belong to the connection in use. */
  readonly sql: Sql;
}

/** Is opened when a command comes to archived days: the libraries are large. */
class ArchiveOfCommand implements ArchiveSource {
  readonly #config: Config;
  #opened: Promise<ArchiveSource & { close(): Promise<void> }> | null = null;

  constructor(config: Config) {
    this.#config = config;
  }

  peek(): undefined {
    return undefined;
  }

  async read(...asked: Parameters<ArchiveSource['read']>): Promise<Buffer> {
    this.#opened ??= this.#open();
    return await (await this.#opened).read(...asked);
  }

  async close(): Promise<void> {
    await (await this.#opened)?.close();
  }

  async #open(): Promise<ArchiveSource & { close(): Promise<void> }> {
    const { openArchiveStore } = await import('../../archive/store.ts');
    const { ArchivedGroups } = await import('../../archive/archived-groups.ts');
    const store = openArchiveStore(this.#config);
    // The error that ends the command says it.
    return new ArchivedGroups({ store, log: { warn: () => undefined } });
  }
}

/**
 * Opens the database, whether or not a server is running. Changes nothing of it: a command of a newer release must not
 * upgrade a database that older servers use.
 * @param options.anySchema for the commands that bring the schema: `migrate` and `restore`. All others need the schema of
 *   this release
 * @throws OperatorError with what to do, where there is no database, or its schema is older, newer, or not there
 */
export async function withInstallation<T>(
  work: (installation: Installation) => Promise<T>,
  { anySchema = false }: { readonly anySchema?: boolean } = {},
): Promise<T> {
  const config = readConfig(process.env);
  const opened = await openDatabase(config, commandLog(config.LOG_LEVEL), {
    supervise: false,
    mayMake: anySchema,
  });
  const sql = connect(opened.address, { connections: 1, name: 'tidemark command' });
  const archive = new ArchiveOfCommand(config);
  sql.pool.database.archive = config.ARCHIVE_URL === '' ? null : archive;
  try {
    const storage = await (anySchema ? openStorage : openMigratedStorage)(sql);
    return await work({ config, database: sql.pool.database, storage, sql });
  } finally {
    await archive.close();
    await sql.end({ timeout: 5 });
    await opened.close();
  }
}
