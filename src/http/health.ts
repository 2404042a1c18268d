/** GET /livez: the process runs. GET /readyz: it can store and read now or, with `?for=writing`, accept events. */

import { withTimeout } from '../base/timeout.ts';
import { Rejection } from '../errors.ts';
import type { Release } from '../process/version.ts';
import type { Sql } from '../storage/database/connect.ts';
import { type DatabaseProblem, PROBLEM_TEXTS } from '../storage/database/server-watch.ts';
import type { Exchange, Outcome } from './exchange.ts';
import { json, type Operation, objectOf } from './operation.ts';
import { Query, type Schema, text } from './query.ts';
import type { Declaration, Route } from './route.ts';

export interface HealthOptions {
  readonly sql: Sql;
  readonly release: Release;
  /** Name and version of the database's engine. */
  readonly engine: string;
  /** True once the stop has begun. */
  readonly isStopping: () => boolean;
  /** False while the database is known to be unreachable: then no query is sent. */
  readonly isReachable: () => boolean;
  /** False while it is known to take no events of now, whatever it answers. */
  readonly takesEvents: () => boolean;
  /** Past days that take no events now, though all is well otherwise. */
  readonly closedDays: () => number;
  /** False while requests with an Idempotency-Key are refused, though all is well otherwise. */
  readonly acceptsIdempotencyKeys: () => boolean;
  /** Why the server that responds is not used, or takes no events; null if it does, or none responds. */
  readonly problem: () => DatabaseProblem | null;
  /** Names of the nodes of a cluster that do not answer, though all is well otherwise. */
  readonly nodesAway: () => readonly string[];
  /** What is wrong with the clocks, as {@link CLOCKS} describes it, though all is well otherwise; null: nothing. */
  readonly clocks: () => { databaseSeconds: number; jumpSeconds: number } | null;
  /** Null without JOURNAL_DIR. */
  readonly journal: JournalHealth | null;
}

export interface JournalHealth {
  /** True while it accepts events that the database cannot store. */
  readonly takesEvents: boolean;
  /** True while the database belongs to another installation. */
  readonly wrongDatabase: boolean;
  readonly stats: { readonly waitingEvents: number };
}

/** Timeout of the query: after it the database counts as unreachable. */
const PROBE_TIMEOUT_MS = 900;

const STOPPING = new Rejection('unavailable', 'The service is stopping.');
const NO_DATABASE = 'The database cannot be reached.';
const TAKES_NO_EVENTS = 'The database takes no events now; the log says why.';

const common = {
  tag: 'Service',
  token: null,
  isLimited: false,
  refusals: [],
} as const satisfies Partial<Operation>;

const CLOSED_DAYS: Schema = {
  type: 'integer',
  minimum: 1,
  description: 'Past days (UTC) whose events are refused now.',
};
const ACCEPTS_IDEMPOTENCY_KEYS: Schema = {
  const: false,
  description: 'Requests with an `Idempotency-Key` are refused now: their table is locked.',
};
const NODES_AWAY: Schema = {
  type: 'array',
  minItems: 1,
  items: { type: 'string' },
  description:
    'Nodes of the database cluster that do not answer, or are not used as they would lose events: requests for their apps are refused now.',
};
const CLOCKS: Schema = objectOf(
  {
    databaseSeconds: {
      type: 'integer',
      description: "How far the database's clock is ahead of the service's; 0: a minute at most.",
    },
    jumpSeconds: { type: 'integer', description: 'How far the clocks have jumped ahead; 0: they have not.' },
  },
  { title: 'ClockDoubt', description: 'A clock is wrong or has jumped: what is deleted by time waits.' },
);
const JOURNAL: Schema = objectOf(
  { takesEvents: { type: 'boolean' }, waitingEvents: { type: 'integer', minimum: 0 } },
  { title: 'JournalState', description: 'With `JOURNAL_DIR`.' },
);

export const LIVEZ: Declaration = {
  method: 'GET',
  path: '/livez',
  headers: [],
  exemptFromLoadShedding: true,
  operation: {
    ...common,
    id: 'getLiveness',
    summary: 'Ask whether the process runs.',
    answers: {
      200: json(
        'It runs.',
        objectOf({
          success: { const: true },
          status: { const: 'live' },
          version: { type: 'string' },
          commit: { type: ['string', 'null'], description: 'What it was built from, if that is known.' },
        }),
      ),
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
  exemptFromLoadShedding: true,
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
            closedDays: CLOSED_DAYS,
            acceptsIdempotencyKeys: ACCEPTS_IDEMPOTENCY_KEYS,
            nodesAway: NODES_AWAY,
            clocks: CLOCKS,
          },
          { optional: ['journal', 'closedDays', 'acceptsIdempotencyKeys', 'nodesAway', 'clocks'] },
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
            docs: { type: 'string' },
            journal: JOURNAL,
          },
          { optional: ['docs', 'journal'] },
        ),
      ),
    },
  },
};

/** The two routes for supervisors and load balancers. */
export function healthRoutes(options: HealthOptions): readonly Route[] {
  // The route is public: concurrent requests share one query, so that they cannot keep the database busy.
  let asking: Promise<boolean | null> | null = null;
  const isWritable = (): Promise<boolean | null> => {
    asking ??= probe(options.sql).finally(() => {
      asking = null;
    });
    return asking;
  };
  const live: Outcome = {
    status: 200,
    body: JSON.stringify({ success: true, status: 'live', ...options.release }),
  };
  return [
    {
      ...LIVEZ,
      handle: async () => live,
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
  const keys = !options.acceptsIdempotencyKeys() && { acceptsIdempotencyKeys: false };
  const nodesAway = options.nodesAway();
  const nodes = nodesAway.length > 0 && { nodesAway };
  const doubt = options.clocks();
  const clocks = doubt !== null && { clocks: doubt };
  const isOurs = options.journal?.wrongDatabase !== true;
  const met = options.problem();
  if (writable === true && isOurs && met === null)
    return ready({
      success: true,
      status: 'ready',
      ...engine,
      ...journal,
      ...past,
      ...keys,
      ...nodes,
      ...clocks,
    });
  const refused = answers === true ? TAKES_NO_EVENTS : PROBLEM_TEXTS['read-only'];
  const refusal = writable === null ? NO_DATABASE : refused;
  const problem = isOurs ? (met === null ? refusal : PROBLEM_TEXTS[met]) : PROBLEM_TEXTS.foreign;
  if (options.journal?.takesEvents !== true)
    return new Rejection('unavailable', problem, journal === null ? {} : { fields: journal });
  const query = READINESS_QUERY.parse(exchange.query);
  if (!(query instanceof Rejection) && query.for === 'writing')
    return ready({ success: true, status: 'journaling', ...engine, ...journal });
  const details = `${problem} Events are accepted into the journal; nothing can be read.`;
  return new Rejection('unavailable', details, { fields: journal ?? {} });
}

function ready(fields: object): Outcome {
  return { status: 200, body: JSON.stringify(fields) };
}

/** Whether the database accepts writes; null if it does not respond. */
async function probe(sql: Sql): Promise<boolean | null> {
  const answer = sql<{ writable: boolean }[]>`
    SELECT current_setting('transaction_read_only') = 'off' AS writable`.then(
    ([row]) => row?.writable ?? false,
    () => null, // The requests that need the database log the cause.
  );
  return await withTimeout(answer, PROBE_TIMEOUT_MS, null);
}
