/** Time ranges as users choose them, in addresses and in shares: relative to now, everything, or between two instants. */
import { DAY_MS as DAY, HOUR_MS as HOUR, MINUTE_MS as MINUTE } from './time-units.ts';

export type Unit = 'm' | 'h' | 'd' | 'w' | 'mo' | 'y';

/** Days and weeks of the zone's calendar; weeks begin on Monday. */
export type Period = 'today' | 'yesterday' | 'week';

export type Range =
  | { readonly kind: 'last'; readonly amount: number; readonly unit: Unit }
  | { readonly kind: 'all' }
  | { readonly kind: 'calendar'; readonly period: Period }
  /** From an instant to now. */
  | { readonly kind: 'since'; readonly from: number }
  /** Milliseconds since the Unix epoch; the end is exclusive. */
  | { readonly kind: 'between'; readonly from: number; readonly to: number };

/** A range as instants; `from` is null for "since the first event". */
export interface Span {
  readonly from: number | null;
  readonly to: number;
}

export { DAY, HOUR, MINUTE };

export const UNIT_MS: Record<Unit, number> = {
  m: MINUTE,
  h: HOUR,
  d: DAY,
  w: 7 * DAY,
  mo: 30 * DAY,
  y: 365 * DAY,
};
export const PERIODS: readonly Period[] = ['today', 'yesterday', 'week'];

/** Larger spans would give dates that the server refuses. */
const LONGEST_MS = 200 * UNIT_MS.y;

/** `24h`, `all`, `today`, `<ISO>~` or `<ISO>~<ISO>` to a range; null for anything else. */
export function parseRange(text: string): Range | null {
  if (text === 'all') return { kind: 'all' };
  const period = PERIODS.find((known) => known === text);
  if (period !== undefined) return { kind: 'calendar', period };
  const last = /^(\d{1,6})(m|h|d|w|mo|y)$/.exec(text);
  if (last !== null) {
    const amount = Number(last[1]);
    const unit = last[2] as Unit; // The expression lists exactly the units.
    return amount > 0 && amount * UNIT_MS[unit] <= LONGEST_MS ? { kind: 'last', amount, unit } : null;
  }
  if (text.endsWith('~')) {
    const from = Date.parse(text.slice(0, -1));
    return Number.isNaN(from) ? null : { kind: 'since', from };
  }
  const [from = NaN, to = NaN] = text.split('~').map((part) => Date.parse(part));
  return from < to ? { kind: 'between', from, to } : null;
}

/** The opposite of {@link parseRange}. */
export function rangeText(range: Range): string {
  if (range.kind === 'all') return 'all';
  if (range.kind === 'calendar') return range.period;
  if (range.kind === 'last') return `${range.amount}${range.unit}`;
  return `${isoText(range.from)}~${range.kind === 'since' ? '' : isoText(range.to)}`;
}

/** ISO 8601 in UTC, without a fraction where there is none. */
export function isoText(instant: number): string {
  return new Date(instant).toISOString().replace('.000Z', 'Z');
}

/** What a range is compared with. */
export type Compare = 'previous' | 'week' | 'segment' | 'none';

/** Wall clocks of time zones: what a clock shows, as the milliseconds at which UTC's clock shows the same. */
export interface WallClock {
  readonly toWall: (instant: number, zone: string) => number;
  readonly fromWall: (wall: number, zone: string) => number;
}

/** What ranges mean on the wall clocks of zones. */
export interface Ranges {
  readonly resolveRange: (range: Range, now: number, zone: string) => Span;
  readonly neighbor: (span: Span & { readonly from: number }, direction: -1 | 1, zone: string) => Range;
  readonly comparedSpan: (compare: Compare, range: Range, span: Span, zone: string) => Span | null;
}

export function rangesOn(clock: WallClock): Ranges {
  /**
   * The instants that a range means. A relative one ends with the current minute and is exactly as long as its name says: its
   * first bar may be a part, its numbers are not of more time than they say.
   */
  function resolveRange(range: Range, now: number, zone: string): Span {
    if (range.kind === 'between') return { from: range.from, to: range.to };
    const to = Math.floor(now / MINUTE) * MINUTE + MINUTE;
    if (range.kind === 'all') return { from: null, to };
    if (range.kind === 'since') return { from: range.from, to: Math.max(to, range.from + MINUTE) };
    if (range.kind === 'calendar') return resolvePeriod(range.period, now, to, zone);
    const length = range.amount * UNIT_MS[range.unit];
    // Hours and minutes are elapsed time; days and longer follow the calendar across clock changes.
    if (range.unit === 'm' || range.unit === 'h') {
      return { from: to - length, to };
    }
    const wall = new Date(clock.toWall(to, zone));
    if (range.unit === 'mo') wall.setUTCMonth(wall.getUTCMonth() - range.amount);
    else if (range.unit === 'y') wall.setUTCFullYear(wall.getUTCFullYear() - range.amount);
    else wall.setTime(wall.getTime() - length);
    return { from: clock.fromWall(wall.getTime(), zone), to };
  }

  function resolvePeriod(period: Period, now: number, to: number, zone: string): Span {
    const today = Math.floor(clock.toWall(now, zone) / DAY) * DAY;
    const from = (days: number): number => clock.fromWall(today - days * DAY, zone);
    if (period === 'today') return { from: from(0), to };
    if (period === 'yesterday') return { from: from(1), to: from(0) };
    // Sunday is day 0.
    return { from: from((new Date(today).getUTCDay() + 6) % 7), to };
  }

  /**
   * The period of the same length before (-1) or after (+1). Spans of a day and more move by the zone's calendar: a week
   * from midnight to midnight stays one when the clocks change.
   */
  function neighbor(span: Span & { readonly from: number }, direction: -1 | 1, zone: string): Range {
    const { from, to } = span;
    if (to - from < DAY) {
      const length = to - from;
      return { kind: 'between', from: from + direction * length, to: to + direction * length };
    }
    const [wallFrom, wallTo] = [clock.toWall(from, zone), clock.toWall(to, zone)];
    const length = wallTo - wallFrom;
    return direction < 0
      ? { kind: 'between', from: clock.fromWall(wallFrom - length, zone), to: from }
      : { kind: 'between', from: to, to: clock.fromWall(wallTo + length, zone) };
  }

  /**
   * The interval before a range that it is compared with. A relative range moves by its own length, a day by a day: so both
   * begin at the same time of the clock, and their buckets match.
   */
  function comparedSpan(compare: Compare, range: Range, { from, to }: Span, zone: string): Span | null {
    if (compare === 'none' || compare === 'segment' || from === null) return null;
    const moved = (move: (wall: Date) => void): Span => {
      const [start, end] = [from, to].map((instant) => {
        const wall = new Date(clock.toWall(instant, zone));
        move(wall);
        return clock.fromWall(wall.getTime(), zone);
      });
      return { from: start ?? from, to: end ?? to };
    };
    const byDays = (days: number): Span => moved((wall) => wall.setUTCDate(wall.getUTCDate() - days));
    if (compare === 'week') return byDays(7 * Math.ceil((to - from) / (7 * DAY) - 0.02));
    if (range.kind === 'calendar') return byDays(range.period === 'week' ? 7 : 1);
    if (range.kind === 'last') {
      const { amount, unit } = range;
      if (unit === 'mo') return moved((wall) => wall.setUTCMonth(wall.getUTCMonth() - amount));
      if (unit === 'y') return moved((wall) => wall.setUTCFullYear(wall.getUTCFullYear() - amount));
      const length = amount * UNIT_MS[unit];
      if (unit === 'm' || unit === 'h') return { from: from - length, to: to - length };
      return byDays(length / DAY);
    }
    const before = neighbor({ from, to }, -1, zone);
    return before.kind === 'between' ? { from: before.from, to: before.to } : null;
  }

  return { resolveRange, neighbor, comparedSpan };
}
