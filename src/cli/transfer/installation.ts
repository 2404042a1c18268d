/** The database of this installation for the commands that move whole sets of data. */

import { type Config, readConfig } from '../../config.ts';
import { connect, type DatabaseAddress, type Sql } from '../../storage/connect.ts';
import { openDatabase } from '../../storage/open.ts';
import { openStorage, type Storage } from '../../storage/storage.ts';
import { commandLog } from '../output.ts';

export interface Installation {
  readonly config: Config;
  readonly address: DatabaseAddress;
  readonly storage: Storage;
  /** A pool of one connection, so that session locks are held by what works. */
  readonly sql: Sql;
}

/** Opens the database, whether a server runs on it or not, for one piece of work. It is not migrated yet. */
export async function withInstallation<T>(work: (installation: Installation) => Promise<T>): Promise<T> {
  const config = readConfig(process.env);
  const database = await openDatabase(config, commandLog(config.LOG_LEVEL), { supervise: false });
  const { address } = database;
  const sql = connect(address, { connections: 1, name: 'tidemark command' });
  try {
    return await work({ config, address, storage: await openStorage(sql), sql });
  } finally {
    await sql.end({ timeout: 5 });
    await database.close();
  }
}
