/** Parses the events of a batch. A refusal says what is wrong with an event. */
import { Ajv } from 'ajv';
import type { TypeReference } from '../../apps/event-types.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { ownText } from '../../own-text.ts';
import { parseEventTime } from '../event-time.ts';
import {
  CHARACTERS_AT_ONCE,
  EVENT_FIELDS,
  fieldsOf,
  keyProblem,
  payloadText,
  SLICE_CHARACTERS,
  typeReference,
  violation,
} from './event-body.ts';
import { EventMembers } from './fast-event-parser.ts';
import { JsonScan } from './json-scan.ts';

/** An event that fulfills {@link EVENT_SCHEMA}. */
interface Event {
  readonly payload: object;
  readonly typeId?: string | null;
  readonly createdAt?: string | null;
  readonly key?: string | null;
  readonly typeName?: unknown;
  readonly type?: unknown;
}

/** What the strict path checks of an event of a batch. */
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

  /** Like {@link typeReference}; null if that refuses the names. */
  named(typeId: string | null | undefined, typeName: string | null | undefined): TypeReference | null {
    const known = typeId ? this.#byId.get(typeId) : this.#byName.get(typeName ?? '');
    if (known !== undefined) return known;
    // Caches keep these strings for long: copy them, so that they do not keep the whole body in memory.
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
  /** Together with `createdAt` it makes an event sent twice one event; null where it has none. */
  readonly key: string | null;
}

/** Parses the events of a batch one by one. */
export class BatchEventParser {
  /** Index after the last parsed event. */
  end = 0;
  readonly #types: TypeReferences;
  readonly #maxLength: number;
  readonly #members = new EventMembers();
  readonly #scan = new JsonScan(EVENT_FIELDS);

  /**
   * @param types     type references of the batch
   * @param maxLength limit of an event in characters
   */
  constructor(types: TypeReferences, maxLength: number) {
    this.#types = types;
    this.#maxLength = Math.min(maxLength, CHARACTERS_AT_ONCE);
  }

  /**
   * The fast path: parses a valid event that {@link EventMembers} supports. Ignores text after it.
   * @returns null if the event needs {@link parseStrict}
   */
  parseFast(text: string, start: number): BatchEvent | null {
    const members = this.#members;
    const limit = Math.min(text.length, start + this.#maxLength);
    if (!members.read(text, start, limit) || members.payload === undefined) return null;
    const type = this.#types.named(members.typeId, members.typeName || members.type);
    const createdAt = members.createdAt ? parseEventTime(members.createdAt) : null;
    if (type === null || typeof createdAt === 'string') return null;
    const key = members.key || null;
    if (key !== null && keyProblem(key, createdAt) !== null) return null;
    this.end = members.end;
    return { type, createdAt, payload: members.payload, key };
  }

  /**
   * The strict path: parses any event. Yields after each slice of a long one.
   * @returns the event or its refusal; null if the text is not JSON
   */
  *parseStrict(text: string, start: number): Generator<undefined, BatchEvent | Rejection | null> {
    const scan = this.#scan;
    scan.begin(text, start);
    let state = scan.step(SLICE_CHARACTERS);
    while (state === 'more') {
      yield;
      state = scan.step(SLICE_CHARACTERS);
    }
    this.end = scan.end;
    return state === 'done' ? this.#scannedEvent(text) : null;
  }

  #scannedEvent(text: string): BatchEvent | Rejection {
    const event = fieldsOf(text, this.#scan);
    if (!isEvent(event)) return violation(isEvent.errors?.[0], 'event');
    const type = typeReference(event);
    if (type instanceof Rejection) return type;
    const createdAt = event.createdAt ? parseEventTime(event.createdAt) : null;
    if (typeof createdAt === 'string') return invalidField('createdAt', createdAt);
    const key = event.key || null;
    const problem = key === null ? null : keyProblem(key, createdAt);
    if (problem !== null) return problem;
    const payload = payloadText(text, this.#scan);
    return payload instanceof Rejection ? payload : { type: this.#types.same(type), createdAt, payload, key };
  }
}
