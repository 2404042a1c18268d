/** The time of an event that its sender dates back: what is understood, and between which bounds it may lie. */
import { parseBound } from '../read/iso-date.ts';

const DAY_MS = 86_400_000;

export const NOT_A_TIME = 'must be an ISO 8601 date with a time, such as 2026-01-31T08:30:00.123Z';

const ZERO = 0x30;
/** Where the parts of a time that JSON.stringify wrote end, and what stands there. */
const SEPARATORS = [
  [4, '-'],
  [7, '-'],
  [10, 'T'],
  [13, ':'],
  [16, ':'],
  [19, '.'],
  [23, 'Z'],
] as const;
const USUAL_LENGTH = 24;
/** Of each month, the first at 1. The 29th of February is not usual. */
const DAYS = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * A moment, not a day. Digits finer than a millisecond are cut off; a time without an offset is UTC.
 * @returns milliseconds since 1970, or what is wrong, to follow the field's name in a sentence
 */
export function parseEventTime(text: string): number | string {
  const usual = usualTime(text);
  if (usual !== null) return usual;
  if (!/[Tt ]/.test(text)) return NOT_A_TIME;
  const time = parseBound(text, 'end');
  if (typeof time === 'number' && time < 0) return 'is before 1970';
  return time;
}

/** Reads what JSON.stringify makes of a Date, at a fifth of the cost; null for anything else, and for what is wrong. */
function usualTime(text: string): number | null {
  if (text.length !== USUAL_LENGTH) return null;
  for (const [at, separator] of SEPARATORS) if (text[at] !== separator) return null;
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

/** The number that digits make; -1 where there is anything else. */
function digits(text: string, start: number, end: number): number {
  let number = 0;
  for (let at = start; at < end; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    number = 10 * number + digit;
  }
  return number;
}

export const IN_THE_FUTURE = 'lies in the future';

/** What is wrong with a time before the boundary (milliseconds since 1970) up to which nothing can be read. */
export function beforeRetention(boundary: number): string {
  const day = new Date(boundary).toISOString().slice(0, 10);
  return `is before ${day}, up to which retention has removed events`;
}

/** The start of the first day that RETENTION_DAYS keeps (0: all), in milliseconds since 1970. */
export function keptFrom(retentionDays: number, now: number): number {
  return retentionDays === 0 ? 0 : Math.floor((now - retentionDays * DAY_MS) / DAY_MS) * DAY_MS;
}
