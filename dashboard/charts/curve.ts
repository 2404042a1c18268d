/** A line over the chart's buckets that is no number of events: a ratio, or a statistic, of all events and apart by types or values. */
import type { Compared, MeasureStat, NumberStats, Series, StatColumns } from '../../src/api-types/answers.ts';
import { average } from '../format.ts';
import { allOf, COLORS, comparedPlaces, freeColor, OTHER } from './series-data.ts';

/** A number for each bucket; null where there is none. */
export type Values = readonly (number | null)[];

export interface Curve {
  readonly name: string;
  readonly values: Values;
  /** Of the whole interval: not an average of the buckets. */
  readonly overall: number | null;
  /** The same of the interval that is compared with, by the buckets of the chart; null: nothing is compared. */
  readonly compared:
    | (Pick<Compared, 'interval'> & { readonly values: Values; readonly overall: number | null })
    | null;
  /** A value as it is shown. */
  readonly text: (value: number) => string;
  /** Numbers that it is made of, with their names. */
  readonly parts: readonly (readonly [name: string, value: number])[];
  /** The path that the lines are by; null: event types. */
  readonly by: string | null;
  /** The same apart, of those with the most events; none where it is not broken down. */
  readonly lines: readonly CurveLine[];
  /** Whether lines add up to the whole: only sums do. */
  readonly isSum: boolean;
}

export interface CurveLine {
  /** The type's identifier, a value as JSON, or `other`. */
  readonly key: string;
  readonly name: string;
  /** Index into the palette. */
  readonly color: number;
  readonly values: Values;
  readonly overall: number | null;
  /** Events that it is of. */
  readonly count: number;
  /** Of the interval, or the events, that are compared with; null: nothing is, or it is not known. */
  readonly before: number | null;
  readonly shown: boolean;
}

/** What is drawn of a curve: its lines, or where there are none the whole. */
export const drawnOf = (curve: Curve): readonly Values[] => {
  const lines = curve.lines.filter(({ shown }) => shown).map(({ values }) => values);
  return lines.length > 0 ? lines : [curve.values, curve.compared?.values ?? []];
};

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
          interval: whole.compared?.interval ?? null,
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
    ...WHOLE,
  };
}

const WHOLE = { by: null, lines: [], isSum: false } as const;

export interface StatAsked {
  readonly stat: MeasureStat;
  readonly name: string;
  /** The path that the lines are by; null: event types. */
  readonly by: string | null;
  /** Lines that are not drawn. */
  readonly hidden: readonly string[];
}

/** A statistic of a field. @param earlier that of what is compared with */
export function statCurve(
  series: Series,
  numbers: NumberStats,
  earlier: NumberStats | null,
  { stat, name, by, hidden }: StatAsked,
): Curve {
  const places = earlier === null ? null : comparedPlaces(series, earlier.starts);
  const compared =
    places === null || earlier === null || earlier.bucket !== series.bucket
      ? null
      : {
          values: places.map((i) => (i === undefined ? null : (earlier.stats[stat]?.[i] ?? null))),
          overall: earlier.overall[stat] ?? null,
          interval: earlier.interval,
        };
  return {
    name,
    values: valuesOf(numbers, stat, series),
    overall: numbers.overall[stat] ?? null,
    compared,
    text: measured,
    parts: [[`Events with a ${stat === 'distinct' ? 'value' : 'number'}`, numbers.overall.count]],
    by,
    lines: linesOf(series, numbers, earlier, { stat, name, by, hidden }),
    isSum: stat === 'sum',
  };
}

/** Without any event that has the field there are no columns. */
const valuesOf = ({ stats }: StatColumns, stat: MeasureStat, { starts }: Series): Values =>
  stats[stat] ?? starts.map(() => null);

function linesOf(
  series: Series,
  { lines, rest }: NumberStats,
  earlier: NumberStats | null,
  { stat, by, hidden }: StatAsked,
): CurveLine[] {
  const taken = new Set<number>();
  // A value has the color that it has in the chart of events.
  const numbers = new Map(series.by === by ? series.lines.map(({ key, number }) => [key, number]) : []);
  const before = new Map(earlier?.lines?.map(({ key, overall }) => [key, overall[stat] ?? null]));
  const named = (lines ?? []).map(
    (line, place): CurveLine => ({
      key: line.key,
      name: line.name,
      color: freeColor(numbers.get(line.key) ?? place, taken),
      values: valuesOf(line, stat, series),
      overall: line.overall[stat] ?? null,
      count: line.overall.count,
      before: before.get(line.key) ?? null,
      shown: !hidden.includes(line.key),
    }),
  );
  if (rest === null) {
    const known = new Set(named.map(({ key }) => key));
    const silent = (earlier?.lines ?? []).filter(({ key }) => !known.has(key)).slice(0, COLORS);
    // The only type is all there is.
    if (by === null && named.length + silent.length === 1) return [];
    return [
      ...named,
      ...silent.map(
        ({ key, name }, place): CurveLine => ({
          ...{ key, name, color: freeColor(numbers.get(key) ?? named.length + place, taken) },
          ...{ values: series.starts.map(() => null), overall: null, count: 0 },
          ...{ before: before.get(key) ?? null, shown: !hidden.includes(key) },
        }),
      ),
    ];
  }
  return [
    ...named,
    {
      key: OTHER,
      name: 'All other events',
      color: COLORS,
      values: valuesOf(rest, stat, series),
      overall: rest.overall[stat] ?? null,
      count: rest.overall.count,
      // Of other values, perhaps.
      before: null,
      shown: !hidden.includes(OTHER),
    },
  ];
}

/** The line of a measure whose numbers are on their way, or cannot be read. */
export const emptyCurve = (series: Series, name: string, by: string | null): Curve => ({
  name,
  values: series.starts.map(() => null),
  overall: null,
  compared: null,
  text: measured,
  parts: [],
  ...WHOLE,
  by,
});

/** Where the vertical axis begins and ends: always with 0 in it. */
export function curveRange(curve: Curve): [min: number, max: number] {
  let [min, max] = [0, 0];
  for (const value of drawnOf(curve).flat()) {
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

/** A number of a field, as it is shown. */
export const measured = (value: number): string => (value < 0 ? `−${average(-value)}` : average(value));

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
