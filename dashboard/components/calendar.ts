/** A calendar month in which the first and the last day of a range are picked. */
import type { VNode } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { date, monthOfYear } from '../format.ts';
import { html } from '../html.ts';
import { DAY, type Range, type Span } from '../range.ts';
import { fromWall, toWall } from '../time-zone.ts';
import { Icon } from './icon.ts';

export interface CalendarProps {
  readonly span: Span;
  readonly zone: string;
  readonly onPick: (range: Range) => void;
}

const WEEKDAYS = ['Mo', 'Tu', 'We', 'Th', 'Fr', 'Sa', 'Su'];
const MOVES: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 };

/** Days are those of the wall clock, as the milliseconds at which UTC's clock shows their beginning. */
export function Calendar({ span, zone, onPick }: CalendarProps): VNode {
  const wall = (instant: number): number => Math.floor(toWall(instant, zone) / DAY) * DAY;
  const today = wall(Date.now());
  const shown = { first: span.from === null ? today : wall(span.from), last: wall(span.to - 1) };
  const [first, setFirst] = useState<number | null>(null);
  const [focused, setFocused] = useState(Math.min(shown.last, today));
  const grid = useRef<HTMLDivElement>(null);
  const month = new Date(focused).getUTCMonth();
  const start = Date.UTC(new Date(focused).getUTCFullYear(), month, 1);
  const monday = start - ((new Date(start).getUTCDay() + 6) % 7) * DAY;
  const days = Array.from({ length: 42 }, (_, index) => monday + index * DAY);
  const isMarked = (day: number): boolean =>
    first === null ? day >= shown.first && day <= shown.last : day === first;
  const pick = (day: number): void => {
    if (first === null) {
      setFirst(day);
      return;
    }
    const [from, to] = [Math.min(first, day), Math.max(first, day) + DAY];
    onPick({ kind: 'between', from: fromWall(from, zone), to: fromWall(to, zone) });
  };
  const move = (event: KeyboardEvent): void => {
    const days = MOVES[event.key];
    if (days === undefined) return;
    event.preventDefault();
    setFocused(Math.min(today, focused + days * DAY));
    requestAnimationFrame(() => grid.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus());
  };
  const turn = (months: number): void =>
    setFocused(Math.min(today, Date.UTC(new Date(start).getUTCFullYear(), month + months, 1)));
  return html`<div class="calendar" role="group" aria-label="Days">
    <header>
      <button class="icon-button" aria-label="Previous month" onClick=${() => turn(-1)}><${Icon} name="back" /></button>
      <b aria-live="polite">${monthOfYear(start, 'UTC')}</b>
      <button class="icon-button" aria-label="Next month" disabled=${start + 31 * DAY > today + 31 * DAY} onClick=${() => turn(1)}><${Icon} name="forward" /></button>
    </header>
    <div class="days" ref=${grid} onKeyDown=${move}>
      ${WEEKDAYS.map((name) => html`<span class="weekday" aria-hidden="true">${name}</span>`)}
      ${days.map(
        (day) => html`<button
          key=${day}
          class=${new Date(day).getUTCMonth() === month ? 'day-button' : 'day-button other'}
          aria-label=${date(day, 'UTC')}
          aria-pressed=${isMarked(day)}
          tabindex=${day === focused ? 0 : -1}
          disabled=${day > today}
          onClick=${() => pick(day)}
        >${new Date(day).getUTCDate()}</button>`,
      )}
    </div>
    <p class="hint" role="status">${first === null ? 'Pick the first day, then the last one.' : `From ${date(first, 'UTC')}: pick the last day.`}</p>
  </div>`;
}
