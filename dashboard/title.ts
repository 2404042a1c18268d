/** The document's title: what tabs, bookmarks and screen readers call the page. */
import { useEffect } from 'preact/hooks';

export function useTitle(title: string | undefined): void {
  useEffect(() => {
    document.title = title === undefined ? 'Tidemark' : `${title} · Tidemark`;
  }, [title]);
}
