/**
 * Reads an ExportLogsServiceRequest in OTLP's JSON form. A log record keeps its own text; the texts of its resource and its
 * scope follow it as members.
 */
import { JsonScan, type Span } from '../../parse/json-scan.ts';
import { arrayElements, scalarText, scanWhole } from '../json-values.ts';
import { joined, type LogRecord } from './protobuf.ts';

/** A record with the members of its resource and scope; or what is wrong with the whole body. */
export type OneRecord =
  | { readonly record: LogRecord; readonly origin: string; readonly depth: number }
  | 'no object'
  | 'not JSON'
  | undefined;

const RECORD_MEMBERS = [
  ...['timeUnixNano', 'observedTimeUnixNano', 'severityNumber', 'severityText', 'eventName', 'attributes'],
] as const;

/** Reads the records of a request one by one; undefined: a pause. After `not JSON` there are no more. */
export function* logRecords(text: string, wanted: ReadonlySet<string>): Generator<OneRecord> {
  const request = new JsonScan(['resourceLogs']);
  if (!(yield* scanWhole(request, text)) || !request.isObject) return yield 'not JSON';
  const resourceLogs = new JsonScan(['resource', 'scopeLogs', 'schemaUrl']);
  const scopeLogs = new JsonScan(['scope', 'logRecords', 'schemaUrl']);
  const record = new JsonScan(RECORD_MEMBERS);
  const attributes = new AttributeSearch(wanted);
  for (const isHeld of elements(text, request.span('resourceLogs'), resourceLogs)) {
    if (isHeld === undefined) yield undefined;
    else {
      const resource = joined(
        memberOf(resourceLogs, 'resource', 'resource'),
        memberOf(resourceLogs, 'schemaUrl', 'resourceSchemaUrl'),
      );
      const depth = resourceLogs.span('resource')?.depth ?? 0;
      for (const isOne of elements(text, resourceLogs.span('scopeLogs'), scopeLogs)) {
        if (isOne === undefined) yield undefined;
        else yield* recordsOf({ text, scopeLogs, record }, { members: resource, depth }, attributes);
      }
    }
  }
}

function* recordsOf(
  {
    text,
    scopeLogs,
    record,
  }: { readonly text: string; readonly scopeLogs: JsonScan; readonly record: JsonScan },
  resource: { readonly members: string; readonly depth: number },
  attributes: AttributeSearch,
): Generator<OneRecord> {
  const scope = joined(
    memberOf(scopeLogs, 'scope', 'scope'),
    memberOf(scopeLogs, 'schemaUrl', 'scopeSchemaUrl'),
  );
  const origin = joined(resource.members, scope);
  const outer = Math.max(resource.depth, scopeLogs.span('scope')?.depth ?? 0) + 1;
  for (const isHeld of elements(text, scopeLogs.span('logRecords'), record)) {
    if (isHeld === undefined) yield undefined;
    else if (!record.isObject) yield 'no object';
    else yield { record: readRecord(record, attributes), origin, depth: Math.max(record.depth, outer) };
  }
}

/** The elements of an array, each while the scan holds it. The text is JSON; what is no array has none. */
function* elements(text: string, array: Span | null, scan: JsonScan): Generator<true | undefined> {
  if (array === null || !text.startsWith('[', array.start)) return;
  const found = arrayElements(scan, text, array.start);
  for (let next = found.next(); next.done !== true; next = found.next()) yield next.value;
}

function memberOf(scan: JsonScan, name: string, as: string): string {
  const json = scan.member(name);
  return json === null || json === 'null' ? '' : `"${as}":${json}`;
}

function readRecord(scan: JsonScan, attributes: AttributeSearch): LogRecord {
  const value = scan.value;
  return {
    members: value.slice(1, -1).trim(),
    eventName: textOf(scan, 'eventName'),
    severityNumber: Number(textOf(scan, 'severityNumber')) || 0,
    severityText: textOf(scan, 'severityText'),
    time: nanoseconds(textOf(scan, 'timeUnixNano')),
    observedTime: nanoseconds(textOf(scan, 'observedTimeUnixNano')),
    attributes: attributes.in(scan.member('attributes')),
  };
}

function textOf(scan: JsonScan, name: string): string {
  const json = scan.member(name);
  return (json === null ? null : scalarText(json)) ?? '';
}

/** Of a uint64; 0 for what is none, which means unknown. */
function nanoseconds(text: string): bigint {
  return /^\d{1,20}$/.test(text) ? BigInt(text) : 0n;
}

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
