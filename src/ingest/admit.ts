/** The first two checks of a request that brings its logging token beside the body: the token, then the rate limit of its app. */
import type { LoggingToken, LoggingTokens } from '../apps/logging-token-lookup.ts';
import { Rejection } from '../errors.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Limiter } from '../limits/limiter.ts';
import { overLimit } from './create-event.ts';
import type { Format } from './formats/format.ts';

/** Where a request has its token, and how a wrong one is refused. */
export type Credentials = Pick<Format, 'token' | 'noToken' | 'challenge'>;

/** @returns the token's app and producer, or the refusal of the request */
export async function authenticate(
  tokens: LoggingTokens,
  { token, noToken, challenge }: Credentials,
  exchange: Exchange,
): Promise<LoggingToken | Rejection> {
  const given = token(exchange);
  if (given === null) return noToken;
  const writer = await tokens.writerOf(given);
  if (!(writer instanceof Rejection)) return writer;
  return new Rejection(writer.reason, writer.details, { headers: challenge });
}

/** Authenticates a request and counts it against the limit of its app. @returns the app, or the refusal of the request */
export async function admit(
  { loggingTokens, limiter }: { readonly loggingTokens: LoggingTokens; readonly limiter: Limiter },
  credentials: Credentials,
  exchange: Exchange,
): Promise<number | Rejection> {
  const writer = await authenticate(loggingTokens, credentials, exchange);
  if (writer instanceof Rejection) return writer;
  const { appId } = writer;
  exchange.writerAppId = appId;
  exchange.producerId = writer.producerId;
  exchange.rateLimit = await limiter.take(appId);
  return exchange.rateLimit?.accepted === false ? overLimit(exchange.rateLimit) : appId;
}
