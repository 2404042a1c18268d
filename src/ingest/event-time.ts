/** Parses and validates `createdAt`, the time that a producer gives an event. */

import { DAY_MS, HOUR_MS, MINUTE_MS, utcDay } from '../base/time-units.ts';
import { invalidField, Rejection } from '../errors.ts';
import { NOT_ISO, parseBound } from '../read/iso-date.ts';

export const NOT_A_TIME = 'must be an ISO 8601 date with a time, such as 2026-01-31T08:30:00.123Z';

const ZERO = 0x30;
const HYPHEN = 0x2d;
const POINT = 0x2e;
const COLON = 0x3a;
const LETTER_T = 0x54;
const LETTER_Z = 0x5a;
const JSON_DATE_LENGTH = 24;
/** Days of each month, from index 1. The 29th of February takes the slow path. */
const DAYS = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Parses a date with a time. Fractions of a millisecond are truncated; a time without an offset is UTC.
 * @returns milliseconds since 1970, or the problem, worded to follow the field's name
 */
export function parseEventTime(text: string): number | string {
  const fast = parseJsonDate(text);
  if (fast !== null) return fast;
  if (!/[Tt ]/.test(text)) return notThis(NOT_A_TIME, text);
  const time = parseBound(text, 'end');
  if (time === NOT_ISO) return notThis(NOT_A_TIME, text);
  if (typeof time === 'number' && time < 0) return 'is before 1970';
  return time;
}

/** Characters of a wrong value that a message quotes. */
const MAX_TOLD = 40;

/** The problem of a value, which it quotes. @param rule what the value must be, worded to follow the field's name */
export function notThis(rule: string, value: string): string {
  const told = value.length > MAX_TOLD ? `${value.slice(0, MAX_TOLD)}…` : value;
  return `${rule}, not ${JSON.stringify(told)}`;
}

/** Fast path for the format of Date.toJSON; null for other formats and for invalid dates. */
function parseJsonDate(text: string): number | null {
  if (text.length !== JSON_DATE_LENGTH) return null;
  if (text.charCodeAt(4) !== HYPHEN || text.charCodeAt(7) !== HYPHEN || text.charCodeAt(10) !== LETTER_T)
    return null;
  if (text.charCodeAt(13) !== COLON || text.charCodeAt(16) !== COLON) return null;
  if (text.charCodeAt(19) !== POINT || text.charCodeAt(23) !== LETTER_Z) return null;
  const year = digits(text, 0, 4);
  const month = digits(text, 5, 7);
  const day = digits(text, 8, 10);
  const hour = digits(text, 11, 13);
  const minute = digits(text, 14, 16);
  const second = digits(text, 17, 19);
  const millisecond = digits(text, 20, 23);
  if (!(year >= 1970 && day >= 1 && day <= (DAYS[month] ?? 0))) return null;
  if (!(hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second < 60)) return null;
  return millisecond >= 0 ? Date.UTC(year, month - 1, day, hour, minute, second, millisecond) : null;
}

/** The number in decimal digits; -1 if there is another character. */
function digits(text: string, start: number, end: number): number {
  let number = 0;
  for (let at = start; at < end; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    number = 10 * number + digit;
  }
  return number;
}

export const IN_THE_FUTURE = 'is in the future';

/**
 * Checks the time that a producer gives an event. The refusal of a time in the future says what this service's clock shows and by how
 * much the event is ahead of it, so that a producer whose clock is wrong can correct its times.
 * @param boundary of retention; all in milliseconds since 1970
 * @returns null for a time that an event may have
 */
export function refusalOfTime(createdAt: number, now: number, boundary: number): Rejection | null {
  if (createdAt > now) {
    const aheadMs = createdAt - now;
    const details = `The field "createdAt" ${IN_THE_FUTURE}: it is ${amountOf(aheadMs)} ahead of the clock of the service.`;
    return new Rejection('eventInFuture', details, {
      param: 'createdAt',
      fields: { serverTime: new Date(now).toISOString(), aheadMs },
    });
  }
  if (createdAt >= boundary) return null;
  return invalidField('createdAt', beforeRetention(boundary));
}

/** A time span as a reader takes it in at once: 1 ms, 5 s, 12 minutes, 2920 days. @param ms milliseconds, at least 1 */
function amountOf(ms: number): string {
  if (ms < 1_000) return `${ms} ms`;
  if (ms < 2 * MINUTE_MS) return `${Math.round(ms / 1_000)} s`;
  if (ms < 2 * HOUR_MS) return `${Math.round(ms / MINUTE_MS)} minutes`;
  return ms < 2 * DAY_MS ? `${Math.round(ms / HOUR_MS)} hours` : `${Math.round(ms / DAY_MS)} days`;
}

/** The problem of a time before the retention boundary (milliseconds since 1970). */
export function beforeRetention(boundary: number): string {
  return `is before ${utcDay(boundary)}, the retention boundary`;
}

/** The retention boundary of RETENTION_DAYS (0: 1970): the start of the first day that is kept, in milliseconds since 1970. */
export function boundaryOf(retentionDays: number, now: number): number {
  return retentionDays === 0 ? 0 : Math.floor((now - retentionDays * DAY_MS) / DAY_MS) * DAY_MS;
}
