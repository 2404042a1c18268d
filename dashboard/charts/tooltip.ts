/** The tooltip of a bucket, next to the pointer. Writes to the DOM directly, because it moves every frame. */

import type { Series } from '../../src/api-types/answers.ts';
import { bucketSpan, change, clock, count, dayMonth, month, spanText, year } from '../format.ts';
import { annotationsAt } from './annotation-marks.ts';
import type { Curve } from './curve.ts';
import type { PlotContent } from './plot.ts';
import {
  bucketEnd,
  comparedPlaces,
  countedPart,
  isPartial,
  type Line,
  type Stack,
  shortNames,
  valueAt,
} from './series-data.ts';

/** Of the whole box, in CSS pixels: the same for every bucket, so that it does not flicker as names come and go. */
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

  /** @param left the bucket's middle, in CSS pixels from the chart's left edge */
  show(content: PlotContent, index: number, left: number, now: number): void {
    const { series, zone } = content;
    const element = this.#element;
    // Measured before anything changes, so that nothing is laid out twice in a frame.
    const room = element.parentElement?.clientWidth ?? 0;
    element.replaceChildren(
      text(
        'div',
        'when',
        bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone),
      ),
      ...(content.curve === null ? countRows(content, index) : curveRows(content.curve, series, index)),
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

function countRows({ series, stack, found }: PlotContent, index: number): HTMLElement[] {
  const isWhole = stack.mode !== 'histogram' || totalAt(stack, index) >= (series.all[index] ?? 0);
  const rows = linesAt(stack, index).slice(0, MOST_ROWS);
  const names = shortNames(
    rows.map(({ line }) => line.name),
    NAME_LENGTH,
  );
  const total = totalAt(stack, index);
  return [
    row(
      '',
      found !== null ? 'All, before the filter' : isWhole ? TOTALS[stack.mode] : 'Lines drawn',
      count(total),
    ),
    ...rows.map(({ line, value }, i) => row(`swatch c${line.color}`, names[i] ?? '', count(value))),
    ...comparedRow(series, stack, index, total),
    ...(found === null ? [] : [row('swatch found', 'Found so far', count(found[index] ?? 0))]),
  ];
}

function curveRows(
  { name, values, compared, text: textOf, lines }: Curve,
  series: Series,
  index: number,
): HTMLElement[] {
  const value = values[index] ?? null;
  const before = compared?.values[index] ?? null;
  const drawn = lines
    .flatMap((line) => {
      const own = line.values[index] ?? null;
      return own === null || !line.shown ? [] : [{ line, own }];
    })
    .sort((a, b) => b.own - a.own)
    .slice(0, MOST_ROWS);
  const names = shortNames(
    drawn.map(({ line }) => line.name),
    NAME_LENGTH,
  );
  return [
    row('', name, value === null ? 'none' : textOf(value)),
    ...drawn.map(({ line, own }, i) => row(`swatch c${line.color}`, names[i] ?? '', textOf(own))),
    ...(before === null ? [] : [row('dashes', comparedName(series, index), textOf(before))]),
    row('swatch', 'Events', count(series.all[index] ?? 0)),
  ];
}

const TOTALS = { histogram: 'Total', accumulated: 'Accumulated', running: 'Total so far' } as const;

function comparedRow(series: Series, { ghost, mode }: Stack, index: number, total: number): HTMLElement[] {
  const before = ghost?.[mode === 'histogram' ? index : index + 1];
  if (before === undefined) return [];
  const changed = change(total, before);
  return [
    row('dashes', `${comparedName(series, index)}${changed === null ? '' : ` · ${changed}`}`, count(before)),
  ];
}

/** When the bucket begins that a bucket is compared with. */
function comparedName(series: Series, index: number): string {
  const { compared, bucket, timezone } = series;
  if (compared?.interval == null) return 'Compared';
  if (last?.series !== series) last = { series, places: comparedPlaces(series) ?? [] };
  const start = compared.starts[last.places[index] ?? -1];
  if (start === undefined) return 'Compared';
  if (bucket === '1mo') return `${month(start, timezone)} ${year(start, timezone)}`;
  return `${dayMonth(start, timezone)}${/[dw]$/.test(bucket) ? '' : ` ${clock(start, timezone)}`}`;
}

/** Of the series that the tooltip was shown of last: a pointer that moves asks for the same again. */
let last: { readonly series: Series; readonly places: readonly (number | undefined)[] } | null = null;

/** Notes about a bucket: whether it is partial, and its annotations. */
function notesOf({ series, zone, annotations }: PlotContent, index: number, now: number): string[] {
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

/** The lines that have something at this bucket, the most first. */
function linesAt(stack: Stack, index: number): { line: Line; value: number }[] {
  return stack.layers
    .map((line) => ({ line, value: valueAt(line, index, stack.mode) }))
    .filter(({ value }) => value > 0)
    .sort((a, b) => b.value - a.value);
}

function totalAt(stack: Stack, index: number): number {
  return stack.total[stack.mode === 'histogram' ? index : index + 1] ?? 0;
}

/** The bucket as a sentence. */
export function bucketSentence(content: PlotContent, index: number): string {
  const { series, stack, curve, zone } = content;
  const when = bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone);
  const value = curve?.values[index] ?? null;
  if (curve !== null)
    return [
      `${when}: ${curve.name} ${value === null ? 'none' : curve.text(value)}`,
      ...curve.lines.flatMap(({ name, values: own, shown }) =>
        shown && own[index] != null ? [`${name} ${curve.text(own[index])}`] : [],
      ),
      ...notesOf(content, index, Date.now()),
    ].join(', ');
  const lines = linesAt(stack, index).map(({ line, value }) => `${line.name} ${count(value)}`);
  const total = `${count(totalAt(stack, index))} ${stack.mode === 'histogram' ? 'in all' : 'in all by then'}`;
  return [`${when}: ${total}`, ...lines, ...notesOf(content, index, Date.now())].join(', ');
}

function text(tag: string, kind: string, content: string): HTMLElement {
  const element = document.createElement(tag);
  element.className = kind;
  element.textContent = content;
  return element;
}

function row(swatch: string, name: string, value: string): HTMLElement {
  const element = text('div', swatch === '' ? 'row total' : 'row', '');
  element.append(text('i', swatch, ''), text('span', 'name', name), text('b', '', value));
  return element;
}
