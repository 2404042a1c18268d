/** The body of a batch: text → events, each read or refused by itself, without keeping other requests waiting. */
import { Rejection } from '../../errors.ts';
import { nextTurn } from '../turns.ts';
import { type BatchEvent, EventReader, TypeReferences } from './batch-event.ts';
import { documentPieces, linePieces, type Piece } from './batch-text.ts';

export interface BatchLimits {
  readonly maxEvents: number;
  /** Of one event, as of the body of one that comes alone. */
  readonly maxEventBytes: number;
}

/**
 * How long the event loop is kept at a time, in milliseconds: 10,000 events of 200 bytes take some 25 to read, and
 * whoever else posts meanwhile should not notice.
 */
const SLICE_MS = 4;

/** Media types of newline-delimited JSON; whatever else a body calls itself, it is one JSON document. */
const LINES = new Set([
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/x-jsonlines',
]);

/** Whether a Content-Type says that each line is an event. */
export function isLineDelimited(contentType: string): boolean {
  return LINES.has((contentType.split(';')[0] ?? '').trim().toLowerCase());
}

/**
 * Reads a batch. What is no event is refused in its place; a document that is no JSON, or no batch, as a whole.
 * @param lines whether each line is an event
 */
export async function readBatch(
  text: string,
  lines: boolean,
  limits: BatchLimits,
): Promise<readonly (BatchEvent | Rejection)[] | Rejection> {
  const reader = new EventReader(new TypeReferences(), limits.maxEventBytes);
  const pieces = lines ? linePieces(text, reader) : documentPieces(text, reader);
  const read: (BatchEvent | Rejection)[] = [];
  let pausedAt = performance.now();
  for (;;) {
    const { done, value: piece } = pieces.next();
    if (done === true) {
      if ('problem' in piece) return invalid(piece.problem);
      return checkedCount(read.slice(read.length - piece.events), limits);
    }
    const event = piece === undefined ? null : sized(piece, limits);
    if (event !== null && piece?.kind === 'event') read.push(event);
    else if (event instanceof Rejection) return event;
    // An array that does not count, because another one of its name follows, may be as long as any.
    if (read.length > 2 * limits.maxEvents) return tooMany(limits);
    if (performance.now() - pausedAt < SLICE_MS) continue;
    await nextTurn();
    pausedAt = performance.now();
  }
}

const BAD_LINE = invalid('The line is not valid JSON.');

/** What was read, or the refusal of a piece that is too large; null for one that is no event and may be there. */
function sized(piece: NonNullable<Piece>, { maxEventBytes }: BatchLimits): BatchEvent | Rejection | null {
  const { kind, text } = piece;
  if (3 * text.length > maxEventBytes && Buffer.byteLength(text) > maxEventBytes) {
    const what = kind === 'event' ? 'An event' : 'A field beside "events"';
    return new Rejection('payloadTooLarge', `${what} may have at most ${maxEventBytes} bytes.`);
  }
  return kind === 'event' ? (piece.read ?? BAD_LINE) : null;
}

function checkedCount(
  events: readonly (BatchEvent | Rejection)[],
  limits: BatchLimits,
): readonly (BatchEvent | Rejection)[] | Rejection {
  if (events.length === 0) return invalid('The batch has no events.');
  return events.length > limits.maxEvents ? tooMany(limits) : events;
}

function tooMany({ maxEvents }: BatchLimits): Rejection {
  return invalid(`A batch may have at most ${maxEvents} events.`);
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
