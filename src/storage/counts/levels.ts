/** The levels of the counts, and the units of time that storage computes with. */
import { DAY_MS, HOUR_MS, MINUTE_MS, QUARTER_HOUR_MS } from '../../base/time-units.ts';
import type { Fragment, Transaction } from '../database/connect.ts';

export { DAY_MS, HOUR_MS, MINUTE_MS, QUARTER_HOUR_MS };

/** One level of the counts. Its buckets are aligned to 1970, UTC. */
export interface Level {
  /** Also part of the names of relations: `minute_counts`, `events_per_minute`. */
  readonly name: 'minute' | 'quarter_hour' | 'hour' | 'day';
  /** Width of a bucket in milliseconds. */
  readonly ms: number;
  /** The relation (app_id, type_id, bucket, count) that readers use on every engine. */
  readonly view: string;
}

export const MINUTES: Level = { name: 'minute', ms: MINUTE_MS, view: 'events_per_minute' };
export const QUARTER_HOURS: Level = {
  name: 'quarter_hour',
  ms: QUARTER_HOUR_MS,
  view: 'events_per_quarter_hour',
};
export const HOURS: Level = { name: 'hour', ms: HOUR_MS, view: 'events_per_hour' };
export const DAYS: Level = { name: 'day', ms: DAY_MS, view: 'events_per_day' };

/** Finest first: each bucket consists of whole buckets of the level before. The index is `stale_buckets.level`. */
export const LEVELS = [MINUTES, QUARTER_HOURS, HOURS, DAYS] as const;

/** The levels that stay when retention removes rows and minutes. */
export const COARSE_LEVELS = [QUARTER_HOURS, HOURS, DAYS] as const;

/** The type under which the counts hold all types of an app together. */
export const ALL_TYPES = 0;

/** What holds the counts of a level: a table, or a continuous aggregate. */
export function countTable(level: Level['name']): string {
  return `${level}_counts`;
}

/** The start of the bucket that a time (an expression) lies in. */
export function startIn(tx: Transaction, level: Level['name'] | 'month', time: Fragment): Fragment {
  const ms = LEVELS.find(({ name }) => name === level)?.ms;
  return ms === undefined
    ? tx`date_trunc('month', ${time}, 'UTC')`
    : tx`date_bin(${`${ms} ms`}::interval, ${time}, 'epoch')`;
}

/** The next finer level; null for minutes, which consist of rows. */
export function finerThan(level: Level): Level | null {
  return LEVELS[LEVELS.indexOf(level) - 1] ?? null;
}

/** The next coarser level; null for days. */
export function coarserThan(level: Level): Level | null {
  return LEVELS[LEVELS.indexOf(level) + 1] ?? null;
}

/** The coarsest level of which `fits` is true; minutes where it is true of none. */
export function coarsestLevel(fits: (level: Level) => boolean): Level {
  return LEVELS.findLast(fits) ?? MINUTES;
}

/** The largest multiple of `unit` that is at most `ms`. */
export function floorTo(ms: number, unit: number): number {
  return Math.floor(ms / unit) * unit;
}

/** The smallest multiple of `unit` that is at least `ms`. */
export function ceilTo(ms: number, unit: number): number {
  return Math.ceil(ms / unit) * unit;
}
