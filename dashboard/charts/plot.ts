/**
 * uPlot around our own drawing: it does the axes and the batching; the stack is painted in one pass over its grid, and
 * pointers are ours. The horizontal scale counts buckets, so that bars are equally wide in a month of 28 days and a day of
 * 25 hours.
 */
import uPlot from 'uplot';
import type { Series } from '../answers.ts';
import { compact } from '../format.ts';
import type { Scale } from '../url.ts';
import { drawStack, type Geometry } from './drawing.ts';
import { type Edges, Gestures } from './gestures.ts';
import { readPalette } from './palette.ts';
import { isPartial, type Stack, verticalRange } from './series-data.ts';
import { timeTicks } from './time-axis.ts';

export interface PlotContent {
  readonly series: Series;
  readonly stack: Stack;
  readonly zone: string;
  readonly scale: Scale;
  /** Index of the bucket whose events are listed; null: all are. */
  readonly picked: number | null;
  /** Events that a search has found, by bucket; null: nothing is searched. */
  readonly found: readonly number[] | null;
}

export interface PlotEvents {
  /** The bucket under the pointer or the keyboard's cursor changed; null where there is none. */
  readonly onPoint: (index: number | null, left: number) => void;
  readonly onPick: (index: number) => void;
  /** Buckets from first to last were dragged over. */
  readonly onSelect: (first: number, last: number) => void;
  /** The chart was moved or stretched by fingers. */
  readonly onMoved: (edges: Edges) => void;
  readonly onLeaveZoom: () => void;
}

/** Room that one label of the time axis needs, in CSS pixels. */
const LABEL_WIDTH = 76;
const FONT = '12px system-ui, sans-serif';
/** Room for the labels of the vertical axis, and at the right edge. */
const AXIS_WIDTH = 50;
const RIGHT = 14;
/** Whole numbers only: there are no half events. */
const INCREMENTS = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

export class Plot {
  readonly #uplot: uPlot;
  readonly #place: HTMLElement;
  readonly #band = div('band');
  readonly #picked = div('band picked');
  readonly #selection = div('selection');
  readonly #observer: ResizeObserver;
  readonly #events: PlotEvents;
  #content: PlotContent;
  #palette: ReturnType<typeof readPalette>;
  #focus: string | null = null;
  #pointed: number | null = null;
  #edges: Edges = { from: 0, to: 1 };
  #ticks: ReadonlyMap<number, string> = new Map();

  constructor(place: HTMLElement, content: PlotContent, events: PlotEvents) {
    this.#place = place;
    this.#content = content;
    this.#events = events;
    this.#palette = readPalette(place);
    this.#uplot = new uPlot(this.#options(), this.#data(), place);
    const { over } = this.#uplot;
    over.prepend(this.#picked, this.#band, this.#selection);
    new Gestures(over, {
      onHover: (at) => this.#pointTo(at === null ? null : this.#bucketAt(at)),
      onPick: (at, isTouch) => {
        if (isTouch) this.#pointTo(this.#bucketAt(at));
        events.onPick(this.#bucketAt(at));
      },
      onSelecting: (places) => this.select(places && [this.#bucketAt(places[0]), this.#bucketAt(places[1])]),
      onSelect: ([first, last]) => events.onSelect(this.#bucketAt(first), this.#bucketAt(last)),
      onMoving: (edges) => this.#move(edges ?? { from: 0, to: 1 }),
      onMoved: events.onMoved,
    });
    over.addEventListener('dblclick', events.onLeaveZoom);
    this.#observer = new ResizeObserver(() => this.#uplot.setSize(this.#size()));
    this.#observer.observe(place);
    this.#showBands();
  }

  get #buckets(): number {
    return Math.max(1, this.#content.series.starts.length);
  }

  #bucketAt(share: number): number {
    return Math.min(this.#buckets - 1, Math.floor(share * this.#buckets));
  }

  /** Other numbers, another zone, or other lines. */
  update(content: PlotContent): void {
    this.#content = content;
    this.#uplot.setData(this.#data());
    if (this.#pointed !== null && this.#pointed >= this.#buckets) this.#pointed = null;
    // What the pointer rests on is told again, with its new numbers.
    this.#tell();
    this.#showBands();
  }

  /** Draws again in the colors of the theme that is on now. */
  recolor(): void {
    this.#palette = readPalette(this.#place);
    this.#uplot.redraw(false, true);
  }

  /** Lets one layer stand out. */
  focus(key: string | null): void {
    if (key === this.#focus) return;
    this.#focus = key;
    this.#uplot.redraw(false, false);
  }

  /** Moves the cursor to a bucket, or away. */
  point(index: number | null): void {
    this.#pointTo(index);
  }

  /** Shows buckets from first to last as selected; null: none. */
  select(range: readonly [number, number] | null): void {
    this.#cover(this.#selection, range);
  }

  destroy(): void {
    this.#observer.disconnect();
    this.#uplot.destroy();
  }

  #size(): { width: number; height: number } {
    return { width: this.#place.clientWidth, height: this.#place.clientHeight };
  }

  /** uPlot only needs to know how many there are: the stack is painted from the content itself. */
  #data(): uPlot.AlignedData {
    const places = Float64Array.from({ length: this.#buckets }, (_, index) => index);
    return [places, new Float64Array(this.#buckets)];
  }

  #options(): uPlot.Options {
    const isLog = (): boolean => this.#content.scale === 'log';
    const colors = {
      stroke: () => this.#palette.text,
      font: FONT,
      ticks: { show: false },
      border: { show: true, stroke: () => this.#palette.grid },
      incrs: INCREMENTS,
    };
    return {
      ...this.#size(),
      padding: [10, RIGHT, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      series: [{}, { paths: () => null, points: { show: false } }],
      scales: {
        x: { time: false, range: () => [-0.5, this.#buckets - 0.5] },
        y: {
          distr: 100,
          fwd: (value) => (isLog() ? Math.log10(1 + value) : value),
          bwd: (value) => (isLog() ? 10 ** value - 1 : value),
          range: () => verticalRange(this.#content.stack, this.#content.scale),
        },
      },
      axes: [
        {
          ...colors,
          size: 44,
          gap: 6,
          grid: { show: false },
          ticks: { show: true, size: 4, width: 1, stroke: () => this.#palette.grid },
          splits: () => this.#timeSplits(),
          values: (_plot, splits) => splits.map((split) => this.#ticks.get(split + 0.5) ?? ''),
        },
        {
          ...colors,
          size: AXIS_WIDTH,
          gap: 8,
          space: 44,
          border: { show: false },
          grid: { stroke: () => this.#palette.grid, width: 1 },
          splits: (_plot, _axis, min, max, step) => (isLog() ? powers(max) : multiples(min, max, step)),
          values: (_plot, splits) => splits.map(compact),
        },
      ],
      hooks: {
        draw: [(plot) => this.#draw(plot)],
        setSize: [() => this.#showBands()],
      },
    };
  }

  /** Ticks stand at the beginning of their buckets, half a place before the middle. */
  #timeSplits(): number[] {
    const { series, zone } = this.#content;
    // The splits are asked for before the constructor has returned: uPlot's own width is not known.
    const width = this.#place.clientWidth - AXIS_WIDTH - RIGHT;
    const ticks = timeTicks(series.starts, zone, Math.max(2, Math.floor(width / LABEL_WIDTH)));
    // A label that would be cut at the right edge says less than none.
    const whole = ticks.filter(
      ({ index, label }) => (index / this.#buckets) * width + widthOf(label) / 2 <= width + RIGHT,
    );
    this.#ticks = new Map(whole.map(({ index, label }) => [index, label]));
    return whole.map(({ index }) => index - 0.5);
  }

  #draw(plot: uPlot): void {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const { series, stack, scale, found } = this.#content;
    const [min, max] = verticalRange(stack, scale);
    const { from, to } = this.#edges;
    const stretched = width / (to - from);
    const geometry: Geometry = {
      left: left - from * stretched,
      top,
      width: stretched,
      height,
      buckets: this.#buckets,
      min,
      max,
      scale,
    };
    const now = Date.now();
    const partial = series.starts.map((_, index) => index).filter((index) => isPartial(series, index, now));
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    drawStack(ctx, stack, geometry, this.#palette, { focus: this.#focus, partial, found });
    ctx.restore();
  }

  #move(edges: Edges): void {
    this.#edges = edges;
    this.#pointTo(null);
    this.#uplot.redraw(false, false);
  }

  #pointTo(index: number | null): void {
    if (index === this.#pointed) return;
    this.#pointed = index;
    this.#showBands();
    this.#tell();
  }

  #tell(): void {
    const { over } = this.#uplot;
    const index = this.#pointed;
    const middle = index === null ? 0 : ((index + 0.5) / this.#buckets) * over.clientWidth;
    this.#events.onPoint(index, over.offsetLeft + middle);
  }

  #showBands(): void {
    const { picked } = this.#content;
    this.#cover(this.#band, this.#pointed === null ? null : [this.#pointed, this.#pointed]);
    this.#cover(this.#picked, picked === null ? null : [picked, picked]);
  }

  /** Lays a box over buckets from first to last, or hides it. */
  #cover(box: HTMLElement, range: readonly [number, number] | null): void {
    box.hidden = range === null;
    if (range === null) return;
    const [first, last] = range;
    const width = this.#uplot.over.clientWidth / this.#buckets;
    box.style.width = `${Math.max(1, (last - first + 1) * width)}px`;
    box.style.transform = `translateX(${first * width}px)`;
  }
}

function div(kind: string): HTMLElement {
  const element = document.createElement('div');
  element.className = kind;
  element.hidden = true;
  return element;
}

const powers = (max: number): number[] => {
  const all = [0, 1];
  while ((all.at(-1) ?? max) * 10 <= max) all.push((all.at(-1) ?? 1) * 10);
  return all;
};

function multiples(min: number, max: number, step: number): number[] {
  const first = Math.ceil(min / step);
  return Array.from({ length: Math.max(0, Math.floor(max / step) - first + 1) }, (_, i) => (first + i) * step);
}

let measuring: CanvasRenderingContext2D | null = null;

/** CSS pixels of a label's longest line. */
function widthOf(label: string): number {
  measuring ??= document.createElement('canvas').getContext('2d');
  if (measuring === null) return LABEL_WIDTH;
  measuring.font = FONT;
  return Math.max(...label.split('\n').map((line) => measuring?.measureText(line).width ?? 0));
}
