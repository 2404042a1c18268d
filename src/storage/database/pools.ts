/**
 * The uses of connections to the database and their deadlines, in one table. The server ends a statement that takes too long,
 * so its connection stays usable. A connection is replaced only if the server does not respond to that either.
 */

import { DAY_MS, HOUR_MS } from '../../base/time-units.ts';

/** Session settings of every connection. */
export const SESSION_PARAMETERS = {
  timezone: 'UTC',
  // Partitions by day: a generic plan considers all of them (36 ms at 1,500), a custom one prunes first (0.2 ms).
  plan_cache_mode: 'force_custom_plan',
  synchronous_commit: 'on',
  jit: 'off',
  // Starting workers costs more (8 ms) than the small statements here could gain.
  max_parallel_workers_per_gather: '0',
} as const;

export interface Deadlines {
  /** `statement_timeout` of the session in milliseconds; 0: no timeout. */
  readonly statementMs: number;
  /** Milliseconds without a response after which a connection is replaced; a little more than {@link statementMs}. */
  readonly answerMs: number;
  /** `lock_timeout` of the session in milliseconds, where a lock must not keep its connection from others. */
  readonly lockMs?: number;
}

/** By the value of the metrics' label `pool`. */
export const DEADLINES = {
  /** Lookups of tokens, types and keys, for writers and readers. Requests have a shorter timeout. */
  lookups: { statementMs: 4_500, answerMs: 5_000, lockMs: 1_000 },
  /** Pages of events: a little less than a request may take by default. */
  reads: { statementMs: 25_000, answerMs: 26_000 },
  dashboard: { statementMs: 25_000, answerMs: 26_000 },
  /** Webhooks, alerts and their messages. */
  deliveries: { statementMs: 25_000, answerMs: 26_000 },
  live: { statementMs: 8_000, answerMs: 9_000 },
  /** Change notifications. */
  listen: { statementMs: 4_500, answerMs: 5_000 },
  /** Folding after a long outage, or creating an index, takes minutes; the connection is pinged separately. */
  maintenance: { statementMs: HOUR_MS, answerMs: HOUR_MS + 5_000 },
  /** Compression of chunks, which has no deadline. */
  'slow maintenance': { statementMs: 0, answerMs: DAY_MS },
  /** Commit groups without a journal. Large groups have longer (by the bytes of their rows). */
  write: { statementMs: 9_000, answerMs: 10_000 },
  /** Commit groups with a journal. */
  'journaled write': { statementMs: 1_200, answerMs: 1_500 },
  replay: { statementMs: 9_000, answerMs: 10_000 },
  /** The availability probe. */
  probe: { statementMs: 600, answerMs: 700 },
} as const satisfies Readonly<Record<string, Deadlines>>;

export type PoolKind = keyof typeof DEADLINES;

/** The use of a connection. */
export interface Purpose {
  /** Shown in pg_stat_activity. */
  readonly name: string;
  /** Null if no timeout is needed: in commands and tests. */
  readonly kind: PoolKind | null;
  /** The client enforces the deadlines of its statements itself, because large statements take long to send. */
  readonly keepsDeadline?: boolean;
  /** What the socket delivers is valid during the call alone, and is not read in any other way. */
  readonly readsInPlace?: boolean;
}

/** The startup options that set the session's timeouts; empty if it has none. A pooler passes them on or ignores them. */
export function sessionTimeouts(kind: PoolKind): string {
  const { statementMs, lockMs }: Deadlines = DEADLINES[kind];
  const timeouts = [
    statementMs === 0 ? '' : `-c statement_timeout=${statementMs}`,
    lockMs === undefined ? '' : `-c lock_timeout=${lockMs}`,
  ];
  return timeouts.join(' ').trim();
}
