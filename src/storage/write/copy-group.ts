/** A commit group as one write to the socket: a COPY of the rows, and one of their changes of the counts. */

import type { CopyGroup } from '../database/copy-connection.ts';
import { EVENT_COLUMNS, type EventRow, sizeOf } from './accepted-event.ts';
import { CopyMessages } from './copy-messages.ts';
import type { EngineWrites } from './engine-writes.ts';

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
  const tables = [
    ...(withRows ? [`events (${EVENT_COLUMNS})`] : []),
    ...(withChanges ? [engine.changes] : []),
  ];
  const messages = new CopyMessages((withRows ? sizeOf(events) + ROW_BYTES * events.length : 0) + 1_024);
  messages.query(tables.map((table) => `COPY ${table} FROM STDIN (FORMAT binary)`).join(';'));
  if (withRows) {
    messages.beginRows();
    for (const event of events) messages.eventRow(event);
    messages.endRows();
  }
  if (withChanges) {
    messages.beginRows();
    engine.copyChanges(events, messages);
    messages.endRows();
  }
  return { messages: messages.bytes, commands: tables.length, release: () => messages.release() };
}
