/** Accepted events on their way into the table, from whichever source. */
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../counts/levels.ts';

/** The content of an event, without its app and type. */
export interface EventContent {
  /** UUID, in the form with four hyphens. */
  readonly id: string;
  readonly createdAt: number;
  /** The payload's JSON text. */
  readonly payload: string;
}

/** The columns of the table of events, in the order of a row. */
export const EVENT_COLUMN_NAMES = ['id', 'app_id', 'type_id', 'created_at', 'payload'] as const;
export const EVENT_COLUMNS = EVENT_COLUMN_NAMES.join(', ');

/** An event as a row of the table: its app and type by internal ids, which are valid in one database only. */
export interface EventRow extends EventContent {
  readonly appId: number;
  readonly typeId: number;
}

/** The app and type of an event by public ids, which are valid in every copy of the database. */
export interface EventSource {
  readonly appId: string;
  readonly typeId: string;
  readonly typeName: string;
  /**
   * The epoch of the database in which the type was looked up: internal ids are valid in that one only. The journal does
   * not keep it, because its events are looked up again.
   */
  readonly epoch?: number;
}

/** An event without internal ids, as the journal keeps it. */
export interface JournaledEvent extends EventContent {
  /** Events of one type share one object. */
  readonly source: EventSource;
}

/** One accepted event on its way into the table, or into the journal. */
export interface AcceptedEvent extends EventRow, JournaledEvent {}

/** Index of the version in a UUID. */
const VERSION_AT = 14;

/**
 * Whether the id of an event is made of a key (UUIDv8), so that the event may be stored already. Ids that the service assigns
 * are UUIDv7, and new.
 */
export function isKeyed({ id }: EventContent): boolean {
  return id.charAt(VERSION_AT) === '8';
}

/** The epoch in which events were looked up; NaN if they differ, undefined if epochs are not counted. */
export function epochOf(events: readonly JournaledEvent[]): number | undefined {
  const epoch = events[0]?.source.epoch;
  return events.every(({ source }) => source.epoch === epoch) ? epoch : Number.NaN;
}

/** The number of the UTC day of a time in milliseconds since 1970. */
export function dayOf(time: number): number {
  return Math.floor(time / DAY_MS);
}

/** The UTC days of events by their numbers, each once. */
export function daysOf(events: readonly EventContent[]): readonly number[] {
  return [...new Set(events.map(({ createdAt }) => dayOf(createdAt)))];
}

/** The midnight with which a day begins, in milliseconds since 1970. @param day its number, as {@link dayOf} */
export function startOfDay(day: number): number {
  return day * DAY_MS;
}

/** A day as an ISO 8601 date. @param day its number, as {@link dayOf} */
export function dateOf(day: number): string {
  return timestamp(startOfDay(day)).slice(0, 'YYYY-MM-DD'.length);
}

/** The UTC days of events as ISO 8601 dates, each once. */
export function datesOf(events: readonly EventContent[]): string[] {
  return daysOf(events).map(dateOf);
}

/** Characters of the payloads: about the bytes that the events take on the network. */
export function sizeOf(events: readonly EventContent[]): number {
  return events.reduce((sum, { payload }) => sum + payload.length, 0);
}

/** The numbers below a thousand, in three digits; and those below sixty, in two. */
const THREE_DIGITS = Array.from({ length: 1_000 }, (_, number) => String(number).padStart(3, '0'));
const TWO_DIGITS = THREE_DIGITS.slice(0, 60).map((text) => text.slice(1));

let lastTime = Number.NaN;
let lastText = '';
let lastDay = Number.NaN;
let lastDate = '';

/**
 * Milliseconds to ISO 8601 in UTC, as Date.toISOString. Neighboring events share their millisecond, and those of a batch
 * that is dated back their day, so the last of both is kept: a Date for each would cost four times as much.
 */
export function timestamp(time: number): string {
  if (time === lastTime) return lastText;
  const day = dayOf(time);
  if (day !== lastDay) {
    lastDate = new Date(day * DAY_MS).toISOString().slice(0, -'00:00:00.000Z'.length);
    lastDay = day;
  }
  const ms = time - day * DAY_MS;
  const hour = TWO_DIGITS[Math.floor(ms / HOUR_MS)];
  const minute = TWO_DIGITS[Math.floor(ms / MINUTE_MS) % 60];
  const second = TWO_DIGITS[Math.floor(ms / 1_000) % 60];
  lastText = `${lastDate}${hour}:${minute}:${second}.${THREE_DIGITS[ms % 1_000]}Z`;
  lastTime = time;
  return lastText;
}
