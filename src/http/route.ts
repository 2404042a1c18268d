/** Routes, and which of them a method and a path mean. */

import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from './exchange.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Route {
  readonly method: Method;
  /** `/fixed/path`, or with `:name` segments, each of which matches one segment that is not empty. */
  readonly path: string;
  /** The request headers that the handler reads, in lower case: a transport need not keep others. */
  readonly headers: readonly string[];
  /** True where the handler reads the address at the other end of the connection. */
  readonly remoteAddress?: boolean;
  /** True for a GET route with a small answer that supervisors need most when there is no room for large ones. */
  readonly isEssential?: boolean;
  readonly handle: (exchange: Exchange) => Promise<Outcome>;
}

export interface Match {
  readonly route: Route;
  /** Percent-decoded values of the path's `:name` segments. */
  readonly parameters: readonly string[];
}

const NONE: readonly string[] = [];

export class Router {
  readonly #fixed = new Map<string, Route[]>();
  readonly #patterns: { readonly expression: RegExp; readonly route: Route }[] = [];

  constructor(routes: readonly Route[]) {
    for (const route of routes) {
      if (isFixed(route)) {
        const sharing = this.#fixed.get(route.path);
        if (sharing) sharing.push(route);
        else this.#fixed.set(route.path, [route]);
      } else {
        const source = route.path.replace(/:[^/]+/g, '([^/]+)');
        this.#patterns.push({ expression: new RegExp(`^${source}$`), route });
      }
    }
  }

  /** Finds the route. HEAD is answered by the GET route. Otherwise 404, or 405 with `Allow`. */
  match(method: string, path: string): Match | Rejection {
    const wanted = method === 'HEAD' ? 'GET' : method;
    const candidates = this.#candidates(path);
    const found = candidates.find(({ route }) => route.method === wanted);
    if (found) return found;
    if (candidates.length === 0) return new Rejection('notFound', 'There is nothing at this path.');
    const methods = candidates.map(({ route }) => route.method as string);
    if (methods.includes('GET')) methods.push('HEAD');
    return new Rejection('methodNotAllowed', `This path takes ${methods.join(', ')}.`, {
      headers: { Allow: methods.join(', ') },
    });
  }

  #candidates(path: string): readonly Match[] {
    const fixed = this.#fixed.get(path);
    if (fixed) return fixed.map((route) => ({ route, parameters: NONE }));
    return this.#patterns.flatMap(({ expression, route }) => {
      const parameters = expression.exec(path)?.slice(1).map(decodeSegment);
      return parameters === undefined ? [] : [{ route, parameters }];
    });
  }
}

/** True where the path has no `:name` segment. */
export function isFixed(route: Route): boolean {
  return !route.path.includes(':');
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // A broken escape names nothing that exists: the handler answers 404.
  }
}
