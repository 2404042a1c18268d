/** The API's own format: `{"events":[…]}`, an array of events, or one event a line. */
import { Rejection } from '../../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../../http/bearer.ts';
import { flag, Query } from '../../http/query.ts';
import { batchAnswerInTurns, LINES_TYPE, resultLinesInTurns } from '../batch-answer.ts';
import { IDEMPOTENCY_KEY } from '../idempotency-key.ts';
import { isLineDelimited, readBatch } from '../parse/batch-body.ts';
import type { Format } from './format.ts';

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
    return ({ text, limits }) => readBatch(text, isLines, limits);
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
  answer: (told) =>
    told.exchange.header('accept') === LINES_TYPE
      ? resultLinesInTurns(told, told.slices)
      : batchAnswerInTurns(told, told.slices),
};
