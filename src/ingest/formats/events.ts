/** The API's own format: `{"events":[…]}`, an array of events, or one event a line. */

import { inSlices } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../../http/bearer.ts';
import type { Exchange } from '../../http/exchange.ts';
import { flag, Query } from '../../http/query.ts';
import { findMistake, LINES_HINT, lineNotJson } from '../../json/mistake.ts';
import { JsonScan } from '../../json/scan.ts';
import { isArray, lineValues } from '../../json/values.ts';
import { batchAnswer, LINES_TYPE, type ResultForm } from '../batch-answer.ts';
import { IDEMPOTENCY_KEY } from '../idempotency-key.ts';
import { batchEvent, TypeReferences } from '../parse/batch-event.ts';
import { documentValues } from '../parse/batch-text.ts';
import { EVENT_FIELDS } from '../parse/event-body.ts';
import { ARRAY_LINE, fits, isLineDelimited, tooLarge } from './collect.ts';
import type { EventStream, Format, Sent } from './format.ts';

/** A logging token in `Authorization: Bearer`. */
export const BEARER = {
  token: (exchange) => bearerToken(exchange.header('authorization')),
  noToken: new Rejection(
    'invalidLoggingToken',
    'Send the logging token as "Authorization: Bearer <LOGGING_TOKEN>".',
    { headers: ASK_FOR_BEARER },
  ),
  challenge: ASK_FOR_BEARER,
} as const satisfies Pick<Format, 'token' | 'noToken' | 'challenge'>;

/** The parameters of the route. */
export const BATCH_QUERY = new Query({
  atomic: flag('`true` stores all events of the batch or none, in one transaction.'),
});

export const EVENTS_FORMAT: Format = {
  ...BEARER,
  takesIdempotencyKey: true,
  reader: (exchange) => {
    const isLines = isLineDelimited(exchange.header('content-type'));
    return (sent) => (isLines ? lineEvents : documentEvents)(sent);
  },
  isAtomic: (exchange) => {
    const unknown = BATCH_QUERY.unknown(exchange.query);
    if (unknown !== null) return unknown;
    const query = BATCH_QUERY.parse(exchange.query);
    return query instanceof Rejection ? query : query.atomic;
  },
  mayBeLong: (exchange) => {
    if (!isLineDelimited(exchange.header('content-type')) || exchange.header(IDEMPOTENCY_KEY) !== '')
      return false;
    const query = BATCH_QUERY.parse(exchange.query);
    return !(query instanceof Rejection) && !query.atomic;
  },
  answer: (report) => inSlices(batchAnswer(report, resultForm(report.exchange)), report.slices),
};

/** The form in which the client wants the results. */
export function resultForm(exchange: Exchange): ResultForm {
  return exchange.header('accept') === LINES_TYPE ? 'lines' : 'document';
}

type SentText = Pick<Sent, 'text' | 'limits' | 'damage'>;

/** The events of newline-delimited JSON. Blank lines are skipped. */
export function* lineEvents({ text, limits, damage }: SentText): EventStream {
  const scan = new JsonScan(EVENT_FIELDS);
  const types = new TypeReferences();
  for (const isJson of lineValues(scan, text, damage)) {
    if (typeof isJson !== 'boolean') yield isJson;
    else if (!fits(scan.text, limits)) yield tooLarge(limits);
    else if (isJson && !scan.isObject && isArray(scan.text)) yield ARRAY_LINE;
    else yield isJson ? batchEvent(scan, types) : lineNotJson(scan.text);
  }
  return null;
}

/** The events of one JSON document. */
export function* documentEvents({ text, limits, damage }: SentText): EventStream {
  const scan = new JsonScan(EVENT_FIELDS);
  const types = new TypeReferences();
  const values = documentValues(scan, text, damage);
  for (;;) {
    const { done, value } = values.next();
    if (done === true) {
      if ('events' in value) return value.events;
      const { problem } = value;
      return problem === null ? yield* findMistake(text, LINES_HINT) : new Rejection('invalidBody', problem);
    }
    if (value instanceof Rejection) {
      yield value;
      continue;
    }
    const isTooLarge = value !== undefined && !fits(scan.value, limits);
    if (isTooLarge && value === 'other') return tooLarge(limits, 'A field beside "events"');
    if (value === 'event') yield isTooLarge ? tooLarge(limits) : batchEvent(scan, types);
    else yield undefined;
  }
}
