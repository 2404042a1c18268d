/** The feed's messages in the format of server-sent events (WHATWG HTML, 9.2). Their ids are cursors. */
import type { Arrivals, NewEvent } from '../../storage/storage.ts';

/** A comment, sent now and then so that proxies and clients know that the stream is alive. Also a stream's filler. */
export const COMMENT = ':\n';
export const HEARTBEAT = Buffer.from(COMMENT);

/** How long a client waits before it reconnects, in milliseconds. */
export const HELLO = Buffer.from('retry: 1000\n\n');

/** Why a stream ends for good. */
export type EndReason = 'session' | 'access';

/** The feed continues from here: what the page has loaded before may lack events, what it loads from now on does not. */
export const ready = (id: string): Buffer => message('ready', '{}', id);

/** Too much was missed, or too long ago: the page must load its data again. The feed continues from here. */
export const reset = (id: string): Buffer => message('reset', '{}', id);

/** A newer cursor alone: without data it is no event to the client, which keeps the id. */
export const cursor = (id: string): Buffer => Buffer.from(`id: ${id}\n\n`);

/** Counts have changed for older times than the feed reports events of. */
export const recount = (): Buffer => message('recount', '{}');

/** The database does not answer; the feed continues by itself when it does. */
export const stalled = (): Buffer => message('stalled', '{}');

/** Reconnecting is of no use. */
export const end = (reason: EndReason): Buffer => message('end', JSON.stringify({ reason }));

export function arrived({ events, counts, skipped }: Arrivals, id: string): Buffer {
  const rows = events.map(eventText).join(',');
  const data = `{"events":[${rows}],"counts":${JSON.stringify(counts)},"skipped":${skipped}}`;
  return message('events', data, id);
}

/** The payload is inserted as the text that it is. */
function eventText({ id, typeId, createdAt, payload, payloadBytes }: NewEvent): string {
  const fields = JSON.stringify({ id, typeId, createdAt });
  const rest = payload === null ? `"payloadBytes":${payloadBytes}` : `"payload":${payload}`;
  return `${fields.slice(0, -1)},${rest}}`;
}

/**
 * A message. A line break in its data, which in JSON is white space of a payload, starts another line of data: the client
 * joins them by a line feed, so that of a payload's text only carriage returns may change.
 */
function message(event: string, data: string, id?: string): Buffer {
  const idLine = id === undefined ? '' : `id: ${id}\n`;
  return Buffer.from(`${idLine}event: ${event}\ndata: ${data.replace(/\r\n|\r|\n/g, '\ndata: ')}\n\n`);
}
