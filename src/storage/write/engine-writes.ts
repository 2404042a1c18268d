/** What engines do differently when rows are written: how they are counted. */

import type { WriteConnection } from '../database/copy-connection.ts';
import type { EventRow } from './accepted-event.ts';
import type { CopyMessages } from './copy-messages.ts';

/**
 * The transaction that stores rows also writes their changes of the counts, so that every snapshot has both or neither.
 */
export interface EngineWrites {
  /** The table for changes of the counts, with its columns. */
  readonly changes: string;
  /** Writes the changes of events as rows of a COPY into that table. */
  readonly copyChanges: (events: readonly EventRow[], into: CopyMessages) => void;
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
