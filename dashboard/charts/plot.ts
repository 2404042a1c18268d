/**
 * The chart's canvas: axes, grid, and the stack in one pass, drawn once per change; pointers lie over it. The horizontal
 * axis counts buckets, so that bars are equally wide in a month of 28 days and a day of 25 hours.
 */
import type { Annotation } from '../../src/api-types/answers.ts';
import type { Scale } from '../url.ts';
import { drawAnnotations } from './annotation-marks.ts';
import { type Drawing, type Geometry, heightOf, type Levels, type Range } from './drawing.ts';
import { type Edges, Gestures } from './gestures.ts';
import { readPalette } from './palette.ts';
import { isPartial } from './series-data.ts';
import { timeTicks } from './time-axis.ts';

export interface PlotContent {
  readonly drawing: Drawing;
  readonly zone: string;
  readonly scale: Scale;
  /** First and last of the buckets whose events are listed, and between which heights; null: all are. */
  readonly picked: Range | null;
  readonly pickedHeights?: Range | undefined;
  /** The levels that boxes are drawn by; null: buckets alone are selected. */
  readonly levels?: Levels | null;
  readonly annotations: readonly Annotation[];
}

export interface PlotEvents {
  /** The bucket under the pointer or the keyboard's cursor changed, or the level; null where there is none. */
  readonly onPoint: (index: number | null, left: number, level: number | null) => void;
  readonly onPick: (index: number, level: number | null) => void;
  /** Buckets from first to last were dragged over, and levels. */
  readonly onSelect: (buckets: Range, levels: Range | null) => void;
  /** The chart was panned or zoomed by touch. */
  readonly onMoved: (edges: Edges) => void;
  readonly onLeaveZoom: () => void;
}

/** Space for one label of the time axis, in CSS pixels like all of these. */
const LABEL_WIDTH = 76;
const LINE_HEIGHT = 17;
/** Distance between two grid lines. */
const GRID_SPACE = 44;
/** Around the bars: labels lie to the left and below. */
const ROOM = { top: 10, right: 14, bottom: 44, left: 50 };

export class Plot {
  readonly #place: HTMLElement;
  readonly canvas = document.createElement('canvas');
  /** Exactly over the bars. */
  readonly #over = div('over');
  readonly #band = div('band');
  readonly #cell = div('band cell');
  readonly #picked = div('band picked');
  readonly #selection = div('selection');
  readonly #observer: ResizeObserver;
  readonly #events: PlotEvents;
  #content: PlotContent;
  #palette: ReturnType<typeof readPalette>;
  #focus: string | null = null;
  #pointed: number | null = null;
  #level: number | null = null;
  #edges: Edges = { from: 0, to: 1 };
  #isDue = false;

  constructor(place: HTMLElement, content: PlotContent, events: PlotEvents) {
    this.#place = place;
    this.#content = content;
    this.#events = events;
    this.#palette = readPalette(place);
    this.#over.hidden = false;
    this.#over.append(this.#picked, this.#band, this.#cell, this.#selection);
    place.append(this.canvas, this.#over);
    new Gestures(this.#over, {
      hasLevels: () => Boolean(this.#content.levels),
      onHover: (at, height) => this.point(at === null ? null : this.#bucketAt(at), this.#levelAt(height)),
      onPick: (at, isTouch, height) => {
        if (isTouch) this.point(this.#bucketAt(at), this.#levelAt(height));
        events.onPick(this.#bucketAt(at), this.#levelAt(height));
      },
      onSelecting: (places, heights) =>
        this.select(places && this.#bucketsIn(places), this.#levelsIn(heights)),
      onSelect: (places, heights) => events.onSelect(this.#bucketsIn(places), this.#levelsIn(heights)),
      onMoving: (edges) => this.#move(edges ?? { from: 0, to: 1 }),
      onMoved: events.onMoved,
    });
    this.#over.addEventListener('dblclick', events.onLeaveZoom);
    this.#observer = new ResizeObserver(() => {
      this.#draw();
      this.#showBands();
    });
    this.#observer.observe(place);
    // Labels are drawn in the page's font, which may come later.
    void document.fonts.ready.then(() => this.#redraw());
  }

  get #buckets(): number {
    return Math.max(1, this.#content.drawing.series.starts.length);
  }

  #bucketAt(share: number): number {
    return Math.min(this.#buckets - 1, Math.floor(share * this.#buckets));
  }

  #bucketsIn([first, last]: Range): Range {
    return [this.#bucketAt(first), this.#bucketAt(last)];
  }

  #levelAt(height: number): number | null {
    return this.#content.levels?.at(height) ?? null;
  }

  #levelsIn([low, high]: Range): Range | null {
    const { levels } = this.#content;
    return levels ? [levels.at(low), levels.at(high)] : null;
  }

  /** Other numbers, another zone, or other lines. */
  update(content: PlotContent): void {
    this.#content = content;
    if (this.#pointed !== null && this.#pointed >= this.#buckets) this.#pointed = null;
    this.#redraw();
    // The bucket under the pointer is reported again, with its new numbers.
    this.#tell();
    this.#showBands();
  }

  /** Draws again in the colors of the theme that is on now. */
  recolor(): void {
    this.#palette = readPalette(this.#place);
    this.#redraw();
  }

  /** Lets one layer stand out. */
  focus(key: string | null): void {
    if (key === this.#focus) return;
    this.#focus = key;
    this.#redraw();
  }

  /** Moves the cursor to a bucket, or away. */
  point(index: number | null, level: number | null = null): void {
    if (index === this.#pointed && level === this.#level) return;
    this.#pointed = index;
    this.#level = level;
    this.#showBands();
    this.#tell();
  }

  /** Shows buckets from first to last as selected, and levels; null: none. */
  select(range: Range | null, levels: Range | null): void {
    this.#cover(this.#selection, range, this.#heightsOf(levels));
  }

  #heightsOf(range: Range | null): Range | undefined {
    const { levels } = this.#content;
    return levels && range ? [levels.edge(range[0]), levels.edge(range[1] + 1)] : undefined;
  }

  destroy(): void {
    this.#observer.disconnect();
    this.canvas.remove();
    this.#over.remove();
  }

  /** Once for all changes of a turn. */
  #redraw(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    queueMicrotask(() => {
      this.#isDue = false;
      this.#draw();
    });
  }

  #draw(): void {
    const context = this.canvas.getContext('2d');
    const [width, height] = [this.#place.clientWidth, this.#place.clientHeight];
    if (context === null || width === 0 || height === 0) return;
    const ratio = devicePixelRatio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const area = this.#area(width, height, ratio);
    context.font = `${12 * ratio}px ${getComputedStyle(this.#place).fontFamily}`;
    this.#drawGrid(context, area, ratio);
    this.#drawTimes(context, area, ratio);
    this.#drawData(context, area);
  }

  /** The place of the bars, in device pixels. */
  #area(width: number, height: number, ratio: number): Geometry {
    const { drawing, scale: wanted } = this.#content;
    const [min, max, scale = 'linear'] = drawing.range(wanted);
    return {
      left: Math.round(ROOM.left * ratio),
      top: Math.round(ROOM.top * ratio),
      width: Math.round((width - ROOM.left - ROOM.right) * ratio),
      height: Math.round((height - ROOM.top - ROOM.bottom) * ratio),
      buckets: this.#buckets,
      min,
      max,
      scale,
    };
  }

  #drawGrid(context: CanvasRenderingContext2D, area: Geometry, ratio: number): void {
    const { left, top, width, height } = area;
    // With fewer than three, steps of 1, 2 and 5 may pass over the whole height, which then has no number.
    const most = Math.max(3, Math.floor(height / ratio / GRID_SPACE));
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const [value, text] of this.#content.drawing.ticks(area, most)) {
      const y = Math.round(top + height * (1 - heightOf(value, area)));
      context.fillStyle = this.#palette.grid;
      context.fillRect(left, y, width, Math.max(1, Math.round(ratio)));
      context.fillStyle = this.#palette.text;
      context.fillText(text, left - 8 * ratio, y);
    }
  }

  /** Ticks stand at the beginning of their buckets. */
  #drawTimes(context: CanvasRenderingContext2D, area: Geometry, ratio: number): void {
    const { drawing, zone } = this.#content;
    const { left, top, width, height, buckets } = area;
    const most = Math.max(2, Math.floor(width / ratio / LABEL_WIDTH));
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const { index, label } of timeTicks(drawing.series.starts, zone, most)) {
      const x = Math.round(left + (index / buckets) * width);
      const lines = label.split('\n');
      const half = Math.max(...lines.map((line) => context.measureText(line).width)) / 2;
      // A label that would be cut off at the right edge is left out.
      if (x + half > left + width + ROOM.right * ratio) continue;
      context.fillStyle = this.#palette.grid;
      context.fillRect(x, top + height, Math.max(1, Math.round(ratio)), 4 * ratio);
      context.fillStyle = this.#palette.text;
      lines.forEach((line, i) => {
        context.fillText(line, x, top + height + (8 + i * LINE_HEIGHT) * ratio);
      });
    }
  }

  #drawData(context: CanvasRenderingContext2D, area: Geometry): void {
    const { drawing, annotations } = this.#content;
    const { series } = drawing;
    const { from, to } = this.#edges;
    const zoomed = area.width / (to - from);
    const now = Date.now();
    const partial = series.starts.map((_, index) => index).filter((index) => isPartial(series, index, now));
    context.save();
    context.beginPath();
    context.rect(area.left, area.top, area.width, area.height);
    context.clip();
    const geometry = { ...area, left: area.left - from * zoomed, width: zoomed };
    drawing.draw(context, geometry, this.#palette, { focus: this.#focus, partial });
    drawAnnotations(context, annotations, series, { geometry, palette: this.#palette });
    context.restore();
  }

  #move(edges: Edges): void {
    this.#edges = edges;
    this.point(null);
    this.#redraw();
  }

  #tell(): void {
    const index = this.#pointed;
    const middle = index === null ? 0 : ((index + 0.5) / this.#buckets) * this.#over.clientWidth;
    this.#events.onPoint(index, this.#over.offsetLeft + middle, this.#level);
  }

  #showBands(): void {
    const { picked, pickedHeights } = this.#content;
    const [at, level] = [this.#pointed, this.#level];
    const own: Range | null = at === null ? null : [at, at];
    this.#cover(this.#band, own);
    this.#cover(
      this.#cell,
      level === null ? null : own,
      this.#heightsOf(level === null ? null : [level, level]),
    );
    this.#cover(this.#picked, picked, pickedHeights);
  }

  /** Lays a box over buckets from first to last, or hides it. */
  #cover(box: HTMLElement, range: Range | null, [low, high]: Range = [0, 1]): void {
    box.hidden = range === null;
    if (range === null) return;
    const [first, last] = range;
    const width = this.#over.clientWidth / this.#buckets;
    box.style.width = `${Math.max(1, (last - first + 1) * width)}px`;
    box.style.transform = `translateX(${first * width}px)`;
    box.toggleAttribute('data-boxed', low > 0 || high < 1);
    box.style.insetBlock = `${(1 - high) * 100}% ${low * 100}%`;
  }
}

function div(kind: string): HTMLElement {
  const element = document.createElement('div');
  element.className = kind;
  element.hidden = true;
  return element;
}
