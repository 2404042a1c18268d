/** POST /v1/collect: the format of the browser client, `{"key":"tdb_…","events":[{"type","key","createdAt","payload"}]}`. */
import { formProblem, isWellFormed } from '../../base/token-text.ts';
import { invalidField, Rejection } from '../../errors.ts';
import type { Answer } from '../../http/exchange.ts';
import { findMistake } from '../../json/mistake.ts';
import { JsonScan } from '../../json/scan.ts';
import { arrayElements, scalarText, scanWhole } from '../../json/values.ts';
import type { Result } from '../batch-answer.ts';
import { fits, tooLarge } from '../formats/collect.ts';
import type { EventStream } from '../formats/format.ts';
import { type BatchEvent, batchEvent, TypeReferences } from '../parse/batch-event.ts';
import { EVENT_FIELDS } from '../parse/event-body.ts';
import type { BrowserFormat, SentByPage } from './create-browser-events.ts';

/** Where a key is looked for: it comes first, so that a long body without a valid one costs as much as a short one. */
const BEGINNING_CHARACTERS = 1_024;
/** What may be a browser key, at any depth. Serializers write neither the name nor the value with escapes. */
const KEYS = /"key"\s*:\s*"([^"\\]{0,100})/g;
/** Texts that are looked at, of any form: a payload may hold one as well. */
const MAX_KEYS = 4;

const NO_KEY = invalidField('key', 'is missing: send {"key":"tdb_…","events":[…]}, the key first');
const NO_OBJECT = new Rejection(
  'invalidBody',
  'The body must be a JSON object: {"key":"tdb_…","events":[…]}.',
);
const NO_EVENTS = invalidField('events', 'must be an array');
const OTHER_KEY = invalidField('key', 'must come before "events", whose payloads have browser keys in them');

export const COLLECT: BrowserFormat = {
  keys: (_exchange, body) => {
    const texts: string[] = [];
    for (const [, text = ''] of body.slice(0, BEGINNING_CHARACTERS).matchAll(KEYS)) {
      texts.push(text);
      if (texts.length === MAX_KEYS) break;
    }
    const [first] = texts;
    if (first === undefined) return NO_KEY;
    const keys = new Set(texts.filter((text) => isWellFormed(text, 'tdb')));
    return keys.size > 0 ? [...keys] : new Rejection('invalidBrowserKey', formProblem(first, 'tdb'));
  },
  // A request without events asks what the clock of the service shows.
  read: collectedEvents,
  mayBeEmpty: true,
  answer: collectAnswer,
};

/**
 * What came of the events, by their place in the request. Not their ids and types, nor whether one was stored before: whoever has the
 * key must not learn what the app holds. 200 if every event is stored, else 207.
 */
function collectAnswer(results: readonly Result[], receivedAt: number): Answer {
  const errors: object[] = [];
  for (const [index, result] of results.entries())
    if (result instanceof Rejection) errors.push({ index, ...result.fields() });
  const body = {
    success: errors.length === 0,
    stored: results.length - errors.length,
    refused: errors.length,
    errors,
    serverTime: new Date(receivedAt).toISOString(),
  };
  return { status: errors.length === 0 ? 200 : 207, body: JSON.stringify(body) };
}

function* collectedEvents({ text, damage, key, limits }: SentByPage): EventStream {
  const body = new JsonScan(['key', 'events']);
  if (!(yield* scanWhole(body, text))) return yield* findMistake(text);
  if (!body.isObject) return NO_OBJECT;
  const named = body.member('key');
  if (named === null || typeof scalarText(named) !== 'string') return NO_KEY;
  if (scalarText(named) !== key) return OTHER_KEY;
  const events = body.span('events');
  if (events === null || !text.startsWith('[', events.start)) return NO_EVENTS;
  const scan = new JsonScan(EVENT_FIELDS);
  const types = new TypeReferences();
  for (const isHeld of arrayElements(scan, text, events.start, damage)) {
    if (isHeld !== true) yield isHeld;
    // An event has a little more than its payload: names, times and keys are checked by themselves.
    else if (!fits(scan.value, { ...limits, maxEventBytes: 2 * limits.maxEventBytes }))
      yield tooLarge(limits, 'A payload');
    else yield pageEvent(scan, types);
  }
  return null;
}

/**
 * An event by the rules of POST /v1/events, but that its key may come without a time: then the time is that of the request, and the
 * key tells nothing.
 */
function pageEvent(scan: JsonScan, types: TypeReferences): BatchEvent | Rejection {
  return batchEvent(scan, types, { isTimeOptional: true });
}
