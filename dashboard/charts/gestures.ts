/**
 * What pointers do over a chart: a mouse reads, picks and drags over bars; fingers pick, pan and zoom, and drag over cells once one has
 * rested.
 */
import type { Range } from './drawing.ts';

export interface GestureEvents {
  /** Whether heights are selected too: then a drag may be upright, and a finger that rests begins one. */
  readonly hasLevels: () => boolean;
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
/** A finger that has rested for so long selects: sooner than a browser opens a menu. */
const REST_MS = 350;

interface Finger {
  readonly start: number;
  now: number;
  /** Where it came down. */
  readonly y: number;
}

export class Gestures {
  readonly #element: HTMLElement;
  readonly #events: GestureEvents;
  /** With what a drag of the mouse, or of a finger that has rested, began; null if there is none. */
  #start: PointerEvent | null = null;
  #isDrag = false;
  #rest: ReturnType<typeof setTimeout> | undefined;
  readonly #fingers = new Map<number, Finger>();
  #edges: Edges | null = null;

  constructor(element: HTMLElement, events: GestureEvents) {
    this.#element = element;
    this.#events = events;
    element.addEventListener('pointerdown', (event) => this.#down(event));
    element.addEventListener('pointermove', (event) => this.#move(event));
    element.addEventListener('pointerup', (event) => this.#up(event));
    element.addEventListener('pointercancel', () => this.cancel());
    // The page stays where it is, and has no menu, while a finger selects.
    for (const name of ['touchmove', 'contextmenu'])
      element.addEventListener(name, (event) => this.#keep(event), { passive: false });
    element.addEventListener('pointerleave', () => {
      if (this.#start === null) events.onHover(null, 0);
    });
  }

  /** Cancels the gesture. @returns whether there was one */
  readonly cancel = (): boolean => {
    const isActive = this.#start !== null || this.#fingers.size > 0;
    this.#start = null;
    this.#isDrag = false;
    clearTimeout(this.#rest);
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

  /** Places and heights between the start of a drag and where it is now. */
  #selection(start: PointerEvent, event: PointerEvent): readonly [places: Range, heights: Range] {
    const between = (one: number, other: number): Range => [Math.min(one, other), Math.max(one, other)];
    return [
      between(this.#place(start), this.#place(event)),
      between(this.#height(start), this.#height(event)),
    ];
  }

  #isMoved(start: PointerEvent, event: PointerEvent): boolean {
    if (Math.abs(event.clientX - start.clientX) >= UNSTEADY) return true;
    return this.#events.hasLevels() && Math.abs(event.clientY - start.clientY) >= UNSTEADY;
  }

  #keep(event: Event): void {
    if (this.#start?.pointerType !== 'touch') return;
    event.preventDefault();
    event.stopPropagation();
  }

  #down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#element.setPointerCapture(event.pointerId);
    addEventListener('keydown', this.#escape, true);
    if (event.pointerType !== 'touch') {
      this.#start = event;
      this.#isDrag = false;
      return;
    }
    // While one finger selects, others do nothing.
    if (this.#start !== null) return;
    // Fingers that are down already go on from where they are.
    for (const [id, { now, y }] of this.#fingers) this.#fingers.set(id, { start: now, now, y });
    const { clientX, clientY } = event;
    this.#fingers.set(event.pointerId, { start: clientX, now: clientX, y: clientY });
    clearTimeout(this.#rest);
    if (this.#fingers.size === 1 && this.#events.hasLevels())
      this.#rest = setTimeout(() => this.#select(event), REST_MS);
  }

  /** A finger has rested. */
  #select(event: PointerEvent): void {
    this.#fingers.clear();
    this.#start = event;
    this.#isDrag = false;
    this.#events.onSelecting(...this.#selection(event, event));
  }

  #move(event: PointerEvent): void {
    const start = this.#start;
    if (event.pointerType !== 'touch') this.#events.onHover(this.#place(event), this.#height(event));
    else if (start === null) this.#moveFinger(event);
    if (start?.pointerId !== event.pointerId) return;
    this.#isDrag ||= this.#isMoved(start, event);
    if (this.#isDrag) this.#events.onSelecting(...this.#selection(start, event));
  }

  #moveFinger(event: PointerEvent): void {
    const finger = this.#fingers.get(event.pointerId);
    if (finger === undefined) return;
    finger.now = event.clientX;
    if (Math.abs(event.clientY - finger.y) >= UNSTEADY) clearTimeout(this.#rest);
    const fingers = [...this.#fingers.values()];
    if (this.#edges === null && !fingers.some(({ start, now }) => Math.abs(now - start) >= UNSTEADY)) return;
    clearTimeout(this.#rest);
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
    const [start, isDrag, isTouch] = [this.#start, this.#isDrag, event.pointerType === 'touch'];
    if (isTouch && start === null) {
      const edges = this.#edges;
      const wasKnown = this.#fingers.delete(event.pointerId);
      if (!wasKnown || this.#fingers.size > 0) return;
      this.cancel();
      if (edges !== null) this.#events.onMoved(edges);
      else this.#events.onPick(this.#place(event), true, this.#height(event));
      this.#events.onMoving(null);
      return;
    }
    if (isTouch && start?.pointerId !== event.pointerId) return;
    this.cancel();
    if (start === null) return;
    if (isDrag) this.#events.onSelect(...this.#selection(start, event));
    else this.#events.onPick(this.#place(event), isTouch, this.#height(event));
  }
}
