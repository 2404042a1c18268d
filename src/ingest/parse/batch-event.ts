/** One event of a batch: text → event, or the refusal that says what is wrong with it. */
import { Ajv } from 'ajv';
import type { FromSchema } from 'json-schema-to-ts';
import type { TypeReference } from '../../apps/event-types.ts';
import { Rejection } from '../../errors.ts';
import { ownText } from '../../own-text.ts';
import { parseEventTime } from '../event-time.ts';
import { explain, payloadText, typeReference } from './event-body.ts';

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

/**
 * The types that a batch names, each once: what is the same name is the same object, so that thousands of events are
 * told apart by it without looking at their names again.
 */
export class TypeReferences {
  readonly #byId = new Map<string, TypeReference>();
  readonly #byName = new Map<string, TypeReference>();

  /** The same as {@link typeReference}; null for what that refuses. */
  named(typeId: string | null | undefined, typeName: string | null | undefined): TypeReference | null {
    const known = typeId ? this.#byId.get(typeId) : this.#byName.get(typeName ?? '');
    if (known !== undefined) return known;
    // Types are remembered for long.
    const reference = typeReference({
      typeId: typeId && ownText(typeId),
      typeName: typeName && ownText(typeName),
    });
    return reference instanceof Rejection ? null : this.same(reference);
  }

  same(reference: TypeReference): TypeReference {
    const known = 'typeId' in reference ? this.#byId : this.#byName;
    const name = 'typeId' in reference ? reference.typeId : reference.typeName;
    const found = known.get(name);
    if (found !== undefined) return found;
    known.set(name, reference);
    return reference;
  }
}

export interface BatchEvent {
  /** One of the batch's {@link TypeReferences}. */
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
export function parseBatchEvent(text: string, value: unknown, types: TypeReferences): BatchEvent | Rejection {
  if (!isEvent(value)) return invalid(explain(isEvent.errors?.[0], 'event'));
  const type = typeReference(value);
  if (type instanceof Rejection) return type;
  const createdAt = value.createdAt ? parseEventTime(value.createdAt) : null;
  if (typeof createdAt === 'string') return invalid(`The field "createdAt" ${createdAt}.`);
  const payload = payloadText(text);
  return payload instanceof Rejection ? payload : { type: types.same(type), createdAt, payload };
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
