/**
 * Parses ISO 8601 dates and times as bounds of an interval. Not by `Date.parse`: it accepts other formats that differ
 * between engines, reads a time without an offset as local time, and accepts 2026-02-30.
 *
 * Accepted: `2026-01-31`, `20260131`, and either followed by `T` (or `t`, or a space) and `08`, `08:30`, `08:30:15`,
 * `08:30:15.123` (or a comma, any number of digits; or without the colons), followed by nothing (UTC), `Z`, `±hh`,
 * `±hhmm` or `±hh:mm`. A `+` that was not percent-encoded arrives as a space; before an offset it is read as a plus sign.
 * `24:00:00` is the midnight at the end of the day; `23:59:60` UTC, a leap second, is the midnight that follows.
 * Not accepted: weeks, days of the year, dates without a day, years with other than four digits.
 */
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../base/time-units.ts';

const DATE = /^(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d))(?=$|[Tt ])/;
const TIME = /^(\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?|(\d\d)(?:(\d\d)(?:[.,](\d+))?)?)?/;
const OFFSET = /^(?:[Zz]|([+ \-\u2212])(\d\d)(?::?(\d\d))?)$/;

export const NOT_ISO = 'must be an ISO 8601 date or time, such as 2026-01-31 or 2026-01-31T08:30:00Z';
const NO_SUCH_DATE = 'is a date that does not exist';
const NO_SUCH_TIME = 'is a time that does not exist';

/**
 * Parses a bound of an interval that includes both ends, with the resolution of a millisecond.
 *
 * A date without a time is its first millisecond as a start and its last one as an end. Fractions of a millisecond are
 * rounded up in a start and down in an end: the events in the interval are the same, as their times are whole milliseconds.
 * @returns milliseconds since 1970 (negative before), or the problem, worded to follow the parameter's name
 */
export function parseBound(text: string, edge: 'start' | 'end'): number | string {
  const date = DATE.exec(text);
  if (date === null) return NOT_ISO;
  const midnight = utcMidnight(Number(date[1]), Number(date[2] ?? date[4]), Number(date[3] ?? date[5]));
  if (midnight === null) return NO_SUCH_DATE;
  const rest = text.slice(date[0].length);
  if (rest === '') return edge === 'start' ? midnight : midnight + DAY_MS - 1;
  return timeOfDay(midnight, rest.slice(1), edge);
}

/** Milliseconds since 1970 at the start of a day; null if there is no such day. */
function utcMidnight(year: number, month: number, day: number): number | null {
  // Not Date.UTC, which reads the years 0 to 99 as 1900 to 1999.
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  // A day that does not exist becomes one of another month.
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? date.getTime() : null;
}

function timeOfDay(midnight: number, text: string, edge: 'start' | 'end'): number | string {
  const time = TIME.exec(text);
  if (time === null) return NOT_ISO;
  const offset = offsetMs(text.slice(time[0].length));
  if (typeof offset === 'string') return offset;

  const hour = Number(time[1]);
  const minute = Number(time[2] ?? time[5] ?? 0);
  const second = Number(time[3] ?? time[6] ?? 0);
  const fraction = fractionMs(time[4] ?? time[7] ?? '', edge);
  const whole = midnight + hour * HOUR_MS + minute * MINUTE_MS + second * 1_000 - offset;
  if (hour > 24 || minute > 59 || second > 60) return NO_SUCH_TIME;
  if (hour === 24 && (minute > 0 || second > 0 || fraction > 0)) return NO_SUCH_TIME;
  if (second === 60 && whole % DAY_MS !== 0) return NO_SUCH_TIME;
  return whole + fraction;
}

/** Milliseconds by which local time is ahead of UTC, or the problem. No offset means UTC. */
function offsetMs(text: string): number | string {
  if (text === '') return 0;
  const offset = OFFSET.exec(text);
  if (offset === null) return NOT_ISO;
  const hours = Number(offset[2] ?? 0);
  const minutes = Number(offset[3] ?? 0);
  if (hours > 23 || minutes > 59) return 'has an offset from UTC that does not exist';
  const size = hours * HOUR_MS + minutes * MINUTE_MS;
  return offset[1] === '-' || offset[1] === '\u2212' ? -size : size;
}

/** A decimal fraction of a second in whole milliseconds: rounded up in a start, down in an end. */
function fractionMs(digits: string, edge: 'start' | 'end'): number {
  const whole = Number(digits.slice(0, 3).padEnd(3, '0'));
  return edge === 'start' && /[1-9]/.test(digits.slice(3)) ? whole + 1 : whole;
}
