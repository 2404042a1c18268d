/** Parses the body of a create request. A refusal says what is wrong with it. */
import { Ajv, type ErrorObject } from 'ajv';
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { lengthProblem } from '../../apps/name.ts';
import { yieldToEventLoop } from '../../base/time-slice.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { documentMistake, notJson, scanDocument } from '../../json/mistake.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH, SLICE_CHARACTERS } from '../../json/scan.ts';
import { parseEventTime } from '../event-time.ts';

/** The members of an event that are read; others are ignored. */
export const EVENT_FIELDS = [
  'loggingToken',
  'typeId',
  'typeName',
  'type',
  'createdAt',
  'payload',
  'key',
] as const;

/** A body that fulfills {@link BODY_SCHEMA}. */
interface Body {
  readonly loggingToken: string;
  readonly payload: object;
  readonly typeId?: string | null;
  readonly key?: string | null;
  readonly typeName?: unknown;
  readonly createdAt?: unknown;
}

/** What is checked of the body of a create request. */
export const BODY_SCHEMA = {
  type: 'object',
  required: ['loggingToken', 'payload'],
  properties: {
    loggingToken: { type: 'string' },
    typeId: { type: ['string', 'null'] },
    payload: { type: 'object', additionalProperties: true },
    key: { type: ['string', 'null'] },
    // No typeName: next to a typeId it is ignored, whatever its value. Nor createdAt, which is ignored without a key.
  },
} as const;

const TYPE_NAMES: Readonly<Record<string, string>> = {
  loggingToken: 'a string',
  typeId: 'a string',
  createdAt: 'a string',
  payload: 'a JSON object',
  key: 'a string',
};

const MANY_EVENTS = 'To send one event a line, use POST /v1/events with Content-Type: application/x-ndjson.';

const isBody = new Ajv({ strict: true, allowUnionTypes: true }).compile<Body>(BODY_SCHEMA);

const TOO_DEEP = invalidField('payload', `may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep`);

export interface EventBody {
  readonly loggingToken: string;
  readonly type: TypeReference;
  /** The payload's own text, exactly as sent. */
  readonly payload: string;
  /** Null where the event has none: its time is then that of the request. */
  readonly keyed: EventKey | null;
  /** Whether the event brings a `createdAt` that has no effect, because it has no key. */
  readonly ignoresTime: boolean;
}

/** What makes an event sent twice one event. */
export interface EventKey {
  readonly key: string;
  readonly createdAt: number;
}

/** Characters of a body, or of an event in it, that are read at once: less than a millisecond for any text. */
export const CHARACTERS_AT_ONCE = 131_072;

/**
 * Parses a body. The first violated rule of the contract determines the refusal, but a long body is not scanned further once its
 * payload is nested too deep.
 * @returns a promise for a long body, which is parsed in slices
 */
export function parseEventBody(text: string): EventBody | Rejection | Promise<EventBody | Rejection> {
  if (text.length > CHARACTERS_AT_ONCE) return parseInSlices(text);
  const problem = scanDocument(wholeScan, text, MANY_EVENTS);
  const body = problem ?? scannedBody(text, wholeScan);
  // A slice of the text keeps it in memory, and so would the scan.
  wholeScan.forget();
  return body;
}

/** For bodies that are scanned at once, one after the other. */
const wholeScan = new JsonScan(EVENT_FIELDS);

async function parseInSlices(text: string): Promise<EventBody | Rejection> {
  const scan = new JsonScan(EVENT_FIELDS);
  scan.begin(text, 0);
  let state = scan.step(SLICE_CHARACTERS);
  while (state === 'more') {
    if (scan.depthSoFar('payload') > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
    await yieldToEventLoop();
    state = scan.step(SLICE_CHARACTERS);
  }
  if (state === 'invalid') return notJson(text, scan.end);
  return documentMistake(text, scan, MANY_EVENTS) ?? scannedBody(text, scan);
}

function scannedBody(text: string, scan: JsonScan): EventBody | Rejection {
  const body = scan.fields();
  if (!isBody(body)) return violation(isBody.errors?.[0]);
  // The contract has no "type" here: it is ignored as any other field.
  const { loggingToken, key, typeId, typeName, createdAt } = body;
  const type = typeReference({ typeId, typeName });
  if (type instanceof Rejection) return type;
  const keyed = key ? eventKey(key, createdAt) : null;
  if (keyed instanceof Rejection) return keyed;
  const payload = payloadText(text, scan);
  const ignoresTime = keyed === null && !isAbsent(createdAt);
  return payload instanceof Rejection ? payload : { loggingToken, type, payload, keyed, ignoresTime };
}

/** The key of an event, with the time that belongs to it. @param createdAt as sent */
function eventKey(key: string, createdAt: unknown): EventKey | Rejection {
  if (createdAt === undefined || createdAt === null || createdAt === '') return KEY_WITHOUT_TIME;
  if (typeof createdAt !== 'string') return invalidField('createdAt', 'must be a string');
  const time = parseEventTime(createdAt);
  if (typeof time === 'string') return invalidField('createdAt', time);
  return keyProblem(key, time) ?? { key, createdAt: time };
}

const KEY_WITHOUT_TIME = invalidField(
  'key',
  'needs the field "createdAt": an event is a repeat if both are those of an earlier one',
);

/** What is wrong with a key, or null. @param createdAt the event's time; null where it brings none */
export function keyProblem(key: string, createdAt: number | null): Rejection | null {
  if (createdAt === null) return KEY_WITHOUT_TIME;
  const problem = lengthProblem(key);
  return problem === null ? null : invalidField('key', problem);
}

/** The text of an existing payload, exactly as sent; or the refusal of one that is nested too deep. */
export function payloadText(text: string, scan: JsonScan): string | Rejection {
  const span = scan.span('payload');
  if (span === null) throw new Error('The scan has no span of a validated payload.');
  return span.depth > MAX_PAYLOAD_DEPTH ? TOO_DEEP : text.slice(span.start, span.end);
}

/** The fields by which an event names its type. `type` is another name of `typeName`, as exports and records call it. */
export interface TypeFields {
  readonly typeId?: string | null | undefined;
  readonly typeName?: unknown;
  readonly type?: unknown;
}

/** The type that the fields refer to; a refusal says what is wrong with them. */
export function typeReference(fields: TypeFields): TypeReference | Rejection {
  const { typeId } = fields;
  if (typeof typeId === 'string' && typeId !== '') return { typeId };
  const field = isAbsent(fields.typeName) && !isAbsent(fields.type) ? 'type' : 'typeName';
  const typeName = fields[field];
  if (isAbsent(typeName)) return NO_TYPE;
  if (typeof typeName !== 'string') return invalidField(field, 'must be a string');
  const problem = eventTypeNameProblem(typeName);
  return problem === null ? { typeName } : invalidField(field, problem);
}

const NO_TYPE = invalid('One of the fields "typeId" and "typeName" is required.');

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || value === '';
}

/**
 * The refusal for the first error of a schema.
 * @param whole name of the validated object
 */
export function violation(error: ErrorObject | undefined, whole = 'body'): Rejection {
  if (error?.keyword === 'required') return invalidField(error.params.missingProperty, 'is missing');
  const field = error?.instancePath.slice(1) ?? '';
  return field === ''
    ? invalid(`The ${whole} must be a JSON object.`)
    : invalidField(field, `must be ${TYPE_NAMES[field]}`);
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
