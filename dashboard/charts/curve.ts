/** A line over the chart's buckets that is no number of events: a ratio, or a statistic, of all events and apart by types or values. */
import type { Compared, MeasureStat, NumberStats, Series, StatColumns } from '../../src/api-types/answers.ts';
import { sum } from '../../src/base/sum.ts';
import { average, change, compact, count, fixed, share } from '../format.ts';
import type { Mode } from '../url.ts';
import {
  across,
  type Drawing,
  FAINT,
  type Geometry,
  type LegendLine,
  multiples,
  type Palette,
  up,
  type Values,
} from './drawing.ts';
import {
  accumulated,
  allOf,
  COLORS,
  comparedName,
  comparedPlaces,
  freeColor,
  type Line,
  OTHER,
  stackOf,
  verticalRange,
} from './series-data.ts';
import { barsOf } from './stack.ts';

/** @prop stack its bars, or areas: of what adds up to the whole, which only sums do; null: it is drawn as lines */
export interface Curve extends Pick<Drawing, 'name' | 'overall' | 'text' | 'by' | 'stack'> {
  /** Numbers that it is made of, with their names. */
  readonly parts: readonly (readonly [name: string, value: number])[];
  readonly values: Values;
  /** Values of the interval that is compared with, by the buckets of the chart; null: nothing is compared. */
  readonly compared:
    | (Pick<Compared, 'interval'> & { readonly values: Values; readonly overall: number | null })
    | null;
  /** What the numbers are of; empty: it is not said, or in the text. */
  readonly unit: string;
  /** Lines with the most events; none where it is not broken down. */
  readonly lines: readonly CurveLine[];
}

export interface CurveLine extends Pick<LegendLine, 'key' | 'name' | 'color' | 'shown'> {
  readonly values: Values;
  readonly overall: number | null;
  /** Events that it is of. */
  readonly count: number;
  /** The number of the interval, or the events, that are compared with; null: nothing is, or it is not known. */
  readonly before: number | null;
}

/** Characters of a number for which there is room beside the axis. */
const MOST_CHARACTERS = 6;

/** A measure as a chart: its own line, or lines of types or values; a sum as bars or areas. */
export function curveDrawing(series: Series, curve: Curve): Drawing {
  const { name, values, overall, compared, text, unit, parts, by, lines, stack } = curve;
  const shown = lines.filter((line) => line.shown);
  const own = (value: number | null): string => (value === null ? '' : text(value));
  return {
    ...{ series, name, label: name, overall, compared, text },
    before: compared?.overall ?? null,
    figures: () => [],
    ...{ by, isApart: lines.length > 0 },
    parts: parts.map(([part, value]) => [part, count(value)]),
    shareTitle: stack === null ? 'Share of the events' : 'Share of the sum',
    legend: lines.map((line) => {
      const { before } = line;
      // Other statistics than sums have no share but that of the events.
      const [all, part] =
        stack === null ? [parts[0]?.[1] ?? 0, line.count] : [overall ?? 0, line.overall ?? 0];
      return {
        ...line,
        value: line.overall === null ? '–' : text(line.overall),
        share: share(part, all),
        before: before === null ? null : text(before),
        change:
          before === null
            ? null
            : ((line.overall === null ? null : change(line.overall, before)) ?? `from ${text(before)}`),
      };
    }),
    columns: () => [
      { name, values, text: own, file: unit === '' ? name : `${name} (${unit})` },
      ...shown.map((line) => ({ name: line.name, color: line.color, values: line.values, text: own })),
      { name: 'Events', values: series.all, text: (value) => count(value ?? 0) },
    ],
    rowsAt: (index) => {
      const value = values[index] ?? null;
      const before = compared?.values[index] ?? null;
      const whole = value === null ? 'none' : text(value);
      return {
        whole: ['', name, whole],
        spoken: `${name} ${whole}`,
        lines: shown
          .map((line) => ({ line, value: line.values[index] ?? null }))
          .filter((one) => one.value !== null)
          .sort((a, b) => (b.value ?? 0) - (a.value ?? 0))
          .map((one) => [one.line.color, one.line.name, own(one.value)]),
        more: [
          before !== null && ['dashes', comparedName(series, index), text(before)],
          ['events', 'Events', count(series.all[index] ?? 0)],
        ],
      };
    },
    // Beside no number at all an axis would tell some.
    ticks: (range, most) =>
      values.every((value) => value === null)
        ? []
        : multiples(range, most, 0).map((value) => [value, axisText(value, curve)]),
    hasScales: false,
    ...(stack === null
      ? {
          stack,
          isDotted: compared !== null && shown.length === 0,
          range: () => curveRange(curve),
          draw: (context, geometry, palette, { focus }) =>
            drawCurve(context, curve, geometry, palette, focus),
          highest: Math.max(0, ...values.map(Number)),
        }
      : { ...barsOf(stack), range: () => verticalRange(stack) }),
  };
}

/** A round number of the axis: short where the curve's own text would be long. */
export function axisText(value: number, { text, unit }: Pick<Curve, 'text' | 'unit'>): string {
  const rounded = Number(value.toPrecision(12));
  const size = Math.abs(rounded);
  const short = size >= 10_000 && size < 1e15 ? compact(rounded) : (unit === '' ? text : measured)(rounded);
  return short.length + unit.length > MOST_CHARACTERS || unit === '' ? short : `${short} ${unit}`;
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
          interval: whole.compared?.interval ?? null,
        };
  return {
    name: `${names.part} ÷ ${names.whole}`,
    values: all.map((count, index) => ratio(parts[index], count)),
    overall: ratio(above, below),
    compared,
    text: percent,
    unit: '',
    parts: [
      [names.part, above],
      [names.whole, below],
    ],
    ...WHOLE,
  };
}

const WHOLE = { by: null, lines: [], stack: null } as const;

export interface StatAsked {
  readonly stat: MeasureStat;
  readonly name: string;
  /** The path that the lines are by; null: event types. */
  readonly by: string | null;
  /** Lines that are not drawn. */
  readonly hidden: readonly string[];
  /** How a sum is drawn. */
  readonly mode: Mode;
}

/** A statistic of a field. @param earlier that of what is compared with */
export function statCurve(
  series: Series,
  numbers: NumberStats,
  earlier: NumberStats | null,
  asked: StatAsked,
): Curve {
  const { stat, by } = asked;
  const places = earlier === null ? null : comparedPlaces(series, earlier.starts);
  const compared =
    places === null || earlier === null || earlier.bucket !== series.bucket
      ? null
      : {
          values: places.map((i) => (i === undefined ? null : (earlier.stats[stat]?.[i] ?? null))),
          overall: earlier.overall[stat] ?? null,
          interval: earlier.interval,
        };
  const curve: Curve = {
    name: asked.name,
    values: valuesOf(numbers, stat, series),
    overall: numbers.overall[stat] ?? null,
    compared,
    text: measuredIn(stat === 'distinct' ? null : numbers.format),
    unit: (stat !== 'distinct' && numbers.format?.unit) || '',
    parts: [[`Events with a ${stat === 'distinct' ? 'value' : 'number'}`, numbers.overall.count]],
    by,
    lines: linesOf(series, numbers, earlier, asked),
    stack: null,
  };
  return stat === 'sum' ? stacked(curve, numbers, asked) : curve;
}

/** A sum as bars, or as what has accumulated. What was before the range may not be known: then it accumulates from 0. */
function stacked(curve: Curve, { before }: NumberStats, { name, mode: wanted }: StatAsked): Curve {
  const mode = wanted === 'running' && !before ? 'accumulated' : wanted;
  const isRunning = mode === 'running';
  const known = sum(curve.lines.map(({ key }) => before?.byKey[key] ?? 0));
  const all = isRunning ? (before?.all ?? 0) : 0;
  const beforeOf = (key: string): number =>
    isRunning ? (key === OTHER ? all - known : (before?.byKey[key] ?? 0)) : 0;
  const { compared, lines } = curve;
  const bars = (values: Values): number[] => values.map((value) => value ?? 0);
  const drawn = lines.filter(({ shown }) => shown);
  // What some lines alone are compared with is not known.
  const ghost = compared !== null && drawn.length === lines.length ? compared : null;
  const layer = (
    line: Pick<CurveLine, 'key' | 'name' | 'color' | 'values' | 'overall'>,
    index: number,
  ): Line => ({
    ...{ key: line.key, name: line.name, color: line.color, counts: bars(line.values), shown: true },
    ...{ total: line.overall ?? 0, before: line.key === '' ? all : beforeOf(line.key) },
    compared:
      index === 0 && ghost !== null ? { counts: bars(ghost.values), total: ghost.overall ?? 0 } : null,
  });
  const whole = { key: '', name, color: COLORS + 1, values: curve.values, overall: curve.overall };
  return {
    ...curve,
    name: name + { histogram: '', accumulated: ', accumulated', running: ', total so far' }[mode],
    values: accumulated(curve.values, mode, all),
    overall: isRunning ? (curve.overall ?? 0) + all : curve.overall,
    compared:
      isRunning || compared === null ? null : { ...compared, values: accumulated(compared.values, mode) },
    lines: lines
      .map((line) => ({
        ...line,
        values: accumulated(line.values, mode, beforeOf(line.key)),
        overall: isRunning ? (line.overall ?? 0) + beforeOf(line.key) : line.overall,
        before: isRunning ? null : line.before,
      }))
      .sort(
        (a, b) =>
          Number(a.key === OTHER) - Number(b.key === OTHER) ||
          (b.overall ?? -Infinity) - (a.overall ?? -Infinity),
      ),
    stack: stackOf((drawn.length === 0 ? [whole] : drawn).map(layer), mode),
  };
}

/** Without any event that has the field there are no columns. */
const valuesOf = ({ stats }: StatColumns, stat: MeasureStat, { starts }: Series): Values =>
  stats[stat] ?? starts.map(() => null);

/** Lines in the order of what they show, and after them what is left. */
function linesOf(
  series: Series,
  numbers: NumberStats,
  earlier: NumberStats | null,
  { stat, by, hidden }: StatAsked,
): CurveLine[] {
  const { lines } = numbers;
  const taken = new Set<number>();
  // A value has the color that it has in the chart of events.
  const colors = new Map(series.by === by ? series.lines.map(({ key, number }) => [key, number]) : []);
  const before = new Map(earlier?.lines?.map(({ key, overall }) => [key, overall[stat] ?? null]));
  const line = (key: string, name: string, columns: StatColumns | null, place: number): CurveLine => ({
    ...{ key, name, color: key === OTHER ? COLORS : freeColor(colors.get(key) ?? place, taken) },
    values: columns === null ? series.starts.map(() => null) : valuesOf(columns, stat, series),
    overall: columns?.overall[stat] ?? null,
    count: columns?.overall.count ?? 0,
    // The others may have been other values.
    before: before.get(key) ?? null,
    shown: !hidden.includes(key),
  });
  const named = (lines ?? []).map((one, place) => line(one.key, one.name, one, place));
  named.sort((a, b) => (b.overall ?? -Infinity) - (a.overall ?? -Infinity));
  const rest = numbers.rest ?? (stat === 'sum' ? leftOf(numbers) : null);
  if (rest !== null)
    return [...named, line(OTHER, by === null ? 'Other types' : 'All other events', rest, 0)];
  const known = new Set(named.map(({ key }) => key));
  const silent = (earlier?.lines ?? []).filter(({ key }) => !known.has(key)).slice(0, COLORS);
  // The only type is all there is.
  if (by === null && named.length + silent.length === 1) return [];
  return [...named, ...silent.map(({ key, name }, place) => line(key, name, null, named.length + place))];
}

/** What types beyond those that are told apart add to a sum; null: there are none. */
function leftOf({ stats, overall, lines }: NumberStats): StatColumns | null {
  const count = overall.count - sum((lines ?? []).map((line) => line.overall.count));
  if (lines === null || count <= 0) return null;
  const less = (all: number | null | undefined, values: readonly (number | null | undefined)[]): number =>
    (all ?? 0) - sum(values.map((value) => value ?? 0));
  const ofAll = stats.sum ?? [];
  return {
    stats: {
      count: [],
      sum: ofAll.map((value, i) =>
        less(
          value,
          lines.map((line) => line.stats.sum?.[i]),
        ),
      ),
    },
    overall: {
      count,
      sum: less(
        overall.sum,
        lines.map((line) => line.overall.sum),
      ),
    },
  };
}

/** The line of a measure whose numbers are on their way, or cannot be read. */
export const emptyCurve = (series: Series, name: string, by: string | null): Curve => ({
  name,
  values: series.starts.map(() => null),
  overall: null,
  compared: null,
  text: measured,
  unit: '',
  parts: [],
  ...WHOLE,
  by,
});

/** Lines through the middles of the buckets, with gaps where there is no number; what a single one is compared with is dashed. */
function drawCurve(
  context: CanvasRenderingContext2D,
  { values, compared, lines }: Curve,
  geometry: Geometry,
  palette: Palette,
  focus: string | null,
): void {
  const ratio = devicePixelRatio;
  context.lineJoin = 'round';
  const drawn = lines.filter(({ shown }) => shown);
  // The line with the most events lies on top.
  for (const line of drawn.toReversed()) {
    context.globalAlpha = focus !== null && focus !== line.key ? FAINT : 1;
    const color = palette.layers[line.color] ?? palette.text;
    strokeValues(context, line.values, geometry, color);
  }
  context.globalAlpha = 1;
  if (drawn.length > 0) return;
  context.strokeStyle = palette.text;
  context.lineWidth = 1.5 * ratio;
  context.setLineDash([2 * ratio, 2 * ratio]);
  strokeRuns(context, compared?.values ?? [], geometry);
  context.setLineDash([]);
  strokeValues(context, values, geometry, palette.found);
}

export function strokeValues(
  context: CanvasRenderingContext2D,
  values: Values,
  geometry: Geometry,
  color: string | CanvasPattern,
  width = 2,
): void {
  const ratio = devicePixelRatio;
  context.strokeStyle = color;
  context.fillStyle = color;
  context.lineWidth = width * ratio;
  strokeRuns(context, values, geometry);
  context.beginPath();
  values.forEach((value, i) => {
    // A number between two gaps has no line: it is a dot.
    if (value === null || (values[i - 1] ?? null) !== null || (values[i + 1] ?? null) !== null) return;
    const x = across(geometry, i + 0.5);
    context.moveTo(x, up(geometry, value));
    context.arc(x, up(geometry, value), (width + 3) * 0.5 * ratio, 0, 2 * Math.PI);
  });
  context.fill();
}

function strokeRuns(context: CanvasRenderingContext2D, values: Values, geometry: Geometry): void {
  context.beginPath();
  values.forEach((value, i) => {
    if (value === null) return;
    const [x, y] = [across(geometry, i + 0.5), up(geometry, value)];
    if ((values[i - 1] ?? null) === null) context.moveTo(x, y);
    else context.lineTo(x, y);
  });
  context.stroke();
}

/** Where the vertical axis begins and ends: always with 0 in it. */
export function curveRange({ values, compared, lines }: Curve): [min: number, max: number] {
  let [min, max] = [0, 0];
  const drawn = lines.flatMap((line) => (line.shown ? [line.values] : []));
  for (const value of (drawn.length > 0 ? drawn : [values, compared?.values ?? []]).flat()) {
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

/** A number of a field, as it is shown: beyond what digits tell as a power of ten. */
export function measured(value: number): string {
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-4 || size >= 1e15)
      ? Number(size.toPrecision(3)).toExponential().replace('+', '')
      : size < 0.01
        ? String(Number(size.toPrecision(3)))
        : average(size);
  return value < 0 ? `−${text}` : text;
}

/** Numbers of a field as its declaration has them shown. */
export function measuredIn(format: NumberStats['format']): (value: number) => string {
  const { unit = null, decimals = null } = format ?? {};
  return (value) => {
    const text = decimals === null ? measured(value) : fixed(value, decimals);
    return unit === null ? text : `${text}\u00a0${unit}`;
  };
}
