/** Parses the body of a batch in slices, so that it does not block the event loop. Events are refused one by one. */

import { TimeSlice } from '../../base/time-slice.ts';
import type { Path } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import { type BatchEvent, BatchEventParser, TypeReferences } from './batch-event.ts';
import { documentPieces, linePieces, type Piece } from './batch-text.ts';
import { findMistake, LINES_HINT, lineNotJson } from './json-mistake.ts';

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
 * Parses a batch. An invalid event is refused by itself; a document that is not valid JSON or not a batch is refused whole.
 * @param lines whether the body is newline-delimited
 */
export async function readBatch(
  text: string,
  lines: boolean,
  limits: BatchLimits,
): Promise<readonly (BatchEvent | Rejection)[] | Rejection> {
  const parser = new BatchEventParser(new TypeReferences(), limits.maxEventBytes);
  const pieces = lines ? linePieces(text, parser) : documentPieces(text, parser);
  const read: (BatchEvent | Rejection)[] = [];
  const slices = new TimeSlice(limits.holder);
  for (;;) {
    const { done, value: piece } = pieces.next();
    if (done === true) {
      if ('problem' in piece)
        return piece.problem === null
          ? await inSlices(findMistake(text, LINES_HINT), slices)
          : invalid(piece.problem);
      return checkedCount(read.slice(read.length - piece.events), limits);
    }
    const event = piece === undefined ? null : sized(piece, limits);
    if (event !== null && piece?.kind === 'event') read.push(event);
    else if (event instanceof Rejection) return event;
    // An earlier "events" array, which a later one replaces, counts towards a limit as well.
    if (read.length > 2 * limits.maxEvents) return tooMany(limits);
    if (slices.isOver) await slices.next();
  }
}

/** Runs work that pauses, and gives others turns of the event loop at its pauses. */
async function inSlices<T>(work: Generator<undefined, T>, slices: TimeSlice): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (slices.isOver) await slices.next();
  }
}

/** The parsed event, or the refusal of a piece that is too large; null for other members. */
export function sized(
  piece: NonNullable<Piece>,
  { maxEventBytes }: EventLimits,
): BatchEvent | Rejection | null {
  const { kind, text } = piece;
  if (3 * text.length > maxEventBytes && Buffer.byteLength(text) > maxEventBytes) {
    const what = kind === 'event' ? 'An event' : 'A field beside "events"';
    return new Rejection('payloadTooLarge', `${what} may have at most ${maxEventBytes} bytes.`);
  }
  return kind === 'event' ? (piece.read ?? lineNotJson(text)) : null;
}

function checkedCount(
  events: readonly (BatchEvent | Rejection)[],
  limits: BatchLimits,
): readonly (BatchEvent | Rejection)[] | Rejection {
  if (events.length === 0) return invalid('The batch has no events.');
  return events.length > limits.maxEvents ? tooMany(limits) : events;
}

/** The refusal of a batch with more events. */
export function tooMany({ maxEvents }: EventLimits): Rejection {
  return invalid(`A batch may have at most ${maxEvents} events.`);
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
