/** Bodies of requests under /api: flat JSON objects, checked by compiled schemas from which their types come. */
import { Ajv, type ErrorObject } from 'ajv';
import { invalidField, Rejection } from '../../errors.ts';

interface FieldSchema {
  readonly type: 'string' | 'number' | 'boolean' | 'array';
  readonly nullable?: true;
  readonly [keyword: string]: unknown;
}

interface FieldTypes {
  string: string;
  number: number;
  boolean: boolean;
  array: readonly string[];
}

type Field<F extends FieldSchema> = FieldTypes[F['type']] | (F['nullable'] extends true ? null : never);

/** The fields of a body: those that are required, and the others. */
type Body<F extends Readonly<Record<string, FieldSchema>>, R extends keyof F> = {
  readonly [K in R]: Field<F[K]>;
} & { readonly [K in Exclude<keyof F, R>]?: Field<F[K]> | undefined };

/** Parses a body into its fields, or returns a refusal that names the first invalid one. */
export type BodyParser<T> = (text: string) => T | Rejection;

/** Largest nesting depth and number of separators of a body: a list of apps is the longest. */
const MAX_DEPTH = 4;
const MAX_COMMAS = 5_000;

const TOO_COMPLEX = new Rejection('invalidBody', 'The body has too many fields or levels.');

const ajv = new Ajv({ strict: true });

/**
 * Compiles the parser of a body. Unknown fields are ignored.
 * @param fields a JSON schema each; arrays are of strings
 */
export function bodyOf<
  const F extends Readonly<Record<string, FieldSchema>>,
  R extends keyof F & string = never,
>(fields: F, required: readonly R[] = []): BodyParser<Body<F, R>> {
  const properties = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [
      name,
      field.type === 'array' ? { ...field, items: { type: 'string' } } : field,
    ]),
  );
  const isBody = ajv.compile<Body<F, R>>({ type: 'object', required, properties });
  return (text) => {
    if (isTooComplex(text)) return TOO_COMPLEX;
    let body: unknown;
    try {
      // An empty body counts as an object without fields: a DELETE may have none.
      body = text === '' ? {} : JSON.parse(text);
    } catch {
      return new Rejection('invalidBody', 'The body is not valid JSON.');
    }
    return isBody(body) ? body : violation(isBody.errors?.[0]);
  };
}

/**
 * Whether a text has more structure than any valid body. JSON.parse takes up to a hundred times as long for nested arrays
 * as for strings and numbers, and unauthenticated clients can send them.
 */
function isTooComplex(text: string): boolean {
  let depth = 0;
  let commas = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') isInString = !isInString;
    else if (isInString) at += character === '\\' ? 1 : 0;
    else if (character === ',') commas += 1;
    else if (character === '[' || character === '{') depth += 1;
    else if (character === ']' || character === '}') depth -= 1;
    if (depth > MAX_DEPTH || commas > MAX_COMMAS) return true;
  }
  return false;
}

/** For requests without fields. */
export const NO_FIELDS = bodyOf({});

function violation(error: ErrorObject | undefined): Rejection {
  if (error?.keyword === 'required') return invalidField(error.params.missingProperty, 'is missing');
  const field = error?.instancePath.slice(1) ?? '';
  return field === ''
    ? new Rejection('invalidBody', 'The body must be a JSON object.')
    : invalidField(field, error?.message ?? 'is not valid');
}
