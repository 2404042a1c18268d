/** What it means when a write fails, and how long it is tried again. */
import pg from 'pg';
import { Rejection } from '../../errors.ts';
import { ConnectionLost, type ConnectionTimeouts } from './copy-connection.ts';

/** What a failure of a commit group means. */
export type Failure =
  /** Worth another try as it is. */
  | 'transient'
  /** No partition holds one of the days: make it, then try again. */
  | 'missing-partition'
  /** A row is already there: an earlier try was committed after all. */
  | 'duplicate'
  /** One event of the group cannot be stored, whenever it is tried: halve the group. */
  | 'data'
  /** The connection is gone, and with it the knowledge whether the group was committed. */
  | 'lost'
  /** PostgreSQL cannot be reached, or takes no writes now: nothing was stored. */
  | 'unreachable'
  /** Nothing that a retry could fix. */
  | 'fault';

/** SQLSTATE, or how it begins → what to do (PostgreSQL documentation, appendix A). */
const FAILURES: Readonly<Record<string, Failure>> = {
  '22': 'data', // data exception
  '23': 'data', // integrity constraint violation
  '23505': 'duplicate', // unique_violation
  '25006': 'unreachable', // read_only_sql_transaction: a failover is under way
  '40': 'transient', // transaction rollback: serialization failure, deadlock
  '53': 'unreachable', // insufficient resources: disk full, out of memory, too many connections
  '42501': 'unreachable', // insufficient_privilege: the right may be given back
  '54': 'data', // program limit exceeded
  '55006': 'transient', // object_in_use
  '55P03': 'transient', // lock_not_available
  '57': 'transient', // operator intervention: cancel, lock timeout
  '57P': 'unreachable', // shutting down, starting up
  '58': 'unreachable', // system error: an I/O error
};

/** What a failed statement means. */
export function classify(error: unknown): Failure {
  if (error instanceof ConnectionLost) return error.sent ? 'lost' : 'unreachable';
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return 'fault';
  // The same SQLSTATE as a CHECK constraint's, but no constraint is named.
  if (error.code === '23514' && error.constraint === undefined) return 'missing-partition';
  const { code } = error;
  return FAILURES[code] ?? FAILURES[code.slice(0, 3)] ?? FAILURES[code.slice(0, 2)] ?? 'fault';
}

/** How long a group is tried, in milliseconds. */
export interface WriteTimeouts extends ConnectionTimeouts {
  /** While PostgreSQL cannot be reached or takes no writes, and nothing of the group is stored. */
  readonly unreachableMs: number;
  /** After any other failure. */
  readonly retryMs: number;
}

/** Where a group that is given up is refused: an outage is told within a second, a commit in doubt outlasts a restart. */
export const REFUSING: WriteTimeouts = {
  pool: 'write',
  connectMs: 700,
  answerMs: 10_000,
  unreachableMs: 700,
  retryMs: 12_000,
};
/** Where a group that is given up goes to the journal, which costs nothing: what is in doubt is settled at its replay. */
export const JOURNALING: WriteTimeouts = {
  pool: 'journaled write',
  connectMs: 1_000,
  answerMs: 1_500,
  unreachableMs: 100,
  retryMs: 300,
};
/** For a replay, which nobody waits for. */
export const REPLAYING: WriteTimeouts = {
  pool: 'replay',
  connectMs: 1_000,
  // Less than a stop may take.
  answerMs: 10_000,
  unreachableMs: 0,
  retryMs: 1_000,
};

/** How long a group is tried again after a failure, in milliseconds since its first try. */
export function timeoutMs(
  { unreachableMs, retryMs }: WriteTimeouts,
  failure: Failure,
  uncertain: boolean,
): number {
  return failure === 'unreachable' && !uncertain ? unreachableMs : retryMs;
}

/** Between two tries: doubled from one to the next. */
const BACKOFF_MS = { first: 20, most: 500 } as const;

/** Waits before the next try. @param retries so far */
export async function backOff(retries: number): Promise<void> {
  const ms = Math.min(BACKOFF_MS.first * 2 ** retries, BACKOFF_MS.most);
  await new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

export const UNAVAILABLE = new Rejection('unavailable', 'The event could not be stored; try again shortly.');
export const OUTCOME_UNKNOWN = new Rejection(
  'outcomeUnknown',
  'The connection to the database was lost during the commit: the event may be stored.',
);
export const POISON = new Rejection('invalidBody', 'The database refuses this event.');
export const FAULT = new Rejection('internalError', 'The event could not be stored; the log has the cause.');
