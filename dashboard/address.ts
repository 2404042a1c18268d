/** The address of the page: what is in it, links within the dashboard, and steps in the history. */
import { signal } from './signal.ts';

const read = (): string => location.pathname + location.search;

const address = signal(read());

/** Goes to an address of the dashboard. @param replace without a step in the history */
export function route(to: string, replace = false): void {
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  address.value = to;
}

/** Has links within the dashboard change the page that is there; all others, and keys that ask for a new window, are the browser's. */
export function followLinks(): void {
  addEventListener('popstate', () => {
    address.value = read();
  });
  addEventListener('click', (event) => {
    const link = event.composedPath().find((target) => target instanceof HTMLAnchorElement);
    const isOurs =
      link !== undefined &&
      link.href !== '' &&
      link.origin === location.origin &&
      !link.getAttribute('href')?.startsWith('#') &&
      /^(_?self)?$/i.test(link.target) &&
      !link.hasAttribute('download');
    if (!isOurs || event.button !== 0 || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey)
      return;
    event.preventDefault();
    route(link.href.slice(location.origin.length));
  });
}

export interface Address {
  /** Path and query. */
  readonly url: string;
  /** The path without a slash at its end. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly route: typeof route;
}

/** The address; a component that reads it is rendered again when it changes. */
export function useAddress(): Address {
  const url = address.value;
  const { pathname, searchParams } = new URL(url, location.origin);
  return { url, path: pathname.replace(/\/$/, '') || '/', query: Object.fromEntries(searchParams), route };
}

/**
 * Returns the parameters of a path, decoded, or null if it does not match.
 * @param pattern such as /apps/:appId/:tab?, where the parameter with the question mark may be absent
 * @throws URIError where a parameter has an invalid escape
 */
export function parametersOf(path: string, pattern: string): Record<string, string> | null {
  const [parts, wanted] = [path, pattern].map((text) => text.split('/').filter(Boolean)) as [
    string[],
    string[],
  ]; // One of each.
  if (parts.length > wanted.length) return null;
  const found: Record<string, string> = {};
  for (const [index, want] of wanted.entries()) {
    const part = parts[index];
    const [, name, isOptional] = /^:(\w+)(\??)$/.exec(want) ?? [];
    if (name === undefined ? part !== want : part === undefined && !isOptional) return null;
    if (name !== undefined && part !== undefined) found[name] = decodeURIComponent(part);
  }
  return found;
}
