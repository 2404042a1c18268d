/** POST /v1/otlp/v1/logs: log records of OpenTelemetry by OTLP/HTTP (opentelemetry-proto, docs/specification.md). */
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { eventTypeNameProblem } from '../../../apps/event-types.ts';
import { decoded, unnamedEncoding } from '../../../base/utf8.ts';
import { invalidField, Rejection } from '../../../errors.ts';
import { ENCODINGS } from '../../../http/compressed-body.ts';
import type { Answer, Exchange } from '../../../http/exchange.ts';
import { Query, text } from '../../../http/query.ts';
import { mistakeIn } from '../../../json/mistake.ts';
import { MAX_PAYLOAD_DEPTH } from '../../../json/scan.ts';
import { type BatchEvent, TypeReferences } from '../../parse/batch-event.ts';
import { holdEvents, mediaType, tooLarge, tooMany } from '../collect.ts';
import { BEARER } from '../events.ts';
import type { EventStream, Format, Sent } from '../format.ts';
import { eventKey } from '../key.ts';
import { cut } from '../times.ts';
import { logRecords as jsonRecords } from './json.ts';
import { type LogRecord, MalformedMessage, logRecords as protobufRecords, SEVERITIES } from './protobuf.ts';

export const PROTOBUF_TYPE = 'application/x-protobuf';
const JSON_TYPE = 'application/json';

/** The attribute that named events before log records had a field for it. */
const EVENT_NAME = 'event.name';
/** The attribute that identifies a log record (semantic conventions). */
const RECORD_ID = 'log.record.uid';

export const LOGS_QUERY = new Query({
  typeAttribute: text(
    `The attribute that names the event type of a log record without an event name. Default: \`${EVENT_NAME}\`.`,
    {
      schema: { maxLength: 200 },
      rule: 'must have at most 200 characters',
      convert: (name) => name,
    },
  ),
});

const UNKNOWN_TYPE = new Rejection('unsupportedMediaType', `Send OTLP as ${PROTOBUF_TYPE} or ${JSON_TYPE}.`);
const NOT_JSON = new Rejection('invalidBody', 'The body is not an ExportLogsServiceRequest in JSON.');
const NOT_PROTOBUF = new Rejection(
  'invalidBody',
  'The body is not an ExportLogsServiceRequest in Protobuf, whose field 1 is resource_logs.',
);
const OTHER_MESSAGE = new Rejection(
  'invalidBody',
  'The message is no LogRecord: the types of its fields are those of another one, such as a span or a metric.',
);
const UNREAD = new Rejection(
  'invalidBody',
  'The request has no log records, and fields that are not of logs.',
);
const TOO_DEEP = new Rejection(
  'invalidBody',
  'The log record, its resource or its scope is nested too deep.',
);

export const OTLP_LOGS: Format = {
  ...BEARER,
  isBinary: true,
  isStoredInParts: true,
  mayBeEmpty: true,
  repeatsWhole: true,
  reader: (exchange) => {
    const query = LOGS_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const attribute = query.typeAttribute ?? EVENT_NAME;
    switch (mediaType(exchange.header('content-type'))) {
      case PROTOBUF_TYPE:
        return (sent) => protobufEvents(sent, attribute);
      case JSON_TYPE:
        return (sent) => jsonEvents(sent, attribute);
      default:
        return UNKNOWN_TYPE;
    }
  },
  answer: ({ exchange, results }) => {
    const refusals = results.filter((result) => result instanceof Rejection);
    const [first] = refusals;
    const message = first === undefined ? '' : `${first.fields().error}: ${first.details}`;
    const records = refusals.filter((refusal) => !NO_RECORDS.has(refusal)).length;
    return mediaType(exchange.header('content-type')) === PROTOBUF_TYPE
      ? protobufAnswer(records, message)
      : jsonAnswer(records, message);
  },
  refuse: statusOf,
};

/** A refusal as a Status in the form of its request. */
export function statusOf(refusal: Rejection, exchange: Exchange): Rejection {
  if (mediaType(exchange.header('content-type')) === PROTOBUF_TYPE)
    return refusal.written(protobufStatus(refusal), PROTOBUF_TYPE);
  const status = { code: STATUS_CODES[refusal.status] ?? 2, message: refusal.details };
  return refusal.written(JSON.stringify(status));
}

/** Refusals of parts of a request that are no records: they are told, and not counted to the client. */
const NO_RECORDS = new WeakSet<Rejection>([UNREAD]);

function* protobufEvents(sent: Sent, attribute: string): EventStream {
  const { bytes, limits } = sent;
  const packed = unnamedEncoding(bytes, ENCODINGS);
  if (packed !== null) return packed;
  const records = new RecordEvents(sent, attribute);
  const found = protobufRecords(bytes, { wanted: records.wanted, maxBytes: limits.maxEventBytes });
  try {
    for (const one of found) {
      if (one === undefined) yield undefined;
      else if (one === 'too deep') yield TOO_DEEP;
      else if (one === 'too large') yield tooLarge(limits);
      else if (one === 'other') yield OTHER_MESSAGE;
      else if (one === 'unread') yield UNREAD;
      else yield records.event(one.record, one.origin);
      if (records.refusal !== null) return records.refusal;
    }
  } catch (error) {
    if (error instanceof MalformedMessage) return NOT_PROTOBUF;
    throw error;
  }
  return null;
}

function* jsonEvents(sent: Sent, attribute: string): EventStream {
  const packed = unnamedEncoding(sent.bytes, ENCODINGS);
  if (packed !== null) return packed;
  const body = yield* decoded(sent.bytes);
  const records = new RecordEvents(sent, attribute);
  const onRecord = (count: number): Rejection | null =>
    count > sent.limits.maxEvents ? tooMany(sent.limits) : holdEvents(sent, count);
  for (const one of jsonRecords(body, { wanted: records.wanted, onRecord })) {
    if (one === undefined || one instanceof Rejection) {
      yield one;
    } else if (one === 'not JSON') {
      return (yield* mistakeIn(body.text)) ?? NOT_JSON;
    } else if ('body' in one) {
      return one.body;
    } else if ('unread' in one) {
      NO_RECORDS.add(one.unread);
      yield one.unread;
    } else {
      yield one.depth > MAX_PAYLOAD_DEPTH ? TOO_DEEP : records.event(one.record, one.origin);
    }
    if (records.refusal !== null) return records.refusal;
  }
  return null;
}

/** Makes events of log records. */
class RecordEvents {
  readonly wanted: ReadonlySet<string>;
  /** Why no more are made: their texts, which repeat that of the resource, take too much memory together. */
  refusal: Rejection | null = null;
  readonly #types = new TypeReferences();
  readonly #attribute: string;
  readonly #sent: Sent;

  constructor(sent: Sent, attribute: string) {
    this.#sent = sent;
    this.#attribute = attribute;
    this.wanted = new Set([attribute, RECORD_ID]);
  }

  event(record: LogRecord, origin: string): BatchEvent | Rejection {
    const { receivedAt, limits, hold } = this.#sent;
    const characters = record.members.length + origin.length;
    if (characters > limits.maxEventBytes) return tooLarge(limits);
    this.refusal = hold(characters);
    const { attributes } = record;
    for (const [attribute, text] of attributes)
      if (text === null) return invalidField(attribute, 'must be a string or a number');
    const name = record.eventName || attributes.get(this.#attribute) || severityName(record);
    const type = this.#types.named(name);
    if (type === null)
      return new Rejection('invalidBody', `The event name ${eventTypeNameProblem(name) ?? 'is not valid'}.`);
    const time = record.time === 0 ? null : record.time;
    const id = attributes.get(RECORD_ID) ?? '';
    const separator = record.members === '' || origin === '' ? '' : ',';
    return {
      type,
      ...cut(time, receivedAt),
      key: time === null || id === '' ? null : eventKey(id),
      payload: `{${record.members}${separator}${origin}}`,
    };
  }
}

function severityName({ severityNumber, severityText }: LogRecord): string {
  return SEVERITIES[Math.ceil(severityNumber / 4) - 1] ?? (severityText || 'LOG');
}

/** ExportLogsServiceResponse: empty, or with the field partial_success. */
function protobufAnswer(rejected: number, message: string): Answer {
  const writer = new BinaryWriter();
  if (message !== '') writer.tag(1, 2).fork().tag(1, 0).int64(rejected).tag(2, 2).string(message).join();
  const body = Buffer.from(writer.finish());
  return { status: 200, body, bytes: body.length, contentType: PROTOBUF_TYPE };
}

function jsonAnswer(rejected: number, message: string): Answer {
  // 64-bit integers are strings in JSON.
  const partialSuccess = { rejectedLogRecords: String(rejected), errorMessage: message };
  return { status: 200, body: JSON.stringify(message === '' ? {} : { partialSuccess }) };
}

/** The codes of gRPC for HTTP statuses. */
const STATUS_CODES: Readonly<Record<number, number>> = {
  400: 3,
  401: 16,
  404: 5,
  405: 12,
  413: 3,
  415: 3,
  429: 8,
  500: 13,
  503: 14,
};

/** google.rpc.Status: the body of every error in OTLP/HTTP. */
function protobufStatus(refusal: Rejection): Buffer {
  const writer = new BinaryWriter().tag(1, 0).int32(STATUS_CODES[refusal.status] ?? 2);
  return Buffer.from(writer.tag(2, 2).string(refusal.details).finish());
}
