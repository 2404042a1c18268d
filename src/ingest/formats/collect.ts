/** Reads the events of a body in slices, within the limits of a batch. */

import { TimeSlice } from '../../base/time-slice.ts';
import type { Path } from '../../base/turns.ts';
import type { Decoded } from '../../base/utf8.ts';
import { Rejection } from '../../errors.ts';
import { findMistake } from '../../json/mistake.ts';
import type { JsonScan } from '../../json/scan.ts';
import { scanWhole } from '../../json/values.ts';
import type { BatchEvent } from '../parse/batch-event.ts';
import type { EventLimits, EventStream, Events, Sent } from './format.ts';

/** Media types of newline-delimited JSON. A body of any other type is one JSON document. */
const LINES = new Set([
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/x-jsonlines',
]);

/** The media type of a Content-Type, without its parameters. */
export function mediaType(contentType: string): string {
  return (contentType.split(';')[0] ?? '').trim().toLowerCase();
}

/** Whether a Content-Type means newline-delimited JSON. */
export function isLineDelimited(contentType: string): boolean {
  return LINES.has(mediaType(contentType));
}

/** Takes the events of a stream a part at a time, in slices that do not block the event loop for long. */
export class EventReader {
  readonly #stream: EventStream;
  readonly #limits: EventLimits;
  readonly #slices: TimeSlice;
  #end: Rejection | number | null | undefined;

  /** @param holder whose turns of the event loop are taken */
  constructor(stream: EventStream, limits: EventLimits, holder: Path) {
    this.#stream = stream;
    this.#limits = limits;
    this.#slices = new TimeSlice(holder);
  }

  /** What the stream has returned; undefined before its end. */
  get end(): Rejection | number | null | undefined {
    return this.#end;
  }

  /** The next events; fewer than `most` at the end alone. One that is too large is replaced by its refusal. */
  async take(most: number): Promise<(BatchEvent | Rejection)[]> {
    const events: (BatchEvent | Rejection)[] = [];
    while (events.length < most && this.#end === undefined) {
      const { done, value } = this.#stream.next();
      if (done === true) this.#end = value;
      else if (value !== undefined) events.push(sized(value, this.#limits));
      if (this.#slices.isOver) await this.#slices.next();
    }
    return events;
  }
}

/** Events whose memory is not counted beside that of their body, and bytes of each of those beyond. */
const UNCOUNTED_EVENTS = 10_000;
const EVENT_BYTES = 400;

/** Counts the memory of many events beside that of their body. @param count of events up to this one */
export function holdEvents({ hold }: Pick<Sent, 'hold'>, count: number): Rejection | null {
  return count > 1 && count % UNCOUNTED_EVENTS === 1 ? hold(UNCOUNTED_EVENTS * EVENT_BYTES) : null;
}

/** Reads a body that is one batch. @param mayBeEmpty whether one without events is valid */
export async function collect(
  stream: EventStream,
  { limits, hold }: Pick<Sent, 'limits' | 'hold'>,
  { holder, mayBeEmpty = false }: { readonly holder: Path; readonly mayBeEmpty?: boolean },
): Promise<Events | Rejection> {
  const reader = new EventReader(stream, limits, holder);
  let events = await reader.take(UNCOUNTED_EVENTS);
  // Events that later ones replace count towards a limit as well.
  while (reader.end === undefined && events.length <= 2 * limits.maxEvents) {
    const refusal = holdEvents({ hold }, events.length + 1);
    if (refusal !== null) return refusal;
    events = events.concat(await reader.take(UNCOUNTED_EVENTS));
  }
  const { end } = reader;
  if (end === undefined) return tooMany(limits);
  if (end instanceof Rejection) return end;
  const batch = end === null ? events : events.slice(events.length - end);
  if (batch.length > limits.maxEvents) return tooMany(limits);
  return batch.length === 0 && !mayBeEmpty ? NO_EVENTS : batch;
}

/** The refusal of a line that has the events of a document. */
export const ARRAY_LINE = new Rejection(
  'invalidBody',
  'The line is an array: send an array with Content-Type: application/json.',
);
export const NO_EVENTS = new Rejection('invalidBody', 'The batch has no events.');

function sized(event: BatchEvent | Rejection, limits: EventLimits): BatchEvent | Rejection {
  return event instanceof Rejection || fits(event.payload, limits) ? event : tooLarge(limits);
}

/** Scans a body that is one event. @returns why it is none, or null */
export function* scanOne(scan: JsonScan, { text, damage }: Decoded): Generator<undefined, Rejection | null> {
  if (!(yield* scanWhole(scan, text))) return yield* findMistake(text);
  return damage?.in(0, text.length, 'The body') ?? null;
}

/** The stream of a body that is one event, whose refusal is that of the request. */
export function* alone(event: BatchEvent | Rejection, limits: EventLimits): EventStream {
  const one = sized(event, limits);
  if (one instanceof Rejection) return one;
  yield one;
  return null;
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
