/**
 * Reads an ExportLogsServiceRequest in OTLP's JSON form, in one pass. A log record keeps its own text; the texts of its
 * resource and its scope follow it as members. A member may also have the name of its field, as Protobuf's JSON permits:
 * `resource_logs` for `resourceLogs`.
 */

import type { Decoded } from '../../../base/utf8.ts';
import { invalidField, Rejection } from '../../../errors.ts';
import { skipSpace } from '../../../json/lexer.ts';
import { JsonScan, SLICE_CHARACTERS } from '../../../json/scan.ts';
import { memberText, scanValue } from '../../../json/values.ts';
import { nanosecondsProblem, parseNanoseconds } from '../times.ts';
import { joined, keepText, type LogRecord, SEVERITIES } from './protobuf.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** A record with the members of its resource and scope, or its refusal; or what is wrong with the whole body. */
export type OneRecord =
  | { readonly record: LogRecord; readonly origin: string; readonly depth: number }
  | Rejection
  | { readonly unread: Rejection }
  | { readonly body: Rejection }
  | 'not JSON'
  | undefined;

export interface ReadOptions {
  /** Names of the attributes whose values are needed. */
  readonly wanted: ReadonlySet<string>;
  /** Called with the number of each record. @returns why no more are read, or null */
  readonly onRecord: (records: number) => Rejection | null;
}

/**
 * Reads the records of a request one by one; undefined: a pause; `unread`: the first part of it that has no records, and something
 * else in their place. After a refusal of the body and `not JSON` there are no more.
 */
export function* logRecords(body: Decoded, options: ReadOptions): Generator<OneRecord> {
  try {
    const logs = new LogsText(body, options);
    const request = yield* logs.request();
    for (const resource of request.inner)
      for (const scope of resource.inner) {
        const origin = joined(resource.members('resource'), scope.members('scope'));
        const outer = Math.max(resource.depth, scope.depth) + 1;
        const broken = resource.broken ?? scope.broken;
        for (const found of scope.records)
          yield found instanceof Rejection
            ? found
            : (broken ?? { ...found, origin, depth: Math.max(found.depth, outer) });
      }
    if (logs.unread !== null) yield { unread: logs.unread };
  } catch (error) {
    if (error instanceof NotJson) return yield 'not JSON';
    if (error instanceof Ended) return yield { body: error.refusal };
    throw error;
  }
}

class NotJson extends Error {}
class Ended extends Error {
  readonly refusal: Rejection;

  constructor(refusal: Rejection) {
    super();
    this.refusal = refusal;
  }
}

const NO_OBJECT = new Rejection('invalidBody', 'A log record must be a JSON object.');

/** The arrays that lead to the records: each is a member of the elements of the one before. */
const ARRAYS = ['resourceLogs', 'scopeLogs', 'logRecords'] as const;
const RECORDS = ARRAYS.length - 1;
/** Members of ResourceLogs and ScopeLogs that their records get. */
const SHARED: ReadonlySet<string> = new Set(['resource', 'scope', 'schemaUrl']);
/** Longer names, all of their characters escaped, are none of these. */
const MAX_NAME_CHARACTERS = 6 * 13 + 2;

/** The name that OTLP gives a field of Protobuf. */
function camelCase(name: string): string {
  return name.includes('_')
    ? name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    : name;
}

type Found = { readonly record: LogRecord; readonly depth: number } | Rejection;

/** An object around records: the request, ResourceLogs or ScopeLogs. */
class Enclosing {
  inner: Enclosing[] = [];
  records: Found[] = [];
  /** Levels of the texts below. */
  depth = 0;
  /** The refusal of all records, as one of the texts below has bytes that are no UTF-8. */
  broken: Rejection | null = null;
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
  /** Why a part of the request was not read that has something else in place of records. */
  unread: Rejection | null = null;
  readonly #text: string;
  readonly #damage: Decoded['damage'];
  readonly #onRecord: ReadOptions['onRecord'];
  readonly #value = new JsonScan();
  readonly #record = new JsonScan(RECORD_MEMBERS);
  readonly #attributes: AttributeSearch;
  /** Where the next token begins. */
  #at: number;
  #pausedAt = 0;
  #records = 0;

  constructor({ text, damage }: Decoded, { wanted, onRecord }: ReadOptions) {
    this.#text = text;
    this.#damage = damage;
    this.#onRecord = onRecord;
    this.#attributes = new AttributeSearch(wanted);
    this.#at = skipSpace(text, 0);
  }

  *request(): Generator<undefined, Enclosing> {
    if (this.#text.charCodeAt(this.#at) !== OPEN_BRACE) throw new NotJson();
    const request = yield* this.#enclosing(0);
    if (this.#at !== this.#text.length) throw new NotJson();
    if (request.inner.length === 0 && this.unread !== null) throw new Ended(this.unread);
    return request;
  }

  /** @param level of the array that leads on, among {@link ARRAYS} */
  *#enclosing(level: number): Generator<undefined, Enclosing> {
    const found = new Enclosing();
    const wanted = ARRAYS[level] as string;
    if (!this.#takes(OPEN_BRACE)) {
      yield* this.#pass(this.#value);
      this.unread ??= invalidField(ARRAYS[level - 1] ?? '', 'must have objects');
      return found;
    }
    let other: Rejection | null = null;
    let isThere = false;
    if (this.#takes(CLOSE_BRACE)) return found;
    do {
      const sent = yield* this.#name();
      const name = camelCase(sent);
      const start = this.#at;
      if (name === wanted) {
        isThere = yield* this.#array(level, found);
        if (!isThere && !this.#text.startsWith('null', start)) other = invalidField(sent, 'must be an array');
        continue;
      }
      yield* this.#pass(this.#value);
      const { end, depth } = this.#value;
      if (SHARED.has(name)) {
        found.set(name, this.#text.slice(start, end), depth);
        found.broken ??= this.#damage?.in(start, end, `The field ${JSON.stringify(name)}`) ?? null;
      } else {
        other ??= new Rejection(
          'invalidBody',
          `Logs have "${wanted}", and this has ${JSON.stringify(sent)}.`,
        );
      }
    } while (this.#takes(COMMA));
    this.#expect(CLOSE_BRACE);
    if (!isThere) this.unread ??= other;
    return found;
  }

  /** @returns whether it is one */
  *#array(level: number, found: Enclosing): Generator<undefined, boolean> {
    found.inner = [];
    found.records = [];
    if (!this.#takes(OPEN_BRACKET)) {
      yield* this.#pass(this.#value);
      return false;
    }
    if (this.#takes(CLOSE_BRACKET)) return true;
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
    return true;
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
    const refusal = this.#onRecord(this.#records);
    if (refusal !== null) throw new Ended(refusal);
    const broken = this.#damage?.in(start, scan.end, 'The log record') ?? null;
    if (broken !== null) return broken;
    if (this.#text.charCodeAt(start) !== OPEN_BRACE) return NO_OBJECT;
    const texts = new Map<string, string>();
    for (const [name, field] of FIELDS) {
      const text = memberText(scan, name) ?? memberText(scan, field);
      if (text instanceof Rejection) return text;
      if (text !== null) texts.set(name, text);
    }
    const time = timeOf(texts);
    if (time instanceof Rejection) return time;
    const record = {
      members: this.#text.slice(start + 1, scan.end - 1).trim(),
      eventName: texts.get('eventName') ?? '',
      severityNumber: severityOf(texts.get('severityNumber') ?? ''),
      severityText: texts.get('severityText') ?? '',
      time,
      attributes: this.#attributes.in(scan.member('attributes')),
    };
    return { record, depth: scan.depth };
  }
}

/** The members that are read, and their names as fields. */
const FIELDS = [
  ['timeUnixNano', 'time_unix_nano'],
  ['observedTimeUnixNano', 'observed_time_unix_nano'],
  ['severityNumber', 'severity_number'],
  ['severityText', 'severity_text'],
  ['eventName', 'event_name'],
] as const;
const RECORD_MEMBERS = [...FIELDS.flat(), 'attributes'];

/** A severity by its number, or by the name that Protobuf's JSON gives it: `SEVERITY_NUMBER_WARN2` is 14. 0: unknown. */
function severityOf(text: string): number {
  const [, name = '', place = '1'] = /^SEVERITY_NUMBER_([A-Z]+)([2-4])?$/.exec(text) ?? [];
  return name === '' ? Number(text) || 0 : 4 * SEVERITIES.indexOf(name) + Number(place);
}

/** When it happened, else when it was observed, in milliseconds; 0 if unknown, and a refusal for what is no time. */
function timeOf(texts: ReadonlyMap<string, string>): number | Rejection {
  for (const name of ['timeUnixNano', 'observedTimeUnixNano']) {
    const text = texts.get(name) ?? '';
    const time = text === '' ? 0 : parseNanoseconds(text);
    if (time === null) return invalidField(name, nanosecondsProblem(text));
    if (time > 0) return time;
  }
  return 0;
}

/** Finds values of attributes. Most records have none of them, so the text is searched before it is parsed. */
class AttributeSearch {
  readonly #wanted: ReadonlySet<string>;
  readonly #texts: readonly string[];

  constructor(wanted: ReadonlySet<string>) {
    this.#wanted = wanted;
    this.#texts = [...wanted].map((name) => JSON.stringify(name));
  }

  in(json: string | null): ReadonlyMap<string, string | null> {
    if (json === null || !this.#texts.some((text) => json.includes(text))) return NONE_FOUND;
    const attributes: unknown = JSON.parse(json);
    const found = new Map<string, string | null>();
    if (!Array.isArray(attributes)) return found;
    for (const attribute of attributes) {
      const { key, value } = (attribute ?? {}) as { key?: unknown; value?: unknown };
      if (typeof key === 'string' && this.#wanted.has(key)) keepText(found, key, value);
    }
    return found;
  }
}

const NONE_FOUND: ReadonlyMap<string, string | null> = new Map();
