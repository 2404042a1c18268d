/** The body of a create request: text → event, or the refusal that says what is wrong with it. */
import { Ajv, type ErrorObject } from 'ajv';
import type { FromSchema } from 'json-schema-to-ts';
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { Rejection } from '../../errors.ts';
import { EventMembers, skipSpace } from './fast-event-parser.ts';
import { memberSpan } from './payload-text.ts';

const BODY_SCHEMA = {
  type: 'object',
  required: ['loggingToken', 'payload'],
  properties: {
    loggingToken: { type: 'string' },
    typeId: { type: 'string', nullable: true },
    payload: { type: 'object' },
    // typeName is not here: where a typeId is given it is ignored, whatever it is.
  },
} as const;

const TYPE_NAMES: Readonly<Record<string, string>> = {
  loggingToken: 'a string',
  typeId: 'a string',
  createdAt: 'a string',
  payload: 'a JSON object',
};

const isBody = new Ajv({ strict: true }).compile<FromSchema<typeof BODY_SCHEMA>>(BODY_SCHEMA);

/** Deepest nesting of a payload; PostgreSQL's JSON parser is recursive and would refuse at some depth of its own. */
const MAX_PAYLOAD_DEPTH = 1_000;

export interface EventBody {
  readonly loggingToken: string;
  readonly type: TypeReference;
  /** The payload's own text, exactly as sent. */
  readonly payload: string;
}

/** Parses a body. The first of the contract's rules that it breaks makes the refusal. */
export function parseEventBody(text: string): EventBody | Rejection {
  return usualBody(text) ?? anyBody(text);
}

const members = new EventMembers();

/** Reads what nearly every producer sends; null where {@link anyBody} must look at it. What is read, that reads the same. */
export function usualBody(text: string): EventBody | null {
  const isUsual = members.read(text, skipSpace(text, 0), text.length);
  const { loggingToken, typeId, typeName, payload, end } = members;
  members.forget();
  if (!isUsual || skipSpace(text, end) !== text.length) return null;
  if (loggingToken === undefined || payload === undefined) return null;
  const type = typeReference({ typeId, typeName });
  return type instanceof Rejection ? null : { loggingToken, type, payload };
}

/** Reads any body, or says what is wrong with it. */
export function anyBody(text: string): EventBody | Rejection {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return invalid('The body is not valid JSON.');
  }
  if (!isBody(body)) return invalid(explain(isBody.errors?.[0]));
  const type = typeReference(body);
  if (type instanceof Rejection) return type;
  const payload = payloadText(text);
  return payload instanceof Rejection ? payload : { loggingToken: body.loggingToken, type, payload };
}

/** The payload's own text, in that of an object which has one, or the refusal of one that is nested too deep. */
export function payloadText(text: string): string | Rejection {
  const span = memberSpan(text, 'payload');
  if (span === null) throw new Error('A member that JSON.parse found is not in the text.');
  if (span.depth > MAX_PAYLOAD_DEPTH) {
    return invalid(`The field "payload" may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`);
  }
  return text.slice(span.start, span.end);
}

/** Which of the two fields decides, or the refusal that says what is wrong with them. */
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
 * The first thing that a schema found wrong, as a sentence.
 * @param whole what the schema is of
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
