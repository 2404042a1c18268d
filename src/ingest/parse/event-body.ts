/** Parses the body of a create request. A refusal says what is wrong with it. */
import { Ajv, type ErrorObject } from 'ajv';
import type { FromSchema } from 'json-schema-to-ts';
import { lengthProblem } from '../../accounts/name.ts';
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { yieldToEventLoop } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { parseEventTime } from '../event-time.ts';
import { EventMembers } from './fast-event-parser.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from './json-scan.ts';
import { skipSpace } from './lexer.ts';

/** What the strict path checks of the body of a create request. */
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

const NOT_JSON = invalid('The body is not valid JSON.');

const isBody = new Ajv({ strict: true, allowUnionTypes: true }).compile<FromSchema<typeof BODY_SCHEMA>>(
  BODY_SCHEMA,
);

const TOO_DEEP = invalid(`The field "payload" may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`);

export interface EventBody {
  readonly loggingToken: string;
  readonly type: TypeReference;
  /** The payload's own text, exactly as sent. */
  readonly payload: string;
  /** Null where the event has none: its time is then that of the request. */
  readonly keyed: EventKey | null;
}

/** What makes an event sent twice one event. */
export interface EventKey {
  readonly key: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
}

/** Characters of a body, or of an event in it, that are read at once: less than a millisecond for any text. */
export const CHARACTERS_AT_ONCE = 131_072;
/** Of longer ones, characters that are scanned per turn of the event loop. */
export const SLICE_CHARACTERS = 65_536;

/**
 * Parses a body. The first violated rule of the contract determines the refusal, but a long body is not scanned further once its
 * payload is nested too deep.
 * @returns a promise for a long body, which is parsed in slices
 */
export function parseEventBody(text: string): EventBody | Rejection | Promise<EventBody | Rejection> {
  if (text.length > CHARACTERS_AT_ONCE) return parseInSlices(text);
  return parseFast(text) ?? parseStrict(text);
}

const members = new EventMembers();

/** The fast path. @returns null if the body needs {@link parseStrict}; else the same result as that */
export function parseFast(text: string): EventBody | null {
  const isSupported = members.read(text, skipSpace(text, 0), text.length);
  const { loggingToken, typeId, typeName, createdAt, key, payload, end } = members;
  members.forget();
  if (!isSupported || skipSpace(text, end) !== text.length) return null;
  if (loggingToken === undefined || payload === undefined) return null;
  const type = typeReference({ typeId, typeName });
  const keyed = key ? eventKey(key, createdAt) : null;
  if (type instanceof Rejection || keyed instanceof Rejection) return null;
  return { loggingToken, type, payload, keyed };
}

/** The strict path: parses any body, or says what is wrong with it. */
export function parseStrict(text: string): EventBody | Rejection {
  const scan = new JsonScan(EVENT_FIELDS);
  scan.begin(text, 0);
  return scan.step(text.length) === 'done' ? scannedBody(text, scan) : NOT_JSON;
}

async function parseInSlices(text: string): Promise<EventBody | Rejection> {
  const scan = new JsonScan(EVENT_FIELDS);
  scan.begin(text, 0);
  let state = scan.step(SLICE_CHARACTERS);
  while (state === 'more') {
    if (scan.depthSoFar('payload') > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
    await yieldToEventLoop();
    state = scan.step(SLICE_CHARACTERS);
  }
  return state === 'done' ? scannedBody(text, scan) : NOT_JSON;
}

function scannedBody(text: string, scan: JsonScan): EventBody | Rejection {
  if (skipSpace(text, scan.end) !== text.length) return NOT_JSON;
  const body = fieldsOf(text, scan);
  if (!isBody(body)) return invalid(explain(isBody.errors?.[0]));
  const type = typeReference(body);
  if (type instanceof Rejection) return type;
  const { loggingToken, key } = body;
  const keyed = key ? eventKey(key, body.createdAt) : null;
  if (keyed instanceof Rejection) return keyed;
  const payload = payloadText(text, scan);
  return payload instanceof Rejection ? payload : { loggingToken, type, payload, keyed };
}

/** The key of an event, with the time that belongs to it. @param createdAt as sent */
function eventKey(key: string, createdAt: unknown): EventKey | Rejection {
  if (createdAt === undefined || createdAt === null || createdAt === '') return KEY_WITHOUT_TIME;
  if (typeof createdAt !== 'string') return invalid('The field "createdAt" must be a string.');
  const time = parseEventTime(createdAt);
  if (typeof time === 'string') return invalid(`The field "createdAt" ${time}.`);
  return keyProblem(key, time) ?? { key, createdAt: time };
}

const KEY_WITHOUT_TIME = invalid(
  'The field "key" needs the field "createdAt": an event is a repeat if both are those of an earlier one.',
);

/** What is wrong with a key, or null. @param createdAt the event's time; null where it brings none */
export function keyProblem(key: string, createdAt: number | null): Rejection | null {
  if (createdAt === null) return KEY_WITHOUT_TIME;
  const problem = lengthProblem(key);
  return problem === null ? null : invalid(`The field "key" ${problem}.`);
}

/** The members of an event that are read; others are ignored. */
export const EVENT_FIELDS = ['loggingToken', 'typeId', 'typeName', 'createdAt', 'payload', 'key'] as const;

/**
 * A scanned value as JSON.parse would return it, for validation by a schema: only with {@link EVENT_FIELDS}, and with empty
 * objects and arrays.
 */
export function fieldsOf(text: string, scan: JsonScan): unknown {
  if (!scan.isObject) return null;
  const fields: Record<string, unknown> = {};
  for (const name of EVENT_FIELDS) {
    const span = scan.span(name);
    if (span === null) continue;
    fields[name] =
      span.depth === 0
        ? JSON.parse(text.slice(span.start, span.end))
        : text.startsWith('{', span.start)
          ? {}
          : [];
  }
  return fields;
}

/** The text of an existing payload, exactly as sent; or the refusal of one that is nested too deep. */
export function payloadText(text: string, scan: JsonScan): string | Rejection {
  const span = scan.span('payload');
  if (span === null) throw new Error('The scan has no span of a validated payload.');
  return span.depth > MAX_PAYLOAD_DEPTH ? TOO_DEEP : text.slice(span.start, span.end);
}

/** The type that the two fields refer to; a refusal says what is wrong with them. */
export function typeReference(fields: {
  readonly typeId?: string | null | undefined;
  readonly typeName?: unknown;
}): TypeReference | Rejection {
  const { typeId, typeName } = fields;
  if (typeof typeId === 'string' && typeId !== '') return { typeId };
  if (typeName === undefined || typeName === null || typeName === '') {
    return invalid('One of the fields "typeId" and "typeName" is required.');
  }
  if (typeof typeName !== 'string') return invalid('The field "typeName" must be a string.');
  const problem = eventTypeNameProblem(typeName);
  return problem === null ? { typeName } : invalid(`The field "typeName" ${problem}.`);
}

/**
 * The first error of a schema as a sentence.
 * @param whole name of the validated object
 */
export function explain(error: ErrorObject | undefined, whole = 'body'): string {
  if (error?.keyword === 'required') return `The field "${error.params.missingProperty}" is missing.`;
  const field = error?.instancePath.slice(1) ?? '';
  return field === ''
    ? `The ${whole} must be a JSON object.`
    : `The field "${field}" must be ${TYPE_NAMES[field]}.`;
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
