/** What a group of events adds to the counts of declared fields: one delta for each field, value, type and minute. */
import { MINUTE_MS } from '../counts/levels.ts';
import type { EventRow } from '../write/accepted-event.ts';
import type { CopyMessages } from '../write/copy-messages.ts';
import type { DeclaredFields } from './declared-fields.ts';

/** The table that takes the deltas, with the columns that are written. */
export const FIELD_DELTAS = 'field_deltas (app_id, field_id, type_id, bucket, count, value)';

export interface FieldDelta {
  readonly appId: number;
  readonly fieldId: number;
  readonly typeId: number;
  /** The minute's start, milliseconds since 1970. */
  readonly bucket: number;
  /** See value-text.ts. */
  readonly value: string;
  count: number;
}

/** Adds up deltas. */
export class FieldDeltas {
  readonly #deltas = new Map<string, FieldDelta>();

  add(appId: number, fieldId: number, typeId: number, minute: number, value: string, count = 1): void {
    const key = `${fieldId} ${typeId} ${minute} ${value}`;
    const known = this.#deltas.get(key);
    if (known !== undefined) known.count += count;
    else this.#deltas.set(key, { appId, fieldId, typeId, bucket: minute * MINUTE_MS, value, count });
  }

  /** Adds the values of an event's fields. */
  addEvent(fields: Pick<DeclaredFields, 'of'>, event: EventRow): void {
    const ofApp = fields.of(event.appId);
    if (ofApp === undefined) return;
    const minute = Math.floor(event.createdAt / MINUTE_MS);
    const values = ofApp.values.read(event.payload);
    for (const [index, { id, typeId, kind }] of ofApp.fields.entries()) {
      const value = values[index] ?? null;
      if (value === null || kind !== 'value' || (typeId !== null && typeId !== event.typeId)) continue;
      this.add(event.appId, id, event.typeId, minute, value);
    }
  }

  /** Those that are not 0. */
  list(): FieldDelta[] {
    return [...this.#deltas.values()].filter(({ count }) => count !== 0);
  }
}

/** Whether some of the events are of an app with declared fields. */
export function haveFields(events: readonly EventRow[], fields: DeclaredFields): boolean {
  return fields.generation > 0 && events.some(({ appId }) => fields.of(appId) !== undefined);
}

export function copyFieldDeltas(
  events: readonly EventRow[],
  fields: DeclaredFields,
  into: CopyMessages,
): void {
  const deltas = new FieldDeltas();
  for (const event of events) deltas.addEvent(fields, event);
  for (const delta of deltas.list()) into.fieldDeltaRow(delta);
}
