/** The server's columns as the lines of a chart: which are shown, in which colour, and how they stack. */
import type { Series } from '../answers.ts';
import type { Mode, View } from '../url.ts';

/** Key of what the types beyond the top ones add up to. */
export const OTHER = 'other';
/** Colours of the palette, without the one of {@link OTHER}. */
export const COLOURS = 10;

export interface Line {
  /** The type's identifier, or {@link OTHER}. */
  readonly key: string;
  readonly name: string;
  /** Index into the palette; COLOURS is the grey of the rest. */
  readonly colour: number;
  readonly counts: readonly number[];
  readonly total: number;
  /** Events before the range. */
  readonly before: number;
  readonly shown: boolean;
}

/** What is drawn: from the bottom up, `edges[k]` to `edges[k + 1]` is the layer of `layers[k]`. */
export interface Stack {
  readonly mode: Mode;
  readonly layers: readonly Line[];
  /** One more than layers; accumulated edges have one point more than buckets, at the range's beginning. */
  readonly edges: readonly Float64Array[];
  /** What the lowest edge stands at: the count before the range when accumulated, else 0. */
  readonly base: number;
  readonly max: number;
}

/** Lines in the server's order, the busiest type first. Hidden ones keep their colours. */
export function linesOf(series: Series, view: Pick<View, 'hidden' | 'solo'>): Line[] {
  const taken = new Set<number>();
  const shown = (key: string): boolean =>
    view.solo === null ? !view.hidden.includes(key) : view.solo === key;
  const lines = series.types.map(({ typeId, name, counts, total }) => {
    const key = typeId ?? OTHER;
    return {
      key,
      name,
      colour: freeColour(key, taken),
      counts,
      total,
      before: series.before.byType[key] ?? 0,
      shown: shown(key),
    };
  });
  if (series.other !== null) {
    lines.push({
      key: OTHER,
      name: 'Other types',
      colour: COLOURS,
      counts: series.other,
      total: sum(series.other),
      before: Math.max(0, series.before.all - sum(lines.map(({ before }) => before))),
      shown: shown(OTHER),
    });
  }
  // A link may name a line that is not among the top ones any more: an empty chart would look like lost events.
  return lines.some((line) => line.shown) ? lines : lines.map((line) => ({ ...line, shown: true }));
}

/** A type keeps its colour from range to range unless two of one chart would share it. */
function freeColour(key: string, taken: Set<number>): number {
  let hash = 0;
  for (const character of key) hash = (hash * 31 + character.charCodeAt(0)) >>> 0;
  let colour = hash % COLOURS;
  for (let tries = 0; taken.has(colour) && tries < COLOURS; tries++) colour = (colour + 1) % COLOURS;
  taken.add(colour);
  return colour;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/**
 * Stacks the lines that are shown. Accumulated layers are what each type has added since the range began, on top of
 * the true count before it: the uppermost edge is the true count at every instant.
 */
export function stackOf(lines: readonly Line[], mode: Mode): Stack {
  // The busiest type lies at the bottom, where its shape is not bent by the others.
  const layers = lines.filter(({ shown }) => shown);
  const buckets = layers[0]?.counts.length ?? 0;
  const accumulated = mode === 'accumulated';
  const base = accumulated ? sum(layers.map(({ before }) => before)) : 0;
  const edges = [new Float64Array(accumulated ? buckets + 1 : buckets).fill(base)];
  for (const { counts } of layers) {
    const edge = Float64Array.from(edges.at(-1) ?? []);
    let added = 0;
    for (let i = 0; i < buckets; i++) {
      const value = counts[i] ?? 0;
      added += value;
      const at = accumulated ? i + 1 : i;
      edge[at] = (edge[at] ?? 0) + (accumulated ? added : value);
    }
    edges.push(edge);
  }
  let max = base;
  for (const value of edges.at(-1) ?? []) if (value > max) max = value;
  return { mode, layers, edges, base, max };
}

/**
 * Where the vertical axis begins and ends. An accumulated chart shows its base from zero unless that would squash what
 * the range is about.
 */
export function verticalRange({ base, max }: Stack): [min: number, max: number] {
  const grown = max - base;
  const min = base > 3 * grown && grown > 0 ? base : 0;
  return [min, min + Math.max(1, (max - min) * 1.06)];
}

/** A line's number at a bucket: its count there, or everything until the bucket's end. */
export function valueAt(line: Line, index: number, mode: Mode): number {
  if (mode === 'histogram') return line.counts[index] ?? 0;
  let value = line.before;
  for (let i = 0; i <= index; i++) value += line.counts[i] ?? 0;
  return value;
}

/** Where a bucket ends. */
export function bucketEnd(series: Series, index: number): number {
  return series.starts[index + 1] ?? series.end;
}

export interface Summary {
  readonly total: number;
  /** Index of the fullest bucket, -1 where all are empty. */
  readonly peak: number;
  readonly peakCount: number;
}

export function summaryOf(lines: readonly Line[], buckets: number): Summary {
  const shown = lines.filter((line) => line.shown);
  let peak = -1;
  let peakCount = 0;
  for (let i = 0; i < buckets; i++) {
    let value = 0;
    for (const { counts } of shown) value += counts[i] ?? 0;
    if (value > peakCount) [peak, peakCount] = [i, value];
  }
  return { total: sum(shown.map(({ total }) => total)), peak, peakCount };
}
