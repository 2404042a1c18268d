/** How the numbers of a field are distributed over time: a cell for each bucket and bin, colored by how many numbers it has. */
import type { NumberStats, Series } from '../../src/api-types/answers.ts';
import { count } from '../format.ts';
import type { Values as Interval } from '../url.ts';
import { axisText, measuredIn, strokeValues } from './curve.ts';
import { across, type Drawing, type Figure, multiples, up, type Values } from './drawing.ts';

/** Strengths of the color that are told apart. */
const STRENGTHS = 6;
/** Sizes that differ more have a logarithmic axis. */
const MOST_LINEAR = 100;
/** Levels of a linear axis, at most: its small bins are together in one. */
const LINEAR_LEVELS = 40;
/** About as many are easy to tell apart on a logarithmic one. */
const LOG_LEVELS = 64;

const WITH_NUMBER = 'Events with a number';

/** Numbers as the server counts them: without the end nearer to 0, which is its own level. */
interface Level {
  readonly from: number;
  readonly to: number;
  /** By bucket. */
  readonly counts: readonly number[];
}

export function heatDrawing(series: Series, numbers: NumberStats, name: string): Drawing {
  const { stats, overall, of, format } = numbers;
  const bins = levelsOf(numbers);
  const isLog = isWide(bins);
  const levels = isLog
    ? inGroups(bins, 2 ** Math.ceil(Math.log2(Math.max(1, bins.length / LOG_LEVELS))))
    : together(bins);
  const edges = isLog
    ? Array.from({ length: Math.max(1, levels.length) + 1 }, (_, level) => level)
    : [...levels.map(({ from }) => from), levels.at(-1)?.to ?? 1];
  const [min = 0, max = 1] = [edges[0], edges.at(-1)];
  const text = measuredIn(format);
  const plain = measuredIn(format && { ...format, unit: null });
  const spanOf = ({ from, to }: Level): string => (from === to ? text(to) : `${plain(from)} – ${text(to)}`);
  /** Where a number is on the axis. */
  const placeOf = (value: number): number => {
    if (!isLog) return value;
    const level = levels.findIndex(({ to }) => value <= to);
    const { from = value, to = value } = levels[level] ?? {};
    if (level < 0) return levels.length;
    if (from === to) return level + 0.5;
    return level + (value <= from ? 0 : Math.log(value / from) / Math.log(to / from));
  };
  const shareOf = (place: number): number => Math.min(1, Math.max(0, (place - min) / (max - min)));
  const most = Math.max(1, ...levels.flatMap(({ counts }) => counts));
  const starts = startsOf(most);
  const opacity = (strength: number): number => (strength + 1) / starts.length;
  const lines: readonly (readonly [name: string, values: Values, isDashed: boolean])[] = [
    ['Median', stats.p50 ?? [], false],
    ['99th percentile', stats.p99 ?? [], true],
  ];
  const shown = (value: number | null | undefined): string => (value == null ? '–' : text(value));
  const figures: readonly Figure[] = [
    ['99th percentile', shown(overall.p99)],
    [WITH_NUMBER, count(overall.count)],
  ];
  return {
    ...{ series, name, label: `Median of ${of}`, overall: overall.p50 ?? null, text },
    ...{ compared: null, before: null, by: null, isApart: false, legend: [] },
    figures: () => figures,
    parts: [
      ['Solid line', 'Median'],
      ['Dashed line', '99th percentile'],
    ],
    strengths:
      levels.length === 0
        ? []
        : starts.map((start, strength) => {
            const end = (starts[strength + 1] ?? most + 1) - 1;
            return [opacity(strength), start === end ? count(start) : `${count(start)}–${count(end)}`];
          }),
    columns: () => [
      { name: WITH_NUMBER, values: stats.count, text: (value) => count(value ?? 0) },
      ...lines.map(([line, values]) => ({ name: line, values, text: shown })),
      ...levels.map((level) => ({
        ...{ name: spanOf(level), values: level.counts, text: (value: number | null) => count(value ?? 0) },
        file: `${of} ${level.from} to ${level.to}`,
      })),
    ],
    rowsAt: (index, at = null) => {
      const level = at === null ? undefined : levels[at];
      const [numbersOfAll, own] = [stats.count[index] ?? 0, level?.counts[index] ?? 0];
      const told = level && `${spanOf(level)}: ${count(own)}, `;
      return {
        whole: ['', WITH_NUMBER, count(numbersOfAll)],
        spoken: `${told ?? ''}${count(numbersOfAll)} in all`,
        lines: lines.map(([line, values, isDashed]) => [
          isDashed ? 'dashes' : 'events',
          line,
          shown(values[index]),
        ]),
        more: [level !== undefined && ['found', spanOf(level), count(own)]],
      };
    },
    range: () => [min, max],
    ticks: (range, room) =>
      (isLog ? roundNumbers(levels, room) : multiples(range, room, 0)).map((value) => [
        placeOf(value),
        axisText(value, { text, unit: format?.unit ?? '' }),
      ]),
    ...{ hasScales: false, isDotted: false, stack: null },
    highest: Math.max(0, ...(stats.p50 ?? []).map(Number)),
    levels: {
      last: levels.length - 1,
      at: (height) =>
        Math.max(
          0,
          edges.slice(0, -1).findLastIndex((edge) => shareOf(edge) <= height),
        ),
      first: (index) =>
        Math.max(
          0,
          levels.findIndex(({ to }) => to >= (stats.p50?.[index] ?? 0)),
        ),
      edge: (level) => shareOf(edges[level] ?? max),
      interval: (first, end) => intervalOf(levels, first, end),
      heights: ([from, until]) => [
        from === null ? 0 : shareOf(placeOf(from)),
        until === null ? 1 : shareOf(placeOf(until)),
      ],
    },
    draw: (context, geometry, palette) => {
      context.fillStyle = palette.found;
      levels.forEach(({ counts }, level) => {
        const [bottom, top] = [edges[level] ?? min, edges[level + 1] ?? max].map((edge) =>
          Math.round(up(geometry, edge)),
        ) as [number, number]; // A number for each of the two.
        counts.forEach((value, index) => {
          if (value === 0) return;
          const [left, right] = [
            Math.round(across(geometry, index)),
            Math.round(across(geometry, index + 1)),
          ];
          context.globalAlpha = opacity(starts.findLastIndex((start) => start <= value));
          context.fillRect(
            left,
            Math.min(top, bottom - 1),
            Math.max(1, right - left),
            Math.max(1, bottom - top),
          );
        });
      });
      context.globalAlpha = 1;
      const ratio = devicePixelRatio;
      context.lineJoin = 'round';
      for (const [, values, isDashed] of lines) {
        const places = values.map((value) => (value === null ? null : placeOf(value)));
        // With a seam of the ground's color, a line is seen on every color.
        strokeValues(context, places, geometry, palette.ground, 5);
        if (isDashed) context.setLineDash([5 * ratio, 4 * ratio]);
        strokeValues(context, places, geometry, palette.line);
        context.setLineDash([]);
      }
    },
  };
}

const levelsOf = ({ histogram }: NumberStats): Level[] =>
  (histogram?.bins ?? []).map(({ from, to }, bin) => ({
    ...{ from, to },
    counts: histogram?.counts.map((counts) => counts[bin] ?? 0) ?? [],
  }));

/** Share of the numbers of both signs that may be near 0 without a logarithmic axis. */
const NEAR_ZERO = 0.05;

/** Whether sizes span more than two decades. Numbers of both signs come near 0 wherever they are: then most of them have to. */
function isWide(bins: readonly Level[]): boolean {
  const sizes = bins
    .flatMap(({ from, to, counts }) => {
      const [near = 0, far = 0] = [Math.abs(from), Math.abs(to)].sort((a, b) => a - b);
      return far === 0 ? [] : [{ near, far, total: counts.reduce((sum, value) => sum + value, 0) }];
    })
    .sort((a, b) => a.near - b.near);
  let left = (bins[0]?.from ?? 0) < 0 && (bins.at(-1)?.to ?? 0) > 0 ? NEAR_ZERO : 0;
  left *= sizes.reduce((sum, { total }) => sum + total, 0);
  const least = sizes.find(({ total }) => {
    left -= total;
    return left < 0;
  });
  return least === undefined || Math.max(...sizes.map(({ far }) => far)) / least.near > MOST_LINEAR;
}

const joined = (low: Level, high: Level): Level => ({
  ...{ from: low.from, to: high.to },
  counts: low.counts.map((value, index) => value + (high.counts[index] ?? 0)),
});

/** So many neighbors of one sign as one level each. */
function inGroups(bins: readonly Level[], size: number): Level[] {
  const levels: Level[] = [];
  let [joins, sign] = [0, 0];
  for (const bin of bins) {
    const own = Math.sign(bin.from + bin.to);
    const low = joins % size > 0 && own === sign ? levels.pop() : undefined;
    joins = low === undefined ? 1 : joins + 1;
    sign = own;
    levels.push(low === undefined ? bin : joined(low, bin));
  }
  return levels;
}

/** Neighbors as one level each, of a height that is seen on a linear axis. */
function together(bins: readonly Level[]): Level[] {
  const [least, greatest] = [bins[0]?.from ?? 0, bins.at(-1)?.to ?? 0];
  const height = (greatest - least) / LINEAR_LEVELS;
  const levels: Level[] = [];
  for (const bin of bins) {
    const { from, counts } = bin;
    const low = levels.pop();
    if (low === undefined) levels.push(bin);
    else if (from - low.to > 2 * height) {
      // No number is between them, so that both may reach into it.
      const [end, start] = [Math.max(low.to + height / 2, low.from + height), from - height / 2];
      const none = { from: end, to: start, counts: counts.map(() => 0) };
      levels.push({ ...low, to: end }, none, { ...bin, from: start });
    } else if (low.to - low.from < height || greatest - low.to < height)
      // What is left above is no level of its own.
      levels.push(joined(low, bin));
    else levels.push({ ...low, to: from }, bin);
  }
  return levels;
}

/** From which counts on the color is stronger: round numbers, as far apart as tells all counts apart. */
function startsOf(most: number): number[] {
  const round = (index: number): number => ([1, 2, 5][index % 3] ?? 1) * 10 ** Math.floor(index / 3);
  let step = 1;
  while (round(step * STRENGTHS) <= most) step += 1;
  return Array.from({ length: STRENGTHS }, (_, index) => round(index * step)).filter(
    (start) => start <= most,
  );
}

/** Powers of ten, with twice and five times as much where there is room, and 0: none too near to another. */
function roundNumbers(levels: readonly Level[], most: number): number[] {
  const ends = levels.flatMap(({ from, to }) => [from, to]);
  const sizes = ends.map(Math.abs).filter((size) => size > 0);
  const [least, greatest] = [Math.min(...sizes), Math.max(...sizes)];
  const found = (digits: readonly number[]): number[] => {
    const round: number[] = [];
    for (let power = Math.floor(Math.log10(least)); power <= Math.log10(greatest); power += 1)
      for (const digit of digits) round.push(Number(`${digit}e${power}`), Number(`-${digit}e${power}`));
    return [...round, 0]
      .filter((value) => levels.some(({ from, to }) => from <= value && value <= to))
      .sort((a, b) => a - b);
  };
  const numbers = [found([1, 2, 5]), found([1, 3])].find(({ length }) => length <= most) ?? found([1]);
  const step = Math.ceil(numbers.length / most);
  // 0 is among those that stay.
  const zero = Math.max(0, numbers.indexOf(0));
  return numbers.filter((_, index) => (index - zero) % step === 0);
}

/** An interval that has the numbers of some levels, with ends that read well: in the half of a level around an edge. */
function intervalOf(levels: readonly Level[], first: number, last: number): Interval {
  const end = (level: number): number => {
    const [below, above] = [levels[level - 1], levels[level]];
    // Beside 0 there is room for a round number.
    const [low, high] = [below?.to ?? above?.from ?? 0, above?.from ?? below?.to ?? 0];
    if (low !== high) return roundest(low, high);
    const half = (one: Level | undefined): number => (one === undefined ? 0 : (one.to - one.from) / 2);
    return roundest(low - half(below ?? above), below === undefined ? high : high + half(above));
  };
  const [from, until] = [first > 0 ? end(first) : null, last < levels.length - 1 ? end(last + 1) : null];
  return from === null && until === null ? [end(0), null] : [from, until];
}

/** The number with the fewest digits that is above one and not above another. */
function roundest(low: number, high: number): number {
  for (let power = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)))); power > -80; power -= 1) {
    const value = Number(`${Math.floor(high / 10 ** power)}e${power}`);
    if (value > low) return value + 0;
  }
  return high;
}
