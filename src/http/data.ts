/** The success response of the service's own routes: `{"success":true,"data":{…}}`. */
import type { Outcome } from './exchange.ts';

/** What JSON.stringify makes a `T` of: a Date becomes a text. */
export type DataOf<T> = T extends string
  ? string extends T
    ? T | Date
    : T
  : T extends readonly (infer E)[]
    ? readonly DataOf<E>[]
    : T extends object
      ? { readonly [K in keyof T]: DataOf<T[K]> }
      : T;

/** An answer without fields. */
export type Nothing = Readonly<Record<never, never>>;

/**
 * Responds with data of a shape that clients know. Name it: `done<AppList>({ apps })`. The shapes are in src/api-types/, which
 * the dashboard imports.
 */
export function done<T extends object = never>(
  data: NoInfer<DataOf<T>>,
  options: { status?: number; setCookie?: string } = {},
): Outcome {
  const body = JSON.stringify({ success: true, data });
  const { status = 200, setCookie } = options;
  return setCookie === undefined ? { status, body } : { status, body, headers: { 'Set-Cookie': setCookie } };
}
