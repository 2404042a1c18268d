/**
 * POST /v1/cloudevents: CloudEvents 1.0 by their HTTP binding, in binary, structured and batched mode. The payload is the
 * event in the JSON format (cloudevents/formats/json-format.md); of the JSON modes it is the sender's text.
 */
import { isUtf8 } from 'node:buffer';
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { inSlices } from '../../base/time-slice.ts';
import { decode, decoded } from '../../base/utf8.ts';
import { Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { findMistake } from '../../json/mistake.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from '../../json/scan.ts';
import { isArray, scalarText, scanWhole, wholeArray } from '../../json/values.ts';
import { batchAnswer } from '../batch-answer.ts';
import { parseEventTime } from '../event-time.ts';
import { type BatchEvent, TypeReferences } from '../parse/batch-event.ts';
import { alone, mediaType, scanOne, tooLarge } from './collect.ts';
import { BEARER } from './events.ts';
import type { EventStream, Format, Reader, Sent } from './format.ts';
import { eventKey } from './key.ts';
import { cut } from './times.ts';

/** The headers of the attributes in binary mode. */
export const ATTRIBUTE_PREFIX = 'ce-';
export const STRUCTURED_TYPE = 'application/cloudevents+json';
export const BATCH_TYPE = 'application/cloudevents-batch+json';

const UNKNOWN_MODE = new Rejection(
  'unsupportedMediaType',
  `Send a CloudEvent with the header "ce-specversion", or as ${STRUCTURED_TYPE} or ${BATCH_TYPE}.`,
);
const NO_ARRAY = new Rejection('invalidBody', 'A batch of CloudEvents must be a JSON array.');
const NO_OBJECT = new Rejection('invalidBody', 'A CloudEvent must be a JSON object.');
const TOO_DEEP = new Rejection(
  'invalidBody',
  `A CloudEvent may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`,
);
const TWICE = new Rejection('invalidBody', 'A CloudEvent has either "data" or "data_base64".');

export const CLOUD_EVENTS: Format = {
  ...BEARER,
  isBinary: true,
  isStoredInParts: true,
  repeatsWhole: true,
  reader: (exchange) => {
    const type = mediaType(exchange.header('content-type'));
    if (type === BATCH_TYPE) return batchedEvents;
    if (type === STRUCTURED_TYPE) return structuredEvent;
    const headers = exchange.prefixedHeaders();
    const isBinaryMode = headers.has('ce-specversion') && !type.startsWith('application/cloudevents');
    return isBinaryMode ? binaryReader(headers, exchange) : UNKNOWN_MODE;
  },
  mayBeEmpty: true,
  answer: (report) => inSlices(batchAnswer(report, 'document'), report.slices),
};

function binaryReader(headers: ReadonlyMap<string, string>, exchange: Exchange): Reader {
  const contentType = exchange.header('content-type');
  return (sent) => binaryEvent(headers, contentType, sent);
}

const OPTIONAL = ['datacontenttype', 'dataschema', 'subject'] as const;
const MEMBERS = ['specversion', 'id', 'source', 'type', 'time', 'data', 'data_base64', ...OPTIONAL] as const;

function* structuredEvent({ bytes, receivedAt, limits }: Sent): EventStream {
  const scan = new JsonScan(MEMBERS, true);
  const problem = yield* scanOne(scan, yield* decoded(bytes));
  if (problem !== null) return problem;
  return yield* alone(eventOf(scan, new TypeReferences(), receivedAt), limits);
}

function* batchedEvents({ bytes, receivedAt }: Sent): EventStream {
  const { text, damage } = yield* decoded(bytes);
  if (!isArray(text)) return NO_ARRAY;
  const types = new TypeReferences();
  const scan = new JsonScan(MEMBERS, true);
  for (const isElement of wholeArray(scan, text, damage)) {
    if (isElement === false) return yield* findMistake(text);
    yield isElement === true ? eventOf(scan, types, receivedAt) : isElement;
  }
  return null;
}

function eventOf(scan: JsonScan, types: TypeReferences, receivedAt: number): BatchEvent | Rejection {
  if (!scan.isObject) return NO_OBJECT;
  if (scan.depth > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
  if (scan.span('data') !== null && scan.span('data_base64') !== null) return TWICE;
  const attribute = (name: string): string | null | Rejection => {
    const json = scan.member(name);
    if (json === null || json === 'null') return null;
    return json.startsWith('"') ? (scalarText(json) ?? null) : invalid(name, 'must be a string');
  };
  const problem = scan.firstOfOthers(extensionProblem);
  if (problem !== null) return problem;
  return event(attribute, types, receivedAt, () => scan.value);
}

/** What is wrong with an extension in the JSON format: with its name, or with the type of its value. */
function extensionProblem(text: string, name: number, nameEnd: number, value: number): Rejection | null {
  for (let at = name; at < nameEnd; at += 1)
    if (!isAttributeCharacter(text.charCodeAt(at)))
      return badName(text.slice(name, Math.min(nameEnd, name + MAX_TOLD)));
  const first = text.charCodeAt(value);
  if (name < nameEnd && first !== OPEN_BRACE && first !== OPEN_BRACKET && !isFraction(text, value))
    return null;
  return name === nameEnd
    ? badName('')
    : invalid(text.slice(name, nameEnd), 'must be a string, a boolean or an integer');
}

/** Lower-case letters and digits (CloudEvents 1.0, "Naming Conventions"). */
function isAttributeCharacter(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39);
}

/** Characters of a wrong name that the message quotes. */
const MAX_TOLD = 50;

function badName(name: string): Rejection {
  return new Rejection(
    'invalidBody',
    `The name of an attribute must have lower-case letters and digits alone, not ${JSON.stringify(name)}.`,
  );
}

/** Whether a number with a fraction or an exponent begins at `start`. */
function isFraction(text: string, start: number): boolean {
  let at = text.charCodeAt(start) === MINUS ? start + 1 : start;
  while (text.charCodeAt(at) >= 0x30 && text.charCodeAt(at) <= 0x39) at += 1;
  const end = text.charAt(at);
  return at > start && (end === '.' || end === 'e' || end === 'E');
}

const MINUS = 0x2d;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;

function* binaryEvent(
  headers: ReadonlyMap<string, string>,
  contentType: string,
  { bytes, receivedAt, limits }: Sent,
): EventStream {
  if (bytes.length > limits.maxEventBytes) return tooLarge(limits);
  const data = bytes.length === 0 ? '' : dataMember(contentType, bytes);
  if (data instanceof Rejection) return data;
  if (data.startsWith(JSON_DATA)) {
    const scan = new JsonScan();
    const json = data.slice(JSON_DATA.length);
    if (!(yield* scanWhole(scan, json))) return yield* findMistake(json);
    if (scan.depth >= MAX_PAYLOAD_DEPTH) return TOO_DEEP;
  }
  const attributes = new Map<string, string>();
  for (const [header, value] of headers) {
    const name = header.slice(ATTRIBUTE_PREFIX.length);
    if (!/^[a-z0-9]+$/.test(name) && name !== 'data_base64') return badName(name.slice(0, MAX_TOLD));
    const text = headerText(value);
    if (text === null) return invalid(name, 'must be percent-encoded UTF-8');
    attributes.set(name, text);
  }
  // The header is the one that counts, and these two are not attributes.
  for (const name of ['datacontenttype', 'data', 'data_base64']) attributes.delete(name);
  if (contentType !== '') attributes.set('datacontenttype', contentType);
  const payload = (): string => {
    const members = [...attributes].map(
      ([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`,
    );
    return `{${members.join(',')}${data === '' ? '' : `,${data}`}}`;
  };
  const attribute = (name: string): string | null => attributes.get(name) ?? null;
  return yield* alone(event(attribute, new TypeReferences(), receivedAt, payload), limits);
}

const JSON_DATA = '"data":';

/** The member of the JSON format for the body of a message in binary mode: JSON as it is, other text as a string. */
function dataMember(contentType: string, bytes: Buffer): string | Rejection {
  if (/^[^/]+\/(?:[^/]+\+)?json$/.test(mediaType(contentType))) {
    const text = decode(bytes);
    return text instanceof Rejection ? text : `${JSON_DATA}${text}`;
  }
  return isUtf8(bytes)
    ? `${JSON_DATA}${JSON.stringify(bytes.toString('utf8'))}`
    : `"data_base64":"${bytes.toString('base64')}"`;
}

/** Makes an event of its attributes. @param attribute of a name; null if it is absent */
function event(
  attribute: (name: string) => string | null | Rejection,
  types: TypeReferences,
  receivedAt: number,
  payload: () => string,
): BatchEvent | Rejection {
  const values: Record<string, string | null> = {};
  for (const name of ['specversion', 'id', 'source', 'type', 'time'] as const) {
    const value = attribute(name);
    if (value instanceof Rejection) return value;
    if ((value === null || value === '') && name !== 'time') return invalid(name, 'is missing');
    values[name] = value;
  }
  for (const name of OPTIONAL) {
    const value = attribute(name);
    if (value instanceof Rejection) return value;
    if (value === '') return invalid(name, 'must not be empty');
    if (name === 'datacontenttype' && value?.includes('/') === false)
      return invalid(name, 'must be a media type');
  }
  const { specversion, id, source, type, time } = values;
  if (specversion !== '1.0') return invalid('specversion', 'must be "1.0"');
  const named = typeOf(types, type ?? '');
  if (named instanceof Rejection) return named;
  const createdAt = time ? parseEventTime(time) : null;
  if (typeof createdAt === 'string') return invalid('time', createdAt);
  if (time && !RFC_3339.test(time))
    return invalid('time', 'must be a time of RFC 3339, with seconds and an offset');
  if (createdAt === null) return { type: named, createdAt, key: null, payload: payload() };
  // A source and an id are unique together, by the standard. A source has no space in it.
  const key = eventKey(`${source} ${id}`);
  return { type: named, ...cut(createdAt, receivedAt), key, payload: payload() };
}

/** The form of a time; whether there is such a time is another question. */
const RFC_3339 = /^[\d-]{10}[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;

function typeOf(types: TypeReferences, name: string): TypeReference | Rejection {
  const type = types.named(name);
  return type ?? invalid('type', eventTypeNameProblem(name) ?? 'is not the name of an event type');
}

/**
 * The value of an attribute's header (HTTP binding, 3.1.3.2): maybe a quoted string, then percent-encoded. A percent sign that
 * encodes nothing stands for itself.
 * @returns null if the encoded bytes are not UTF-8
 */
function headerText(value: string): string | null {
  const unquoted =
    value.length >= 2 && value.startsWith('"') && value.endsWith('"')
      ? value.slice(1, -1).replaceAll(/\\(.)/g, '$1')
      : value;
  try {
    return unquoted.replaceAll(/(?:%[\da-f]{2})+/gi, (encoded) => decodeURIComponent(encoded));
  } catch {
    return null;
  }
}

function invalid(name: string, problem: string): Rejection {
  return new Rejection('invalidBody', `The attribute "${name}" ${problem}.`, { param: name });
}
