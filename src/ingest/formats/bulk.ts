/**
 * POST /v1/elasticsearch/_bulk: what clients of Elasticsearch send. Each document is a payload, in its own text; the index is
 * the event type.
 */
import { isWellFormed } from '../../base/token-text.ts';
import { Places } from '../../base/utf8.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { ASK_FOR_BASIC, basicCredentials, bearerToken } from '../../http/bearer.ts';
import type { Answer, Exchange } from '../../http/exchange.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from '../../json/scan.ts';
import { lineValues, memberText, scalarText } from '../../json/values.ts';
import type { AcceptedEvent } from '../../storage/write/accepted-event.ts';
import { type BatchEvent, TypeReferences } from '../parse/batch-event.ts';
import { alone, scanOne } from './collect.ts';
import { Field } from './field.ts';
import type { EventStream, Format, RequestReport, Sent } from './format.ts';
import { eventKey } from './key.ts';
import { cut, parseRecordTime } from './times.ts';

/** Clients go on only with a server that says it is this one. */
export const PRODUCT = { 'X-Elastic-Product': 'Elasticsearch' } as const;

const ACTIONS = ['index', 'create', 'update', 'delete'] as const;
type Action = (typeof ACTIONS)[number];

/** What the answer repeats of an action, as JSON texts. */
interface Item {
  readonly action: Action;
  readonly index: string;
  readonly id: string | null;
  /** What is wrong with it beside its document. */
  readonly problem: Rejection | null;
}

interface UnderWay {
  readonly items: Item[];
  /** Where the line of each begins: that of its document, if it has one. */
  readonly starts: number[];
  readonly places: Places;
  readonly startedAt: number;
}

/** The actions of a request that is under way, and when it was read. */
const UNDER_WAY = new WeakMap<Exchange, UnderWay>();

const NO_SOURCE = new Rejection('invalidBody', 'The last action has no document.');
const NOT_JSON = new Rejection('invalidBody', 'The document is not a JSON object.');
const STORES_ONLY = new Rejection('invalidBody', 'Events can be created, not updated or deleted.');
const TOO_DEEP = new Rejection(
  'invalidBody',
  `A document may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`,
);

/** What the routes of Elasticsearch's clients have in common. */
const ELASTIC = {
  token: apiKey,
  noToken: new Rejection(
    'invalidLoggingToken',
    'Send the logging token as API key, as bearer token, or as password of "Authorization: Basic".',
    { headers: ASK_FOR_BASIC },
  ),
  challenge: ASK_FOR_BASIC,
  repeatsKeyed: true,
  refuse: elasticError,
  refusalDelayMs: 1_000,
} as const satisfies Partial<Format>;

export const BULK: Format = {
  ...ELASTIC,
  isStoredInParts: true,
  reader: (exchange) => (sent) => {
    const { text, damage } = sent;
    const places = damage?.places ?? new Places(text);
    const underWay = { items: [], starts: [], places, startedAt: performance.now() };
    UNDER_WAY.set(exchange, underWay);
    return documents(sent, exchange.parameters[0] ?? null, underWay);
  },
  answer: bulkAnswer,
};

/** One document: its index, and its id if it has one, are in the path. */
export const DOCUMENT: Format = {
  ...ELASTIC,
  reader: (exchange) => (sent) => oneDocument(sent, itemOfPath(exchange)),
  answer: ({ exchange, results: [result], repeated }) => {
    if (result === undefined || result instanceof Rejection) return result ?? NOT_JSON;
    const { index, id } = itemOfPath(exchange);
    const isRepeated = repeated.has(result);
    const text = `{"_index":${JSON.stringify(index)},${storedMembers(id ?? result.id, isRepeated)}}`;
    return { status: isRepeated ? 200 : 201, body: text, headers: PRODUCT };
  },
};

function itemOfPath({ parameters }: Exchange): Item {
  const [index = '', id = null] = parameters;
  return { action: 'index', index, id, problem: null };
}

function* oneDocument(sent: Sent, item: Item): EventStream {
  const timeField = new Field('@timestamp');
  const scan = new JsonScan(timeField.members);
  const problem = yield* scanOne(scan, sent);
  if (problem !== null) return problem;
  const { receivedAt, limits } = sent;
  return yield* alone(documentOf(scan, item, { types: new TypeReferences(), timeField, receivedAt }), limits);
}

/** `ApiKey` is base64 of an id and the key, or the key alone; the password of `Basic` may be its user name as well. */
export function apiKey(exchange: Exchange): string | null {
  const authorization = exchange.header('authorization');
  const basic = basicCredentials(authorization);
  if (basic !== null) return isWellFormed(basic.user, 'tdl') ? basic.user : basic.password;
  const key = /^ApiKey +(\S{1,1000}) *$/i.exec(authorization)?.[1];
  if (key === undefined) return bearerToken(authorization);
  if (isWellFormed(key, 'tdl')) return key;
  return Buffer.from(key, 'base64').toString('utf8').split(':').at(-1) ?? null;
}

/** Lines in turns: an action, and the document that it stores. */
function* documents(
  { text, damage, receivedAt }: Sent,
  pathIndex: string | null,
  { items, starts, places }: UnderWay,
): EventStream {
  const timeField = new Field('@timestamp');
  const types = new TypeReferences();
  const scan = new JsonScan([...new Set([...ACTIONS, ...timeField.members])]);
  const about = new JsonScan(['_index', '_id']);
  let awaited: Item | null = null;
  const keep = <T>(item: Item, event: T): T => {
    items.push(item);
    starts.push(scan.offset);
    return event;
  };
  for (const isJson of lineValues(scan, text, damage)) {
    if (isJson === undefined) {
      yield undefined;
    } else if (awaited === null) {
      const item = isJson === false ? null : itemOf(scan, about, pathIndex);
      // Without it the meaning of the next line is unknown.
      if (item === null) return badAction(places.of(scan.offset).line);
      if (item.action === 'delete') yield keep(item, STORES_ONLY);
      else awaited = isJson instanceof Rejection ? { ...item, problem: isJson } : item;
    } else {
      const isStored = awaited.action === 'index' || awaited.action === 'create';
      const event =
        isJson === true ? documentOf(scan, awaited, { types, timeField, receivedAt }) : isJson || NOT_JSON;
      yield keep(awaited, isStored ? event : STORES_ONLY);
      awaited = null;
    }
  }
  return awaited === null ? null : NO_SOURCE;
}

function badAction(line: number): Rejection {
  return new Rejection(
    'invalidBody',
    `Line ${line}: an action must be an object with one of ${ACTIONS.join(', ')}.`,
  );
}

/** The action of a line; null for what is none. @param about reads what the action says */
function itemOf(scan: JsonScan, about: JsonScan, pathIndex: string | null): Item | null {
  const [action, ...others] = ACTIONS.filter((one) => scan.span(one) !== null);
  const value = action === undefined ? null : scan.member(action);
  // Of two actions nobody knows which one the next line belongs to.
  if (!scan.isObject || action === undefined || others.length > 0 || value?.startsWith('{') !== true)
    return null;
  about.begin(value, 0);
  about.step(value.length);
  const index = memberText(about, '_index') ?? pathIndex ?? '';
  const id = memberText(about, '_id');
  return {
    action,
    index: index instanceof Rejection ? '' : index,
    id: id instanceof Rejection ? null : id || null,
    problem: index instanceof Rejection ? index : id instanceof Rejection ? id : null,
  };
}

/**
 * The end of an index that is made anew for each hour, day, week, month or size: a separator, then a year with its parts in order,
 * all separated or all joined, but for the hour. Two separated digits are a month or a week of the year (`xxxx.ww` of Logstash).
 */
const PERIOD =
  /[-_.](?:(?:19|20)\d\d(?:(?:0[1-9]|1[0-2])(?:(?:0[1-9]|[12]\d|3[01])(?:[-_.T]?(?:[01]\d|2[0-3]))?)?|[-_.](?:0[1-9]|[1-4]\d|5[0-3])|[-_.](?:0[1-9]|1[0-2])[-_.](?:0[1-9]|[12]\d|3[01])(?:[-_.T](?:[01]\d|2[0-3]))?|[-_.]?w(?:0[1-9]|[1-4]\d|5[0-3]))|0\d{5})$/i;
/** Periods and numbers that are cut from one name at most. */
const MOST_PERIODS = 4;

/** The name of an index without the periods and the number of a rollover at its end; of a data stream's part, the stream's. */
function nameOf(index: string): string {
  let name = index.startsWith('.ds-') ? index.slice('.ds-'.length) : index;
  for (let cuts = 0; cuts < MOST_PERIODS; cuts += 1) {
    const shorter = name.replace(PERIOD, '');
    if (shorter === name) break;
    name = shorter;
  }
  return name;
}

function documentOf(
  scan: JsonScan,
  item: Item,
  context: { readonly types: TypeReferences; readonly timeField: Field; readonly receivedAt: number },
): BatchEvent | Rejection {
  if (item.problem !== null) return item.problem;
  if (!scan.isObject) return NOT_JSON;
  if (scan.depth > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
  const name = nameOf(item.index);
  if (name === '') return invalidField('_index', 'is missing');
  const type = context.types.ofField('_index', name);
  if (type instanceof Rejection) return type;
  const json = context.timeField.in(scan);
  const time = json === null ? null : scalarText(json);
  const createdAt = time ? parseRecordTime(time) : null;
  if (time === undefined || typeof createdAt === 'string')
    return invalidField('@timestamp', typeof createdAt === 'string' ? createdAt : 'must be a time');
  const key = createdAt === null || !item.id ? null : eventKey(item.id);
  return { type, ...cut(createdAt, context.receivedAt), key, payload: scan.value };
}

function bulkAnswer({ exchange, results, repeated }: RequestReport): Answer {
  const { items = [], starts = [], places, startedAt = 0 } = UNDER_WAY.get(exchange) ?? {};
  const took = Math.round(performance.now() - startedAt);
  const errors = results.some((result) => result instanceof Rejection);
  const lineOf = (index: number): number => places?.of(starts[index] ?? 0).line ?? 0;
  const texts = results.map((result, index) =>
    result instanceof Rejection
      ? refusedText(items[index], result, lineOf(index))
      : storedText(items[index], result, repeated.has(result)),
  );
  const body = `{"took":${took},"errors":${errors},"items":[${texts.join(',')}]}`;
  return { status: 200, body, headers: PRODUCT };
}

/** A text in JSON with U+FFFD for what was no UTF-8. */
function wellFormedJson(text: string): string {
  return JSON.stringify(text.replaceAll(/\p{Surrogate}/gu, '\ufffd'));
}

/** Clients send those with the status 429 again, and no others. */
function refusedText(item: Item | undefined, refusal: Rejection, line: number): string {
  const { id = null } = item ?? {};
  const status = refusal.isRetryable ? 429 : refusal.status;
  const known = id === null ? '' : `,"_id":${wellFormedJson(id)}`;
  const { type, reason } = errorOf(refusal, status);
  const error = JSON.stringify({ type, reason: `Line ${line}: ${reason}` });
  return `${startOf(item)}${known},"status":${status},"error":${error}}}`;
}

function startOf(item: Item | undefined): string {
  return `{"${item?.action ?? 'index'}":{"_index":${wellFormedJson(item?.index ?? '')}`;
}

function storedMembers(id: string, isRepeated: boolean): string {
  const made = `"_version":1,"result":"${isRepeated ? 'noop' : 'created'}"`;
  return `"_id":${JSON.stringify(id)},${made},"_shards":{"total":1,"successful":1,"failed":0},"_seq_no":0,"_primary_term":1`;
}

function storedText(item: Item | undefined, { id }: AcceptedEvent, isRepeated: boolean): string {
  return `${startOf(item)},${storedMembers(item?.id ?? id, isRepeated)},"status":${isRepeated ? 200 : 201}}}`;
}

function errorOf(refusal: Rejection, status: number): { readonly type: string; readonly reason: string } {
  return { type: ERROR_TYPES[status] ?? 'document_parsing_exception', reason: refusal.details };
}

const ERROR_TYPES: Readonly<Record<number, string>> = {
  401: 'security_exception',
  404: 'resource_not_found_exception',
  405: 'illegal_argument_exception',
  429: 'es_rejected_execution_exception',
};

/**
 * A refusal as Elasticsearch has errors; as plain text where the request may be repeated: rsyslog drops what is refused in JSON
 * and repeats what is not, while others look at the status alone.
 */
export function elasticError(refusal: Rejection): Rejection {
  const { reason, details, status } = refusal;
  const marked = new Rejection(reason, details, { headers: { ...refusal.headers, ...PRODUCT } });
  if (refusal.isRetryable) return marked.written(`Not stored yet: ${details}`, 'text/plain');
  return marked.written(JSON.stringify({ error: errorOf(refusal, status), status }));
}
