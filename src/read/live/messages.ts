/** The feed's messages in the format of server-sent events (WHATWG HTML, 9.2). Their ids are cursors. */
import { objectOf } from '../../http/operation.ts';
import type { Schema } from '../../http/query.ts';
import type { Arrivals, NewEvent } from '../../storage/read/arrivals.ts';
import { COUNT, EVENT_ID, PAYLOAD, TIMESTAMP, TYPE_ID } from '../answer-shapes.ts';

/** A comment: the heartbeat, and the filler of the stream. */
export const COMMENT = ':\n';
export const HEARTBEAT = Buffer.from(COMMENT);

/** Sets the client's delay before it reconnects, in milliseconds. */
export const HELLO = Buffer.from('retry: 1000\n\n');

/** Why a stream ends and reconnecting is useless. */
export type EndReason = 'session' | 'access';

/** The feed starts or continues from here: data that the page loaded before may lack events, data loaded later does not. */
export const ready = (id: string): Buffer => message('ready', '{}', id);

/** The client missed too many events, or was away too long: the page must reload its data. The feed continues from here. */
export const reset = (id: string): Buffer => message('reset', '{}', id);

/** Only a newer cursor: a message without data sets the client's last event id and dispatches no event. */
export const cursor = (id: string): Buffer => Buffer.from(`id: ${id}\n\n`);

/** Counts have changed for times of which the feed reports no events. */
export const recount = (): Buffer => message('recount', '{}');

/** The database does not respond; the feed continues when it does. */
export const stalled = (): Buffer => message('stalled', '{}');

/** The feed ends; reconnecting is useless. */
export const end = (reason: EndReason): Buffer => message('end', JSON.stringify({ reason }));

export function arrived({ events, counts, skipped }: Arrivals, id: string): Buffer {
  const rows = events.map(eventText).join(',');
  const data = `{"events":[${rows}],"counts":${JSON.stringify(counts)},"skipped":${skipped}}`;
  return message('events', data, id);
}

/** The payload's text is inserted unchanged. */
function eventText({ id, typeId, createdAt, payload, payloadBytes }: NewEvent): string {
  const fields = JSON.stringify({ id, typeId, createdAt });
  const rest = payload === null ? `"payloadBytes":${payloadBytes}` : `"payload":${payload}`;
  return `${fields.slice(0, -1)},${rest}}`;
}

/**
 * A message. A line break in the data, which in a payload is white space of the JSON, starts another `data` line. The client
 * joins the lines with a line feed, so only carriage returns of a payload's text may change.
 */
function message(event: string, data: string, id?: string): Buffer {
  const idLine = id === undefined ? '' : `id: ${id}\n`;
  return Buffer.from(`${idLine}event: ${event}\ndata: ${data.replace(/\r\n|\r|\n/g, '\ndata: ')}\n\n`);
}

const KNOWN = { id: EVENT_ID, typeId: TYPE_ID, createdAt: TIMESTAMP };

const LIVE_EVENT: Schema = {
  title: 'LiveEvent',
  oneOf: [
    objectOf({ ...KNOWN, payload: PAYLOAD }),
    objectOf({
      ...KNOWN,
      payloadBytes: { ...COUNT, description: 'In place of a payload that is too long for the feed.' },
    }),
  ],
};

const ARRIVALS = objectOf(
  {
    events: { type: 'array', items: LIVE_EVENT, description: 'The newest new events, newest first.' },
    counts: {
      type: 'array',
      items: objectOf({ typeId: TYPE_ID, minute: TIMESTAMP, count: { ...COUNT, minimum: 1 } }),
      description: 'How many new events there are, by type and minute.',
    },
    skipped: { ...COUNT, description: 'New events that are in `counts` and not in `events`.' },
  },
  { title: 'LiveArrivals' },
);

const NOTHING = { type: 'object', maxProperties: 0 };

/** A message whose data is JSON text. */
function messageOf(event: string, description: string, data: Schema, hasId: boolean): Schema {
  return objectOf(
    {
      event: { const: event },
      data: { type: 'string', contentMediaType: 'application/json', contentSchema: data },
      ...(hasId && { id: { type: 'string', minLength: 1, description: 'Where the feed can be continued.' } }),
    },
    { description },
  );
}

/** A message of the feed to a token, with its fields as members: as OpenAPI 3.2 describes an item of an event stream. */
export const LIVE_MESSAGE: Schema = {
  title: 'LiveMessage',
  oneOf: [
    messageOf(
      'ready',
      'The feed continues from here: data that is loaded from now on lacks nothing.',
      NOTHING,
      true,
    ),
    messageOf('events', 'New events.', ARRIVALS, true),
    messageOf(
      'reset',
      'Too much was missed: load all data again. The feed continues from here.',
      NOTHING,
      true,
    ),
    messageOf(
      'recount',
      'Counts have changed for times of which the feed reports no events.',
      NOTHING,
      false,
    ),
    messageOf('stalled', 'The database does not respond; the feed continues when it does.', NOTHING, false),
    messageOf(
      'end',
      'The feed ends; reconnecting is useless.',
      objectOf({ reason: { const: 'access' } }, { title: 'LiveEnd' }),
      false,
    ),
  ],
};
