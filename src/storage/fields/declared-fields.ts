/** Declared fields, and what reads them from payloads. */
import { type FieldKind, PayloadValues } from './payload-values.ts';

export type { FieldKind } from './payload-values.ts';

export interface DeclaredField {
  /** Internal id. */
  readonly id: number;
  /** Internal id of the type whose events have it; null: events of all types. */
  readonly typeId: number | null;
  /** Names from the payload's top on. */
  readonly path: readonly string[];
  readonly kind: FieldKind;
}

/** The fields of an app. */
export interface AppFields {
  readonly fields: readonly DeclaredField[];
  /** Reads the value, or the number, of each of them, in their order. */
  readonly values: PayloadValues;
}

export function appFields(fields: readonly DeclaredField[]): AppFields {
  const [paths, kinds] = [fields.map(({ path }) => path), fields.map(({ kind }) => kind)];
  return { fields, values: new PayloadValues(paths, kinds) };
}

/** The names of a path as the database has it. */
export function namesOf(path: string): readonly string[] {
  return JSON.parse(path) as string[];
}
