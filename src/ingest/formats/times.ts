/** Times as producers write them: RFC 3339, or Unix time in seconds, milliseconds, microseconds or nanoseconds. */
import { NOT_A_TIME, parseEventTime } from '../event-time.ts';

/** Unix times of up to so many digits are seconds (until the year 5138), then milliseconds, then microseconds. */
const SECONDS_DIGITS = 11;
const MILLISECONDS_DIGITS = 14;
const MICROSECONDS_DIGITS = 17;

/** Digits of nanoseconds until the year 2554. */
const MAX_DIGITS = 20;

const UNIX = /^(\d+)(?:\.(\d+))?$/;
const EXPONENT = /^\d+(?:\.\d+)?[eE]\+?\d{1,2}$/;

export const NOT_A_RECORD_TIME =
  'must be a time: RFC 3339, such as 2026-01-31T08:30:00.123Z, or Unix time in s, ms, µs or ns';

/**
 * @param text of a JSON string or number
 * @returns milliseconds since 1970, fractions of them cut off; or the problem, worded to follow the field's name
 */
export function parseRecordTime(text: string): number | string {
  const unix = UNIX.exec(text);
  if (unix !== null) return unixTime(unix[1] ?? '', unix[2] ?? '');
  // Numbers of at most 10^20 are written without an exponent.
  if (EXPONENT.test(text)) return unixTime(String(Math.trunc(Math.min(Number(text), 1e20))), '');
  const time = parseEventTime(text);
  return time === NOT_A_TIME ? NOT_A_RECORD_TIME : time;
}

/** By its digits: a float of nanoseconds would be off by hundreds of them. */
function unixTime(sent: string, fraction: string): number | string {
  const digits = sent.replace(/^0+(?=\d)/, '');
  const { length } = digits;
  if (length > MAX_DIGITS) return NOT_A_RECORD_TIME;
  if (length <= SECONDS_DIGITS) return Number(digits) * 1_000 + Number(fraction.padEnd(3, '0').slice(0, 3));
  if (length <= MILLISECONDS_DIGITS) return Number(digits);
  return Number(digits.slice(0, length <= MICROSECONDS_DIGITS ? -3 : -6));
}

/**
 * The times of an event that says when it happened: not later than its reception, as clocks of senders may be ahead.
 * @param time as the sender wrote it; null where it has none
 */
export function cut(
  time: number | null,
  receivedAt: number,
): { readonly createdAt: number | null; readonly sentTime?: number } {
  return time === null || time <= receivedAt
    ? { createdAt: time }
    : { createdAt: receivedAt, sentTime: time };
}

/** The time of a uint64 of nanoseconds since 1970, in milliseconds. */
export function millisecondsOf(nanoseconds: bigint): number {
  return Number(nanoseconds / 1_000_000n);
}
