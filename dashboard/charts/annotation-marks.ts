/** Annotations on a chart: a line at an instant, a band over an interval, each with a flag at the upper edge. */
import type { Annotation, Series } from '../../src/api-types/answers.ts';
import { across, type Geometry, type Palette } from './drawing.ts';
import { bucketEnd } from './series-data.ts';

/** Side of a flag, in CSS pixels. */
const FLAG = 7;

export function drawAnnotations(
  context: CanvasRenderingContext2D,
  annotations: readonly Annotation[],
  series: Series,
  { geometry, palette }: { readonly geometry: Geometry; readonly palette: Palette },
): void {
  const ratio = devicePixelRatio;
  const { top, height } = geometry;
  for (const { kind, at, until } of annotations) {
    const from = Math.round(across(geometry, placeOf(series, Date.parse(at))));
    const color = kind === 'incident' ? palette.incident : palette.line;
    context.fillStyle = color;
    if (until !== null) {
      const to = Math.max(from + ratio, across(geometry, placeOf(series, Date.parse(until))));
      context.globalAlpha = 0.12;
      context.fillRect(from, top, to - from, height);
      context.globalAlpha = 1;
      context.fillRect(from, top, to - from, 2 * ratio);
    }
    context.globalAlpha = 0.75;
    context.fillRect(from, top, Math.max(1, Math.round(ratio)), height);
    context.globalAlpha = 1;
    context.beginPath();
    context.moveTo(from, top);
    context.lineTo(from + FLAG * ratio, top);
    context.lineTo(from, top + FLAG * ratio);
    context.fill();
  }
}

/** Where an instant is, in buckets from the left: buckets are equally wide, however long they last. */
function placeOf(series: Series, instant: number): number {
  const { starts, end } = series;
  if (instant <= (starts[0] ?? end)) return 0;
  if (instant >= end) return starts.length;
  const next = starts.findIndex((start) => start > instant);
  const index = (next < 0 ? starts.length : next) - 1;
  const start = starts[index] ?? end;
  return index + (instant - start) / (bucketEnd(series, index) - start);
}

/** The annotations that touch a bucket. */
export function annotationsAt(
  annotations: readonly Annotation[],
  series: Series,
  index: number,
): readonly Annotation[] {
  const [from, to] = [series.starts[index] ?? series.end, bucketEnd(series, index)];
  return annotations.filter(({ at, until }) => Date.parse(at) < to && Date.parse(until ?? at) >= from);
}
