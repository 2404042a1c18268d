/** The rows of the list by keyboard, and several at once: J and K move, Shift selects what is passed over, Escape selects none. */
import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EventPage, EventRow } from '../event-rows.ts';
import { useLatest } from '../latest.ts';

export interface RowSelection {
  readonly ids: ReadonlySet<string>;
  /** Selected events that are still listed, in their order. */
  readonly events: readonly EventRow[];
  readonly clear: () => void;
}

const NONE: ReadonlySet<string> = new Set();

const idOf = (row: Element | null | undefined): string | null =>
  row?.closest('article')?.getAttribute('data-id') ?? null;

/** @param list the element that has the rows */
export function useRowSelection(
  list: RefObject<HTMLElement | null>,
  pages: readonly EventPage[],
): RowSelection {
  const [ids, select] = useState(NONE);
  /** Where a selection begins: the row that was pressed, or reached by a key, without Shift. */
  const anchor = useRef<string | null>(null);
  const latest = useLatest(pages);
  useEffect(() => {
    const selectTo = (id: string): void => {
      const all = latest.current.flatMap(({ events }) => events.map((event) => event.id));
      const ends = [all.indexOf(anchor.current ?? id), all.indexOf(id)];
      select(new Set(all.slice(Math.max(0, Math.min(...ends)), Math.max(...ends) + 1)));
    };
    const press = (event: KeyboardEvent): void => {
      const { key, target, shiftKey } = event;
      const step = { j: 1, k: -1 }[key.toLowerCase()];
      const isTyped = target instanceof Element && target.closest('input, select, textarea, dialog');
      if (event.ctrlKey || event.metaKey || event.altKey || isTyped) return;
      if (key === 'Escape') select(NONE);
      if (step === undefined) return;
      const rows = [...(list.current?.querySelectorAll<HTMLElement>('.event-row') ?? [])];
      const at = rows.indexOf(document.activeElement as HTMLElement);
      const next = rows[at < 0 ? 0 : at + step];
      const id = idOf(next);
      event.preventDefault();
      if (id === null) return;
      next?.focus();
      if (!shiftKey) anchor.current = id;
      else selectTo(id);
    };
    const click = (event: MouseEvent): void => {
      const id = idOf(event.target instanceof Element ? event.target.closest('.event-row') : null);
      if (id === null) return;
      if (!event.shiftKey) anchor.current = id;
      else {
        // It opens no row.
        event.stopPropagation();
        selectTo(id);
      }
    };
    document.addEventListener('keydown', press);
    document.addEventListener('click', click, true);
    return () => {
      document.removeEventListener('keydown', press);
      document.removeEventListener('click', click, true);
    };
  }, []);
  const events = ids.size === 0 ? [] : pages.flatMap((page) => page.events.filter(({ id }) => ids.has(id)));
  return { ids, events, clear: () => select(NONE) };
}

/** Events as the export has them, one a line. */
export const linesOfEvents = (events: readonly EventRow[], names: ReadonlyMap<string, string>): string =>
  events
    .map(({ id, typeId, createdAt, payload }) => {
      const rest = JSON.stringify({ id, typeId, type: names.get(typeId), createdAt });
      return `${rest.slice(0, -1)},"payload":${payload}}\n`;
    })
    .join('');
