/** What every kind of chart is: it draws itself, and tells legend, tooltip, table and files what they show. */
import type { Compared, Series } from '../../src/api-types/answers.ts';
import type { Values as Interval, Scale } from '../url.ts';
import type { Stack } from './series-data.ts';

/** A number for each bucket; null where there is none. */
export type Values = readonly (number | null)[];

/** A kind of chart over the buckets of a series. */
export interface Drawing {
  readonly series: Series;
  readonly name: string;
  /** What the number of the whole interval is called; null: it is how many events there are. */
  readonly label: string | null;
  /** The number of the whole interval; null: there is none. */
  readonly overall: number | null;
  /** What it is compared with, and its number; null: nothing is. */
  readonly compared: Pick<Compared, 'interval'> | null;
  readonly before: number | null;
  /** A number as it is shown. */
  readonly text: (value: number) => string;
  /** Further numbers above the chart. */
  readonly figures: () => readonly Figure[];
  /** The path that lines are by; null: event types. */
  readonly by: string | null;
  /** Whether there are lines. */
  readonly isApart: boolean;
  /** Lines of the legend, in its order. */
  readonly legend: readonly LegendLine[];
  readonly shareTitle?: string;
  /** In place of lines, the numbers that it is made of, with their names. */
  readonly parts: readonly (readonly [name: string, value: string])[];
  /** Columns of its table after the time. */
  readonly columns: () => readonly Column[];
  /** What a bucket has: the whole, as it is shown and spoken, its lines, the most first, and what else is shown. */
  readonly rowsAt: (
    index: number,
    level?: number | null,
  ) => {
    readonly whole: Row;
    readonly spoken: string;
    readonly lines: readonly Row[];
    readonly more: readonly (Row | false)[];
  };
  /** Where the vertical axis begins and ends. */
  readonly range: (scale: Scale) => readonly [min: number, max: number, scale?: Scale];
  /** What the axis says at which numbers. @param most how many fit */
  readonly ticks: (
    range: Pick<Geometry, 'min' | 'max' | 'scale'>,
    most: number,
  ) => readonly (readonly [value: number, text: string])[];
  /** Whether another axis may be chosen. */
  readonly hasScales: boolean;
  readonly draw: (
    context: CanvasRenderingContext2D,
    geometry: Geometry,
    palette: Palette,
    marks: Marks,
  ) => void;
  /** Whether the dotted line of what is compared with is drawn. */
  readonly isDotted: boolean;
  /** The bars or areas that are drawn; null: others are. */
  readonly stack: Stack | null;
  /** The highest number that a bucket has by itself. */
  readonly highest: number;
  /** What its height is divided into, where boxes may be drawn on it. */
  readonly levels?: Levels;
  /** The strengths of its color, with what they say. */
  readonly strengths?: readonly (readonly [opacity: number, text: string])[];
}

/** The rows of cells of a chart, from below. Heights are shares of the chart's. */
export interface Levels {
  readonly at: (height: number) => number;
  readonly last: number;
  /** Where a bucket is read first. */
  readonly first: (index: number) => number;
  /** The height at which a level begins. */
  readonly edge: (level: number) => number;
  /** The numbers of levels from first to last. */
  readonly interval: (first: number, last: number) => Interval;
  /** The heights of such an interval. */
  readonly heights: (interval: Interval) => Range;
}

/** First and last of buckets or levels, or lower and upper of heights. */
export type Range = readonly [number, number];

/** A number above the chart, and beside it what it is of. */
export type Figure = readonly [name: string, value: string, of?: string];

/** A line of a tooltip, with the sign before it: a color of the palette, that of another thing, or none. */
export type Row = readonly [sign: number | 'dashes' | 'found' | 'events' | '', name: string, value: string];

export interface LegendLine {
  /** The type's identifier, a value as JSON, or `other`. */
  readonly key: string;
  readonly name: string;
  /** Index into the palette. */
  readonly color: number;
  readonly shown: boolean;
  readonly value: string;
  /** The number in full, where it is shown in short. */
  readonly exact?: string;
  readonly share: string;
  /** What it was in what is compared with; null: nothing is. */
  readonly before: string | null;
  readonly change: string | null;
}

export interface Column {
  readonly name: string;
  readonly color?: number;
  readonly values: Values;
  readonly text: (value: number | null) => string;
  /** Its name in a file; null: it is in none. */
  readonly file?: string | null;
}

/** From indices and counts to the canvas. */
export interface Geometry {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Buckets across the width. */
  readonly buckets: number;
  readonly min: number;
  readonly max: number;
  readonly scale: Scale;
}

export interface Palette {
  /** By a line's color index. */
  readonly layers: readonly (string | CanvasPattern)[];
  /** The accumulated total's line. */
  readonly line: string;
  /** The ground of what lies before the range. */
  readonly base: string;
  readonly grid: string;
  readonly text: string;
  /** An annotation of an incident. */
  readonly incident: string;
  /** The ground of the chart. */
  readonly ground: string;
  /** Events that a search has found, and the line of a measure. */
  readonly found: string;
}

/** What is drawn in addition. */
export interface Marks {
  /** Key of the line that stands out, null for none. */
  readonly focus: string | null;
  /** Buckets that are counted in part. */
  readonly partial: readonly number[];
}

/** Opacity of the other lines while one is highlighted, and of all bars behind search results. */
export const FAINT = 0.22;

export const across = ({ left, width, buckets }: Geometry, index: number): number =>
  left + (index / buckets) * width;

/** The share of the height at which a value stands. */
export function heightOf(
  value: number,
  { min, max, scale }: Pick<Geometry, 'min' | 'max' | 'scale'>,
): number {
  if (scale === 'log') return Math.log10(1 + value) / Math.log10(1 + max);
  return (value - min) / (max - min);
}

export const up = (geometry: Geometry, value: number): number =>
  geometry.top + geometry.height * (1 - heightOf(value, geometry));

/** 0, 1, 10, 100 and so on. */
export function powers(max: number): number[] {
  const all = [0];
  for (let value = 1; value <= max; value *= 10) all.push(value);
  return all;
}

/** Round numbers, no finer than wanted; 0: as fine as needed. */
export function multiples(
  { min, max }: Pick<Geometry, 'min' | 'max'>,
  most: number,
  finest: number,
): number[] {
  const start = Math.max(finest, 10 ** (Math.floor(Math.log10((max - min) / most)) - 1));
  let step = start;
  for (let power = start; (max - min) / step > most; power *= 10)
    step = [power, 2 * power, 5 * power, 10 * power].find((one) => (max - min) / one <= most) ?? 10 * power;
  const first = Math.ceil(min / step);
  return Array.from(
    { length: Math.max(0, Math.floor(max / step) - first + 1) },
    (_, i) => (first + i) * step,
  );
}
