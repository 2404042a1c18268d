/**
 * What events add to the counts of declared fields: one delta for each field, value, type and minute; of a field
 * about numbers one for each type and minute.
 */
import { MINUTE_MS } from '../counts/levels.ts';
import type { EventRow } from '../write/accepted-event.ts';
import type { AppFields } from './declared-fields.ts';
import { NumberSummary } from './numbers/number-summary.ts';
import { MANY, NUMBERS } from './value-text.ts';

/** The table that takes the deltas, with the columns that are written. */
export const FIELD_DELTAS = 'field_deltas (app_id, field_id, type_id, bucket, count, value, numbers)';

export interface FieldDelta {
  readonly appId: number;
  readonly fieldId: number;
  readonly typeId: number;
  /** The minute's start, milliseconds since 1970. */
  readonly bucket: number;
  /** See value-text.ts. */
  readonly value: string;
  count: number;
  /** Of a field about numbers; its count is in it, and `count` is 0. */
  readonly numbers: NumberSummary | null;
}

/** Adds up deltas. */
export class FieldDeltas {
  readonly #deltas = new Map<string, FieldDelta>();

  add(appId: number, fieldId: number, typeId: number, minute: number, value: string, count = 1): void {
    const key = `${fieldId} ${typeId} ${minute} ${value}`;
    const known = this.#deltas.get(key);
    if (known !== undefined) known.count += count;
    else
      this.#deltas.set(key, {
        ...{ appId, fieldId, typeId, bucket: minute * MINUTE_MS, value, count },
        numbers: null,
      });
  }

  /** The numbers of a field in events of a type and minute. */
  numbersOf(appId: number, fieldId: number, typeId: number, minute: number): NumberSummary {
    const key = `${fieldId} ${typeId} ${minute}`;
    const known = this.#deltas.get(key)?.numbers;
    if (known) return known;
    const numbers = new NumberSummary();
    const bucket = minute * MINUTE_MS;
    this.#deltas.set(key, { appId, fieldId, typeId, bucket, value: NUMBERS, count: 0, numbers });
    return numbers;
  }

  /** Adds the values of an event's fields. */
  addEvent(fields: { of(appId: number): AppFields | undefined }, event: EventRow): void {
    const ofApp = fields.of(event.appId);
    if (ofApp === undefined) return;
    const minute = Math.floor(event.createdAt / MINUTE_MS);
    const values = ofApp.values.read(event.payload);
    for (const [index, { id, typeId, kind }] of ofApp.fields.entries()) {
      const value = values[index] ?? null;
      if (value === null || (typeId !== null && typeId !== event.typeId)) continue;
      if (kind === 'value') {
        this.add(event.appId, id, event.typeId, minute, value);
        continue;
      }
      const numbers = this.numbersOf(event.appId, id, event.typeId, minute);
      if (value === MANY) numbers.addSeveral();
      else numbers.addNumber(value);
    }
  }

  /** Those that change something. */
  list(): FieldDelta[] {
    return [...this.#deltas.values()].filter(({ count, numbers }) =>
      numbers === null ? count !== 0 : !numbers.isEmpty,
    );
  }
}
