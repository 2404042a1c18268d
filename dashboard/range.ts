/** Time ranges as users choose them: relative to now, everything, or between two instants. */
import {
  DAY,
  isOver,
  MINUTE,
  parseRange,
  type Range,
  rangesOn,
  type Span,
  UNIT_MS,
  type Unit,
} from '../src/base/ranges.ts';
import { fromWall, toWall } from './time-zone.ts';

export * from '../src/base/ranges.ts';

export const { resolveRange, neighbor, comparedSpan } = rangesOn({ fromWall, toWall });

export const UNIT_NAMES: Record<Unit, string> = {
  m: 'minute',
  h: 'hour',
  d: 'day',
  w: 'week',
  mo: 'month',
  y: 'year',
};

/** Whether a range ends now, and so can be live. */
export function isOpen(range: Range): boolean {
  return range.kind === 'calendar' ? !isOver(range.period) : range.kind !== 'between';
}

/** What the range picker offers first. */
export const PRESETS = ['15m', '1h', '24h', '7d', '30d', '90d', '1y', 'all'];

/** Twice as much time around the same middle, and nothing of the future. */
export function wider(span: Span & { readonly from: number }, now: number): Range {
  const half = Math.round((span.to - span.from) / 2 / MINUTE) * MINUTE || MINUTE;
  const present = Math.floor(now / MINUTE) * MINUTE + MINUTE;
  const to = Math.min(span.to + half, Math.max(present, span.to));
  return { kind: 'between', from: span.from - half - (span.to + half - to), to };
}

/** The relative range closest in length to a span: the live button switches to it from a range in the past. */
export function relativeOf({ from, to }: Span): Range {
  const length = from === null ? DAY : to - from;
  const preset = PRESETS.map(parseRange).find(
    (range) => range?.kind === 'last' && range.amount * UNIT_MS[range.unit] >= length * 0.98,
  );
  return preset ?? { kind: 'last', amount: 1, unit: 'y' };
}
