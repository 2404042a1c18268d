/** Parses one line of an import into an event, or describes its problem. */
import { hash } from 'node:crypto';
import { eventTypeNameProblem } from '../../apps/event-types.ts';
import { NOT_A_TIME, parseEventTime } from '../../ingest/event-time.ts';
import { memberSpan } from '../../ingest/parse/json-scan.ts';

/** The event of a line. */
export interface LineEvent {
  /** Name of the event type. */
  readonly type: string;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** The payload's JSON text, exactly as in the line. */
  readonly payload: string;
}

/** As for requests: PostgreSQL's JSON parser is recursive and limits the depth. */
const MAX_PAYLOAD_DEPTH = 1_000;

/** @returns the event, or its problem as a clause without a full stop */
export function parseImportLine(text: string): LineEvent | string {
  let line: unknown;
  try {
    line = JSON.parse(text);
  } catch {
    return 'it is not valid JSON';
  }
  if (!isObject(line)) return 'it must be a JSON object';
  const { type, createdAt, payload } = line;
  if (type === undefined) return 'the field "type" is missing';
  if (typeof type !== 'string') return 'the field "type" must be a string, the name of the event type';
  const problem = eventTypeNameProblem(type);
  if (problem !== null) return `the field "type" ${problem}`;
  if (createdAt === undefined) return 'the field "createdAt" is missing';
  const time = typeof createdAt === 'string' ? parseEventTime(createdAt) : NOT_A_TIME;
  if (typeof time === 'string') return `the field "createdAt" ${time}`;
  if (payload === undefined) return 'the field "payload" is missing';
  if (!isObject(payload)) return 'the field "payload" must be a JSON object';
  const span = memberSpan(text, 'payload');
  if (span === null) throw new Error('import line: payload not found in the text');
  if (span.depth > MAX_PAYLOAD_DEPTH)
    return `the field "payload" may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep`;
  return { type, createdAt: time, payload: text.slice(span.start, span.end) };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * SHA-256 of an event's content in its app, hexadecimal; independent of the spelling of the time and the order of fields.
 * Fields are separated by NUL, which neither names nor JSON text contain.
 * @param appId public id of the app, which a restore into another database preserves
 */
export function digestOf(appId: string, { type, createdAt, payload }: LineEvent): string {
  return hash('sha256', `${appId}\0${createdAt}\0${type}\0${payload}`);
}

/**
 * The id of an imported event, the same at every import: a UUIDv8 (RFC 9562, 5.8) of the 48 bits of its time in
 * milliseconds, as in UUIDv7, and 74 bits of its digest. For repeated lines of one input, the digest includes the
 * occurrence number.
 * @param occurrence 1 for the first
 */
export function importedId(createdAt: number, digest: string, occurrence: number): string {
  const bits = occurrence === 1 ? digest : hash('sha256', `${digest}\0${occurrence}`);
  const time = createdAt.toString(16).padStart(12, '0');
  const variant = '89ab'.charAt(Number.parseInt(bits.charAt(3), 16) & 3);
  return `${time.slice(0, 8)}-${time.slice(8)}-8${bits.slice(0, 3)}-${variant}${bits.slice(4, 7)}-${bits.slice(7, 19)}`;
}
