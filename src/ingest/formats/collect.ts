/** Reads the events of a body in slices, within the limits of a batch. */

import { TimeSlice } from '../../base/time-slice.ts';
import type { Path } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import type { BatchEvent } from '../parse/batch-event.ts';
import type { Events } from './format.ts';

export interface EventLimits {
  readonly maxEvents: number;
  /** Of one event: the same as for the body of a single event. */
  readonly maxEventBytes: number;
}

export interface BatchLimits extends EventLimits {
  /** Whose turns of the event loop are taken. */
  readonly holder: Path;
}

/** Media types of newline-delimited JSON. A body of any other type is one JSON document. */
const LINES = new Set([
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/x-jsonlines',
]);

/** Whether a Content-Type means newline-delimited JSON. */
export function isLineDelimited(contentType: string): boolean {
  return LINES.has((contentType.split(';')[0] ?? '').trim().toLowerCase());
}

/**
 * The events of a body, one by one, with a refusal in place of one that is not valid; undefined: a pause in a long one. It
 * returns what is wrong with the whole body; or how many of the last events are the batch, where others were replaced; or null.
 */
export type EventStream = Generator<BatchEvent | Rejection | undefined, Rejection | number | null>;

/**
 * Reads a stream to its end. In slices that do not block the event loop for long.
 * @param mayBeEmpty whether a body without events is valid
 */
export async function collect(
  stream: EventStream,
  limits: BatchLimits,
  mayBeEmpty = false,
): Promise<Events | Rejection> {
  const events: (BatchEvent | Rejection)[] = [];
  const slices = new TimeSlice(limits.holder);
  for (;;) {
    const { done, value } = stream.next();
    if (done === true) {
      if (value instanceof Rejection) return value;
      const batch = value === null ? events : events.slice(events.length - value);
      if (batch.length > limits.maxEvents) return tooMany(limits);
      return batch.length === 0 && !mayBeEmpty ? NO_EVENTS : batch;
    }
    if (value !== undefined) events.push(sized(value, limits));
    // Events that later ones replace count towards a limit as well.
    if (events.length > 2 * limits.maxEvents) return tooMany(limits);
    if (slices.isOver) await slices.next();
  }
}

const NO_EVENTS = new Rejection('invalidBody', 'The batch has no events.');

function sized(event: BatchEvent | Rejection, limits: BatchLimits): BatchEvent | Rejection {
  return event instanceof Rejection || fits(event.payload, limits) ? event : tooLarge(limits);
}

/** Whether the text of an event, or of a field beside events, is not too large. */
export function fits(text: string, { maxEventBytes }: EventLimits): boolean {
  return 3 * text.length <= maxEventBytes || Buffer.byteLength(text) <= maxEventBytes;
}

/** The refusal of a batch with more events. */
export function tooMany({ maxEvents }: EventLimits): Rejection {
  return new Rejection('invalidBody', `A batch may have at most ${maxEvents} events.`);
}

/** The refusal of an event that is too large. */
export function tooLarge({ maxEventBytes }: EventLimits, what = 'An event'): Rejection {
  return new Rejection('payloadTooLarge', `${what} may have at most ${maxEventBytes} bytes.`);
}
