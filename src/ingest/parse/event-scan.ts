/** Reads a batch's usual events, those that {@link EventMembers} reads and in which all is good. */

import { parseEventTime } from '../event-time.ts';
import type { BatchEvent, TypeReferences } from './batch-event.ts';
import { EventMembers } from './fast-event-parser.ts';

export class EventScanner {
  /** Index behind the event that was read last. */
  end = 0;
  readonly #types: TypeReferences;
  readonly #maxLength: number;
  readonly #members = new EventMembers();

  /**
   * @param types     of the batch whose events are read
   * @param maxLength characters of an event beyond which it is not looked at: others wait meanwhile
   */
  constructor(types: TypeReferences, maxLength: number) {
    this.#types = types;
    this.#maxLength = maxLength;
  }

  /**
   * Reads the event that starts at `start`, as `parseBatchEvent` would; what follows it is not looked at.
   * @returns null, with `end` as it was, for what is unusual or wrong: parseBatchEvent says what of both
   */
  read(text: string, start: number): BatchEvent | null {
    const members = this.#members;
    const limit = Math.min(text.length, start + this.#maxLength);
    if (!members.read(text, start, limit) || members.payload === undefined) return null;
    const type = this.#types.named(members.typeId, members.typeName);
    const createdAt = members.createdAt ? parseEventTime(members.createdAt) : null;
    if (type === null || typeof createdAt === 'string') return null;
    this.end = members.end;
    return { type, createdAt, payload: members.payload };
  }
}
