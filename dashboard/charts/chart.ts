/** The chart as a part of a page: pointer, keyboard and screen reader get the same numbers. */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { bucketName, spanText } from '../format.ts';
import { html } from '../html.ts';
import { useLatest } from '../latest.ts';
import { theme } from '../state.ts';
import type { Drawing, Range } from './drawing.ts';
import type { Edges } from './gestures.ts';
import { Plot, type PlotContent } from './plot.ts';
import { bucketSentence, Tooltip } from './tooltip.ts';

export interface ChartProps extends PlotContent {
  /** Takes what the chart is drawn on. */
  readonly canvas: { current: HTMLCanvasElement | null };
  /** Key of the line that stands out. */
  readonly focus: string | null;
  readonly onZoom: (first: number, last: number) => void;
  readonly onLeaveZoom: () => void;
  /** The events of a bucket are to be listed; null: all again. */
  readonly onPick: (index: number | null) => void;
  /** The events of a box of buckets and levels are to be listed. */
  readonly onBox?: (buckets: Range, levels: Range, isDrawn: boolean) => void;
  /** A bucket is to be annotated; null for those who may not. */
  readonly onAnnotate: ((index: number) => void) | null;
  /** The pointer or the keyboard has come to a bucket; null: it has left. */
  readonly onPoint: (index: number | null) => void;
  readonly onMoved: (edges: Edges) => void;
}

export default function Chart(props: ChartProps): VNode {
  const { drawing, zone, focus, scale, picked, pickedHeights, annotations, levels } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  const tooltip = useRef<Tooltip | null>(null);
  /** The latest props for the plot's handlers: the plot outlives renders. */
  const latest = useLatest(props);
  const cursor = useKeyboardCursor(latest, plot);
  /** The bucket below the pointer, or at the cursor of the keyboard. */
  const pointed = useRef<number | null>(null);

  useEffect(() => {
    if (place.current === null) return;
    const made = new Tooltip(place.current.parentElement ?? place.current);
    tooltip.current = made;
    plot.current = new Plot(place.current, props, {
      onPoint: (index, left, level) => {
        if (index === null) made.hide();
        else made.show(latest.current, index, left, Date.now(), level);
        pointed.current = index;
        latest.current.onPoint(index);
      },
      onPick: (index, level) => {
        const { onPick, onBox } = latest.current;
        if (level === null) onPick(index);
        else onBox?.([index, index], [level, level], false);
      },
      onSelect: (buckets, rows) => {
        const { onZoom, onBox } = latest.current;
        if (rows === null) onZoom(...buckets);
        else onBox?.(buckets, rows, true);
      },
      onMoved: (edges) => latest.current.onMoved(edges),
      onLeaveZoom: () => latest.current.onLeaveZoom(),
    });
    props.canvas.current = plot.current.canvas;
    return () => plot.current?.destroy();
  }, []);

  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) plot.current?.update(props);
    isFirst.current = false;
  }, [drawing, zone, scale, String([picked, pickedHeights]), annotations]);
  useEffect(() => plot.current?.focus(focus), [focus]);
  useEffect(() => plot.current?.recolor(), [theme.value]);
  useEffect(() => {
    const recolor = (): void => plot.current?.recolor();
    const media = ['(prefers-color-scheme: dark)', '(forced-colors: active)', 'print'].map((query) =>
      matchMedia(query),
    );
    for (const query of media) query.addEventListener('change', recolor);
    return () => {
      for (const query of media) query.removeEventListener('change', recolor);
    };
  }, []);

  const annotate = (event: KeyboardEvent | MouseEvent): void => {
    const { onAnnotate } = latest.current;
    if (pointed.current === null || onAnnotate === null || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    onAnnotate(pointed.current);
  };
  const name = chartName(drawing, zone);
  return html`<div
    class="plot"
    tabindex="0"
    role="application"
    aria-roledescription="chart"
    aria-label=${`${name}. Arrow keys read the ${levels ? 'cells' : 'bars'}, Shift with them selects, Space lists the events of ${levels ? 'what is selected' : 'a bar'}, Enter zooms in, Backspace goes back.`}
    data-buckets=${drawing.series.starts.length}
    onKeyDown=${(event: KeyboardEvent) => (event.key === 'a' ? annotate(event) : cursor.onKeyDown(event))}
    onContextMenu=${annotate}
    onPointerDown=${cursor.leave}
    onBlur=${cursor.leave}
  >
    <div class="plot-area" ref=${place}></div>
    <div class="sr-only" aria-live="polite">${cursor.spoken}</div>
  </div>`;
}

/** `Events per hour by event type, 19 Nov 2026, 14:00 – 20 Nov 2026, 14:00` */
export function chartName({ series, name, isApart, by }: Drawing, zone: string): string {
  const { from, until } = series.interval;
  const lines = isApart ? ` by ${by ?? 'event type'}` : '';
  return `${name} per ${bucketName(series.bucket)}${lines}, ${spanText(from, until, zone)}`;
}

interface KeyboardCursor {
  readonly spoken: string;
  readonly onKeyDown: (event: KeyboardEvent) => void;
  readonly leave: () => void;
}

const MOVES: Record<string, (index: number, last: number) => number> = {
  ArrowLeft: (index) => index - 1,
  ArrowRight: (index) => index + 1,
  PageUp: (index) => index - 10,
  PageDown: (index) => index + 10,
  Home: () => 0,
  End: (_index, last) => last,
};

const RISES: Readonly<Record<string, number>> = { ArrowUp: 1, ArrowDown: -1 };

/**
 * Arrow keys move between buckets and announce them; with Shift they select, Space picks, and Enter zooms. A press of the
 * pointer ends that.
 */
function useKeyboardCursor(
  latest: { readonly current: ChartProps },
  plot: { readonly current: Plot | null },
): KeyboardCursor {
  const [spoken, setSpoken] = useState('');
  const at = useRef<number | null>(null);
  const anchor = useRef<number | null>(null);
  /** The level that is read, and where the selection began. */
  const level = useRef<number | null>(null);
  const foot = useRef<number | null>(null);

  const between = (a: number | null, b: number | null): Range | null =>
    a === null || b === null ? null : [Math.min(a, b), Math.max(a, b)];
  const selection = (): Range | null => between(anchor.current, at.current);
  const leave = (): void => {
    if (at.current === null) return;
    at.current = anchor.current = level.current = foot.current = null;
    setSpoken('');
    plot.current?.select(null, null);
    plot.current?.point(null);
  };
  const move = (next: (index: number, last: number) => number, extend: boolean, rise = 0): void => {
    const { drawing, levels } = latest.current;
    const last = drawing.series.starts.length - 1;
    // The first step reads the newest bucket, whichever way it goes.
    const from = at.current;
    const index = from === null ? last : Math.min(last, Math.max(0, next(from, last)));
    const before = level.current ?? levels?.first(index) ?? null;
    if (levels && before !== null) level.current = Math.min(levels.last, Math.max(0, before + rise));
    if (extend) {
      anchor.current ??= from ?? index;
      foot.current ??= before;
    } else anchor.current = foot.current = null;
    at.current = index;
    plot.current?.point(index, level.current);
    plot.current?.select(selection(), between(foot.current, level.current));
    setSpoken(`${bucketSentence(latest.current, index, level.current)}${extend ? ', selected' : ''}`);
  };
  return {
    spoken,
    leave,
    onKeyDown: (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const next = MOVES[event.key];
      const rise = latest.current.levels && RISES[event.key];
      if (next !== undefined) move(next, event.shiftKey);
      else if (rise) move((index) => index, event.shiftKey, rise);
      else if (event.key === 'Enter' && at.current !== null) {
        const [first, last] = selection() ?? [at.current, at.current];
        leave();
        latest.current.onZoom(first, last);
      } else if (event.key === ' ' && at.current !== null) {
        const [bucket, own] = [at.current, level.current];
        const levels = between(foot.current ?? own, own);
        if (levels === null) latest.current.onPick(bucket);
        else latest.current.onBox?.(selection() ?? [bucket, bucket], levels, anchor.current !== null);
      } else if (event.key === 'Backspace') latest.current.onLeaveZoom();
      else if (event.key === 'Escape' && at.current !== null) leave();
      else if (event.key === 'Escape' && latest.current.picked !== null) latest.current.onPick(null);
      else return;
      event.preventDefault();
    },
  };
}
