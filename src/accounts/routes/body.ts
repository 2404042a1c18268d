/** Bodies of requests under /api: flat JSON objects, checked by compiled schemas from which their types come. */
import { Ajv, type ErrorObject } from 'ajv';
import { OWN_SCHEMAS } from '../../base/own-schemas.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { scanDocument } from '../../json/mistake.ts';
import { JsonScan } from '../../json/scan.ts';

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

const ajv = new Ajv(OWN_SCHEMAS);

/**
 * Compiles the parser of a body.
 * @param fields a JSON schema each; arrays are of strings
 * @param others what becomes of fields that are not among them
 */
export function bodyOf<
  const F extends Readonly<Record<string, FieldSchema>>,
  R extends keyof F & string = never,
>(fields: F, required: readonly R[] = [], others: 'ignored' | 'refused' = 'ignored'): BodyParser<Body<F, R>> {
  const properties = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [
      name,
      field.type === 'array' ? { ...field, items: { type: 'string' } } : field,
    ]),
  );
  const isBody = ajv.compile<Body<F, R>>({ type: 'object', required, properties });
  const names = Object.keys(fields);
  const scan = new JsonScan(names, others === 'refused');
  return (text) => {
    // An empty body counts as an object without fields: a DELETE may have none.
    const body = text === '' ? {} : fieldsOf(text, scan);
    if (body instanceof Rejection) return body;
    const other = scan.firstOfOthers((sent, name, end) => sent.slice(name, Math.min(end, name + MAX_TOLD)));
    if (text !== '' && other !== null)
      return invalidField(other, `is none of the body's: ${names.join(', ')}`);
    return isBody(body) ? body : violation(isBody.errors?.[0]);
  };
}

/**
 * The fields that a scan searches. Only they are built: JSON.parse takes up to a hundred times as long for nested arrays as a
 * scan, and unauthenticated clients can send them.
 */
function fieldsOf(text: string, scan: JsonScan): object | null | Rejection {
  const problem = scanDocument(scan, text);
  return problem ?? scan.fields(LEVELS);
}

/** Levels of a field: arrays are of strings. */
const LEVELS = 1;

/** Characters of an unknown name that the message quotes. */
const MAX_TOLD = 50;

/** For requests without fields. */
export const NO_FIELDS = bodyOf({});

function violation(error: ErrorObject | undefined): Rejection {
  if (error?.keyword === 'required') return invalidField(error.params.missingProperty, 'is missing');
  const field = error?.instancePath.slice(1) ?? '';
  if (error?.keyword === 'enum' && field !== '')
    return invalidField(field, `must be one of ${error.params.allowedValues.join(', ')}`);
  return field === ''
    ? new Rejection('invalidBody', 'The body must be a JSON object.')
    : invalidField(field, error?.message ?? 'is not valid');
}
