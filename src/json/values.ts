/** The JSON values of a body, each scanned by itself and none of them built. */

import { BOM, type Damage } from '../base/utf8.ts';
import { invalidField, type Rejection } from '../errors.ts';
import { NONE, skipSpace } from './lexer.ts';
import { type JsonScan, type ScanState, SLICE_CHARACTERS } from './scan.ts';

const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Whether the body is a JSON array. */
export function isArray(text: string): boolean {
  return text.charCodeAt(skipSpace(text, 0)) === OPEN_BRACKET;
}

/** Scans the value at `start`; undefined: a pause in a long one. @returns whether it is JSON */
export function* scanValue(scan: JsonScan, text: string, start: number): Generator<undefined, boolean> {
  scan.begin(text, start);
  return (yield* rest(scan, scan.step(SLICE_CHARACTERS))) === 'done';
}

/** Goes on with a scan that has paused. @returns its state at its end */
function* rest(scan: JsonScan, paused: ScanState): Generator<undefined, ScanState> {
  let state = paused;
  while (state === 'more') {
    yield;
    state = scan.step(SLICE_CHARACTERS);
  }
  return state;
}

/** Scans a text that is to be one JSON value. @returns whether it is */
export function* scanWhole(scan: JsonScan, text: string): Generator<undefined, boolean> {
  return (yield* scanValue(scan, text, 0)) && skipSpace(text, scan.end) === text.length;
}

/**
 * Scans the elements of the array at `start`: yields true after each, while the scan holds it; or its refusal, where it has bytes
 * that are no UTF-8.
 * @returns the index after the array; {@link NONE} if it is not JSON
 */
export function* arrayElements(
  scan: JsonScan,
  text: string,
  start: number,
  damage: Damage | null = null,
): Generator<true | Rejection | undefined, number> {
  let at = skipSpace(text, start + 1);
  if (text.charCodeAt(at) === CLOSE_BRACKET) return at + 1;
  for (;;) {
    scan.begin(text, at);
    let state = scan.step(SLICE_CHARACTERS);
    // A generator of its own for each element would cost as much as a short one.
    if (state === 'more') state = yield* rest(scan, state);
    if (state !== 'done') return NONE;
    const first = at;
    at = skipSpace(text, scan.end);
    yield damage?.in(first, at, 'The event') ?? true;
    const next = text.charCodeAt(at);
    if (next === CLOSE_BRACKET) return at + 1;
    if (next !== COMMA) return NONE;
    at = skipSpace(text, at + 1);
  }
}

/**
 * Scans the elements of a body that is an array, as {@link arrayElements} does; false: it is not JSON, and nothing follows.
 * @param text for which {@link isArray}
 */
export function* wholeArray(
  scan: JsonScan,
  text: string,
  damage: Damage | null = null,
): Generator<boolean | Rejection | undefined, undefined> {
  const end = yield* arrayElements(scan, text, skipSpace(text, 0), damage);
  if (end === NONE || skipSpace(text, end) !== text.length) yield false;
}

/**
 * Scans each line of newline-delimited JSON: yields whether it is JSON, while the scan holds it; or its refusal, where it has bytes
 * that are no UTF-8. Blank lines are skipped, and byte order marks, which joined files have.
 * @param start where the first line begins
 */
export function* lineValues(
  scan: JsonScan,
  text: string,
  damage: Damage | null = null,
  start = 0,
): Generator<boolean | Rejection | undefined, undefined> {
  for (let at = skipSpace(text, start); at < text.length; ) {
    if (text.charCodeAt(at) === BOM) {
      at = skipSpace(text, at + 1);
      continue;
    }
    const feed = text.indexOf('\n', at);
    const end = feed < 0 ? text.length : feed;
    const line = text.slice(at, end);
    scan.begin(line, 0);
    let state = scan.step(SLICE_CHARACTERS);
    if (state === 'more') state = yield* rest(scan, state);
    scan.offset = at;
    const isJson = state === 'done' && skipSpace(line, scan.end) === line.length;
    yield damage?.in(at, end, 'The line') ?? isJson;
    at = skipSpace(text, end);
  }
}

/**
 * Scans values that follow each other, with or without white space between them: yields true after each, while the scan
 * holds it. From one that is not JSON on the body is read line by line.
 */
export function* joinedValues(
  scan: JsonScan,
  text: string,
  damage: Damage | null = null,
): Generator<boolean | Rejection | undefined, undefined> {
  let at = skipSpace(text, 0);
  while (at < text.length) {
    if (!(yield* scanValue(scan, text, at))) return yield* lineValues(scan, text, damage, at);
    const { end } = scan;
    yield damage?.in(at, end, 'The record') ?? true;
    at = skipSpace(text, end);
  }
}

/** The text of a JSON string, number, true or false; null for null, undefined for an object or an array. */
export function scalarText(json: string): string | null | undefined {
  switch (json.charAt(0)) {
    case '"':
      return json.includes('\\') ? (JSON.parse(json) as string) : json.slice(1, -1);
    case '{':
    case '[':
      return undefined;
    default:
      return json === 'null' ? null : json;
  }
}

/** The text of a member that is a string, a number, true or false; null for none and null; else its refusal. @param scan of an object, done */
export function memberText(scan: JsonScan, name: string): string | null | Rejection {
  const json = scan.member(name);
  const text = json === null ? null : scalarText(json);
  return text === undefined ? invalidField(name, 'must be a string or a number') : text;
}
