/** A commit group as one write to the socket: a COPY of the rows and a COPY of their changes of the counts. */
import { type EventRow, sizeOf } from './accepted-event.ts';
import { CopyMessages } from './copy-messages.ts';
import type { EngineWrites } from './engine-writes.ts';
import { EVENT_COLUMNS } from './insert-events.ts';

/** Of a row, without its payload. */
const ROW_BYTES = 54;

/** COPY commands of a group. If they are an implicit transaction, it is committed when the last of them completes. */
export const COPY_COMMANDS = 2;

/**
 * Messages for {@link CopyConnection.copy}. Outside of a transaction block the two commands are one implicit transaction:
 * a failure of either stores nothing.
 */
export function copyGroup(engine: EngineWrites, events: readonly EventRow[]): Buffer {
  const messages = new CopyMessages(sizeOf(events) + ROW_BYTES * events.length + 1_024);
  messages.query(
    `COPY events (${EVENT_COLUMNS}) FROM STDIN (FORMAT binary);COPY ${engine.changes} FROM STDIN (FORMAT binary)`,
  );
  messages.beginRows();
  for (const event of events) messages.eventRow(event);
  messages.endRows();
  messages.beginRows();
  engine.copyChanges(events, messages);
  messages.endRows();
  return messages.bytes;
}
