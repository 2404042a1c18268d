/** GET /livez: the process runs. GET /readyz: it can store and read right now, or, where asked for, acknowledge. */

import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
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
  /** False while it is known to take no events of now, whatever it answers. */
  readonly takesEvents: () => boolean;
  /** Past days that take no events now, though all is well otherwise. */
  readonly closedDays: () => number;
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
  const answers = options.isReachable() ? await isWritable() : null;
  const writable = answers === true ? options.takesEvents() : answers;
  const journal = options.journal && {
    journal: {
      takesEvents: options.journal.takesEvents,
      waitingEvents: options.journal.stats.waitingEvents,
    },
  };
  const engine = { engine: options.engine };
  const closedDays = options.closedDays();
  const past = closedDays > 0 && { closedDays };
  const isOurs = options.journal?.wrongDatabase !== true;
  if (writable === true && isOurs) return ready({ success: true, status: 'ready', ...engine, ...journal, ...past });
  const refusal = writable === null ? NO_DATABASE : READ_ONLY;
  const trouble = isOurs ? refusal : WRONG_DATABASE;
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
