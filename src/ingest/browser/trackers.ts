/**
 * The bodies of two trackers of page views, for pages that have them already: Umami's `POST /api/send` and Plausible's `POST /api/event`.
 * The payload is what the tracker sent, in its own text. The browser key is in the path, or where the tracker has the name of its site.
 */
import { formProblem } from '../../base/token-text.ts';
import { invalidField, Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { JsonScan, MAX_PAYLOAD_DEPTH } from '../../json/scan.ts';
import { memberText, scanWhole } from '../../json/values.ts';
import { scanOne } from '../formats/collect.ts';
import type { EventStream } from '../formats/format.ts';
import { parseRecordTime } from '../formats/times.ts';
import { type BatchEvent, TypeReferences } from '../parse/batch-event.ts';
import type { BrowserFormat, SentByPage } from './create-browser-events.ts';

const PAGE_VIEW = 'pageview';

const UMAMI_SITE = /"website"\s*:\s*"([^"\\]{0,100})"/;
const PLAUSIBLE_SITE = /"(?:d|domain)"\s*:\s*"([^"\\]{0,100})"/;

const NO_OBJECT = new Rejection('invalidBody', 'The body must be a JSON object.');
const NO_PAYLOAD = invalidField('payload', 'must be an object');
const UNKNOWN_TYPE = invalidField('type', 'must be "event", "identify" or "performance"');
const NO_NAME = invalidField('n', 'is missing: it names the event');
const TOO_DEEP = new Rejection(
  'invalidBody',
  `The body may be nested at most ${MAX_PAYLOAD_DEPTH} levels deep.`,
);

export const UMAMI: BrowserFormat = {
  keys: keysBy(UMAMI_SITE, 'website'),
  read: umamiEvent,
  // Its tracker reads JSON, and goes on without the fields that it does not find.
  answer: ([result]) => (result instanceof Rejection ? result : { status: 200, body: '{"success":true}' }),
};

export const PLAUSIBLE: BrowserFormat = {
  keys: keysBy(PLAUSIBLE_SITE, 'd'),
  read: plausibleEvent,
  answer: ([result]) =>
    result instanceof Rejection
      ? result
      : { status: 202, body: 'ok', contentType: 'text/plain; charset=utf-8' },
};

function keysBy(site: RegExp, name: string): (exchange: Exchange, body: string) => string[] | Rejection {
  const missing = invalidField(name, 'must be a browser key, where the address has none');
  return ({ parameters }, body) => {
    const [inPath] = parameters;
    const key = inPath ?? site.exec(body)?.[1];
    if (key === undefined) return missing;
    return key.startsWith('tdb_') ? [key] : new Rejection('invalidBrowserKey', formProblem(key, 'tdb'));
  };
}

/** `{"type":"event","payload":{"website","url","name","data","timestamp",…}}` */
function* umamiEvent(sent: SentByPage): EventStream {
  const body = new JsonScan(['type', 'payload']);
  const problem = yield* scanOne(body, sent);
  if (problem !== null) return problem;
  if (!body.isObject) return NO_OBJECT;
  const kind = memberText(body, 'type');
  if (kind !== 'event' && kind !== 'identify' && kind !== 'performance') return UNKNOWN_TYPE;
  const payload = body.member('payload');
  if (payload?.startsWith('{') !== true) return NO_PAYLOAD;
  const scan = new JsonScan(['name', 'timestamp']);
  yield* scanWhole(scan, payload);
  const name = kind === 'event' ? memberText(scan, 'name') || PAGE_VIEW : kind;
  if (name instanceof Rejection) return name;
  const sentAt = memberText(scan, 'timestamp');
  if (sentAt instanceof Rejection) return sentAt;
  const time = sentAt === null || sentAt === '' ? null : parseRecordTime(sentAt);
  if (typeof time === 'string') return invalidField('timestamp', time);
  yield eventOf(name, 'name', { scan, createdAt: time === null ? null : Math.min(time, sent.receivedAt) });
  return null;
}

/** `{"n","u","d","r","p",…}`, or the same with whole words. */
function* plausibleEvent(sent: SentByPage): EventStream {
  const scan = new JsonScan(['n', 'name']);
  const problem = yield* scanOne(scan, sent);
  if (problem !== null) return problem;
  if (!scan.isObject) return NO_OBJECT;
  const name = memberText(scan, 'n') || memberText(scan, 'name');
  if (name instanceof Rejection) return name;
  if (name === null || name === '') return NO_NAME;
  yield eventOf(name, 'n', { scan, createdAt: null });
  return null;
}

function eventOf(
  name: string,
  field: string,
  { scan, createdAt }: { readonly scan: JsonScan; readonly createdAt: number | null },
): BatchEvent | Rejection {
  if (scan.depth > MAX_PAYLOAD_DEPTH) return TOO_DEEP;
  const type = new TypeReferences().ofField(field, name);
  return type instanceof Rejection ? type : { type, createdAt, key: null, payload: scan.value };
}
