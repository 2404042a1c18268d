/** A commit group as one write to the socket: a COPY of the rows, and COPYs of their changes of the counts. */
import { copyFieldDeltas, FIELD_DELTAS, haveFields } from '../fields/copy-values.ts';
import type { DeclaredFields } from '../fields/declared-fields.ts';
import { type EventRow, sizeOf } from './accepted-event.ts';
import { CopyMessages } from './copy-messages.ts';
import type { EngineWrites } from './engine-writes.ts';
import { EVENT_COLUMNS } from './insert-events.ts';

/** Of a row, without its payload. */
const ROW_BYTES = 54;

/** A group as one query of COPY commands, for {@link CopyConnection.copy}. */
export interface CopyGroup {
  readonly messages: Buffer;
  /** Their number. If they are an implicit transaction, it is committed when the last of them completes. */
  readonly commands: number;
  /** To be called once when the server has answered that it has all of it. */
  readonly release: () => void;
}

/** What a group consists of: its rows, what they change in the counts of events, and in those of fields. */
export type Part = 'rows' | 'changes' | 'values';
const ALL: readonly Part[] = ['rows', 'changes', 'values'];

/**
 * Outside of a transaction block the commands are one implicit transaction: a failure of any of them stores nothing.
 * @param fields those whose values are counted; absent: what the group changes in their counts is left to maintenance
 * @param parts  absent: all; what is left out is to be written in the same transaction
 */
export function copyGroup(
  engine: EngineWrites,
  events: readonly EventRow[],
  fields?: DeclaredFields,
  parts = ALL,
): CopyGroup {
  const withRows = parts.includes('rows');
  const withChanges = parts.includes('changes');
  const stamp = fields === undefined || fields.generation === 0 ? null : fields.generation;
  const withFields = parts.includes('values') && fields !== undefined && haveFields(events, fields);
  const tables = [
    ...(withRows ? [`events (${EVENT_COLUMNS})`] : []),
    ...(withChanges ? [stamp === null ? engine.changes : engine.stampedChanges] : []),
    ...(withFields ? [FIELD_DELTAS] : []),
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
    engine.copyChanges(events, messages, stamp);
    messages.endRows();
  }
  if (withFields) {
    messages.beginRows();
    copyFieldDeltas(events, fields, messages);
    messages.endRows();
  }
  return { messages: messages.bytes, commands: tables.length, release: () => messages.release() };
}
