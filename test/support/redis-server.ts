/** The program that the suites with Redis need. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Where redis-server is; undefined where it is not installed. */
export const REDIS_SERVER = (process.env.PATH ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'redis-server'))
  .find((path) => existsSync(path));
