/** The tooltip of a bucket, next to the pointer. Writes to the DOM directly, because it moves every frame. */

import type { Series } from '../../src/api-types/answers.ts';
import { bucketSpan, clock, spanText } from '../format.ts';
import { annotationsAt } from './annotation-marks.ts';
import type { Row } from './drawing.ts';
import type { PlotContent } from './plot.ts';
import { bucketEnd, countedPart, isPartial, shortNames } from './series-data.ts';

/** Width of the whole box, in CSS pixels: the same for every bucket, so that it does not flicker as names come and go. */
const WIDTH = 300;
/** Rows beyond it would cover the chart. */
const MOST_ROWS = 12;
const NAME_LENGTH = 30;
/** Annotations of one bucket; the list below the chart has all. */
const MOST_NOTES = 4;

export class Tooltip {
  readonly #element: HTMLElement;

  constructor(place: HTMLElement) {
    this.#element = document.createElement('div');
    this.#element.className = 'tooltip raised';
    this.#element.hidden = true;
    // Screen readers get the same as a sentence, when they ask for it with the arrow keys.
    this.#element.ariaHidden = 'true';
    place.append(this.#element);
  }

  hide(): void {
    this.#element.hidden = true;
  }

  /** @param left the bucket's middle, in CSS pixels from the chart's left edge @param level the one under the pointer */
  show(content: PlotContent, index: number, left: number, now: number, level: number | null): void {
    const { drawing, zone } = content;
    const { whole, lines, more } = drawing.rowsAt(index, level);
    const shown = lines.slice(0, MOST_ROWS);
    const names = shortNames(
      shown.map(([, name]) => name),
      NAME_LENGTH,
    );
    const element = this.#element;
    // Measured before anything changes, so that nothing is laid out twice in a frame.
    const room = element.parentElement?.clientWidth ?? 0;
    element.replaceChildren(
      text('div', 'when', spanOf(drawing.series, index, zone)),
      row(whole),
      ...shown.map(([color, , value], i) => row([color, names[i] ?? '', value])),
      ...more.flatMap((one) => (one ? row(one) : [])),
      ...notesOf(content, index, now).map((note) => text('div', 'note', note)),
    );
    element.hidden = false;
    const width = Math.min(WIDTH, room);
    const beside = left + 16 + width <= room ? left + 16 : left - 16 - width;
    const place = Math.max(0, Math.min(beside, room - width));
    element.style.width = `${width}px`;
    element.style.transform = `translateX(${place}px)`;
  }
}

/** Notes about a bucket: whether it is partial, and its annotations. */
function notesOf(
  { drawing: { series }, zone, annotations }: PlotContent,
  index: number,
  now: number,
): string[] {
  const start = series.starts[index] ?? 0;
  const { from, to } = countedPart(series, index);
  const notes = annotationsAt(annotations, series, index)
    .slice(0, MOST_NOTES)
    .map(({ at, text: what }) => `${clock(Date.parse(at), zone)} ${what}`);
  if (from > start || (to < bucketEnd(series, index) && to <= now))
    notes.push(`Only a part of it: ${spanText(from, to, zone)}`);
  if (isPartial(series, index, now) && bucketEnd(series, index) > now) notes.push('Still being counted');
  if (start < (series.countsOnlyBefore ?? 0)) notes.push('Counts only: its events were removed');
  return notes;
}

/** The bucket as a sentence, with one of its levels. */
export function bucketSentence(content: PlotContent, index: number, level: number | null): string {
  const { drawing, zone } = content;
  const { spoken, lines } = drawing.rowsAt(index, level);
  return [
    `${spanOf(drawing.series, index, zone)}: ${spoken}`,
    ...lines.map(([, name, value]) => `${name} ${value}`),
    ...notesOf(content, index, Date.now()),
  ].join(', ');
}

const spanOf = (series: Series, index: number, zone: string): string =>
  bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone);

function text(tag: string, kind: string, content: string): HTMLElement {
  const element = document.createElement(tag);
  element.className = kind;
  element.textContent = content;
  return element;
}

function row([of, name, value]: Row): HTMLElement {
  const element = text('div', of === '' ? 'row total' : 'row', '');
  const sign =
    of === 'dashes'
      ? 'dashes'
      : of === 'found'
        ? 'swatch found'
        : of === 'events'
          ? 'swatch'
          : `swatch c${of}`;
  element.append(text('i', sign, ''), text('span', 'name', name), text('b', '', value));
  return element;
}
