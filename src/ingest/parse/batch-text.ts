/** Finds the events of a batch in its text one at a time, so that other requests can run in between. */
import type { Damage, Decoded } from '../../base/utf8.ts';
import type { Rejection } from '../../errors.ts';
import { NONE, skipSpace } from '../../json/lexer.ts';
import { A_FORM, isForm } from '../../json/mistake.ts';
import type { JsonScan } from '../../json/scan.ts';
import { arrayElements, scanValue } from '../../json/values.ts';

/** What the scan holds: an event, or its refusal, or the name or the value of another member. Undefined: a pause in a long value. */
export type Found = 'event' | Rejection | 'other' | undefined;

/** How many of the last events are the batch, or what is wrong with the body; null: it is not JSON. */
export type End = { readonly events: number } | { readonly problem: string | null };

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

const NOT_JSON: End = { problem: null };

/**
 * Scans the events of `{"events": […], …}`, or of the array alone. As in JSON.parse the last of several "events" members
 * counts, and the name may contain escapes. Earlier ones are scanned as well, because they must be valid JSON too.
 */
export function* documentValues(
  scan: JsonScan,
  text: string,
  damage: Damage | null = null,
): Generator<Found, End> {
  let at = skipSpace(text, 0);
  if (text.charCodeAt(at) === OPEN_BRACKET) {
    const array = yield* eventsAt(scan, { text, damage }, at);
    return array === null ? NOT_JSON : closed(text, array.end, { events: array.events });
  }
  if (text.charCodeAt(at) !== OPEN_BRACE)
    return { problem: isForm(text) ? A_FORM : 'The body must be a JSON object, or an array of events.' };
  let end: End = {
    problem:
      'The field "events" is missing: send {"events": […]}, an array of events, or one event a line as application/x-ndjson.',
  };
  at = skipSpace(text, at + 1);
  if (text.charCodeAt(at) === CLOSE_BRACE) return closed(text, at + 1, end);
  for (;;) {
    if (text.charCodeAt(at) !== QUOTE || !(yield* scanValue(scan, text, at))) return NOT_JSON;
    const name = text.slice(at, scan.end);
    at = skipSpace(text, scan.end);
    if (text.charCodeAt(at) !== COLON) return NOT_JSON;
    if (!isEvents(name)) yield 'other';
    at = skipSpace(text, at + 1);
    if (isEvents(name) && text.charCodeAt(at) === OPEN_BRACKET) {
      const array = yield* eventsAt(scan, { text, damage }, at);
      if (array === null) return NOT_JSON;
      end = { events: array.events };
      at = array.end;
    } else {
      if (isEvents(name)) end = { problem: 'The field "events" must be an array.' };
      if (!(yield* scanValue(scan, text, at))) return NOT_JSON;
      at = scan.end;
      yield 'other';
    }
    at = skipSpace(text, at);
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACE) return closed(text, at + 1, end);
    if (next !== COMMA) return NOT_JSON;
    at = skipSpace(text, at + 1);
  }
}

/** @returns number of events and index after the array; null if it is not JSON */
function* eventsAt(
  scan: JsonScan,
  { text, damage }: Decoded,
  start: number,
): Generator<Found, { readonly events: number; readonly end: number } | null> {
  const elements = arrayElements(scan, text, start, damage);
  for (let events = 0; ; ) {
    const { done, value } = elements.next();
    if (done === true) return value === NONE ? null : { events, end: value };
    if (value !== undefined) events += 1;
    yield value === true ? 'event' : value;
  }
}

/** @param at index after the document */
function closed(text: string, at: number, end: End): End {
  return skipSpace(text, at) === text.length ? end : NOT_JSON;
}

/** @param name a JSON string with its quotes */
function isEvents(name: string): boolean {
  // At most six characters with escapes of six characters each, and two quotes.
  return name === '"events"' || (name.length <= 38 && name.includes('\\') && JSON.parse(name) === 'events');
}
