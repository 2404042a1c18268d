/**
 * Charts as pictures in mails: the days of a week beside those of the week before, as bars, or as two lines; or what an alert watches,
 * with its threshold. What a picture says in words is beside it: it has no text, and its ground is transparent, so that it is at home on
 * light and on dark mails.
 */
import { promisify } from 'node:util';
import { crc32, deflate } from 'node:zlib';

/** A number for each day; null where there is none. */
export type Values = readonly (number | null)[];

/** What an alert watches, in parts of equal length. */
export interface CurvePicture {
  /** Its Content-ID. */
  readonly id: string;
  readonly kind: 'curve';
  readonly values: Values;
  /** Below the one, or above the other, it fires. */
  readonly low: Values;
  readonly high: Values;
  readonly fires: readonly boolean[];
}

export interface WeekPicture {
  /** Its Content-ID. */
  readonly id: string;
  readonly kind: 'bars' | 'line';
  readonly days: Values;
  /** The days of the week before. */
  readonly before: Values;
}

export type Picture = WeekPicture | CurvePicture;

/** As mails show it, in CSS pixels. The days have columns of equal width. */
export const PICTURE_WIDTH = 560;
export const PICTURE_HEIGHT = 112;
/** Pixels of the image for one pixel of CSS. */
const SHARPNESS = 2;
const WIDTH = PICTURE_WIDTH * SHARPNESS;
const HEIGHT = PICTURE_HEIGHT * SHARPNESS;

/** Each has a contrast of at least 3 to white, and to the dark grounds of mail programs. */
export const PICTURE_COLORS = { week: '#14899f', before: '#83909a', alert: '#d4553a' } as const;
type Ink = keyof typeof PICTURE_COLORS;
const INKS: readonly Ink[] = ['week', 'before', 'alert'];
/** Steps from transparent to full: edges that are not upright are smooth. */
const STEPS = 15;
const AXIS_STEP = 8;
const AXIS_HEIGHT = 2;
/** Where something is, it can be seen. */
const LEAST_HEIGHT = 3;
/** Parts of a day's column. */
const BARS = { before: { from: 0.2, to: 0.42 }, week: { from: 0.44, to: 0.84 } } as const;
const CORNER = 6;
const LINE_WIDTH = { before: 3, week: 5, alert: 5 } as const;
/** Radius. */
const DOTS = { before: 5, week: 8 } as const;

const compress = promisify(deflate);

/** Draws a picture. Compressing is left to another thread; what remains takes about a millisecond. @returns a PNG */
export async function drawPicture(picture: Picture): Promise<Buffer> {
  const pixels = new Pixels();
  if (picture.kind === 'curve') drawCurve(pixels, picture);
  else drawWeek(pixels, picture);
  return await pixels.png();
}

/** Draws the axis. @returns where a value is, in rows from the top */
function scaleOf(pixels: Pixels, values: Values, dots: number): (value: number) => number {
  const known = [...values, 0].filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  // Dots of a line reach beyond it.
  const bottom = HEIGHT - AXIS_HEIGHT - dots;
  const unit = most === least ? 0 : (bottom - DOTS.week) / (most - least);
  const yOf = (value: number): number => bottom - (value - least) * unit;
  pixels.axis(Math.round(yOf(0)));
  return yOf;
}

function drawCurve(pixels: Pixels, { values, low, high, fires }: CurvePicture): void {
  const yOf = scaleOf(pixels, [...values, ...low, ...high], LINE_WIDTH.week);
  const column = WIDTH / values.length;
  for (const line of [low, high, values]) {
    let last: Point | null = null;
    for (const [at, value] of line.entries()) {
      const point: Point | null = value === null ? null : { x: (at + 0.5) * column, y: yOf(value) };
      const ink = line !== values ? 'before' : fires[at] === true ? 'alert' : 'week';
      if (point !== null && last !== null) pixels.stroke(ink, last, point, LINE_WIDTH[ink]);
      else if (point !== null) pixels.dot(ink, point, LINE_WIDTH[ink] / 2);
      last = point;
    }
  }
}

function drawWeek(pixels: Pixels, { kind, days, before }: WeekPicture): void {
  const yOf = scaleOf(pixels, [...days, ...before], kind === 'bars' ? 0 : DOTS.week);
  const column = WIDTH / days.length;
  for (const [ink, values] of [['before', before] as const, ['week', days] as const]) {
    if (kind === 'bars') {
      const { from, to } = BARS[ink];
      for (const [day, value] of values.entries())
        if (value !== null && value > 0)
          pixels.bar(ink, {
            left: Math.round((day + from) * column),
            right: Math.round((day + to) * column),
            top: Math.min(Math.round(yOf(value)), HEIGHT - AXIS_HEIGHT - LEAST_HEIGHT),
          });
    } else {
      const points = values.map((value, day) =>
        value === null ? null : { x: (day + 0.5) * column, y: yOf(value) },
      );
      for (const [day, point] of points.entries()) {
        const next = points[day + 1] ?? null;
        if (point !== null && next !== null) pixels.stroke(ink, point, next, LINE_WIDTH[ink]);
        if (point !== null) pixels.dot(ink, point, DOTS[ink]);
      }
    }
  }
}

interface Point {
  readonly x: number;
  readonly y: number;
}

/** Palette indexes by row, each row behind the byte that says that it is not filtered (PNG, 9.2). */
class Pixels {
  readonly #rows = new Uint8Array((WIDTH + 1) * HEIGHT);

  /** @param coverage of the pixel, from 0 to 1 */
  #set(ink: Ink, x: number, y: number, coverage: number): void {
    const step = Math.round(Math.min(1, coverage) * STEPS);
    if (step <= 0 || x < 0 || x >= WIDTH || y < 0 || y >= HEIGHT) return;
    const at = y * (WIDTH + 1) + 1 + x;
    const first = INKS.indexOf(ink) * STEPS;
    const own = (this.#rows[at] ?? 0) - first;
    // An edge over the other ink leaves it as it is: mixed, they would need a palette of their own.
    if (own > 0 && own <= STEPS ? own < step : own === -first || step > STEPS / 2)
      this.#rows[at] = first + step;
  }

  /** A part of a row, fully covered. */
  #fill(ink: Ink, y: number, left: number, right: number, step = STEPS): void {
    const row = y * (WIDTH + 1) + 1;
    this.#rows.fill(INKS.indexOf(ink) * STEPS + step, row + left, row + right);
  }

  axis(bottom: number): void {
    for (let y = bottom; y < bottom + AXIS_HEIGHT; y += 1) this.#fill('before', y, 0, WIDTH, AXIS_STEP);
  }

  /** From the axis up, with round upper corners. */
  bar(ink: Ink, { left, right, top }: Readonly<Record<'left' | 'right' | 'top', number>>): void {
    const bottom = HEIGHT - AXIS_HEIGHT;
    const round = top + Math.min(CORNER, bottom - top);
    for (let y = round; y < bottom; y += 1) this.#fill(ink, y, left, right);
    const radius = round - top;
    for (let y = top; y < round; y += 1) {
      this.#fill(ink, y, left + radius, right - radius);
      for (let x = 0; x < radius; x += 1) {
        const coverage = radius + 0.5 - distance(radius - x - 0.5, round - y - 0.5);
        this.#set(ink, left + x, y, coverage);
        this.#set(ink, right - 1 - x, y, coverage);
      }
    }
  }

  /** A line to a point on the right of another one: both have dots. */
  stroke(ink: Ink, from: Point, to: Point, width: number): void {
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    // How far a pixel is from the line, for each pixel that it is above or below.
    const cosine = dx / distance(dx, dy);
    const reach = (width / 2 + 1) / cosine;
    for (let x = Math.floor(from.x); x < to.x; x += 1) {
      const middle = from.y + ((x + 0.5 - from.x) / dx) * dy;
      for (let y = Math.floor(middle - reach); y <= middle + reach; y += 1)
        this.#set(ink, x, y, (width + 1) / 2 - Math.abs(y + 0.5 - middle) * cosine);
    }
  }

  dot(ink: Ink, { x, y }: Point, radius: number): void {
    for (let row = Math.floor(y - radius); row <= y + radius; row += 1)
      for (let column = Math.floor(x - radius); column <= x + radius; column += 1)
        this.#set(ink, column, row, radius + 0.5 - distance(column + 0.5 - x, row + 0.5 - y));
  }

  /** As an indexed PNG: a palette of both inks in {@link STEPS} opacities, behind a transparent one. */
  async png(): Promise<Buffer> {
    const header = Buffer.alloc(13);
    header.writeUInt32BE(WIDTH, 0);
    header.writeUInt32BE(HEIGHT, 4);
    // Bits of an index, and that it is one.
    header.set([8, 3], 8);
    const colors = INKS.flatMap((ink) => Array.from({ length: STEPS }, () => PICTURE_COLORS[ink].slice(1)));
    const opacities = INKS.flatMap(() =>
      Array.from({ length: STEPS }, (_, step) => Math.round(((step + 1) / STEPS) * 255)),
    );
    return Buffer.concat([
      Buffer.from('89504e470d0a1a0a', 'hex'),
      chunk('IHDR', header),
      chunk('PLTE', Buffer.from(`000000${colors.join('')}`, 'hex')),
      chunk('tRNS', Buffer.from([0, ...opacities])),
      chunk('IDAT', await compress(this.#rows)),
      chunk('IEND', Buffer.alloc(0)),
    ]);
  }
}

function distance(x: number, y: number): number {
  return Math.sqrt(x * x + y * y);
}

/** Length, name, data, and the check of the latter two (PNG, 5.3). */
function chunk(name: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name, 'latin1'), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, check]);
}
