/** Where Citus is installed on this machine. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export const CITUS_HOME = process.env.CITUS_PG_HOME ?? process.env.TIMESCALE_PG_HOME ?? '';

/** Whether an installation with Citus is at CITUS_PG_HOME. */
export const hasCitus =
  existsSync(join(CITUS_HOME, 'lib/citus.so')) || existsSync(join(CITUS_HOME, 'lib/postgresql/citus.so'));
