/** What the failure of a write means, and how long it is retried. */
import pg from 'pg';
import { Rejection } from '../../errors.ts';
import { ConnectionLost, type ConnectionTimeouts } from '../database/copy-connection.ts';
import { DISK_IS_FULL, errorCode } from '../database/error-codes.ts';
import { daysAwayOf } from './days-away.ts';

/** What a failure of a commit group means. */
export type Failure =
  /** A retry may succeed. */
  | 'transient'
  /** The partition of a day is missing: create it, then retry. */
  | 'missing-partition'
  /** It could not be created, and a retry would not help. */
  | 'no-partition'
  /** Another session holds a lock, or the statement was canceled: nothing was stored. */
  | 'blocked'
  /** A row exists: an earlier try was committed. */
  | 'duplicate'
  /** Days of some events are in the archive, and events that may be stored already have to wait until they are back: nothing was stored. */
  | 'away'
  /** One event of the group can never be stored: halve the group. */
  | 'data'
  /** The connection was lost, so it is unknown whether the group was committed. */
  | 'lost'
  /** PostgreSQL cannot be reached, or takes no writes now: nothing was stored. */
  | 'unreachable'
  /** Nothing that a retry could fix. */
  | 'fault';

/** SQLSTATE or its prefix → what it means (PostgreSQL documentation, appendix A). */
const FAILURES: Readonly<Record<string, Failure>> = {
  '08': 'lost', // connection exception: of the server that was asked to another node of its cluster
  '08P01': 'fault', // protocol_violation
  '22': 'data', // data exception
  '23': 'data', // integrity constraint violation
  '23505': 'duplicate', // unique_violation
  '25006': 'unreachable', // read_only_sql_transaction: a failover is under way
  '40': 'transient', // transaction rollback: serialization failure, deadlock
  '53': 'unreachable', // insufficient resources: disk full, out of memory, too many connections
  '42501': 'unreachable', // insufficient_privilege: it may be granted again
  '54': 'data', // program limit exceeded
  '55006': 'transient', // object_in_use
  '55P03': 'blocked', // lock_not_available: lock_timeout
  '57': 'transient', // operator intervention
  '57014': 'blocked', // query_canceled: by statement_timeout, by us or by an operator
  '57P': 'unreachable', // shutting down, starting up
  '58': 'unreachable', // system error: an I/O error
};

/** What a failed statement means. */
export function classify(error: unknown): Failure {
  if (error instanceof ConnectionLost) return error.sent ? 'lost' : 'unreachable';
  if (daysAwayOf(error) !== null) return 'away';
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return 'fault';
  // A missing partition has the SQLSTATE of a CHECK constraint, but no constraint is named.
  if (error.code === '23514' && error.constraint === undefined) return 'missing-partition';
  const { code } = error;
  return FAILURES[code] ?? FAILURES[code.slice(0, 3)] ?? FAILURES[code.slice(0, 2)] ?? 'fault';
}

/** What an error says, or else its code. */
export function messageOf(error: unknown): string {
  return error instanceof Error && error.message !== '' ? error.message : errorCode(error) || String(error);
}

/** How long a group is retried, in milliseconds. */
export interface WriteTimeouts extends ConnectionTimeouts {
  /** While PostgreSQL cannot be reached or takes no writes, and nothing of the group is stored. */
  readonly unreachableMs: number;
  /** While another session holds a lock, and nothing of the group is stored. */
  readonly blockedMs: number;
  /** After any other failure. */
  readonly retryMs: number;
}

/** Without a journal: an outage is reported within a second, an uncertain commit is retried for longer than a restart takes. */
export const REFUSING: WriteTimeouts = {
  pool: 'write',
  connectMs: 700,
  answerMs: 10_000,
  lockMs: 1_500,
  unreachableMs: 700,
  blockedMs: 1_500,
  retryMs: 12_000,
};
/** With a journal, which takes groups that are given up: its replay settles whether an uncertain one was committed. */
export const JOURNALING: WriteTimeouts = {
  pool: 'journaled write',
  connectMs: 1_000,
  answerMs: 1_500,
  lockMs: 1_000,
  unreachableMs: 100,
  blockedMs: 300,
  retryMs: 300,
};
/** For a replay, which no client waits for. */
export const REPLAYING: WriteTimeouts = {
  pool: 'replay',
  connectMs: 1_000,
  // Shorter than the deadline of a shutdown.
  answerMs: 10_000,
  lockMs: 1_000,
  unreachableMs: 0,
  blockedMs: 0,
  retryMs: 1_000,
};
/**
 * For events of past days: many days share few connections, so a locked day is given up soon. Rows for the columnstore take
 * long.
 */
const OF_THE_PAST = { pool: 'write', answerMs: 10_000, lockMs: 500, blockedMs: 0 } as const;
export const REFUSING_PAST: WriteTimeouts = { ...REFUSING, ...OF_THE_PAST };
export const JOURNALING_PAST: WriteTimeouts = { ...JOURNALING, ...OF_THE_PAST };

/** How long a group is retried after a failure, in milliseconds since its first try. */
export function timeoutMs(
  { unreachableMs, blockedMs, retryMs }: WriteTimeouts,
  failure: Failure,
  uncertain: boolean,
): number {
  if (failure === 'no-partition') return 0;
  if (uncertain) return retryMs;
  if (failure === 'blocked') return blockedMs;
  return failure === 'unreachable' ? unreachableMs : retryMs;
}

/** Delay before a retry: doubled from one to the next. */
const BACKOFF_MS = { first: 20, most: 500 } as const;

/** Waits before a retry. @param retries so far */
export async function backOff(retries: number): Promise<void> {
  const ms = Math.min(BACKOFF_MS.first * 2 ** retries, BACKOFF_MS.most);
  await new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

export const UNAVAILABLE = new Rejection('unavailable', 'The event could not be stored; try again shortly.');
export const DISK_FULL = new Rejection('unavailable', DISK_IS_FULL);
export const NODE_UNREACHABLE = new Rejection(
  'unavailable',
  'The part of the database that holds this app does not answer; try again shortly.',
);
export const DAY_AWAY = new Rejection(
  'unavailable',
  'The day of this event is in the archive, and it may be stored there already: the day is being brought back, try again shortly.',
);
export const OUTCOME_UNKNOWN = new Rejection(
  'outcomeUnknown',
  'The connection to the database was lost during the commit: the event may be stored.',
);
export const NO_PARTITION = new Rejection(
  'invalidBody',
  'The database has no partition for the time of this event, and none can be made: ask the operator of the service.',
);
export const POISON = new Rejection('invalidBody', 'The database refuses this event.');
export const FAULT = new Rejection('internalError', 'The event could not be stored; the log has the cause.');
