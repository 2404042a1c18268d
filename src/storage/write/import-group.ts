/**
 * A group of imported events of one app. Their rows are built as they are read, in the form in which they are copied: no text is
 * made of a payload unless the group cannot be stored as it is.
 */

import type { CopyGroup } from '../database/copy-connection.ts';
import { EVENT_COLUMNS, type EventRow } from './accepted-event.ts';
import { CopyMessages, idOf, payloadOf, type TextBytes } from './copy-messages.ts';

/** Size of a group: larger ones are no faster. */
const MOST_EVENTS = 10_000;
const MOST_BYTES = 4 * 1_048_576;
/** Room for a group to begin with. */
const USUAL_BYTES = 2 * 1_048_576;

/** An event with the number of its line. */
export interface ImportedEvent extends EventRow {
  readonly line: number;
}

type Head = Omit<ImportedEvent, 'id' | 'payload'>;

/** A row of a group, as an event. Valid until the group is released. */
class ImportedRow implements ImportedEvent {
  readonly appId: number;
  readonly typeId: number;
  readonly createdAt: number;
  readonly line: number;
  readonly #group: ImportGroup;
  /** Where it begins in the bytes of the group. */
  at: number;

  constructor(group: ImportGroup, { appId, typeId, createdAt, line }: Head, at: number) {
    this.appId = appId;
    this.typeId = typeId;
    this.createdAt = createdAt;
    this.line = line;
    this.#group = group;
    this.at = at;
  }

  get id(): string {
    return idOf(this.#group.bytes, this.at);
  }

  get payload(): string {
    const { bytes, start, end } = payloadOf(this.#group.bytes, this.at);
    return bytes.toString('utf8', start, end);
  }
}

export class ImportGroup {
  #messages = beginRows(USUAL_BYTES);
  readonly #events: ImportedRow[] = [];
  #isInOrder = true;

  /** In order of time once the group has ended. */
  get events(): readonly ImportedEvent[] {
    return this.#events;
  }

  get isFull(): boolean {
    return this.#events.length >= MOST_EVENTS || this.#messages.length >= MOST_BYTES;
  }

  /** What is to be sent. */
  get bytes(): Buffer {
    return this.#messages.bytes;
  }

  /** @param id its bytes */
  add(event: Head, id: Uint8Array, payload: TextBytes): void {
    const last = this.#events.at(-1);
    if (last !== undefined && event.createdAt < last.createdAt) this.#isInOrder = false;
    this.#events.push(new ImportedRow(this, event, this.#messages.eventRowOfBytes(event, id, payload)));
  }

  /** Ends the group. @returns all of its events in order of time, as one query */
  end(): CopyGroup {
    if (!this.#isInOrder) this.#sort();
    this.#messages.endRows();
    return { messages: this.bytes, commands: 1, release: () => undefined };
  }

  /** Gives the memory back, after the group was stored. */
  release(): void {
    this.#messages.release();
  }

  #sort(): void {
    this.#events.sort((a, b) => a.createdAt - b.createdAt);
    const { bytes } = this;
    const sorted = beginRows(bytes.length);
    for (const event of this.#events) event.at = sorted.sameEventRow(bytes, event.at);
    this.#messages.release();
    this.#messages = sorted;
  }
}

function beginRows(bytes: number): CopyMessages {
  const messages = new CopyMessages(bytes);
  messages.query(`COPY events (${EVENT_COLUMNS}) FROM STDIN (FORMAT binary)`);
  messages.beginRows();
  return messages;
}
