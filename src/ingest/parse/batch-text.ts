/**
 * Cuts the texts of a batch's events out of its body, one at a time, so that the parsing of a large body can make way
 * for other requests. Nothing of an event is looked at here but where it begins and ends; what is usual is read by the
 * way.
 */
import type { BatchEvent } from './batch-event.ts';
import type { EventScanner } from './event-scan.ts';
import { stringEnd, valueSpan } from './payload-text.ts';

/** A piece of the body. Each that is not read must be parsed: the body is JSON if, and only if, all of them are. */
export type Piece =
  /** `read` is null where the event is not usual. */
  | { readonly kind: 'event'; readonly text: string; readonly read: BatchEvent | null }
  /** A member that is not the events, or its name. */
  | { readonly kind: 'other'; readonly text: string };

/** How the cutting ended: how many of the last events that were cut are the batch, or what is wrong with the body. */
export type End = { readonly events: number } | { readonly problem: string };

const NOT_JSON = 'The body is not valid JSON.';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * The pieces of `{"events": […], …}`. As in JSON.parse the last of several members of that name counts, and the name may
 * be spelled with escapes; what an earlier one held is still cut, as it must be JSON too.
 */
export function* documentPieces(text: string, scanner: EventScanner): Generator<Piece, End> {
  let end: End = { problem: 'The field "events" is missing.' };
  let at = skipSpace(text, 0);
  if (text.charCodeAt(at) !== OPEN_BRACE) return { problem: 'The body must be a JSON object.' };
  at = skipSpace(text, at + 1);
  if (text.charCodeAt(at) === CLOSE_BRACE) return closed(text, at, end);
  for (;;) {
    if (text.charCodeAt(at) !== QUOTE) return { problem: NOT_JSON };
    const keyEnd = stringEnd(text, at);
    const key = text.slice(at, keyEnd);
    at = skipSpace(text, keyEnd);
    if (text.charCodeAt(at) !== COLON) return { problem: NOT_JSON };
    at = skipSpace(text, at + 1);
    if (!isEvents(key)) {
      yield { kind: 'other', text: key };
      const { end: valueEnd } = valueSpan(text, at);
      yield { kind: 'other', text: text.slice(at, valueEnd) };
      at = valueEnd;
    } else if (text.charCodeAt(at) !== OPEN_BRACKET) {
      end = { problem: 'The field "events" must be an array.' };
      const { end: valueEnd } = valueSpan(text, at);
      yield { kind: 'other', text: text.slice(at, valueEnd) };
      at = valueEnd;
    } else {
      const array = yield* arrayPieces(text, at, scanner);
      if (array === null) return { problem: NOT_JSON };
      end = { events: array.events };
      at = array.end;
    }
    at = skipSpace(text, at);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACE) return closed(text, at, end);
    if (next !== COMMA) return { problem: NOT_JSON };
    at = skipSpace(text, at + 1);
  }
}

/** @returns how many there were and the index behind the array; null where it is not JSON */
function* arrayPieces(
  text: string,
  start: number,
  scanner: EventScanner,
): Generator<Piece, { readonly events: number; readonly end: number } | null> {
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) === CLOSE_BRACKET) return { events: 0, end: at + 1 };
  for (let events = 1; ; events += 1) {
    const read = scanner.read(text, at);
    const end = read === null ? valueSpan(text, at).end : scanner.end;
    yield { kind: 'event', text: text.slice(at, end), read };
    at = skipSpace(text, end);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACKET) return { events, end: at + 1 };
    if (next !== COMMA) return null;
    at = skipSpace(text, at + 1);
  }
}

function closed(text: string, at: number, end: End): End {
  return skipSpace(text, at + 1) === text.length ? end : { problem: NOT_JSON };
}

/** The lines of newline-delimited JSON; blank ones are no events. */
export function* linePieces(text: string, scanner: EventScanner): Generator<Piece, End> {
  let events = 0;
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const feed = text.indexOf('\n', at);
    const end = feed < 0 ? text.length : feed;
    events += 1;
    const line = text.slice(at, end);
    const read = scanner.read(line, 0);
    const isWhole = read !== null && skipSpace(line, scanner.end) === line.length;
    yield { kind: 'event', text: line, read: isWhole ? read : null };
    at = skipSpace(text, end);
  }
  return { events };
}

function isEvents(key: string): boolean {
  if (key === '"events"') return true;
  // Six characters, each an escape of six at most.
  if (!key.includes('\\') || key.length > 38) return false;
  try {
    return JSON.parse(key) === 'events';
  } catch {
    return false; // It is yielded as another member's name, and found out to be no JSON there.
  }
}

/** Past JSON's white space, and nothing else. */
function skipSpace(text: string, from: number): number {
  let at = from;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return at;
    at += 1;
  }
}
