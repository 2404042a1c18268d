/** The feed's messages in the format of server-sent events (WHATWG HTML, 9.2). Their ids are cursors. */
import type { Arrivals, NewEvent } from '../../storage/storage.ts';

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
