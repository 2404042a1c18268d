/** The engines by name. */

import type { Sql } from '../database/connect.ts';
import type { Engine } from '../database/engine.ts';
import { citus } from './citus/citus.ts';
import { postgres } from './postgres/postgres.ts';
import type { StorageEngine } from './storage-engine.ts';
import { timescale } from './timescale/timescale.ts';

/** The pool where the events of an app are: one on its node in a cluster. @throws if that node is known to be away */
export async function poolOfApp(engine: Engine, sql: Sql, appId: number): Promise<Sql> {
  return (await ENGINES[engine].poolOfApp?.(sql, appId)) ?? sql;
}

export const ENGINES: Readonly<Record<Engine, StorageEngine>> = { postgres, timescale, citus };
