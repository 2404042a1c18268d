/** Reads the events of a body in slices, within the limits of a batch. */

import { TimeSlice } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { type BatchLimits, type EventLimits, tooMany } from '../parse/batch-body.ts';
import type { BatchEvent } from '../parse/batch-event.ts';
import type { Events } from './format.ts';

/**
 * The events of a body, one by one, with a refusal in place of one that is not valid; undefined: a pause in a long one. It
 * returns what is wrong with the whole body, if anything is.
 */
export type EventStream = Generator<BatchEvent | Rejection | undefined, Rejection | null>;

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
    if (done === true) return value ?? (events.length === 0 && !mayBeEmpty ? NO_EVENTS : events);
    if (value !== undefined) events.push(sized(value, limits));
    if (events.length > limits.maxEvents) return tooMany(limits);
    if (slices.isOver) await slices.next();
  }
}

const NO_EVENTS = new Rejection('invalidBody', 'The body has no events.');

function sized(event: BatchEvent | Rejection, limits: BatchLimits): BatchEvent | Rejection {
  if (event instanceof Rejection) return event;
  const { payload } = event;
  const { maxEventBytes } = limits;
  const fits = 3 * payload.length <= maxEventBytes || Buffer.byteLength(payload) <= maxEventBytes;
  return fits ? event : tooLarge(limits);
}

/** The refusal of an event that is too large. */
export function tooLarge({ maxEventBytes }: EventLimits): Rejection {
  return new Rejection('payloadTooLarge', `An event may have at most ${maxEventBytes} bytes.`);
}
