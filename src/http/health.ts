/** GET /livez: the process runs. GET /readyz: it can store and read right now, or, where asked for, acknowledge. */

import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
import type { Exchange, Outcome } from './exchange.ts';
import { json, type Operation, objectOf, type Schema } from './operation.ts';
import { Query, text } from './query.ts';
import type { Declaration, Route } from './route.ts';

export interface HealthOptions {
  readonly sql: Sql;
  /** Name and version of the database's engine. */
  readonly engine: string;
  /** True from the moment the stop has begun. */
  readonly isStopping: () => boolean;
  /** False while the database is known not to answer: then it is not asked. */
  readonly isReachable: () => boolean;
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

const common = {
  tag: 'Service',
  token: null,
  isLimited: false,
  refusals: [],
} as const satisfies Partial<Operation>;

const JOURNAL: Schema = objectOf(
  { takesEvents: { type: 'boolean' }, waitingEvents: { type: 'integer', minimum: 0 } },
  { title: 'JournalState', description: 'With `JOURNAL_DIR`.' },
);

export const LIVEZ: Declaration = {
  method: 'GET',
  path: '/livez',
  headers: [],
  isEssential: true,
  operation: {
    ...common,
    id: 'getLiveness',
    summary: 'Ask whether the process runs.',
    answers: {
      200: json('It runs.', objectOf({ success: { const: true }, status: { const: 'live' } })),
    },
  },
};

const READINESS_QUERY = new Query({
  for: text('`writing` also accepts a journal that takes events while the database is unavailable.', {
    convert: (purpose) => purpose,
  }),
});

export const READYZ: Declaration = {
  method: 'GET',
  path: '/readyz',
  headers: [],
  isEssential: true,
  operation: {
    ...common,
    id: 'getReadiness',
    summary: 'Ask whether the service can store and read now.',
    query: READINESS_QUERY,
    answers: {
      200: json(
        'It can; or, for writing, it accepts events into the journal.',
        objectOf(
          {
            success: { const: true },
            status: { enum: ['ready', 'journaling'] },
            engine: { type: 'string' },
            journal: JOURNAL,
          },
          { optional: ['journal'] },
        ),
      ),
      503: json(
        'It cannot, or it is stopping.',
        objectOf(
          {
            success: { const: false },
            error: { type: 'string' },
            details: { type: 'string' },
            code: { const: 'UNAVAILABLE' },
            journal: JOURNAL,
          },
          { optional: ['journal'] },
        ),
      ),
    },
  },
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
      ...LIVEZ,
      handle: async () => ({ status: 200, body: '{"success":true,"status":"live"}' }),
    },
    {
      ...READYZ,
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
  if (writable === true && isOurs) return ready({ success: true, status: 'ready', ...engine, ...journal });
  const refusal = writable === null ? NO_DATABASE : READ_ONLY;
  const trouble = isOurs ? refusal : WRONG_DATABASE;
  if (options.journal?.takesEvents !== true)
    return new Rejection('unavailable', trouble, journal === null ? {} : { fields: journal });
  const query = READINESS_QUERY.parse(exchange.query);
  if (!(query instanceof Rejection) && query.for === 'writing')
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
