/** Where this machine has the engines of the suites: vitest.config.ts has no project for one that is missing. */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

export const POSTGRES15_BIN = process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin';
export const TIMESCALE_HOME =
  process.env.TIMESCALE_PG_HOME ?? join(homedir(), '.cache/tidemark/timescale-pg');
/** An installation of PostgreSQL with Citus. */
export const CITUS_HOME = process.env.CITUS_PG_HOME ?? process.env.TIMESCALE_PG_HOME ?? '';

export const hasPostgres15 = existsSync(join(POSTGRES15_BIN, 'initdb'));
export const hasTimescale =
  process.env.TIMESCALE_URL !== undefined || existsSync(join(TIMESCALE_HOME, 'bin/postgres'));
export const hasCitus =
  existsSync(join(CITUS_HOME, 'lib/citus.so')) || existsSync(join(CITUS_HOME, 'lib/postgresql/citus.so'));
