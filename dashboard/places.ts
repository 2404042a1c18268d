/** What the components of a page tell each other, so that none looks into the markup of another. */
import type { RefObject } from 'preact';
import { useEffect } from 'preact/hooks';

/** How many dialogs, and rows of lists, are open. */
export const opened = { dialogs: 0, rows: 0 };

/** Counts something while it is open. */
export function useOpened(what: keyof typeof opened, isOpen: boolean): void {
  useEffect(() => {
    if (!isOpen) return;
    opened[what] += 1;
    return () => {
      opened[what] -= 1;
    };
  }, [isOpen]);
}

/** Fields that a page can be searched by, in the order in which they came. */
export const searches = new Set<RefObject<HTMLElement | null>>();

export function useSearchField(field: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    searches.add(field);
    return () => void searches.delete(field);
  }, []);
}
