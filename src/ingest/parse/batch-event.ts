/** The events of a batch. A refusal says what is wrong with an event. */
import { Ajv } from 'ajv';
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { ownText } from '../../base/own-text.ts';
import { invalidField, Rejection } from '../../errors.ts';
import type { JsonScan } from '../../json/scan.ts';
import { parseEventTime } from '../event-time.ts';
import { keyProblem, payloadText, type TypeFields, typeReference, violation } from './event-body.ts';

/** An event that fulfills {@link EVENT_SCHEMA}. */
interface Event {
  readonly payload: object;
  readonly typeId?: string | null;
  readonly createdAt?: string | null;
  readonly key?: string | null;
  readonly typeName?: unknown;
  readonly type?: unknown;
}

/** What is checked of an event of a batch. */
export const EVENT_SCHEMA = {
  type: 'object',
  required: ['payload'],
  properties: {
    typeId: { type: ['string', 'null'] },
    payload: { type: 'object', additionalProperties: true },
    createdAt: { type: ['string', 'null'] },
    key: { type: ['string', 'null'] },
    // No typeName: next to a typeId it is ignored, whatever its value.
  },
} as const;

const isEvent = new Ajv({ strict: true, allowUnionTypes: true }).compile<Event>(EVENT_SCHEMA);

/**
 * The types that a batch refers to: one object per name or id, so that events are grouped by identity instead of by text.
 */
export class TypeReferences {
  readonly #byId = new Map<string, TypeReference>();
  readonly #byName = new Map<string, TypeReference>();

  /** The type that the fields of an event refer to, or what is wrong with them. */
  of(fields: TypeFields): TypeReference | Rejection {
    // Only valid ones are known.
    const isNamed = typeof fields.typeId !== 'string' || fields.typeId === '';
    const sent = isNamed ? fields.typeName || fields.type : fields.typeId;
    const known = isNamed ? this.#byName : this.#byId;
    const found = typeof sent === 'string' ? known.get(sent) : undefined;
    if (found !== undefined) return found;
    const reference = typeReference(fields);
    if (reference instanceof Rejection) return reference;
    const name = 'typeId' in reference ? reference.typeId : reference.typeName;
    // Caches keep these strings for long: a copy does not keep the whole body in memory.
    const own = ownText(name);
    const made = isNamed ? { typeName: own } : { typeId: own };
    known.set(own, made);
    return made;
  }

  /** The type of a name. @returns the refusal of the field that has it, where no type can have it */
  ofField(field: string, name: string): TypeReference | Rejection {
    return (
      this.named(name) ??
      invalidField(field, eventTypeNameProblem(name) ?? 'is not the name of an event type')
    );
  }

  /** The type of a name; null where no type can have it. */
  named(typeName: string): TypeReference | null {
    const reference = this.of({ typeName });
    return reference instanceof Rejection ? null : reference;
  }
}

export interface BatchEvent {
  /** One of the batch's {@link TypeReferences}. */
  readonly type: TypeReference;
  /** Milliseconds since 1970; null: now. */
  readonly createdAt: number | null;
  /** The time as its sender wrote it, where the other one also depends on when it was received ({@link FirstTimes}). */
  readonly sentTime?: number;
  /** The payload's own text, exactly as sent. */
  readonly payload: string;
  /** Together with `createdAt` it makes an event sent twice one event; null where it has none. */
  readonly key: string | null;
}

/**
 * The event that a scan for {@link EVENT_FIELDS} holds, or its refusal.
 * @param isTimeOptional whether a key may come without a time; it then identifies nothing
 */
export function batchEvent(
  scan: JsonScan,
  types: TypeReferences,
  { isTimeOptional = false }: { readonly isTimeOptional?: boolean } = {},
): BatchEvent | Rejection {
  const event = scan.fields();
  if (!isEvent(event)) return violation(isEvent.errors?.[0], 'event');
  const type = types.of(event);
  if (type instanceof Rejection) return type;
  const createdAt = event.createdAt ? parseEventTime(event.createdAt) : null;
  if (typeof createdAt === 'string') return invalidField('createdAt', createdAt);
  const key = isTimeOptional && createdAt === null ? null : event.key || null;
  const problem = key === null ? null : keyProblem(key, createdAt);
  if (problem !== null) return problem;
  const payload = payloadText(scan.text, scan);
  return payload instanceof Rejection ? payload : { type, createdAt, payload, key };
}
