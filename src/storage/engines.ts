/** The engines by name. */
import { citus } from './citus/citus.ts';
import type { Sql, Transaction } from './connect.ts';
import type { Engine } from './engine.ts';
import { postgres } from './postgres/postgres.ts';
import type { StorageEngine } from './storage-engine.ts';
import { timescale } from './timescale/timescale.ts';

/** The pool where the events of an app are: one on its node in a cluster. @throws if that node is known to be away */
export async function poolOfApp(engine: Engine, sql: Sql, appId: number): Promise<Sql> {
  return (await ENGINES[engine].poolOfApp?.(sql, appId)) ?? sql;
}

/** Whether values of payloads (declared fields) can be counted in a database. */
export async function countsFields(sql: Sql | Transaction): Promise<boolean> {
  const [row] = await sql<
    { engine: Engine }[]
  >`SELECT value AS engine FROM installation WHERE name = 'engine'`;
  return row === undefined || ENGINES[row.engine].writes.countsFields;
}

export const ENGINES: Readonly<Record<Engine, StorageEngine>> = { postgres, timescale, citus };
