/**
 * The steps of a request with a browser key. The key is public, so each step tells as little and costs as little as it can: key and
 * origin are judged before the body is parsed, then the limits of the network and of the key, and only then those of the app.
 */
import type { BrowserKeys, KnownKey } from '../../apps/browser-key-lookup.ts';
import { inSlices, TimeSlice } from '../../base/time-slice.ts';
import { type Decoded, decoded, unnamedEncoding } from '../../base/utf8.ts';
import type { Window } from '../../base/window.ts';
import { Rejection } from '../../errors.ts';
import type { Answer, Exchange, Outcome } from '../../http/exchange.ts';
import type { LimitDecision, Limiter } from '../../limits/limiter.ts';
import type { Result } from '../batch-answer.ts';
import { type CreateBatchSteps, storeSent } from '../create-batch.ts';
import { collect } from '../formats/collect.ts';
import type { AnsweringFormat, EventLimits, EventStream } from '../formats/format.ts';
import type { BatchEvent } from '../parse/batch-event.ts';

export interface BrowserLimits {
  /** By the key's internal id. */
  readonly ofKeys: Limiter;
  /** By key and network. Its memory is bounded: a network is counted only after its key has let the request through. */
  readonly ofNetworks: Window<string>;
}

export interface BrowserSteps extends CreateBatchSteps {
  readonly browserKeys: BrowserKeys;
  readonly browserLimits: BrowserLimits;
}

/** The body of a request whose key, origin and limits have been checked. */
export interface SentByPage extends Decoded {
  /** The key that was found by {@link BrowserFormat.keys}. */
  readonly key: string;
  readonly receivedAt: number;
  readonly limits: EventLimits;
}

/** A format that pages send. */
export interface BrowserFormat {
  /**
   * Keys that the request may have, from its path or by a search of its unparsed body; or why it has none.
   * @param body text, or UTF-8 decoded as Latin-1
   */
  readonly keys: (exchange: Exchange, body: string) => readonly string[] | Rejection;
  readonly read: (sent: SentByPage) => EventStream;
  /** Whether a request without events is valid. */
  readonly mayBeEmpty?: boolean;
  /** @param results without anything that is known of the app */
  readonly answer: (results: readonly Result[], receivedAt: number) => Answer | Rejection;
}

const LIMITS: EventLimits = { maxEvents: 1_000, maxEventBytes: 16_384 };

const MAX_BYTES = 1_048_576;
/** Bytes of a body from an origin that no key has, enough to say what is wrong; and from one that nobody has sent from yet. */
const MAX_FOREIGN_BYTES = 4_096;
const MAX_NEW_BYTES = 65_536;

const NOT_KNOWN_YET = new Rejection('unavailable', 'The origin was not known yet: send the events again.');

const NO_ORIGIN = new Rejection(
  'accessDenied',
  'The request has no Origin, and a browser key is for pages: servers send to POST /v1/events with a logging token.',
);
const NULL_ORIGIN = new Rejection(
  'accessDenied',
  'The Origin is null, as of a file, a sandboxed frame, or sendBeacon with the referrer policy no-referrer: no key takes it.',
);
/** Characters of an origin that the message quotes. */
const MAX_TOLD = 300;
const WRONG_CONTENT = new Rejection(
  'unsupportedMediaType',
  'Send the body as text/plain, or as application/json.',
);
/** For what depends on the app: its limits, its schemas, its retention. */
const REFUSED = new Rejection('invalidBody', 'The event is refused.');

/** A Blob without a type has none. */
const CONTENT_TYPE = /^(?:text\/plain|application\/json)?[\t ]*(?:;|$)/i;

export function createBrowserEvents(
  steps: BrowserSteps,
  format: BrowserFormat,
): (exchange: Exchange) => Promise<Outcome> {
  return async (exchange) => {
    // A body is asked for at once: one from an origin that is not known yet may be short.
    const takes = steps.browserKeys.takesFrom(exchange.header('origin'));
    const maxBytes = takes === true ? MAX_BYTES : takes === false ? MAX_FOREIGN_BYTES : MAX_NEW_BYTES;
    const received = await exchange.body({ maxBytes, usesReserve: true });
    if (received instanceof Rejection) {
      if (takes === true || received.reason !== 'payloadTooLarge') return received;
      return (await takes) ? NOT_KNOWN_YET : notAllowed(exchange.header('origin'));
    }
    if (takes instanceof Promise) await takes;
    if (!CONTENT_TYPE.test(exchange.header('content-type'))) return WRONG_CONTENT;
    const packed = Buffer.isBuffer(received) ? unnamedEncoding(received) : null;
    if (packed !== null) return packed;

    const epoch = steps.epoch();
    const searched = typeof received === 'string' ? received : received.toString('latin1');
    const keys = format.keys(exchange, searched);
    if (keys instanceof Rejection) return keys;
    const found = await admit(steps.browserKeys, exchange.header('origin'), keys);
    if (found instanceof Rejection) return found;
    const { text: key, known } = found;
    exchange.writerAppId = known.appId;
    const limit = await takeLimits(steps, exchange, known);
    if (limit !== null) return limit;

    const holder = steps.accounts.holderOf(known.appId);
    const body = await inSlices(decoded(received), new TimeSlice(holder));
    const receivedAt = steps.now();
    const stream = format.read({ ...body, key, receivedAt, limits: LIMITS });
    const hold = (bytes: number): Rejection | null => exchange.hold(bytes);
    const events = await collect(
      stream,
      { limits: LIMITS, hold },
      { holder, mayBeEmpty: format.mayBeEmpty ?? false },
    );
    if (events instanceof Rejection) return events;
    const sent = events.map((event) => allowed(event, known));
    const own = new Set<Result>(sent.filter((event) => event instanceof Rejection));
    const answering: AnsweringFormat = {
      repeatsKeyed: true,
      answer: ({ results }) =>
        format.answer(
          results.map((result) => (own.has(result) ? result : concealed(result))),
          receivedAt,
        ),
    };
    const { appId } = known;
    return await storeSent(steps, answering, exchange, {
      appId,
      epoch,
      sent,
      request: null,
      isAtomic: false,
    });
  };
}

function notAllowed(origin: string): Rejection {
  if (origin === '') return NO_ORIGIN;
  if (origin === 'null') return NULL_ORIGIN;
  const told = origin.slice(0, MAX_TOLD);
  return new Rejection('accessDenied', `The key does not name the origin ${told}: make one that does.`);
}

/** The first key that exists and is for pages of this origin; otherwise why the first one is not. */
async function admit(
  keys: BrowserKeys,
  origin: string,
  texts: readonly string[],
): Promise<{ readonly text: string; readonly known: KnownKey } | Rejection> {
  let refusal: Rejection | null = null;
  for (const text of texts) {
    const known = await keys.find(text);
    if (known instanceof Rejection) refusal ??= known;
    else if (known.origins.has(origin)) return { text, known };
    else refusal ??= notAllowed(origin);
  }
  if (refusal === null) throw new Error('A format found no key, and did not say why.');
  return refusal;
}

/**
 * The narrowest limit first, without counting: what one network sends too much must not use up what the key has for others. RateLimit headers
 * are about the network, as they may not tell what others have sent to the app.
 */
async function takeLimits(
  { browserLimits, limiter }: BrowserSteps,
  exchange: Exchange,
  { id, appId }: KnownKey,
): Promise<Rejection | null> {
  const { ofKeys, ofNetworks } = browserLimits;
  const network = `${id} ${exchange.address()}`;
  const full = ofNetworks.refusal(network);
  if (full !== null) {
    exchange.rateLimit = full;
    return tooMany(full);
  }
  const ofKey = await ofKeys.take(id);
  if (ofKey?.accepted === false) return tooMany(ofKey);
  const ofApp = await limiter.take(appId);
  if (ofApp?.accepted === false) return tooMany(ofApp);
  exchange.rateLimit = ofNetworks.take(network);
  return exchange.rateLimit?.accepted === false ? tooMany(exchange.rateLimit) : null;
}

const TOO_MANY = new Map<number, Rejection>();

/** Does not tell whose limit it is. Built once for each time to wait: these refusals must cost little. */
function tooMany({ resetSeconds }: LimitDecision): Rejection {
  const known = TOO_MANY.get(resetSeconds);
  if (known !== undefined) return known;
  const refusal = new Rejection('rateLimitExceeded', 'Too many requests; send them again later.', {
    retryAfterSeconds: resetSeconds,
  });
  TOO_MANY.set(resetSeconds, refusal);
  return refusal;
}

function allowed(event: BatchEvent | Rejection, { types }: KnownKey): BatchEvent | Rejection {
  if (event instanceof Rejection) return event;
  const name = 'typeName' in event.type ? event.type.typeName : event.type.typeId;
  return 'typeName' in event.type && types.has(name)
    ? event
    : new Rejection('accessDenied', `The key does not name the type ${JSON.stringify(name)}.`);
}

/** A result of the steps that know the app, without anything that they tell of it. */
function concealed(result: Result): Result {
  if (!(result instanceof Rejection) || result.reason === 'eventInFuture') return result;
  return result.isRetryable ? new Rejection(result.reason, 'Send the event again later.') : REFUSED;
}
