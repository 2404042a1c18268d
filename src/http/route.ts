/** Routes, and the router that finds one by method and path. */

import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from './exchange.ts';
import type { Operation } from './operation.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';

/** A route without what it does. */
export interface Declaration {
  readonly method: Method;
  /** `/fixed/path`, or with `:name` segments, each of which matches one non-empty segment. */
  readonly path: string;
  /** The valid values of each `:name` segment. */
  readonly parameters?: Readonly<Record<string, Parameter>>;
  /** The request headers that the handler reads, in lower case. A transport may drop all others. */
  readonly headers: readonly string[];
  /** The start of further headers that the handler reads, whatever their names, in lower case. */
  readonly headerPrefix?: string;
  /** Whether the handler reads the peer address of the connection. */
  readonly remoteAddress?: boolean;
  /** Whether a GET route is served even while too many responses wait for slow readers: small ones that monitoring needs. */
  readonly exemptFromLoadShedding?: boolean;
  /** Whether pages of every origin may read its responses. They are sent without credentials. */
  readonly crossOrigin?: boolean;
  /** What it takes and gives; absent where the route is not part of the public API. */
  readonly operation?: Operation;
}

export interface Route extends Declaration {
  readonly handle: (exchange: Exchange) => Promise<Outcome>;
}

/** A `:name` segment of a path. */
export interface Parameter {
  /** Form of its percent-decoded value. The handler gets no other, so none with NUL, which PostgreSQL's text refuses. */
  readonly form: RegExp;
  /** The response to any other value. */
  readonly refusal: Rejection;
}

export interface Match {
  readonly route: Route;
  /** Percent-decoded values of the path's `:name` segments. */
  readonly parameters: readonly string[];
}

interface Pattern {
  readonly route: Route;
  /** The path's segments: a literal text or a parameter. */
  readonly segments: readonly (string | Parameter)[];
}

/** Longer paths are no mistakes of a few characters. */
const LONGEST_MISTAKE = 64;

export class Router {
  readonly #fixed = new Map<string, Route[]>();
  readonly #patterns: readonly Pattern[];
  /** The essence of a path → the path, for advice on mistakes. */
  readonly #known: ReadonlyMap<string, string>;

  /** @throws if a route does not define one of its `:name` segments in `parameters` */
  constructor(routes: readonly Route[]) {
    for (const route of routes.filter(isFixed)) {
      const sharing = this.#fixed.get(route.path);
      if (sharing) sharing.push(route);
      else this.#fixed.set(route.path, [route]);
    }
    this.#patterns = routes.filter((route) => !isFixed(route)).map(patternOf);
    const paths = [...this.#fixed.keys()].filter((path) => path !== '/' && !path.startsWith('/api/'));
    // What is meant by a whole path comes before what is meant by the end of another one.
    this.#known = new Map(
      [
        ...paths.flatMap((path) => endsOf(path).map((end) => [end, path] as const)),
        ...paths.map((path) => [path, path] as const),
      ]
        .map(([meant, path]) => [essence(meant), path] as const)
        // A letter alone is no mistake of another path.
        .filter(([short]) => short.length > 1),
    );
  }

  /** Finds the route; HEAD is served by the GET route. @returns 404, or 405 with `Allow`, if there is none */
  match(method: string, path: string): Match | Rejection {
    const wanted = method === 'HEAD' ? 'GET' : method;
    const fixed = this.#fixed.get(path)?.map((route): Pattern => ({ route, segments: [] }));
    const segments = path.split('/');
    const candidates = fixed ?? this.#patterns.filter((pattern) => fits(pattern, segments));
    const found = candidates.find(({ route }) => route.method === wanted);
    if (found) return parametersOf(found, segments);
    if (candidates.length === 0) return this.#nothingAt(path);
    const methods = candidates.map(({ route }) => route.method as string);
    if (methods.includes('GET')) methods.push('HEAD');
    return new Rejection('methodNotAllowed', `This path takes ${methods.join(', ')}.`, {
      headers: { Allow: methods.join(', ') },
    });
  }

  #nothingAt(path: string): Rejection {
    const meant = this.#known.get(essence(path));
    const advice = meant === undefined ? '.' : `: did you mean ${meant}?`;
    return new Rejection('notFound', `There is nothing at this path${advice}`);
  }
}

/** The ends of a path that clients ask for which have the host alone in place of the whole address: `/v1/logs`, `/_bulk`. */
function endsOf(path: string): string[] {
  const names = path.split('/').slice(1);
  return names
    .map((_, at) => names.slice(at + 1))
    .filter(([first = '', ...others]) => others.length > 0 || first.startsWith('_'))
    .map((end) => `/${end.join('/')}`);
}

/** What is left of a path without what is mistaken most often: its first folder, case, separators, a last letter and slashes. */
function essence(path: string): string {
  return path
    .slice(0, LONGEST_MISTAKE)
    .toLowerCase()
    .replace(/^\/+/, '/')
    .replace(/^\/(?:v1|public)(?=\/)/, '')
    .replace(/[-_/]/g, '')
    .replace(/[sz]$/, '');
}

function patternOf(route: Route): Pattern {
  const segments = route.path.split('/').map((segment) => {
    if (!segment.startsWith(':')) return segment;
    const parameter = route.parameters?.[segment.slice(1)];
    if (parameter === undefined)
      throw new Error(`${route.method} ${route.path} does not define ${segment} in its parameters.`);
    return parameter;
  });
  return { route, segments };
}

function fits(pattern: Pattern, segments: readonly string[]): boolean {
  return (
    pattern.segments.length === segments.length &&
    pattern.segments.every((one, index) =>
      typeof one === 'string' ? one === segments[index] : segments[index] !== '',
    )
  );
}

function parametersOf(
  { route, segments: expected }: Pattern,
  segments: readonly string[],
): Match | Rejection {
  const parameters: string[] = [];
  for (const [index, one] of expected.entries()) {
    if (typeof one === 'string') continue;
    const value = decodeSegment(segments[index] ?? '');
    if (!one.form.test(value)) return one.refusal;
    parameters.push(value);
  }
  return { route, parameters };
}

/** Whether the path has no `:name` segment. */
export function isFixed(route: Route): boolean {
  return !route.path.includes(':');
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // The form of the parameter decides on a malformed escape.
  }
}
