/** Parses one line of an import into an event, or describes its problem. */
import { hash } from 'node:crypto';
import { eventTypeNameProblem } from '../../apps/event-types.ts';
import { uuidOfDigest } from '../../ingest/event-id.ts';
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
  /** The id that an export has written; null where the line brings none, or none of that time. */
  readonly id: string | null;
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
  const span = memberSpan(text, 'payload');
  const { id, type, createdAt, payload } = line;
  return eventOf({
    ...{ id, type, createdAt, payload },
    payloadText: span === null ? '' : text.slice(span.start, span.end),
    depth: span?.depth ?? 0,
  });
}

/**
 * Reads a record of CSV.
 * @param columns the names of its fields; `type`, `createdAt` and `payload` must be among them
 */
export function parseImportRecord(columns: readonly string[], fields: readonly string[]): LineEvent | string {
  if (fields.length !== columns.length)
    return `it has ${fields.length} fields in place of the ${columns.length} of the first line`;
  const field = (name: string): string | undefined => fields[columns.indexOf(name)];
  const payloadText = field('payload') ?? '';
  let payload: unknown;
  try {
    payload = JSON.parse(payloadText);
  } catch {
    return 'the field "payload" is not valid JSON';
  }
  const depth = memberSpan(`{"payload":${payloadText}}`, 'payload')?.depth ?? 0;
  const [id, type, createdAt] = [field('id'), field('type'), field('createdAt')];
  return eventOf({ id, type, createdAt, payload, payloadText, depth });
}

interface Fields {
  readonly id?: unknown;
  readonly type?: unknown;
  readonly createdAt?: unknown;
  readonly payload?: unknown;
  readonly payloadText: string;
  /** Levels of the payload. */
  readonly depth: number;
}

function eventOf({ id, type, createdAt, payload, payloadText, depth }: Fields): LineEvent | string {
  if (type === undefined) return 'the field "type" is missing';
  if (typeof type !== 'string') return 'the field "type" must be a string, the name of the event type';
  const problem = eventTypeNameProblem(type);
  if (problem !== null) return `the field "type" ${problem}`;
  if (createdAt === undefined) return 'the field "createdAt" is missing';
  const time = typeof createdAt === 'string' ? parseEventTime(createdAt) : NOT_A_TIME;
  if (typeof time === 'string') return `the field "createdAt" ${time}`;
  if (payload === undefined) return 'the field "payload" is missing';
  if (!isObject(payload)) return 'the field "payload" must be a JSON object';
  if (payloadText === '') throw new Error('import line: payload not found in the text');
  if (depth > MAX_PAYLOAD_DEPTH)
    return `the field "payload" may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep`;
  return { type, createdAt: time, payload: payloadText, id: exportedId(id, time) };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
/** How far the time in an id may be from the event's: events are found by it. */
const APART_MS = 3_600_000;

/** The id of an event that an export has written: its time is that of the event. Any other is not ours. */
function exportedId(id: unknown, createdAt: number): string | null {
  if (typeof id !== 'string' || !UUID.test(id)) return null;
  const at = Number.parseInt(id.slice(0, 13).replace('-', ''), 16);
  return Math.abs(at - createdAt) <= APART_MS ? id : null;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * SHA-256 of an event's content in its app, hexadecimal; independent of the spelling of the time and the order of fields.
 * Fields are separated by NUL, which neither names nor JSON text contain.
 * @param appId public id of the app, which a restore into another database preserves
 */
export function digestOf(appId: string, { type, createdAt, payload }: Omit<LineEvent, 'id'>): string {
  return hash('sha256', `${appId}\0${createdAt}\0${type}\0${payload}`);
}

/**
 * The id of an imported event, the same at every import: of its time and its digest. For repeated lines of one input, the
 * digest includes the occurrence number.
 * @param occurrence 1 for the first
 */
export function importedId(createdAt: number, digest: string, occurrence: number): string {
  return uuidOfDigest(createdAt, occurrence === 1 ? digest : hash('sha256', `${digest}\0${occurrence}`));
}
