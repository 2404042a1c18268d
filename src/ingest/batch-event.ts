/** One event of a batch: text → event, or the refusal that says what is wrong with it. */
import { Ajv } from 'ajv';
import type { FromSchema } from 'json-schema-to-ts';
import { Rejection } from '../http/rejection.ts';
import { explain, payloadText, type TypeReference, typeReference } from './event-body.ts';
import { parseEventTime } from './event-time.ts';

const EVENT_SCHEMA = {
  type: 'object',
  required: ['payload'],
  properties: {
    typeId: { type: 'string', nullable: true },
    payload: { type: 'object' },
    createdAt: { type: 'string', nullable: true },
    // typeName is not here: where a typeId is given it is ignored, whatever it is.
  },
} as const;

const isEvent = new Ajv({ strict: true }).compile<FromSchema<typeof EVENT_SCHEMA>>(EVENT_SCHEMA);

export interface BatchEvent {
  readonly type: TypeReference;
  /** Milliseconds since 1970; null: now. */
  readonly createdAt: number | null;
  /** The payload's own text, exactly as sent. */
  readonly payload: string;
}

/**
 * Reads an event.
 * @param text what JSON.parse has made `value` of
 */
export function parseBatchEvent(text: string, value: unknown): BatchEvent | Rejection {
  if (!isEvent(value)) return invalid(explain(isEvent.errors?.[0], 'event'));
  const type = typeReference(value);
  if (type instanceof Rejection) return type;
  const createdAt = value.createdAt ? parseEventTime(value.createdAt) : null;
  if (typeof createdAt === 'string') return invalid(`The field "createdAt" ${createdAt}.`);
  const payload = payloadText(text);
  return payload instanceof Rejection ? payload : { type, createdAt, payload };
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
