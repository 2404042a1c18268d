/**
 * uPlot around our own drawing: it does the axes, the cursor, the selection and the batching; the stack is painted in
 * one pass between its grid and its overlay. The horizontal scale counts buckets, so that bars are equally wide in a
 * month of 28 days and a day of 25 hours.
 */
import uPlot from 'uplot';
import type { Series } from '../answers.ts';
import { compact } from '../format.ts';
import { drawStack, type Geometry } from './drawing.ts';
import { readPalette } from './palette.ts';
import { type Stack, verticalRange } from './series-data.ts';
import { timeTicks } from './time-axis.ts';

export interface PlotContent {
  readonly series: Series;
  readonly stack: Stack;
  readonly zone: string;
}

export interface PlotEvents {
  /** The bucket under the pointer or the keyboard's cursor changed; null where there is none. */
  readonly onPoint: (index: number | null, left: number) => void;
  /** Buckets from first to last were dragged over. */
  readonly onSelect: (first: number, last: number) => void;
  readonly onLeaveZoom: () => void;
}

/** Room that one label of the time axis needs, in CSS pixels. */
const LABEL_WIDTH = 76;
/** Whole numbers only: there are no half events. */
const INCREMENTS = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

export class Plot {
  readonly #uplot: uPlot;
  readonly #place: HTMLElement;
  readonly #band: HTMLElement;
  readonly #observer: ResizeObserver;
  readonly #events: PlotEvents;
  #content: PlotContent;
  #palette: ReturnType<typeof readPalette>;
  #focus: string | null = null;
  #pointed: number | null = null;
  #ticks: ReadonlyMap<number, string> = new Map();

  constructor(place: HTMLElement, content: PlotContent, events: PlotEvents) {
    this.#place = place;
    this.#content = content;
    this.#events = events;
    this.#palette = readPalette(place);
    this.#band = document.createElement('div');
    this.#band.className = 'band';
    this.#uplot = new uPlot(this.#options(events), this.#data(), place);
    this.#uplot.over.prepend(this.#band);
    this.#uplot.over.addEventListener('pointermove', (event) => {
      // uPlot hears mice; a finger moves the cursor too, and scrolling stays the browser's.
      if (event.pointerType !== 'mouse') this.#uplot.setCursor({ left: event.offsetX, top: event.offsetY });
    });
    this.#observer = new ResizeObserver(() => this.#uplot.setSize(this.#size()));
    this.#observer.observe(place);
  }

  get #buckets(): number {
    return Math.max(1, this.#content.series.starts.length);
  }

  /** Other numbers, another zone, or other lines. */
  update(content: PlotContent): void {
    this.#content = content;
    // What the pointer rests on is told again, with its new numbers.
    this.#pointed = -1;
    this.#uplot.setData(this.#data());
    this.#cursorMoved(this.#uplot);
  }

  /** Draws again in the colours of the theme that is on now. */
  recolour(): void {
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
    const left = index === null ? -10 : this.#uplot.valToPos(index, 'x');
    this.#uplot.setCursor({ left, top: index === null ? -10 : 20 });
  }

  /** Shows buckets from first to last as selected; null: none. */
  select(range: readonly [number, number] | null): void {
    if (range === null) {
      // Without a height: the borders of a selection are seen even where it has no width.
      this.#uplot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      return;
    }
    const [first, last] = range;
    const left = this.#uplot.valToPos(first - 0.5, 'x');
    const width = this.#uplot.valToPos(last + 0.5, 'x') - left;
    this.#uplot.setSelect({ left, top: 0, width, height: this.#uplot.over.clientHeight }, false);
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

  #options(events: PlotEvents): uPlot.Options {
    const font = '12px system-ui, sans-serif';
    const colours = {
      stroke: () => this.#palette.text,
      font,
      ticks: { show: false },
      border: { show: true, stroke: () => this.#palette.grid },
      incrs: INCREMENTS,
    };
    return {
      ...this.#size(),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      series: [{}, { paths: () => null, points: { show: false } }],
      scales: {
        x: { time: false, range: () => [-0.5, this.#buckets - 0.5] },
        y: { range: () => verticalRange(this.#content.stack) },
      },
      axes: [
        {
          ...colours,
          size: 44,
          gap: 6,
          grid: { show: false },
          ticks: { show: true, size: 4, width: 1, stroke: () => this.#palette.grid },
          splits: () => this.#timeSplits(),
          values: (_plot, splits) => splits.map((split) => this.#ticks.get(split + 0.5) ?? ''),
        },
        {
          ...colours,
          size: 50,
          gap: 8,
          space: 44,
          border: { show: false },
          grid: { stroke: () => this.#palette.grid, width: 1 },
          values: (_plot, splits) => splits.map(compact),
        },
      ],
      cursor: {
        points: { show: false },
        y: false,
        drag: { x: true, y: false, setScale: false, dist: 6 },
        // Its own answer to a double click would be to reset the scales.
        bind: {
          dblclick: () => () => {
            events.onLeaveZoom();
            return null;
          },
        },
      },
      hooks: {
        draw: [(plot) => this.#draw(plot)],
        setCursor: [(plot) => this.#cursorMoved(plot)],
        setSelect: [(plot) => this.#selected(plot, events)],
        setSize: [() => this.#showBand()],
      },
    };
  }

  /** Ticks stand at the beginning of their buckets, half a place before the middle. */
  #timeSplits(): number[] {
    const { series, zone } = this.#content;
    const room = Math.max(2, Math.floor(this.#uplotWidth() / LABEL_WIDTH));
    const ticks = timeTicks(series.starts, zone, room);
    this.#ticks = new Map(ticks.map(({ index, label }) => [index, label]));
    return ticks.map(({ index }) => index - 0.5);
  }

  /** The splits are asked for before the constructor has returned. */
  #uplotWidth(): number {
    return this.#place.clientWidth - 64;
  }

  #draw(plot: uPlot): void {
    const { left, top, width, height } = plot.bbox;
    const [min, max] = verticalRange(this.#content.stack);
    const geometry: Geometry = { left, top, width, height, buckets: this.#buckets, min, max };
    drawStack(plot.ctx, this.#content.stack, geometry, this.#palette, this.#focus);
  }

  #cursorMoved(plot: uPlot): void {
    const { left = -1, idx } = plot.cursor;
    const index = left < 0 || idx == null || idx >= this.#buckets ? null : idx;
    if (index === this.#pointed) return;
    this.#pointed = index;
    this.#showBand();
    this.#events.onPoint(index, index === null ? 0 : plot.over.offsetLeft + plot.valToPos(index, 'x'));
  }

  #showBand(): void {
    const index = this.#pointed;
    this.#band.hidden = index === null;
    if (index === null) return;
    const width = this.#uplot.over.clientWidth / this.#buckets;
    this.#band.style.width = `${Math.max(1, width)}px`;
    this.#band.style.transform = `translateX(${index * width}px)`;
  }

  #selected(plot: uPlot, events: PlotEvents): void {
    const { left, width } = plot.select;
    if (width <= 0) return;
    const bucketAt = (position: number): number =>
      Math.min(this.#buckets - 1, Math.max(0, Math.round(plot.posToVal(position, 'x'))));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    events.onSelect(bucketAt(left), bucketAt(left + width));
  }
}
