/**
 * POST /v1/track, /v1/batch and the other calls of Segment's HTTP Tracking API. The payload is the whole message, in its own
 * text.
 */
import { invalidField, Rejection } from '../../errors.ts';
import { ASK_FOR_BASIC, basicCredentials, bearerToken } from '../../http/bearer.ts';
import type { Exchange } from '../../http/exchange.ts';
import { findMistake } from '../../json/mistake.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from '../../json/scan.ts';
import { arrayElements, memberText, scanWhole } from '../../json/values.ts';
import { countsAnswer } from '../batch-answer.ts';
import { type BatchEvent, TypeReferences } from '../parse/batch-event.ts';
import { alone, scanOne } from './collect.ts';
import type { EventStream, Format, Sent } from './format.ts';
import { eventKey } from './key.ts';
import { cut, parseRecordTime } from './times.ts';

/** The calls; each has a route of its name. */
export const CALLS = ['track', 'page', 'screen', 'identify', 'group', 'alias'] as const;
type Call = (typeof CALLS)[number];

const MESSAGE_MEMBERS = ['type', 'event', 'messageId', 'timestamp', 'originalTimestamp', 'sentAt'] as const;

const NO_OBJECT = new Rejection('invalidBody', 'A message must be a JSON object.');
const NO_BATCH = invalidField('batch', 'must be an array');
const TOO_DEEP = new Rejection(
  'invalidBody',
  `A message may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`,
);
const UNKNOWN_CALL = invalidField('type', `must be one of ${CALLS.join(', ')}`);

/** Basic authentication with the logging token as the write key, which is the user name; or a bearer token. */
function writeKey(exchange: Exchange): string | null {
  const authorization = exchange.header('authorization');
  return basicCredentials(authorization)?.user ?? bearerToken(authorization);
}

const SEGMENT = {
  isStoredInParts: true,
  mayBeEmpty: true,
  repeatsWhole: true,
  token: writeKey,
  noToken: new Rejection(
    'invalidLoggingToken',
    'Send the logging token as write key: the user name of "Authorization: Basic".',
    { headers: ASK_FOR_BASIC },
  ),
  challenge: ASK_FOR_BASIC,
  answer: ({ results }) => countsAnswer(results),
} as const satisfies Partial<Format>;

/** A route that takes one message. */
export function segmentCall(call: Call): Format {
  return { ...SEGMENT, reader: () => (sent) => oneMessage(sent, call) };
}

/** The route that takes many. */
export const SEGMENT_BATCH: Format = { ...SEGMENT, reader: () => messages };

function* oneMessage(sent: Sent, call: Call): EventStream {
  const { receivedAt, limits } = sent;
  const scan = new JsonScan(MESSAGE_MEMBERS);
  const problem = yield* scanOne(scan, sent);
  if (problem !== null) return problem;
  const context = { call, sentAt: null, types: new TypeReferences(), receivedAt };
  return yield* alone(messageOf(scan, context), limits);
}

function* messages({ text, damage, receivedAt }: Sent): EventStream {
  const body = new JsonScan(['batch', 'sentAt']);
  if (!(yield* scanWhole(body, text))) return yield* findMistake(text);
  const batch = body.isObject ? body.span('batch') : null;
  if (batch === null || !text.startsWith('[', batch.start)) return NO_BATCH;
  const scan = new JsonScan(MESSAGE_MEMBERS);
  const types = new TypeReferences();
  const sentAt = memberText(body, 'sentAt');
  for (const isHeld of arrayElements(scan, text, batch.start, damage))
    yield isHeld === true ? messageOf(scan, { call: null, sentAt, types, receivedAt }) : isHeld;
  return null;
}

interface Context {
  /** The call of the route; null where the message names it. */
  readonly call: Call | null;
  /** When the batch was sent. */
  readonly sentAt: string | null | Rejection;
  readonly types: TypeReferences;
  readonly receivedAt: number;
}

function messageOf(scan: JsonScan, { call, sentAt, types, receivedAt }: Context): BatchEvent | Rejection {
  if (!scan.isObject) return NO_OBJECT;
  if (scan.depth > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
  const kind = call ?? CALLS.find((one) => one === memberText(scan, 'type'));
  if (kind === undefined) return UNKNOWN_CALL;
  const name = kind === 'track' ? memberText(scan, 'event') : kind;
  if (name instanceof Rejection) return name;
  if (name === null || name === '') return invalidField('event', 'is missing');
  const type = types.ofField('event', name);
  if (type instanceof Rejection) return type;
  const times = timesOf(scan, sentAt, receivedAt);
  if (times instanceof Rejection) return times;
  const id = memberText(scan, 'messageId');
  if (id instanceof Rejection) return id;
  const key = times.createdAt === null || id === null || id === '' ? null : eventKey(id);
  return { type, ...times, key, payload: scan.value };
}

/** Clocks of senders that differ by less are taken for right. */
const SKEW_STEP_MS = 60_000;

/**
 * The time of a message by the server's clock, as Segment has it: `timestamp` plus the time between `sentAt` and the
 * reception. That difference is rounded to minutes: it has the time of the transmission in it. Some libraries write `sentAt` once, so
 * that it grows with each repeat: a message that is sent again keeps the time of the first one.
 */
function timesOf(
  scan: JsonScan,
  sentAt: Context['sentAt'],
  receivedAt: number,
): Pick<BatchEvent, 'createdAt' | 'sentTime'> | Rejection {
  const own = memberText(scan, 'originalTimestamp') || memberText(scan, 'timestamp');
  if (own instanceof Rejection) return own;
  if (own === null || own === '') return { createdAt: null };
  const time = parseRecordTime(own);
  if (typeof time === 'string') return invalidField('timestamp', time);
  const sent = memberText(scan, 'sentAt') || sentAt;
  if (sent instanceof Rejection) return sent;
  if (sent === null || sent === '') return cut(time, receivedAt);
  const sentTime = parseRecordTime(sent);
  if (typeof sentTime === 'string') return invalidField('sentAt', sentTime);
  const skew = Math.round((receivedAt - sentTime) / SKEW_STEP_MS) * SKEW_STEP_MS;
  return { createdAt: Math.min(time + skew, receivedAt), sentTime: time };
}
