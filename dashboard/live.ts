/** The live feed of an app, while one of its pages is visible. */
import { useEffect, useState } from 'preact/hooks';
import { useLatest } from './latest.ts';
import { renewals } from './state.ts';

/** A browser opens at most six connections per server (HTTP/1.1), so hidden tabs close theirs. */
const HIDDEN_MS = 10_000;
/** Delay before a refused feed is retried. */
const REFUSED_MS = 5_000;

/**
 * Follows the feed while `on` is true.
 * @param onMessage called with the text of a message; with null if the caller must reload
 * @param start where it begins, taken out when it is opened: what the caller has read says so; empty: from when it is opened on
 * @returns true while the feed is interrupted
 */
export function useLive(
  appId: string,
  on: boolean,
  onMessage: (news: string | null) => void,
  start: { current: string | null } = { current: '' },
): boolean {
  const [isLost, setLost] = useState(false);
  const isOffline = useOffline();
  const latest = useLatest(onMessage);
  useEffect(() => {
    if (!on) return;
    let source: EventSource | null = null;
    let timer = 0;
    let after = start.current ?? '';
    start.current = '';
    /** Whether the caller lacks nothing when the feed begins. */
    let goesOn = after !== '';
    const close = (): void => {
      source?.close();
      source = null;
    };
    const open = (): void => {
      source = new EventSource(`/api/apps/${appId}/live?after=${after}`);
      for (const kind of ['ready', 'reset', 'recount', 'events', 'stalled', 'end']) {
        source.addEventListener(kind, ({ data, lastEventId }: MessageEvent<string>) => {
          after = lastEventId || after;
          setLost(kind === 'stalled');
          if (kind === 'end') close();
          const isKnown = kind === 'stalled' || (kind === 'ready' && goesOn);
          if (kind !== 'recount') goesOn = false;
          // If the session has ended, the next request is refused, and the page shows why.
          if (!isKnown) latest.current(kind === 'events' ? data : null);
        });
      }
      source.onerror = () => {
        setLost(true);
        if (source?.readyState !== EventSource.CLOSED) return;
        // Refused: the next request of the page shows why.
        close();
        latest.current(null);
        timer = setTimeout(turn, REFUSED_MS);
      };
    };
    const turn = (): void => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(close, HIDDEN_MS);
      else if (source === null) open();
    };
    turn();
    document.addEventListener('visibilitychange', turn);
    return () => {
      document.removeEventListener('visibilitychange', turn);
      clearTimeout(timer);
      close();
      setLost(false);
    };
  }, [appId, on, renewals.value]);
  return on && (isLost || isOffline);
}

/** Whether the browser says that there is no network: a feed that is cut off is silent, as a quiet one is. */
function useOffline(): boolean {
  const [isOffline, setOffline] = useState(!navigator.onLine);
  useEffect(() => {
    const turn = (): void => setOffline(!navigator.onLine);
    addEventListener('online', turn);
    addEventListener('offline', turn);
    return () => {
      removeEventListener('online', turn);
      removeEventListener('offline', turn);
    };
  }, []);
  return isOffline;
}

/** Number of events of these types in a message of the feed. */
export function countNews(news: string, types: readonly string[], unwanted: ReadonlySet<string>): number {
  const { counts } = JSON.parse(news) as { counts: { typeId: string; count: number }[] };
  return counts.reduce(
    (sum, { typeId, count }) => (isWanted(typeId, types, unwanted) ? sum + count : sum),
    0,
  );
}

/** Whether a type is one of these; of none: whether it is not among those that are not wanted. */
export const isWanted = (typeId: string, types: readonly string[], unwanted: ReadonlySet<string>): boolean =>
  types.length === 0 ? !unwanted.has(typeId) : types.includes(typeId);
