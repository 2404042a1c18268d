/** Where TimescaleDB is installed on this machine, for tests that restart a server of their own. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Installation } from './restartable-postgres.ts';

const HOME = process.env.TIMESCALE_PG_HOME ?? '';

export const hasTimescale = existsSync(join(HOME, 'lib/postgresql/timescaledb.so'));

export const TIMESCALE: Installation = {
  home: HOME,
  options: '-c shared_preload_libraries=timescaledb -c timescaledb.telemetry_level=off',
};
