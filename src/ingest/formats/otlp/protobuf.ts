/**
 * Reads an ExportLogsServiceRequest (opentelemetry-proto 1.x) and writes each log record in OTLP's JSON form. It is read
 * field by field, because that form is not Protobuf's own JSON: ids are hexadecimal, enums are numbers.
 *
 * A message from the network is bounded in all it may cost: lengths by what encloses them, the nesting of values, the number
 * of fields by pauses, and groups, which the protocol does not have, are refused. Unknown fields are skipped.
 */
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { millisecondsOf } from '../times.ts';

/** What is read of a log record, beside its text. */
export interface LogRecord {
  /** The members of the JSON object, without its braces. */
  readonly members: string;
  readonly eventName: string;
  readonly severityNumber: number;
  readonly severityText: string;
  /** When it happened, else when it was observed: milliseconds since 1970; 0 if unknown. */
  readonly time: number;
  /** Values of the attributes that were asked for, as texts; null for one that is none. */
  readonly attributes: ReadonlyMap<string, string | null>;
}

/** Short names of severity numbers, four for each (data model, "Displaying Severity"). */
export const SEVERITIES = ['TRACE', 'DEBUG', 'INFO', 'WARN', 'ERROR', 'FATAL'];

/** A record with the members of its resource and scope; or what is wrong with it. */
export type OneRecord = { readonly record: LogRecord; readonly origin: string } | Problem | undefined;

/** `other`: the message of a record has fields as another one has them; `unread`: the request has no records, and something else. */
export type Problem = 'too deep' | 'too large' | 'other' | 'unread';

export interface ReadOptions {
  /** Names of the attributes whose values are needed. */
  readonly wanted: ReadonlySet<string>;
  /** The largest record, resource or scope that is read, in bytes. */
  readonly maxBytes: number;
}

/** Levels of values in values; each is up to four levels of JSON. */
const MAX_DEPTH = 100;
/** Fields after which others have their turn. */
const PAUSE_FIELDS = 4_096;

/** The message is not what it says it is. */
export class MalformedMessage extends Error {}

class TooDeep extends Error {}
class TooLarge extends Error {}
class OtherMessage extends Error {}

interface Part {
  readonly start: number;
  readonly end: number;
}

/**
 * Reads the records of a request one by one; undefined: a pause.
 * @throws MalformedMessage
 */
export function* logRecords(bytes: Uint8Array, options: ReadOptions): Generator<OneRecord> {
  try {
    yield* new LogsMessage(bytes, options).records();
  } catch (error) {
    // The reader throws various errors at what is no message; a fault of our own must not look like one.
    if (error instanceof MalformedMessage || error instanceof RangeError) throw new MalformedMessage();
    if (error instanceof Error && /^(?:illegal tag|invalid|premature)/i.test(error.message))
      throw new MalformedMessage();
    throw error;
  }
}

class LogsMessage {
  readonly #bytes: Buffer;
  readonly #reader: BinaryReader;
  readonly #options: ReadOptions;
  #records = 0;
  /** Whether what encloses records has fields that are not theirs. */
  #hasOthers = false;

  constructor(bytes: Uint8Array, options: ReadOptions) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#reader = new BinaryReader(bytes, (text) =>
      Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString('utf8'),
    );
    this.#options = options;
  }

  *records(): Generator<OneRecord> {
    let isThere = false;
    for (const resourceLogs of this.#parts({ start: 0, end: this.#bytes.length }, 1)) {
      yield undefined;
      isThere ||= resourceLogs !== undefined;
      if (resourceLogs !== undefined) yield* this.#resourceLogs(resourceLogs);
    }
    if (!isThere && this.#bytes.length > 0) throw new MalformedMessage();
    if (this.#records === 0 && this.#hasOthers) yield 'unread';
  }

  *#resourceLogs(part: Part): Generator<OneRecord> {
    let resource: Part | null = null;
    let schemaUrl: Part | null = null;
    for (const found of this.#parts(part, 1, 3)) {
      if (found === undefined) yield undefined;
      else if (found.field === 1) resource = found;
      else schemaUrl = found;
    }
    const members = this.#guarded(() =>
      joined(
        resource === null ? '' : `"resource":${this.#resource(resource)}`,
        schemaUrl === null ? '' : `"resourceSchemaUrl":${this.#textOf(schemaUrl)}`,
      ),
    );
    for (const scopeLogs of this.#parts(part, 2)) {
      yield undefined;
      if (scopeLogs !== undefined) yield* this.#scopeLogs(scopeLogs, members);
    }
  }

  *#scopeLogs(part: Part, resource: string | Problem): Generator<OneRecord> {
    let scope: Part | null = null;
    let schemaUrl: Part | null = null;
    for (const found of this.#parts(part, 1, 3)) {
      if (found === undefined) yield undefined;
      else if (found.field === 1) scope = found;
      else schemaUrl = found;
    }
    const members = this.#guarded(() =>
      joined(
        scope === null ? '' : `"scope":${this.#scope(scope)}`,
        schemaUrl === null ? '' : `"scopeSchemaUrl":${this.#textOf(schemaUrl)}`,
      ),
    );
    const origin = isProblem(resource) ? resource : isProblem(members) ? members : joined(resource, members);
    for (const found of this.#parts(part, 2)) {
      if (found === undefined || isProblem(origin)) {
        yield found === undefined ? undefined : (origin as Problem);
        continue;
      }
      this.#records += 1;
      const record = this.#guarded(() => this.#record(found));
      yield isProblem(record) ? record : { record, origin };
    }
  }

  /** The parts of a message that are its length-delimited fields of these numbers; undefined: a pause. */
  *#parts(
    { start, end }: Part,
    ...wanted: readonly number[]
  ): Generator<(Part & { readonly field: number }) | undefined> {
    const reader = this.#reader;
    let at = start;
    for (let fields = 1; at < end; fields += 1) {
      reader.pos = at;
      const [field, type] = reader.tag();
      const inner = wanted.includes(field) && type === WireType.LengthDelimited ? this.#begin(end) : null;
      if (inner === null) this.#skip(type, end);
      if (field > 3 || type !== WireType.LengthDelimited) this.#hasOthers = true;
      at = inner === null ? reader.pos : inner.end;
      if (inner !== null) yield { ...inner, field };
      else if (fields % PAUSE_FIELDS === 0) yield undefined;
    }
    if (at !== end) throw new MalformedMessage();
  }

  /** Reads the length of a part, which begins then. @param limit the end of what encloses it */
  #begin(limit: number): Part {
    const reader = this.#reader;
    const length = reader.uint32();
    const end = reader.pos + length;
    if (end > limit) throw new MalformedMessage();
    return { start: reader.pos, end };
  }

  #skip(type: WireType, limit: number): void {
    if (type === WireType.StartGroup || type === WireType.EndGroup) throw new MalformedMessage();
    this.#reader.skip(type);
    if (this.#reader.pos > limit) throw new MalformedMessage();
  }

  #guarded<T>(read: () => T): T | Problem {
    try {
      return read();
    } catch (error) {
      if (error instanceof TooDeep) return 'too deep';
      if (error instanceof TooLarge) return 'too large';
      if (error instanceof OtherMessage) return 'other';
      throw error;
    }
  }

  /** Reads each field of a message: the callback reads its value, or returns false. */
  #each({ start, end }: Part, onField: (field: number, type: WireType) => boolean): void {
    const reader = this.#reader;
    reader.pos = start;
    while (reader.pos < end) {
      const [field, type] = reader.tag();
      if (!onField(field, type)) this.#skip(type, end);
      if (reader.pos > end) throw new MalformedMessage();
    }
  }

  #checkSize({ start, end }: Part): void {
    if (end - start > this.#options.maxBytes) throw new TooLarge();
  }

  #textOf({ start, end }: Part): string {
    return JSON.stringify(this.#bytes.toString('utf8', start, end));
  }

  #resource(part: Part): string {
    this.#checkSize(part);
    const attributes: string[] = [];
    let dropped = 0;
    this.#each(part, (field, type) => {
      if (field === 1 && type === WireType.LengthDelimited) attributes.push(this.#keyValue(part.end, 0));
      else if (field === 2 && type === WireType.Varint) dropped = this.#reader.uint32();
      else return false;
      return true;
    });
    return `{${joined(listOf('attributes', attributes), numberOf('droppedAttributesCount', dropped))}}`;
  }

  #scope(part: Part): string {
    this.#checkSize(part);
    const attributes: string[] = [];
    let name = '';
    let version = '';
    let dropped = 0;
    this.#each(part, (field, type) => {
      if (type === WireType.LengthDelimited && field === 1) name = this.#reader.string();
      else if (type === WireType.LengthDelimited && field === 2) version = this.#reader.string();
      else if (type === WireType.LengthDelimited && field === 3) attributes.push(this.#keyValue(part.end, 0));
      else if (type === WireType.Varint && field === 4) dropped = this.#reader.uint32();
      else return false;
      return true;
    });
    const members = [stringOf('name', name), stringOf('version', version), listOf('attributes', attributes)];
    return `{${joined(...members, numberOf('droppedAttributesCount', dropped))}}`;
  }

  #record(part: Part): LogRecord {
    this.#checkSize(part);
    const reader = this.#reader;
    const { wanted } = this.#options;
    const attributes: string[] = [];
    const found = new Map<string, string | null>();
    let [time, observedTime] = [0n, 0n];
    let [severityNumber, dropped, flags] = [0, 0, 0];
    let [severityText, eventName, body, traceId, spanId] = ['', '', '', '', ''];
    this.#each(part, (field, type) => {
      const own = RECORD_TYPES[field];
      if (own !== undefined && own !== type) throw new OtherMessage();
      switch (type) {
        case WireType.LengthDelimited:
          if (field === 3) severityText = reader.string();
          else if (field === 5) body = this.#anyValue(this.#begin(part.end), 1);
          else if (field === 6) attributes.push(this.#keyValue(part.end, 0, wanted, found));
          else if (field === 9) traceId = hex(reader.bytes());
          else if (field === 10) spanId = hex(reader.bytes());
          else if (field === 12) eventName = reader.string();
          else return false;
          return true;
        case WireType.Bit64:
          if (field === 1) time = BigInt(reader.fixed64());
          else if (field === 11) observedTime = BigInt(reader.fixed64());
          else return false;
          return true;
        case WireType.Varint:
          if (field === 2) severityNumber = reader.int32();
          else if (field === 7) dropped = reader.uint32();
          else return false;
          return true;
        case WireType.Bit32:
          if (field === 8) flags = reader.fixed32();
          else return false;
          return true;
        default:
          return false;
      }
    });
    const members = joined(
      time === 0n ? '' : `"timeUnixNano":"${time}"`,
      observedTime === 0n ? '' : `"observedTimeUnixNano":"${observedTime}"`,
      numberOf('severityNumber', severityNumber),
      stringOf('severityText', severityText),
      stringOf('eventName', eventName),
      body === '' ? '' : `"body":${body}`,
      listOf('attributes', attributes),
      numberOf('droppedAttributesCount', dropped),
      numberOf('flags', flags),
      stringOf('traceId', traceId),
      stringOf('spanId', spanId),
    );
    const at = millisecondsOf(time === 0n ? observedTime : time);
    return { members, eventName, severityNumber, severityText, time: at, attributes: found };
  }

  /** Reads a KeyValue from its length on. */
  #keyValue(
    limit: number,
    depth: number,
    wanted: ReadonlySet<string> = NONE_WANTED,
    found: Map<string, string | null> | null = null,
  ): string {
    const part = this.#begin(limit);
    let key = '';
    let value = '';
    this.#each(part, (field, type) => {
      if (type !== WireType.LengthDelimited) return false;
      if (field === 1) key = this.#reader.string();
      else if (field === 2) value = this.#anyValue(this.#begin(part.end), depth + 1);
      else return false;
      return true;
    });
    if (found !== null && wanted.has(key) && value !== '') keepText(found, key, JSON.parse(value));
    return `{"key":${JSON.stringify(key)}${value === '' ? '' : `,"value":${value}`}}`;
  }

  /** The last of several values counts. */
  #anyValue(part: Part, depth: number): string {
    if (depth > MAX_DEPTH) throw new TooDeep();
    const reader = this.#reader;
    let value = '';
    this.#each(part, (field, type) => {
      switch (type) {
        case WireType.LengthDelimited:
          if (field === 1) value = `"stringValue":${JSON.stringify(reader.string())}`;
          else if (field === 5) value = `"arrayValue":${this.#list(part.end, depth, false)}`;
          else if (field === 6) value = `"kvlistValue":${this.#list(part.end, depth, true)}`;
          else if (field === 7) value = `"bytesValue":"${base64(reader.bytes())}"`;
          else return false;
          return true;
        case WireType.Varint:
          if (field === 2) value = `"boolValue":${reader.bool()}`;
          else if (field === 3) value = `"intValue":"${reader.int64()}"`;
          else return false;
          return true;
        case WireType.Bit64:
          if (field !== 4) return false;
          value = `"doubleValue":${numberText(reader.double())}`;
          return true;
        default:
          return false;
      }
    });
    return `{${value}}`;
  }

  /** Reads an ArrayValue or a KeyValueList from its length on. */
  #list(limit: number, depth: number, isMap: boolean): string {
    const part = this.#begin(limit);
    const values: string[] = [];
    this.#each(part, (field, type) => {
      if (field !== 1 || type !== WireType.LengthDelimited) return false;
      values.push(isMap ? this.#keyValue(part.end, depth) : this.#anyValue(this.#begin(part.end), depth + 1));
      return true;
    });
    return `{"values":[${values.join(',')}]}`;
  }
}

function isProblem(value: unknown): value is Problem {
  return value === 'too deep' || value === 'too large' || value === 'other';
}

/** The wire types of a record's fields, by their numbers. A span or a metric has others. */
const RECORD_TYPES: readonly (WireType | undefined)[] = [
  ...[undefined, WireType.Bit64, WireType.Varint, WireType.LengthDelimited, undefined],
  ...[WireType.LengthDelimited, WireType.LengthDelimited, WireType.Varint, WireType.Bit32],
  ...[WireType.LengthDelimited, WireType.LengthDelimited, WireType.Bit64, WireType.LengthDelimited],
];

const NONE_WANTED: ReadonlySet<string> = new Set();
/** The members of an AnyValue that are no lists, maps or bytes, also by the names of their fields. */
const SCALAR = /^(?:string|int|double|bool)(?:V|_v)alue$/;

/** Keeps the text of an AnyValue in JSON; null where it has none, or is a number that has lost digits. An empty one is absent. */
export function keepText(found: Map<string, string | null>, key: string, value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  const members = Object.entries(value).filter(([, one]) => one !== null);
  const scalar: unknown = members.find(([name]) => SCALAR.test(name))?.[1];
  const isExact = typeof scalar !== 'number' || !Number.isInteger(scalar) || Number.isSafeInteger(scalar);
  const isText = ['string', 'number', 'boolean'].includes(typeof scalar) && isExact;
  if (members.length > 0) found.set(key, isText ? String(scalar) : null);
}

/** Members of an object; those that are absent are empty. */
export function joined(...members: readonly string[]): string {
  return members.filter((member) => member !== '').join(',');
}

function stringOf(name: string, value: string): string {
  return value === '' ? '' : `"${name}":${JSON.stringify(value)}`;
}

function numberOf(name: string, value: number): string {
  return value === 0 ? '' : `"${name}":${value}`;
}

function listOf(name: string, values: readonly string[]): string {
  return values.length === 0 ? '' : `"${name}":[${values.join(',')}]`;
}

/** As Protobuf's JSON has doubles. */
function numberText(value: number): string {
  if (Number.isFinite(value)) return Object.is(value, -0) ? '-0' : String(value);
  return `"${value}"`;
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}
