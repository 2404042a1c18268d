/** The time of an event that its sender dates back: what is understood, and between which bounds it may lie. */
import { parseBound } from '../read/iso-date.ts';

const DAY_MS = 86_400_000;

export const NOT_A_TIME = 'must be an ISO 8601 date with a time, such as 2026-01-31T08:30:00.123Z';

/** How JSON.stringify writes a Date. */
const USUAL = '2026-01-31T08:30:00.123Z';

/**
 * A moment, not a day. Digits finer than a millisecond are cut off; a time without an offset is UTC.
 * @returns milliseconds since 1970, or what is wrong, to follow the field's name in a sentence
 */
export function parseEventTime(text: string): number | string {
  const usual = Date.parse(text);
  // What Date.parse takes beside ISO, or for another time, does not come out of it as it went in.
  if (
    text.length === USUAL.length &&
    !Number.isNaN(usual) &&
    new Date(usual).toISOString() === text &&
    usual >= 0
  )
    return usual;
  if (!/[Tt ]/.test(text)) return NOT_A_TIME;
  const time = parseBound(text, 'end');
  if (typeof time === 'number' && time < 0) return 'is before 1970';
  return time;
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
