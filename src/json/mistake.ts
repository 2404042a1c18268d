/** Where a text stops being JSON, and what to do about it: only refusals need it, so it is looked for after the parser has failed. */
import { isBroken } from '../base/utf8.ts';
import { Rejection } from '../errors.ts';
import { skipSpace } from './lexer.ts';
import { JsonScan, SLICE_CHARACTERS } from './scan.ts';

const SPACE = 0x20;
const OPEN_BRACE = 0x7b;

/** What to do where a second document follows, on a route that takes lines of events. */
export const LINES_HINT = 'For one event a line send Content-Type: application/x-ndjson.';

/** What to do with a form, such as curl -d sends by itself. */
export const A_FORM =
  'The body is a form (name=value), not JSON: send {"name": "value"} with Content-Type: application/json.';

/** Whether a body that is not JSON begins like a form: a name without quotes, and an equals sign. */
export function isForm(text: string): boolean {
  return /^[\w.%+[\]-]{1,100}=/.test(text.slice(0, 101));
}

/**
 * Scans a body that a parser has refused again, from its start. Yields after each slice of a long one.
 * @param hint what to do where a second document follows
 * @returns the refusal with line and column, both from 1 on; a column counts UTF-16 units. Null for one JSON document
 */
export function* mistakeIn(text: string, hint = ''): Generator<undefined, Rejection | null> {
  const scan = new JsonScan();
  scan.begin(text, 0);
  let state = scan.step(SLICE_CHARACTERS);
  while (state === 'more') {
    yield;
    state = scan.step(SLICE_CHARACTERS);
  }
  return state === 'invalid' ? notJson(text, scan.end) : documentMistake(text, scan, hint);
}

/** Like {@link mistakeIn}, for a text that is not one JSON document. */
export function* findMistake(text: string, hint = ''): Generator<undefined, Rejection> {
  return (yield* mistakeIn(text, hint)) ?? invalid('The body is not valid JSON.');
}

/** Scans a short body, which is to be one JSON document, at once. @returns what is wrong with it, or null */
export function scanDocument(scan: JsonScan, text: string, hint = ''): Rejection | null {
  scan.begin(text, 0);
  return scan.step(text.length) === 'done' ? documentMistake(text, scan, hint) : notJson(text, scan.end);
}

/** What is wrong with a body whose scan is done: something may follow. @returns null where nothing is */
export function documentMistake(text: string, { end }: JsonScan, hint = ''): Rejection | null {
  return skipSpace(text, end) === text.length ? null : moreThanOne(text, end, hint);
}

/** The refusal of a body. @param at index of the mistake, as a failed {@link JsonScan} has it in `end` */
export function notJson(text: string, at: number): Rejection {
  if (isForm(text)) return invalid(A_FORM);
  return invalid(`The body is not valid JSON: ${mistakeAt(text, at)} at ${positionOf(text, at)}.`);
}

/** The refusal of a body in which something follows a whole document. @param end index after the document */
function moreThanOne(text: string, end: number, hint = ''): Rejection {
  const at = skipSpace(text, end);
  const isDocument = text.charCodeAt(at) === OPEN_BRACE;
  const what = isDocument ? 'a second document begins' : 'more text follows the document';
  const advice = isDocument && hint !== '' ? ` ${hint}` : '';
  return invalid(`The body is not valid JSON: ${what} at ${positionOf(text, at)}.${advice}`);
}

/** The refusal of one line of several. @param what of what it is, such as "The line" */
export function lineNotJson(line: string, what = 'The line'): Rejection {
  const scan = new JsonScan();
  scan.begin(line, 0);
  const isWhole = scan.step(line.length) === 'done';
  const at = isWhole ? skipSpace(line, scan.end) : scan.end;
  const mistake = isWhole ? 'more text follows the value' : mistakeAt(line, at);
  return invalid(`${what} is not valid JSON: ${mistake} at column ${at + 1}.`);
}

function mistakeAt(text: string, at: number): string {
  if (at >= text.length) return 'it ends too early';
  if (isBroken(text.charCodeAt(at))) return 'a byte that is not valid UTF-8';
  const found = String.fromCodePoint(text.codePointAt(at) ?? 0);
  if (found.charCodeAt(0) < SPACE)
    return `a control character (U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}) must be escaped`;
  const isClosing = found === '}' || found === ']';
  if (isClosing && text.slice(0, at).trimEnd().endsWith(',')) return `a comma stands before ${quoted(found)}`;
  return `unexpected ${quoted(found)}`;
}

/** Backslashes and quotes would be escaped twice, as the refusal itself is JSON. */
function quoted(character: string): string {
  return character === '"' ? 'quotation mark' : `'${character}'`;
}

function positionOf(text: string, at: number): string {
  let line = 1;
  let start = 0;
  for (let feed = text.indexOf('\n'); feed >= 0 && feed < at; feed = text.indexOf('\n', start)) {
    line += 1;
    start = feed + 1;
  }
  return `line ${line}, column ${Math.min(at, text.length) - start + 1}`;
}

function invalid(details: string): Rejection {
  return new Rejection('invalidBody', details);
}
