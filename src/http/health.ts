/** GET /livez: the process runs. GET /readyz: it can store and read right now, or, where asked for, acknowledge. */

import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
import type { ServerTrouble } from '../storage/connections/server-watch.ts';
import type { Exchange, Outcome } from './exchange.ts';
import type { Route } from './route.ts';

export interface HealthOptions {
  readonly sql: Sql;
  /** Name and version of the database's engine. */
  readonly engine: string;
  /** True from the moment the stop has begun. */
  readonly isStopping: () => boolean;
  /** False while the database is known not to answer: then it is not asked. */
  readonly isReachable: () => boolean;
  /** Why the server that answers is not used; null where it is used, or none answers. */
  readonly trouble: () => ServerTrouble | null;
  /** Null where there is none. */
  readonly journal: JournalHealth | null;
}

export interface JournalHealth {
  /** True while it takes the events that the database cannot take. */
  readonly takesEvents: boolean;
  /** True while the database belongs to another installation. */
  readonly wrongDatabase: boolean;
  readonly stats: { readonly waitingEvents: number };
}

/** Longest wait for the database before it counts as gone. */
const PROBE_TIMEOUT_MS = 900;

const STOPPING = new Rejection('unavailable', 'The service is stopping.');
const NO_DATABASE = 'The database cannot be reached.';
const WRONG_DATABASE = 'The database belongs to another installation: its own one is waited for.';
const READ_ONLY = 'The database takes no writes now.';
const TROUBLES: Readonly<Record<ServerTrouble, string>> = {
  'read-only': READ_ONLY,
  recovery: 'The server of the database is a standby: the primary is waited for.',
  older: 'The server of the database is one that was replaced: its successor is waited for.',
  foreign: WRONG_DATABASE,
  forbidden: 'The user of the database lacks a right, which the log names.',
};

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
      handle: (exchange) => readiness(options, isWritable, exchange),
    },
  ];
}

async function readiness(
  options: HealthOptions,
  isWritable: () => Promise<boolean | null>,
  exchange: Exchange,
): Promise<Outcome> {
  if (options.isStopping()) return STOPPING;
  const writable = options.isReachable() ? await isWritable() : null;
  const journal = options.journal && {
    journal: {
      takesEvents: options.journal.takesEvents,
      waitingEvents: options.journal.stats.waitingEvents,
    },
  };
  const engine = { engine: options.engine };
  const isOurs = options.journal?.wrongDatabase !== true;
  const met = options.trouble();
  if (writable === true && isOurs && met === null)
    return ready({ success: true, status: 'ready', ...engine, ...journal });
  const refusal = writable === null ? NO_DATABASE : READ_ONLY;
  const trouble = isOurs ? (met === null ? refusal : TROUBLES[met]) : WRONG_DATABASE;
  if (options.journal?.takesEvents !== true)
    return new Rejection('unavailable', trouble, journal === null ? {} : { fields: journal });
  if (new URLSearchParams(exchange.query).get('for') === 'writing')
    return ready({ success: true, status: 'journaling', ...engine, ...journal });
  const details = `${trouble} Events are accepted into the journal; nothing can be read.`;
  return new Rejection('unavailable', details, { fields: journal ?? {} });
}

function ready(fields: object): Outcome {
  return { status: 200, body: JSON.stringify(fields) };
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
