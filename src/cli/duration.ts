/** Values of options and arguments of the command line. */
import { InvalidArgumentError } from 'commander';
import { endsBefore } from '../base/ranges.ts';
import { WrongInput } from '../errors.ts';
import { parseBound } from '../read/iso-date.ts';

const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };

/**
 * `90m`, `12h`, `30d`, `2w` to seconds.
 * @throws InvalidArgumentError, which commander puts into its line about the option
 */
export function parseDuration(text: string): number {
  const [, count, unit = ''] = /^(\d{1,9})([smhdw])$/.exec(text) ?? [];
  const seconds = Number(count) * (SECONDS[unit] ?? Number.NaN);
  if (seconds > 0) return seconds;
  throw new InvalidArgumentError('Write a number and a unit: 90m, 12h, 30d or 2w.');
}

/**
 * `24`, `0`, `0.5` to hours.
 * @throws InvalidArgumentError
 */
export function parseHours(text: string): number {
  if (/^\d{1,9}(\.\d{1,9})?$/.test(text)) return Number(text);
  throw new InvalidArgumentError('Write a number of hours, such as 24 or 0.');
}

/**
 * A whole number within bounds.
 * @throws InvalidArgumentError
 */
export function parseCount(least: number, most: number): (text: string) => number {
  return (text) => {
    const count = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (count >= least && count <= most) return count;
    throw new InvalidArgumentError(`Write a whole number from ${least} to ${most}.`);
  };
}

/** @throws WrongInput where --from and --to leave no time between them */
export function checkRange(from: number | null, to: number | null): void {
  if (from !== null && to !== null && from >= to)
    throw new WrongInput(`--from must be before --to${endsBefore(from, to, '--to ')}`);
}

/** An instant in ISO 8601. @throws InvalidArgumentError */
export function parseInstant(text: string): number {
  const bound = parseBound(text, 'start');
  if (typeof bound === 'string') throw new InvalidArgumentError(`It ${bound}.`);
  return bound;
}

/** A day of UTC. @throws InvalidArgumentError */
export function parseDay(text: string): string {
  const day = /^\d{4}-\d\d-\d\d$/.test(text) ? new Date(`${text}T00:00:00Z`) : null;
  // An impossible day overflows into the next month.
  if (day === null || Number.isNaN(day.getTime()) || !day.toISOString().startsWith(text))
    throw new InvalidArgumentError('Write a day as 2026-01-31.');
  return text;
}

/** An option that may be given several times. */
export function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}
