/** What a route takes and gives, for the API's description. */
import type { Reason } from '../errors.ts';
import type { Query, Schema } from './query.ts';
/** The bearer token that a route asks for. */
export type TokenKind = 'loggingToken' | 'writeKey' | 'resourceToken' | 'managementToken' | 'metricsToken';

export interface Operation {
  /** A verb and a noun, for names in generated clients. */
  readonly id: string;
  readonly tag: 'Write' | 'Read' | 'Service';
  readonly summary: string;
  readonly description?: string;
  /** Null where the request needs none in a header. */
  readonly token: TokenKind | null;
  /** Whether the token is only needed by some clients. */
  readonly isTokenOptional?: boolean;
  /** Whether requests are counted: answers then carry RateLimit headers. */
  readonly isLimited: boolean;
  /** The `:name` segments of the path. */
  readonly path?: Readonly<Record<string, Described>>;
  readonly query?: Query;
  /** Request headers beside the token's, by their name. */
  readonly headers?: Readonly<Record<string, Described>>;
  readonly body?: Body;
  /** By status. */
  readonly answers: Readonly<Record<number, AnswerShape>>;
  /** What it may refuse, beside the refusals of every route. */
  readonly refusals: readonly Reason[];
  /** Bodies of its refusals by media type, where another protocol defines them. */
  readonly errors?: AnswerShape['content'];
  /** Further properties of the bodies of refusals, by status. */
  readonly refusalProperties?: Readonly<Record<number, Readonly<Record<string, Schema>>>>;
}

/** What operations have in common that write with a logging token. */
export const WRITES = { tag: 'Write', token: 'loggingToken', isLimited: true } as const;
/** What operations have in common that read with a resource token. */
export const READS = { tag: 'Read', token: 'resourceToken', isLimited: true } as const;

export interface Described {
  readonly description: string;
  readonly schema: Schema;
}

export interface Body {
  readonly description: string;
  /** By media type. */
  readonly content: Readonly<Record<string, { readonly schema: Schema; readonly example?: unknown }>>;
}

export interface AnswerShape {
  readonly description: string;
  /** By media type; a schema of null is that of a text which no schema describes. */
  readonly content: Readonly<Record<string, { readonly schema: Schema; readonly example?: unknown }>>;
  /** Response headers that only this answer has. */
  readonly headers?: Readonly<Record<string, Described>>;
}

/** An object with these fields; all are required but those of `optional`. */
export function objectOf<T = Record<string, unknown>>(
  properties: { readonly [K in keyof NoInfer<T>]-?: Schema },
  options: {
    readonly title?: string;
    readonly description?: string;
    readonly optional?: readonly string[];
  } = {},
): Schema {
  const { title, description, optional = [] } = options;
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return {
    ...(title !== undefined && { title }),
    ...(description !== undefined && { description }),
    type: 'object',
    required,
    properties,
  };
}

/** The body of a success: `{"success":true,"data":{…}}`. */
export function dataOf(data: Schema): Schema {
  return objectOf({ success: { const: true }, data });
}

/** An answer in JSON. */
export function json(description: string, schema: Schema): AnswerShape {
  return { description, content: { 'application/json': { schema } } };
}
