/** A line over the chart's buckets that is no number of events: a ratio, or a statistic. */
import type { NumberStats, Series, Stat } from '../../src/api-types/answers.ts';
import { average } from '../format.ts';

import { allOf, comparedPlaces } from './series-data.ts';

/** A number for each bucket; null where there is none. */
export type Values = readonly (number | null)[];

export interface Curve {
  readonly name: string;
  readonly values: Values;
  /** Of the whole interval: not an average of the buckets. */
  readonly overall: number | null;
  /** The same of the interval that is compared with, by the buckets of the chart; null: nothing is compared. */
  readonly compared: { readonly values: Values; readonly overall: number | null } | null;
  /** A value as it is shown. */
  readonly text: (value: number) => string;
  /** Numbers that it is made of, with their names. */
  readonly parts: readonly (readonly [name: string, value: number])[];
}

/** The ratio of the events of a part to those of the whole, in the same buckets. */
export function ratioCurve(
  whole: Series,
  part: Series,
  withHidden: boolean,
  names: { readonly part: string; readonly whole: string },
): Curve {
  const [{ all: parts, compared: earlierPart }, { all, compared: earlierWhole }] = [
    allOf(part, withHidden),
    allOf(whole, withHidden),
  ];
  const [above, below] = [sum(parts), sum(all)];
  const places = comparedPlaces(whole);
  const compared =
    places === null || earlierPart === null || earlierWhole === null
      ? null
      : {
          values: places.map((i) => (i === undefined ? null : ratio(earlierPart[i], earlierWhole[i]))),
          overall: ratio(sum(earlierPart), sum(earlierWhole)),
        };
  return {
    name: `${names.part} ÷ ${names.whole}`,
    values: all.map((count, index) => ratio(parts[index], count)),
    overall: ratio(above, below),
    compared,
    text: percent,
    parts: [
      [names.part, above],
      [names.whole, below],
    ],
  };
}

/** A statistic of a number field. @param earlier that of the interval that is compared with */
export function statCurve(
  series: Series,
  numbers: NumberStats,
  earlier: NumberStats | null,
  { stat, name }: { readonly stat: Stat; readonly name: string },
): Curve {
  const places = earlier === null ? null : comparedPlaces(series, earlier.starts);
  const compared =
    places === null || earlier === null || earlier.bucket !== series.bucket
      ? null
      : {
          values: places.map((i) => (i === undefined ? null : (earlier.stats[stat][i] ?? null))),
          overall: earlier.overall[stat],
        };
  return {
    name,
    values: numbers.stats[stat],
    overall: numbers.overall[stat],
    compared,
    text: amount,
    parts: [['Events with a number', numbers.overall.count]],
  };
}

/** The line of a measure whose numbers are on their way. */
export const emptyCurve = (series: Series): Curve => ({
  name: '',
  values: series.starts.map(() => null),
  overall: null,
  compared: null,
  text: amount,
  parts: [],
});

/** Where the vertical axis begins and ends: always with 0 in it. */
export function curveRange({ values, compared }: Curve): [min: number, max: number] {
  let [min, max] = [0, 0];
  for (const value of [...values, ...(compared?.values ?? [])]) {
    if (value === null) continue;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  if (min === max) return [0, 1];
  return [min * 1.06, max * 1.06];
}

const ratio = (above = 0, below = 0): number | null => (below === 0 ? null : above / below);

function percent(value: number): string {
  const hundredths = value * 100;
  return `${hundredths >= 1_000 ? Math.round(hundredths) : Number(hundredths.toPrecision(3))}%`;
}

const amount = (value: number): string => (value < 0 ? `−${average(-value)}` : average(value));

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
