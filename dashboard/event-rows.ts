/** Events out of the server's answer, their payloads untouched: only the envelope is parsed. */
import { type Child, children, members } from './raw-json.ts';

export interface EventRow {
  readonly id: string;
  readonly typeId: string;
  /** ISO 8601 in UTC. */
  readonly createdAt: string;
  /** The JSON text as it was sent. */
  readonly payload: string;
  /** It has arrived while the list was shown. */
  readonly isNew?: boolean;
}

export interface EventPage {
  readonly events: readonly EventRow[];
  /** Cursor of the next older page; null where this was the last. */
  readonly next: string | null;
  /** Where a search has paused, in milliseconds since the Unix epoch; null if it has not. */
  readonly searchedUntil: number | null;
  /** Where the live feed goes on that tells what the page lacks; null: it is not one of the newest events. */
  readonly feed: string | null;
}

/** Reads `{"success":true,"data":{"events":[…],"pagination":{"nextCursor":…}}}`. */
export function readEventPage(text: string): EventPage {
  const data = members(text, dataAt(text));
  const list = data.get('events');
  const events = list === undefined ? [] : children(text, list.start).items;
  const pagination = data.get('pagination');
  const fields = pagination === undefined ? new Map<string, Child>() : members(text, pagination.start);
  const searchedUntil = scalar(text, fields.get('searchedUntil'));
  return {
    events: events.map((child) => readRow(text, child.start)),
    next: scalar(text, fields.get('nextCursor')),
    searchedUntil: searchedUntil === null ? null : Date.parse(searchedUntil),
    feed: scalar(text, fields.get('feed')),
  };
}

/** The events of a message of the live feed, some without their payload perhaps; null if it does not have all of them. */
export const readNews = (news: string): readonly EventRow[] | null =>
  news.endsWith('"skipped":0}') ? readEventPage(`{"data":${news}}`).events : null;

/** Whether a message leaves out a payload. */
export const lacksPayloads = (news: string): boolean => news.includes('"payloadBytes":');

/** Reads `{"success":true,"data":{"id":…}}`. */
export function readEvent(text: string): EventRow {
  return readRow(text, dataAt(text));
}

function dataAt(text: string): number {
  return members(text, text.indexOf('{')).get('data')?.start ?? text.length;
}

function readRow(text: string, at: number): EventRow {
  const row = members(text, at);
  const payload = row.get('payload');
  return {
    id: scalar(text, row.get('id')) ?? '',
    typeId: scalar(text, row.get('typeId')) ?? '',
    createdAt: scalar(text, row.get('createdAt')) ?? '',
    payload: payload === undefined ? '{}' : text.slice(payload.start, payload.end),
  };
}

/** A string or null of the envelope, which the server writes. */
function scalar(text: string, child: Child | undefined): string | null {
  return child === undefined ? null : (JSON.parse(text.slice(child.start, child.end)) as string | null);
}
