/**
 * Splits the body of a batch into events one at a time, so that other requests can run in between.
 */
import type { Rejection } from '../../errors.ts';
import type { BatchEvent, BatchEventParser } from './batch-event.ts';
import { SLICE_CHARACTERS } from './event-body.ts';
import { JsonScan } from './json-scan.ts';
import { NONE, skipSpace, stringEnd } from './lexer.ts';

/** A piece of the body; undefined: a pause in a long piece, at which other requests may run. */
export type Piece =
  /** `read` is null for a line that is not JSON. */
  | { readonly kind: 'event'; readonly text: string; readonly read: BatchEvent | Rejection | null }
  /** The value or the name of a member other than "events". */
  | { readonly kind: 'other'; readonly text: string }
  | undefined;

/** The result of the split: how many of the last events are the batch, or what is wrong with the body; null: it is not JSON. */
export type End = { readonly events: number } | { readonly problem: string | null };

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * The pieces of `{"events": […], …}`, or of the array alone. As in JSON.parse the last of several "events" members counts, and the name may
 * contain escapes. Earlier ones are split as well, because they must be valid JSON too.
 */
export function* documentPieces(text: string, parser: BatchEventParser): Generator<Piece, End> {
  let end: End = {
    problem:
      'The field "events" is missing: send {"events": […]}, an array of events, or one event a line as application/x-ndjson.',
  };
  let at = skipSpace(text, 0);
  if (text.charCodeAt(at) === OPEN_BRACKET) {
    const array = yield* arrayPieces(text, at, parser);
    if (array === null || skipSpace(text, array.end) !== text.length) return { problem: null };
    return { events: array.events };
  }
  if (text.charCodeAt(at) !== OPEN_BRACE)
    return { problem: 'The body must be a JSON object, or an array of events.' };
  at = skipSpace(text, at + 1);
  if (text.charCodeAt(at) === CLOSE_BRACE) return closed(text, at, end);
  for (;;) {
    const keyEnd = text.charCodeAt(at) === QUOTE ? stringEnd(text, at, text.length) : NONE;
    if (keyEnd === NONE) return { problem: null };
    const key = text.slice(at, keyEnd);
    at = skipSpace(text, keyEnd);
    if (text.charCodeAt(at) !== COLON) return { problem: null };
    at = skipSpace(text, at + 1);
    if (isEvents(key) && text.charCodeAt(at) === OPEN_BRACKET) {
      const array = yield* arrayPieces(text, at, parser);
      if (array === null) return { problem: null };
      end = { events: array.events };
      at = array.end;
    } else {
      if (isEvents(key)) end = { problem: 'The field "events" must be an array.' };
      else yield { kind: 'other', text: key };
      const valueEnd = yield* otherPiece(text, at);
      if (valueEnd === NONE) return { problem: null };
      at = valueEnd;
    }
    at = skipSpace(text, at);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACE) return closed(text, at, end);
    if (next !== COMMA) return { problem: null };
    at = skipSpace(text, at + 1);
  }
}

/** @returns index after the value; NONE if it is not JSON */
function* otherPiece(text: string, start: number): Generator<Piece, number> {
  const scan = new JsonScan();
  scan.begin(text, start);
  for (;;) {
    const state = scan.step(SLICE_CHARACTERS);
    if (state === 'invalid') return NONE;
    if (state === 'done') break;
    yield;
  }
  yield { kind: 'other', text: text.slice(start, scan.end) };
  return scan.end;
}

/** @returns number of events and index after the array; null if it is not JSON */
function* arrayPieces(
  text: string,
  start: number,
  parser: BatchEventParser,
): Generator<Piece, { readonly events: number; readonly end: number } | null> {
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) === CLOSE_BRACKET) return { events: 0, end: at + 1 };
  for (let events = 1; ; events += 1) {
    const read = parser.parseFast(text, at) ?? (yield* parser.parseStrict(text, at));
    if (read === null) return null;
    const { end } = parser;
    yield { kind: 'event', text: text.slice(at, end), read };
    at = skipSpace(text, end);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACKET) return { events, end: at + 1 };
    if (next !== COMMA) return null;
    at = skipSpace(text, at + 1);
  }
}

function closed(text: string, at: number, end: End): End {
  return skipSpace(text, at + 1) === text.length ? end : { problem: null };
}

/** The lines of newline-delimited JSON. Blank lines are skipped. */
export function* linePieces(text: string, parser: BatchEventParser): Generator<Piece, End> {
  let events = 0;
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const feed = text.indexOf('\n', at);
    const end = feed < 0 ? text.length : feed;
    events += 1;
    const line = text.slice(at, end);
    const read = parser.parseFast(line, 0) ?? (yield* parser.parseStrict(line, 0));
    const isWhole = skipSpace(line, parser.end) === line.length;
    yield { kind: 'event', text: line, read: isWhole ? read : null };
    at = skipSpace(text, end);
  }
  return { events };
}

/** @param key a JSON string with its quotes */
function isEvents(key: string): boolean {
  // At most six characters with escapes of six characters each, and two quotes.
  return key === '"events"' || (key.length <= 38 && key.includes('\\') && JSON.parse(key) === 'events');
}
