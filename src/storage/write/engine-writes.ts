/** How rows are written: what engines do differently, and a commit group as one write to the socket. */

import type { CopyGroup, WriteConnection } from '../database/copy-connection.ts';
import { EVENT_COLUMNS, type EventRow, sizeOf } from './accepted-event.ts';
import { CopyMessages } from './copy-messages.ts';

/**
 * The transaction that stores rows also writes their changes of the counts, so that every snapshot has both or neither.
 */
export interface EngineWrites {
  /** The table for changes of the counts, with its columns. */
  readonly changes: string;
  /** The changes of events, for a COPY. */
  readonly changesOf: (events: readonly EventRow[]) => CopiedChanges;
  /** All tables that changes are written into. */
  readonly changeTables: readonly string[];
  /**
   * Counts events of one app, in order of time. What it returns adds them to the counts themselves, in the transaction of their
   * rows, in place of their changes: for writers of many events at once. Absent: nothing is cheaper than changes.
   */
  readonly countDirectly?: (
    appId: number,
    events: readonly EventRow[],
  ) => (connection: WriteConnection) => Promise<void>;
  /** SELECT of the changes of the rows in `inserted` (app_id, type_id, created_at). */
  readonly deltasOfInserted: string;
  /**
   * SELECT of the changes of the rows in `erased` (app_id, type_id, created_at).
   * @param counted what a row adds to the counts of events: -1 where it is gone, 0 where only its payload is another one
   */
  readonly changesOfErased: (counted: -1 | 0) => string;
  /** SELECT that makes room for events of the days `$1::date[]`, as wide as their age allows. */
  readonly createPartitions: string;
  /** True if rows without room do not fail: then room for past days has to be made before them. */
  readonly createsPartitionsAhead: boolean;
  /** SELECT of those of the days `$1::date[]`, as texts, whose rows another session has locked or waits to lock. */
  readonly lockedDays: string;
  /** A condition for rows of `events` that the current transaction has copied, in an interval that is copied by it alone. */
  readonly copiedNow: string;
  /** Whether each statement may insert into one table only, so that it needs the node of its rows alone. */
  readonly singleNodeStatements: boolean;
  /** Whether the cause of a failed COPY is not what its SQLSTATE says. */
  readonly hidesFailure?: (error: unknown) => boolean;
  /** Settings of every session that writes. */
  readonly session: Readonly<Record<string, string>>;
}

/** Changes of the counts as rows of a COPY. */
export interface CopiedChanges {
  /** Their table, with its columns. */
  readonly table: string;
  readonly copy: (into: CopyMessages) => void;
}

/** Locks of other sessions in this database, granted or requested: both come before one that is requested now. */
export const OF_OTHERS = `
  locktype = 'relation' AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

/** The modes that conflict with ROW EXCLUSIVE (PostgreSQL documentation, 13.3). */
export const AGAINST_ROWS = "'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'";

/** Size of a row without its payload, in bytes. */
const ROW_BYTES = 54;

/** What a group consists of: its rows, and what they change in the counts of events. */
export type Part = 'rows' | 'changes';
const ALL: readonly Part[] = ['rows', 'changes'];

/**
 * Outside of a transaction block the commands are one implicit transaction: a failure of any of them stores nothing.
 * @param parts absent: all; what is left out is to be written in the same transaction
 */
export function copyGroup(engine: EngineWrites, events: readonly EventRow[], parts = ALL): CopyGroup {
  const withRows = parts.includes('rows');
  const withChanges = parts.includes('changes');
  const changes = withChanges ? engine.changesOf(events) : null;
  const tables = [
    ...(withRows ? [`events (${EVENT_COLUMNS})`] : []),
    ...(changes !== null ? [changes.table] : []),
  ];
  const messages = new CopyMessages((withRows ? sizeOf(events) + ROW_BYTES * events.length : 0) + 1_024);
  messages.query(tables.map((table) => `COPY ${table} FROM STDIN (FORMAT binary)`).join(';'));
  if (withRows) {
    messages.beginRows();
    for (const event of events) messages.eventRow(event);
    messages.endRows();
  }
  if (changes !== null) {
    messages.beginRows();
    changes.copy(messages);
    messages.endRows();
  }
  return { messages: messages.bytes, commands: tables.length, release: () => messages.release() };
}
