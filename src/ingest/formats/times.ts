/** Times as producers write them: RFC 3339, or Unix time in seconds, milliseconds, microseconds or nanoseconds. */
import { NOT_A_TIME, notThis, parseEventTime } from '../event-time.ts';

/** Unix times of up to so many digits are seconds (until the year 5138), then milliseconds, then microseconds. */
const SECONDS_DIGITS = 11;
const MILLISECONDS_DIGITS = 14;
const MICROSECONDS_DIGITS = 17;

/** Digits of nanoseconds until the year 2554. */
const MAX_DIGITS = 20;

const NUMBER = /^(\d+)(?:\.(\d+))?(?:[eE]\+?(\d{1,2}))?$/;

function notARecordTime(text: string): string {
  return notThis(
    'must be a time: RFC 3339, such as 2026-01-31T08:30:00.123Z, or Unix time in s, ms, µs or ns',
    text,
  );
}

/** The digits of a number, before and after its point: of a number with an exponent those that it stands for. */
function digitsOf(text: string): { readonly whole: string; readonly fraction: string } | null {
  const match = NUMBER.exec(text);
  if (match === null) return null;
  const [, whole = '', fraction = '', exponent = '0'] = match;
  const places = Number(exponent);
  return {
    whole: (whole + fraction.slice(0, places).padEnd(places, '0')).replace(/^0+(?=\d)/, ''),
    fraction: fraction.slice(places),
  };
}

/**
 * @param text of a JSON string or number
 * @returns milliseconds since 1970, fractions of them cut off; or the problem, worded to follow the field's name
 */
export function parseRecordTime(text: string): number | string {
  const number = digitsOf(text);
  if (number !== null) return unixTime(number.whole, number.fraction) ?? notARecordTime(text);
  const time = parseEventTime(text);
  return typeof time === 'string' && time.startsWith(NOT_A_TIME) ? notARecordTime(text) : time;
}

/** By its digits: a float of nanoseconds would be off by hundreds of them. */
function unixTime(digits: string, fraction: string): number | null {
  const { length } = digits;
  if (length > MAX_DIGITS) return null;
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

const MAX_UINT64 = 2n ** 64n - 1n;

/** The time of a uint64 of nanoseconds since 1970 as JSON has it, in milliseconds; null for what is none. */
export function parseNanoseconds(text: string): number | null {
  const number = digitsOf(text);
  if (number === null || number.whole.length > MAX_DIGITS || /[1-9]/.test(number.fraction)) return null;
  const { whole } = number;
  if (whole.length === MAX_DIGITS && BigInt(whole) > MAX_UINT64) return null;
  return Number(whole.slice(0, -NANOSECOND_DIGITS));
}

/** Decimal places of a millisecond in nanoseconds. */
const NANOSECOND_DIGITS = 6;

/** What is wrong with a text that {@link parseNanoseconds} does not know, worded to follow the field's name. */
export function nanosecondsProblem(text: string): string {
  return notThis('must be nanoseconds since 1970 (uint64)', text);
}

/** The time of a uint64 of nanoseconds since 1970, in milliseconds. */
export function millisecondsOf(nanoseconds: bigint): number {
  return Number(nanoseconds / 1_000_000n);
}
