/** Events read the long way: JSON.parse makes a value of the text, and plain conditions look at it. */

import { eventTypeNameProblem } from '../../../src/apps/event-types.ts';
import { lengthProblem } from '../../../src/apps/name.ts';
import { parseEventTime } from '../../../src/ingest/event-time.ts';

/** An event as it was meant, its payload as a value; or what is wrong with it. */
export type Meant = { readonly type: unknown; readonly payload: unknown } | string;

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

function typeOf({ typeId, typeName }: Readonly<Record<string, unknown>>): { type: unknown } | string {
  if (typeof typeId === 'string' && typeId !== '') return { type: { typeId } };
  if (typeName === undefined || typeName === null || typeName === '')
    return 'One of the fields "typeId" and "typeName" is required.';
  if (typeof typeName !== 'string') return 'The field "typeName" must be a string.';
  const problem = eventTypeNameProblem(typeName);
  return problem === null ? { type: { typeName } } : `The field "typeName" ${problem}.`;
}

function parse(text: string): { value: unknown } | null {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return null;
  }
}

/** A key with its time, or what is wrong with them. */
function keyedBy(key: string, createdAt: unknown): { key: string; createdAt: number } | string {
  if (createdAt === undefined || createdAt === null || createdAt === '')
    return 'The field "key" needs the field "createdAt": an event is a repeat if both are those of an earlier one.';
  if (typeof createdAt !== 'string') return 'The field "createdAt" must be a string.';
  const time = parseEventTime(createdAt);
  if (typeof time === 'string') return `The field "createdAt" ${time}.`;
  const problem = lengthProblem(key);
  return problem === null ? { key, createdAt: time } : `The field "key" ${problem}.`;
}

/** The body of a create request. */
export function bodyByJsonParse(
  text: string,
): (Meant & { loggingToken?: string; keyed?: unknown; ignoresTime?: boolean }) | string {
  const parsed = parse(text);
  if (parsed === null) return 'The body is not valid JSON.';
  const body = parsed.value;
  if (!isObject(body)) return 'The body must be a JSON object.';
  for (const field of ['loggingToken', 'payload'])
    if (!Object.hasOwn(body, field)) return `The field "${field}" is missing.`;
  const { loggingToken, typeId, payload } = body;
  if (typeof loggingToken !== 'string') return 'The field "loggingToken" must be a string.';
  if (Object.hasOwn(body, 'typeId') && typeId !== null && typeof typeId !== 'string')
    return 'The field "typeId" must be a string.';
  if (!isObject(payload)) return 'The field "payload" must be a JSON object.';
  const { key, createdAt } = ownFields(body);
  if (key !== undefined && key !== null && typeof key !== 'string')
    return 'The field "key" must be a string.';
  const type = typeOf(ownFields(body));
  if (typeof type === 'string') return type;
  const keyed = key ? keyedBy(key, createdAt) : null;
  if (typeof keyed === 'string') return keyed;
  if (depthOf(payload) > 1_000) return 'The field "payload" may be nested at most 1000 levels deep.';
  const ignoresTime = keyed === null && createdAt !== undefined && createdAt !== null && createdAt !== '';
  return { loggingToken, ...type, payload, keyed, ignoresTime };
}

/** One event of a batch; null for what is not JSON. */
export function eventByJsonParse(
  text: string,
): (Meant & { createdAt?: number | null; key?: string | null }) | string | null {
  const parsed = parse(text);
  if (parsed === null) return null;
  const event = parsed.value;
  if (!isObject(event)) return 'The event must be a JSON object.';
  if (!Object.hasOwn(event, 'payload')) return 'The field "payload" is missing.';
  const { typeId, payload, createdAt, key } = ownFields(event);
  if (typeId !== undefined && typeId !== null && typeof typeId !== 'string')
    return 'The field "typeId" must be a string.';
  if (!isObject(payload)) return 'The field "payload" must be a JSON object.';
  if (createdAt !== undefined && createdAt !== null && typeof createdAt !== 'string')
    return 'The field "createdAt" must be a string.';
  if (key !== undefined && key !== null && typeof key !== 'string')
    return 'The field "key" must be a string.';
  const type = typeOf(ownFields(event));
  if (typeof type === 'string') return type;
  const time = createdAt ? parseEventTime(createdAt) : null;
  if (typeof time === 'string') return `The field "createdAt" ${time}.`;
  const keyed = key ? keyedBy(key, createdAt) : null;
  if (typeof keyed === 'string') return keyed;
  if (depthOf(payload) > 1_000) return 'The field "payload" may be nested at most 1000 levels deep.';
  return { ...type, createdAt: time, payload, key: key || null };
}

/** Without what it inherits, where JSON.parse has made `__proto__` a member. */
function ownFields(value: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.assign(Object.create(null), value);
}
