/** What pointers do over a chart: a mouse reads, picks and drags over bars; fingers pick, pan and zoom. */
import type { Range } from './drawing.ts';

export interface GestureEvents {
  /** The mouse rests on a position, as a share of the width; null: it has left. Heights are shares too, from below. */
  readonly onHover: (place: number | null, height: number) => void;
  /** A click, or a tap. */
  readonly onPick: (place: number, isTouch: boolean, height: number) => void;
  /** What is being selected by a drag; null: the drag has ended. */
  readonly onSelecting: (places: Range | null, heights: Range) => void;
  readonly onSelect: (places: Range, heights: Range) => void;
  /** Fingers pan or zoom the chart; null: they have stopped. `from` and `to` are the new edges. */
  readonly onMoving: (edges: Edges | null) => void;
  readonly onMoved: (edges: Edges) => void;
}

/** The edges of a panned or zoomed chart; 0 and 1 before. */
export interface Edges {
  readonly from: number;
  readonly to: number;
}

/** Movement below this many pixels is a click. */
const UNSTEADY = 6;

interface Finger {
  readonly start: number;
  now: number;
}

export class Gestures {
  readonly #element: HTMLElement;
  readonly #events: GestureEvents;
  /** Where a drag of the mouse began; null if there is none. */
  #start: number | null = null;
  /** At which height. */
  #foot = 0;
  #isDrag = false;
  readonly #fingers = new Map<number, Finger>();
  #edges: Edges | null = null;

  constructor(element: HTMLElement, events: GestureEvents) {
    this.#element = element;
    this.#events = events;
    element.addEventListener('pointerdown', (event) => this.#down(event));
    element.addEventListener('pointermove', (event) => this.#move(event));
    element.addEventListener('pointerup', (event) => this.#up(event));
    element.addEventListener('pointercancel', () => this.cancel());
    element.addEventListener('pointerleave', () => {
      if (this.#start === null) events.onHover(null, 0);
    });
  }

  /** Cancels the gesture. @returns whether there was one */
  readonly cancel = (): boolean => {
    const isActive = this.#start !== null || this.#fingers.size > 0;
    this.#start = null;
    this.#isDrag = false;
    this.#fingers.clear();
    this.#edges = null;
    removeEventListener('keydown', this.#escape, true);
    if (isActive) {
      this.#events.onSelecting(null, [0, 1]);
      this.#events.onMoving(null);
    }
    return isActive;
  };

  /** Listens in the capture phase: while a drag is active, Escape cancels it and does nothing else. */
  readonly #escape = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    event.preventDefault();
    this.cancel();
  };

  #place(event: PointerEvent): number {
    const { left, width } = this.#element.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / Math.max(1, width)));
  }

  #height(event: PointerEvent): number {
    const { bottom, height } = this.#element.getBoundingClientRect();
    return Math.min(1, Math.max(0, (bottom - event.clientY) / Math.max(1, height)));
  }

  #heights(event: PointerEvent): Range {
    const height = this.#height(event);
    return [Math.min(this.#foot, height), Math.max(this.#foot, height)];
  }

  #down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#element.setPointerCapture(event.pointerId);
    addEventListener('keydown', this.#escape, true);
    if (event.pointerType === 'touch') {
      // Fingers that are down already go on from where they are.
      for (const [id, { now }] of this.#fingers) this.#fingers.set(id, { start: now, now });
      this.#fingers.set(event.pointerId, { start: event.clientX, now: event.clientX });
    } else {
      this.#start = event.clientX;
      this.#foot = this.#height(event);
      this.#isDrag = false;
    }
  }

  #move(event: PointerEvent): void {
    if (event.pointerType === 'touch') {
      this.#moveFinger(event);
      return;
    }
    this.#events.onHover(this.#place(event), this.#height(event));
    if (this.#start === null) return;
    this.#isDrag ||= Math.abs(event.clientX - this.#start) >= UNSTEADY;
    if (this.#isDrag) this.#events.onSelecting(this.#selection(event, this.#start), this.#heights(event));
  }

  #selection(event: PointerEvent, start: number): [number, number] {
    const { left, width } = this.#element.getBoundingClientRect();
    const begin = Math.min(1, Math.max(0, (start - left) / width));
    const end = this.#place(event);
    return [Math.min(begin, end), Math.max(begin, end)];
  }

  #moveFinger(event: PointerEvent): void {
    const finger = this.#fingers.get(event.pointerId);
    if (finger === undefined) return;
    finger.now = event.clientX;
    const fingers = [...this.#fingers.values()];
    if (this.#edges === null && !fingers.some(({ start, now }) => Math.abs(now - start) >= UNSTEADY)) return;
    this.#edges = this.#edgesOf(fingers);
    this.#events.onMoving(this.#edges);
  }

  /** The edges for which each finger stays on its position in the chart. */
  #edgesOf(fingers: readonly Finger[]): Edges {
    const { left, width } = this.#element.getBoundingClientRect();
    const middle = (at: (finger: Finger) => number): number =>
      fingers.reduce((sum, finger) => sum + at(finger), 0) / fingers.length - left;
    const spread = (at: (finger: Finger) => number): number => {
      const all = fingers.map(at);
      return Math.max(...all) - Math.min(...all);
    };
    const scale =
      fingers.length < 2
        ? 1
        : spread(({ now }) => now) /
          Math.max(
            20,
            spread(({ start }) => start),
          );
    const zoom = Math.min(20, Math.max(0.1, scale));
    const [before, now] = [middle(({ start }) => start), middle((finger) => finger.now)];
    return { from: (before - now / zoom) / width, to: (before + (width - now) / zoom) / width };
  }

  #up(event: PointerEvent): void {
    if (event.pointerType === 'touch') {
      const edges = this.#edges;
      const wasKnown = this.#fingers.delete(event.pointerId);
      if (!wasKnown || this.#fingers.size > 0) return;
      this.cancel();
      if (edges !== null) this.#events.onMoved(edges);
      else this.#events.onPick(this.#place(event), true, this.#height(event));
      this.#events.onMoving(null);
      return;
    }
    const [start, isDrag] = [this.#start, this.#isDrag];
    this.cancel();
    if (start === null) return;
    if (isDrag) this.#events.onSelect(this.#selection(event, start), this.#heights(event));
    else this.#events.onPick(this.#place(event), false, this.#height(event));
  }
}
