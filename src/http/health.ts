/** GET /livez: the process runs. GET /readyz: it can store and read right now. */
import type { Sql } from '../database/connect.ts';
import { Rejection } from './rejection.ts';
import type { Route } from './route.ts';

export interface HealthOptions {
  readonly sql: Sql;
  /** Name and version of the database's engine. */
  readonly engine: string;
  /** True from the moment the stop has begun. */
  readonly isStopping: () => boolean;
}

/** Longest wait for the database before it counts as gone. */
const PROBE_TIMEOUT_MS = 2_000;

const STOPPING = new Rejection('unavailable', 'The service is stopping.');
const NO_DATABASE = new Rejection('unavailable', 'The database can not be reached.');
const READ_ONLY = new Rejection('unavailable', 'The database takes no writes now.');

/** The two routes for supervisors and load balancers. */
export function healthRoutes(options: HealthOptions): readonly Route[] {
  // Anybody may ask: those who ask while the database is being asked share its answer, or they could keep it busy.
  let asking: Promise<boolean | null> | null = null;
  const isWritable = (): Promise<boolean | null> => {
    asking ??= probe(options.sql).finally(() => {
      asking = null;
    });
    return asking;
  };
  const ready = JSON.stringify({ success: true, status: 'ready', engine: options.engine });
  return [
    {
      method: 'GET',
      path: '/livez',
      headers: [],
      isEssential: true,
      handle: async () => ({ status: 200, body: '{"success":true,"status":"live"}' }),
    },
    {
      method: 'GET',
      path: '/readyz',
      headers: [],
      isEssential: true,
      handle: async () => {
        if (options.isStopping()) return STOPPING;
        const writable = await isWritable();
        if (writable === null) return NO_DATABASE;
        return writable ? { status: 200, body: ready } : READ_ONLY;
      },
    },
  ];
}

/** Whether the database takes writes; null where it does not answer. */
async function probe(sql: Sql): Promise<boolean | null> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, PROBE_TIMEOUT_MS, null);
  });
  const answer = sql<{ writable: boolean }[]>`
    SELECT current_setting('transaction_read_only') = 'off' AS writable`.then(
    ([row]) => row?.writable ?? false,
    () => null, // Why it failed is in the log of the request that needed it; here it is just "no".
  );
  const result = await Promise.race([answer, timeout]);
  clearTimeout(timer);
  return result;
}
