/**
 * What a format of producers has of its own: where its token is, how its body becomes events, and what its clients are
 * answered. Everything between is the same for all of them (create-batch.ts).
 */

import type { TimeSlice } from '../../base/time-slice.ts';
import type { Damage } from '../../base/utf8.ts';
import type { Rejection } from '../../errors.ts';
import type { Answer, Exchange } from '../../http/exchange.ts';
import type { BatchReport } from '../batch-answer.ts';
import type { BatchEvent } from '../parse/batch-event.ts';

export interface EventLimits {
  readonly maxEvents: number;
  /** Limit of one event: the same as for the body of a single event. */
  readonly maxEventBytes: number;
}

/** Events of a request in their order; a refusal takes the place of one that is not valid. */
export type Events = readonly (BatchEvent | Rejection)[];

/**
 * The events of a body, one by one, with a refusal in place of one that is not valid; undefined: a pause in a long one. It
 * returns what is wrong with the whole body; or how many of the last events are the batch, where others were replaced; or null.
 */
export type EventStream = Generator<BatchEvent | Rejection | undefined, Rejection | number | null>;

/** The body of a request whose token and rate limit have been checked. */
export interface Sent {
  /** The body; empty where the format is binary. */
  readonly text: string;
  /** Where the text has bytes that are no UTF-8; null: nowhere. */
  readonly damage: Damage | null;
  /** The body where the format is binary, else empty. */
  readonly bytes: Buffer;
  /** Milliseconds since the epoch. Formats give no event a later time: clocks of senders may be ahead. */
  readonly receivedAt: number;
  readonly limits: EventLimits;
  /**
   * Counts memory beside the body, as the body is counted: for texts that are not parts of it.
   * @returns the refusal of the request if there is no room for them
   */
  readonly hold: (bytes: number) => Rejection | null;
}

/** Makes events of a body. */
export type Reader = (sent: Sent) => EventStream;

/** What became of the events of a request. */
export interface RequestReport extends BatchReport {
  readonly exchange: Exchange;
  /** For an answer that takes long to write. */
  readonly slices: TimeSlice;
}

export interface Format {
  /** Whether the body is no text. */
  readonly isBinary?: boolean;
  /** Whether a body without events is valid. */
  readonly mayBeEmpty?: boolean;
  /** Whether a request may have more events than a batch: they are then stored in parts. */
  readonly isStoredInParts?: boolean;
  /** Whether an Idempotency-Key is read. */
  readonly takesIdempotencyKey?: boolean;
  /**
   * Whether the body is lines, which may be more than a batch: they are then stored while they arrive. Each line is read by
   * itself.
   */
  readonly mayBeLong?: (exchange: Exchange) => boolean;
  /** Whether the request wants all of its events to be stored, or none. */
  readonly isAtomic?: (exchange: Exchange) => boolean | Rejection;
  /**
   * Whether clients repeat a request as a whole, or not at all. If an event cannot be stored now but may be later, the request
   * is then refused with 429 or 503, before any event is stored where that is known before.
   */
  readonly repeatsWhole?: boolean;
  /**
   * Whether a request is also refused as a whole, with 429 or 503, where some of its events may be stored later and each of
   * them has a key: to store the others again stores nothing.
   */
  readonly repeatsKeyed?: boolean;
  /** The logging token; null where the request has none. */
  readonly token: (exchange: Exchange) => string | null;
  /** The refusal of a request without a token. */
  readonly noToken: Rejection;
  /** The headers of a refusal of the token. */
  readonly challenge: Readonly<Record<string, string>>;
  /** How the body is to be read, by the request's query and headers; or what is wrong with these. */
  readonly reader: (exchange: Exchange) => Reader | Rejection;
  readonly answer: (report: RequestReport) => Answer | Rejection | Promise<Answer | Rejection>;
  /** The refusal of a whole request in the form that its clients know; absent: the API's. */
  readonly refuse?: (refusal: Rejection, exchange: Exchange) => Rejection;
  /** For so long a refusal that may pass is held back, because clients of this format try again at once. */
  readonly refusalDelayMs?: number;
}

/** What the steps after the reading of a body need of a format. */
export type AnsweringFormat = Pick<Format, 'answer' | 'refuse' | 'repeatsWhole' | 'repeatsKeyed'>;
