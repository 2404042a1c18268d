/** Time ranges as users choose them, in addresses and in shares: relative to now, everything, or between two instants. */
import { DAY_MS as DAY, HOUR_MS as HOUR, MINUTE_MS as MINUTE } from './time-units.ts';

export type Unit = 'm' | 'h' | 'd' | 'w' | 'mo' | 'y';

/** Units of the zone's calendar; weeks begin on Monday. */
const CALENDAR_UNITS = ['week', 'month', 'quarter', 'year'] as const;
type CalendarUnit = (typeof CALENDAR_UNITS)[number];

/** The current one so far, or the one before it as a whole. */
export type Period = 'today' | 'yesterday' | CalendarUnit | `last${CalendarUnit}`;

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
export const PERIODS: readonly Period[] = [
  ...(['today', 'yesterday'] as const),
  ...CALENDAR_UNITS,
  ...CALENDAR_UNITS.map((unit) => `last${unit}` as const),
];

/** Whether a period is not the current one. */
export const isOver = (period: Period): boolean => period === 'yesterday' || period.startsWith('last');

/** The day so many months later on a wall clock, or the last of that month where it has no such day. */
export function addMonths(wall: number, months: number): number {
  const date = new Date(wall);
  const day = date.getUTCDate();
  date.setUTCDate(1);
  date.setUTCMonth(date.getUTCMonth() + months);
  const last = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
  return date.setUTCDate(Math.min(day, last));
}

const MONTHS = { month: 1, quarter: 3, year: 12 } as const;

/** Where the period begins that has a day, on a wall clock. @param before how many periods earlier */
function startOf(unit: CalendarUnit, day: number, before = 0): number {
  const date = new Date(day);
  // Sunday is day 0.
  if (unit === 'week') return day - ((date.getUTCDay() + 6) % 7) * DAY - before * 7 * DAY;
  const months = MONTHS[unit];
  return Date.UTC(date.getUTCFullYear(), (Math.floor(date.getUTCMonth() / months) - before) * months, 1);
}

/** Where a period ends that begins there, on a wall clock. */
function endOf(period: Period, wall: number): number {
  if (period === 'today' || period === 'yesterday') return wall + DAY;
  const unit = unitOf(period);
  return unit === 'week' ? wall + 7 * DAY : addMonths(wall, MONTHS[unit]);
}

/** How many whole months there are between two wall clocks; 0: other than whole ones. */
function monthsOf(from: number, to: number): number {
  const [first, last] = [new Date(from), new Date(to)];
  const isWhole = [first, last].every((date) => date.getUTCDate() === 1 && date.getTime() % DAY === 0);
  if (!isWhole) return 0;
  return 12 * (last.getUTCFullYear() - first.getUTCFullYear()) + last.getUTCMonth() - first.getUTCMonth();
}

/** The end of the minute that is under way. */
const wholeMinute = (now: number): number => Math.floor(now / MINUTE) * MINUTE + MINUTE;

const unitOf = (period: Exclude<Period, 'today' | 'yesterday'>): CalendarUnit =>
  period.replace('last', '') as CalendarUnit; // What follows is a unit.

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

/** Why an interval of no length has no events, and how its day is asked for. */
export function endsBefore(from: number, to: number, name = 'to='): string {
  if (from !== to) return '';
  const next = new Date(to + DAY).toISOString();
  const day =
    to % DAY === 0
      ? `, and a date is its midnight: for the whole day choose ${name}${next.slice(0, 10)}`
      : '';
  return `: ${name.replace('=', '').trim()} is exclusive${day}`;
}

/** What a range is compared with. */
export type Compare = 'previous' | 'week' | 'month' | 'year' | 'segment' | 'none';

/** Between two instants. */
type Bounds = Extract<Range, { kind: 'between' }>;

/** Wall clocks of time zones: what a clock shows, as the milliseconds at which UTC's clock shows the same. */
export interface WallClock {
  readonly toWall: (instant: number, zone: string) => number;
  readonly fromWall: (wall: number, zone: string) => number;
}

/** What ranges mean on the wall clocks of zones. */
export interface Ranges {
  readonly resolveRange: (range: Range, now: number, zone: string) => Span;
  readonly neighbor: (
    range: Range,
    span: Span & { readonly from: number },
    direction: -1 | 1,
    zone: string,
  ) => Bounds;
  readonly comparedSpan: (
    compare: Compare,
    range: Range,
    span: Span,
    now: number,
    zone: string,
  ) => Span | null;
}

export function rangesOn(clock: WallClock): Ranges {
  /**
   * The instants that a range means. A relative one ends with the current minute and is exactly as long as its name says: its
   * first bar may be a part, its numbers are not of more time than they say.
   */
  function resolveRange(range: Range, now: number, zone: string): Span {
    if (range.kind === 'between') return { from: range.from, to: range.to };
    const to = wholeMinute(now);
    if (range.kind === 'all') return { from: null, to };
    if (range.kind === 'since') return { from: range.from, to: Math.max(to, range.from + MINUTE) };
    if (range.kind === 'calendar') return resolvePeriod(range.period, now, to, zone);
    const length = range.amount * UNIT_MS[range.unit];
    // Hours and minutes are elapsed time; days and longer follow the calendar across clock changes.
    if (range.unit === 'm' || range.unit === 'h') {
      return { from: to - length, to };
    }
    const wall = clock.toWall(to, zone);
    const months = { mo: 1, y: 12, w: 0, d: 0 }[range.unit] * range.amount;
    return { from: clock.fromWall(months > 0 ? addMonths(wall, -months) : wall - length, zone), to };
  }

  function resolvePeriod(period: Period, now: number, to: number, zone: string): Span {
    const today = Math.floor(clock.toWall(now, zone) / DAY) * DAY;
    const at = (wall: number): number => clock.fromWall(wall, zone);
    if (period === 'today') return { from: at(today), to };
    if (period === 'yesterday') return { from: at(today - DAY), to: at(today) };
    const unit = unitOf(period);
    const from = startOf(unit, today);
    return isOver(period) ? { from: at(startOf(unit, today, 1)), to: at(from) } : { from: at(from), to };
  }

  /**
   * The period of the same length before (-1) or after (+1). Whole months move by months, other spans of a day and more by the
   * zone's calendar: a week from midnight to midnight stays one when the clocks change. Of a current period, which has
   * not ended, it is the whole one before.
   */
  function neighbor(
    range: Range,
    { from, to }: Span & { readonly from: number },
    direction: -1 | 1,
    zone: string,
  ): Bounds {
    const wallFrom = clock.toWall(from, zone);
    const wallTo = range.kind === 'calendar' ? endOf(range.period, wallFrom) : clock.toWall(to, zone);
    const length = wallTo - wallFrom;
    const months = monthsOf(wallFrom, wallTo);
    const moved = (at: number, wall: number): number => {
      if (length < DAY) return at + direction * (to - from);
      return clock.fromWall(
        months > 0 ? addMonths(wall, direction * months) : wall + direction * length,
        zone,
      );
    };
    return direction < 0
      ? { kind: 'between', from: moved(from, wallFrom), to: from }
      : { kind: 'between', from: to, to: moved(to, wallTo) };
  }

  /**
   * The interval before a range that it is compared with. A relative range moves by its own length, a day by a day: so both
   * begin at the same time of the clock, and their buckets match. Of what has not ended, as much of the one before
   * is compared, at most all of it.
   */
  function comparedSpan(
    compare: Compare,
    range: Range,
    { from, to }: Span,
    now: number,
    zone: string,
  ): Span | null {
    if (compare === 'none' || compare === 'segment' || from === null) return null;
    const [wallFrom, wallTo] = [clock.toWall(from, zone), clock.toWall(to, zone)];
    const isUnderWay = from < now && now < to;
    const elapsed = isUnderWay ? clock.toWall(wholeMinute(now), zone) - wallFrom : Number.POSITIVE_INFINITY;
    const spanOf = (start: number, end: number): Span => ({
      from: clock.fromWall(start, zone),
      to: clock.fromWall(Math.min(end, start + elapsed), zone),
    });
    const byDays = (days: number): Span => spanOf(wallFrom - days * DAY, wallTo - days * DAY);
    if (compare === 'week') return byDays(7 * Math.ceil((to - from) / (7 * DAY) - 0.02));
    if (compare !== 'previous') {
      const months = compare === 'month' ? -1 : -12;
      return spanOf(addMonths(wallFrom, months), addMonths(wallTo, months));
    }
    if (range.kind === 'calendar') {
      if (range.period === 'today' || range.period === 'yesterday') return byDays(1);
      const unit = unitOf(range.period);
      if (unit === 'week') return byDays(7);
      const start = startOf(unit, wallFrom, 1);
      return spanOf(start, isOver(range.period) ? wallFrom : Math.min(wallFrom, start + wallTo - wallFrom));
    }
    if (range.kind === 'last') {
      const { amount, unit } = range;
      // Months differ in length: as much time is compared.
      if (unit === 'mo' || unit === 'y') return spanOf(wallFrom - (wallTo - wallFrom), wallFrom);
      const length = amount * UNIT_MS[unit];
      if (unit === 'm' || unit === 'h') return { from: from - length, to: to - length };
      return byDays(length / DAY);
    }
    const before = neighbor(range, { from, to }, -1, zone);
    return isUnderWay
      ? spanOf(clock.toWall(before.from, zone), clock.toWall(before.to, zone))
      : { from: before.from, to: before.to };
  }

  return { resolveRange, neighbor, comparedSpan };
}
