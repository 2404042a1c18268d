/** Checks large bodies for an existing logging token before they are parsed. */
import { type LoggingTokens, malformedToken } from '../apps/logging-token-lookup.ts';
import { Debts } from '../base/debts.ts';
import { decode } from '../base/utf8.ts';
import { invalidField, Rejection } from '../errors.ts';
import type { ReceivedBody } from '../http/request-body.ts';
import { findTokens, mayHideToken } from './parse/find-tokens.ts';

/**
 * Bytes per second that are parsed of bodies without a found token whose token may be written with escapes, which the
 * search does not see. This costs a few percent of one CPU; serializers do not produce such bodies.
 */
const UNPROVEN_BYTES_PER_SECOND = 2 * 1_048_576;

/** All clients share what is parsed without a token. */
const ALL = 'all';

const NO_TOKEN = invalidField('loggingToken', 'is missing');
const NO_STRING = invalidField('loggingToken', 'must be a string');
const BUSY = new Rejection(
  'unavailable',
  'Too many large bodies with escapes in place of a logging token: write "loggingToken" and its value without escapes, ' +
    'or try again shortly.',
);

/**
 * A body without a valid token must cost little more than receiving it. So the text is searched for `"loggingToken"` at any
 * depth, by a native search. A match does not prove that the token is the body's: the parser decides. But a body without
 * any existing token is refused unparsed.
 */
export class TokenScreen {
  readonly #loggingTokens: LoggingTokens;
  /** Bytes that were parsed without a found token. */
  readonly #unproven: Debts;

  /** @param now milliseconds of a monotonic clock */
  constructor(loggingTokens: LoggingTokens, now: () => number) {
    this.#loggingTokens = loggingTokens;
    this.#unproven = new Debts({ maxKeys: 1, forgivenPerSecond: UNPROVEN_BYTES_PER_SECOND, now });
  }

  /** @returns the body's text for the parser, or the refusal of a body without an existing token */
  async admit(body: ReceivedBody): Promise<string | Rejection> {
    // Name and value are ASCII, so they are found in undecoded bytes as well.
    const refusal = await this.#refusal(typeof body === 'string' ? body : body.toString('latin1'));
    if (refusal !== null) return refusal;
    return typeof body === 'string' ? body : decode(body, 'refused');
  }

  async #refusal(raw: string): Promise<Rejection | null> {
    const { tokens, value, sample, isComplete } = findTokens(raw);
    let refusal = value === 'missing' ? NO_TOKEN : value === 'string' ? malformedToken(sample) : NO_STRING;
    for (const token of tokens) {
      const app = await this.#loggingTokens.appOf(token);
      if (!(app instanceof Rejection)) return null;
      refusal = app;
    }
    if (isComplete && !mayHideToken(raw)) return refusal;
    return this.#mayParse(raw.length) ? null : BUSY;
  }

  #mayParse(bytes: number): boolean {
    if (this.#unproven.of(ALL) >= UNPROVEN_BYTES_PER_SECOND) return false;
    this.#unproven.add(ALL, bytes);
    return true;
  }
}
