/** POST /v1/records: any JSON objects, as log shippers send them. Each is a payload as it is. */
import { eventTypeNameProblem, type TypeReference } from '../../apps/event-types.ts';
import { invalidField, Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { Query, text } from '../../http/query.ts';
import { findMistake, lineNotJson } from '../../json/mistake.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from '../../json/scan.ts';
import { isArray, joinedValues, lineValues, scalarText, wholeArray } from '../../json/values.ts';
import { countsAnswer } from '../batch-answer.ts';
import { type BatchEvent, TypeReferences } from '../parse/batch-event.ts';
import { ARRAY_LINE, isLineDelimited, NO_EVENTS } from './collect.ts';
import { BEARER } from './events.ts';
import { Field, isFieldName, MAX_FIELD_NAME } from './field.ts';
import type { EventStream, Format, Sent } from './format.ts';
import { eventKey } from './key.ts';
import { cut, parseRecordTime } from './times.ts';

const FIELD_RULE = `must be the name of a field, of at most ${MAX_FIELD_NAME} characters`;

function fieldParameter(description: string) {
  return text(description, {
    schema: { maxLength: MAX_FIELD_NAME },
    rule: FIELD_RULE,
    convert: (name) => name,
  });
}

function typeParameter(description: string) {
  return text(description, {
    schema: { maxLength: 200 },
    rule: 'must have at most 200 characters',
    convert: (name) => name,
  });
}

export const RECORDS_QUERY = new Query(
  {
    type: typeParameter('The event type of records that name none.'),
    typeName: typeParameter('Another name of `type`.'),
    typeField: fieldParameter(
      'The field of a record that names its event type. `a.b` is the field `b` of `a`.',
    ),
    timeField: fieldParameter(
      'The field that has the `createdAt`: RFC 3339, or Unix time in s, ms, µs or ns.',
    ),
    keyField: fieldParameter(
      'The field whose value identifies a record that is sent again. It needs `timeField`.',
    ),
  },
  ({ type: given, typeName, typeField, timeField, keyField }) => {
    if (given !== null && typeName !== null) return 'type and typeName are the same: give one of them.';
    const type = given ?? typeName;
    if (type === null && typeField === null) return 'One of type and typeField is required.';
    const problem = type === null ? null : eventTypeNameProblem(type);
    if (problem !== null) return `type ${problem}.`;
    if (keyField !== null && timeField === null) return 'keyField needs timeField.';
    const wrong = [typeField, timeField, keyField].some((name) => name !== null && !isFieldName(name));
    return wrong ? 'A name of a field may have at most 10 dots.' : null;
  },
);

export const RECORDS: Format = {
  ...BEARER,
  isStoredInParts: true,
  mayBeEmpty: true,
  repeatsWhole: true,
  reader: (exchange: Exchange) => {
    const unknown = RECORDS_QUERY.unknown(exchange.query);
    if (unknown !== null) return unknown;
    const query = RECORDS_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const isLines = isLineDelimited(exchange.header('content-type'));
    return (sent) => {
      const records = new RecordReader({ ...query, type: query.type ?? query.typeName }, sent.receivedAt);
      return recordEvents(sent, isLines, records);
    };
  },
  answer: ({ results }) => countsAnswer(results),
};

const NO_OBJECT = new Rejection('invalidBody', 'A record must be a JSON object.');
const TOO_DEEP = new Rejection(
  'invalidBody',
  `A record may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`,
);

/** The records of an array, of lines, or of objects that follow each other. */
function* recordEvents({ text, damage }: Sent, isLines: boolean, records: RecordReader): EventStream {
  const { scan } = records;
  if (text.trim() === '') return NO_EVENTS;
  if (!isLines && isArray(text)) {
    for (const isElement of wholeArray(scan, text, damage)) {
      if (isElement === false) return yield* findMistake(text);
      yield isElement === true ? records.read() : isElement;
    }
    return null;
  }
  for (const isJson of isLines ? lineValues(scan, text, damage) : joinedValues(scan, text, damage))
    yield typeof isJson !== 'boolean'
      ? isJson
      : isJson
        ? isLines && !scan.isObject && isArray(scan.text)
          ? ARRAY_LINE
          : records.read()
        : lineNotJson(scan.text, 'The record');
  return null;
}

interface RecordFields {
  readonly type: string | null;
  readonly typeField: string | null;
  readonly timeField: string | null;
  readonly keyField: string | null;
}

/** Makes an event of each record that its scan holds. */
class RecordReader {
  readonly scan: JsonScan;
  readonly #types = new TypeReferences();
  readonly #type: TypeReference | null;
  readonly #typeField: Field | null;
  readonly #timeField: Field | null;
  readonly #keyField: Field | null;
  readonly #receivedAt: number;

  constructor(fields: RecordFields, receivedAt: number) {
    const fieldOf = (name: string | null): Field | null => (name === null ? null : new Field(name));
    this.#typeField = fieldOf(fields.typeField);
    this.#timeField = fieldOf(fields.timeField);
    this.#keyField = fieldOf(fields.keyField);
    this.#type = fields.type === null ? null : this.#types.named(fields.type);
    this.#receivedAt = receivedAt;
    const all = [this.#typeField, this.#timeField, this.#keyField].flatMap((field) => field?.members ?? []);
    this.scan = new JsonScan([...new Set(all)]);
  }

  read(): BatchEvent | Rejection {
    const { scan } = this;
    if (!scan.isObject) return NO_OBJECT;
    if (scan.depth > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
    const type = this.#typeOf();
    if (type instanceof Rejection) return type;
    const time = this.#timeOf();
    if (time instanceof Rejection) return time;
    const key = this.#keyOf();
    if (key instanceof Rejection) return key;
    return { type, ...cut(time, this.#receivedAt), key: time === null ? null : key, payload: scan.value };
  }

  #typeOf(): TypeReference | Rejection {
    const name = this.#scalar(this.#typeField);
    if (name instanceof Rejection) return name;
    if (name === null || name === '') return this.#type ?? missing(this.#typeField);
    return this.#types.ofField(this.#typeField?.name ?? '', name);
  }

  #timeOf(): number | null | Rejection {
    const text = this.#scalar(this.#timeField);
    if (text === null || text === '' || text instanceof Rejection) return text === '' ? null : text;
    const time = parseRecordTime(text);
    if (typeof time === 'string') return invalid(this.#timeField, time);
    return time;
  }

  #keyOf(): string | null | Rejection {
    const text = this.#scalar(this.#keyField);
    return typeof text === 'string' && text !== '' ? eventKey(text) : text === '' ? null : text;
  }

  #scalar(field: Field | null): string | null | Rejection {
    const json = field?.in(this.scan) ?? null;
    if (json === null) return null;
    const value = scalarText(json);
    return value === undefined ? invalid(field, 'must be a string or a number') : value;
  }
}

function missing(field: Field | null): Rejection {
  return invalid(field, 'is missing, and the request has no type');
}

function invalid(field: Field | null, problem: string): Rejection {
  return invalidField(field?.name ?? '', problem);
}
