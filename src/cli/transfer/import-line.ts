/** Parses one line of an import into an event, or describes its problem. */
import { hash } from 'node:crypto';
import { eventTypeNameProblem } from '../../apps/event-types.ts';
import { writeUuidOfDigest } from '../../ingest/event-id.ts';
import { NOT_A_TIME, parseEventTime } from '../../ingest/event-time.ts';
import { skipSpace } from '../../json/lexer.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH, type Span } from '../../json/scan.ts';
import { BYTES_PER_UNIT, type TextBytes, UUID_BYTES, writeUuid } from '../../storage/write/copy-messages.ts';
import type { LineBlock } from './input-lines.ts';
import { Occurrences } from './occurrences.ts';

export interface LineEvent {
  /** Name of the event type. */
  readonly type: string;
  readonly createdAt: number;
  /** The payload's JSON text, exactly as in the line. */
  readonly payload: TextBytes;
  /** The id that an export has written; null where the line brings none, or none of that time. */
  readonly id: string | null;
}

const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
/** `typeName` is another name of `type`, as for POST /v1/events. */
const FIELDS = ['id', 'type', 'typeName', 'createdAt', 'payload'] as const;

/** Lines are read one after the other, so that one scan is enough. */
const scan = new JsonScan(FIELDS);

/** @returns the event of the line that the block is at, or its problem as a clause without a full stop */
export function parseImportLine(block: LineBlock): LineEvent | string {
  const { characters, start, end } = block;
  // A scan accepts what JSON.parse accepts, and does not build the payload, most of the time of a line.
  scan.begin(characters, start);
  // White space between two tokens may be the line break.
  const isWhole = scan.step(end - start) === 'done' && scan.end <= end;
  if (!isWhole || skipSpace(characters, scan.end) < end) return 'it is not valid JSON';
  if (!scan.isObject) return 'it must be a JSON object';
  const payload = scan.span('payload');
  return eventOf({
    id: scannedValue(block, scan.span('id')),
    type: scannedValue(block, scan.span('type') ?? scan.span('typeName')),
    createdAt: scannedValue(block, scan.span('createdAt')),
    payload: payload && {
      text: { bytes: block.bytes, start: payload.start, end: payload.end },
      isObject: characters.charCodeAt(payload.start) === OPEN_BRACE,
      depth: payload.depth,
    },
  });
}

/** A scanned value as JSON.parse would return it, objects and arrays without their content. */
function scannedValue({ bytes, characters }: LineBlock, span: Span | null): unknown {
  if (span === null) return undefined;
  const { start, end, depth } = span;
  if (depth > 0) return NO_TEXT;
  if (characters.charCodeAt(start) === QUOTE) {
    const text = characters.slice(start + 1, end - 1);
    if (PLAIN.test(text)) return text;
  }
  return JSON.parse(bytes.toString('utf8', start, end));
}

const NO_TEXT = Object.freeze({});
/** Characters of ASCII that stand for themselves in a string of JSON. */
const PLAIN = /^[ !#-[\]-~]*$/;

/**
 * Reads a record of CSV.
 * @param columns the names of its fields; `type` or `typeName`, `createdAt` and `payload` must be among them
 * @param textOf  takes the escape of an export off the name of a type
 */
export function parseImportRecord(
  columns: readonly string[],
  fields: readonly string[],
  textOf: (text: string) => string,
): LineEvent | string {
  if (fields.length !== columns.length)
    return `it has ${fields.length} fields in place of the ${columns.length} of the first line`;
  const field = (name: string): string | undefined => fields[columns.indexOf(name)];
  // An export writes the payload last; a column of a field may have the same title.
  const text = fields[columns.lastIndexOf('payload')] ?? '';
  const whole = new JsonScan();
  whole.begin(text, 0);
  if (whole.step(text.length) !== 'done' || skipSpace(text, whole.end) !== text.length)
    return 'the field "payload" is not valid JSON';
  const bytes = Buffer.from(text);
  const payload = {
    text: { bytes, start: 0, end: bytes.length },
    isObject: whole.isObject,
    depth: whole.depth,
  };
  const type = field('type') ?? field('typeName');
  return eventOf({ id: field('id'), type: type && textOf(type), createdAt: field('createdAt'), payload });
}

interface Fields {
  readonly id: unknown;
  readonly type: unknown;
  readonly createdAt: unknown;
  readonly payload: {
    readonly text: TextBytes;
    readonly isObject: boolean;
    /** Levels of objects and arrays. */
    readonly depth: number;
  } | null;
}

function eventOf({ id, type, createdAt, payload }: Fields): LineEvent | string {
  if (type === undefined) return 'the field "type" is missing';
  if (typeof type !== 'string') return 'the field "type" must be a string, the name of the event type';
  const problem = eventTypeNameProblem(type);
  if (problem !== null) return `the field "type" ${problem}`;
  if (createdAt === undefined) return 'the field "createdAt" is missing';
  const time = typeof createdAt === 'string' ? parseEventTime(createdAt) : NOT_A_TIME;
  if (typeof time === 'string') return `the field "createdAt" ${time}`;
  if (payload === null) return 'the field "payload" is missing';
  if (!payload.isObject) return 'the field "payload" must be a JSON object';
  if (payload.depth > MAX_PAYLOAD_DEPTH)
    return `the field "payload" may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep`;
  return { type, createdAt: time, payload: payload.text, id: exportedId(id, time) };
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

/** The ids of the lines of one import, as bytes. */
export class LineIds {
  /** What is hashed. It begins with the app. */
  #content: Buffer;
  readonly #headBytes: number;
  readonly #occurrences: Occurrences;
  readonly #id = Buffer.alloc(UUID_BYTES);

  /** @param appId public id of the app, which a restore into another database preserves */
  constructor(appId: string, occurrences = new Occurrences()) {
    this.#content = Buffer.from(`${appId}\0`);
    this.#headBytes = this.#content.length;
    this.#occurrences = occurrences;
  }

  /**
   * The id that an export has written, or one of the time and the digest: the same at every import. For repeated lines of one
   * input, the digest includes the occurrence number.
   * @returns bytes that are valid until the next call
   */
  of(event: LineEvent): Uint8Array {
    if (event.id !== null) {
      writeUuid(event.id, this.#id, 0);
      return this.#id;
    }
    const { createdAt } = event;
    const digest = this.#digestOf(event);
    const occurrence = this.#occurrences.count(createdAt, digest);
    writeUuidOfDigest(
      createdAt,
      occurrence === 1 ? digest : hash('sha256', `${digest}\0${occurrence}`),
      this.#id,
    );
    return this.#id;
  }

  /**
   * SHA-256 of an event's content in its app, hexadecimal; independent of the spelling of the time and the order of fields.
   * Fields are separated by NUL, which neither names nor JSON text contain.
   */
  #digestOf({ type, createdAt, payload: { bytes, start, end } }: LineEvent): string {
    const before = `${createdAt}\0${type}\0`;
    const most = this.#headBytes + BYTES_PER_UNIT * before.length + end - start;
    if (most > this.#content.length) this.#content = Buffer.concat([this.#content], 2 * most);
    let length = this.#headBytes;
    length += this.#content.write(before, length);
    length += bytes.copy(this.#content, length, start, end);
    return hash('sha256', this.#content.subarray(0, length));
  }
}
