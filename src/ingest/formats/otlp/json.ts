/**
 * Reads an ExportLogsServiceRequest in OTLP's JSON form, in one pass. A log record keeps its own text; the texts of its
 * resource and its scope follow it as members.
 */

import { skipSpace } from '../../../json/lexer.ts';
import { JsonScan, SLICE_CHARACTERS } from '../../../json/scan.ts';
import { scalarText, scanValue } from '../../../json/values.ts';
import { joined, type LogRecord } from './protobuf.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** A record with the members of its resource and scope; or what is wrong with it, or with the whole body. */
export type OneRecord =
  | { readonly record: LogRecord; readonly origin: string; readonly depth: number }
  | 'no object'
  | 'too many'
  | 'not JSON'
  | undefined;

export interface ReadOptions {
  /** Names of the attributes whose values are needed. */
  readonly wanted: ReadonlySet<string>;
  /** The most records that are read. */
  readonly maxRecords: number;
}

/** Reads the records of a request one by one; undefined: a pause. After `too many` and `not JSON` there are no more. */
export function* logRecords(text: string, options: ReadOptions): Generator<OneRecord> {
  try {
    const request = yield* new LogsText(text, options).request();
    for (const resource of request.inner)
      for (const scope of resource.inner) {
        const origin = joined(resource.members('resource'), scope.members('scope'));
        const outer = Math.max(resource.depth, scope.depth) + 1;
        for (const found of scope.records)
          yield found === 'no object' ? found : { ...found, origin, depth: Math.max(found.depth, outer) };
      }
  } catch (error) {
    if (error instanceof NotJson) return yield 'not JSON';
    if (error instanceof TooMany) return yield 'too many';
    throw error;
  }
}

class NotJson extends Error {}
class TooMany extends Error {}

/** The arrays that lead to the records: each is a member of the elements of the one before. */
const ARRAYS = ['resourceLogs', 'scopeLogs', 'logRecords'] as const;
const RECORDS = ARRAYS.length - 1;
/** Members of ResourceLogs and ScopeLogs that their records get. */
const SHARED: ReadonlySet<string> = new Set(['resource', 'scope', 'schemaUrl']);
/** Longer names, all of their characters escaped, are none of these. */
const MAX_NAME_CHARACTERS = 6 * 12 + 2;

type Found = { readonly record: LogRecord; readonly depth: number } | 'no object';

/** An object around records: the request, ResourceLogs or ScopeLogs. */
class Enclosing {
  inner: Enclosing[] = [];
  records: Found[] = [];
  /** Levels of the texts below. */
  depth = 0;
  readonly #texts = new Map<string, string>();

  set(name: string, json: string, depth: number): void {
    this.#texts.set(name, json);
    this.depth = Math.max(this.depth, depth);
  }

  /** Its members in a payload. */
  members(name: 'resource' | 'scope'): string {
    return joined(this.#member(name, name), this.#member('schemaUrl', `${name}SchemaUrl`));
  }

  #member(name: string, as: string): string {
    const json = this.#texts.get(name) ?? 'null';
    return json === 'null' ? '' : `"${as}":${json}`;
  }
}

/**
 * The text of a request. It is walked through once, record by record, and all of it is validated on the way. As the members
 * of an object may come in any order, nothing is known of a record's resource before the end. Members that are not what
 * they should be are passed over; of those with the same name the last one counts.
 */
class LogsText {
  readonly #text: string;
  readonly #maxRecords: number;
  readonly #value = new JsonScan();
  readonly #record = new JsonScan(RECORD_MEMBERS);
  readonly #attributes: AttributeSearch;
  /** Where the next token begins. */
  #at: number;
  #pausedAt = 0;
  #records = 0;

  constructor(text: string, { wanted, maxRecords }: ReadOptions) {
    this.#text = text;
    this.#maxRecords = maxRecords;
    this.#attributes = new AttributeSearch(wanted);
    this.#at = skipSpace(text, 0);
  }

  *request(): Generator<undefined, Enclosing> {
    if (this.#text.charCodeAt(this.#at) !== OPEN_BRACE) throw new NotJson();
    const request = yield* this.#enclosing(0);
    if (this.#at !== this.#text.length) throw new NotJson();
    return request;
  }

  /** @param level of the array that leads on, among {@link ARRAYS} */
  *#enclosing(level: number): Generator<undefined, Enclosing> {
    const found = new Enclosing();
    if (!this.#takes(OPEN_BRACE)) {
      yield* this.#pass(this.#value);
      return found;
    }
    if (this.#takes(CLOSE_BRACE)) return found;
    do {
      const name = yield* this.#name();
      const start = this.#at;
      if (name === ARRAYS[level]) yield* this.#array(level, found);
      else yield* this.#pass(this.#value);
      if (SHARED.has(name)) found.set(name, this.#text.slice(start, this.#value.end), this.#value.depth);
    } while (this.#takes(COMMA));
    this.#expect(CLOSE_BRACE);
    return found;
  }

  *#array(level: number, found: Enclosing): Generator<undefined> {
    found.inner = [];
    found.records = [];
    if (!this.#takes(OPEN_BRACKET)) return yield* this.#pass(this.#value);
    if (this.#takes(CLOSE_BRACKET)) return;
    do {
      if (level === RECORDS) {
        const start = this.#at;
        yield* this.#pass(this.#record);
        found.records.push(this.#readRecord(start));
      } else {
        const inner = yield* this.#enclosing(level + 1);
        // Empty ones take a few bytes each: none of them is kept.
        if (inner.inner.length + inner.records.length > 0) found.inner.push(inner);
      }
    } while (this.#takes(COMMA));
    this.#expect(CLOSE_BRACKET);
  }

  /** The name of a member; empty for one that is too long to matter. */
  *#name(): Generator<undefined, string> {
    const start = this.#at;
    if (this.#text.charCodeAt(start) !== QUOTE) throw new NotJson();
    yield* this.#pass(this.#value);
    const { end } = this.#value;
    this.#expect(COLON);
    return end - start > MAX_NAME_CHARACTERS ? '' : (JSON.parse(this.#text.slice(start, end)) as string);
  }

  /** Passes a value, which the scan then holds. */
  *#pass(scan: JsonScan): Generator<undefined> {
    if (!(yield* scanValue(scan, this.#text, this.#at))) throw new NotJson();
    this.#at = skipSpace(this.#text, scan.end);
    if (this.#at - this.#pausedAt < SLICE_CHARACTERS) return;
    this.#pausedAt = this.#at;
    yield;
  }

  /** Passes a character if it is the next one, with the white space after it. */
  #takes(code: number): boolean {
    if (this.#text.charCodeAt(this.#at) !== code) return false;
    this.#at = skipSpace(this.#text, this.#at + 1);
    return true;
  }

  #expect(code: number): void {
    if (!this.#takes(code)) throw new NotJson();
  }

  /** The record that the scan holds. */
  #readRecord(start: number): Found {
    const scan = this.#record;
    this.#records += 1;
    if (this.#records > this.#maxRecords) throw new TooMany();
    if (this.#text.charCodeAt(start) !== OPEN_BRACE) return 'no object';
    const record = {
      members: this.#text.slice(start + 1, scan.end - 1).trim(),
      eventName: textOf(scan, 'eventName'),
      severityNumber: Number(textOf(scan, 'severityNumber')) || 0,
      severityText: textOf(scan, 'severityText'),
      time: milliseconds(textOf(scan, 'timeUnixNano')) || milliseconds(textOf(scan, 'observedTimeUnixNano')),
      attributes: this.#attributes.in(scan.member('attributes')),
    };
    return { record, depth: scan.depth };
  }
}

const RECORD_MEMBERS = [
  ...['timeUnixNano', 'observedTimeUnixNano', 'severityNumber', 'severityText', 'eventName', 'attributes'],
] as const;

function textOf(scan: JsonScan, name: string): string {
  const json = scan.member(name);
  return (json === null ? null : scalarText(json)) ?? '';
}

/** Of a uint64 of nanoseconds; 0 for what is none, which means unknown. */
function milliseconds(nanoseconds: string): number {
  return /^\d{7,20}$/.test(nanoseconds) ? Number(nanoseconds.slice(0, -NANOSECOND_DIGITS)) : 0;
}

/** Decimal places of a millisecond in nanoseconds. */
const NANOSECOND_DIGITS = 6;

/** Finds string values of attributes. Most records have none of them, so the text is searched before it is parsed. */
class AttributeSearch {
  readonly #wanted: ReadonlySet<string>;
  readonly #texts: readonly string[];

  constructor(wanted: ReadonlySet<string>) {
    this.#wanted = wanted;
    this.#texts = [...wanted].map((name) => JSON.stringify(name));
  }

  in(json: string | null): ReadonlyMap<string, string> {
    if (json === null || !this.#texts.some((text) => json.includes(text))) return NONE_FOUND;
    const attributes: unknown = JSON.parse(json);
    const found = new Map<string, string>();
    if (!Array.isArray(attributes)) return found;
    for (const attribute of attributes) {
      const { key, value } = (attribute ?? {}) as { key?: unknown; value?: { stringValue?: unknown } };
      const text = value?.stringValue;
      if (typeof key === 'string' && this.#wanted.has(key) && typeof text === 'string') found.set(key, text);
    }
    return found;
  }
}

const NONE_FOUND: ReadonlyMap<string, string> = new Map();
