/** Loads data for components: one request at a time; the last answer is shown while the next one loads. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { asProblem, call, type Problem } from './api.ts';
import { useLatest } from './latest.ts';

export interface Resource<T> {
  readonly data: T | undefined;
  readonly problem: Problem | null;
  readonly loading: boolean;
  /** Whether `data` belongs to an earlier key. */
  readonly isStale: boolean;
  readonly reload: () => void;
  /** Replaces `data`, for example after a change. */
  readonly replace: (data: T) => void;
}

/** Last answers by key: going back shows them at once and reloads them. */
const answers = new Map<string, unknown>();
const MOST_ANSWERS = 40;
/** The last answer for a key, without asking for it. */
export const lastAnswer = <T>(key: string): T | undefined => answers.get(key) as T | undefined; // Stored under this key.

/** Requests sent before the component that needs them was mounted. */
const early = new Map<string, Promise<unknown>>();

export function forgetAll(): void {
  answers.clear();
  early.clear();
}

/** Sends a GET request now for the component that will ask for it. @param send how it reads the answer */
export function preload(path: string, send: (method: 'GET', path: string) => Promise<unknown> = call): void {
  const request = send('GET', path);
  request.catch(() => undefined); // The component that uses it handles the error.
  early.set(path, request);
}

/** What was sent for this very path, once. */
export function sentEarly<T>(path: string): Promise<T> | undefined {
  const sent = early.get(path) as Promise<T> | undefined; // Sent for it, and so of its kind.
  early.delete(path);
  return sent;
}

export interface ResourceOptions<T> {
  /** Gets the answer; by default a GET of the key. */
  readonly load?: (signal: AbortSignal) => Promise<T>;
  /** Answers of one scope stand in for each other while loading; default: the key's path without its query. */
  readonly scope?: string;
  /** Reloads when it changes, also for the same key. */
  readonly version?: number | string;
  /** What the answer stands for, where several keys stand for the same; default: the key. */
  readonly meaning?: string;
}

interface State<T> {
  readonly scope: string;
  /** The key that `data` answers, and what it stands for. */
  readonly key: string | null;
  readonly meaning: string;
  readonly data: T | undefined;
  readonly problem: Problem | null;
  readonly loading: boolean;
}

/**
 * The answer for a key, and where it stands.
 * @param key what is asked for, usually the path; null asks for nothing yet
 */
export function useResource<T>(key: string | null, options: ResourceOptions<T> = {}): Resource<T> {
  const scope = options.scope ?? (key ?? '').split('?')[0] ?? '';
  const meaning = options.meaning ?? key ?? '';
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<State<T>>({
    scope: '',
    key: null,
    meaning: '',
    data: undefined,
    problem: null,
    loading: true,
  });

  useEffect(() => {
    if (key === null) return;
    const aborter = new AbortController();
    const known = answers.get(key) as T | undefined; // Stored under this key.
    setState((old) => ({
      scope,
      ...(old.scope === scope && old.data !== undefined && (known === undefined || old.meaning === meaning)
        ? { data: old.data, key: old.key, meaning: old.meaning }
        : { data: known, key, meaning }),
      problem: old.scope === scope ? old.problem : null,
      loading: true,
    }));
    const request =
      sentEarly<T>(key) ?? (options.load ?? ((signal) => call<T>('GET', key, { signal })))(aborter.signal);
    request.then(
      (data) => {
        remember(key, data);
        if (!aborter.signal.aborted) setState({ scope, key, meaning, data, problem: null, loading: false });
      },
      (error: unknown) => {
        if (aborter.signal.aborted) return;
        setState((old) => ({ ...old, problem: asProblem(error), loading: false }));
      },
    );
    return () => aborter.abort();
  }, [key, turn, options.version]);

  const usable = state.scope === scope;
  const reload = (): void => setTurn((count) => count + 1);
  useAgain(usable && key !== null ? state.problem : null, reload);
  return {
    data: usable ? state.data : key === null ? undefined : (answers.get(key) as T | undefined),
    problem: usable ? state.problem : null,
    loading: usable ? state.loading : true,
    // The answer to the same key is not asked for again, whatever it now stands for.
    isStale: usable && state.data !== undefined && state.key !== key && state.meaning !== meaning,
    reload,
    replace: (data) => {
      if (key !== null) remember(key, data);
      setState({ scope, key, meaning, data, problem: null, loading: false });
    },
  };
}

/** How soon what failed is asked for again, where the server does not say. */
const AGAIN_MS = 10_000;

/** Asks again for what has failed for a reason that passes: no connection, a server that is busy or starts. */
export function useAgain(problem: Problem | null, again: () => void): void {
  const latest = useLatest(again);
  useEffect(() => {
    if (problem === null || (problem.status > 0 && problem.status < 500 && problem.status !== 429)) return;
    const ask = (): void => latest.current();
    const { retryAfterSeconds } = problem;
    const timer = setTimeout(ask, retryAfterSeconds === null ? AGAIN_MS : retryAfterSeconds * 1_000);
    addEventListener('online', ask);
    return () => {
      clearTimeout(timer);
      removeEventListener('online', ask);
    };
  }, [problem]);
}

/** Does something again and again while it is wanted and the page is seen, and once the page is seen again. */
export function useRepeated(again: () => void, ms: number, isWanted = true): void {
  const latest = useLatest(again);
  useEffect(() => {
    if (!isWanted) return;
    const turn = (): void => {
      if (!document.hidden) latest.current();
    };
    const timer = setInterval(turn, ms);
    document.addEventListener('visibilitychange', turn);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', turn);
    };
  }, [isWanted]);
}

function remember(key: string, data: unknown): void {
  answers.delete(key);
  answers.set(key, data);
  for (const oldest of answers.keys()) {
    if (answers.size <= MOST_ANSWERS) break;
    answers.delete(oldest);
  }
}

export interface Action<A extends readonly unknown[]> {
  readonly run: (...given: A) => Promise<void>;
  readonly busy: boolean;
  readonly problem: Problem | null;
  readonly clear: () => void;
}

/** A change by the user: at most one at a time; its error is kept, to be shown next to the button. */
export function useAction<A extends readonly unknown[]>(work: (...given: A) => Promise<void>): Action<A> {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const running = useRef(false);
  return {
    busy,
    problem,
    clear: () => setProblem(null),
    run: async (...given) => {
      if (running.current) return;
      running.current = true;
      setBusy(true);
      setProblem(null);
      try {
        await work(...given);
      } catch (error) {
        setProblem(asProblem(error));
      } finally {
        running.current = false;
        setBusy(false);
      }
    },
  };
}
