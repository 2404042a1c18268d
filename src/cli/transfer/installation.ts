/** The database of this installation, for commands that move whole sets of data. */

import { type Config, readConfig } from '../../config.ts';
import { connect, type DatabaseAddress, type Sql } from '../../storage/connect.ts';
import { openDatabase } from '../../storage/open.ts';
import { openStorage, type Storage } from '../../storage/storage.ts';
import { commandLog } from '../output.ts';

export interface Installation {
  readonly config: Config;
  readonly address: DatabaseAddress;
  readonly storage: Storage;
  /** A pool of one connection, so that session locks belong to the connection in use. */
  readonly sql: Sql;
}

/** Opens the database, whether or not a server is running. Does not migrate it. */
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
