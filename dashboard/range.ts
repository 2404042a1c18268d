/** Time ranges as users choose them: relative to now, everything, or between two instants. */
import { fromWall, toWall } from './time-zone.ts';

export type Unit = 'm' | 'h' | 'd' | 'w' | 'mo' | 'y';

export type Range =
  | { readonly kind: 'last'; readonly amount: number; readonly unit: Unit }
  | { readonly kind: 'all' }
  /** Milliseconds since the Unix epoch; the end is exclusive. */
  | { readonly kind: 'between'; readonly from: number; readonly to: number };

/** A range as instants; `from` is null for "since the first event". */
export interface Span {
  readonly from: number | null;
  readonly to: number;
}

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

const UNIT_MS: Record<Unit, number> = {
  m: MINUTE,
  h: HOUR,
  d: DAY,
  w: 7 * DAY,
  mo: 30 * DAY,
  y: 365 * DAY,
};
export const UNIT_NAMES: Record<Unit, string> = {
  m: 'minute',
  h: 'hour',
  d: 'day',
  w: 'week',
  mo: 'month',
  y: 'year',
};

/** What the range picker offers first. */
export const PRESETS = ['15m', '1h', '24h', '7d', '30d', '90d', '1y', 'all'];

/** Beyond it, dates would leave what the server takes. */
const LONGEST_MS = 200 * UNIT_MS.y;

/** `24h`, `all` or `<ISO>~<ISO>` to a range; null for anything else. */
export function parseRange(text: string): Range | null {
  if (text === 'all') return { kind: 'all' };
  const last = /^(\d{1,6})(m|h|d|w|mo|y)$/.exec(text);
  if (last !== null) {
    const amount = Number(last[1]);
    const unit = last[2] as Unit; // The expression lists exactly the units.
    return amount > 0 && amount * UNIT_MS[unit] <= LONGEST_MS ? { kind: 'last', amount, unit } : null;
  }
  const [from = NaN, to = NaN] = text.split('~').map((part) => Date.parse(part));
  return from < to ? { kind: 'between', from, to } : null;
}

/** The opposite of {@link parseRange}. */
export function rangeText(range: Range): string {
  if (range.kind === 'all') return 'all';
  if (range.kind === 'last') return `${range.amount}${range.unit}`;
  return `${isoText(range.from)}~${isoText(range.to)}`;
}

/** ISO 8601 in UTC, without a fraction where there is none. */
export function isoText(instant: number): string {
  return new Date(instant).toISOString().replace('.000Z', 'Z');
}

/**
 * The instants that a range means. A relative one ends with the current minute and begins at a round time of the
 * zone's clock, so that its first bar is a whole one.
 */
export function resolveRange(range: Range, now: number, zone: string): Span {
  if (range.kind === 'between') return { from: range.from, to: range.to };
  const to = Math.floor(now / MINUTE) * MINUTE + MINUTE;
  if (range.kind === 'all') return { from: null, to };
  const length = range.amount * UNIT_MS[range.unit];
  // Hours and minutes are elapsed time; days and longer follow the calendar across clock changes.
  if (range.unit === 'm' || range.unit === 'h') {
    return { from: floorWall(to - length, length <= 6 * HOUR ? MINUTE : 15 * MINUTE, zone), to };
  }
  const wall = new Date(toWall(to, zone));
  if (range.unit === 'mo') wall.setUTCMonth(wall.getUTCMonth() - range.amount);
  else if (range.unit === 'y') wall.setUTCFullYear(wall.getUTCFullYear() - range.amount);
  else wall.setTime(wall.getTime() - length);
  const step = length <= 2 * DAY ? 15 * MINUTE : length <= 14 * DAY ? HOUR : DAY;
  return { from: floorWall(fromWall(wall.getTime(), zone), step, zone), to };
}

/** The last round time of the zone's clock at or before an instant; the step divides a day. */
function floorWall(instant: number, step: number, zone: string): number {
  const wall = toWall(instant, zone);
  const past = ((wall % step) + step) % step;
  // Within the hours around a change of clocks the same distance may name another hour: elapsed time is right there.
  return step < DAY ? instant - past : fromWall(wall - past, zone);
}

/**
 * The period of the same length before (-1) or after (+1). Spans of a day and more move by the zone's calendar: a week
 * from midnight to midnight stays one when the clocks change.
 */
export function neighbor(span: Span & { readonly from: number }, direction: -1 | 1, zone: string): Range {
  const { from, to } = span;
  if (to - from < DAY) {
    const length = to - from;
    return { kind: 'between', from: from + direction * length, to: to + direction * length };
  }
  const [wallFrom, wallTo] = [toWall(from, zone), toWall(to, zone)];
  const length = wallTo - wallFrom;
  return direction < 0
    ? { kind: 'between', from: fromWall(wallFrom - length, zone), to: from }
    : { kind: 'between', from: to, to: fromWall(wallTo + length, zone) };
}

/** Twice as much time around the same middle. */
export function wider(span: Span & { readonly from: number }): Range {
  const half = Math.round((span.to - span.from) / 2 / MINUTE) * MINUTE || MINUTE;
  return { kind: 'between', from: span.from - half, to: span.to + half };
}
