/** Ticks of a time axis in any zone: at round times of the zone's clock, so many that their labels do not touch. */
import { clock, dayMonth, month, year } from '../format.ts';
import { DAY, MINUTE } from '../range.ts';
import { toWalls } from '../time-zone.ts';

export interface Tick {
  /** Index of the bucket at whose beginning it stands. */
  readonly index: number;
  /** One line, or two with the larger unit below. */
  readonly label: string;
}

/** Steps below a day, that divide it. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE);
const DAY_STEPS = [1, 2, 3, 4, 7, 14];
const MONTH_STEPS = [1, 2, 3, 6, 12, 24, 60, 120];

/** @param most how many labels fit */
export function timeTicks(starts: readonly number[], zone: string, most: number): Tick[] {
  const walls = toWalls(starts, zone);
  const isRound = roundness().find((test) => atRoundTimes(walls, test.is).length <= most);
  if (isRound === undefined) return [];
  const { is, daily } = isRound;
  let context = '';
  return atRoundTimes(walls, is).map((index) => {
    const start = starts[index] ?? 0;
    const first =
      daily === 'time' ? clock(start, zone) : daily === 'day' ? dayMonth(start, zone) : month(start, zone);
    const below = daily === 'time' ? dayMonth(start, zone) : year(start, zone);
    const label = below === context ? first : `${first}\n${below}`;
    context = below;
    return { index, label };
  });
}

interface Roundness {
  readonly daily: 'time' | 'day' | 'month';
  readonly is: (wall: number) => number;
}

/** From the finest to the coarsest: a number that changes at each round time. */
function roundness(): Roundness[] {
  const months = (wall: number): number =>
    new Date(wall).getUTCFullYear() * 12 + new Date(wall).getUTCMonth();
  return [
    ...STEPS.map((step) => ({ daily: 'time' as const, is: (wall: number) => Math.floor(wall / step) })),
    // Weeks begin on Monday; 5 January 1970 was one.
    ...DAY_STEPS.map((days) => ({
      daily: 'day' as const,
      is: (wall: number) => Math.floor((wall / DAY - (days % 7 === 0 ? 4 : 0)) / days),
    })),
    ...MONTH_STEPS.map((step) => ({
      daily: 'month' as const,
      is: (wall: number) => Math.floor(months(wall) / step),
    })),
  ];
}

/** Buckets in which a new round interval begins; the first only where it begins with one. */
function atRoundTimes(walls: readonly number[], is: (wall: number) => number): number[] {
  const found: number[] = [];
  for (let i = 0; i < walls.length; i++) {
    const wall = walls[i] ?? 0;
    // Before the first bucket lies another interval exactly where the first bucket is at its very beginning.
    const earlier = i === 0 ? wall - 1 : (walls[i - 1] ?? 0);
    if (is(wall) !== is(earlier)) found.push(i);
  }
  return found;
}
