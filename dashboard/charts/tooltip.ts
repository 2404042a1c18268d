/** What the chart says about one bucket: beside the pointer, written straight to the DOM, since it moves every frame. */
import type { Series } from '../answers.ts';
import { bucketSpan, count } from '../format.ts';
import { bucketEnd, type Line, type Stack, valueAt } from './series-data.ts';

/** Of the whole box, in CSS pixels: the same for every bucket, so that it does not flicker as names come and go. */
const WIDTH = 300;
/** Rows beyond it would cover the chart. */
const MOST_ROWS = 12;

export class Tooltip {
  readonly #element: HTMLElement;

  constructor(place: HTMLElement) {
    this.#element = document.createElement('div');
    this.#element.className = 'tooltip';
    this.#element.hidden = true;
    // Screen readers get the same as a sentence, when they ask for it with the arrow keys.
    this.#element.ariaHidden = 'true';
    place.append(this.#element);
  }

  hide(): void {
    this.#element.hidden = true;
  }

  /** @param left the bucket's middle, in CSS pixels from the chart's left edge */
  show(series: Series, stack: Stack, index: number, left: number, zone: string, now: number): void {
    const element = this.#element;
    // Measured before anything changes, so that nothing is laid out twice in a frame.
    const room = element.parentElement?.clientWidth ?? 0;
    const start = series.starts[index] ?? 0;
    const end = bucketEnd(series, index);
    const rows = linesAt(stack, index).slice(0, MOST_ROWS);
    element.replaceChildren(
      text('div', 'when', bucketSpan(start, end, series.bucket, zone)),
      ...rows.map(({ line, value }) => row(`swatch c${line.colour}`, line.name, value)),
      row('', stack.mode === 'accumulated' ? 'Total by then' : 'Total', totalAt(stack, index)),
      ...(end > now ? [text('div', 'note', 'Still being counted')] : []),
      ...(start < (series.countsOnlyBefore ?? 0)
        ? [text('div', 'note', 'Counts only: its events were removed')]
        : []),
    );
    element.hidden = false;
    const width = Math.min(WIDTH, room);
    const beside = left + 16 + width <= room ? left + 16 : left - 16 - width;
    const place = Math.max(0, Math.min(beside, room - width));
    element.style.width = `${width}px`;
    element.style.transform = `translateX(${place}px)`;
  }
}

/** The lines that have something at this bucket, as they lie from the top down. */
function linesAt(stack: Stack, index: number): { line: Line; value: number }[] {
  return stack.layers
    .map((line) => ({ line, value: valueAt(line, index, stack.mode) }))
    .filter(({ value }) => value > 0)
    .reverse();
}

function totalAt(stack: Stack, index: number): number {
  return stack.edges.at(-1)?.[stack.mode === 'accumulated' ? index + 1 : index] ?? 0;
}

/** The bucket as a sentence. */
export function bucketSentence(series: Series, stack: Stack, index: number, zone: string): string {
  const when = bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone);
  const lines = linesAt(stack, index).map(({ line, value }) => `${line.name} ${count(value)}`);
  const total = `${count(totalAt(stack, index))} ${stack.mode === 'accumulated' ? 'in all by then' : 'in all'}`;
  return [`${when}: ${total}`, ...lines].join(', ');
}

function text(tag: string, kind: string, content: string): HTMLElement {
  const element = document.createElement(tag);
  element.className = kind;
  element.textContent = content;
  return element;
}

function row(swatch: string, name: string, value: number): HTMLElement {
  const element = text('div', swatch === '' ? 'row total' : 'row', '');
  element.append(text('i', swatch, ''), text('span', 'name', name), text('b', '', count(value)));
  return element;
}
