/** Large bodies, before they are parsed: whether there is a logging token in them that exists. */
import { type LoggingTokens, UNKNOWN_TOKEN } from '../apps/logging-token-lookup.ts';
import { Rejection } from '../errors.ts';
import { decode, type ReceivedBody } from '../http/request-body.ts';
import { findTokens, mayHideToken } from './parse/find-tokens.ts';

/**
 * Bytes a second that are parsed of bodies in which no token that exists was found, but where one may be spelled in a way
 * that is not looked for: a hundredth of a processor, or a few. Nobody who means well sends such bodies.
 */
const UNPROVEN_BYTES_PER_SECOND = 2 * 1_048_576;

const NO_TOKEN = new Rejection('invalidBody', 'The field "loggingToken" is missing.');
const NO_STRING = new Rejection('invalidBody', 'The field "loggingToken" must be a string.');
const REFUSALS = { missing: NO_TOKEN, 'not a string': NO_STRING, string: UNKNOWN_TOKEN } as const;
const BUSY = new Rejection(
  'unavailable',
  'The logging token was not found quickly, and many such bodies come now: write "loggingToken" and its value ' +
    'without escapes, or try again shortly.',
);

/**
 * A body without a token that exists must cost little more than what receiving it does, whatever it is: the token is
 * searched for by its name, natively, wherever that stands. Found is not proven: the member may be nested, or another one
 * of the name may follow. But a body without any token that exists can be refused, and the others are parsed.
 */
export class TokenScreen {
  readonly #loggingTokens: LoggingTokens;
  readonly #now: () => number;
  /** Bytes that may be parsed unproven now, and since when that is so. */
  #unprovenBytes = UNPROVEN_BYTES_PER_SECOND;
  #countedAt: number;

  /** @param now milliseconds of a monotonic clock */
  constructor(loggingTokens: LoggingTokens, now: () => number) {
    this.#loggingTokens = loggingTokens;
    this.#now = now;
    this.#countedAt = now();
  }

  /** @returns the body's text, to be parsed; or the refusal of one from nobody who is known */
  async admit(body: ReceivedBody): Promise<string | Rejection> {
    // The name and the value are ASCII: they look the same in bytes that are not decoded.
    const refusal = await this.#refusal(typeof body === 'string' ? body : body.toString('latin1'));
    if (refusal !== null) return refusal;
    return typeof body === 'string' ? body : decode(body);
  }

  async #refusal(raw: string): Promise<Rejection | null> {
    const { tokens, value, isComplete } = findTokens(raw);
    let refusal: Rejection = REFUSALS[value];
    for (const token of tokens) {
      const app = await this.#loggingTokens.appOf(token);
      if (!(app instanceof Rejection)) return null;
      refusal = app;
    }
    if (isComplete && !mayHideToken(raw)) return refusal;
    return this.#mayParse(raw.length) ? null : BUSY;
  }

  #mayParse(bytes: number): boolean {
    const now = this.#now();
    const earned = ((now - this.#countedAt) / 1_000) * UNPROVEN_BYTES_PER_SECOND;
    this.#countedAt = now;
    this.#unprovenBytes = Math.min(UNPROVEN_BYTES_PER_SECOND, this.#unprovenBytes + earned);
    if (this.#unprovenBytes <= 0) return false;
    this.#unprovenBytes -= bytes;
    return true;
  }
}
